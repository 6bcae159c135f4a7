//! What users configure: strategies, what each is about and which clusters it is for.
//!
//! - Here: what a strategy's options mean together, and what is wrong with them if they mean nothing.
//! - [`options`]: which options there are and how they are stored.
//! - [`like`]: patterns of cluster names.
//! - [`schedule`]: options that change with the time of day.
//! - [`tracking`]: what is particular to those that follow signals. [`decimal`]: numbers without floats.
//! - [`stored`]: the strategies there are, and which of them rules a cluster.
//! - [`commands`]: how they are created, changed and dropped. [`unchanged`]: whether all of it is as somebody saw it.
//!
//! Not here: what a strategy decides (`strategies`).

pub(crate) mod commands;
pub(crate) mod decimal;
pub(crate) mod like;
pub(crate) mod options;
pub(crate) mod schedule;
pub(crate) mod stored;
pub(crate) mod tracking;
pub(crate) mod unchanged;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::ParseIdError;
use crate::names::shortened;
use crate::sizes::Sizes;
use crate::table::Key;
use crate::{NameProblem, Span, Time};
use options::{
    CONFIG_VERSION, COUNT_MAX, OptionDefinition, OptionKind, OptionValue, Options, SECONDS_MAX, option_definition,
};
use schedule::{Holding, Schedule};
use tracking::Tracking;

/// The kinds of strategy, in the order in which they run: each sees, and may overrule, what those before it decided.
/// New kinds go at the end here, where the place is the number in the log, and say their place in the chain in
/// [`StrategyKind::PRIORITY_ORDER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StrategyKind {
    /// Exactly one replica of a given size.
    TargetSize,
    /// The smallest size that carries the work.
    ShrinkToFit,
    /// A large replica for as long as no other is hydrated.
    Burst,
    /// No replicas while nobody asks anything.
    IdleSuspend,
    /// As many replicas of a size as signals ask for.
    TargetTracking,
    /// As many workers as a queue needs.
    QueueDepth,
}

impl StrategyKind {
    /// Those that count replicas come after those that choose a size, so that they add to what these want and are not
    /// undone by them, and before `burst`, which helps whatever is wanted until it is ready. `idle_suspend` has the last word.
    pub const PRIORITY_ORDER: [Self; Self::COUNT] =
        [Self::TargetSize, Self::ShrinkToFit, Self::TargetTracking, Self::QueueDepth, Self::Burst, Self::IdleSuspend];
    pub(crate) const COUNT: usize = 6;
    pub(crate) const BY_SLOT: [Self; Self::COUNT] =
        [Self::TargetSize, Self::ShrinkToFit, Self::Burst, Self::IdleSuspend, Self::TargetTracking, Self::QueueDepth];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::TargetSize => "target_size",
            Self::ShrinkToFit => "shrink_to_fit",
            Self::Burst => "burst",
            Self::IdleSuspend => "idle_suspend",
            Self::TargetTracking => "target_tracking",
            Self::QueueDepth => "queue_depth",
        }
    }

    /// Its place in the chain; a later one may overrule an earlier one.
    pub fn priority(self) -> usize {
        match self {
            Self::TargetSize => 0,
            Self::ShrinkToFit => 1,
            Self::TargetTracking => 2,
            Self::QueueDepth => 3,
            Self::Burst => 4,
            Self::IdleSuspend => 5,
        }
    }

    /// Where its row lies in tables with one row per kind.
    pub(crate) fn slot(self) -> usize {
        match self {
            Self::TargetSize => 0,
            Self::ShrinkToFit => 1,
            Self::Burst => 2,
            Self::IdleSuspend => 3,
            Self::TargetTracking => 4,
            Self::QueueDepth => 5,
        }
    }

    fn cooldown_default(self) -> Span {
        match self {
            Self::TargetSize | Self::Burst => Span::from_secs(60),
            Self::ShrinkToFit => Span::from_secs(120),
            Self::IdleSuspend => Span::from_secs(300),
            // They have windows and policies of their own.
            Self::TargetTracking | Self::QueueDepth => Span::from_secs(0),
        }
    }
}

impl fmt::Display for StrategyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StrategyKind {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::PRIORITY_ORDER.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(text)).ok_or_else(|| {
            let known = "target_size, shrink_to_fit, target_tracking, queue_depth, burst or idle_suspend";
            ParseIdError::new("kind of strategy", text, known)
        })
    }
}

/// Which replicas a strategy may touch. It sees all of them either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaScope {
    All,
    /// Only those that Loadline made, which it knows by their name.
    ManagedOnly,
}

/// How names end that Loadline gives.
pub(crate) const MANAGED_SUFFIX: &str = "_auto";

pub(crate) fn is_managed(replica: &str) -> bool {
    replica.ends_with(MANAGED_SUFFIX)
}

/// Who lets an action go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Approval {
    Auto,
    Manual,
}

/// What the options of a strategy mean, every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub enabled: bool,
    pub cooldown: Span,
    pub scope: ReplicaScope,
    pub dry_run: bool,
    pub approval: Approval,
    pub rule: Rule,
    /// What is otherwise at some times.
    pub schedule: Option<Box<Schedule>>,
}

/// What is particular to each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    TargetSize {
        size: Key,
        replica_name: Key,
    },
    ShrinkToFit {
        max_size: Key,
        min_oom_count: u64,
        min_crash_count: u64,
        crash_window: Span,
    },
    Burst {
        burst_size: Key,
    },
    /// What is absent is as the settings say.
    IdleSuspend {
        idle_after: Option<Span>,
        keep_alive: Option<Span>,
        cold_start_timeout: Option<Span>,
    },
    TargetTracking(Box<Tracking>),
    QueueDepth(Box<Tracking>),
}

impl Rule {
    pub fn kind(&self) -> StrategyKind {
        match self {
            Self::TargetSize { .. } => StrategyKind::TargetSize,
            Self::ShrinkToFit { .. } => StrategyKind::ShrinkToFit,
            Self::Burst { .. } => StrategyKind::Burst,
            Self::IdleSuspend { .. } => StrategyKind::IdleSuspend,
            Self::TargetTracking(_) => StrategyKind::TargetTracking,
            Self::QueueDepth(_) => StrategyKind::QueueDepth,
        }
    }

    /// Names a size by the one copy of its name that everybody shares.
    fn share_names(&mut self, sizes: &Sizes) {
        let size = match self {
            Self::TargetSize { size, .. }
            | Self::ShrinkToFit { max_size: size, .. }
            | Self::Burst { burst_size: size } => size,
            Self::TargetTracking(tracking) | Self::QueueDepth(tracking) => &mut tracking.size,
            Self::IdleSuspend { .. } => return,
        };
        if let Some(shared) = sizes.key(size) {
            *size = shared;
        }
    }

    /// The option that names a size, and the size.
    pub fn size(&self) -> Option<(&'static str, &Key)> {
        match self {
            Self::TargetSize { size, .. } => Some(("size", size)),
            Self::ShrinkToFit { max_size, .. } => Some(("max_size", max_size)),
            Self::Burst { burst_size } => Some(("burst_size", burst_size)),
            Self::TargetTracking(tracking) | Self::QueueDepth(tracking) => Some(("size", &tracking.size)),
            Self::IdleSuspend { .. } => None,
        }
    }
}

/// Why options mean nothing. New problems go at the end: the place is the number in stored decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigurationProblem {
    /// The configuration is of a version that is not known here, or says no version one could read.
    Version,
    UnknownOption {
        option: String,
    },
    Missing {
        option: String,
    },
    Invalid {
        option: String,
        value: String,
    },
    /// The size is not on the ladder, or no longer.
    UnknownSize {
        option: String,
        size: String,
    },
    /// A strategy that may only touch `_auto` replicas cannot keep one under another name.
    NameNotManaged {
        name: String,
    },
    /// What is wrong within an option, or between two, in words that say what would be right.
    Unfit {
        option: String,
        problem: String,
    },
}

impl ConfigurationProblem {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Version => "CONFIG_VERSION",
            Self::UnknownOption { .. } => "UNKNOWN_OPTION",
            Self::Missing { .. } => "MISSING_OPTION",
            Self::Invalid { .. } => "INVALID_OPTION",
            Self::UnknownSize { .. } => "UNKNOWN_SIZE",
            Self::NameNotManaged { .. } => "NAME_NOT_MANAGED",
            Self::Unfit { .. } => "UNFIT_OPTION",
        }
    }

    pub fn option(&self) -> &str {
        match self {
            Self::Version => options::CONFIG_VERSION_KEY,
            Self::UnknownOption { option }
            | Self::Missing { option }
            | Self::Invalid { option, .. }
            | Self::UnknownSize { option, .. }
            | Self::Unfit { option, .. } => option,
            Self::NameNotManaged { .. } => "replica_name",
        }
    }
}

impl fmt::Display for ConfigurationProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => write!(f, "config_version is not one this release knows: it knows {CONFIG_VERSION} and 0"),
            Self::UnknownOption { option } => write!(f, "there is no option {option:?}"),
            Self::Missing { option } => write!(f, "option {option} is required"),
            Self::Invalid { option, value } => write!(f, "{value:?} is not a value for option {option}"),
            Self::UnknownSize { option, size } => {
                write!(f, "option {option} names size {size:?}, which does not exist")
            }
            Self::Unfit { option, problem } => write!(f, "option {option}: {problem}"),
            Self::NameNotManaged { name } => {
                write!(f, "with MANAGED_ONLY, replica_name must end in {MANAGED_SUFFIX}, and {name:?} does not")
            }
        }
    }
}

impl Configuration {
    /// What these options mean to a strategy of this kind, every default filled in.
    pub fn read(kind: StrategyKind, options: &Options) -> Result<Self, ConfigurationProblem> {
        let Some(CONFIG_VERSION) = options.version() else { return Err(ConfigurationProblem::Version) };
        for (key, value) in options.iter() {
            if key == options::CONFIG_VERSION_KEY {
                continue;
            }
            let known = option_definition(kind, key)
                .filter(|known| known.key == key)
                .ok_or_else(|| ConfigurationProblem::UnknownOption { option: shortened(key) })?;
            check_value(known, value)?;
        }
        let reader = Reader { options };
        let mut configuration = Self {
            schedule: None,
            enabled: reader.bool("enabled").unwrap_or(true),
            cooldown: reader.span("cooldown_s").unwrap_or(kind.cooldown_default()),
            scope: match reader.text("replica_scope") {
                Some(scope) if scope.eq_ignore_ascii_case("MANAGED_ONLY") => ReplicaScope::ManagedOnly,
                _ => ReplicaScope::All,
            },
            dry_run: reader.bool("dry_run").unwrap_or(false),
            approval: match reader.text("approval") {
                Some(approval) if approval.eq_ignore_ascii_case("manual") => Approval::Manual,
                _ => Approval::Auto,
            },
            rule: match kind {
                StrategyKind::TargetSize => Rule::TargetSize {
                    size: reader.required("size")?,
                    replica_name: reader.text("replica_name").unwrap_or("r1_auto").into(),
                },
                StrategyKind::ShrinkToFit => Rule::ShrinkToFit {
                    max_size: reader.required("max_size")?,
                    min_oom_count: reader.count("min_oom_count").unwrap_or(1),
                    min_crash_count: reader.count("min_crash_count").unwrap_or(1),
                    crash_window: reader.span("crash_window_s").unwrap_or(Span::from_hours(1)),
                },
                StrategyKind::Burst => Rule::Burst { burst_size: reader.required("burst_size")? },
                StrategyKind::IdleSuspend => Rule::IdleSuspend {
                    idle_after: reader.span("idle_after_s"),
                    keep_alive: reader.span("keep_alive_s"),
                    cold_start_timeout: reader.span("cold_start_timeout_s"),
                },
                StrategyKind::TargetTracking => Rule::TargetTracking(Box::new(Tracking::read(&reader)?)),
                StrategyKind::QueueDepth => Rule::QueueDepth(Box::new(Tracking::read_queue(&reader)?)),
            },
        };
        configuration.schedule = match (reader.text(schedule::SCHEDULE), reader.text(schedule::TIME_ZONE)) {
            (Some(rows), zone) => Some(Box::new(schedule::read(kind, options, rows, zone)?)),
            (None, Some(_)) => {
                let problem = "it is of no use without a schedule; write SCHEDULE as well, or leave it out";
                return Err(tracking::unfit(schedule::TIME_ZONE, problem));
            }
            (None, None) => None,
        };
        if let Rule::TargetSize { replica_name, .. } = &configuration.rule
            && configuration.scope == ReplicaScope::ManagedOnly
            && !is_managed(replica_name)
        {
            return Err(ConfigurationProblem::NameNotManaged { name: replica_name.to_string() });
        }
        Ok(configuration)
    }
}

impl Configuration {
    /// The configuration that holds at a moment, and what of the schedule that is; nothing if there is none.
    pub fn at(&self, now: Time) -> (&Self, Option<Holding<'_>>) {
        let Some(schedule) = &self.schedule else { return (self, None) };
        let holding = schedule.at(now);
        (holding.row.map_or(self, |(_, profile)| &profile.configuration), Some(holding))
    }

    /// The options that name sizes, and the sizes: also those that are only at some times.
    pub fn sizes(&self) -> impl Iterator<Item = (&'static str, &Key)> {
        let scheduled = self.schedule.iter().flat_map(|schedule| schedule.configurations());
        self.rule.size().into_iter().chain(scheduled.filter_map(|it| it.rule.size()))
    }
}

fn missing(option: &str) -> ConfigurationProblem {
    ConfigurationProblem::Missing { option: option.to_owned() }
}

fn check_value(known: &OptionDefinition, value: &OptionValue) -> Result<(), ConfigurationProblem> {
    let within = |number: i64, min: u64, max: u64| u64::try_from(number).is_ok_and(|it| (min..=max).contains(&it));
    let fits = match (known.kind, value) {
        (OptionKind::Seconds { min }, OptionValue::Number(number)) => within(*number, min, SECONDS_MAX),
        (OptionKind::Count { min }, OptionValue::Number(number)) => within(*number, min, COUNT_MAX),
        (OptionKind::Bool, OptionValue::Bool(_)) => true,
        (OptionKind::Size | OptionKind::ReplicaName, OptionValue::Text(name)) => name_problem(name).is_none(),
        (OptionKind::OneOf(values), OptionValue::Text(text)) => values.iter().any(|it| it.eq_ignore_ascii_case(text)),
        (OptionKind::Decimal { min_milli, max_milli }, _) => {
            decimal(value).is_some_and(|milli| (min_milli..=max_milli).contains(&milli))
        }
        (OptionKind::Rows(_), OptionValue::Text(_)) => true,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(ConfigurationProblem::Invalid { option: known.key.to_owned(), value: shortened(&value.to_string()) })
}

/// In thousandths.
fn decimal(value: &OptionValue) -> Option<i64> {
    match value {
        OptionValue::Text(text) => decimal::milli_of(text),
        OptionValue::Number(number) => number.checked_mul(1_000),
        OptionValue::Bool(_) => None,
    }
}

fn name_problem(name: &str) -> Option<NameProblem> {
    match crate::names::check_name(crate::Field::Value, name) {
        Err(crate::Rejection::InvalidName { problem, .. }) => Some(problem),
        _ => None,
    }
}

/// Reads options that were checked one by one before.
struct Reader<'a> {
    options: &'a Options,
}

impl<'a> Reader<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        match self.options.get(key)? {
            OptionValue::Text(text) => Some(text),
            _ => None,
        }
    }

    fn required(&self, key: &str) -> Result<Key, ConfigurationProblem> {
        self.text(key).map(Key::from).ok_or_else(|| missing(key))
    }

    fn bool(&self, key: &str) -> Option<bool> {
        match self.options.get(key)? {
            OptionValue::Bool(value) => Some(*value),
            _ => None,
        }
    }

    fn count(&self, key: &str) -> Option<u64> {
        match self.options.get(key)? {
            OptionValue::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    fn milli(&self, key: &str) -> Option<i64> {
        self.options.get(key).and_then(decimal)
    }

    fn span(&self, key: &str) -> Option<Span> {
        self.count(key).map(Span::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: StrategyKind, options: &Options) -> Result<Configuration, ConfigurationProblem> {
        Configuration::read(kind, options)
    }

    #[test]
    fn every_option_has_the_default_of_the_reference() {
        let target = read(StrategyKind::TargetSize, &Options::from([("size", "200cc")])).unwrap();
        let expected = Configuration {
            enabled: true,
            cooldown: Span::from_secs(60),
            scope: ReplicaScope::All,
            dry_run: false,
            approval: Approval::Auto,
            schedule: None,
            rule: Rule::TargetSize { size: "200cc".into(), replica_name: "r1_auto".into() },
        };
        assert_eq!(target, expected);
        let shrink = read(StrategyKind::ShrinkToFit, &Options::from([("max_size", "200cc")])).unwrap();
        let rule = Rule::ShrinkToFit {
            max_size: "200cc".into(),
            min_oom_count: 1,
            min_crash_count: 1,
            crash_window: Span::from_hours(1),
        };
        assert_eq!((shrink.cooldown, shrink.rule), (Span::from_secs(120), rule));
        let burst = read(StrategyKind::Burst, &Options::from([("burst_size", "200cc")])).unwrap();
        assert_eq!(burst.cooldown, Span::from_secs(60));
        let idle = read(StrategyKind::IdleSuspend, &Options::from([("idle_after_s", 1_800)])).unwrap();
        assert_eq!(idle.cooldown, Span::from_secs(300));
        let rule =
            Rule::IdleSuspend { idle_after: Some(Span::from_mins(30)), keep_alive: None, cold_start_timeout: None };
        assert_eq!(idle.rule, rule);
        assert!(read(StrategyKind::IdleSuspend, &Options::default()).is_ok(), "all of it is in the settings, too");
    }

    #[test]
    fn what_is_required_must_be_there() {
        for (kind, option) in [
            (StrategyKind::TargetSize, "size"),
            (StrategyKind::ShrinkToFit, "max_size"),
            (StrategyKind::Burst, "burst_size"),
        ] {
            assert_eq!(read(kind, &Options::default()), Err(missing(option)));
        }
    }

    #[test]
    fn a_value_that_makes_no_sense_is_named() {
        let wrong = |kind, key: &str, value: OptionValue| {
            let options = Options::from([("max_size", "x")]).with(key, value);
            match read(kind, &options) {
                Err(problem) => problem.option().to_owned(),
                Ok(_) => String::new(),
            }
        };
        let shrink = StrategyKind::ShrinkToFit;
        assert_eq!(wrong(shrink, "cooldown_s", (-1).into()), "cooldown_s");
        assert_eq!(wrong(shrink, "cooldown_s", "60".into()), "cooldown_s");
        assert_eq!(wrong(shrink, "min_oom_count", 0.into()), "min_oom_count");
        assert_eq!(wrong(shrink, "crash_window_s", 0.into()), "crash_window_s");
        assert_eq!(wrong(shrink, "max_size", "".into()), "max_size");
        assert_eq!(wrong(shrink, "replica_scope", "SOME".into()), "replica_scope");
        assert_eq!(wrong(shrink, "COOLDOWN", 1.into()), "COOLDOWN", "SQL names are not stored");
        assert_eq!(wrong(shrink, "idle_after_s", 1.into()), "idle_after_s", "another strategy's");
        assert_eq!(wrong(shrink, "cooldown_s", i64::MAX.into()), "cooldown_s");
        assert_eq!(wrong(shrink, "cooldown_s", 0.into()), "", "no cooldown at all is fine");
    }

    #[test]
    fn a_replica_that_must_not_be_touched_later_is_not_made() {
        let options = Options::from([("size", "200cc"), ("replica_name", "main"), ("replica_scope", "MANAGED_ONLY")]);
        let problem = ConfigurationProblem::NameNotManaged { name: "main".to_owned() };
        assert_eq!(read(StrategyKind::TargetSize, &options), Err(problem));
        assert!(read(StrategyKind::TargetSize, &options.with("replica_name", "main_auto")).is_ok());
    }

    #[test]
    fn a_configuration_of_another_version_is_not_guessed_at() {
        let options = Options::from([("idle_after_s", 60), ("config_version", 2)]);
        assert_eq!(read(StrategyKind::IdleSuspend, &options), Err(ConfigurationProblem::Version));
    }
}
