//! Why a cluster was looked at when a decision was made about it.
//!
//! An entry holds what many asked for at once. Only what is about the cluster, or about every cluster, can have been the occasion: the rest
//! stands in the same entry by chance.

use loadline_sql::tables::like;
use loadline_state_machine::{Cause, Decision, Event, StrategyId, Target};

use super::{Explainer, Facts, Origin};
use crate::trail::{Opened, TrailError};
use crate::words::{ClusterNames, words};

/// Occasions that are told of one decision. A cluster of which a whole batch tells would hide the decision behind them.
const OCCASIONS_MAX: usize = 5;

/// How the names of settings begin on which decisions depend.
const SETTINGS: [&str; 4] = ["enable_auto_scaling", "auto_scaling_", "signal_stale_after", "scale_to_zero_"];

/// What an event is to a decision of the same entry. In the order in which it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bearing {
    /// It is about this very cluster.
    Own,
    /// It is about every cluster, or all of some name.
    General,
    /// It starts nothing by itself, but what was due waited for it.
    Awaited,
}

impl Explainer<'_> {
    /// What the entry was that a decision was made at.
    pub(super) fn add_occasion(&self, facts: &mut Facts, decision: &Decision) -> Result<(), TrailError> {
        let Some(opened) = self.trail.at(decision.id.index.0)? else { return Ok(()) };
        let names = self.names();
        let found = occasions(&opened, decision, &names);
        for (cause, event) in found.iter().take(OCCASIONS_MAX) {
            let text = format!("it was looked at because: {}", words(event, &names));
            facts.add("occasion", event.kind_name(), text, Origin::of(&opened, *cause)).depth = 1;
        }
        let here = || Origin { index: Some(opened.index), at: Some(opened.at), who: None };
        match found.len() {
            0 => {
                let text = "it was looked at because time had passed: something was due";
                facts.add("occasion", "time", text, here()).depth = 1;
            }
            count if count > OCCASIONS_MAX => {
                let text = format!("and because of {} more in the same entry", count - OCCASIONS_MAX);
                facts.add("occasion", "more", text, here()).depth = 1;
            }
            _ => {}
        }
        Ok(())
    }
}

/// What bears on the decision, what is about its own cluster first, else in order. A change of leader only where nothing else does.
fn occasions<'a>(opened: &'a Opened, decision: &Decision, names: &dyn ClusterNames) -> Vec<&'a (Cause, Event)> {
    let bearing = |(cause, event): &(Cause, Event)| match (cause, event) {
        // What followed from the entry followed from the decision, too, but for what ended because its time was up.
        (Cause::Reaction, Event::ClusterResumed { .. } | Event::OverrideEnded { .. }) | (Cause::Request(_), _) => {
            bearing(event, decision, names)
        }
        (Cause::Reaction, _) => None,
    };
    let mut found: Vec<(Bearing, &(Cause, Event))> =
        opened.events.iter().filter_map(|told| Some((bearing(told)?, told))).collect();
    found.sort_by_key(|(bearing, _)| *bearing);
    if found.first().is_some_and(|(bearing, _)| *bearing != Bearing::Awaited) {
        found.retain(|(bearing, _)| *bearing != Bearing::Awaited);
    }
    found.into_iter().map(|(_, told)| told).collect()
}

/// As the state machine chooses whom to look at.
fn bearing(event: &Event, decision: &Decision, names: &dyn ClusterNames) -> Option<Bearing> {
    let own = event.cluster() == Some(decision.cluster);
    match event {
        Event::ClusterCreated { .. }
        | Event::ClusterRenamed { .. }
        | Event::SignalsReported { .. }
        | Event::StrategyStateSet { .. }
        | Event::ReplicaAsked { .. }
        | Event::ClusterPaused { .. }
        | Event::ClusterResumed { .. }
        | Event::ClusterWoken { .. }
        | Event::ClusterOverridden { .. }
        | Event::OverrideEnded { .. }
        | Event::ActionSettled { .. }
        | Event::ActionApproved { .. }
        | Event::DeadLetterCleared { .. } => own.then_some(Bearing::Own),
        Event::StrategyCreated { strategy }
        | Event::StrategyChanged { strategy, .. }
        | Event::StrategyDropped { strategy } => {
            let name = || names.name_of(decision.cluster);
            match &strategy.target {
                Target::Cluster(_) => own.then_some(Bearing::Own),
                Target::All => Some(Bearing::General),
                // It may be called something else by now. That it took part says that the pattern was one of its name.
                Target::Pattern(_) if took_part(decision, strategy.id) => Some(Bearing::General),
                Target::Pattern(pattern) => {
                    name().is_some_and(|name| like(pattern, &name, Some('\\'), false)).then_some(Bearing::General)
                }
            }
        }
        Event::SettingSet { name, .. } | Event::SettingReset { name, .. } => {
            SETTINGS.iter().any(|begins| name.starts_with(begins)).then_some(Bearing::General)
        }
        Event::SizeCreated { .. }
        | Event::SizeChanged { .. }
        | Event::SizeDropped { .. }
        | Event::RestoreFinished { .. } => Some(Bearing::General),
        Event::LeaderAnnounced { .. } => Some(Bearing::Awaited),
        _ => None,
    }
}

fn took_part(decision: &Decision, strategy: StrategyId) -> bool {
    let shadow = decision.shadow.iter().flat_map(|shadow| &shadow.stages);
    decision.stages.iter().chain(shadow).any(|stage| stage.strategy == strategy)
}
