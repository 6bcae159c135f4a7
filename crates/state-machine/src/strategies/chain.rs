//! The strategies of one cluster, one after the other on one desired state.
//!
//! A strategy in dry run works on a shadow: the chain as it would be with it. What it wants is recorded and shown and
//! never reaches the desired state.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::desired::{Change, Desired};
use super::reason::{ChangeCause, ChangesAt, Reason, earlier, just_after};
use super::tracking::pace::Noted;
use super::{Decide, Overran, Question, STEPS_MAX, Steps, StrategyState, View};
use crate::configuration::schedule::Holding;
use crate::configuration::{Configuration, ConfigurationProblem, StrategyKind};
use crate::table::Key;
use crate::{StrategyId, Time};

/// One strategy as it takes part in a chain.
#[derive(Debug)]
pub(crate) struct Link<'a> {
    pub(crate) id: StrategyId,
    pub(crate) kind: StrategyKind,
    /// As it is now, by the profile that holds.
    pub(crate) configuration: Result<&'a Configuration, &'a ConfigurationProblem>,
    /// Nothing without a schedule.
    pub(crate) holding: Option<Holding<'a>>,
    pub(crate) state: &'a StrategyState,
    /// Another strategy of the same kind that would fit this cluster as well.
    pub(crate) tied_with: Option<StrategyId>,
}

impl<'a> Link<'a> {
    /// The strategy as its configuration is at this moment.
    pub(crate) fn new(
        id: StrategyId,
        kind: StrategyKind,
        configuration: &'a Result<Configuration, ConfigurationProblem>,
        state: &'a StrategyState,
        tied_with: Option<StrategyId>,
        now: Time,
    ) -> Self {
        let (configuration, holding) = match configuration {
            Ok(configuration) => {
                let (configuration, holding) = configuration.at(now);
                (Ok(configuration), holding)
            }
            Err(problem) => (Err(problem), None),
        };
        Self { id, kind, configuration, holding, state, tied_with }
    }

    fn is_suspended(&self) -> bool {
        self.holding.and_then(|holding| holding.row).is_some_and(|(_, profile)| profile.suspended)
    }
}

/// The row of a schedule that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldProfile {
    /// As it was written; nothing: none does, and the options are as they are.
    pub row: Option<Key>,
    pub until: Option<Time>,
}

impl fmt::Display for HeldProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.row {
            Some(row) => write!(f, "profile '{row}' holds")?,
            None => f.write_str("no profile holds")?,
        }
        self.until.map_or(Ok(()), |until| write!(f, " until {until}"))
    }
}

/// What one strategy said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    pub strategy: StrategyId,
    pub kind: StrategyKind,
    pub reason: Reason,
    /// From the desired state before it to the one after it.
    pub changes: Vec<Change>,
    /// What it would have changed as well, were it not in cooldown.
    pub held_back: Vec<Change>,
    pub changes_at: Option<ChangesAt>,
    /// Two patterns match equally many clusters; this one is the older.
    pub tied_with: Option<StrategyId>,
    /// Of a strategy that has a schedule.
    pub profile: Option<HeldProfile>,
}

/// What all strategies together said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) stages: Vec<Stage>,
    pub(crate) desired: Desired,
    /// The stages with those in dry run; nothing if none is.
    pub(crate) shadow: Option<Box<Said>>,
    /// What strategies have to remember. Those in dry run as well: what they would do depends on it.
    pub(crate) notes: Vec<Note>,
}

/// What one strategy has to remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) strategy: StrategyId,
    pub(crate) kind: StrategyKind,
    pub(crate) noted: Noted,
}

impl Said {
    /// Until when the cooldown of a strategy holds something back; the longest, if there are several.
    pub(crate) fn cooldown_until(&self) -> Option<Time> {
        let held = self.stages.iter().filter(|stage| !stage.held_back.is_empty());
        held.filter_map(|stage| match stage.reason {
            Reason::InCooldown { until } => Some(until),
            _ => None,
        })
        .max()
    }

    /// A strategy did not come to a decision: nobody may act on what the others made of that.
    pub(crate) fn fault(&self) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.reason.is_fault())
    }

    pub(crate) fn changes_at(&self) -> Option<ChangesAt> {
        self.stages.iter().fold(None, |earliest, stage| earlier(earliest, stage.changes_at))
    }
}

/// `links` must be in priority order. `running` says which strategy is at work, for whoever catches its panic.
pub(crate) fn run(
    strategies: &[Decide; StrategyKind::COUNT],
    links: &[Link<'_>],
    view: View<'_>,
    running: &mut Option<StrategyId>,
) -> Said {
    let in_dry_run = |link: &&Link<'_>| link.configuration.is_ok_and(|it| it.dry_run && it.enabled);
    let shadow =
        links.iter().any(|link| in_dry_run(&link)).then(|| Box::new(run_all(strategies, links.iter(), view, running)));
    let mut said = run_all(strategies, links.iter().filter(|link| !in_dry_run(link)), view, running);
    if let Some(shadow) = &shadow {
        let dry = |note: &&Note| links.iter().any(|link| link.id == note.strategy && in_dry_run(&link));
        said.notes.extend(shadow.notes.iter().filter(dry));
    }
    said.shadow = shadow;
    said
}

fn run_all<'a>(
    strategies: &[Decide; StrategyKind::COUNT],
    links: impl Iterator<Item = &'a Link<'a>>,
    view: View<'_>,
    running: &mut Option<StrategyId>,
) -> Said {
    let mut desired = Desired::new(view.replicas.iter().map(|replica| (&replica.name, &replica.size)));
    let mut stages = Vec::with_capacity(StrategyKind::COUNT);
    let mut notes = Vec::new();
    for link in links {
        *running = Some(link.id);
        let (stage, noted) = run_one(strategies, link, view, &mut desired);
        *running = None;
        notes.extend(noted.map(|noted| Note { strategy: link.id, kind: link.kind, noted }));
        let faulted = stage.reason.is_fault();
        stages.push(stage);
        if faulted {
            // What it left half done is nobody's wish.
            desired = Desired::new(view.replicas.iter().map(|replica| (&replica.name, &replica.size)));
            break;
        }
    }
    Said { stages, desired, shadow: None, notes }
}

fn run_one(
    strategies: &[Decide; StrategyKind::COUNT],
    link: &Link<'_>,
    view: View<'_>,
    desired: &mut Desired,
) -> (Stage, Option<Noted>) {
    let stage = |reason, changes, held_back, changes_at| Stage {
        strategy: link.id,
        kind: link.kind,
        reason,
        changes,
        held_back,
        changes_at,
        tied_with: link.tied_with,
        profile: link
            .holding
            .map(|holding| HeldProfile { row: holding.row.map(|(text, _)| text.clone()), until: holding.until }),
    };
    let profile_over = link.holding.and_then(|holding| holding.until);
    let profile_over = profile_over.map(|at| ChangesAt { at, why: ChangeCause::ProfileOver });
    let configuration = match usable(link, view) {
        Ok(configuration) => configuration,
        Err(reason) => return (stage(reason, vec![], vec![], profile_over), None),
    };
    // Whoever has woken the cluster needs it, whatever the schedule says, for as long as a wake holds.
    let awake_until = view.wake.filter(|_| link.kind == StrategyKind::IdleSuspend).map(|wake| {
        let times = view.idle.with(&configuration.rule);
        wake.holds_until(times)
    });
    let awake_until = awake_until.filter(|until| link.is_suspended() && view.now <= *until);
    let profile_over = earlier(profile_over, awake_until.map(|until| just_after(until, ChangeCause::KeepAliveOver)));
    if link.is_suspended() && awake_until.is_none() {
        let reason = Reason::SuspendedBySchedule { until: link.holding.and_then(|holding| holding.until) };
        desired.begin(link.kind, configuration.scope);
        let names: Vec<Key> = desired.replicas().map(|replica| replica.name.clone()).collect();
        for name in &names {
            desired.remove(name, reason.clone());
        }
        return (stage(reason, desired.end(), vec![], profile_over), None);
    }
    let ask = |desired: &mut Desired, cooldown_until| {
        let woken_at = link.holding.and_then(|holding| holding.woken_at);
        let question = Question { configuration, state: link.state, view, cooldown_until, woken_at };
        desired.begin(link.kind, configuration.scope);
        let verdict = strategies[link.kind.slot()](&question, desired, &mut Steps::new());
        verdict.map(|verdict| (verdict, desired.end()))
    };
    let overran = || (stage(Reason::Overran { steps_max: STEPS_MAX }, vec![], vec![], None), None);

    // A cooldown that holds nothing back is not worth a word: what would it want, if it might?
    let cooldown_until = link.state.in_cooldown(configuration.cooldown, view.now);
    let mut free = cooldown_until.map(|_| desired.clone());
    let wish = match free.as_mut().map(|free| ask(free, None)) {
        None => None,
        Some(Ok(wish)) => Some(wish),
        Some(Err(Overran)) => return overran(),
    };
    let cooldown_until = cooldown_until.filter(|_| wish.as_ref().is_some_and(|(_, changes)| !changes.is_empty()));
    match ask(desired, cooldown_until) {
        Err(Overran) => overran(),
        Ok((verdict, changes)) => {
            let wished = wish.map(|(_, wished)| wished).unwrap_or_default();
            let held_back: Vec<Change> = wished.into_iter().filter(|change| !changes.contains(change)).collect();
            let held_until = cooldown_until.filter(|_| !held_back.is_empty());
            let cooldown_over = held_until.map(|at| ChangesAt { at, why: ChangeCause::CooldownOver });
            let changes_at = earlier(earlier(verdict.changes_at, cooldown_over), profile_over);
            (stage(verdict.reason, changes, held_back, changes_at), verdict.noted)
        }
    }
}

/// The configuration, if the strategy can run by it.
fn usable<'a>(link: &Link<'a>, view: View<'_>) -> Result<&'a Configuration, Reason> {
    let configuration = link.configuration.map_err(|problem| Reason::BadConfiguration(Box::new(problem.clone())))?;
    if !configuration.enabled {
        return Err(Reason::Disabled);
    }
    match configuration.rule.size() {
        Some((option, size)) if view.sizes.get(size).is_none() => {
            let problem = ConfigurationProblem::UnknownSize { option: option.to_owned(), size: size.to_string() };
            Err(Reason::BadConfiguration(Box::new(problem)))
        }
        _ => Ok(configuration),
    }
}
