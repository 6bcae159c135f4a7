//! What goes wrong, one file for each family of faults. A family says beforehand what it will do and when; the list of
//! [`Deed`]s is all that differs between a quiet run and a wild one.

mod ambush;
mod by_hand;
mod clocks;
mod disks;
mod kills;
mod members;
mod network;
mod pauses;

use std::fmt;
use std::time::Duration;

use loadline_executor::Step;

use crate::dice::Dice;
use crate::plan::Plan;
use crate::record::Place;

macro_rules! families {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// Faults that are switched on and off together.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Family { $($(#[$doc])* $name,)+ }

        impl Family {
            pub const ALL: &'static [Family] = &[$(Family::$name,)+];

            pub fn name(self) -> &'static str {
                match self { $(Family::$name => $text,)+ }
            }
        }
    };
}

families! {
    /// A process is killed and started again.
    Kill = "kill",
    /// The same, and the machine loses its power: what was not synced is lost, torn or reordered.
    PowerCut = "power-cut",
    /// The power fails in the middle of a write, a sync or a rename, that of a snapshot among them.
    TornWrite = "torn-write",
    /// A process is held for a while.
    Pause = "pause",
    Partition = "partition",
    OneWay = "one-way",
    /// Each node hears only its neighbours.
    Ring = "ring",
    /// A link that comes and goes.
    Flap = "flap",
    Latency = "latency",
    Loss = "loss",
    ClockJump = "clock-jump",
    Drift = "drift",
    SlowDisk = "slow-disk",
    FailedSync = "failed-sync",
    FailedWrite = "failed-write",
    DiskFull = "disk-full",
    BackendUnanswered = "backend-unanswered",
    BackendLoses = "backend-loses",
    BackendSlow = "backend-slow",
    BackendRefuses = "backend-refuses",
    BackendUnread = "backend-unread",
    BackendStale = "backend-stale",
    BackendDown = "backend-down",
    SignalFlood = "signal-flood",
    /// Whoever leads is hit at a step of an action.
    Ambush = "ambush",
    /// The power fails in the middle of writing a snapshot.
    SnapshotCrash = "snapshot-crash",
    /// One node more joins, leadership is handed on, a disk is lost.
    Membership = "membership",
    BitFlip = "bit-flip",
    /// People make and end replicas themselves.
    ByHand = "by-hand",
    /// What an executor had recorded arrives late or once more, when it no longer holds.
    Straggler = "straggler",
}

/// One thing that is done to the world.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    Kill {
        node: Place,
        lose_power: bool,
    },
    Restart {
        node: Place,
    },
    Pause {
        node: Place,
    },
    Resume {
        node: Place,
    },
    /// Nobody on one side hears anybody on the other; users are on no side.
    Cut {
        from: Vec<Place>,
        to: Vec<Place>,
        both_ways: bool,
    },
    Mend {
        from: Vec<Place>,
        to: Vec<Place>,
    },
    /// Messages between nodes take up to so long.
    Latency {
        max: Duration,
    },
    /// So many messages of ten thousand break the connection they belong to.
    Loss {
        per_ten_thousand: u32,
    },
    ClockJump {
        node: Place,
        millis: i64,
    },
    SlowDisk {
        node: Place,
        takes: Duration,
    },
    /// The so-manieth sync from now fails.
    FailSync {
        node: Place,
        nth: u64,
    },
    FailWrite {
        node: Place,
        nth: u64,
    },
    /// The power fails in the so-manieth change of the disk from now.
    CutPowerAt {
        node: Place,
        nth: u64,
    },
    /// So much more fits; nothing: all of it again.
    /// The power fails in the so-manieth change of a folder from now.
    CutPowerIn {
        node: Place,
        folder: &'static str,
        nth: u64,
    },
    /// A bit of a file is wrong from now on.
    FlipBit {
        node: Place,
        roll: u64,
    },
    /// A disk is gone; an operator takes its node out, and it joins again.
    LoseDisk {
        node: Place,
    },
    /// Leadership is handed on.
    Transfer,
    /// Whoever comes to this step, after so many others, does not get any further.
    Ambush {
        step: Step,
        skip: u64,
        then: Then,
    },
    DiskRoom {
        node: Place,
        bytes: Option<u64>,
    },
    BackendReachable {
        reachable: bool,
    },
    /// Somebody makes or ends a replica of the so-manieth cluster, counted round.
    ByHand {
        cluster: usize,
        replica: String,
        ended: bool,
    },
}

/// What becomes of whoever walks into an ambush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Kill,
    LosePower,
    Pause(Duration),
    /// It is held until another leader is at work at the backend.
    Outlast,
    /// Its executor is held until something was recorded that forbids what it is about to claim. Only where what came of an
    /// earlier try is in doubt: what was never tried is given up at the same index.
    Overtaken(By),
}

/// What comes before a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    KillSwitch,
    Drop,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = |node: &Place| format!("n{}", node + 1);
        let all = |nodes: &[Place]| nodes.iter().map(n).collect::<Vec<_>>().join(",");
        match self {
            Deed::Kill { node, lose_power: false } => write!(f, "kill {}", n(node)),
            Deed::Kill { node, lose_power: true } => write!(f, "power cut at {}", n(node)),
            Deed::Restart { node } => write!(f, "restart {}", n(node)),
            Deed::Pause { node } => write!(f, "pause {}", n(node)),
            Deed::Resume { node } => write!(f, "resume {}", n(node)),
            Deed::Cut { from, to, both_ways: true } => write!(f, "cut {} | {}", all(from), all(to)),
            Deed::Cut { from, to, both_ways: false } => write!(f, "cut {} -> {}", all(from), all(to)),
            Deed::Mend { from, to } => write!(f, "mend {} | {}", all(from), all(to)),
            Deed::Latency { max } => write!(f, "latency up to {max:?}"),
            Deed::Loss { per_ten_thousand } => write!(f, "loss of {per_ten_thousand} in 10000"),
            Deed::ClockJump { node, millis } => write!(f, "clock of {} jumps by {millis} ms", n(node)),
            Deed::SlowDisk { node, takes } => write!(f, "disk of {} takes {takes:?}", n(node)),
            Deed::FailSync { node, nth } => write!(f, "sync {nth} of {} will fail", n(node)),
            Deed::FailWrite { node, nth } => write!(f, "write {nth} of {} will fail", n(node)),
            Deed::CutPowerAt { node, nth } => write!(f, "power of {} will fail in change {nth}", n(node)),
            Deed::CutPowerIn { node, folder, nth } => {
                write!(f, "power of {} will fail in change {nth} of {folder}", n(node))
            }
            Deed::FlipBit { node, .. } => write!(f, "a bit flips on the disk of {}", n(node)),
            Deed::LoseDisk { node } => write!(f, "the disk of {} is lost", n(node)),
            Deed::Transfer => write!(f, "leadership is to be handed on"),
            Deed::Ambush { step, skip, then } => write!(f, "an ambush {} (after {skip}): {then:?}", step.name()),
            Deed::DiskRoom { node, bytes: Some(bytes) } => write!(f, "disk of {} has room for {bytes} bytes", n(node)),
            Deed::DiskRoom { node, bytes: None } => write!(f, "disk of {} has room again", n(node)),
            Deed::ByHand { cluster, replica, ended } => {
                write!(f, "somebody {} {replica} of cluster {cluster}", if *ended { "ends" } else { "makes" })
            }
            Deed::BackendReachable { reachable } => {
                write!(f, "backend {}", if *reachable { "is back" } else { "is gone" })
            }
        }
    }
}

/// Everything that will be done in a run, in order of time.
pub fn schedule(plan: &Plan) -> Vec<(Duration, Deed)> {
    let mut all = Vec::new();
    for family in &plan.families {
        let mut chances = Chances { plan, dice: Dice::of(plan.seed, family.name()), deeds: Vec::new() };
        match family {
            Family::Kill | Family::PowerCut => kills::schedule(&mut chances, *family),
            Family::Pause => pauses::schedule(&mut chances),
            Family::Partition | Family::OneWay | Family::Ring | Family::Flap | Family::Latency | Family::Loss => {
                network::schedule(&mut chances, *family);
            }
            Family::ClockJump => clocks::schedule(&mut chances),
            Family::TornWrite
            | Family::SnapshotCrash
            | Family::SlowDisk
            | Family::FailedSync
            | Family::FailedWrite
            | Family::DiskFull => disks::schedule(&mut chances, *family),
            Family::Ambush => ambush::schedule(&mut chances),
            Family::Membership | Family::BitFlip => members::schedule(&mut chances, *family),
            Family::ByHand => by_hand::schedule(&mut chances),
            Family::BackendDown => {
                let mut at = chances.start();
                while at < chances.end() {
                    chances.span(&mut at, (300, 2_500), |_| {
                        (Deed::BackendReachable { reachable: false }, Deed::BackendReachable { reachable: true })
                    });
                }
            }
            // These are set for the whole run, in the plan.
            Family::Drift
            | Family::BackendUnanswered
            | Family::BackendLoses
            | Family::BackendSlow
            | Family::BackendRefuses
            | Family::BackendUnread
            | Family::BackendStale
            | Family::SignalFlood
            // What and when depends on what is said: `crate::run::late`.
            | Family::Straggler => {}
        }
        all.append(&mut chances.deeds);
    }
    // By time; of two at one time the order of the families stays.
    all.sort_by_key(|(at, _)| *at);
    all
}

/// What a family throws and writes down.
pub(crate) struct Chances<'a> {
    plan: &'a Plan,
    pub(crate) dice: Dice,
    deeds: Vec<(Duration, Deed)>,
}

impl Chances<'_> {
    /// Some time after the beginning of chaos.
    pub(crate) fn start(&mut self) -> Duration {
        self.plan.chaos.0 + self.dice.millis(0, 2_000)
    }

    pub(crate) fn end(&self) -> Duration {
        self.plan.chaos.1
    }

    pub(crate) fn nodes(&self) -> usize {
        self.plan.machines
    }

    pub(crate) fn node(&mut self) -> Place {
        self.dice.index(self.plan.machines)
    }

    pub(crate) fn at(&mut self, at: Duration, deed: Deed) {
        self.deeds.push((at, deed));
    }

    /// Something that begins at `at`, lasts, and is undone; then a rest. Moves `at` on.
    pub(crate) fn span(
        &mut self,
        at: &mut Duration,
        lasts_ms: (u64, u64),
        deeds: impl FnOnce(&mut Self) -> (Deed, Deed),
    ) {
        let (deed, undone) = deeds(self);
        self.at(*at, deed);
        *at += self.dice.millis(lasts_ms.0, lasts_ms.1);
        self.at(*at, undone);
        *at += self.dice.millis(200, 4_000);
    }
}
