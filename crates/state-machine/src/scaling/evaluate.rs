//! Which clusters are looked at when, and what comes of looking at one.
//!
//! Once per entry, those are looked at that the entry touched, whose deadline has come, or whom a sweep has reached; in the
//! order of their ids, and no more than a fixed number. The rest comes with the next entries, the oldest first, so that
//! neither a flood of signals nor a change for all clusters stops the log. Each of the three has a share of its own, so that
//! none waits for the others: whoever is woken while all clusters fall due is looked at with the very same entry.

use std::collections::BTreeSet;

use loadline_mutants::Mutant;

use super::advance;
use super::asked;
use super::assess::{Assessment, assess};
use super::conclude::{changes_at, conclude, draft};
use super::deadlines::Due;
use super::idle;
use super::knobs::Knobs;
use super::operations::Operation;
use super::plan::Step;
use crate::configuration::StrategyKind;
use crate::decide::Moment;
use crate::evolve::evolve;
use crate::strategies::chain::Note;
use crate::strategies::reason::ChangesAt;
use crate::strategies::{Decide, StrategyState};
use crate::{ClusterId, Event, OperationId, Revision, Span, State};

/// How many clusters one entry looks at. With a few microseconds for each, an entry takes about a millisecond longer.
pub(crate) const EVALUATIONS_PER_ENTRY_MAX: usize = 256;

/// How many of them are the sweep's, however much else there is: it must get through even when the group is busy.
const SWEPT_PER_ENTRY_MIN: usize = 64;

/// How many of them are those that the entry touched, however many have fallen due.
const TOUCHED_PER_ENTRY_MIN: usize = 64;

/// Writes events as they are decided, so that what follows sees what they did.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) at: Moment,
    events: Vec<Event>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(state: &'a mut State, at: Moment) -> Self {
        Self { state, at, events: Vec::new() }
    }

    /// The revision of the event after the next `before` ones.
    pub(crate) fn revision_of(&self, before: usize) -> Revision {
        self.at.revision_of(self.events.len() + before)
    }

    pub(crate) fn emit(&mut self, event: Event) {
        evolve(self.state, &event);
        self.events.push(event);
    }
}

/// What follows from an entry that brought about these events.
pub(crate) fn react(
    state: &mut State,
    at: Moment,
    events: &[Event],
    strategies: &[Decide; StrategyKind::COUNT],
) -> Vec<Event> {
    let mut touched = Vec::new();
    for event in events {
        match event.concerns() {
            Concerns::Nothing => {}
            Concerns::Cluster(id) => touched.push(id),
            Concerns::AllClusters => state.scaling.sweep(),
        }
    }
    let knobs = *state.settings.knobs();
    if !knobs.feature {
        // Switching the feature on sweeps over everything, so nothing is missed.
        state.scaling.sweep = None;
        return vec![];
    }
    let mut chosen = choose_clusters(state, touched);
    let mut writer = Writer::new(state, at);
    while let Some(id) = next_of(&mut chosen) {
        evaluate(&mut writer, id, &knobs, strategies);
    }
    writer.events
}

/// Whom an event may concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concerns {
    Nothing,
    Cluster(ClusterId),
    AllClusters,
}

fn next_of(chosen: &mut BTreeSet<ClusterId>) -> Option<ClusterId> {
    if Mutant::UnorderedInApply.is_on() && loadline_mutants::coin() {
        return chosen.pop_last();
    }
    chosen.pop_first()
}

fn choose_clusters(state: &mut State, touched: Vec<ClusterId>) -> BTreeSet<ClusterId> {
    let now = state.now;
    let swept_min = if state.scaling.sweep.is_some() { SWEPT_PER_ENTRY_MIN } else { 0 };
    let room = EVALUATIONS_PER_ENTRY_MAX - swept_min;
    let mut touched = touched.into_iter();
    let mut chosen = BTreeSet::new();
    while chosen.len() < TOUCHED_PER_ENTRY_MIN
        && let Some(id) = touched.next()
    {
        chosen.insert(id);
    }
    let mut expired = 0;
    while chosen.len() + expired < room
        && let Some((at, due)) = state.scaling.deadlines.first_due(now)
    {
        match due {
            Due::Cluster(id) => {
                state.scaling.looked_at(id);
                // A deadline that no record knows of would be found again and again.
                state.scaling.deadlines.remove(at, Due::Cluster(id));
                chosen.insert(id);
            }
            other => {
                state.scaling.deadlines.remove(at, other.clone());
                state.scaling.expire(other, &state.settings, now);
                expired += 1;
            }
        }
    }
    for id in touched {
        if chosen.len() + expired < room || chosen.contains(&id) {
            chosen.insert(id);
        } else {
            // In a flood most of them wait for their turn already, which is known where the cluster was just written to. The ordered
            // table of clusters is another walk through memory that is in no cache.
            let due = state.scaling.record(id).and_then(|record| record.due);
            if due.is_none_or(|due| due > now) && state.clusters.by_id(id).is_some() {
                state.scaling.look_at(id, now);
            }
        }
    }
    if let Some(sweep) = state.scaling.sweep {
        let room = EVALUATIONS_PER_ENTRY_MAX.saturating_sub(chosen.len() + expired);
        let (swept, rest) = sweep.take(&state.clusters, room);
        state.scaling.sweep = rest;
        chosen.extend(swept);
    }
    chosen
}

/// Looks at one cluster: goes on with what is under way, begins what is wanted and allowed, and records what was decided.
fn evaluate(writer: &mut Writer<'_>, id: ClusterId, knobs: &Knobs, strategies: &[Decide; StrategyKind::COUNT]) {
    if let Some(changes_at) = nothing_new(writer.state, id, knobs, strategies) {
        return schedule(writer.state, id, changes_at);
    }
    if !writer.state.exists(id) {
        return;
    }
    advance::expire(writer, id);
    let mut assessment = assess(writer.state, id, writer.state.scaling.record(id), knobs, strategies);
    for Note { strategy, kind, noted } in std::mem::take(&mut assessment.said.notes) {
        writer.emit(Event::CourseNoted { cluster: id, strategy, kind, noted });
    }
    forget_what_is_over(writer.state, id, &assessment);
    if operation_of(writer.state, id).is_some() {
        advance::advance(writer, id, knobs, &assessment);
        if operation_of(writer.state, id).is_none() {
            assessment = assess(writer.state, id, writer.state.scaling.record(id), knobs, strategies);
        }
    }
    let changes_at = conclude(writer, id, knobs, assessment);
    schedule(writer.state, id, changes_at);
}

/// Most looks at a cluster end here: it is as it was, and all that can change is when to look again. Finding that out takes
/// one look into the table, which among a hundred thousand clusters is what costs.
fn nothing_new(
    state: &State,
    id: ClusterId,
    knobs: &Knobs,
    strategies: &[Decide; StrategyKind::COUNT],
) -> Option<Option<ChangesAt>> {
    let record = state.scaling.record(id)?;
    let pause_over = record.pause.as_ref().and_then(|pause| pause.expires_at).is_some_and(|at| at <= state.now);
    let override_over = record.floor.as_ref().is_some_and(|floor| floor.expires_at <= state.now);
    let over = pause_over || override_over;
    if record.operation.is_some() || !record.rejected.is_empty() || !record.asked.is_empty() || over {
        return None;
    }
    let assessment = assess(state, id, Some(record), knobs, strategies);
    let draft = draft(record, knobs, state.now, &assessment, OperationId::from(Revision::default()));
    let nothing_to_note = !assessment.remembers_others && assessment.said.notes.is_empty();
    let is_quiet = nothing_to_note && !draft.is_news(record, &assessment);
    is_quiet.then(|| {
        let changes_at = changes_at(state, record, knobs, &assessment, &draft);
        // Nothing to do if it is looked at early enough anyway.
        changes_at.filter(|changes_at| record.due.is_none_or(|due| due > changes_at.at || due <= state.now))
    })
}

fn operation_of(state: &State, id: ClusterId) -> Option<&Operation> {
    state.scaling.record(id).and_then(|record| record.operation.as_deref())
}

/// What a strategy remembered goes when another one, or none, rules its kind; what somebody rejected may be proposed again
/// once it was not wanted for a while.
fn forget_what_is_over(state: &mut State, id: ClusterId, assessment: &Assessment) {
    asked::forget_what_is_over(state, id);
    let Some(record) = state.scaling.record(id) else { return };
    if record.rejected.is_empty() && !assessment.remembers_others {
        return;
    }
    let rulings = state.scaling.strategies.rulings(record.own.as_deref(), || state.clusters.name(id));
    let rules = |own: &StrategyState| rulings.iter().flatten().any(|ruling| own.is_of(ruling.ruler.id));
    let over: Vec<usize> =
        (0..StrategyKind::COUNT).filter(|slot| record.states[*slot].as_ref().is_some_and(|own| !rules(own))).collect();
    let wanted = |step: &Step| assessment.planned.iter().any(|planned| planned.step == *step);
    let rejected_is_over = assessment.said.fault().is_none() && !record.rejected.iter().all(wanted);
    if over.is_empty() && !rejected_is_over {
        return;
    }
    let record = state.scaling.record_mut(id);
    for slot in over {
        record.states[slot] = None;
    }
    if rejected_is_over {
        record.rejected.retain(wanted);
    }
    // What was taken away by a strategy that is gone is missed by nobody: the cluster is empty, and not at zero.
    idle::settle_in(state, id);
}

/// Sees to it that the cluster is looked at again in time.
fn schedule(state: &mut State, id: ClusterId, changes_at: Option<ChangesAt>) {
    let Some(changes_at) = changes_at else { return };
    // What is due now was just looked at.
    let at = changes_at.at.max(state.now + Span::from_millis(1));
    let due = state.scaling.record(id).and_then(|record| record.due);
    if due.is_none_or(|due| due > at || due <= state.now) {
        state.scaling.look_at(id, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategies::desired::Desired;
    use crate::strategies::reason::Reason;
    use crate::strategies::{Overran, Question, STEPS_MAX, STRATEGIES, Steps, Verdict, burst};
    use crate::{
        Actor, ClusterRef, ClusterReport, Command, Conclusion, Entry, LogIndex, NodeNumber, Observation, Options,
        Request, Sealed, Seen, TargetName, Time, apply,
    };

    /// Fails for a cluster that has a replica of this name.
    const TROUBLE: &str = "trouble";

    fn panics(question: &Question<'_>, desired: &mut Desired, steps: &mut Steps) -> Result<Verdict, Overran> {
        assert!(question.view.replica(TROUBLE).is_none(), "this strategy cannot stand trouble");
        burst::decide(question, desired, steps)
    }

    fn overruns(question: &Question<'_>, desired: &mut Desired, steps: &mut Steps) -> Result<Verdict, Overran> {
        if question.view.replica(TROUBLE).is_some() {
            desired.remove(&TROUBLE.into(), Reason::Woken);
            steps.take(STEPS_MAX as usize + 1)?;
        }
        burst::decide(question, desired, steps)
    }

    fn with_burst(decide: Decide) -> [Decide; StrategyKind::COUNT] {
        let mut strategies = STRATEGIES;
        strategies[StrategyKind::Burst.slot()] = decide;
        strategies
    }

    fn told(state: &mut State, command: Command) {
        let request = Request { actor: Actor::default(), request_id: None, commands: vec![command] };
        let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(1_000), requests: vec![request] });
        let index = LogIndex(state.applied.0 + 1);
        let receipts = apply(state, index, &sealed).receipts;
        assert!(receipts[0].result.is_ok(), "{receipts:?}");
    }

    fn strategy(kind: StrategyKind, option: &str) -> Command {
        let options = Options::from([(option, "1")]);
        Command::CreateStrategy { target: TargetName::All, kind, options, if_not_exists: false, unchecked: false }
    }

    /// Two clusters with the same strategies; `bad` has what one of them cannot stand. Nothing was decided yet.
    fn two_clusters() -> (State, ClusterId, ClusterId) {
        let mut state = State::new();
        told(&mut state, Command::AnnounceLeader { node: NodeNumber(1), term: 1 });
        let set = |name: &str, value: &str| Command::SetSetting {
            name: name.to_owned(),
            value: value.to_owned(),
            etag: None,
        };
        told(&mut state, set("enable_auto_scaling", "true"));
        let name = "1".to_owned();
        told(&mut state, Command::CreateSize { name, rank: None, slots: 1, price_micros_per_hour: 0 });
        told(&mut state, strategy(StrategyKind::TargetSize, "size"));
        told(&mut state, strategy(StrategyKind::Burst, "burst_size"));
        told(&mut state, set("enable_auto_scaling", "false"));
        for name in ["bad", "good"] {
            told(&mut state, Command::CreateCluster { name: name.to_owned() });
        }
        let seen = Seen::Replica { name: TROUBLE.to_owned(), size: "2".to_owned(), incarnation: None, ready: true };
        let report = ClusterReport {
            cluster: ClusterRef::Name("bad".to_owned()),
            observations: vec![Observation { age: Span::default(), seen }],
        };
        let collector = "watcher".to_owned();
        told(&mut state, Command::ReportSignals { collector, sequence: 1, clusters: vec![report] });
        let id = |name| state.cluster(name).map(|cluster| cluster.id).expect("it was created");
        let (bad, good) = (id("bad"), id("good"));
        // As if the feature had been switched on, without anybody having looked yet.
        state.settings.put(
            "enable_auto_scaling",
            crate::settings::SettingRow { value: Some(crate::SettingValue::Bool(true)), updated: Revision::default() },
        );
        (state, bad, good)
    }

    fn reaction(state: &mut State, decide: Decide) -> Vec<Event> {
        state.scaling.sweep();
        let at = Moment { index: LogIndex(state.applied.0 + 1), now: state.now, ordinal: 0 };
        react(state, at, &[], &with_burst(decide))
    }

    fn check_fault(decide: Decide, expected: &Reason) {
        let (mut state, bad, good) = two_clusters();
        let events = reaction(&mut state, decide);
        let fault = |event: &Event| match event {
            Event::StrategyFaulted { cluster, reason, .. } => Some((*cluster, reason.clone())),
            _ => None,
        };
        assert_eq!(events.iter().filter_map(fault).collect::<Vec<_>>(), [(bad, expected.clone())]);
        let conclusion = |state: &State, id| state.decision_by_id(id).map(|decision| decision.conclusion);
        assert_eq!(conclusion(&state, bad), Some(Conclusion::Faulted), "it holds, and says so");
        assert!(state.standing(bad).is_some_and(|it| it.operation().is_none()), "what is there stays");
        assert!(matches!(conclusion(&state, good), Some(Conclusion::Began(_))), "nothing else suffers");
        assert_eq!(state.operations().map(|operation| operation.cluster).collect::<Vec<_>>(), [good]);
        let desired = state.decision_by_id(bad).map(|decision| decision.desired.len());
        assert_eq!(desired, Some(1), "what a strategy left half done is nobody's wish");

        assert_eq!(reaction(&mut state, decide), [], "the same fault again is no news");
        // Mended, the cluster goes on by itself.
        let events = reaction(&mut state, burst::decide);
        assert!(
            events.iter().any(|event| matches!(event, Event::OperationBegun { operation } if operation.cluster == bad))
        );
    }

    #[test]
    fn a_strategy_that_panics_holds_its_cluster_and_no_other() {
        check_fault(panics, &Reason::Panicked);
    }

    #[test]
    fn a_strategy_that_overruns_holds_its_cluster_and_no_other() {
        check_fault(overruns, &Reason::Overran { steps_max: STEPS_MAX });
    }
}
