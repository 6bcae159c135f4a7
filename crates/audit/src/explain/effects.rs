//! What an action caused: the replica that was seen, ready and hydrated, or gone; the end of its operation and the cooldown that
//! counts from there; what was decided and begun next.

use loadline_state_machine::{
    Action, Call, Event, Observation, OperationEnd, ResourceName, Seen, Span, Strategy, StrategyId,
};

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
        // Not from where it was planned: it may have waited for longer than anybody wants to read.
        let before = self.trail.not_after(first.claimed_at.before(Span::from_millis(1)))?.unwrap_or_default();
        let from = before.max(action.id.index.0) + 1;
        let to = self.end().min(from.saturating_add(ENTRIES_MAX));
        let names = self.names();
        let mut found = Found::default();
        let mut claimed = false;
        let mut walked = to;
        let mut whole = false;
        let mut failed = None;
        self.trail.walk(from, to, |opened| {
            for (cause, event) in &opened.events {
                if event.cluster() != Some(action.cluster) {
                    continue;
                }
                let mut tell = |name: &str, text: String, resource: Option<String>| {
                    let fact = facts.add("effect", name, text, Origin::of(opened, *cause));
                    (fact.depth, fact.heading, fact.resource) = (1, Some(HEADING), resource);
                };
                match event {
                    // The same millisecond has other entries before it.
                    Event::ActionClaimed { action: it } if it.id == action.id => claimed = true,
                    Event::SignalsReported { observations, .. } if claimed || opened.at > first.claimed_at => {
                        for text in observations.iter().filter_map(|it| sight(it, action, &mut found)) {
                            tell("replica", text, None);
                        }
                    }
                    Event::OperationEnded { operation, end } if Some(operation.id) == action.operation => {
                        found.ended = Some(opened.index);
                        let resource = ResourceName::operation(operation.id).to_string();
                        tell("operation", words(event, &names), Some(resource));
                        if *end == OperationEnd::Completed {
                            match self.cooldown(action, opened) {
                                Ok(text) => tell("cooldown", text, None),
                                Err(error) => failed = Some(error),
                            }
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
            whole = replica && found.decided && found.begun;
            if whole {
                walked = opened.index;
            }
            !whole && failed.is_none()
        })?;
        if let Some(failed) = failed {
            return Err(failed);
        }
        self.depends_on(from - 1, walked);
        if found.ended.is_none() && action.operation.is_some() {
            let text = "its operation has not ended, as far as this goes";
            let fact = facts.add("effect", "operation", text, Origin::default());
            (fact.depth, fact.heading) = (1, Some(HEADING));
        }
        if !whole && to < self.end() {
            let text = format!("what it caused after entry {to} was not looked for: that is {ENTRIES_MAX} entries on");
            let fact = facts.add("effect", "looked", text, Origin::default());
            (fact.depth, fact.heading) = (1, Some(HEADING));
        }
        Ok(())
    }

    /// For how long the strategy and the cluster waited from then on, as they were configured at that entry. A user has no cooldown.
    fn cooldown(&self, action: &Action, opened: &Opened) -> Result<String, TrailError> {
        let strategy = match action.by.strategy() {
            Some(id) => self.strategy_then(id, opened.index)?,
            None => None,
        };
        let lasts = strategy.and_then(|it| it.configuration().ok()).map(|it| format!(" of {}", it.cooldown));
        let lasts = lasts.unwrap_or_default();
        let at = opened.at;
        let cluster = self.setting_then("auto_scaling_cluster_cooldown", opened.index)?;
        let cluster = cluster.map(|span| format!(", {span},")).unwrap_or_default();
        Ok(match action.by.strategy() {
            Some(_) => format!("the cooldown{lasts} of {} and that of the cluster{cluster} count from {at}", action.by),
            None => format!("the cooldown of the cluster{cluster} counts from {at}"),
        })
    }

    /// As it was after an entry; nothing if it was gone.
    fn strategy_then(&self, id: StrategyId, up_to: u64) -> Result<Option<Strategy>, TrailError> {
        let changed = self.last_change(&ResourceName::strategy(id), up_to)?;
        Ok(match changed.map(|(mut opened, place)| opened.events.swap_remove(place).1) {
            Some(Event::StrategyCreated { strategy } | Event::StrategyChanged { strategy, .. }) => Some(strategy),
            Some(_) => None,
            // This history does not reach back so far, so nobody changed it within.
            None => self.state.strategy(id).cloned(),
        })
    }

    fn setting_then(&self, name: &str, up_to: u64) -> Result<Option<String>, TrailError> {
        let changed = self.last_change(&ResourceName::setting(name), up_to)?;
        let setting = self.state.setting(name);
        Ok(match changed.map(|(mut opened, place)| opened.events.swap_remove(place).1) {
            Some(Event::SettingSet { value, .. }) => Some(value.to_string()),
            _ if self.last_change(&ResourceName::setting(name), self.end())?.is_some() => {
                setting.map(|it| it.default_value)
            }
            // Nobody has touched it in this history.
            _ => setting.map(|it| it.value),
        })
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
