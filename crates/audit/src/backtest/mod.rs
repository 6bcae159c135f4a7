//! A change of configuration, tried on the past: what came from outside in a window of the record, run through the same brain
//! with the change made at its beginning, in a model of the world.
//!
//! - [`window`]: which entries of the record are in it.
//! - [`given`]: what of a recorded entry came from outside, and what followed from recorded actions.
//! - [`learned`]: how long things took in the record; [`world`]: what carries out the actions of a run, in those times.
//! - [`model`]: one run: a fork of the state, fed and acted upon.
//! - [`tally`]: what a run amounts to; [`lines`]: the same over time, to be drawn; [`deeds`]: where two runs part.
//! - [`reasons`]: what the record had that the model leaves out, where the two differ.
//! - [`report`]: all of it as it is told, with what had to be assumed.
//!
//! Three runs go side by side: the record itself, the model without the change, and the model with it. What the change does is
//! the difference between the last two, which have the same model's errors; how good the model is shows in the difference
//! between the first two.
//!
//! The record is read three times and never held: to the beginning of the window, once through it to learn, once to run.
//!
//! Not here: reading files and groups, and what the answer looks like (`loadline-cli`).

mod deeds;
mod given;
mod learned;
mod lines;
mod model;
mod reasons;
mod report;
mod tally;
mod window;
mod world;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use loadline_state_machine::{Actor, Span, State, Time};

pub use deeds::Difference;
pub use learned::LearnedSize;
pub use lines::{CLUSTERS_MAX as CLUSTERS_WITH_LINES_MAX, Point};
pub use report::{Backtest, ChangeEffect, ClusterLines, Fidelity, Lines, RunLines, Window};
pub use tally::Figures;

use crate::change::{Asked, Change, ChangeError};
use crate::replay::{Moment, ReplayError, Start, Step, begin, replay};
use crate::source::{Source, SourceError};
use deeds::{Decided, Deed, InOrder, InTime, Side, What, deeds_of};
use given::{Given, Givens};
use learned::Learned;
use model::Model;
use tally::Tally;
use window::{Extent, window};

/// Why nothing could be tried on this past.
#[derive(Debug, thiserror::Error)]
pub enum BacktestError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error("there is nothing in this history")]
    Empty,
    #[error("the window is empty: it would begin at {from} and end at {to}; the history is from {first} to {last}")]
    NoWindow { from: Time, to: Time, first: Time, last: Time },
    #[error(
        "entries {first} to {last} are missing in this history, from {before} to {behind}: let the window end before them, or \
         begin behind them"
    )]
    Missing {
        first: u64,
        last: u64,
        /// The times of the entries before and behind them.
        before: Time,
        behind: Time,
    },
    #[error(
        "a backup was restored at entry {index}, at {at}, which replaced everything: let the window begin after it, or end before"
    )]
    Restored { index: u64, at: Time },
}

/// One end of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    At(Time),
    /// Before the end of the window, or, for the end itself, before the end of the history.
    Before(Span),
    /// The same, of which nobody has asked for this length: less where the history does not have it.
    UpTo(Span),
    /// The first or the last entry that there is, without a gap between them.
    Open,
}

impl Bound {
    /// Somebody has asked for what begins there.
    fn is_named(self) -> bool {
        matches!(self, Self::At(_) | Self::Before(_))
    }
}

/// What is to be tried.
#[derive(Debug, Clone)]
pub struct Trial {
    pub since: Bound,
    pub until: Bound,
    /// None is a test of the model: it should do what the record did.
    pub change: Change,
    pub actor: Actor,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    pub entries: u64,
    pub entries_total: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Up to the beginning of the window.
    Replaying,
    Learning,
    Running,
}

/// Tries a change on the past. `progress` hears now and then how far it is.
pub fn backtest(
    source: &dyn Source,
    trial: &Trial,
    mut progress: impl FnMut(Progress),
) -> Result<Backtest, BacktestError> {
    let mut extent = window(source, trial)?;
    loop {
        let restored = match within(source, trial, extent, &mut progress) {
            Err(BacktestError::Restored { index, .. }) if !trial.since.is_named() => index,
            done => return done,
        };
        // Nobody has asked for the time before it.
        extent = extent.behind_restore(source, restored)?;
    }
}

fn within(
    source: &dyn Source,
    trial: &Trial,
    window: Extent,
    progress: &mut impl FnMut(Progress),
) -> Result<Backtest, BacktestError> {
    let mut told = |phase, entries, entries_total| {
        const EVERY: u64 = 256;
        if entries % EVERY == 0 || entries == entries_total {
            progress(Progress { phase, entries, entries_total });
        }
    };

    let before = window.first.saturating_sub(1);
    let start = begin(source, Start::Snapshot { not_after: before })?;
    let from = start.applied().0;
    let fork = replay(source, Start::From(Box::new(start)), Moment::Index(before), |step| {
        told(Phase::Replaying, step.record.index - from, before - from);
    })?
    .state;
    // What it is about may be made later in the window. That it is refused is said if it still is in the end.
    let first_try = trial.change.asks(&fork, &trial.actor);

    let mut learned = Learned::beginning_with(&fork);
    let entries = window.last - before;
    replay(source, Start::From(Box::new(fork.clone())), Moment::Index(window.last), |step| {
        told(Phase::Learning, step.record.index - before, entries);
        learned.note(step.entry, step.applied);
    })?;

    let mut runs = Runs::begin(&fork, Arc::new(learned), first_try, window, trial);
    let mut failed = None;
    let ended = replay(source, Start::From(Box::new(fork.clone())), Moment::Index(window.last), |step| {
        told(Phase::Running, step.record.index - before, entries);
        if failed.is_none() {
            failed = runs.step(step).err();
        }
    })?;
    match (failed, runs.refused.take()) {
        (Some(failed), _) => Err(failed),
        (None, Some(refused)) => Err(refused.into()),
        (None, None) => Ok(runs.end(&ended.state)),
    }
}

/// The record and the model, side by side.
#[derive(Debug)]
struct Runs<'a> {
    trial: &'a Trial,
    window: Extent,
    fork: State,
    learned: Arc<Learned>,
    givens: Givens,
    recorded: Tally,
    decided: Decided,
    unchanged: Model,
    /// Nothing if there is no change to try. One that turns out to change nothing has a run as well: that it does the same is the
    /// answer.
    changed: Option<Model>,
    /// What of the change is not made so far: all of it if it is refused, else the statements that are about no row yet.
    rest: Change,
    /// Why the change is not made so far.
    refused: Option<ChangeError>,
    /// Whether it has made anything other than it was.
    made: bool,
    /// What was made of it after the beginning of the window.
    made_later: Vec<MadeLater>,
    fidelity: InOrder,
    effect: InTime,
    recorded_calls: u64,
    modelled_calls: u64,
}

/// Something of the change that could not be made at once.
#[derive(Debug)]
struct MadeLater {
    /// After which entry it was made, and when.
    index: u64,
    at: Time,
    was_refused: bool,
}

impl Runs<'_> {
    fn begin<'a>(
        fork: &State,
        learned: Arc<Learned>,
        first_try: Result<Asked, ChangeError>,
        window: Extent,
        trial: &'a Trial,
    ) -> Runs<'a> {
        let span = (window.from, window.to);
        let model = || Model::begin(fork, &learned, span);
        let unchanged = model();
        let mut changed = (!trial.change.is_empty()).then(model);
        let (rest, refused, made) = match first_try {
            Ok(Asked { commands, unmet }) => {
                let made = changed.as_mut().is_some_and(|changed| changed.make(commands, window.from, &trial.actor));
                (unmet, None, made)
            }
            Err(refused) => (trial.change.clone(), Some(refused), false),
        };
        let effect = InTime::new(learned.entries_apart());
        Runs {
            trial,
            window,
            fork: fork.clone(),
            givens: Givens::of(fork),
            recorded: Tally::begin(fork, span),
            decided: Decided::at(fork),
            unchanged,
            changed,
            rest,
            refused,
            made,
            made_later: Vec::new(),
            learned,
            fidelity: InOrder::default(),
            effect,
            recorded_calls: 0,
            modelled_calls: 0,
        }
    }

    fn step(&mut self, step: &Step<'_>) -> Result<(), BacktestError> {
        let given = self.givens.take(step)?;
        self.recorded.note(step.state, step.applied.time, &step.applied.events);
        let (index, at) = (step.record.index, step.applied.time);
        let recorded = deeds_of(step.state, index, at, &step.applied.events, &mut self.decided);
        self.unchanged.feed(&given);
        if let Some(changed) = &mut self.changed {
            changed.feed(&given);
        }
        if !self.rest.is_empty() && given.asks() {
            self.try_again(&given);
        }
        self.compare(&recorded, at);
        Ok(())
    }

    /// Somebody has asked for something: perhaps it was what the change is about.
    fn try_again(&mut self, given: &Given) {
        let Some(changed) = &mut self.changed else { return };
        match self.rest.asks(&changed.state, &self.trial.actor) {
            Err(refused) => self.refused = Some(refused),
            Ok(Asked { commands, unmet }) => {
                let was_refused = self.refused.take().is_some();
                self.rest = unmet;
                if !commands.is_empty() {
                    self.made_later.push(MadeLater { index: given.index, at: given.at, was_refused });
                    self.made |= changed.make(commands, given.at, &self.trial.actor);
                }
            }
        }
    }

    fn compare(&mut self, recorded: &[Deed], now: Time) {
        let unchanged = self.unchanged.take_deeds();
        let calls = |deeds: &[Deed]| deeds.iter().filter(|deed| deed.is_call()).count() as u64;
        self.recorded_calls += calls(recorded);
        self.modelled_calls += calls(&unchanged);
        self.fidelity.add(recorded, &unchanged);
        if let Some(changed) = &mut self.changed {
            self.effect.compare(unchanged, changed.take_deeds(), now);
        }
    }

    fn end(mut self, ended: &State) -> Backtest {
        let to = self.window.to;
        self.unchanged.advance(to);
        if let Some(changed) = &mut self.changed {
            changed.advance(to);
        }
        self.compare(&[], to);
        let unchanged = &self.unchanged;
        // Whoever does the same has done it after its turn and the call before it. What waits for longer is held up by something
        // that the other run does not know.
        let (turn, apart) = (self.learned.taken_up(), self.learned.entries_apart());
        self.fidelity.end(|missing_in, deed| {
            let What::Called { call, .. } = deed.what else { return false };
            to <= deed.at + turn + self.learned.call(call) + apart
                && match missing_in {
                    Side::Recorded => ended.actions().any(|it| it.cluster == deed.cluster && deed.is_call_of(it)),
                    Side::Modelled => unchanged
                        .state
                        .actions()
                        .any(|it| unchanged.recorded_id(it.cluster) == deed.cluster && deed.is_call_of(it)),
                }
        });
        let figured = report::figure(&mut self, ended);
        // What one run has just done the other may be about to do. So both go on a little, by themselves.
        let later = to + self.learned.entries_apart() + Span::from_millis(1);
        if let Some(changed) = &mut self.changed {
            self.unchanged.go_on(later);
            changed.go_on(later);
            self.effect.compare(self.unchanged.take_deeds(), changed.take_deeds(), later);
        }
        report::tell(&self, figured, ended)
    }
}
