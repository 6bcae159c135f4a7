//! How strategies are created, changed and dropped.

use super::like::Like;
use super::options::{CONFIG_VERSION, CONFIG_VERSION_KEY, OptionValue, Options, option_definition, option_definitions};
use super::stored::{Strategy, Target, TargetName};
use super::{ConfigurationProblem, StrategyKind};
use crate::decide::Moment;
use crate::names::shortened;
use crate::resource::check_etag;
use crate::scaling::rejection::ScalingRejection;
use crate::sizes::Sizes;
use crate::{Event, Field, Rejection, ResourceName, Revision, State, StrategyId};

/// Each pattern is tried on every cluster that comes or changes its name.
const PATTERNS_MAX: u64 = 1_000;
const PATTERN_BYTES_MAX: usize = 255;
/// Far more than any strategy takes; what was not checked must still not fill the memory.
const OPTIONS_MAX: u64 = 32;
/// A schedule or a list of signals is a text of some lines.
const OPTION_BYTES_MAX: u64 = 4_096;

/// Whether the options must mean something. A direct write to the table of strategies is taken as it is; if it means nothing,
/// that strategy is out of order and says so, and nothing else suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Strict,
    None,
}

impl Check {
    pub(crate) fn unless(unchecked: bool) -> Self {
        if unchecked { Self::None } else { Self::Strict }
    }
}

pub(crate) fn create(
    state: &State,
    at: Moment,
    target: &TargetName,
    kind: StrategyKind,
    options: &Options,
    if_not_exists: bool,
    check: Check,
) -> Result<Vec<Event>, Rejection> {
    let target = resolve(state, target)?;
    if let Some(taken) = state.scaling.strategies.find(&target, kind) {
        let resource = ResourceName::strategy(taken.id);
        let etag = taken.updated;
        return if if_not_exists {
            Ok(vec![])
        } else {
            Err(Rejection::AlreadyExists { field: Field::Target, resource, etag })
        };
    }
    let (options, migrated_from) = settle_version(options);
    check_options(&state.sizes, kind, &options, check)?;
    if let Target::Pattern(pattern) = &target {
        check_overlap(state, kind, pattern)?;
    }
    let strategy = Strategy {
        id: allocate(state, at.revision()),
        kind,
        target,
        options,
        migrated_from,
        created: at.revision(),
        updated: at.revision(),
        created_at: at.now,
        updated_at: at.now,
    };
    Ok(vec![Event::StrategyCreated { strategy }])
}

/// What a change asks for, beside whom.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    /// Laid over what is there.
    pub(crate) options: &'a Options,
    /// Back to their defaults.
    pub(crate) reset: &'a [String],
    pub(crate) etag: Option<Revision>,
    pub(crate) check: Check,
}

pub(crate) fn change(
    state: &State,
    at: Moment,
    target: &TargetName,
    kind: StrategyKind,
    changes: &Changes<'_>,
) -> Result<Vec<Event>, Rejection> {
    let before = existing(state, target, kind)?;
    check_etag(|| ResourceName::strategy(before.id), changes.etag, Some(before.updated))?;
    // What was written unchecked, or by a later release, can at least be taken away.
    let unknown = |name: &&String| option_definition(kind, name).is_none() && before.options.get(name).is_none();
    if let Some(option) = changes.reset.iter().find(unknown) {
        let problem = ConfigurationProblem::UnknownOption { option: shortened(option) };
        return Err(refused(&state.sizes, kind, problem));
    }
    let (options, migrated_from) = settle_version(&before.options.changed(changes.options, changes.reset));
    check_options(&state.sizes, kind, &options, changes.check)?;
    if options == before.options {
        return Ok(vec![]);
    }
    let strategy = Strategy {
        options,
        migrated_from: migrated_from.or(before.migrated_from),
        updated: at.revision(),
        updated_at: at.now,
        ..before.clone()
    };
    Ok(vec![Event::StrategyChanged { before: Box::new(before.clone()), strategy }])
}

pub(crate) fn drop(
    state: &State,
    target: &TargetName,
    kind: StrategyKind,
    etag: Option<Revision>,
    allow_missing: bool,
) -> Result<Vec<Event>, Rejection> {
    match existing(state, target, kind) {
        Err(Rejection::Scaling(ScalingRejection::StrategyNotFound { .. }) | Rejection::NotFound { .. })
            if allow_missing =>
        {
            Ok(vec![])
        }
        Err(rejection) => Err(rejection),
        Ok(strategy) => {
            check_etag(|| ResourceName::strategy(strategy.id), etag, Some(strategy.updated))?;
            Ok(vec![Event::StrategyDropped { strategy: strategy.clone() }])
        }
    }
}

/// Every strategy that is for exactly this target.
pub(crate) fn drop_all(state: &State, target: &TargetName) -> Result<Vec<Event>, Rejection> {
    let target = resolve(state, target)?;
    let found =
        StrategyKind::PRIORITY_ORDER.into_iter().filter_map(|kind| state.scaling.strategies.find(&target, kind));
    Ok(found.map(|strategy| Event::StrategyDropped { strategy: strategy.clone() }).collect())
}

/// Refused unless this strategy is there, for this target, and as it was at `etag`. The name of a cluster may have gone to
/// another one meanwhile, so that the revision alone does not tell.
pub(crate) fn expect(
    state: &State,
    id: StrategyId,
    target: &TargetName,
    etag: Revision,
) -> Result<Vec<Event>, Rejection> {
    let found = state.scaling.strategies.get(id);
    let meant = found.filter(|strategy| state.strategy_for(target, strategy.kind).is_some_and(|it| it.id == id));
    check_etag(|| ResourceName::strategy(id), Some(etag), meant.map(|strategy| strategy.updated))?;
    Ok(vec![])
}

pub(crate) fn resolve(state: &State, target: &TargetName) -> Result<Target, Rejection> {
    match target {
        TargetName::Cluster(name) => {
            let cluster = state.cluster(name);
            let id =
                cluster.ok_or_else(|| Rejection::NotFound { resource: ResourceName::cluster(shortened(name)) })?.id;
            Ok(Target::Cluster(id))
        }
        TargetName::All => Ok(Target::All),
        TargetName::Pattern(pattern) => {
            let fits = (1..=PATTERN_BYTES_MAX).contains(&pattern.len()) && !pattern.chars().any(char::is_control);
            if !fits || Like::new(pattern).is_none() {
                return Err(ScalingRejection::InvalidPattern { pattern: shortened(pattern) }.into());
            }
            Ok(Target::Pattern(pattern.as_str().into()))
        }
    }
}

fn existing<'a>(state: &'a State, target: &TargetName, kind: StrategyKind) -> Result<&'a Strategy, Rejection> {
    let found = state.scaling.strategies.find(&resolve(state, target)?, kind);
    let missing = || ScalingRejection::StrategyNotFound { target: shortened(&target.to_string()), kind };
    Ok(found.ok_or_else(missing)?)
}

/// Brings options to the current version and makes them say so, and tells which version they were of if it was another.
fn settle_version(options: &Options) -> (Options, Option<u32>) {
    match options.migrated() {
        Some(migrated) => (migrated, options.version()),
        None if options.get(CONFIG_VERSION_KEY).is_some() => (options.clone(), None),
        None => (options.clone().with(CONFIG_VERSION_KEY, i64::from(CONFIG_VERSION)), None),
    }
}

fn check_options(sizes: &Sizes, kind: StrategyKind, options: &Options, check: Check) -> Result<(), Rejection> {
    let too_many = |count, count_max| ScalingRejection::TooMany { field: Field::Options, count, count_max }.into();
    let count = options.iter().count() as u64;
    if count > OPTIONS_MAX {
        return Err(too_many(count, OPTIONS_MAX));
    }
    for (key, value) in options.iter() {
        let text_bytes = if let OptionValue::Text(text) = value { text.len() } else { 0 };
        let bytes = key.len().max(text_bytes) as u64;
        if bytes > OPTION_BYTES_MAX {
            return Err(too_many(bytes, OPTION_BYTES_MAX));
        }
    }
    if check == Check::None {
        return Ok(());
    }
    let configuration = super::Configuration::read(kind, options).map_err(|problem| refused(sizes, kind, problem))?;
    match configuration.sizes().find(|(_, size)| sizes.get(size).is_none()) {
        Some((option, size)) => {
            let problem = ConfigurationProblem::UnknownSize { option: option.to_owned(), size: size.to_string() };
            Err(refused(sizes, kind, problem))
        }
        None => Ok(()),
    }
}

/// The problem, and what would be right.
fn refused(sizes: &Sizes, kind: StrategyKind, problem: ConfigurationProblem) -> Rejection {
    const LISTED_MAX: usize = 12;
    let expected = match &problem {
        ConfigurationProblem::UnknownOption { .. } => {
            option_definitions(kind).map(|known| known.key).collect::<Vec<_>>().join(", ")
        }
        ConfigurationProblem::Missing { option } | ConfigurationProblem::Invalid { option, .. } => {
            option_definition(kind, option).map(|known| known.kind.expected()).unwrap_or_default()
        }
        ConfigurationProblem::UnknownSize { .. } => match sizes.len() {
            0 => "a size, but there are none: create one first".to_owned(),
            count => {
                let names: Vec<&str> = sizes.ladder().map(|size| size.name.as_str()).take(LISTED_MAX).collect();
                let more = if count > LISTED_MAX { ", ..." } else { "" };
                format!("{}{more}", names.join(", "))
            }
        },
        // They say it themselves.
        ConfigurationProblem::Version
        | ConfigurationProblem::NameNotManaged { .. }
        | ConfigurationProblem::Unfit { .. } => String::new(),
    };
    ScalingRejection::Configuration { kind, problem, expected }.into()
}

/// Two patterns that match equally many clusters leave open which of them rules those that both match.
fn check_overlap(state: &State, kind: StrategyKind, pattern: &str) -> Result<(), Rejection> {
    let Some(like) = Like::new(pattern) else { return Ok(()) };
    let strategies = &state.scaling.strategies;
    let count = strategies.pattern_count() as u64;
    if count >= PATTERNS_MAX {
        let rejection = ScalingRejection::TooMany { field: Field::Target, count: count + 1, count_max: PATTERNS_MAX };
        return Err(rejection.into());
    }
    let matching: Vec<&str> =
        state.clusters_after(None).map(|cluster| cluster.name.as_str()).filter(|name| like.matches(name)).collect();
    let matches = matching.len() as u64;
    for (other, other_pattern, other_like, other_matches) in strategies.patterns(kind) {
        let shared = matching.iter().find(|name| other_like.matches(name));
        if let (true, Some(cluster)) = (other_matches == matches, shared) {
            return Err(ScalingRejection::AmbiguousPattern {
                pattern: pattern.to_owned(),
                other,
                other_pattern: other_pattern.to_string(),
                matches,
                cluster: (*cluster).to_owned(),
            }
            .into());
        }
    }
    Ok(())
}

/// The id of a strategy made by this event. A backup of another group may have brought an id from an index that this
/// log reaches only now; then the next ordinal that is free.
fn allocate(state: &State, made: Revision) -> StrategyId {
    let mut id = StrategyId::from(made);
    while state.scaling.strategies.get(id).is_some() {
        id.ordinal = id.ordinal.saturating_add(1);
    }
    id
}
