//! Settings: named values that change how the whole system behaves, replicated like everything else.
//!
//! The table of definitions is here. A definition names the rules version since which it exists: a node of an
//! older release must refuse a setting exactly as long as a newer one does.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::decide::Moment;
use crate::names::{check_name, shortened};
use crate::resource::check_etag;
use crate::scaling::knobs::Knobs;
use crate::table::{Key, Table};
use crate::{Event, Field, Rejection, ResourceName, Revision, RulesVersion, Span, State, zones};

/// What a setting holds. New kinds go at the end: the place is the number in the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SettingValue {
    Bool(bool),
    Count(u64),
    Span(Span),
    /// A name, or nothing.
    Text(Key),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Count(value) => value.fmt(f),
            Self::Span(value) => value.fmt(f),
            Self::Text(value) => f.write_str(value),
        }
    }
}

/// A setting as a user sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingView {
    pub name: String,
    pub value: String,
    pub default_value: String,
    /// True: nobody has set it, `value` is the default.
    pub is_default: bool,
    pub description: String,
    /// The etag; nothing if nobody has ever set it.
    pub updated: Option<Revision>,
}

/// One setting that exists, what it may hold and what it holds if nobody says otherwise.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    kind: Kind,
    since: RulesVersion,
}

#[derive(Debug)]
enum Kind {
    Bool {
        default: bool,
    },
    Count {
        default: u64,
        min: u64,
        max: u64,
    },
    Span {
        default: Span,
        min: Span,
        max: Span,
    },
    /// A name as sizes and clusters have one, or nothing, which is the default.
    Name {
        of: &'static str,
    },
    /// The name of a time zone; nothing is UTC, which is the default.
    Zone,
}

pub(crate) const JOURNAL_RETENTION: Definition = Definition {
    name: "journal_retention",
    description: "How long each node keeps its journal, the history that audits read; 0s: for ever.",
    kind: Kind::Span { default: Span::from_millis(0), min: Span::from_millis(0), max: Span::from_days(36_500) },
    since: RulesVersion(1),
};

pub(crate) const JOURNAL_BYTES_MAX: Definition = Definition {
    name: "journal_bytes_max",
    description: "How many bytes of journal each node keeps; the oldest go first. 0: no limit.",
    kind: Kind::Count { default: 0, min: 0, max: 1 << 60 },
    since: RulesVersion(1),
};

pub(crate) const REQUEST_WINDOW: Definition = Definition {
    name: "request_window",
    description: "How long a request id is remembered, so that a retry is not taken for a second request.",
    kind: Kind::Span { default: Span::from_mins(10), min: Span::from_mins(1), max: Span::from_days(1) },
    since: RulesVersion(1),
};

pub(crate) const REQUEST_WINDOW_COUNT: Definition = Definition {
    name: "request_window_count",
    description: "How many request ids are remembered at most; the oldest go first.",
    // A remembered answer is some 200 bytes of memory and snapshot on every node.
    kind: Kind::Count { default: 200_000, min: 100, max: 2_000_000 },
    since: RulesVersion(1),
};

pub(crate) const ENABLE_AUTO_SCALING: Definition = Definition {
    name: "enable_auto_scaling",
    description: "The feature as a whole: while off, strategies are refused and nothing is evaluated.",
    kind: Kind::Bool { default: false },
    since: RulesVersion(1),
};

pub(crate) const AUTO_SCALING_ENABLED: Definition = Definition {
    name: "auto_scaling_enabled",
    description: "The kill switch: while off, decisions are made and recorded but not carried out.",
    kind: Kind::Bool { default: true },
    since: RulesVersion(1),
};

pub(crate) const AUTO_SCALING_ACTION_RETENTION: Definition = Definition {
    name: "auto_scaling_action_retention",
    description: "How long settled actions and past decisions are kept.",
    kind: Kind::Span { default: Span::from_days(7), min: Span::from_hours(1), max: Span::from_days(3650) },
    since: RulesVersion(1),
};

pub(crate) const AUTO_SCALING_ACTION_ROWS_MAX: Definition = Definition {
    name: "auto_scaling_action_rows_max",
    description: "How many settled actions of one cluster are kept at most; the oldest go first.",
    kind: Kind::Count { default: 10_000, min: 100, max: 1_000_000 },
    since: RulesVersion(1),
};

pub(crate) const AUTO_SCALING_APPROVAL_EXPIRY: Definition = Definition {
    name: "auto_scaling_approval_expiry",
    description: "How long an action waits for an approval before it is proposed anew.",
    kind: Kind::Span { default: Span::from_hours(1), min: Span::from_secs(10), max: Span::from_days(30) },
    since: RulesVersion(1),
};

pub(crate) const AUTO_SCALING_ATTEMPTS_MAX: Definition = Definition {
    name: "auto_scaling_attempts_max",
    description: "How often an action is tried, the first time included, before it is given up.",
    kind: Kind::Count { default: 3, min: 1, max: 100 },
    since: RulesVersion(1),
};

pub(crate) const AUTO_SCALING_CLUSTER_COOLDOWN: Definition = Definition {
    name: "auto_scaling_cluster_cooldown",
    description: "Time between two operations on one cluster, whichever strategies want them.",
    kind: Kind::Span { default: Span::from_secs(30), min: Span::from_millis(0), max: Span::from_days(1) },
    since: RulesVersion(1),
};

pub(crate) const AUTO_SCALING_JOIN_TIMEOUT: Definition = Definition {
    name: "auto_scaling_join_timeout",
    description: "How long a new replica may take to become ready before its operation has failed.",
    kind: Kind::Span { default: Span::from_mins(10), min: Span::from_secs(1), max: Span::from_days(1) },
    since: RulesVersion(1),
};

pub(crate) const AUTO_SCALING_RATE_LIMIT: Definition = Definition {
    name: "auto_scaling_rate_limit",
    description: "How many replicas of one cluster may be created or dropped within auto_scaling_rate_window.",
    kind: Kind::Count { default: 10, min: 1, max: 1_000 },
    since: RulesVersion(1),
};

pub(crate) const AUTO_SCALING_RATE_WINDOW: Definition = Definition {
    name: "auto_scaling_rate_window",
    description: "The time over which auto_scaling_rate_limit counts.",
    kind: Kind::Span { default: Span::from_mins(5), min: Span::from_secs(1), max: Span::from_days(1) },
    since: RulesVersion(1),
};

pub(crate) const AUTO_SCALING_STUCK_AFTER: Definition = Definition {
    name: "auto_scaling_stuck_after",
    description: "How long an operation may make no progress before it has failed.",
    kind: Kind::Span { default: Span::from_mins(15), min: Span::from_secs(1), max: Span::from_days(1) },
    since: RulesVersion(1),
};

pub(crate) const DEFAULT_BACKEND: Definition = Definition {
    name: "default_backend",
    description: "Where the replicas of a cluster live that names no backend of its own; empty: nowhere.",
    kind: Kind::Name { of: "a backend" },
    since: RulesVersion(1),
};

pub(crate) const SCALE_TO_ZERO_IDLE_THRESHOLD: Definition = Definition {
    name: "scale_to_zero_idle_threshold",
    description: "Time without activity after which idle_suspend suspends a cluster, where IDLE_AFTER says nothing else.",
    kind: Kind::Span { default: Span::from_mins(30), min: Span::from_secs(1), max: Span::from_days(3650) },
    since: RulesVersion(1),
};

pub(crate) const SCALE_TO_ZERO_KEEP_ALIVE: Definition = Definition {
    name: "scale_to_zero_keep_alive",
    description: "How long a woken cluster is kept awake, and a quiet stretch must last to count as idle.",
    kind: Kind::Span { default: Span::from_mins(5), min: Span::from_millis(0), max: Span::from_days(30) },
    since: RulesVersion(1),
};

pub(crate) const SCALE_TO_ZERO_COLD_START_TIMEOUT: Definition = Definition {
    name: "scale_to_zero_cold_start_timeout",
    description: "How long a woken cluster may take to become ready before whoever waits is told so.",
    kind: Kind::Span { default: Span::from_mins(2), min: Span::from_secs(1), max: Span::from_days(1) },
    since: RulesVersion(1),
};

pub(crate) const SCALE_TO_ZERO_COST_TRACKING: Definition = Definition {
    name: "scale_to_zero_cost_tracking",
    description: "Whether idle time, time at zero and what that saved are counted, per cluster and day.",
    kind: Kind::Bool { default: true },
    since: RulesVersion(1),
};

pub(crate) const SCALE_TO_ZERO_SAVINGS_DAYS: Definition = Definition {
    name: "scale_to_zero_savings_days",
    description: "How many days of savings are kept for each cluster.",
    // A row is some 30 bytes of memory and snapshot.
    kind: Kind::Count { default: 92, min: 1, max: 1_000 },
    since: RulesVersion(1),
};

pub(crate) const SCALE_TO_ZERO_TIME_ZONE: Definition = Definition {
    name: "scale_to_zero_time_zone",
    description: "Where midnight is for the days of savings, as in Europe/Berlin; empty: UTC.",
    kind: Kind::Zone,
    since: RulesVersion(1),
};

pub(crate) const SIGNAL_STALE_AFTER: Definition = Definition {
    name: "signal_stale_after",
    description: "How long a signal is relied on after its collector was heard last.",
    kind: Kind::Span { default: Span::from_mins(2), min: Span::from_secs(1), max: Span::from_days(1) },
    since: RulesVersion(1),
};

/// In the order in which they are listed.
const DEFINITIONS: &[Definition] = &[
    AUTO_SCALING_ACTION_RETENTION,
    AUTO_SCALING_ACTION_ROWS_MAX,
    AUTO_SCALING_APPROVAL_EXPIRY,
    AUTO_SCALING_ATTEMPTS_MAX,
    AUTO_SCALING_CLUSTER_COOLDOWN,
    AUTO_SCALING_ENABLED,
    AUTO_SCALING_JOIN_TIMEOUT,
    AUTO_SCALING_RATE_LIMIT,
    AUTO_SCALING_RATE_WINDOW,
    AUTO_SCALING_STUCK_AFTER,
    DEFAULT_BACKEND,
    ENABLE_AUTO_SCALING,
    JOURNAL_BYTES_MAX,
    JOURNAL_RETENTION,
    REQUEST_WINDOW,
    REQUEST_WINDOW_COUNT,
    SCALE_TO_ZERO_COLD_START_TIMEOUT,
    SCALE_TO_ZERO_COST_TRACKING,
    SCALE_TO_ZERO_IDLE_THRESHOLD,
    SCALE_TO_ZERO_KEEP_ALIVE,
    SCALE_TO_ZERO_SAVINGS_DAYS,
    SCALE_TO_ZERO_TIME_ZONE,
    SIGNAL_STALE_AFTER,
];

impl Definition {
    fn default(&self) -> SettingValue {
        match self.kind {
            Kind::Bool { default } => SettingValue::Bool(default),
            Kind::Count { default, .. } => SettingValue::Count(default),
            Kind::Span { default, .. } => SettingValue::Span(default),
            Kind::Name { .. } | Kind::Zone => SettingValue::Text("".into()),
        }
    }

    fn allows(&self, value: &SettingValue) -> bool {
        match (&self.kind, value) {
            (Kind::Bool { .. }, SettingValue::Bool(_)) => true,
            (Kind::Count { min, max, .. }, SettingValue::Count(value)) => (*min..=*max).contains(value),
            (Kind::Span { min, max, .. }, SettingValue::Span(value)) => (*min..=*max).contains(value),
            (Kind::Name { .. }, SettingValue::Text(name)) => name.is_empty() || check_name(Field::Value, name).is_ok(),
            (Kind::Zone, SettingValue::Text(name)) => name.is_empty() || zones::zone(name).is_some(),
            _ => false,
        }
    }

    fn parse(&self, text: &str) -> Option<SettingValue> {
        let text = text.trim();
        let value = match self.kind {
            Kind::Bool { .. } => SettingValue::Bool(match text.to_ascii_lowercase().as_str() {
                "true" | "on" | "yes" | "1" => true,
                "false" | "off" | "no" | "0" => false,
                _ => return None,
            }),
            Kind::Count { .. } => SettingValue::Count(text.parse().ok()?),
            Kind::Span { .. } => SettingValue::Span(text.parse().ok()?),
            Kind::Name { .. } | Kind::Zone => SettingValue::Text(text.into()),
        };
        self.allows(&value).then_some(value)
    }

    fn expected(&self) -> String {
        match self.kind {
            Kind::Bool { .. } => "true or false".to_owned(),
            Kind::Count { min, max, .. } => format!("a whole number between {min} and {max}"),
            Kind::Span { min, max, .. } => {
                format!("a duration between {min} and {max}, as in 30s, 10 minutes, 1h30m or 7 days")
            }
            Kind::Name { of } => {
                format!("the name of {of} (1 to 63 letters, digits, '_', '-' or '.'), or nothing for none")
            }
            Kind::Zone => "the name of a time zone, as in UTC or Europe/Berlin".to_owned(),
        }
    }
}

fn definition(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name == name)
}

/// How a setting with this value looks; nothing if there is no such setting.
pub(crate) fn view(name: &str, value: Option<&SettingValue>, updated: Option<Revision>) -> Option<SettingView> {
    let definition = definition(name)?;
    Some(SettingView {
        name: definition.name.to_owned(),
        value: value.unwrap_or(&definition.default()).to_string(),
        default_value: definition.default().to_string(),
        is_default: value.is_none(),
        description: definition.description.to_owned(),
        updated,
    })
}

/// What somebody has set. A row stays when its setting is reset: the etag must not go back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettingRow {
    pub(crate) value: Option<SettingValue>,
    pub(crate) updated: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    rows: Table<Key, SettingRow>,
    /// Those that every evaluation needs, so that none of them is looked up a hundred thousand times a second.
    knobs: Knobs,
}

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Self { rows: Table::new(), knobs: Knobs::default() };
        settings.knobs = Knobs::read(&settings);
        settings
    }
}

impl Settings {
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, &SettingRow)> {
        self.rows.iter().map(|(name, row)| (name.as_ref(), row))
    }

    pub(crate) fn last_name(&self) -> Option<&str> {
        self.rows.get_max().map(|(name, _)| name.as_ref())
    }

    pub(crate) fn row(&self, name: &str) -> Option<&SettingRow> {
        self.rows.get(name)
    }

    pub(crate) fn put(&mut self, name: &str, row: SettingRow) {
        self.rows.insert(name.into(), row);
        self.knobs = Knobs::read(self);
    }

    pub(crate) fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    pub(crate) fn view(&self, rules: RulesVersion, name: &str) -> Option<SettingView> {
        definition(name).filter(|definition| definition.since <= rules)?;
        let row = self.rows.get(name);
        view(name, row.and_then(|row| row.value.as_ref()), row.map(|row| row.updated))
    }

    pub(crate) fn views(&self, rules: RulesVersion) -> Vec<SettingView> {
        DEFINITIONS.iter().filter_map(|definition| self.view(rules, definition.name)).collect()
    }

    fn value(&self, definition: &Definition) -> SettingValue {
        self.rows.get(definition.name).and_then(|row| row.value.clone()).unwrap_or_else(|| definition.default())
    }

    /// `definition` must be one of a length of time.
    pub(crate) fn span(&self, definition: &Definition) -> Span {
        match self.value(definition) {
            SettingValue::Span(span) => span,
            other => unreachable!("{} holds {other:?}, which neither decide nor decode lets in", definition.name),
        }
    }

    /// `definition` must be one of yes or no.
    pub(crate) fn flag(&self, definition: &Definition) -> bool {
        match self.value(definition) {
            SettingValue::Bool(value) => value,
            other => unreachable!("{} holds {other:?}, which neither decide nor decode lets in", definition.name),
        }
    }

    /// `definition` must be one of a name; nothing if it is empty.
    pub(crate) fn name(&self, definition: &Definition) -> Option<&str> {
        match self.rows.get(definition.name)?.value.as_ref()? {
            SettingValue::Text(name) => Some(name.as_ref()).filter(|name| !name.is_empty()),
            other => unreachable!("{} holds {other:?}, which neither decide nor decode lets in", definition.name),
        }
    }

    /// `definition` must be one of a count.
    pub(crate) fn count(&self, definition: &Definition) -> u64 {
        match self.value(definition) {
            SettingValue::Count(count) => count,
            other => unreachable!("{} holds {other:?}, which neither decide nor decode lets in", definition.name),
        }
    }
}

/// How much of the journal a node keeps, as the group has set it. Nothing that `apply` derives depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalLimits {
    /// None: for ever.
    pub age_max: Option<Span>,
    /// None: as many as there are.
    pub bytes_max: Option<u64>,
}

impl JournalLimits {
    /// Whether everything is kept.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl State {
    pub fn journal_limits(&self) -> JournalLimits {
        let (age, bytes) = (self.settings.span(&JOURNAL_RETENTION), self.settings.count(&JOURNAL_BYTES_MAX));
        JournalLimits { age_max: (age > Span::default()).then_some(age), bytes_max: (bytes > 0).then_some(bytes) }
    }
}

/// Whether a setting of this name can hold this value under these rules: what arrives in a backup was not decided here.
pub(crate) fn is_possible(rules: RulesVersion, name: &str, value: Option<&SettingValue>) -> bool {
    definition(name)
        .filter(|definition| definition.since <= rules)
        .is_some_and(|definition| value.is_none_or(|value| definition.allows(value)))
}

pub(crate) fn set(
    settings: &Settings,
    rules: RulesVersion,
    at: Moment,
    name: &str,
    value: &str,
    etag: Option<Revision>,
) -> Result<Vec<Event>, Rejection> {
    let definition = existing(rules, name)?;
    let row = settings.row(name);
    check_etag(|| ResourceName::setting(name), etag, row.map(|row| row.updated))?;
    let Some(parsed) = definition.parse(value) else {
        return Err(Rejection::InvalidSetting {
            name: name.to_owned(),
            value: shortened(value),
            expected: definition.expected(),
        });
    };
    if row.and_then(|row| row.value.as_ref()) == Some(&parsed) {
        return Ok(vec![]);
    }
    Ok(vec![Event::SettingSet { name: name.to_owned(), value: parsed, updated: at.revision() }])
}

/// Sets what nobody has ever set or reset.
pub(crate) fn suggest(
    settings: &Settings,
    rules: RulesVersion,
    at: Moment,
    name: &str,
    value: &str,
) -> Result<Vec<Event>, Rejection> {
    let events = set(settings, rules, at, name, value, None)?;
    Ok(if settings.row(name).is_none() { events } else { vec![] })
}

pub(crate) fn reset(
    settings: &Settings,
    rules: RulesVersion,
    at: Moment,
    name: &str,
    etag: Option<Revision>,
) -> Result<Vec<Event>, Rejection> {
    existing(rules, name)?;
    let row = settings.row(name);
    check_etag(|| ResourceName::setting(name), etag, row.map(|row| row.updated))?;
    if row.is_none_or(|row| row.value.is_none()) {
        return Ok(vec![]);
    }
    Ok(vec![Event::SettingReset { name: name.to_owned(), updated: at.revision() }])
}

fn existing(rules: RulesVersion, name: &str) -> Result<&'static Definition, Rejection> {
    definition(name)
        .filter(|definition| definition.since <= rules)
        .ok_or_else(|| Rejection::UnknownSetting { name: shortened(name), close: close_names(rules, name) })
}

/// Known names that somebody may have meant, the closest first.
fn close_names(rules: RulesVersion, name: &str) -> Vec<String> {
    // A name much longer than any of ours is no slip of the finger, and comparing takes time with its length.
    const NAME_BYTES_MAX: usize = 64;
    const CLOSE_MAX: usize = 3;
    // Shorter pieces are in too many names to mean one.
    const PIECE_BYTES_MIN: usize = 4;
    if name.len() > NAME_BYTES_MAX {
        return vec![];
    }
    let name = name.to_ascii_lowercase().replace('-', "_");
    let mut close: Vec<(usize, &str)> = DEFINITIONS
        .iter()
        .filter(|definition| definition.since <= rules)
        .map(|definition| (strsim::damerau_levenshtein(&name, definition.name), definition.name))
        .filter(|(distance, known)| {
            *distance <= known.len() / 3 || (name.len() >= PIECE_BYTES_MIN && known.contains(&name))
        })
        .collect();
    close.sort_unstable();
    close.into_iter().take(CLOSE_MAX).map(|(_, known)| known.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_listed_by_name_and_their_defaults_are_allowed() {
        assert!(DEFINITIONS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for definition in DEFINITIONS {
            assert!(definition.allows(&definition.default()), "{}", definition.name);
            assert!(definition.description.ends_with('.'), "{}", definition.name);
            let shown = definition.default().to_string();
            assert_eq!(definition.parse(&shown), Some(definition.default()), "what is shown can be set again");
        }
    }

    #[test]
    fn a_value_of_another_kind_is_never_allowed() {
        assert!(!REQUEST_WINDOW.allows(&SettingValue::Count(600_000)));
        assert!(!REQUEST_WINDOW_COUNT.allows(&SettingValue::Bool(true)));
        assert!(!is_possible(RulesVersion(1), "request_window", Some(&SettingValue::Bool(true))));
        assert!(!is_possible(RulesVersion(1), "request_window", Some(&SettingValue::Span(Span::from_days(2)))));
        assert!(!is_possible(RulesVersion(1), "unheard_of", None));
    }

    /// A node of an older release refuses a setting that it has not heard of. One that has must refuse it as long.
    #[test]
    fn a_setting_does_not_exist_before_the_rules_that_bring_it() {
        let before = RulesVersion(0);
        let settings = Settings::default();
        let at = Moment { index: crate::LogIndex(1), now: crate::Time::default(), ordinal: 0 };
        assert_eq!(settings.views(before), []);
        assert_eq!(settings.view(before, "request_window"), None);
        assert!(!is_possible(before, "request_window", None));
        let unknown = Rejection::UnknownSetting { name: "request_window".to_owned(), close: vec![] };
        assert_eq!(set(&settings, before, at, "request_window", "5m", None), Err(unknown.clone()));
        assert_eq!(reset(&settings, before, at, "request_window", None), Err(unknown));
    }
}
