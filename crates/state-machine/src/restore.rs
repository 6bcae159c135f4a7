//! Restoring a backup. It comes through the log chunk by chunk, is staged in the state, and is put in place by one
//! command, so that every node switches at the same index and a restore that breaks off leaves nothing behind.
//!
//! What the backup decides: sizes, clusters, strategies, settings, and roles unless that would let everybody in. What stays ours: the log and its chain, time, leader, rules and
//! the memory of requests. The group starts a new incarnation, so that nothing that was set in motion in the life that the
//! backup remembers, or in the one it replaces, can be taken for something of the new one.
//!
//! A retry of the whole restore: `BeginRestore` under its first request id answers with the same restore as then. Chunks
//! that are already there, or come too late, are refused and change nothing; `FinishRestore` under its own first id
//! then either does it or answers what was done.

use serde::{Deserialize, Serialize};

use crate::access::commands as access;
use crate::configured::commands as configured;
use crate::decide::Moment;
use crate::event::AbortReason;
use crate::names::{check_range, shortened};
use crate::scaling::restored;
use crate::table::Table;
use crate::{Blob, Cluster, Event, Field, Hash, Rejection, Revision, Size, Span, State, Time};

/// A backup larger than this would not fit beside the state that it replaces.
pub const RESTORE_BYTES_MAX: u64 = 1 << 30;

/// One chunk is one command, and has to fit into an entry.
pub const RESTORE_CHUNK_BYTES_MAX: u64 = 1 << 20;

/// A restore whose operator went away must not hold its memory for ever.
const RESTORE_IDLE_MAX: Span = Span::from_mins(10);

/// A backup on its way in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Staging {
    pub(crate) head: StagingHead,
    /// By offset, without gaps.
    pub(crate) chunks: Table<u64, Blob>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StagingHead {
    pub(crate) restore: Revision,
    pub(crate) bytes_total: u64,
    pub(crate) hash: Hash,
    /// When the restore began or the last chunk came.
    pub(crate) touched_at: Time,
}

impl Staging {
    pub(crate) fn begin(restore: Revision, bytes_total: u64, hash: Hash, now: Time) -> Self {
        Self { head: StagingHead { restore, bytes_total, hash, touched_at: now }, chunks: Table::new() }
    }

    pub(crate) fn store(&mut self, offset: u64, bytes: &Blob, now: Time) {
        self.chunks.insert(offset, bytes.clone());
        self.head.touched_at = now;
    }

    pub(crate) fn received(&self) -> u64 {
        self.chunks.get_max().map_or(0, |(offset, bytes)| offset + bytes.len() as u64)
    }

    fn assemble(&self) -> Vec<u8> {
        self.chunks.values().flat_map(|chunk| chunk.as_slice()).copied().collect()
    }
}

pub(crate) fn begin(
    staging: Option<&Staging>,
    at: Moment,
    bytes_total: u64,
    hash: Hash,
) -> Result<Vec<Event>, Rejection> {
    check_range(Field::BytesTotal, bytes_total, 1, RESTORE_BYTES_MAX)?;
    let mut events = Vec::new();
    if let Some(earlier) = staging {
        events.push(Event::RestoreAborted { restore: earlier.head.restore, reason: AbortReason::Superseded });
    }
    events.push(Event::RestoreBegun { restore: at.revision_of(events.len()), bytes_total, hash });
    Ok(events)
}

pub(crate) fn chunk(
    staging: Option<&Staging>,
    restore: Revision,
    offset: u64,
    bytes: &Blob,
) -> Result<Vec<Event>, Rejection> {
    let staging = under_way(staging, restore)?;
    let expected = staging.received();
    if offset != expected {
        return Err(Rejection::RestoreOffset { offset, expected });
    }
    let left = staging.head.bytes_total - expected;
    check_range(Field::Bytes, bytes.len() as u64, 1, RESTORE_CHUNK_BYTES_MAX.min(left))?;
    Ok(vec![Event::RestoreChunkStored { restore, offset, bytes: bytes.clone() }])
}

pub(crate) fn abort(staging: Option<&Staging>, restore: Option<Revision>) -> Result<Vec<Event>, Rejection> {
    let staging = match (staging, restore) {
        (None, None) => return Ok(vec![]),
        (Some(staging), None) => staging,
        (staging, Some(restore)) => under_way(staging, restore)?,
    };
    Ok(vec![Event::RestoreAborted { restore: staging.head.restore, reason: AbortReason::Asked }])
}

/// What is due by the passing of time.
pub(crate) fn give_up_if_idle(staging: Option<&Staging>, now: Time) -> Option<Event> {
    let head = staging?.head;
    (now.since(head.touched_at) > RESTORE_IDLE_MAX)
        .then_some(Event::RestoreAborted { restore: head.restore, reason: AbortReason::Idle })
}

pub(crate) fn finish(state: &State, at: Moment, restore: Revision) -> Result<Vec<Event>, Rejection> {
    let staging = under_way(state.restore.as_deref(), restore)?;
    let (received, total) = (staging.received(), staging.head.bytes_total);
    if received != total {
        return Err(Rejection::RestoreIncomplete { received, total });
    }
    let bytes = staging.assemble();
    let (announced, found) = (staging.head.hash, Hash::of(&bytes));
    if announced != found {
        return Err(Rejection::RestoreHashMismatch { announced, found });
    }
    // A format that this release reads and an older one does not comes with rules of its own, or nodes of both
    // releases would answer differently here.
    let backup =
        State::decode(&bytes).map_err(|error| Rejection::BackupUnreadable { reason: shortened(&error.to_string()) })?;
    if backup.rules > state.rules {
        return Err(Rejection::BackupTooNew { backup: backup.rules, current: state.rules });
    }
    Ok(replace(state, at, restore, &backup))
}

/// The events that turn the tables of `state` into those of `backup`. All that a watcher can see is among them: what is
/// gone first, then what is there now, every one with a new etag, because an etag of the old life says nothing here.
fn replace(state: &State, at: Moment, restore: Revision, backup: &State) -> Vec<Event> {
    let mut events = Vec::new();
    restored::endings(state, backup, at, &mut events);
    let gone = state.sizes.ladder().filter(|size| backup.sizes.get(&size.name).is_none());
    events.extend(gone.map(|size| Event::SizeDropped { size: size.clone() }));
    let gone = state.clusters.after(None).filter(|cluster| backup.clusters.get(&cluster.name).is_none());
    events.extend(gone.map(|cluster| Event::ClusterDropped { cluster: cluster.clone() }));
    access::gone(state, backup, &mut events);
    configured::gone(state, backup, &mut events);

    let incarnation = state.incarnation.max(backup.incarnation).saturating_add(1).max(at.now.as_millis());
    events.push(Event::RestoreFinished {
        restore,
        incarnation,
        backup_index: backup.applied,
        backup_incarnation: backup.incarnation,
        nodes: state.nodes.highest.max(backup.nodes.highest),
    });

    for size in backup.sizes.ladder() {
        let size = Size { updated: at.revision_of(events.len()), ..size.clone() };
        events.push(Event::SizeRestored { size });
    }
    for cluster in backup.clusters.after(None) {
        let cluster = Cluster { updated: at.revision_of(events.len()), ..cluster.clone() };
        let backend = backup.clusters.backend(cluster.id).cloned();
        events.push(Event::ClusterRestored { cluster: cluster.clone() });
        if backend.is_some() {
            events.push(Event::ClusterPlaced { cluster, backend });
        }
    }
    // A setting that only we had set is at its default in the backup; it is there all the same, so it is not dropped.
    let ours = state.settings.rows().filter(|(name, _)| backup.settings.row(name).is_none());
    let theirs = backup.settings.rows().map(|(name, row)| (name, row.value.clone()));
    for (name, value) in theirs.chain(ours.map(|(name, _)| (name, None))) {
        let updated = at.revision_of(events.len());
        events.push(Event::SettingRestored { name: name.to_owned(), value, updated });
    }
    access::restored(state, backup, at, &mut events);
    configured::restored(backup, at, &mut events);
    restored::beginnings(state, backup, at, &mut events);
    events
}

fn under_way(staging: Option<&Staging>, given: Revision) -> Result<&Staging, Rejection> {
    match staging {
        None => Err(Rejection::NoRestore),
        Some(staging) if staging.head.restore == given => Ok(staging),
        Some(staging) => Err(Rejection::OtherRestore { given, current: staging.head.restore }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{LogIndex, RulesVersion};

    #[test]
    fn a_backup_made_under_newer_rules_waits_until_the_group_has_them() {
        let bytes = State::new().encode();
        let restore = Revision::default();
        let mut staging = Staging::begin(restore, bytes.len() as u64, Hash::of(&bytes), Time::default());
        staging.store(0, &Blob::from(bytes), Time::default());
        let mut state = State { restore: Some(Arc::new(staging)), rules: RulesVersion(0), ..State::new() };
        let at = Moment { index: LogIndex(1), now: Time::default(), ordinal: 0 };
        assert_eq!(
            finish(&state, at, restore),
            Err(Rejection::BackupTooNew { backup: RulesVersion(1), current: RulesVersion(0) })
        );
        state.rules = RulesVersion(1);
        assert!(finish(&state, at, restore).is_ok());
    }
}
