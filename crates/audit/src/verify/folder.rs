//! What only the folder of a node has: snapshots, a write-ahead log, and segments that can be missing. What a node makes sure of is in the
//! order in which it writes them, so what is there of one tells what must be there of the others.

use loadline_log::{JournalError, JournalFault, WalError, WalState};

use super::entries::Limits;
use super::{Finding, Verdict, with_causes};
use crate::kept::Kept;
use crate::source::{Source as _, SourceError};

impl Verdict {
    /// Whether the snapshots are of the states that the journal tells of.
    pub(super) fn compare_snapshots(&mut self, kept: &Kept) {
        for error in kept.broken() {
            self.findings.push(Finding::of_snapshot(error));
        }
        for index in kept.starts() {
            let compared = kept.start(index).and_then(|state| {
                let known = match kept.journal().hash_at(index) {
                    // That it is damaged has been said.
                    Err(JournalError::Damaged { .. }) => None,
                    known => known.map_err(SourceError::Journal)?,
                };
                Ok(known.is_none_or(|known| state.is_none_or(|state| state.hash().0 == known)))
            });
            match compared {
                Ok(true) => {}
                Ok(false) => self.findings.push(Finding::at(index, "the snapshot after it is of another history")),
                Err(SourceError::Snapshot(error)) => self.findings.push(Finding::of_snapshot(&error)),
                Err(error) => {
                    // One that a replay began with has been said.
                    let finding = Finding::of_source(&error);
                    if !self.findings.contains(&finding) {
                        self.findings.push(finding);
                    }
                }
            }
        }
    }

    /// Whether segments are missing at the beginning that nobody let go. A node lets them go only where the group has set a limit, and keeps
    /// every entry from then on: whoever took the limit back again stands in one of those.
    pub(super) fn compare_beginning(&mut self, kept: &Kept, limits: Limits) {
        for gone in kept.journal().gone() {
            let (first, last) = (*gone.start(), *gone.end());
            if limits.set {
                self.notes.push(format!(
                    "entries {first} to {last} are not here: the group has set journal_retention or journal_bytes_max, under which a node lets its oldest segments go"
                ));
                continue;
            }
            let why = match limits.known {
                true => "nobody has set journal_retention or journal_bytes_max, without which a node lets none go",
                false => "no snapshot stands in for them, without which a node lets none go",
            };
            let what = format!("they are not here: segments of the journal were taken away at its beginning; {why}");
            self.findings.push(Finding { entries: Some((first, Some(last))), what });
        }
    }

    /// Whether the write-ahead log can be read, which tells how far the journal must go. Without it the end could be cut off unnoticed.
    pub(super) fn look_at_wal(&mut self, kept: &Kept) {
        let Some(error) = kept.unread_wal() else { return };
        let fault = |file: &String, offset: &u64, what: &String, newer| JournalFault {
            file: file.clone(),
            offset: *offset,
            what: what.clone(),
            after: None,
            entries: None,
            newer,
        };
        let version = kept.version();
        let finding = match error {
            WalError::Damaged { file, offset, what } => {
                Finding::of_fault(&fault(file, offset, what, false), version.as_deref())
            }
            WalError::Newer { file, offset, what } => {
                Finding::of_fault(&fault(file, offset, what, true), version.as_deref())
            }
            WalError::Lost => Finding::whole(
                "the folder has the identity of a node, which always has a write-ahead log, and there is none: it was taken away, or not copied. How far the journal must go cannot be told without it",
            ),
            WalError::ForeignFile { file } => Finding::whole(format!(
                "{file} is not a file of the write-ahead log, and nobody who writes it leaves one there"
            )),
            WalError::Io { .. } => Finding::whole(with_causes(error)),
        };
        self.findings.push(finding);
    }

    /// Whether the journal goes as far as a node makes sure that it does. It is durable before a snapshot of our own is written, and before
    /// the write-ahead log lets go of anything; the state that somebody else sent is noted in it as a gap before the log lets go of what
    /// is before. What is only in the write-ahead log, on the other hand, may be missing after a crash: the node applies it again.
    pub(super) fn compare_ends(&mut self, kept: &Kept) {
        let end = kept.journal().last_index().unwrap_or(0);
        let behind = |through: u64, why: String| Finding { entries: Some((end + 1, Some(through))), what: why };
        let wal = kept.wal();
        let purged = wal.and_then(|wal| wal.purged).map_or(0, |purged| purged.index);
        if purged > end {
            let why = format!(
                "the journal ends with entry {end}, and the write-ahead log has let go of everything up to entry {purged}, which it does only after the journal has it"
            );
            self.findings.push(behind(purged, why));
            return;
        }
        let Some(newest) = kept.starts().into_iter().filter(|index| *index > end).max() else {
            self.note_what_follows(kept, end);
            return;
        };
        // A node that dies right after it has taken in somebody else's snapshot has not noted the gap yet. Its own log is shorter then.
        let reaches = |wal: &WalState| wal.last.is_some_and(|last| last.index >= newest);
        let one = kept.starts().into_iter().filter(|index| *index > end).count() == 1;
        if one && wal.is_some_and(|wal| !reaches(wal)) {
            self.notes.push(format!(
                "the snapshot after entry {newest} came from another node, and this one stopped before it noted that entries {} to {newest} are not in its journal",
                end + 1
            ));
            return;
        }
        let why = format!(
            "the journal ends with entry {end}, and there is a snapshot of the state after entry {newest}, which is written only after the journal has everything up to it"
        );
        self.findings.push(behind(newest, why));
    }

    fn note_what_follows(&mut self, kept: &Kept, end: u64) {
        let committed = kept.wal().and_then(|wal| wal.committed).map_or(0, |committed| committed.index);
        if committed > end {
            self.notes.push(format!(
                "entries {} to {committed} are in the write-ahead log, and the journal does not have them yet, as after a crash: they are not looked at",
                end + 1
            ));
        }
    }
}
