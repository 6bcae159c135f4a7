//! The second part of a run: nothing goes wrong any more, and everything has to be done in time.

use std::time::Duration;

use loadline_state_machine::{ActionStatus, Conclusion, Span, State, Time};

use super::Run;
use crate::invariants::Violation;
use crate::invariants::heals::WITHIN;
use crate::record::{Phase, Place};
use crate::world::OUTSIDE;
use crate::world::node::host;

/// Brakes follow on brakes; at some point it is enough.
const HEAL_MAX: Duration = Duration::from_secs(180);
/// A fault of a disk that is so far ahead never comes.
const NEVER: u64 = 1 << 40;

impl Run<'_> {
    /// From now on nothing goes wrong, and users do nothing any more.
    pub(super) fn heal(&mut self) {
        self.enter(Phase::Heal);
        self.healing_since = self.world.sim.elapsed();
        self.deeds.clear();
        self.world.ambushes.clear();
        self.late.stop();
        for node in std::mem::take(&mut self.overtaken).into_keys() {
            self.world.machines[node].gate.set_open(true);
        }
        self.stop.send_replace(true);
        for place in 0..self.world.machines.len() {
            self.resume(place);
            let disk = self.world.machines[place].disk();
            disk.pace.set(Duration::ZERO);
            disk.model.set_capacity(None);
            disk.model.fail_sync(NEVER);
            disk.model.fail_write(NEVER);
            if disk.model.power_is_off() {
                self.kill(place, true);
            }
            disk.model.cut_power_at(NEVER);
        }
        self.world.sim.set_fail_rate(0.0);
        self.world.sim.set_max_message_latency(self.plan.latency.1);
        let hosts: Vec<String> = (0..self.world.machines.len()).map(host).chain([OUTSIDE.to_owned()]).collect();
        for (place, a) in hosts.iter().enumerate() {
            for b in &hosts[place + 1..] {
                self.world.sim.release(a.as_str(), b.as_str());
            }
        }
        let down: Vec<Place> = self.down.iter().copied().collect();
        down.into_iter().for_each(|place| self.restart(place));
        self.world.backend.tell(|backend| backend.behave());
    }

    /// Whether everything is done. An error if it takes too long.
    pub(super) fn is_over(&mut self, now: Duration) -> Result<bool, Violation> {
        let late = |what: String| Err(Violation { invariant: "heals", at: now, what });
        let Some((served_at, index)) = self.served else {
            if now > self.healing_since + WITHIN {
                return late(format!("nothing goes wrong since {:?}, and nobody serves", self.healing_since));
            }
            return Ok(false);
        };
        let behind: Vec<String> = (0..self.plan.machines)
            .filter(|place| self.latest.get(place).is_none_or(|state| state.applied().0 < index))
            .map(host)
            .collect();
        let newest = self.latest.values().max_by_key(|state| state.applied());
        let Some(state) = newest else { return Ok(false) };
        let (left, brake_until) = left_to_do(state, self.plan.patient);
        self.brake_until = self.brake_until.max(brake_until);
        if behind.is_empty() && left.is_empty() {
            self.enter(Phase::Converged);
            for sighting in self.world.record.take() {
                self.see(sighting)?;
            }
            return Ok(true);
        }
        let brakes_over = state.now() > self.brake_until + span(WITHIN);
        if now > served_at + HEAL_MAX || (now > served_at + WITHIN && brakes_over) {
            let behind =
                if behind.is_empty() { String::new() } else { format!("{} did not catch up; ", behind.join(", ")) };
            return late(format!("since {served_at:?} it serves, and has not converged: {behind}{}", left.join(", ")));
        }
        Ok(false)
    }
}

fn span(duration: Duration) -> Span {
    Span::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// What is not done, in words, and when the last brake that holds any of it runs out.
fn left_to_do(state: &State, patient: bool) -> (Vec<String>, Time) {
    let mut left = Vec::new();
    let mut until = Time::from_millis(0);
    for action in state.actions() {
        if let ActionStatus::Pending { not_before: Some(at) } = action.status {
            until = until.max(at);
        }
        left.push(format!("action {} is {}", action.id, action.status.code()));
    }
    left.extend(state.operations().map(|operation| format!("operation {} is under way", operation.id)));
    for cluster in state.clusters_after(None) {
        let Some(standing) = state.standing(cluster.id) else { continue };
        if standing.conclusion() != Some(Conclusion::Held) {
            continue;
        }
        let Some(decision) = standing.decision() else { continue };
        for held in &decision.brakes {
            let Some(at) = held.until else { continue };
            until = until.max(at);
            if patient {
                left.push(format!("{} is held by {}", cluster.name, held.brake.code()));
            }
        }
    }
    (left, until)
}
