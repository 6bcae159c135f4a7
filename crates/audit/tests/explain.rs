//! Why something is as it is, with where each part of the answer comes from.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::world::{World, replica};
use loadline_audit::explain::{Explainer, Story};
use loadline_audit::{Moment, Scanned, Source, SourceError, Start, Trail, TrailError, replay};
use loadline_log::{JournalError, JournalRecord};
use loadline_state_machine::{
    ActionId, Command, Fact, OptionValue, Outcome, ResourceKind, ResourceName, Seen, Span, State, StrategyKind,
};

/// A burst of use: the strategy is changed by somebody else, the first call fails, the second one works, and the replica is seen.
fn lived() -> (World, ActionId) {
    let mut world = World::new();
    world.cluster("alice", "demo");
    world.strategy("alice", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("25cc".into()))]);
    world.change_strategy("bob", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("100cc".into()))]);
    world.time = world.time + Span::from_secs(5);
    world.report("demo", Span::from_secs(2), vec![Seen::Metric { name: "queue".into(), value_milli: 7_500 }]);
    let action = world.state.actions().next().expect("it wants a replica").id;
    world.claim(action);
    world.outcome(action, Outcome::Failed { retryable: true, reason: "no room".into() });
    world.pass(Span::from_secs(10));
    world.claim(action);
    world.outcome(action, Outcome::Succeeded { report: loadline_state_machine::Report::Nothing });
    world.report("demo", Span::default(), vec![replica("r1_auto", "100cc", true)]);
    world.report("demo", Span::default(), vec![Seen::Hydration { replica: "r1_auto".into(), total: 3, hydrated: 3 }]);
    world.pass(Span::from_secs(60));
    (world, action)
}

pub(crate) fn story(world: &World, state: &State, name: &ResourceName) -> Option<Story> {
    let scanned = Scanned::read(world, || {}).unwrap();
    let nodes = BTreeMap::from([(1, "n1".to_owned())]);
    Explainer::new(Trail { source: world, index: &scanned }, state, &nodes).explain(name).unwrap()
}

pub(crate) fn of<'a>(story: &'a Story, topic: &str) -> Vec<&'a Fact> {
    story.facts.iter().filter(|fact| fact.topic == topic).collect()
}

#[test]
fn an_action_goes_back_to_signals_strategies_and_who_configured_them() {
    let (world, action) = lived();
    let story = story(&world, &world.state, &ResourceName::action(action)).expect("it is known");
    let text = story.lines().join("\n");
    let strategy = of(&story, "strategy");
    assert_eq!(strategy.len(), 1, "{text}");
    assert_eq!(
        (strategy[0].actor.as_deref(), strategy[0].index),
        (Some("bob"), Some(10)),
        "who changed it last: {text}"
    );
    assert_eq!(strategy[0].resource.as_deref(), Some("strategies/s9.0"));
    assert!(strategy[0].request_id.is_some() && strategy[0].source.as_deref() == Some("10.0.0.7:4711"));
    let decision = story.decision.as_ref().expect("the decision");
    assert_eq!(decision.id, story.action.as_ref().expect("the action").decision);
    let occasion = of(&story, "occasion");
    assert!(!occasion.is_empty() && occasion[0].index == Some(decision.id.index.0), "{text}");
}

#[test]
fn an_action_tells_claim_attempts_outcome_and_what_it_caused() {
    let (world, action) = lived();
    let story = story(&world, &world.state, &ResourceName::action(action)).expect("it is known");
    let text = story.lines().join("\n");
    assert_eq!(of(&story, "claim").len(), 2, "{text}");
    let attempts = of(&story, "attempt");
    assert!(attempts[0].text.contains("claimed by n1") && attempts[0].text.contains("FAILED"), "{text}");
    assert_eq!((attempts[0].node_id, attempts[0].epoch.is_some()), (Some(1), true));
    assert!(attempts[1].text.contains("SUCCEEDED"), "{text}");
    let outcome = of(&story, "outcome");
    assert!(
        outcome.len() == 1 && outcome[0].index.is_some() && outcome[0].actor.as_deref() == Some("loadline"),
        "{text}"
    );
    let effects: Vec<&str> = of(&story, "effect").into_iter().map(|fact| fact.name.as_str()).collect();
    for wanted in ["replica", "operation", "cooldown", "next decision"] {
        assert!(effects.contains(&wanted), "{wanted} is missing: {text}");
    }
    assert!(text.contains("r1_auto of size 100cc was seen, ready") && text.contains("was hydrated: 3 of 3"), "{text}");
}

#[test]
fn a_signal_is_told_with_the_entry_that_brought_it() {
    let (mut world, _) = lived();
    world.time = world.time + Span::from_secs(1);
    world.report("demo", Span::from_secs(2), vec![Seen::Metric { name: "queue".into(), value_milli: 9_000 }]);
    let brought = world.last();
    world.pass(Span::from_secs(1));
    let story = story(&world, &world.state, &ResourceName::cluster("demo")).expect("it is there");
    let signals = of(&story, "signal");
    let queue = signals.iter().find(|fact| fact.name == "queue").expect("it is known");
    assert_eq!((queue.index, queue.actor.as_deref()), (Some(brought), Some("watcher")), "{queue:?}");
    assert!(queue.text.contains("9.000"), "{queue:?}");
}

#[test]
fn what_is_further_away_than_is_looked_is_said_to_be() {
    let (mut world, action) = lived();
    let last = world.last();
    // Nothing happens for so many entries that nobody looks through all of them.
    for _ in 0..20_001 {
        world.node(vec![Command::Tick]);
    }
    let cluster = story(&world, &world.state, &ResourceName::cluster("demo")).expect("it is there");
    let looked_from = world.last() - 20_000;
    assert!(looked_from > last);
    let signals = of(&cluster, "signal");
    let queue = signals.iter().find(|fact| fact.name == "queue").expect("it is known");
    let said = format!("; it came before entry {looked_from}, further back than was looked");
    assert!(queue.index.is_none() && queue.text.ends_with(&said), "{queue:?}");

    let told = story(&world, &world.state, &ResourceName::action(action)).expect("it is known");
    let effects = of(&told, "effect");
    let looked = effects.iter().find(|fact| fact.name == "looked").expect("there is more");
    assert!(looked.text.starts_with("what it caused after entry 200"), "{looked:?}");
}

#[test]
fn what_an_action_caused_is_looked_for_from_its_first_claim_on() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    world.strategy("alice", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("25cc".into()))]);
    let action = world.state.actions().next().expect("it wants a replica").id;
    // It waits for so many entries that nobody should read all of them.
    for _ in 0..5_000 {
        world.pass(Span::from_millis(1));
    }
    assert_eq!(world.carry_out(), [action]);
    world.report("demo", Span::default(), vec![replica("r1_auto", "25cc", true)]);
    world.pass(Span::from_secs(1));

    let source = Counted { world: &world, read: AtomicUsize::new(0) };
    let scanned = Scanned::read(&world, || {}).unwrap();
    let nodes = BTreeMap::new();
    let trail = Trail { source: &source, index: &scanned };
    let story = Explainer::new(trail, &world.state, &nodes).explain(&ResourceName::action(action)).unwrap().unwrap();
    let text = story.lines().join("\n");
    assert!(text.contains("replica r1_auto of size 25cc was seen, ready"), "{text}");
    let read = source.read.into_inner();
    assert!(read < 1_000, "{read} entries were read");
}

/// Counts the entries that are read.
#[derive(Debug)]
struct Counted<'a> {
    world: &'a World,
    read: AtomicUsize,
}

impl Source for Counted<'_> {
    fn range(&self) -> Option<std::ops::RangeInclusive<u64>> {
        self.world.range()
    }

    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<JournalRecord>, SourceError> {
        let records = self.world.read(from, bytes_max)?;
        self.read.fetch_add(records.len(), Ordering::Relaxed);
        Ok(records)
    }

    fn start(&self, not_after: u64) -> Result<Option<State>, SourceError> {
        self.world.start(not_after)
    }
}

#[test]
fn a_cluster_says_why_nothing_happened_at_a_moment_of_the_past() {
    let (mut world, _) = lived();
    let calm = world.last();
    world.ask(
        "carol",
        vec![Command::PauseCluster { cluster: "demo".into(), reason: "moving".into(), expires_in: None }],
    );
    let paused = world.last();
    world.change_strategy("bob", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("200cc".into()))]);
    let held = world.last();
    world.ask("carol", vec![Command::ResumeCluster { cluster: "demo".into() }]);
    let at = |index| replay(&world, Start::Beginning, Moment::Index(index), |_| {}).unwrap().state;
    let then = story(&world, &at(held), &ResourceName::cluster("demo")).expect("it was there");
    let brake = of(&then, "brake").into_iter().find(|fact| fact.name == "PAUSED").expect("it was held").clone();
    assert_eq!((brake.actor.as_deref(), brake.index), (Some("carol"), Some(paused)), "{brake:?}");
    let before = story(&world, &at(calm), &ResourceName::cluster("demo")).expect("it was there");
    assert!(
        of(&before, "pause").is_empty() && before.lines().join("\n").contains("AS_WANTED"),
        "{:#?}",
        before.lines()
    );
    assert!(story(&world, &at(7), &ResourceName::cluster("demo")).is_none(), "it was not there yet");
}

#[test]
fn a_cluster_says_that_everything_is_switched_off_and_by_whom() {
    let (mut world, _) = lived();
    let calm = world.last();
    world.set("carol", "auto_scaling_enabled", "false");
    let off = world.last();
    world.pass(Span::from_secs(5));
    let at = |index| replay(&world, Start::Beginning, Moment::Index(index), |_| {}).unwrap().state;
    let then = story(&world, &at(off), &ResourceName::cluster("demo")).expect("it was there");
    let switch = of(&then, "switch");
    assert_eq!((switch[0].actor.as_deref(), switch[0].index), (Some("carol"), Some(off)), "{switch:?}");
    let second = &then.lines()[1];
    assert!(second.contains("auto-scaling is switched off for all clusters"), "{second}");
    let before = story(&world, &at(calm), &ResourceName::cluster("demo")).expect("it was there");
    assert!(of(&before, "switch").is_empty());
}

#[test]
fn a_cluster_does_not_say_that_something_would_begin_while_nothing_is_decided_at_all() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    world.set("carol", "enable_auto_scaling", "false");
    let off = world.last();
    world.report("demo", Span::default(), vec![replica("r1_auto", "25cc", true)]);
    world.set("dave", "enable_auto_scaling", "true");
    world.strategy("alice", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("100cc".into()))]);
    let action = world.state.actions().next().expect("it wants a larger replica").id;
    world.set("carol", "enable_auto_scaling", "false");
    let off_again = world.last();

    let at = |index| replay(&world, Start::Beginning, Moment::Index(index), |_| {}).unwrap().state;
    for index in [off, off_again] {
        let then = story(&world, &at(index), &ResourceName::cluster("demo")).expect("it was there");
        let text = then.lines().join("\n");
        let switch = of(&then, "switch");
        assert_eq!((switch[0].actor.as_deref(), switch[0].index), (Some("carol"), Some(index)), "{switch:?}");
        assert!(then.lines()[1].contains("enable_auto_scaling is false"), "{text}");
        assert!(text.contains("HELD: nothing begins") && !text.contains("would begin"), "{text}");
        assert!(text.contains("would not change by itself"), "{text}");
    }
    let waits = "not carried out while enable_auto_scaling is false";
    let then = story(&world, &world.state, &ResourceName::cluster("demo")).unwrap().lines().join("\n");
    assert!(then.contains(&format!("PENDING, {waits}")), "{then}");
    let then = story(&world, &world.state, &ResourceName::action(action)).unwrap();
    assert!(of(&then, "action").iter().any(|fact| fact.text == waits), "{:#?}", then.lines());
}

#[test]
fn the_cooldown_that_began_is_the_one_that_was_configured_then() {
    let (mut world, action) = lived();
    let told = |world: &World| {
        let story = story(world, &world.state, &ResourceName::action(action)).unwrap();
        let cooldown = story.facts.iter().find(|fact| fact.name == "cooldown").expect("it began");
        cooldown.text.clone()
    };
    let before = told(&world);
    world.set("carol", "auto_scaling_cluster_cooldown", "7m");
    let options = [("size", OptionValue::Text("100cc".into())), ("cooldown_s", OptionValue::Number(4_321))];
    world.change_strategy("carol", "demo", StrategyKind::TargetSize, &options);
    assert_eq!(told(&world), before, "what was configured later began no cooldown then");
    assert!(before.contains("30s"), "that of a cluster unless somebody says otherwise: {before}");
}

#[test]
fn what_is_unknown_has_no_story() {
    let (world, _) = lived();
    // The first entry is number 1: nothing was ever recorded at 0.
    let names =
        ["actions/a999.0", "actions/a0.0", "decisions/999.0", "decisions/0.0", "clusters/nothing", "sizes/25cc"];
    for name in names {
        assert!(story(&world, &world.state, &name.parse().unwrap()).is_none(), "{name}");
    }
}

/// A history without some of its entries.
#[derive(Debug)]
struct Without<'a> {
    world: &'a World,
    gone: std::ops::RangeInclusive<u64>,
}

impl Source for Without<'_> {
    fn range(&self) -> Option<std::ops::RangeInclusive<u64>> {
        let stretches = self.stretches();
        Some(*stretches.first()?.start()..=*stretches.last()?.end())
    }

    fn stretches(&self) -> Vec<std::ops::RangeInclusive<u64>> {
        let (before, after) = (1..=*self.gone.start() - 1, *self.gone.end() + 1..=self.world.last());
        [before, after].into_iter().filter(|stretch| !stretch.is_empty()).collect()
    }

    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<JournalRecord>, SourceError> {
        if self.gone.contains(&from) {
            let next = Some(*self.gone.end() + 1).filter(|next| *next <= self.world.last());
            return Err(SourceError::Journal(JournalError::Missing { index: from, next }));
        }
        let mut records = self.world.read(from, bytes_max)?;
        records.retain(|record| from > *self.gone.end() || record.index < *self.gone.start());
        Ok(records)
    }

    fn start(&self, _: u64) -> Result<Option<State>, SourceError> {
        Ok(None)
    }
}

fn story_without(
    world: &World,
    gone: std::ops::RangeInclusive<u64>,
    name: &ResourceName,
) -> Result<Option<Story>, TrailError> {
    let source = Without { world, gone };
    let scanned = Scanned::read(&source, || {}).unwrap();
    let nodes = BTreeMap::new();
    Explainer::new(Trail { source: &source, index: &scanned }, &world.state, &nodes).explain(name)
}

#[test]
fn an_entry_that_is_not_there_is_warned_of_if_it_may_have_told_something_else() {
    let (world, action) = lived();
    let name = ResourceName::action(action);
    let whole = story(&world, &world.state, &name).unwrap();
    assert!(of(&whole, "gap").is_empty(), "nothing is missing: {:#?}", whole.lines());
    let cluster = ResourceName::cluster("demo");
    let now = story(&world, &world.state, &cluster).unwrap();
    let changed_by = of(&now, "strategy")[0].index.unwrap();
    assert_eq!(of(&now, "strategy")[0].actor.as_deref(), Some("bob"));

    // Without the entry in which bob changed the strategy, alice seems to have been the last: that must not be told as if it were sure.
    let doubtful = story_without(&world, changed_by..=changed_by, &cluster).unwrap().unwrap();
    let text = doubtful.lines().join("\n");
    assert_eq!(of(&doubtful, "strategy")[0].actor.as_deref(), Some("alice"), "{text}");
    let gap = of(&doubtful, "gap");
    assert_eq!(gap.len(), 1, "{text}");
    assert!(gap[0].text.contains(&format!("entries {changed_by} to {changed_by} are not in this history")), "{text}");

    // What is not there at all is not said to have never been.
    let unknown =
        story_without(&world, action.index.0..=world.last(), &ResourceName { kind: name.kind, name: "a999.0".into() });
    assert!(unknown.unwrap().is_none(), "nobody lacks an entry that has not come");
    let id = of(&whole, "decision")[0].name.clone();
    let decision = ResourceName { kind: ResourceKind::Decision, name: id };
    let index = whole.decision.as_ref().unwrap().id.index.0;
    let lacks = story_without(&world, 1..=index, &decision).expect_err("it may have been there");
    assert!(
        matches!(lacks, TrailError::Lacks { index: at, first: 1, last } if (at, last) == (index, index)),
        "{lacks}"
    );
}

#[test]
fn what_came_after_the_moment_is_not_told() {
    let (world, action) = lived();
    let whole = story(&world, &world.state, &ResourceName::action(action)).unwrap();
    let decision = whole.decision.as_ref().unwrap().id;
    let claimed = of(&whole, "claim")[0].index.unwrap();
    let at = |index| replay(&world, Start::Beginning, Moment::Index(index), |_| {}).unwrap().state;
    for moment in [action.index.0, claimed, world.last() - 1] {
        let state = at(moment);
        let then = story(&world, &state, &ResourceName::action(action)).expect("it was there");
        let latest = then.facts.iter().filter_map(|fact| fact.index).max();
        assert!(latest <= Some(moment), "{moment}: {:#?}", then.lines());
        let only = ResourceName { kind: ResourceKind::Decision, name: decision.to_string() };
        let then = story(&world, &state, &only).expect("it was made");
        assert!(then.facts.iter().filter_map(|fact| fact.index).max() <= Some(moment), "{:#?}", then.lines());
        // Its entry alone names it, too.
        let by_entry = ResourceName { kind: only.kind, name: decision.index.to_string() };
        let then = story(&world, &state, &by_entry).unwrap();
        assert_eq!(then.decision.unwrap().id, decision);
        // Whoever looks for it under that name finds every line of it.
        assert!(then.facts.iter().all(|fact| fact.subject == by_entry.to_string()), "{:#?}", then.facts);
    }
    let before = at(decision.index.0 - 1);
    for name in [decision.to_string(), decision.index.to_string()] {
        let name = ResourceName { kind: ResourceKind::Decision, name };
        assert!(story(&world, &before, &name).is_none(), "{name} was not made yet");
    }
    assert!(story(&world, &before, &ResourceName::action(action)).is_none());
}
