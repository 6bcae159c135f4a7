//! Exports: a stretch of history in one signed file, written from any source, and read as a source itself.
//!
//! The bytes of the file are in `loadline_log::export`. Here is what gives them their meaning: which entries are asked for, the
//! state before the first of them, and that state again when the file is read.

use std::io::Write;
use std::ops::RangeInclusive;
use std::path::Path;

use loadline_log::export::{Export, ExportError, ExportHead, ExportWriter};
use loadline_log::{JournalError, JournalRecord, LogPosition, SigningKey, SnapshotMeta, snapshot};
use loadline_state_machine::{Hash, State, Time};

use crate::replay::{Moment, ReplayError, Start, replay};
use crate::source::{Source, SourceError, open_state};
use crate::stretch::{first_replayable, first_where, time_of};

/// Bytes of records that are read at once.
const PART_BYTES: usize = 1 << 20;

/// Entries that are applied from one sign of life to the next.
const TELL_EVERY: u64 = 1_024;

/// Where an export is to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// With the first entry that can be replayed: of several stretches with gaps between them, of the one that holds the end.
    First,
    Index(u64),
    /// With the first entry that is not earlier.
    Time(Time),
}

/// What an export says of where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub group: String,
    pub node_id: u64,
    pub node_name: String,
    pub incarnation: u64,
    /// Of the program.
    pub version: String,
    pub made_ms: u64,
}

/// Why there is no export.
#[derive(Debug, thiserror::Error)]
pub enum ExportFailed {
    #[error("there is no history yet")]
    Empty,
    #[error("nothing happened between the two bounds")]
    Nothing,
    #[error("entry {index} is not in this history: {}", where_instead(*next))]
    Missing { index: u64, next: Option<u64> },
    /// It is there, but nothing that it could be applied to.
    #[error("entry {index} is before the oldest state that is kept: an export {}", beginning_instead(*next))]
    Unreplayable { index: u64, next: Option<u64> },
    #[error("the state before entry {first} cannot be made")]
    Before { first: u64, source: ReplayError },
    /// What is before them is as it was.
    #[error("entries {first} to {last} cannot be read")]
    Damaged { first: u64, last: u64, source: SourceError },
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Export(#[from] ExportError),
}

fn where_instead(next: Option<u64>) -> String {
    match next {
        Some(next) => format!("a snapshot stood in for it, or it was let go; it goes on with entry {next}"),
        None => "it has not happened yet".to_owned(),
    }
}

fn beginning_instead(next: Option<u64>) -> String {
    match next {
        Some(next) => format!("can begin with entry {next} at the earliest"),
        None => "of the entries around it has nothing to begin with".to_owned(),
    }
}

/// The first and the last entry between two bounds. All of them are there, and can be replayed.
pub fn bounds(source: &dyn Source, from: Begin, to: Moment) -> Result<RangeInclusive<u64>, ExportFailed> {
    let stretches = source.stretches();
    let Some(newest) = stretches.last() else { return Err(ExportFailed::Empty) };
    let missing = |index: u64| {
        let next = stretches.iter().find(|stretch| *stretch.start() > index);
        let next = next.map(|stretch| first_replayable(source, stretch).unwrap_or(*stretch.start()));
        ExportFailed::Missing { index, next }
    };
    let last = match to {
        Moment::End => *newest.end(),
        Moment::Index(index) => index,
        Moment::Time(time) => {
            // The last stretch that has begun by then.
            let mut held = None;
            for stretch in &stretches {
                if time_of(source, *stretch.start())? <= time {
                    held = Some(stretch);
                }
            }
            let Some(held) = held else { return Err(ExportFailed::Nothing) };
            match first_where(source, held, |at| at > time)? {
                Some(after) => after - 1,
                // In the gap behind it, nobody knows what had happened by then.
                None if held != newest && time_of(source, *held.end())? < time => return Err(missing(*held.end() + 1)),
                None => *held.end(),
            }
        }
    };
    let holding = stretches.iter().find(|stretch| stretch.contains(&last)).ok_or_else(|| missing(last))?;
    let replayable = first_replayable(source, holding);
    let unreplayable = |index: u64| ExportFailed::Unreplayable { index, next: replayable };
    let first = match from {
        Begin::First => replayable.filter(|first| *first <= last).ok_or_else(|| unreplayable(last))?,
        Begin::Index(index) => index.max(1),
        Begin::Time(time) => {
            let first = first_where(source, holding, |at| at >= time)?.ok_or(ExportFailed::Nothing)?;
            if first == *holding.start() && !is_first_since(source, first, time)? {
                return Err(missing(first - 1));
            }
            first
        }
    };
    if first > last {
        return Err(ExportFailed::Nothing);
    }
    if !holding.contains(&first) {
        // Where what there is of it ends.
        let there = stretches.iter().find(|stretch| stretch.contains(&first));
        return Err(missing(there.map_or(first, |stretch| *stretch.end() + 1)));
    }
    if replayable.is_none_or(|replayable| first < replayable) {
        return Err(unreplayable(first));
    }
    Ok(first..=last)
}

/// Whether nothing that is not earlier than a time is missing right before this entry, with which a stretch begins.
fn is_first_since(source: &dyn Source, first: u64, time: Time) -> Result<bool, SourceError> {
    let before = first - 1;
    if before == 0 {
        return Ok(true);
    }
    if !source.starts().contains(&before) {
        return Ok(false);
    }
    Ok(source.start(before)?.is_some_and(|state| state.now() < time))
}

/// How far an export has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportProgress {
    /// Entries that were applied to get to the state before the first one.
    Before(u64),
    /// Entries that are written.
    Written(u64),
}

/// Writes these entries, which [`bounds`] found, as an export. `tell` hears how far it has come, and sees where it goes. No more is in
/// memory than the state before the first entry and a few blocks.
pub fn export<W: Write>(
    source: &dyn Source,
    entries: RangeInclusive<u64>,
    origin: &Origin,
    key: &SigningKey,
    mut out: W,
    mut tell: impl FnMut(ExportProgress, &mut W),
) -> Result<W, ExportFailed> {
    let (first, last) = (*entries.start(), *entries.end());
    let (base_hash, state) = before(source, first, origin, |done| tell(ExportProgress::Before(done), &mut out))?;
    let head = ExportHead {
        group: origin.group.clone(),
        node_id: origin.node_id,
        node_name: origin.node_name.clone(),
        incarnation: origin.incarnation,
        version: origin.version.clone(),
        made_ms: origin.made_ms,
        first,
        last,
        base_hash: base_hash.0,
        public_key: key.public(),
    };
    let mut writer = ExportWriter::begin(out, head, state.as_deref(), key)?;
    drop(state);
    let mut next = first;
    while next <= last {
        let records = source.read(next, PART_BYTES).map_err(|error| unreadable(source, next, error))?;
        if records.is_empty() {
            return Err(ExportFailed::Missing { index: next, next: None });
        }
        for record in records.into_iter().take_while(|record| record.index <= last) {
            next = record.index + 1;
            writer.add(record)?;
        }
        tell(ExportProgress::Written(next - first), writer.out());
    }
    Ok(writer.finish()?)
}

/// Why an entry cannot be read, and of damage which others cannot either: whoever reads gets everything that is before it first.
fn unreadable(source: &dyn Source, index: u64, error: SourceError) -> ExportFailed {
    match (&error, source.stored_with(index)) {
        (SourceError::Journal(JournalError::Damaged { .. }), Some(entries)) => {
            ExportFailed::Damaged { first: *entries.start(), last: *entries.end(), source: error }
        }
        _ => ExportFailed::Source(error),
    }
}

/// The hash before an entry and, unless it is the first of all, the state, as the bytes of a snapshot.
fn before(
    source: &dyn Source,
    first: u64,
    origin: &Origin,
    mut tell: impl FnMut(u64),
) -> Result<(Hash, Option<Vec<u8>>), ExportFailed> {
    let index = first - 1;
    if index == 0 {
        return Ok((State::new().hash(), None));
    }
    let mut applied = 0_u64;
    let replayed = replay(source, Start::Snapshot { not_after: index }, Moment::Index(index), |_| {
        applied += 1;
        if applied.is_multiple_of(TELL_EVERY) {
            tell(applied);
        }
    });
    let state = replayed.map_err(|source| ExportFailed::Before { first, source })?.state;
    let meta = SnapshotMeta {
        // The term and the node that led are Raft's, and say nothing about a state that was replayed.
        last: Some(LogPosition { term: 0, node: 0, index }),
        membership_at: None,
        membership: Vec::new().into(),
        state_hash: state.hash().0,
        created_ms: origin.made_ms,
        group: origin.group.clone(),
        incarnation: state.incarnation(),
    };
    let packing = |source| ExportError::Io { doing: "pack the state before the first entry".to_owned(), source };
    let bytes = snapshot::encode_in_pieces(&meta, |body| state.encode_in_pieces(|piece| body.add(piece)));
    let bytes = bytes.map_err(packing)?;
    Ok((state.hash(), Some(bytes)))
}

/// An export as a history.
#[derive(Debug)]
pub struct ExportFile {
    export: Export,
}

impl ExportFile {
    /// Opens a file whose frames, chain and signature are all right.
    pub fn open(path: &Path) -> Result<ExportFile, SourceError> {
        ExportFile::open_telling(path, |_, _| {})
    }

    /// The same; `tell` hears how many of how many bytes have been read.
    pub fn open_telling(path: &Path, tell: impl FnMut(u64, u64)) -> Result<ExportFile, SourceError> {
        Export::open(path, tell).map(ExportFile::of).map_err(SourceError::Export)
    }

    /// One that was read already, as far as it goes.
    pub fn of(export: Export) -> ExportFile {
        ExportFile { export }
    }

    pub fn head(&self) -> &ExportHead {
        self.export.head()
    }

    pub fn export(&self) -> &Export {
        &self.export
    }
}

impl Source for ExportFile {
    fn range(&self) -> Option<RangeInclusive<u64>> {
        Some(self.head().first..=self.export.last_index()?)
    }

    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<JournalRecord>, SourceError> {
        self.export.read(from, bytes_max).map_err(SourceError::Export)
    }

    fn version(&self) -> Option<String> {
        Some(self.head().version.clone())
    }

    fn starts(&self) -> Vec<u64> {
        (self.head().first > 1).then(|| self.head().first - 1).into_iter().collect()
    }

    fn start(&self, not_after: u64) -> Result<Option<State>, SourceError> {
        let index = self.head().first - 1;
        if index > not_after {
            return Ok(None);
        }
        let Some((_, body)) = self.export.state().map_err(SourceError::Export)? else { return Ok(None) };
        // What the head of the file says counts, not what the snapshot says of itself.
        open_state(index, Hash(self.head().base_hash), &body, self.version()).map(Some)
    }

    fn hash_after(&self, index: u64) -> Result<Option<Hash>, SourceError> {
        Ok((index + 1 == self.head().first).then(|| Hash(self.head().base_hash)))
    }

    fn group(&self) -> Option<String> {
        Some(self.head().group.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{Made, key, origin};
    use crate::replay::Replayed;

    fn replayed(source: &dyn Source, not_after: u64, to: Moment) -> Replayed {
        replay(source, Start::Snapshot { not_after }, to, |_| {}).unwrap()
    }

    #[test]
    fn an_export_replays_to_the_state_that_it_is_of_wherever_it_begins() {
        let made = Made::new(500);
        for (from, to, expected) in [
            (Begin::First, Moment::End, 1..=500),
            (Begin::Index(1), Moment::Index(1), 1..=1),
            (Begin::Index(200), Moment::End, 200..=500),
            (Begin::Index(500), Moment::End, 500..=500),
            (Begin::Time(Time::from_millis(1_995)), Moment::Time(Time::from_millis(3_009)), 200..=300),
            (Begin::Time(Time::from_millis(0)), Moment::Time(Time::from_millis(3_000)), 1..=300),
        ] {
            let entries = bounds(&made, from, to).unwrap();
            assert_eq!(entries, expected);
            let file = made.exported(entries.clone());
            let opened = ExportFile::open(file.path()).unwrap();
            assert_eq!(opened.range(), Some(expected.clone()));
            let (first, last) = (*expected.start(), *expected.end());
            let from_file = replayed(&opened, first - 1, Moment::End);
            assert_eq!(from_file.entries, last - first + 1);
            assert_eq!(from_file.state, replayed(&made, 0, Moment::Index(last)).state);
        }
    }

    #[test]
    fn bounds_that_hold_nothing_say_what_is_wrong() {
        let made = Made::new(50);
        let failed = |from, to| bounds(&made, from, to).unwrap_err().to_string();
        assert_eq!(failed(Begin::Index(20), Moment::Index(19)), "nothing happened between the two bounds");
        assert_eq!(failed(Begin::First, Moment::Index(51)), "entry 51 is not in this history: it has not happened yet");
        assert_eq!(failed(Begin::Index(51), Moment::End), "nothing happened between the two bounds");
        assert_eq!(failed(Begin::First, Moment::Time(Time::from_millis(5))), "nothing happened between the two bounds");
        assert_eq!(
            bounds(&Made::new(0), Begin::First, Moment::End).unwrap_err().to_string(),
            "there is no history yet"
        );
    }

    #[test]
    fn a_gap_is_not_exported_over() {
        let mut made = Made::new(300).without(100..=150);
        let failed = |from, to| bounds(&made, from, to).unwrap_err().to_string();
        assert_eq!(bounds(&made, Begin::First, Moment::End).unwrap(), 151..=300);
        assert_eq!(bounds(&made, Begin::First, Moment::Index(99)).unwrap(), 1..=99);
        assert_eq!(
            bounds(&made, Begin::Time(Time::from_millis(0)), Moment::Time(Time::from_millis(990))).unwrap(),
            1..=99
        );
        let gone = |index: u64| {
            format!(
                "entry {index} is not in this history: a snapshot stood in for it, or it was let go; it goes on with entry 151"
            )
        };
        assert_eq!(failed(Begin::Index(99), Moment::End), gone(100));
        assert_eq!(failed(Begin::Index(120), Moment::End), gone(120));
        // By time, too: from then on, and up to then, something is missing. Entries are ten milliseconds apart.
        for millis in [0, 500, 995, 1_200, 1_500] {
            assert_eq!(failed(Begin::Time(Time::from_millis(millis)), Moment::End), gone(150), "from {millis}");
        }
        for (millis, first) in [(1_501, 151), (1_510, 151), (1_511, 152)] {
            let entries = bounds(&made, Begin::Time(Time::from_millis(millis)), Moment::End);
            assert_eq!(entries.unwrap(), first..=300, "from {millis}");
        }
        assert_eq!(failed(Begin::First, Moment::Time(Time::from_millis(1_200))), gone(100));
        let opened = made.exported(151..=300);
        assert_eq!(ExportFile::open(opened.path()).unwrap().range(), Some(151..=300));

        // Without the state before it, what is behind the gap cannot be replayed by anybody.
        made.kept = None;
        let failed = bounds(&made, Begin::First, Moment::End).unwrap_err().to_string();
        let nothing = "an export of the entries around it has nothing to begin with";
        assert_eq!(failed, format!("entry 300 is before the oldest state that is kept: {nothing}"));
        let out = export(&made, 151..=300, &origin(), &key(), Vec::new(), |_, _| {}).unwrap_err();
        assert_eq!(out.to_string(), "the state before entry 151 cannot be made");
    }

    #[test]
    fn a_time_is_where_the_history_begins_if_the_state_before_it_tells_that_nothing_is_missing() {
        let made = Made::new(300);
        let file = made.exported(151..=300);
        let opened = ExportFile::open(file.path()).unwrap();
        let from = |millis| bounds(&opened, Begin::Time(Time::from_millis(millis)), Moment::End);
        assert_eq!(from(1_501).unwrap(), 151..=300);
        assert_eq!(
            from(1_500).unwrap_err().to_string(),
            "entry 150 is not in this history: a snapshot stood in for it, or it was let go; it goes on with entry 151"
        );
    }
}
