//! The configuration of a `local` backend: `[backends.NAME]` with `kind = "local"`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::backends::settings::{
    ConfigError, OBSERVE_EVERY, check_calls_max, check_file, check_time, optional_time, time,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Every key except the folder has a default.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalConfig {
    /// The ledger and the replicas are here. All nodes of a machine that act for one group name the same folder, on a local disk.
    pub folder: PathBuf,
    /// What is started as `PROGRAM replica ...`; the program of this node if not given.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// How long a replica takes until it is ready.
    #[serde(default = "startup_delay", deserialize_with = "time")]
    pub startup_delay: Duration,
    /// How long it takes from there until all its objects are hydrated.
    #[serde(default = "hydration_time", deserialize_with = "time")]
    pub hydration_time: Duration,
    /// How many objects a replica has to hydrate.
    #[serde(default = "objects")]
    pub objects: u64,
    /// How long a drain waits for requests to finish.
    #[serde(default = "drain_deadline", deserialize_with = "time")]
    pub drain_deadline: Duration,
    /// How long a replica that is dropped may take to finish before it is killed.
    #[serde(default = "terminate_grace", deserialize_with = "time")]
    pub terminate_grace: Duration,
    /// A replica whose process has not come up by then never does.
    #[serde(default = "start_deadline", deserialize_with = "time")]
    pub start_deadline: Duration,
    /// How long a replica that crashed stays down the first time; twice as long each time after that.
    #[serde(default = "restart_after", deserialize_with = "time")]
    pub restart_after: Duration,
    /// Whether a replica that is suspended is checkpointed, and the next one of its name and size goes on from that.
    #[serde(default = "checkpoints")]
    pub checkpoints: bool,
    /// Calls at a time.
    #[serde(default)]
    pub calls_max: Option<usize>,
    #[serde(default = "observe_every", deserialize_with = "time")]
    pub observe_every: Duration,
    /// What is different for replicas of a size.
    #[serde(default)]
    pub sizes: BTreeMap<String, LocalSize>,
}

/// How replicas of one size differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalSize {
    #[serde(deserialize_with = "optional_time")]
    pub startup_delay: Option<Duration>,
    #[serde(deserialize_with = "optional_time")]
    pub hydration_time: Option<Duration>,
    pub objects: Option<u64>,
}

fn startup_delay() -> Duration {
    Duration::from_millis(500)
}

fn hydration_time() -> Duration {
    Duration::from_secs(2)
}

fn objects() -> u64 {
    100
}

fn drain_deadline() -> Duration {
    Duration::from_secs(30)
}

fn terminate_grace() -> Duration {
    Duration::from_secs(5)
}

fn start_deadline() -> Duration {
    Duration::from_secs(10)
}

fn restart_after() -> Duration {
    Duration::from_secs(1)
}

fn checkpoints() -> bool {
    true
}

fn observe_every() -> Duration {
    Duration::from_secs(1)
}

impl LocalConfig {
    /// Defaults for everything else.
    pub fn new(folder: impl Into<PathBuf>) -> LocalConfig {
        LocalConfig {
            folder: folder.into(),
            program: None,
            startup_delay: startup_delay(),
            hydration_time: hydration_time(),
            objects: objects(),
            drain_deadline: drain_deadline(),
            terminate_grace: terminate_grace(),
            start_deadline: start_deadline(),
            restart_after: restart_after(),
            checkpoints: checkpoints(),
            calls_max: None,
            observe_every: observe_every(),
            sizes: BTreeMap::new(),
        }
    }

    /// Says what is wrong, if anything is.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.folder.as_os_str().is_empty() {
            return Err(ConfigError::new("folder", "is empty; name a folder on a local disk"));
        }
        check_file("program", self.program.as_ref())?;
        let (short, hour) = (Duration::from_millis(100), Duration::from_secs(3_600));
        let times = [
            ("startup_delay", self.startup_delay, Duration::ZERO, DAY),
            ("hydration_time", self.hydration_time, Duration::ZERO, DAY),
            ("drain_deadline", self.drain_deadline, short, hour),
            ("terminate_grace", self.terminate_grace, short, hour),
            ("start_deadline", self.start_deadline, short, hour),
            ("restart_after", self.restart_after, short, hour),
            ("observe_every", self.observe_every, OBSERVE_EVERY.0, OBSERVE_EVERY.1),
        ];
        for (key, time, shortest, longest) in times {
            check_time(key, time, shortest, longest)?;
        }
        for (size, own) in &self.sizes {
            let times = [("startup_delay", own.startup_delay), ("hydration_time", own.hydration_time)];
            for (key, time) in times {
                check_time(&format!("sizes.{size}.{key}"), time.unwrap_or_default(), Duration::ZERO, DAY)?;
            }
        }
        check_calls_max(self.calls_max)
    }
}
