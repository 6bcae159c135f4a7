//! What an action caused: the replica that was seen, ready and hydrated, or gone; the end of its operation and the cooldown that
//! counts from there; what was decided and begun next.

use loadline_state_machine::{Action, Call, Event, Observation, OperationEnd, ResourceName, Seen};

use super::{Explainer, Facts, Origin};
use crate::trail::{Opened, TrailError};
use crate::words::words;

/// Entries after an action was claimed that are looked through.
const ENTRIES_MAX: u64 = 20_000;

const HEADING: &str = "what it caused:";

/// What has been found so far; each is told once.
#[derive(Default)]
struct Found {
    seen: bool,
    ready: bool,
    hydrated: bool,
    gone: bool,
    ended: Option<u64>,
    decided: bool,
    begun: bool,
}

impl Explainer<'_> {
    pub(super) fn add_effects(&self, facts: &mut Facts, action: &Action) -> Result<(), TrailError> {
        // Before anybody had called the backend, it caused nothing.
        let Some(first) = action.attempts.first() else { return Ok(()) };
        let from = self.trail.not_after(first.claimed_at)?.unwrap_or(action.id.index.0).max(action.id.index.0);
        let to = self.end().min(from.saturating_add(ENTRIES_MAX));
        let names = self.names();
        let mut found = Found::default();
        let mut walked = to;
        self.trail.walk(action.id.index.0 + 1, to, |opened| {
            for (cause, event) in &opened.events {
                if event.cluster() != Some(action.cluster) {
                    continue;
                }
                let mut tell = |name: &str, text: String, resource: Option<String>| {
                    let fact = facts.add("effect", name, text, Origin::of(opened, *cause));
                    (fact.depth, fact.heading, fact.resource) = (1, Some(HEADING), resource);
                };
                match event {
                    Event::SignalsReported { observations, .. } if opened.index > from => {
                        for text in observations.iter().filter_map(|it| sight(it, action, &mut found)) {
                            tell("replica", text, None);
                        }
                    }
                    Event::OperationEnded { operation, end } if Some(operation.id) == action.operation => {
                        found.ended = Some(opened.index);
                        let resource = ResourceName::operation(operation.id).to_string();
                        tell("operation", words(event, &names), Some(resource));
                        if *end == OperationEnd::Completed {
                            tell("cooldown", self.cooldown(action, opened), None);
                        }
                    }
                    Event::DecisionMade { decision }
                        if found.ended.is_some_and(|ended| ended <= opened.index) && !found.decided =>
                    {
                        found.decided = true;
                        tell("next decision", words(event, &names), Some(format!("decisions/{}", decision.id)));
                    }
                    Event::OperationBegun { operation } if Some(operation.id) != action.operation && !found.begun => {
                        found.begun = true;
                        let resource = ResourceName::operation(operation.id).to_string();
                        tell("next operation", words(event, &names), Some(resource));
                    }
                    _ => {}
                }
            }
            let replica = match action.call {
                Call::CreateReplica(_) => found.hydrated,
                Call::DropReplica(_) => found.gone,
                _ => true,
            };
            let all = replica && found.decided && found.begun;
            if all {
                walked = opened.index;
            }
            !all
        })?;
        self.depends_on(action.id.index.0, walked);
        if found.ended.is_none() && action.operation.is_some() {
            let text = "its operation has not ended, as far as this goes";
            let fact = facts.add("effect", "operation", text, Origin::default());
            (fact.depth, fact.heading) = (1, Some(HEADING));
        }
        Ok(())
    }

    /// For how long the strategy and the cluster now wait, as far as that can be told.
    fn cooldown(&self, action: &Action, opened: &Opened) -> String {
        let strategy = action.by.strategy().and_then(|id| self.state.strategy(id));
        let lasts = strategy.and_then(|it| it.configuration().ok()).map(|it| format!(" of {}", it.cooldown));
        let setting = self.state.setting("auto_scaling_cluster_cooldown").map(|it| it.value).unwrap_or_default();
        format!(
            "the cooldown{} of {} and that of the cluster, {setting}, count from {}",
            lasts.unwrap_or_default(),
            action.by,
            opened.at
        )
    }
}

/// What somebody saw of the replica that was created or dropped, the first time.
fn sight(observation: &Observation, action: &Action, found: &mut Found) -> Option<String> {
    let wanted = action.call.replica();
    let creates = matches!(action.call, Call::CreateReplica(_));
    match &observation.seen {
        Seen::Replica { name, size, ready, .. } if creates && **name == **wanted => {
            if *ready && !found.ready {
                (found.seen, found.ready) = (true, true);
                return Some(format!("replica {name} of size {size} was seen, ready"));
            }
            (!std::mem::replace(&mut found.seen, true))
                .then(|| format!("replica {name} of size {size} was seen, not ready yet"))
        }
        Seen::Hydration { replica, total, hydrated } if creates && **replica == **wanted => {
            let complete = *total > 0 && hydrated >= total;
            (complete && !std::mem::replace(&mut found.hydrated, true))
                .then(|| format!("replica {replica} was hydrated: {hydrated} of {total} objects"))
        }
        Seen::ReplicaGone { name, .. } if !creates && **name == **wanted => {
            (!std::mem::replace(&mut found.gone, true)).then(|| format!("replica {name} was gone"))
        }
        _ => None,
    }
}
