//! How signals come, change and go.

use super::rejection::SignalRejection;
use super::{SIGNALS_MAX, Signal, SignalKind, SignalRow, options};
use crate::configuration::commands::resolve;
use crate::configuration::like::Like;
use crate::decide::Moment;
use crate::names::{check_name, check_range};
use crate::resource::check_etag;
use crate::scaling::rejection::ScalingRejection;
use crate::{
    ClusterId, Command, Event, Field, Options, Rejection, ResourceName, Revision, Span, State, Target, TargetName,
};

/// What is asked for if nobody says how often.
const EVERY_DEFAULT: Span = Span::from_secs(15);
/// More often would be one entry of the log after the other.
const EVERY_MIN: Span = Span::from_secs(1);
const EVERY_MAX: Span = Span::from_hours(12);

/// What a signal is to be, beside its name.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) kind: SignalKind,
    pub(crate) target: &'a TargetName,
    pub(crate) every: Option<Span>,
    pub(crate) options: &'a Options,
}

/// What no state would accept, and what may not even get into the log.
pub(crate) fn check_proposal(command: &Command) -> Result<(), Rejection> {
    match command {
        Command::CreateSignal { kind, options, .. } => Ok(options::check(*kind, options)?),
        Command::ChangeSignal { options, .. } => Ok(options::check_of_any_kind(options)?),
        _ => Ok(()),
    }
}

pub(crate) fn create(
    state: &State,
    at: Moment,
    name: &str,
    wanted: &Wanted<'_>,
    if_not_exists: bool,
) -> Result<Vec<Event>, Rejection> {
    check_name(Field::Name, name)?;
    options::check(wanted.kind, wanted.options)?;
    let every = check_every(state, wanted.kind, wanted.every)?;
    if let Some(row) = state.signals.get(name) {
        let (resource, etag) = (ResourceName::signal(name), row.signal.updated);
        return match if_not_exists {
            true => Ok(vec![]),
            false => Err(Rejection::AlreadyExists { field: Field::Name, resource, etag }),
        };
    }
    let count = state.signals.len();
    if count >= SIGNALS_MAX {
        let (count, count_max) = (count as u64, SIGNALS_MAX as u64);
        return Err(SignalRejection::TooManySignals { count, count_max }.into());
    }
    let signal = Signal {
        name: name.into(),
        kind: wanted.kind,
        target: resolve(state, wanted.target)?,
        every,
        options: wanted.options.clone(),
        created: at.revision(),
        updated: at.revision(),
        created_at: at.now,
        updated_at: at.now,
    };
    Ok(vec![Event::SignalCreated { signal: Box::new(signal) }])
}

/// What a change asks for, beside whom. What is absent stays as it is.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    pub(crate) target: Option<&'a TargetName>,
    pub(crate) every: Option<Span>,
    /// Laid over what is there.
    pub(crate) options: &'a Options,
    /// Back to their defaults.
    pub(crate) reset: &'a [String],
    pub(crate) etag: Option<Revision>,
}

pub(crate) fn change(state: &State, at: Moment, name: &str, changes: &Changes<'_>) -> Result<Vec<Event>, Rejection> {
    let before = existing(state, name)?;
    check_etag(|| ResourceName::signal(name), changes.etag, Some(before.updated))?;
    let reset: Vec<String> = changes.reset.iter().map(|key| key.to_ascii_lowercase()).collect();
    let options = before.options.changed(changes.options, &reset);
    options::check(before.kind, &options)?;
    let every = match changes.every {
        None => before.every,
        every => check_every(state, before.kind, every)?,
    };
    let target = changes.target.map_or_else(|| Ok(before.target.clone()), |target| resolve(state, target))?;
    let signal = Signal { target, every, options, ..before.clone() };
    if signal == *before {
        return Ok(vec![]);
    }
    let signal = Signal { updated: at.revision(), updated_at: at.now, ..signal };
    Ok(vec![Event::SignalChanged { before: Box::new(before.clone()), signal: Box::new(signal) }])
}

pub(crate) fn drop(
    state: &State,
    name: &str,
    etag: Option<Revision>,
    allow_missing: bool,
) -> Result<Vec<Event>, Rejection> {
    match existing(state, name) {
        Err(Rejection::NotFound { .. }) if allow_missing => Ok(vec![]),
        Err(rejection) => Err(rejection),
        Ok(signal) => {
            check_etag(|| ResourceName::signal(name), etag, Some(signal.updated))?;
            Ok(vec![Event::SignalDropped { signal: Box::new(signal.clone()) }])
        }
    }
}

/// Those that are for this cluster alone go with it.
pub(crate) fn cluster_goes(state: &State, cluster: ClusterId, events: &mut Vec<Event>) {
    let own = state.signals.iter().filter(|row| row.signal.target == Target::Cluster(cluster));
    events.extend(own.map(|row| Event::SignalDropped { signal: Box::new(row.signal.as_ref().clone()) }));
}

/// Those that a backup does not have.
pub(crate) fn gone(state: &State, backup: &State, events: &mut Vec<Event>) {
    let gone = state.signals.iter().filter(|row| backup.signals.get(&row.signal.name).is_none());
    events.extend(gone.map(|row| Event::SignalDropped { signal: Box::new(row.signal.as_ref().clone()) }));
}

/// Those of a backup. What had come of them is of another life.
pub(crate) fn restored(backup: &State, at: Moment, events: &mut Vec<Event>) {
    for row in backup.signals.iter() {
        let signal = Signal { updated: at.revision_of(events.len()), ..row.signal.as_ref().clone() };
        events.push(Event::SignalRestored { signal: Box::new(signal) });
    }
}

/// What a signal in a snapshot or backup must fulfil. Clusters have been read before.
pub(crate) fn is_possible(state: &State, row: &SignalRow) -> bool {
    let signal = &row.signal;
    let target_fits = match &signal.target {
        Target::Cluster(id) => state.clusters.by_id(*id).is_some(),
        Target::Pattern(pattern) => Like::new(pattern).is_some(),
        Target::All => true,
    };
    let every_fits = match (signal.kind, signal.every) {
        (SignalKind::Push, every) => every.is_none(),
        (_, every) => every.is_some_and(|every| (EVERY_MIN..=EVERY_MAX).contains(&every)),
    };
    state.signals.last().is_none_or(|last| last.signal.name < signal.name)
        && state.signals.len() < SIGNALS_MAX
        && check_name(Field::Name, &signal.name).is_ok()
        && options::check(signal.kind, &signal.options).is_ok()
        && target_fits
        && every_fits
}

pub(crate) fn existing<'a>(state: &'a State, name: &str) -> Result<&'a Signal, Rejection> {
    check_name(Field::Name, name)?;
    state.signal(name).ok_or_else(|| Rejection::NotFound { resource: ResourceName::signal(name) })
}

fn check_every(state: &State, kind: SignalKind, every: Option<Span>) -> Result<Option<Span>, Rejection> {
    if kind == SignalKind::Push {
        return if every.is_some() { Err(SignalRejection::PushedNotAsked.into()) } else { Ok(None) };
    }
    let stale_after = state.settings.knobs().stale_after;
    // Half of it: one answer may be late, or fail, without anybody having to stop.
    let longest = Span::from_millis((stale_after.as_millis() / 2).max(EVERY_MIN.as_millis()));
    let every = every.unwrap_or(EVERY_DEFAULT.min(longest));
    check_range(Field::Every, every.as_millis(), EVERY_MIN.as_millis(), EVERY_MAX.as_millis())?;
    if every > longest {
        return Err(SignalRejection::TooSeldom { every, stale_after, longest }.into());
    }
    Ok(Some(every))
}

/// An epoch that is not the current one is that of a leader that has been replaced.
pub(crate) fn check_epoch(state: &State, given: crate::Epoch) -> Result<(), Rejection> {
    match state.epoch() {
        None => Err(ScalingRejection::NoEpoch.into()),
        Some(current) if current != given => Err(ScalingRejection::StaleEpoch { given, current }.into()),
        Some(_) => Ok(()),
    }
}
