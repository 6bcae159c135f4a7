//! What becomes of an executor that walked into an ambush, and when it is let go.

use std::time::Duration;

use loadline_executor::backends::scripted::{LedgerEvent, LedgerLine};
use loadline_state_machine::{ActionId, ClusterId, Event, SettingValue};

use super::{RESTART_MS, Run};
use crate::calls::Call;
use crate::faults::{By, Then};
use crate::record::{Applied, Place};

/// Where nobody else comes to lead, or what forbids a claim cannot be recorded, it is let go all the same.
const HELD_MAX: Duration = Duration::from_secs(6);
const OVERTAKEN_MAX: Duration = Duration::from_secs(2);
/// The kill switch stays off for about so long, so that the rest of the run is not spent waiting.
const OFF_MS: (u64, u64) = (200, 1_500);
const KILL_SWITCH: &str = "auto_scaling_enabled";

/// An executor that is about to claim something. The next leader may walk into the next ambush while the last one still waits: each
/// node has its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Overtaken {
    cluster: ClusterId,
    by: By,
    /// When it goes on, at the latest; sooner once its node has applied what it waits for.
    until: Duration,
}

impl Run<'_> {
    pub(super) fn ambushed(&mut self, at: Duration, node: Place, action: ActionId, then: Then) {
        match then {
            Then::Kill | Then::LosePower => {
                self.kill(node, then == Then::LosePower);
                let again = at + self.dice.millis(RESTART_MS.0, RESTART_MS.1);
                self.restarts.insert(node, again);
            }
            Then::Pause(lasts) => {
                self.pause(node);
                self.resumes.insert(node, at + lasts);
            }
            Then::Outlast => {
                self.pause(node);
                self.outlasting.insert(node);
                self.resumes.insert(node, at + HELD_MAX);
            }
            Then::Overtaken(by) => self.rush(at, node, action, by),
        }
    }

    /// Somebody is quicker than the claim. The node itself goes on, and leads on.
    fn rush(&mut self, at: Duration, node: Place, action: ActionId, by: By) {
        let state = self.latest.get(&node);
        let cluster = state.and_then(|state| state.cluster_by_id(state.action(action)?.cluster));
        let number = cluster.and_then(|cluster| cluster.name.strip_prefix('c')?.parse().ok());
        let (Some(cluster), Some(number)) = (cluster.map(|cluster| cluster.id), number) else {
            return self.let_go(node);
        };
        self.hold_until_overtaken(at, node, cluster, by);
        // Whoever does it lives as long as the run.
        let _ = self.rusher.send(match by {
            By::KillSwitch => Call::KillSwitch { enabled: false },
            By::Drop => Call::DropCluster { cluster: number, cascade: true },
        });
    }

    fn hold_until_overtaken(&mut self, at: Duration, node: Place, cluster: ClusterId, by: By) {
        self.overtaken.insert(node, Overtaken { cluster, by, until: at + OVERTAKEN_MAX });
    }

    /// An entry was applied: perhaps what somebody waits for.
    pub(super) fn overtakes(&mut self, applied: &Applied) {
        let doubts = &self.world.ambushes;
        for event in &applied.events {
            match event {
                Event::ActionClaimed { action } => doubts.doubt(action.id, true),
                Event::ActionReturned { action } | Event::ActionSettled { action, .. } => {
                    doubts.doubt(action.id, false);
                }
                _ => {}
            }
        }
        let Some(overtaken) = self.overtaken.get_mut(&applied.node) else { return };
        let there = applied.events.iter().any(|event| match (overtaken.by, event) {
            (By::KillSwitch, Event::SettingSet { name, value, .. }) => {
                name == KILL_SWITCH && *value == SettingValue::Bool(false)
            }
            (By::Drop, Event::ClusterDropped { cluster }) => cluster.id == overtaken.cluster,
            _ => false,
        });
        if there {
            overtaken.until = Duration::ZERO;
        }
    }

    pub(super) fn let_the_overtaken_go(&mut self, now: Duration) {
        let due: Vec<(Place, Overtaken)> =
            self.overtaken.extract_if(.., |_, overtaken| overtaken.until <= now).collect();
        for (node, overtaken) in due {
            self.let_go(node);
            if overtaken.by == By::KillSwitch {
                self.switch_on_at = Some(now + self.dice.millis(OFF_MS.0, OFF_MS.1));
            }
        }
    }

    pub(super) fn switch_on_again(&mut self, now: Duration) {
        if self.switch_on_at.take_if(|at| *at <= now).is_some() {
            let _ = self.rusher.send(Call::KillSwitch { enabled: true });
        }
    }

    /// Opens its gate, unless somebody holds the whole node.
    fn let_go(&self, node: Place) {
        if !self.paused.contains(&node) {
            self.world.machines[node].gate.set_open(true);
        }
    }

    /// While a node is held it calls nobody. So whoever calls is another leader.
    pub(super) fn backend_was_called(&mut self, at: Duration, line: &LedgerLine) {
        if !matches!(line.event, LedgerEvent::Sent | LedgerEvent::ReadBack) {
            return;
        }
        for node in std::mem::take(&mut self.outlasting) {
            self.resumes.insert(node, at + self.dice.millis(1, 30));
        }
    }
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::LogIndex;

    use super::*;
    use crate::plan::Plan;
    use crate::trace::Tracing;

    #[test]
    fn two_leaders_that_wait_to_be_overtaken_both_go_on() {
        let plan = Plan::of(1);
        let mut run = Run::new(&plan, Vec::new(), Tracing::Off);
        let cluster = ClusterId { index: LogIndex(1), ordinal: 0 };
        let at = Duration::from_secs(5);
        for (node, by) in [(0, By::KillSwitch), (1, By::Drop)] {
            run.world.machines[node].gate.set_open(false);
            run.hold_until_overtaken(at, node, cluster, by);
        }
        let open = |run: &Run<'_>| [0, 1].map(|node| run.world.machines[node].gate.is_open());
        run.let_the_overtaken_go(at);
        assert_eq!(open(&run), [false, false]);
        run.let_the_overtaken_go(at + OVERTAKEN_MAX);
        assert_eq!(open(&run), [true, true]);
        assert!(run.switch_on_at.is_some(), "the kill switch does not stay off");
    }
}
