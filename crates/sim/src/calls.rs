//! One call of a user, as a value: chosen by chance ([`crate::workload`]) or written in a script ([`crate::small`]).

use std::fmt;

/// Clusters are numbers: `c0` is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    CreateCluster {
        cluster: usize,
    },
    DropCluster {
        cluster: usize,
        cascade: bool,
    },
    Rename {
        cluster: usize,
        to: usize,
    },
    CreateTargetSize {
        cluster: usize,
        size: &'static str,
    },
    Resize {
        cluster: usize,
        size: &'static str,
    },
    CreateIdleSuspend {
        cluster: usize,
    },
    DropStrategy {
        cluster: usize,
        kind: &'static str,
    },
    KillSwitch {
        enabled: bool,
    },
    /// A linearizable read.
    Read {
        cluster: usize,
    },
    Report {
        cluster: usize,
        seen: Sign,
    },
}

/// What a collector has seen of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The last activity was so long ago; nothing: there was none.
    Activity { idle_for_ms: Option<u64> },
    /// Somebody is looking, and that is all.
    Alive,
}

/// The name of a cluster.
pub fn named(cluster: usize) -> String {
    format!("c{cluster}")
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::CreateCluster { cluster } => write!(f, "create cluster c{cluster}"),
            Call::DropCluster { cluster, cascade: false } => write!(f, "drop cluster c{cluster}"),
            Call::DropCluster { cluster, cascade: true } => write!(f, "drop cluster c{cluster} with all it has"),
            Call::Rename { cluster, to } => write!(f, "rename c{cluster} to c{to}"),
            Call::CreateTargetSize { cluster, size } => write!(f, "create target_size {size} for c{cluster}"),
            Call::Resize { cluster, size } => write!(f, "resize c{cluster} to {size}"),
            Call::CreateIdleSuspend { cluster } => write!(f, "create idle_suspend for c{cluster}"),
            Call::DropStrategy { cluster, kind } => write!(f, "drop {kind} of c{cluster}"),
            Call::KillSwitch { enabled } => write!(f, "kill switch: enabled is {enabled}"),
            Call::Read { cluster } => write!(f, "read c{cluster}"),
            Call::Report { cluster, seen: Sign::Alive } => write!(f, "report that c{cluster} is looked at"),
            Call::Report { cluster, seen: Sign::Activity { idle_for_ms: Some(idle) } } => {
                write!(f, "report that c{cluster} is idle for {idle} ms")
            }
            Call::Report { cluster, seen: Sign::Activity { idle_for_ms: None } } => {
                write!(f, "report that c{cluster} has never been active")
            }
        }
    }
}
