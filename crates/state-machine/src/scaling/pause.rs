//! Holding a cluster by hand: nothing new begins on it, until somebody says so or time is up.

use serde::{Deserialize, Serialize};

use crate::decide::Moment;
use crate::names::{check_range, shortened};
use crate::{ClusterId, Event, Field, Rejection, ResourceName, Revision, Span, State, Time};

/// A year; whoever wants it longer wants no strategy.
const PAUSE_MAX: Span = Span::from_days(365);

/// Why and for how long a cluster is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    pub reason: String,
    pub since: Time,
    /// Nothing: until somebody says so.
    pub expires_at: Option<Time>,
    /// The event that began it.
    pub begun: Revision,
}

/// New reasons go at the end: the place is the number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResumeReason {
    Asked,
    Expired,
}

pub(crate) fn pause(
    state: &State,
    at: Moment,
    cluster: &str,
    reason: &str,
    expires_in: Option<Span>,
) -> Result<Vec<Event>, Rejection> {
    let id = existing(state, cluster)?;
    if let Some(span) = expires_in {
        check_range(Field::Expiry, span.as_millis(), 1, PAUSE_MAX.as_millis())?;
    }
    let pause = Pause {
        reason: shortened(reason),
        since: at.now,
        expires_at: expires_in.map(|span| at.now + span),
        begun: at.revision(),
    };
    let before = state.scaling.record(id).and_then(|record| record.pause.as_ref());
    if before.is_some_and(|before| before.reason == pause.reason && before.expires_at == pause.expires_at) {
        return Ok(vec![]);
    }
    Ok(vec![Event::ClusterPaused { cluster: id, pause }])
}

pub(crate) fn resume(state: &State, cluster: &str) -> Result<Vec<Event>, Rejection> {
    let id = existing(state, cluster)?;
    let paused = state.scaling.record(id).is_some_and(|record| record.pause.is_some());
    Ok(if paused { vec![Event::ClusterResumed { cluster: id, reason: ResumeReason::Asked }] } else { vec![] })
}

fn existing(state: &State, name: &str) -> Result<ClusterId, Rejection> {
    let missing = || Rejection::NotFound { resource: ResourceName::cluster(shortened(name)) };
    Ok(state.cluster(name).ok_or_else(missing)?.id)
}
