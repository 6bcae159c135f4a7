//! The brain as a pure function: sizes, replicas, strategies and signals in, desired replicas and a decision out. No cluster is
//! needed, so teams can test their strategies before anything runs.
//!
//! It is the same chain that runs in the state machine, on tables that are made up for the occasion.

use std::collections::BTreeMap;

use thiserror::Error;

use super::decisions::{Brake, Conclusion, Decision, Held, Shadow};
use super::plan::{Planned, difference};
use crate::configuration::options::Options;
use crate::configuration::{Configuration, ConfigurationProblem, StrategyKind};
use crate::decide::Moment;
use crate::settings::{self, SettingRow, Settings};
use crate::signals::replica::{Crash, Hydration, Replica};
use crate::signals::{Activity, Heard, Metric, Signals};
use crate::sizes::{self, Sizes};
use crate::strategies::chain::{Link, run};
use crate::strategies::desired::ReplicaSpec;
use crate::strategies::{FailedSize, Memory, STRATEGIES, STRATEGY_STATE_VERSION, StrategyState, View};
use crate::{ClusterId, Event, LogIndex, RULES_VERSION_MAX, Rejection, Revision, Size, Span, StrategyId, Time};

/// What there is, as one would write it down.
#[derive(Clone, Debug, Default)]
pub struct PlanInput {
    /// From the smallest to the largest.
    pub sizes: Vec<String>,
    pub cluster: String,
    pub replicas: Vec<PlanReplica>,
    /// In any order: they run in the order of their kinds.
    pub strategies: Vec<PlanStrategy>,
    pub activity: PlanActivity,
    /// By replica; one that is not named is not hydrated.
    pub hydration: BTreeMap<String, PlanHydration>,
    pub crashes: BTreeMap<String, PlanCrashes>,
    /// What a live collector has measured, in thousandths.
    pub metrics: BTreeMap<String, i64>,
    pub now: Option<Time>,
    pub settings: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct PlanReplica {
    pub name: String,
    pub size: String,
}

#[derive(Clone, Debug)]
pub struct PlanStrategy {
    pub kind: String,
    pub config: Options,
    /// How long ago a change of this strategy was carried out last.
    pub last_decision_ago: Option<Span>,
    /// What it remembers. Of another version, it begins anew, as it would in a cluster.
    pub state: Option<PlanState>,
}

/// What a strategy remembers; each kind looks at its own.
#[derive(Clone, Debug, Default)]
pub struct PlanState {
    /// Without one, that of today.
    pub version: Option<u32>,
    /// Of `shrink_to_fit`: sizes whose replicas were dropped because they crashed, and how long ago.
    pub failed_sizes: Vec<(String, Span)>,
    /// Of `idle_suspend`: what was there before the cluster was suspended.
    pub suspended: Vec<PlanReplica>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanActivity {
    /// No collector has said anything.
    #[default]
    Unknown,
    /// A live collector has seen none.
    NoneSeen,
    Ago(Span),
}

#[derive(Clone, Copy, Debug)]
pub struct PlanHydration {
    pub total: u64,
    pub hydrated: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct PlanCrashes {
    pub total: u64,
    pub oom: u64,
}

/// What the brain would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOutput {
    pub desired: BTreeMap<String, String>,
    pub actions: Vec<Planned>,
    pub decision: Decision,
}

/// The input makes no sense; `field` says where, as in `strategies[2].config.cooldown_s`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct PlanError {
    pub field: String,
    pub problem: String,
    /// What is wrong with a strategy, for programs.
    pub configuration: Option<ConfigurationProblem>,
}

impl PlanError {
    pub fn new(field: impl Into<String>, problem: &(impl ToString + ?Sized)) -> Self {
        Self { field: field.into(), problem: problem.to_string(), configuration: None }
    }
}

/// When nobody says otherwise; any moment will do, as long as everything fits before it.
const NOW_DEFAULT: Time = Time::from_millis(1_800_000_000_000);

/// Who tells the signals of a made-up cluster.
const COLLECTOR: &str = "input";

pub fn plan(input: &PlanInput) -> Result<PlanOutput, PlanError> {
    let now = input.now.unwrap_or(NOW_DEFAULT);
    let sizes = read_sizes(&input.sizes)?;
    let signals = read_signals(input, now)?;
    let mut strategies = Vec::new();
    for (place, strategy) in input.strategies.iter().enumerate() {
        strategies.push(read_strategy(place, strategy, now)?);
    }
    strategies.sort_by_key(|(kind, ..)| kind.priority());
    for pair in strategies.windows(2) {
        if pair[0].0 == pair[1].0 {
            let problem = format!("a cluster has one strategy of each type, and {} is there twice", pair[0].0);
            return Err(PlanError::new("strategies", &problem));
        }
    }

    let knobs = *read_settings(&input.settings)?.knobs();
    let stale_after = knobs.stale_after;
    let view = View {
        now,
        stale_after,
        replicas: &signals.replicas,
        signals: &signals,
        sizes: &sizes,
        idle: knobs.idle,
        wake: None,
    };
    let links: Vec<Link<'_>> = strategies
        .iter()
        .map(|(kind, configuration, state)| Link::new(state.strategy, *kind, configuration, state, None, now))
        .collect();
    let said = run(&STRATEGIES, &links, view, &mut None);
    let planned = difference(&signals.replicas, &said, &sizes, false);
    let shadow = said.shadow.as_ref().map(|shadow| {
        Box::new(Shadow {
            stages: shadow.stages.clone(),
            desired: shadow.desired.specs(),
            planned: difference(&signals.replicas, shadow, &sizes, false),
        })
    });
    let desired = said.desired.specs();
    let nothing = Revision { index: LogIndex(0), ordinal: 0 };
    let (conclusion, brakes) = match (planned.is_empty(), knobs.acting) {
        _ if said.fault().is_some() => (Conclusion::Faulted, vec![Brake::StrategyFaulted]),
        (true, _) => (Conclusion::AsWanted, vec![]),
        (false, true) => (Conclusion::Began(nothing.into()), vec![]),
        (false, false) => (Conclusion::Suppressed, vec![Brake::KillSwitch]),
    };
    Ok(PlanOutput {
        desired: desired.iter().map(|it| (it.name.to_string(), it.size.to_string())).collect(),
        actions: planned.clone(),
        decision: Decision {
            id: Revision::default(),
            cluster: ClusterId { index: LogIndex(0), ordinal: 0 },
            at: now,
            changes_at: said.changes_at(),
            stages: said.stages,
            desired,
            planned,
            shadow,
            brakes: brakes.into_iter().map(|brake| Held { brake, until: None }).collect(),
            conclusion,
            stale_after,
            inputs: signals,
        },
    })
}

fn read_settings(given: &BTreeMap<String, String>) -> Result<Settings, PlanError> {
    let mut settings = Settings::default();
    let at = Moment { index: LogIndex(0), now: NOW_DEFAULT, ordinal: 0 };
    for (name, value) in given {
        let field = |rejection: Rejection| PlanError::new(format!("settings.{name}"), &rejection);
        let events = settings::set(&settings, RULES_VERSION_MAX, at, name, value, None).map_err(field)?;
        for event in events {
            if let Event::SettingSet { name, value, updated } = event {
                settings.put(&name, SettingRow { value: Some(value), updated });
            }
        }
    }
    Ok(settings)
}

fn read_sizes(names: &[String]) -> Result<Sizes, PlanError> {
    let mut table = Sizes::default();
    for (rank, name) in (1..).zip(names) {
        let field = || format!("sizes[{}].name", rank - 1);
        let revision = Revision::default();
        let size =
            Size { name: name.clone(), rank, slots: 1, price_micros_per_hour: 0, created: revision, updated: revision };
        if table.get(name).is_some() {
            return Err(PlanError::new(field(), &format!("{name:?} is there twice")));
        }
        sizes::check(&table, &size).map_err(|rejection| PlanError::new(field(), &rejection))?;
        table.put(&size);
    }
    Ok(table)
}

fn read_signals(input: &PlanInput, now: Time) -> Result<Signals, PlanError> {
    let heard = Heard { collector: COLLECTOR.into(), at: now, confirmed_at: None };
    let mut signals = Signals { collectors: vec![heard], ..Signals::default() };
    for (place, replica) in input.replicas.iter().enumerate() {
        if signals.replica(&replica.name).is_some() {
            let problem = format!("{:?} is there twice", replica.name);
            return Err(PlanError::new(format!("cluster.replicas[{place}].name"), &problem));
        }
        let mut known = Replica::new(replica.name.as_str().into(), replica.size.as_str().into(), None, now);
        known.ready = true;
        signals.put_replica(known);
    }
    let nobody = |what: &str, name: &str| {
        PlanError::new(format!("signals.{what}.{name}"), "the cluster has no replica of this name")
    };
    for (name, report) in &input.hydration {
        let replica = signals.replica_mut(name).ok_or_else(|| nobody("hydration", name))?;
        if report.hydrated > report.total {
            let problem = format!("{} of {} objects cannot be hydrated", report.hydrated, report.total);
            return Err(PlanError::new(format!("signals.hydration.{name}.hydrated"), &problem));
        }
        replica.hydration =
            Some(Hydration { total: report.total, hydrated: report.hydrated, as_of: now, collector: COLLECTOR.into() });
    }
    for (name, crashes) in &input.crashes {
        let replica = signals.replica_mut(name).ok_or_else(|| nobody("crashes", name))?;
        if crashes.total > 0 || crashes.oom > 0 {
            replica.crashed(Crash { at: now, count: crashes.total, oom_count: crashes.oom, reason: "".into() });
        }
    }
    signals.metrics = input
        .metrics
        .iter()
        .map(|(name, value_milli)| Metric {
            name: name.as_str().into(),
            value_milli: *value_milli,
            as_of: now,
            collector: COLLECTOR.into(),
        })
        .collect();
    signals.activity = match input.activity {
        PlanActivity::Unknown => None,
        PlanActivity::NoneSeen => {
            Some(Activity { last_at: None, none_since: now, as_of: now, collector: COLLECTOR.into() })
        }
        PlanActivity::Ago(ago) => {
            let last_at = now.before(ago);
            Some(Activity { last_at: Some(last_at), none_since: last_at, as_of: now, collector: COLLECTOR.into() })
        }
    };
    Ok(signals)
}

type Read = (StrategyKind, Result<Configuration, ConfigurationProblem>, StrategyState);

fn read_strategy(place: usize, strategy: &PlanStrategy, now: Time) -> Result<Read, PlanError> {
    let kind: StrategyKind =
        strategy.kind.parse().map_err(|error| PlanError::new(format!("strategies[{place}].type"), &error))?;
    let options = strategy.config.migrated().unwrap_or_else(|| strategy.config.clone());
    let configuration = Configuration::read(kind, &options).map_err(|problem| {
        let field = format!("strategies[{place}].config.{}", problem.option());
        PlanError { field, problem: problem.to_string(), configuration: Some(problem) }
    })?;
    let ordinal = u32::try_from(place).unwrap_or(u32::MAX);
    let mut state = StrategyState::new(StrategyId { index: LogIndex(0), ordinal });
    if let Some(given) = &strategy.state
        && given.version.is_none_or(|version| version == STRATEGY_STATE_VERSION)
    {
        let failed = given.failed_sizes.iter();
        let failed = failed.map(|(size, ago)| FailedSize { size: size.as_str().into(), at: now.before(*ago) });
        let suspended = given.suspended.iter();
        let suspended =
            suspended.map(|it| ReplicaSpec { name: it.name.as_str().into(), size: it.size.as_str().into() });
        state.memory = match kind {
            StrategyKind::ShrinkToFit if !given.failed_sizes.is_empty() => Memory::FailedSizes(failed.collect()),
            StrategyKind::IdleSuspend if !given.suspended.is_empty() => Memory::Suspended(suspended.collect()),
            _ => Memory::Nothing,
        };
    }
    state.last_change_at = strategy.last_decision_ago.map(|ago| now.before(ago));
    Ok((kind, Ok(configuration), state))
}
