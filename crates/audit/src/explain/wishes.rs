//! Who wanted what no strategy did: an override, a replica by hand, that a change is not made, that nothing is done at all.
//!
//! The state machine says that it was so. Who it was stands in the entry in which they asked for it.

use loadline_state_machine::{Action, ActionStatus, ClusterId, Decision, Event, Planned, Reason, ResourceName, Step};

use super::{Explainer, Facts, Origin};
use crate::trail::TrailError;

/// The setting without which nothing is carried out.
const KILL_SWITCH: &str = "auto_scaling_enabled";

/// Somebody's wish: where it stands, and what they said of it.
#[derive(Default)]
pub(super) struct Wish {
    pub(super) origin: Origin,
    pub(super) said: String,
}

impl Wish {
    /// Where it stands; what they said goes behind the text.
    pub(super) fn add_to(self, text: &mut String) -> Origin {
        if !self.said.is_empty() {
            *text += &format!("; {}", self.said);
        }
        self.origin
    }
}

impl Explainer<'_> {
    /// Whose wish it is that something is done for a reason which no strategy has; `fits` tells what was asked for by hand.
    fn wished(
        &self,
        cluster: ClusterId,
        reason: &Reason,
        up_to: u64,
        fits: impl Fn(&Step) -> bool,
    ) -> Result<Wish, TrailError> {
        let found = self.last_event_about(cluster, up_to, |event| match (reason, event) {
            (Reason::Overridden { .. }, Event::ClusterOverridden { .. })
            | (Reason::OverrideOver, Event::OverrideEnded { .. }) => true,
            (Reason::Asked { .. }, Event::ReplicaAsked { asked, .. }) => fits(&asked.step),
            _ => false,
        })?;
        let Some((opened, place)) = found else { return Ok(Wish::default()) };
        let (cause, event) = &opened.events[place];
        let said = match event {
            Event::ClusterOverridden { floor, .. } => floor.reason.clone(),
            _ => String::new(),
        };
        Ok(Wish { origin: Origin::of(&opened, *cause), said })
    }

    pub(super) fn action_wished(&self, action: &Action) -> Result<Wish, TrailError> {
        if !is_a_wish(&action.reason) {
            return Ok(Wish::default());
        }
        let replica = action.call.replica();
        let of_it = |step: &Step| [step.creates(), step.drops()].into_iter().flatten().any(|it| *it.name == **replica);
        self.wished(action.cluster, &action.reason, action.id.index.0, of_it)
    }

    pub(super) fn plan_wished(&self, planned: &Planned, cluster: ClusterId, up_to: u64) -> Result<Wish, TrailError> {
        if !is_a_wish(&planned.reason) {
            return Ok(Wish::default());
        }
        self.wished(cluster, &planned.reason, up_to, |step| *step == planned.step)
    }

    /// Who has put a brake on, of those that somebody puts on; what they said; and what they did it with.
    pub(super) fn braked_by(
        &self,
        brake: &str,
        decision: &Decision,
        up_to: u64,
    ) -> Result<(Wish, Option<String>), TrailError> {
        match brake {
            "KILL_SWITCH" => {
                let name = ResourceName::setting(KILL_SWITCH).to_string();
                Ok((Wish { origin: self.switched_off(up_to)?, said: String::new() }, Some(name)))
            }
            "PAUSED" => {
                let paused = |event: &Event| matches!(event, Event::ClusterPaused { .. });
                let origin = self.last_about(decision.cluster, up_to, paused)?;
                Ok((Wish { origin, said: String::new() }, None))
            }
            "REJECTED" => self.rejected_by(decision, up_to),
            _ => Ok((Wish::default(), None)),
        }
    }

    fn rejected_by(&self, decision: &Decision, up_to: u64) -> Result<(Wish, Option<String>), TrailError> {
        let steps = || decision.planned.iter().map(|planned| &planned.step);
        let replicas = || steps().flat_map(|step| [step.creates(), step.drops()]).flatten().map(|it| &*it.name);
        let found = self.last_event_about(decision.cluster, up_to, |event| match event {
            Event::ActionSettled { action, .. } if action.status == ActionStatus::Rejected => {
                replicas().any(|replica| *replica == **action.call.replica())
            }
            _ => false,
        })?;
        let Some((opened, place)) = found else { return Ok((Wish::default(), None)) };
        let (cause, event) = &opened.events[place];
        let action = event.action();
        let said = action.and_then(|action| action.error.clone()).unwrap_or_default();
        let resource = action.map(|action| ResourceName::action(action.id).to_string());
        Ok((Wish { origin: Origin::of(&opened, *cause), said }, resource))
    }

    /// Of an action that was not carried out because nothing is: who has switched that off.
    pub(super) fn add_suppressed(&self, facts: &mut Facts, action: &Action) -> Result<(), TrailError> {
        if action.status != ActionStatus::Suppressed {
            return Ok(());
        }
        let name = ResourceName::action(action.id);
        let settled = self.last_change(&name, self.end())?.map_or(action.id.index.0, |(opened, _)| opened.index);
        let text = format!("suppressed because {KILL_SWITCH} was false");
        let fact = facts.add("action", KILL_SWITCH, text, self.switched_off(settled)?);
        fact.depth = 1;
        fact.resource = Some(ResourceName::setting(KILL_SWITCH).to_string());
        Ok(())
    }

    fn switched_off(&self, up_to: u64) -> Result<Origin, TrailError> {
        // One that nobody ever set has nobody to name, and nothing that is missing could tell.
        match self.state.setting(KILL_SWITCH) {
            Some(setting) if setting.updated.is_none() => Ok(Origin::default()),
            _ => self.changed_by(&ResourceName::setting(KILL_SWITCH), up_to),
        }
    }
}

/// Somebody wanted it, and no strategy.
fn is_a_wish(reason: &Reason) -> bool {
    matches!(reason, Reason::Asked { .. } | Reason::Overridden { .. } | Reason::OverrideOver)
}
