//! Why the model does something else than the record: what the record had on the clusters that differ, or near the moment at which they
//! part, and the model leaves out.
//!
//! A reason is named only where it can be one. Whoever reads it looks there first.

use std::collections::BTreeSet;

use loadline_state_machine::{Action, ClusterId, Span, State, Time};

use super::Runs;
use super::learned::Unclaimed;

/// How far from the moment at which they part a change of leader is a reason: until the new one has taken up what waits.
const LEADER_NEAR: Span = Span::from_mins(1);

pub(super) fn reasons(runs: &Runs<'_>, ended: &State) -> Vec<String> {
    let mut reasons = Vec::new();
    let parted = &runs.fidelity.parted.clusters;
    reasons.extend(unclaimed(runs, ended));
    // What failed elsewhere is no reason for what is different here.
    let failed: u64 = parted.keys().map(|cluster| runs.learned.failed_calls(*cluster)).sum();
    if failed > 0 {
        let calls = if failed == 1 { "1 call".to_owned() } else { format!("{failed} calls") };
        reasons.push(format!(
            "{calls} of the record on the clusters that differ failed or ended in doubt; those of the model succeed"
        ));
    }
    let missed = &runs.unchanged.missed;
    if missed.befell > 0 {
        let befell = match missed.befell {
            1 => "1 crash, loss or notice of the record hit a replica that the model did not have".to_owned(),
            count => {
                format!("{count} crashes, losses or notices of the record hit replicas that the model did not have")
            }
        };
        reasons.push(befell);
    }
    if missed.requests > 0 {
        let told = missed.told.join("; ");
        let requests = match missed.requests {
            1 => "1 request of the record was refused by the model".to_owned(),
            count => format!("{count} requests of the record were refused by the model"),
        };
        reasons.push(format!("{requests}: {told}"));
    }
    let is_near =
        |at: Time| parted.values().any(|(from, to)| at >= from.before(LEADER_NEAR) && at <= *to + LEADER_NEAR);
    let leaders = runs.givens.leaders.iter().filter(|at| is_near(**at)).count();
    if leaders > 0 {
        let times = if leaders == 1 { "once".to_owned() } else { format!("{leaders} times") };
        reasons.push(format!("the leader changed {times} near where they part; the model loses no time over that"));
    }
    if parted.keys().any(|cluster| runs.learned.took_otherwise(*cluster)) {
        reasons.push("the model goes by medians, and something of the record took a different time".to_owned());
    }
    if reasons.is_empty() {
        reasons.push("nothing that the model is known to leave out happened to the clusters that differ".to_owned());
    }
    reasons
}

/// Actions that nobody took up, such as on a backend that no node has. The model takes up whatever can be.
fn unclaimed(runs: &Runs<'_>, ended: &State) -> Option<String> {
    let parted = &runs.fidelity.parted.clusters;
    let is_long = |it: &Unclaimed| it.until > it.planned_at + runs.learned.taken_up() + runs.learned.entries_apart();
    let differs = |cluster: &ClusterId| parted.contains_key(cluster);
    let waits = |action: &&Action| action.attempt == 0 && differs(&action.cluster);
    let waiting =
        ended.claimable_actions().filter(waits).map(|action| (action.cluster, Unclaimed::of(action, runs.window.to)));
    let given_up = runs.learned.unclaimed().filter(|(cluster, _)| differs(cluster)).map(|(id, it)| (*id, it.clone()));
    let all: Vec<(ClusterId, Unclaimed)> = waiting.chain(given_up).filter(|(_, it)| is_long(it)).collect();
    let clusters: BTreeSet<ClusterId> = all.iter().map(|(cluster, _)| *cluster).collect();
    let (_, Unclaimed { what, planned_at, .. }) = all.iter().min_by_key(|(cluster, it)| (it.planned_at, *cluster))?;
    let others = match clusters.len() {
        1 => String::new(),
        2 => "; the same on 1 more cluster".to_owned(),
        count => format!("; the same on {} more clusters", count - 1),
    };
    Some(format!("{what} was planned in the record at {planned_at}, and claimed by nobody{others}"))
}
