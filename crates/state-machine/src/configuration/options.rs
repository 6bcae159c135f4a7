//! The options of a strategy as they are stored and shown: keys and plain values, as in the JSON of a configuration.
//!
//! Here is which options there are, what each may hold, and how a configuration of another version is brought up to
//! this one. What they mean together is [`super::Configuration`].

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::StrategyKind;
use super::decimal::{milli_of, show_milli};
use crate::Span;
use crate::signals::insert_exactly;

/// The version of the option keys below.
pub const CONFIG_VERSION: u32 = 1;

/// The key under which a configuration says its version.
pub(crate) const CONFIG_VERSION_KEY: &str = "config_version";

/// What an option holds. New kinds go at the end: the place is the number in the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OptionValue {
    Text(String),
    Number(i64),
    Bool(bool),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => text.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Bool(value) => value.fmt(f),
        }
    }
}

impl From<&str> for OptionValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for OptionValue {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for OptionValue {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for OptionValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// Options by key, in the order of their keys.
///
/// A list, not a tree: a strategy has a handful of them, and there may be four strategies for each of 100,000 clusters. Behind
/// a pointer, because most of those have the same options, and share them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Options(Arc<Vec<(Cow<'static, str>, OptionValue)>>);

impl Options {
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<OptionValue>) -> Self {
        self.set(key, value);
        self
    }

    pub fn set(&mut self, key: &str, value: impl Into<OptionValue>) {
        let place = self.place(key);
        let all = Arc::make_mut(&mut self.0);
        match place {
            Ok(place) => all[place].1 = value.into(),
            Err(place) => insert_exactly(all, place, (shared(key), value.into())),
        }
    }

    pub fn get(&self, key: &str) -> Option<&OptionValue> {
        self.place(key).ok().map(|place| &self.0[place].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &OptionValue)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn remove(&mut self, key: &str) -> Option<OptionValue> {
        self.place(key).ok().map(|place| Arc::make_mut(&mut self.0).remove(place).1)
    }

    fn place(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_ref().cmp(key))
    }

    /// These options with `change` laid over them, and without those to be reset.
    #[must_use]
    pub(crate) fn changed(&self, change: &Self, reset: &[String]) -> Self {
        let mut options = self.clone();
        for key in reset {
            options.remove(key);
        }
        for (key, value) in change.iter() {
            options.set(key, value.clone());
        }
        options
    }

    /// The version that the options say they have. One that says none is taken to be of this version.
    pub(crate) fn version(&self) -> Option<u32> {
        match self.get(CONFIG_VERSION_KEY) {
            None => Some(CONFIG_VERSION),
            Some(OptionValue::Number(number)) => u32::try_from(*number).ok(),
            Some(_) => None,
        }
    }

    /// Brings options of an older version up to this one. Nothing if they already are, or are of no version known here.
    ///
    /// Version 0 is what the command-line tool before us stored: the same meaning under other keys.
    pub(crate) fn migrated(&self) -> Option<Self> {
        const RENAMED: &[(&str, &str)] =
            &[("target_size", "size"), ("burst_replica_size", "burst_size"), ("max_replica_size", "max_size")];
        if self.version() != Some(0) {
            return None;
        }
        let mut options = self.clone();
        for (old, new) in RENAMED {
            // A key that is there under its new name already was written by somebody who knew better.
            if let Some(value) = options.remove(old)
                && options.get(new).is_none()
            {
                options.set(new, value);
            }
        }
        options.set(CONFIG_VERSION_KEY, i64::from(CONFIG_VERSION));
        Some(options)
    }
}

/// A key that is one of ours need not be kept once for every strategy.
fn shared(key: &str) -> Cow<'static, str> {
    let ours = || StrategyKind::PRIORITY_ORDER.into_iter().flat_map(option_definitions).map(|known| known.key);
    match ours().chain([CONFIG_VERSION_KEY]).find(|known| *known == key) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(key.to_owned()),
    }
}

impl<K: AsRef<str>, V: Into<OptionValue>> FromIterator<(K, V)> for Options {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(options: I) -> Self {
        options.into_iter().fold(Self::default(), |so_far, (key, value)| so_far.with(key.as_ref(), value))
    }
}

impl<K: AsRef<str>, V: Into<OptionValue>, const N: usize> From<[(K, V); N]> for Options {
    fn from(options: [(K, V); N]) -> Self {
        options.into_iter().collect()
    }
}

impl Serialize for Options {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

/// Whatever the order in which they were written, and the last one if a key was written twice.
impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let options = Vec::<(String, OptionValue)>::deserialize(deserializer)?;
        Ok(options.into_iter().collect())
    }
}

/// What an option may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// A length of time in whole seconds.
    Seconds {
        min: u64,
    },
    Count {
        min: u64,
    },
    Bool,
    /// The name of a size.
    Size,
    /// What a replica may be called.
    ReplicaName,
    OneOf(&'static [&'static str]),
    /// A number with up to three decimals, stored as its shortest text. The bounds are in thousandths.
    Decimal {
        min_milli: i64,
        max_milli: i64,
    },
    /// Rows in a small language of their own; this is what they look like.
    Rows(&'static str),
}

impl OptionKind {
    pub fn expected(self) -> String {
        match self {
            Self::Seconds { min } => format!("whole seconds, at least {min} and at most {SECONDS_MAX}"),
            Self::Count { min } => format!("a whole number, at least {min} and at most {COUNT_MAX}"),
            Self::Bool => "true or false".to_owned(),
            Self::Size => "the name of a size".to_owned(),
            Self::ReplicaName => "1 to 63 letters, digits, '_', '-' or '.'".to_owned(),
            Self::OneOf(values) => values.join(" or "),
            Self::Decimal { min_milli, max_milli } => format!(
                "a number from {} to {} with at most three decimals",
                show_milli(min_milli),
                show_milli(max_milli)
            ),
            Self::Rows(example) => format!("rows such as {example}"),
        }
    }
}

/// Ten years; a deadline further away is a slip of the finger.
pub(crate) const SECONDS_MAX: u64 = 10 * 365 * 24 * 60 * 60;
pub(crate) const COUNT_MAX: u64 = 1_000_000;

/// One option that exists.
#[derive(Clone, Copy, Debug)]
pub struct OptionDefinition {
    /// As stored: `cooldown_s`.
    pub key: &'static str,
    /// As in SQL: `COOLDOWN`.
    pub sql_name: &'static str,
    pub kind: OptionKind,
    pub required: bool,
    pub description: &'static str,
}

const fn definition(
    key: &'static str,
    sql_name: &'static str,
    kind: OptionKind,
    required: bool,
    description: &'static str,
) -> OptionDefinition {
    OptionDefinition { key, sql_name, kind, required, description }
}

const COMMON: &[OptionDefinition] = &[
    definition("cooldown_s", "COOLDOWN", OptionKind::Seconds { min: 0 }, false, "Time between two changes."),
    definition("enabled", "ENABLED", OptionKind::Bool, false, "Whether the strategy is active."),
    definition(
        "replica_scope",
        "REPLICA_SCOPE",
        OptionKind::OneOf(&["ALL", "MANAGED_ONLY"]),
        false,
        "Which replicas the strategy may touch: all, or only those whose name ends in _auto.",
    ),
    definition("dry_run", "DRY_RUN", OptionKind::Bool, false, "Decide and record, but never carry out."),
    definition(
        "approval",
        "APPROVAL",
        OptionKind::OneOf(&["auto", "manual"]),
        false,
        "Whether a person must approve each action.",
    ),
    definition(
        "schedule",
        "SCHEDULE",
        OptionKind::Rows("'weekdays 08:00-18:00 size=200cc; weekends suspended'"),
        false,
        "Options that are others at some times, or that the cluster is suspended then.",
    ),
    definition(
        "time_zone",
        "TIME_ZONE",
        OptionKind::Rows("'Europe/Berlin' (one zone; UTC without it)"),
        false,
        "Whose wall clock the schedule goes by.",
    ),
];

const TARGET_SIZE: &[OptionDefinition] = &[
    definition("size", "SIZE", OptionKind::Size, true, "The size of which there is to be one replica."),
    definition("replica_name", "REPLICA_NAME", OptionKind::ReplicaName, false, "What that replica is called."),
];

const SHRINK_TO_FIT: &[OptionDefinition] = &[
    definition("max_size", "MAX_SIZE", OptionKind::Size, true, "The largest size to try."),
    definition(
        "min_oom_count",
        "MIN_OOM_COUNT",
        OptionKind::Count { min: 1 },
        false,
        "Out-of-memory crashes in the window from which on a replica counts as looping.",
    ),
    definition(
        "min_crash_count",
        "MIN_CRASH_COUNT",
        OptionKind::Count { min: 1 },
        false,
        "Crashes in the window from which on a replica counts as looping.",
    ),
    definition(
        "crash_window_s",
        "CRASH_WINDOW",
        OptionKind::Seconds { min: 1 },
        false,
        "How long a crash counts, and how long a size that failed is not tried again.",
    ),
];

const BURST: &[OptionDefinition] =
    &[definition("burst_size", "BURST_SIZE", OptionKind::Size, true, "The size of the burst replica.")];

const IDLE_SUSPEND: &[OptionDefinition] = &[
    definition(
        "idle_after_s",
        "IDLE_AFTER",
        OptionKind::Seconds { min: 1 },
        false,
        "Time without activity after which the cluster is suspended; else scale_to_zero_idle_threshold.",
    ),
    definition(
        "keep_alive_s",
        "KEEP_ALIVE",
        OptionKind::Seconds { min: 0 },
        false,
        "How long a woken cluster is not suspended again; else scale_to_zero_keep_alive.",
    ),
    definition(
        "cold_start_timeout_s",
        "COLD_START_TIMEOUT",
        OptionKind::Seconds { min: 1 },
        false,
        "How long a woken cluster may take to become ready; else scale_to_zero_cold_start_timeout.",
    ),
];

const SIZE_TO_HAVE: OptionDefinition =
    definition("size", "SIZE", OptionKind::Size, true, "The size of the replicas that are counted and made.");
const NUMBER: OptionKind = OptionKind::Decimal { min_milli: 1, max_milli: 1_000_000_000_000 };
const RATE: OptionKind = OptionKind::Decimal { min_milli: 1_001, max_milli: 1_000_000 };
const SELECT: OptionKind = OptionKind::OneOf(&["Max", "Min", "Disabled"]);
const POLICIES: OptionKind = OptionKind::Rows("'4 per 15s, 100% per 15s'");

/// What `target_tracking` and `queue_depth` share: bounds, and how fast the number may change.
const TRACKING: &[OptionDefinition] = &[
    definition("min_replicas", "MIN_REPLICAS", OptionKind::Count { min: 0 }, false, "The fewest replicas; 1."),
    definition(
        "require",
        "REQUIRE",
        OptionKind::OneOf(&["ANY", "ALL"]),
        false,
        "Of several signals, the largest wins (ANY), or all must agree and the smallest wins (ALL).",
    ),
    definition(
        "tolerance",
        "TOLERANCE",
        OptionKind::Decimal { min_milli: 0, max_milli: 1_000 },
        false,
        "How far a signal may be from its target, as a part of it, before anything changes.",
    ),
    definition(
        "stabilization_up_s",
        "STABILIZATION_UP",
        OptionKind::Seconds { min: 0 },
        false,
        "For how long the lowest recommendation counts before replicas are added.",
    ),
    definition(
        "stabilization_down_s",
        "STABILIZATION_DOWN",
        OptionKind::Seconds { min: 0 },
        false,
        "For how long the highest recommendation counts before replicas go.",
    ),
    definition("scale_up_policies", "SCALE_UP_POLICIES", POLICIES, false, "How many may be added in which time."),
    definition("scale_up_select", "SCALE_UP_SELECT", SELECT, false, "Which of the policies counts."),
    definition("scale_down_policies", "SCALE_DOWN_POLICIES", POLICIES, false, "How many may go in which time."),
    definition("scale_down_select", "SCALE_DOWN_SELECT", SELECT, false, "Which of the policies counts."),
];

const TARGET_TRACKING: &[OptionDefinition] = &[
    SIZE_TO_HAVE,
    definition(
        "signals",
        "SIGNALS",
        OptionKind::Rows("'requests average 100; latency value 0.25 activation 0.05'"),
        true,
        "The signals and what each should be, on average per replica or as it is.",
    ),
    definition("max_replicas", "MAX_REPLICAS", OptionKind::Count { min: 1 }, true, "The most replicas."),
    definition(
        "algorithm",
        "ALGORITHM",
        OptionKind::OneOf(&["hpa", "knative", "nomad"]),
        false,
        "Whose arithmetic makes a number of replicas of a signal.",
    ),
    definition("panic_threshold", "PANIC_THRESHOLD", NUMBER, false, "Of knative: from how many times as many on."),
    definition(
        "stable_window_s",
        "STABLE_WINDOW",
        OptionKind::Seconds { min: 1 },
        false,
        "Of knative: how long a panic lasts after the last reason for it.",
    ),
    definition("max_scale_up_rate", "MAX_SCALE_UP_RATE", RATE, false, "Of knative: at most so many times as many."),
    definition("max_scale_down_rate", "MAX_SCALE_DOWN_RATE", RATE, false, "Of knative: at least this part of them."),
    definition("max_scale_up", "MAX_SCALE_UP", OptionKind::Count { min: 1 }, false, "Of nomad: the most in a change."),
    definition(
        "max_scale_down",
        "MAX_SCALE_DOWN",
        OptionKind::Count { min: 1 },
        false,
        "Of nomad: the most that go in a change.",
    ),
];

const SIGNAL_NAME: OptionKind = OptionKind::Rows("'queue_depth' or 'stage_queue_depth + exec_queue_depth'");

const QUEUE_DEPTH: &[OptionDefinition] = &[
    SIZE_TO_HAVE,
    definition("max_replicas", "MAX_REPLICAS", OptionKind::Count { min: 1 }, false, "The most replicas; 50."),
    definition("depth_signal", "DEPTH_SIGNAL", SIGNAL_NAME, false, "Which signal says how many jobs wait."),
    definition("depth_target", "DEPTH_TARGET", NUMBER, false, "How many waiting jobs one replica takes; 2."),
    definition("wait_signal", "WAIT_SIGNAL", SIGNAL_NAME, false, "Which signal says how long the oldest has waited."),
    definition("wait_target", "WAIT_TARGET", NUMBER, false, "How many seconds the oldest job may wait; 30."),
    definition("saturation_signal", "SATURATION_SIGNAL", SIGNAL_NAME, false, "Which signal says how busy workers are."),
    definition("saturation_target", "SATURATION_TARGET", NUMBER, false, "How busy a worker may be, from 0 to 1; 0.8."),
    definition(
        "activation",
        "ACTIVATION",
        OptionKind::Decimal { min_milli: 0, max_milli: 1_000_000_000_000 },
        false,
        "From zero replicas, more jobs than this must wait for the first one; 0.",
    ),
];

/// The options that a strategy of this kind takes, its own first.
pub fn option_definitions(kind: StrategyKind) -> impl Iterator<Item = &'static OptionDefinition> {
    let nothing: &[OptionDefinition] = &[];
    let shared = match kind {
        StrategyKind::TargetTracking | StrategyKind::QueueDepth => TRACKING,
        _ => nothing,
    };
    let own = match kind {
        StrategyKind::TargetTracking => TARGET_TRACKING,
        StrategyKind::QueueDepth => QUEUE_DEPTH,
        StrategyKind::TargetSize => TARGET_SIZE,
        StrategyKind::ShrinkToFit => SHRINK_TO_FIT,
        StrategyKind::Burst => BURST,
        StrategyKind::IdleSuspend => IDLE_SUSPEND,
    };
    own.iter().chain(shared).chain(COMMON)
}

/// An option by its key or by its SQL name, in any case.
pub fn option_definition(kind: StrategyKind, name: &str) -> Option<&'static OptionDefinition> {
    option_definitions(kind).find(|known| known.key == name || known.sql_name.eq_ignore_ascii_case(name))
}

/// An option as somebody wrote it: the key and the value that are stored.
///
/// A text that cannot be read, and an option that does not exist, stay as they are, so that whoever decides refuses them with
/// what would be right.
pub fn read_option(kind: StrategyKind, name: &str, text: &str) -> (String, OptionValue) {
    let known = option_definition(kind, name);
    let read = match known {
        Some(known) => known.parse(text),
        None if name == CONFIG_VERSION_KEY => text.parse().ok().map(OptionValue::Number),
        None => None,
    };
    let key = known.map_or(name, |known| known.key).to_owned();
    (key, read.unwrap_or_else(|| OptionValue::Text(text.to_owned())))
}

impl OptionDefinition {
    /// The value that a text stands for, as in `COOLDOWN = '5m'`; nothing if the option cannot hold it.
    ///
    /// Lengths of time become whole seconds; a bare number is seconds already.
    pub fn parse(&self, text: &str) -> Option<OptionValue> {
        let text = text.trim();
        match self.kind {
            OptionKind::Seconds { .. } => {
                let secs = match text.parse::<i64>() {
                    Ok(secs) => secs,
                    Err(_) => {
                        let millis = text.parse::<Span>().ok()?.as_millis();
                        i64::try_from(millis / 1_000).ok().filter(|_| millis.is_multiple_of(1_000))?
                    }
                };
                Some(OptionValue::Number(secs))
            }
            OptionKind::Count { .. } => text.parse().ok().map(OptionValue::Number),
            OptionKind::Bool => match text.to_ascii_lowercase().as_str() {
                "true" | "on" | "yes" | "1" => Some(OptionValue::Bool(true)),
                "false" | "off" | "no" | "0" => Some(OptionValue::Bool(false)),
                _ => None,
            },
            OptionKind::Decimal { .. } => milli_of(text).map(|milli| OptionValue::Text(show_milli(milli))),
            OptionKind::Size | OptionKind::ReplicaName | OptionKind::OneOf(_) | OptionKind::Rows(_) => {
                Some(OptionValue::Text(text.to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_the_value_that_is_stored() {
        let parse = |name, text| option_definition(StrategyKind::IdleSuspend, name).and_then(|it| it.parse(text));
        assert_eq!(parse("IDLE_AFTER", "30s"), Some(OptionValue::Number(30)));
        assert_eq!(parse("idle_after", "5m"), Some(OptionValue::Number(300)));
        assert_eq!(parse("idle_after_s", "1h"), Some(OptionValue::Number(3_600)));
        assert_eq!(parse("IDLE_AFTER", "90"), Some(OptionValue::Number(90)));
        assert_eq!(parse("IDLE_AFTER", "1500ms"), None, "half a second cannot be stored");
        assert_eq!(parse("ENABLED", "off"), Some(OptionValue::Bool(false)));
        assert_eq!(parse("SIZE", "200cc"), None, "another strategy's option");
    }

    #[test]
    fn the_keys_of_the_tool_before_us_become_ours() {
        let old = Options::from([("burst_replica_size", "200cc")]).with("cooldown_s", 60).with("config_version", 0);
        let new = Options::from([("burst_size", "200cc")]).with("cooldown_s", 60).with("config_version", 1);
        assert_eq!(old.migrated(), Some(new.clone()));
        assert_eq!(new.migrated(), None, "nothing to do");
        assert_eq!(new.with("config_version", 2).migrated(), None, "nobody knows how");
    }
}
