//! What a seed decides before anything runs: how large the world is, what goes wrong in it, and what users do.
//!
//! Swarm: each family of faults is switched on or off as a whole. Runs in which everything goes wrong at once are all
//! alike, and some bugs need a fault to be absent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use loadline_executor::Capabilities;
use loadline_executor::backends::scripted::Script;

use crate::calls::Call;
use crate::dice::Dice;
use crate::faults::Family;

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// Nodes that found the group.
    pub founders: usize,
    /// Nodes in all: those beyond the founders join.
    pub machines: usize,
    pub heartbeat: Duration,
    pub snapshot_every: u64,
    pub keep_entries: u64,
    pub wal_segment_bytes: u64,
    pub disk_reserve: u64,
    /// Between any two hosts, from and to.
    pub latency: (Duration, Duration),
    pub users: usize,
    pub clusters: usize,
    /// A user pauses up to so long between two calls.
    pub user_pause: Duration,
    /// When faults begin and end.
    pub chaos: (Duration, Duration),
    pub families: BTreeSet<Family>,
    pub backend: BackendPlan,
    /// Whether healing waits for brakes, too.
    pub patient: bool,
    /// Whether syncs do nothing: no group can live through that, and a run that does not notice is worth nothing.
    pub lying_disks: bool,
    /// What users do and when, by their names, where that is not left to chance: see [`crate::small`].
    pub calls: BTreeMap<String, Vec<(Duration, Call)>>,
}

/// How the backend lies. Percentages are of calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackendPlan {
    pub unanswered_percent: u64,
    pub lost_percent: u64,
    pub slow_percent: u64,
    pub refused_percent: u64,
    pub unread_percent: u64,
    pub stale: Duration,
    pub fences: bool,
}

/// How long a call may take before it counts as unknown.
pub const CALL_DEADLINE: Duration = Duration::from_secs(2);

impl Plan {
    pub fn of(seed: u64) -> Plan {
        let mut dice = Dice::of(seed, "plan");
        // Now and then nothing goes wrong at all: then nothing may look as if it had.
        let calm = dice.percent(8);
        let families: BTreeSet<Family> =
            Family::ALL.iter().copied().filter(|_| dice.percent(35)).filter(|_| !calm).collect();
        let on = |family: Family, percent: u64| if families.contains(&family) { percent } else { 0 };
        let backend = BackendPlan {
            unanswered_percent: on(Family::BackendUnanswered, dice.between(3, 15)),
            lost_percent: on(Family::BackendLoses, dice.between(3, 15)),
            slow_percent: on(Family::BackendSlow, dice.between(5, 30)),
            refused_percent: on(Family::BackendRefuses, dice.between(3, 20)),
            unread_percent: on(Family::BackendUnread, dice.between(3, 20)),
            stale: Duration::from_millis(on(Family::BackendStale, dice.between(100, 900))),
            fences: calm || dice.percent(85),
        };
        let founders = if dice.percent(85) { 3 } else { *dice.pick(&[1, 2, 5]) };
        let begin = dice.millis(500, 4_000);
        let latency_low = dice.millis(1, 2);
        Plan {
            seed,
            founders,
            machines: founders + usize::from(families.contains(&Family::Membership)),
            heartbeat: Duration::from_millis(100),
            snapshot_every: *dice.pick(&[20, 60, 150, 1_000]),
            keep_entries: *dice.pick(&[1, 10, 50, 200]),
            wal_segment_bytes: *dice.pick(&[64 << 10, 256 << 10]),
            disk_reserve: 64 << 10,
            latency: (latency_low, latency_low + dice.millis(0, 8)),
            users: usize::try_from(dice.between(1, 3)).unwrap_or(1),
            clusters: usize::try_from(dice.between(2, 5)).unwrap_or(2),
            user_pause: dice.millis(100, 900),
            chaos: (begin, begin + dice.millis(8_000, 14_000)),
            families,
            backend,
            patient: dice.percent(10),
            lying_disks: false,
            calls: BTreeMap::new(),
        }
    }

    /// A run that must fail: disks lie, and everybody loses power at once.
    pub fn canary(seed: u64) -> Plan {
        Plan { families: [Family::PowerCut].into(), lying_disks: true, founders: 3, machines: 3, ..Plan::of(seed) }
    }

    pub fn calm(&self) -> bool {
        self.families.is_empty()
    }

    pub fn has(&self, family: Family) -> bool {
        self.families.contains(&family)
    }

    pub fn script(&self) -> Script {
        let honest = Script::default();
        Script {
            seed: Dice::of(self.seed, "backend").throw(),
            capabilities: Capabilities {
                fences: self.backend.fences,
                visibility_delay: self.backend.stale,
                call_deadline: CALL_DEADLINE,
                observe_every: Duration::from_secs(2),
                ..honest.capabilities
            },
            unanswered_percent: self.backend.unanswered_percent,
            lost_percent: self.backend.lost_percent,
            slow_percent: self.backend.slow_percent,
            slow_for: CALL_DEADLINE - Duration::from_millis(100),
            refused_percent: self.backend.refused_percent,
            unread_percent: self.backend.unread_percent,
            stale_for: self.backend.stale,
            ready_after: Duration::from_millis(200),
            ..honest
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan {
            seed,
            founders,
            machines,
            heartbeat,
            snapshot_every,
            keep_entries,
            wal_segment_bytes,
            disk_reserve,
            latency,
            users,
            clusters,
            user_pause,
            chaos,
            families,
            backend,
            patient,
            lying_disks,
            calls: _,
        } = self;
        writeln!(f, "seed               {seed}")?;
        writeln!(f, "nodes              {founders} that found the group, {} that join", machines - founders)?;
        writeln!(f, "heartbeat          {heartbeat:?}")?;
        writeln!(f, "snapshot every     {snapshot_every} entries, {keep_entries} kept behind it")?;
        if *lying_disks {
            writeln!(f, "disks              lie: syncs do nothing")?;
        }
        writeln!(f, "segments           {wal_segment_bytes} bytes; {disk_reserve} bytes of disk in reserve")?;
        writeln!(f, "latency            {:?} to {:?}", latency.0, latency.1)?;
        writeln!(f, "users              {users}, each call up to {user_pause:?} after the one before")?;
        writeln!(f, "clusters           {clusters} at first")?;
        writeln!(f, "chaos              from {:?} to {:?}", chaos.0, chaos.1)?;
        let names: Vec<&str> = families.iter().map(|family| family.name()).collect();
        writeln!(f, "faults             {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") })?;
        writeln!(
            f,
            "backend            unanswered {}%, lost {}%, slow {}%, refused {}%, unread {}%, stale {:?}, {}",
            backend.unanswered_percent,
            backend.lost_percent,
            backend.slow_percent,
            backend.refused_percent,
            backend.unread_percent,
            backend.stale,
            if backend.fences { "fences" } else { "cannot fence" },
        )?;
        writeln!(
            f,
            "healing            {}",
            if *patient { "waits for brakes, too" } else { "does not wait for brakes" }
        )
    }
}
