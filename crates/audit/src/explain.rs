//! Why something is as it is, whole: from an action back to the signals, the strategies and who configured them, and forward to what
//! it caused. What the state machine says about a decision stands in the middle; here is added where in the log each part of it
//! comes from, and who is behind it.
//!
//! An explanation is a list of [`Fact`]s. Text, JSON and SQL show the same list, so they cannot disagree.
//!
//! It works on a state and on a [`Trail`]: those of a node, or those of a file.

mod arrivals;
mod doubts;
mod effects;
mod occasion;
mod wishes;

use std::collections::BTreeMap;

use loadline_state_machine::{
    Action, ActionId, AttemptResult, Cause, ClusterId, Decision, Event, Explanation, Fact, Operation, OperationEnd,
    OperationId, ResourceKind, ResourceName, Revision, Said, State, StrategyId, Topic, audit,
};

use crate::trail::{Opened, Trail, TrailError, TrailNames, Who};
use crate::words::words;
use doubts::Doubts;

/// What is said of a signal that never came.
const NOTHING_REPORTED: &str = "nothing reported";

/// Entries that one action can have: claims, outcomes and what operators did.
const ENTRIES_PER_ACTION_MAX: usize = 500;

/// Who is asked.
#[derive(Debug)]
pub struct Explainer<'a> {
    pub trail: Trail<'a>,
    /// The moment that it is about.
    pub state: &'a State,
    /// What our own nodes are called, by number, as far as that is known.
    pub nodes: &'a BTreeMap<u64, String>,
    doubts: Doubts,
}

/// Why something is as it is.
#[derive(Debug, Default)]
pub struct Story {
    pub facts: Vec<Fact>,
    pub action: Option<Action>,
    pub decision: Option<Decision>,
    pub operation: Option<(Operation, Option<OperationEnd>)>,
    /// Of a cluster.
    pub explanation: Option<Box<Explanation>>,
}

impl Story {
    /// As text.
    pub fn lines(&self) -> Vec<String> {
        Fact::lines(&self.facts)
    }
}

/// Where in the log something comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    index: Option<u64>,
    at: Option<loadline_state_machine::Time>,
    who: Option<Who>,
}

impl Origin {
    fn of(opened: &Opened, cause: Cause) -> Origin {
        Origin { index: Some(opened.index), at: Some(opened.at), who: opened.who(cause) }
    }
}

/// The facts of one subject, as they are gathered.
struct Facts {
    subject: String,
    all: Vec<Fact>,
}

impl Facts {
    fn new(subject: &ResourceName) -> Facts {
        Facts { subject: subject.to_string(), all: Vec::new() }
    }

    #[expect(clippy::needless_pass_by_value, reason = "names, ids and codes are written alike")]
    fn add(&mut self, topic: &'static str, name: impl ToString, text: impl Into<String>, origin: Origin) -> &mut Fact {
        let Origin { index, at, who } = origin;
        let (name, text) = (name.to_string(), text.into());
        let ordinal = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let mut fact = Fact { subject: self.subject.clone(), ordinal, topic, name, text, index, at, ..Fact::default() };
        if let Some(Who { actor, source, proof, request_id }) = who {
            fact.actor = Some(actor);
            fact.source = Some(source);
            fact.proof = Some(proof);
            fact.request_id = request_id;
        }
        self.all.push(fact);
        // It was put there a moment ago.
        let last = self.all.len() - 1;
        &mut self.all[last]
    }

    fn said(&mut self, said: Said, deeper: usize, origin: Origin) -> &mut Fact {
        let Said { topic, name, text, depth } = said;
        let fact = self.add(topic.code(), name, text, origin);
        fact.depth = depth + deeper;
        fact.heading = topic.heading();
        fact
    }
}

impl<'a> Explainer<'a> {
    pub fn new(trail: Trail<'a>, state: &'a State, nodes: &'a BTreeMap<u64, String>) -> Explainer<'a> {
        Explainer { trail, state, nodes, doubts: Doubts::default() }
    }
}

impl Explainer<'_> {
    /// By the name that it has in the API: `actions/a12.0`, `decisions/12.0` or just `decisions/12`, `clusters/demo`. Nothing if there is
    /// no such thing.
    pub fn explain(&self, name: &ResourceName) -> Result<Option<Story>, TrailError> {
        let story = match name.kind {
            ResourceKind::Action => match name.name.parse() {
                Ok(id) => self.action(id)?,
                Err(_) => None,
            },
            ResourceKind::Decision => match self.decision_named(&name.name)? {
                Some(id) => self.decision(id)?,
                None => None,
            },
            ResourceKind::Cluster => self.cluster(&name.name)?,
            _ => None,
        };
        match story {
            Some(story) => {
                let mut story = self.with_doubts(name, story);
                // As it was asked for: an entry alone may name a decision, and whoever looks for rows of that name must find them.
                let subject = name.to_string();
                story.facts.iter_mut().for_each(|fact| fact.subject.clone_from(&subject));
                Ok(Some(story))
            }
            None => self.unknown(name),
        }
    }

    /// An entry alone names a decision if it holds no other.
    fn decision_named(&self, name: &str) -> Result<Option<Revision>, TrailError> {
        let Ok(index) = name.parse::<u64>() else { return Ok(name.parse().ok()) };
        if index > self.end() {
            return Ok(None);
        }
        let mut ids: Vec<Revision> = Vec::new();
        for (_, event) in self.trail.at(index)?.map(|opened| opened.events).unwrap_or_default() {
            if let Event::DecisionMade { decision } = event {
                ids.push(decision.id);
            }
        }
        // The history may begin later than a decision that still counts.
        ids.extend(self.decisions_that_count().map(|decision| decision.id).filter(|id| id.index.0 == index));
        ids.sort_unstable();
        ids.dedup();
        match ids.as_slice() {
            [.., last] if ids.len() > 1 => Err(TrailError::Several { index, count: ids.len(), last: *last }),
            ids => Ok(ids.first().copied()),
        }
    }

    fn decisions_that_count(&self) -> impl Iterator<Item = Decision> {
        self.state.clusters_after(None).filter_map(|cluster| self.state.decision_by_id(cluster.id))
    }

    /// Nothing after the moment is known.
    fn end(&self) -> u64 {
        self.state.applied().0
    }

    fn names(&self) -> TrailNames<'_> {
        TrailNames::new(self.trail, Some(self.state))
    }

    fn node(&self, number: u64) -> String {
        self.nodes.get(&number).cloned().unwrap_or_else(|| format!("node {number}"))
    }

    /// The last entry up to one, that included, that did something to a resource.
    fn last_change(&self, name: &ResourceName, up_to: u64) -> Result<Option<(Opened, usize)>, TrailError> {
        let entry = self.trail.last(&audit::resource_key(name), up_to)?;
        let opened = entry.map_or(Ok(None), |entry| self.trail.at(entry))?;
        self.depends_on(opened.as_ref().map_or(0, |opened| opened.index), up_to);
        let Some(opened) = opened else { return Ok(None) };
        let about = |event: &Event| {
            let changes = loadline_state_machine::resource_changes(std::slice::from_ref(event));
            changes.iter().any(|change| change.name == *name)
        };
        let place = opened.events.iter().rposition(|(_, event)| about(event));
        Ok(place.map(|place| (opened, place)))
    }

    fn changed_by(&self, name: &ResourceName, up_to: u64) -> Result<Origin, TrailError> {
        let changed = self.last_change(name, up_to)?;
        Ok(changed.map(|(opened, place)| Origin::of(&opened, opened.events[place].0)).unwrap_or_default())
    }

    fn last_about(&self, cluster: ClusterId, up_to: u64, is_it: impl Fn(&Event) -> bool) -> Result<Origin, TrailError> {
        let found = self.last_event_about(cluster, up_to, is_it)?;
        Ok(found.map(|(opened, place)| Origin::of(&opened, opened.events[place].0)).unwrap_or_default())
    }

    /// The last event of some kinds about a cluster.
    fn last_event_about(
        &self,
        cluster: ClusterId,
        up_to: u64,
        is_it: impl Fn(&Event) -> bool,
    ) -> Result<Option<(Opened, usize)>, TrailError> {
        let key = audit::cluster_key(cluster);
        let mut before = up_to.checked_add(1);
        // What holds a cluster is not long ago, or everything that happened since is worth going through.
        for _ in 0..20 {
            let found = self.trail.index.find(&key, before, 100)?;
            for entry in &found {
                let Some(opened) = self.trail.at(*entry)? else { continue };
                let place =
                    opened.events.iter().rposition(|(_, event)| event.cluster() == Some(cluster) && is_it(event));
                if let Some(place) = place {
                    self.depends_on(opened.index, up_to);
                    return Ok(Some((opened, place)));
                }
            }
            let Some(last) = found.last() else {
                before = None;
                break;
            };
            before = Some(*last);
        }
        self.depends_on(before.map_or(0, |before| before - 1), up_to);
        Ok(None)
    }

    /// What a decision says, each part with where it comes from.
    fn add_decision(&self, facts: &mut Facts, decision: &Decision, deeper: usize) -> Result<(), TrailError> {
        let recorded = decision.id != Revision::default();
        let up_to = if recorded { decision.id.index.0 } else { self.end() };
        let arrived = self.arrivals(decision, up_to)?;
        let mut planned = decision.planned.iter();
        for mut said in decision.said() {
            let (mut origin, mut resource) = (Origin::default(), None);
            match said.topic {
                Topic::Signal => match (arrived.of(&said.name), arrived.not_before) {
                    (Some(arrival), _) => {
                        origin = arrival.origin.clone();
                        if let (Some(action), Some(at)) = (&arrival.outcome_of, origin.at) {
                            said.text += &format!(", known from the outcome of {action} at {at}");
                            resource = Some(format!("actions/{action}"));
                        }
                    }
                    (None, Some(first)) if !said.text.ends_with(NOTHING_REPORTED) => {
                        said.text += &format!("; it came before entry {first}, further back than was looked");
                    }
                    (None, _) => {}
                },
                Topic::Strategy | Topic::DryRun => {
                    if let Ok(id) = said.name.parse::<StrategyId>() {
                        let name = ResourceName::strategy(id);
                        origin = self.changed_by(&name, up_to)?;
                        resource = Some(name.to_string());
                    }
                }
                Topic::Brake => {
                    let (wish, with) = self.braked_by(&said.name, decision, up_to)?;
                    (origin, resource) = (wish.add_to(&mut said.text), with);
                }
                Topic::Plan => {
                    // Each step has its line.
                    if let Some(planned) = planned.next() {
                        origin = self.plan_wished(planned, decision.cluster, up_to)?.add_to(&mut said.text);
                    }
                }
                _ => {}
            }
            let more = match said.topic {
                Topic::Signal => arrived.more_of(&said.name).collect(),
                _ => Vec::new(),
            };
            let (topic, depth) = (said.topic, said.depth + deeper + 1);
            facts.said(said, deeper, origin).resource = resource;
            for (name, text, origin) in more {
                let fact = facts.add(topic.code(), name, text, origin);
                (fact.depth, fact.heading) = (depth, topic.heading());
            }
        }
        Ok(())
    }

    /// A decision that was recorded.
    fn find_decision(&self, id: Revision) -> Result<Option<Decision>, TrailError> {
        if id.index.0 > self.end() {
            return Ok(None);
        }
        let told = self.trail.at(id.index.0)?.and_then(|opened| {
            opened.events.into_iter().find_map(|(_, event)| match event {
                Event::DecisionMade { decision } if decision.id == id => Some(*decision),
                _ => None,
            })
        });
        // The history may begin later than the decision that still counts.
        let found = told.or_else(|| self.decisions_that_count().find(|decision| decision.id == id));
        if found.is_none() {
            self.depends_on(id.index.0.saturating_sub(1), id.index.0);
        }
        Ok(found)
    }

    fn decision(&self, id: Revision) -> Result<Option<Story>, TrailError> {
        let Some(decision) = self.find_decision(id)? else { return Ok(None) };
        let mut facts = Facts::new(&ResourceName { kind: ResourceKind::Decision, name: id.to_string() });
        self.say_decision(&mut facts, &decision, 0)?;
        Ok(Some(Story { facts: facts.all, decision: Some(decision), ..Story::default() }))
    }

    fn say_decision(&self, facts: &mut Facts, decision: &Decision, deeper: usize) -> Result<(), TrailError> {
        let origin = Origin { index: Some(decision.id.index.0), at: Some(decision.at), who: None };
        let fact = facts.add("decision", decision.id, format!("decision {} at {}", decision.id, decision.at), origin);
        fact.resource = Some(format!("decisions/{}", decision.id));
        self.add_occasion(facts, decision)?;
        self.add_decision(facts, decision, deeper)
    }

    fn cluster(&self, name: &str) -> Result<Option<Story>, TrailError> {
        let Some(why) = self.state.explain(name) else { return Ok(None) };
        let mut facts = Facts::new(&ResourceName::cluster(name));
        let (id, end) = (why.cluster.id, self.end());
        let now = why.now.said();
        let mut now_said = false;
        for said in why.said() {
            // What is decided right now is told with where each part comes from, once, in its place.
            if now.contains(&said) {
                if !std::mem::replace(&mut now_said, true) {
                    self.add_decision(&mut facts, &why.now, 0)?;
                }
                continue;
            }
            let origin = match said.topic {
                Topic::Cluster => self.changed_by(&ResourceName::cluster(name), end)?,
                // One that nobody ever set has nobody to name, and nothing that is missing could tell.
                Topic::Switch if self.state.setting(&said.name).is_some_and(|it| it.updated.is_none()) => {
                    Origin::default()
                }
                Topic::Switch => self.changed_by(&ResourceName::setting(&said.name), end)?,
                Topic::Pause => self.last_about(id, end, |event| matches!(event, Event::ClusterPaused { .. }))?,
                Topic::Override => {
                    self.last_about(id, end, |event| matches!(event, Event::ClusterOverridden { .. }))?
                }
                Topic::Asked => self.last_about(id, end, |event| matches!(event, Event::ReplicaAsked { .. }))?,
                Topic::Decision => why.recorded.as_ref().map(recorded).unwrap_or_default(),
                _ => Origin::default(),
            };
            let resource = match said.topic {
                Topic::Action => Some(format!("actions/{}", said.name)),
                Topic::Operation => Some(format!("operations/{}", said.name)),
                Topic::Decision => Some(format!("decisions/{}", said.name)),
                _ => None,
            };
            facts.said(said, 0, origin).resource = resource;
        }
        Ok(Some(Story { facts: facts.all, explanation: Some(Box::new(why)), ..Story::default() }))
    }

    /// As it was at the moment: in the state, or among what is over.
    fn find_action(&self, id: ActionId) -> Result<Option<Action>, TrailError> {
        if let Some(action) = self.state.action(id).or_else(|| self.state.dead_letter(id)) {
            return Ok(Some(action.clone()));
        }
        let Some((opened, place)) = self.last_change(&ResourceName::action(id), self.end())? else { return Ok(None) };
        Ok(action_of(&opened.events[place].1).cloned())
    }

    fn find_operation(&self, id: OperationId) -> Result<Option<(Operation, Option<OperationEnd>)>, TrailError> {
        if let Some(operation) = self.state.operation(id) {
            return Ok(Some((operation.clone(), None)));
        }
        let Some((opened, place)) = self.last_change(&ResourceName::operation(id), self.end())? else {
            return Ok(None);
        };
        Ok(match &opened.events[place].1 {
            Event::OperationEnded { operation, end } => Some((operation.clone(), Some(*end))),
            Event::OperationBegun { operation } | Event::OperationAdvanced { operation } => {
                Some((operation.clone(), None))
            }
            _ => None,
        })
    }

    fn action(&self, id: ActionId) -> Result<Option<Story>, TrailError> {
        let Some(action) = self.find_action(id)? else { return Ok(None) };
        let name = ResourceName::action(id);
        let mut facts = Facts::new(&name);
        let planned = Origin { index: Some(id.index.0), at: Some(action.created_at), who: None };
        facts.add("action", id, action.line(), planned);
        let mut text = format!("for {}: {}, {}", action.by, action.reason.code(), action.reason);
        let origin = self.action_wished(&action)?.add_to(&mut text);
        let by = facts.add("action", action.by, text, origin);
        by.depth = 1;
        by.resource = action.by.strategy().map(|id| ResourceName::strategy(id).to_string());
        self.add_suppressed(&mut facts, &action)?;
        if let Some(waits) = self.state.action_waits(&action) {
            facts.add("action", "waits", waits, Origin::default()).depth = 1;
        }
        let called =
            action.backend.as_ref().map(|backend| format!(", called on backend {backend}")).unwrap_or_default();
        facts
            .add(
                "action",
                "key",
                format!("key {}, {} attempts{called}", action.key(), action.attempt),
                Origin::default(),
            )
            .depth = 1;

        let decision = self.find_decision(action.decision)?;
        match &decision {
            Some(decision) => self.say_decision(&mut facts, decision, 1)?,
            // The rest is an answer all the same.
            None => {
                let text = format!("decision {}: this history does not reach back to it", action.decision);
                facts.add("decision", action.decision, text, Origin::default());
            }
        }
        let operation = match action.operation {
            Some(id) => self.find_operation(id)?,
            None => None,
        };
        if let Some((operation, end)) = &operation {
            let resource = ResourceName::operation(operation.id).to_string();
            for said in operation.said() {
                facts.said(said, 0, Origin::default()).resource = Some(resource.clone());
            }
            if let Some(end) = end {
                let origin = self.changed_by(&ResourceName::operation(operation.id), self.end())?;
                let fact = facts.add(
                    "operation",
                    operation.id,
                    format!("ended: {}", end.code()),
                    Origin { who: None, ..origin },
                );
                fact.depth = 1;
                fact.resource = Some(resource);
            }
        }
        self.add_course(&mut facts, &action)?;
        self.add_attempts(&mut facts, &action);
        self.add_effects(&mut facts, &action)?;
        Ok(Some(Story { facts: facts.all, action: Some(action), decision, operation, explanation: None }))
    }

    /// What happened to an action, entry by entry: planned, approved, claimed, tried again, settled.
    fn add_course(&self, facts: &mut Facts, action: &Action) -> Result<(), TrailError> {
        let names = self.names();
        let key = audit::resource_key(&ResourceName::action(action.id));
        let mut over = self.end();
        for entry in self.trail.all(&key, self.end(), ENTRIES_PER_ACTION_MAX)? {
            let Some(opened) = self.trail.at(entry)? else { continue };
            for (cause, event) in &opened.events {
                if action_of(event).is_none_or(|of| of.id != action.id) {
                    continue;
                }
                let topic = match event {
                    Event::ActionClaimed { .. } => "claim",
                    Event::ActionSettled { .. } => "outcome",
                    _ => "course",
                };
                if topic == "outcome" {
                    over = opened.index;
                }
                facts.add(topic, event.kind_name(), words(event, &names), Origin::of(&opened, *cause));
            }
        }
        self.depends_on(action.id.index.0.saturating_sub(1), over);
        Ok(())
    }

    fn add_attempts(&self, facts: &mut Facts, action: &Action) {
        for attempt in &action.attempts {
            let node = self.node(attempt.node.0);
            let ended = match attempt.ended {
                None => "nobody has said what came of it".to_owned(),
                Some(end) => {
                    let retryable = match end.result {
                        AttemptResult::Failed { retryable: true } => ", may be tried again",
                        _ => "",
                    };
                    let by = if end.node == attempt.node {
                        String::new()
                    } else {
                        format!(", as {} recorded", self.node(end.node.0))
                    };
                    format!("{}{by} at {}{retryable}", end.result.code(), end.at)
                }
            };
            let text = format!(
                "attempt {}: claimed by {node} in epoch {} at {}; {ended}",
                attempt.number, attempt.epoch, attempt.claimed_at
            );
            let fact = facts.add(
                "attempt",
                attempt.number,
                text,
                Origin { at: Some(attempt.claimed_at), ..Origin::default() },
            );
            fact.node_id = Some(attempt.node.0);
            fact.epoch = Some(attempt.epoch.to_string());
        }
        if let Some(error) = &action.error {
            facts.add("attempt", "error", format!("last said: {error}"), Origin::default());
        }
    }
}

fn recorded(decision: &Decision) -> Origin {
    Origin { index: Some(decision.id.index.0), at: Some(decision.at), who: None }
}

/// The action that an event is about.
fn action_of(event: &Event) -> Option<&Action> {
    match event {
        Event::ActionPlanned { action }
        | Event::ActionApproved { action }
        | Event::ActionClaimed { action }
        | Event::ActionReturned { action }
        | Event::ActionUnsure { action }
        | Event::ActionSettled { action, .. }
        | Event::ActionHurried { action }
        | Event::DeadLetterCleared { action, .. } => Some(action),
        _ => None,
    }
}
