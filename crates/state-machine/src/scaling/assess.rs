//! Asking the strategies of a cluster. Pure: nothing is written, so it also answers what would be.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::ClusterRecord;
use super::floor;
use super::knobs::Knobs;
use super::operations::Progress;
use super::plan::{Planned, difference};
use crate::configuration::stored::Ruler;
use crate::configuration::{Approval, StrategyKind};
use crate::signals::Signals;
use crate::signals::replica::Replica;
use crate::strategies::chain::{Link, Said, Stage, run};
use crate::strategies::desired::Desired;
use crate::strategies::reason::Reason;
use crate::strategies::{Decide, StrategyState, View};
use crate::{ClusterId, State, StrategyId};

/// What the strategies say about a cluster, and what that would take.
#[derive(Debug)]
pub(crate) struct Assessment {
    pub(crate) said: Said,
    pub(crate) planned: Vec<Planned>,
    /// Of each kind, whether a person must approve what it wants.
    pub(crate) approval: [bool; StrategyKind::COUNT],
    pub(crate) has_strategies: bool,
    /// Something is remembered for a strategy that does not rule this cluster any more.
    pub(crate) remembers_others: bool,
}

/// Asks the strategies. `record` is what is known about the cluster. Pure: nothing is written, so a strategy that panics leaves nothing half done.
pub(crate) fn assess(
    state: &State,
    cluster: ClusterId,
    record: Option<&ClusterRecord>,
    knobs: &Knobs,
    strategies: &[Decide; StrategyKind::COUNT],
) -> Assessment {
    let nothing = Signals::default();
    let signals = record.map_or(&nothing, |record| &record.signals);
    let base = record.and_then(base_of);
    let replicas = base.as_deref().unwrap_or(&signals.replicas);
    let view = View {
        now: state.now,
        stale_after: knobs.stale_after,
        replicas,
        signals,
        sizes: &state.sizes,
        idle: knobs.idle,
        wake: record.and_then(ClusterRecord::wake),
    };

    let own = record.and_then(|record| record.own.as_deref());
    let rulings = state.scaling.strategies.rulings(own, || state.clusters.name(cluster));
    let mut approval = [false; StrategyKind::COUNT];
    let fresh = rulings.map(|ruling| ruling.map(|ruling| StrategyState::new(ruling.ruler.id)));
    let mut links = Vec::with_capacity(StrategyKind::COUNT);
    let mut remembered = record.map_or(0, |record| record.states.iter().flatten().count());
    for (ruling, fresh) in rulings.iter().zip(&fresh) {
        let (Some(ruling), Some(fresh)) = (ruling, fresh) else { continue };
        let Ruler { id, kind, configuration } = ruling.ruler;
        let own = record.and_then(|record| record.state_of(*kind)).filter(|own| own.is_of(*id));
        remembered -= usize::from(own.is_some());
        let link = Link::new(*id, *kind, configuration, own.unwrap_or(fresh), ruling.tied_with, state.now);
        approval[kind.slot()] = link.configuration.is_ok_and(|it| it.approval == Approval::Manual);
        links.push(link);
    }
    let mut running = None;
    let said = catch_unwind(AssertUnwindSafe(|| run(strategies, &links, view, &mut running)));
    let mut said = said.unwrap_or_else(|_| panicked(running, &links, view));
    if said.fault().is_none() {
        floor::apply(record, replicas, &mut said.desired, state.now);
        if let Some(shadow) = &mut said.shadow {
            floor::apply(record, replicas, &mut shadow.desired, state.now);
        }
    }
    let planned = difference(replicas, &said, &state.sizes, state.keeps_checkpoints_of(cluster));
    let (has_strategies, remembers_others) = (!links.is_empty(), remembered > 0);
    Assessment { said, planned, approval, has_strategies, remembers_others }
}

/// A strategy panicked: what is there stays.
fn panicked(running: Option<StrategyId>, links: &[Link<'_>], view: View<'_>) -> Said {
    let stages = links.iter().filter(|link| Some(link.id) == running).map(|link| Stage {
        strategy: link.id,
        kind: link.kind,
        reason: Reason::Panicked,
        changes: vec![],
        held_back: vec![],
        changes_at: None,
        tied_with: None,
        profile: None,
    });
    let desired = Desired::new(view.replicas.iter().map(|replica| (&replica.name, &replica.size)));
    Said { stages: stages.collect(), desired, shadow: None, notes: vec![] }
}

/// The replicas as they would be without what the operation under way has made so far. The strategies are asked about
/// that, so that whether the rest of it is still wanted does not depend on how far it has got: a ladder of which one rung is
/// there is still wanted as a whole.
fn base_of(record: &ClusterRecord) -> Option<Vec<Replica>> {
    let operation = record.operation.as_ref()?;
    let made = |replica: &Replica| {
        let begun = operation.units.iter().filter(|unit| unit.has_begun());
        // A replacement that is complete has taken the place of what it replaced.
        let unfinished = begun.filter(|unit| unit.planned.step.drops().is_none() || unit.progress != Progress::Done);
        unfinished.filter_map(|unit| unit.planned.step.creates()).any(|made| made.name == replica.name)
    };
    let replicas = &record.signals.replicas;
    replicas.iter().any(made).then(|| replicas.iter().filter(|replica| !made(replica)).cloned().collect())
}
