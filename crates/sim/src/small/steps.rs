//! What a script consists of: calls of users, and faults that end by themselves.
//!
//! A fault and its end are one step, so that leaving out a step never leaves half of a fault behind. Which nodes a fault
//! meets is a set of bits that means something in a world of any size, so that a world can become smaller on its own.

use std::time::Duration;

use crate::calls::Call;
use crate::faults::{Deed, Family};
use crate::record::Place;

#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// How long after the step before.
    pub after: Duration,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// By the so-manieth user, counted round.
    Call {
        user: usize,
        call: Call,
    },
    Fault {
        fault: Fault,
        lasts: Duration,
    },
}

/// Some nodes: one bit each, lowest first. None of those that there are means the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nodes(pub u8);

impl Nodes {
    fn of(self, nodes: usize) -> Vec<Place> {
        let chosen: Vec<Place> = (0..nodes).filter(|place| self.0 >> place & 1 == 1).collect();
        if chosen.is_empty() { vec![0] } else { chosen }
    }

    fn one_of(self, nodes: usize) -> Place {
        self.of(nodes).first().copied().unwrap_or(0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    Kill {
        nodes: Nodes,
        lose_power: bool,
    },
    Pause {
        nodes: Nodes,
    },
    /// These on one side, all others on the other.
    Cut {
        nodes: Nodes,
        both_ways: bool,
    },
    Latency {
        max: Duration,
    },
    ClockJump {
        nodes: Nodes,
        millis: i64,
    },
    SlowDisk {
        nodes: Nodes,
        takes: Duration,
    },
    FailSync {
        nodes: Nodes,
        nth: u64,
    },
    CutPowerAt {
        nodes: Nodes,
        nth: u64,
    },
    DiskRoom {
        nodes: Nodes,
        bytes: u64,
    },
    BackendGone,
}

impl Fault {
    /// What is done when it begins and when it ends, in a world of so many nodes.
    pub fn deeds(&self, nodes: usize, usual_latency: Duration) -> (Vec<Deed>, Vec<Deed>) {
        let each = |chosen: &Nodes, deed: &dyn Fn(Place) -> Deed| -> Vec<Deed> {
            chosen.of(nodes).into_iter().map(deed).collect()
        };
        match self {
            Fault::Kill { nodes, lose_power } => (
                each(nodes, &|node| Deed::Kill { node, lose_power: *lose_power }),
                each(nodes, &|node| Deed::Restart { node }),
            ),
            Fault::Pause { nodes } => {
                (each(nodes, &|node| Deed::Pause { node }), each(nodes, &|node| Deed::Resume { node }))
            }
            Fault::Cut { nodes: chosen, both_ways } => {
                let from = chosen.of(nodes);
                let to: Vec<Place> = (0..nodes).filter(|place| !from.contains(place)).collect();
                let cut = Deed::Cut { from: from.clone(), to: to.clone(), both_ways: *both_ways };
                (vec![cut], vec![Deed::Mend { from, to }])
            }
            Fault::Latency { max } => (vec![Deed::Latency { max: *max }], vec![Deed::Latency { max: usual_latency }]),
            Fault::ClockJump { nodes, millis } => {
                (each(nodes, &|node| Deed::ClockJump { node, millis: *millis }), Vec::new())
            }
            Fault::SlowDisk { nodes, takes } => (
                each(nodes, &|node| Deed::SlowDisk { node, takes: *takes }),
                each(nodes, &|node| Deed::SlowDisk { node, takes: Duration::ZERO }),
            ),
            Fault::FailSync { nodes: chosen, nth } => {
                (vec![Deed::FailSync { node: chosen.one_of(nodes), nth: *nth }], Vec::new())
            }
            Fault::CutPowerAt { nodes, nth } => (each(nodes, &|node| Deed::CutPowerAt { node, nth: *nth }), Vec::new()),
            Fault::DiskRoom { nodes, bytes } => (
                each(nodes, &|node| Deed::DiskRoom { node, bytes: Some(*bytes) }),
                each(nodes, &|node| Deed::DiskRoom { node, bytes: None }),
            ),
            Fault::BackendGone => {
                (vec![Deed::BackendReachable { reachable: false }], vec![Deed::BackendReachable { reachable: true }])
            }
        }
    }

    pub fn family(&self) -> Family {
        match self {
            Fault::Kill { lose_power: false, .. } => Family::Kill,
            Fault::Kill { lose_power: true, .. } => Family::PowerCut,
            Fault::Pause { .. } => Family::Pause,
            Fault::Cut { both_ways: true, .. } => Family::Partition,
            Fault::Cut { both_ways: false, .. } => Family::OneWay,
            Fault::Latency { .. } => Family::Latency,
            Fault::ClockJump { .. } => Family::ClockJump,
            Fault::SlowDisk { .. } => Family::SlowDisk,
            Fault::FailSync { .. } => Family::FailedSync,
            Fault::CutPowerAt { .. } => Family::TornWrite,
            Fault::DiskRoom { .. } => Family::DiskFull,
            Fault::BackendGone => Family::BackendDown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_nodes_means_somebody_in_a_world_of_any_size() {
        assert_eq!(Nodes(0b10110).of(5), [1, 2, 4]);
        assert_eq!(Nodes(0b10110).of(3), [1, 2]);
        assert_eq!(Nodes(0b10110).of(1), [0]);
        assert_eq!(Nodes(0).of(3), [0]);
    }

    #[test]
    fn whoever_is_cut_off_is_cut_off_from_all_others() {
        let cut = Fault::Cut { nodes: Nodes(0b010), both_ways: false };
        let (begin, end) = cut.deeds(3, Duration::ZERO);
        assert_eq!(begin, [Deed::Cut { from: vec![1], to: vec![0, 2], both_ways: false }]);
        assert_eq!(end, [Deed::Mend { from: vec![1], to: vec![0, 2] }]);
    }
}
