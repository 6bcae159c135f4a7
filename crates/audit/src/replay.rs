//! Applies a history once more, to any moment, and compares the hash after every entry with the one that it had then.
//!
//! One thread unpacks and decodes while the other applies: applying is what takes long, and nothing of it can be done ahead.
//!
//! Not here: what would have been with other rules or other strategies.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use loadline_log::JournalRecord;
use loadline_state_machine::{Applied, DecodeError, Hash, JournalEntry, LogIndex, State, Time};

use crate::source::{Source, SourceError, newer_writer};

/// Bytes of records that are unpacked at once, and how many such parts wait to be applied.
const PART_BYTES: usize = 1 << 20;
const PARTS_AHEAD: usize = 4;

/// Why a history could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("entry {index} of the history cannot be decoded")]
    Entry { index: u64, source: DecodeError },
    #[error("entry {index} of the history was written by version {version}, and this is version {}", env!("CARGO_PKG_VERSION"))]
    Newer { index: u64, version: String, source: DecodeError },
    #[error("the history begins with entry {first}, and {}", kept_from(*.kept))]
    Begins {
        first: u64,
        /// The oldest entry after which a state is kept.
        kept: Option<u64>,
    },
    #[error("entry {index} gives the hash {ours}, and the history has {theirs}")]
    Differs { index: u64, ours: Hash, theirs: Hash },
    #[error("entry {index} is not in this history{}", goes_on(*.found))]
    Gap {
        index: u64,
        /// The next one that is.
        found: Option<u64>,
    },
    #[error("entry {wanted} is not in this history, which ends with {last}")]
    NotYet { wanted: u64, last: u64 },
}

fn kept_from(kept: Option<u64>) -> String {
    match kept {
        Some(kept) => {
            format!("the oldest state that is kept is the one after entry {kept}: nothing earlier can be made again")
        }
        None => "no state from before is kept: what was before came as a snapshot or was let go".to_owned(),
    }
}

fn goes_on(found: Option<u64>) -> String {
    found.map(|found| format!(", which goes on with entry {found}")).unwrap_or_default()
}

/// Which moment of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// After this entry.
    Index(u64),
    /// After the last entry that is not later.
    Time(Time),
    /// After everything that there is.
    End,
}

impl Moment {
    /// Whether what happened at this entry, at this time, belongs to it.
    pub fn holds(self, index: u64, time: Time) -> bool {
        match self {
            Moment::Index(wanted) => index <= wanted,
            Moment::Time(wanted) => time <= wanted,
            Moment::End => true,
        }
    }
}

/// Where a replay begins.
#[derive(Debug, Clone)]
pub enum Start {
    /// With the empty state and the first entry of all.
    Beginning,
    /// With the newest kept state that is not after this entry, or with the beginning.
    Snapshot { not_after: u64 },
    /// With this state, at the entry after it.
    From(Box<State>),
}

/// One entry that was applied again.
#[derive(Debug)]
pub struct Step<'a> {
    pub record: &'a JournalRecord,
    pub entry: &'a JournalEntry,
    pub applied: &'a Applied,
    /// After it.
    pub state: &'a State,
}

/// What a replay came to.
#[derive(Debug, Clone)]
pub struct Replayed {
    pub state: State,
    pub entries: u64,
}

/// Applies everything from the start up to and including the moment. `visit` sees each entry after it was applied.
pub fn replay(
    source: &dyn Source,
    start: Start,
    to: Moment,
    mut visit: impl FnMut(&Step<'_>),
) -> Result<Replayed, ReplayError> {
    replay_while(source, start, to, |step| {
        visit(step);
        ControlFlow::Continue(())
    })
}

/// The same, until whoever visits has seen enough: then it ends after that entry.
pub fn replay_while(
    source: &dyn Source,
    start: Start,
    to: Moment,
    mut visit: impl FnMut(&Step<'_>) -> ControlFlow<()>,
) -> Result<Replayed, ReplayError> {
    let state = begin(source, start)?;
    if let (Moment::Index(wanted), Some(range)) = (to, source.range())
        && wanted > *range.end()
    {
        return Err(ReplayError::NotYet { wanted, last: *range.end() });
    }
    let first = state.applied().0 + 1;
    let (parts, coming) = sync_channel::<Part>(PARTS_AHEAD);
    std::thread::scope(|scope| {
        // The sender goes with the thread, which ends the other side.
        scope.spawn(move || read_into(source, first, to, &parts));
        apply_all(state, coming, &mut visit)
    })
}

/// Everything in memory, decoded: what is left then is applying alone.
pub fn entries(source: &dyn Source) -> Result<Vec<(JournalRecord, JournalEntry)>, ReplayError> {
    let mut all: Vec<(JournalRecord, JournalEntry)> = Vec::new();
    loop {
        let next = all.last().map_or(1, |(last, _)| last.index + 1);
        let part = part(source, next, Moment::End)?;
        if part.is_empty() {
            return Ok(all);
        }
        all.extend(part);
    }
}

/// The state that a replay begins with.
pub fn begin(source: &dyn Source, start: Start) -> Result<State, ReplayError> {
    let state = match start {
        Start::From(state) => return Ok(*state),
        Start::Snapshot { not_after } => source.start(not_after)?,
        Start::Beginning => None,
    };
    match (state, source.range()) {
        (Some(state), _) => Ok(state),
        (None, Some(range)) if *range.start() > 1 => {
            let kept = source.starts().into_iter().find(|start| range.contains(&(start + 1)) || range.contains(start));
            Err(ReplayError::Begins { first: *range.start(), kept })
        }
        (None, _) => Ok(State::new()),
    }
}

type Decoded = Vec<(JournalRecord, JournalEntry)>;
type Part = Result<Decoded, ReplayError>;

fn read_into(source: &dyn Source, first: u64, to: Moment, parts: &SyncSender<Part>) {
    let mut next = first;
    loop {
        let part = part(source, next, to);
        let last = part.as_ref().ok().and_then(|part| part.last()).map(|(record, _)| record.index);
        let over = matches!(&part, Ok(part) if part.is_empty());
        // Nobody listens any more after an entry that differs.
        if over || parts.send(part).is_err() {
            return;
        }
        match last {
            Some(last) => next = last + 1,
            None => return,
        }
    }
}

/// The next entries that belong to the moment; none when there are no more.
fn part(source: &dyn Source, from: u64, to: Moment) -> Part {
    let end = source.range().map_or(0, |range| *range.end());
    let over = matches!(to, Moment::Index(wanted) if from > wanted);
    if from > end || over {
        return Ok(Decoded::new());
    }
    let records = source.read(from, PART_BYTES).map_err(|error| match error.missing() {
        Some(found) => ReplayError::Gap { index: from, found },
        None => error.into(),
    })?;
    let mut part = Decoded::with_capacity(records.len());
    for (expected, record) in (from..).zip(records) {
        if record.index != expected {
            return Err(ReplayError::Gap { index: expected, found: Some(record.index) });
        }
        if !to.holds(record.index, Time::from_millis(record.time_ms)) {
            break;
        }
        match JournalEntry::decode(&record.entry) {
            Ok(entry) => part.push((record, entry)),
            Err(error) if part.is_empty() => return Err(undecoded(source, record.index, error)),
            // What is before it counts; it comes first next time.
            Err(_) => break,
        }
    }
    Ok(part)
}

/// What stops with the program that does not know it names the one that does.
fn undecoded(history: &dyn Source, index: u64, source: DecodeError) -> ReplayError {
    match newer_writer(&source, history.version()) {
        Some(version) => ReplayError::Newer { index, version, source },
        None => ReplayError::Entry { index, source },
    }
}

fn apply_all(
    mut state: State,
    coming: Receiver<Part>,
    visit: &mut impl FnMut(&Step<'_>) -> ControlFlow<()>,
) -> Result<Replayed, ReplayError> {
    let mut entries = 0;
    for part in coming {
        for (record, entry) in part? {
            let applied = entry.apply_to(&mut state, LogIndex(record.index));
            if applied.hash.0 != record.hash {
                let (ours, theirs) = (applied.hash, Hash(record.hash));
                return Err(ReplayError::Differs { index: record.index, ours, theirs });
            }
            entries += 1;
            let step = Step { record: &record, entry: &entry, applied: &applied, state: &state };
            if visit(&step).is_break() {
                return Ok(Replayed { state, entries });
            }
        }
    }
    Ok(Replayed { state, entries })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use loadline_log::{Journal, JournalOptions, LogPosition, RealDisk, SnapshotMeta, SnapshotStore};
    use loadline_state_machine::{Actor, Command, Entry, Request, Sealed, apply};

    use super::*;
    use crate::Kept;

    /// A journal of made-up entries, written as a node writes it, with a snapshot after some. Returns the states after each.
    fn journal(folder: &Path, entries: u64, spoil: Option<u64>, snapshots: &[u64]) -> Vec<State> {
        let disk: loadline_log::SharedDisk = Arc::new(RealDisk::open(folder).unwrap());
        let journal = Journal::open(Arc::clone(&disk), JournalOptions::default()).unwrap();
        let store = SnapshotStore::open(disk, 10).unwrap();
        let mut state = State::new();
        let mut states = vec![state.clone()];
        for index in 1..=entries {
            let command = Command::CreateCluster { name: format!("c{index}") };
            let request = Request { actor: Actor::new("somebody", "test"), request_id: None, commands: vec![command] };
            let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(index * 10), requests: vec![request] });
            let applied = apply(&mut state, LogIndex(index), &sealed);
            let mut hash = applied.hash.0;
            hash[0] ^= u8::from(spoil == Some(index));
            let (entry, events) =
                (JournalEntry::encode_requests(sealed.bytes()).into(), applied.encode_events().into());
            journal
                .append(JournalRecord { index, time_ms: index * 10, hash, entry, events, keys: vec![].into() })
                .unwrap();
            states.push(state.clone());
            if snapshots.contains(&index) {
                let meta = SnapshotMeta {
                    last: Some(LogPosition { term: 1, node: 1, index }),
                    membership_at: None,
                    membership: Vec::new().into(),
                    state_hash: state.hash().0,
                    created_ms: 0,
                    group: "g".to_owned(),
                    incarnation: 1,
                };
                store.write(&meta, &state.encode()).unwrap();
            }
        }
        journal.close().unwrap();
        states
    }

    #[test]
    fn a_history_that_is_replayed_ends_with_the_state_that_it_had_at_any_moment() {
        let folder = tempfile::tempdir().unwrap();
        let states = journal(folder.path(), 2_000, None, &[]);
        let kept = Kept::open(folder.path()).unwrap();
        for (to, expected) in [
            (Moment::End, 2_000),
            (Moment::Index(2_000), 2_000),
            (Moment::Index(1), 1),
            (Moment::Index(0), 0),
            (Moment::Time(Time::from_millis(15_009)), 1_500),
            (Moment::Time(Time::from_millis(5)), 0),
        ] {
            let mut seen = 0;
            let replayed = replay(&kept, Start::Beginning, to, |step| {
                seen += 1;
                assert_eq!(step.state.applied().0, seen);
            })
            .unwrap();
            assert_eq!((seen, replayed.entries), (expected, expected), "{to:?}");
            assert_eq!(replayed.state, states[usize::try_from(expected).unwrap()], "{to:?}");
        }
    }

    #[test]
    fn a_replay_from_a_snapshot_comes_to_the_same_state() {
        let folder = tempfile::tempdir().unwrap();
        let states = journal(folder.path(), 900, None, &[300, 600]);
        let kept = Kept::open(folder.path()).unwrap();
        for (not_after, begins) in [(299, 0), (300, 300), (599, 300), (900, 600)] {
            let start = Start::Snapshot { not_after };
            let replayed = replay(&kept, start, Moment::Index(700), |_| {}).unwrap();
            assert_eq!(replayed.entries, 700 - begins);
            assert_eq!(replayed.state, states[700]);
        }
    }

    #[test]
    fn an_entry_whose_hash_is_another_is_named() {
        let folder = tempfile::tempdir().unwrap();
        journal(folder.path(), 300, Some(200), &[]);
        let kept = Kept::open(folder.path()).unwrap();
        let failed = replay(&kept, Start::Beginning, Moment::End, |_| {}).unwrap_err();
        assert!(matches!(failed, ReplayError::Differs { index: 200, .. }), "{failed}");
    }

    #[test]
    fn a_moment_that_has_not_come_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        journal(folder.path(), 30, None, &[]);
        let kept = Kept::open(folder.path()).unwrap();
        let failed = replay(&kept, Start::Beginning, Moment::Index(31), |_| {}).unwrap_err();
        assert!(matches!(failed, ReplayError::NotYet { wanted: 31, last: 30 }), "{failed}");
    }

    #[test]
    fn a_moment_in_a_gap_is_refused_with_where_the_history_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        journal(folder.path(), 30, None, &[]);
        let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
        let kept = Journal::open(disk, JournalOptions::default()).unwrap();
        kept.start_after(50, [1; 32]).unwrap();
        let (entry, events) = (JournalEntry::encode_blank().into(), vec![].into());
        let after = JournalRecord { index: 51, time_ms: 510, hash: [2; 32], entry, events, keys: vec![].into() };
        kept.append(after).unwrap();
        drop(kept);
        let kept = Kept::open(folder.path()).unwrap();
        for to in [Moment::Index(40), Moment::Time(Time::from_millis(400)), Moment::End] {
            let failed = replay(&kept, Start::Beginning, to, |_| {}).unwrap_err();
            assert_eq!(failed.to_string(), "entry 31 is not in this history, which goes on with entry 51", "{to:?}");
        }
        assert_eq!(replay(&kept, Start::Beginning, Moment::Time(Time::from_millis(299)), |_| {}).unwrap().entries, 29);
    }

    #[test]
    fn a_history_that_begins_later_is_refused_without_a_state_from_before() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
        let kept = Journal::open(disk, JournalOptions::default()).unwrap();
        kept.start_after(7, [1; 32]).unwrap();
        let (entry, events) = (JournalEntry::encode_blank().into(), vec![].into());
        kept.append(JournalRecord { index: 8, time_ms: 8, hash: [2; 32], entry, events, keys: vec![].into() }).unwrap();
        drop(kept);
        let kept = Kept::open(folder.path()).unwrap();
        let failed = replay(&kept, Start::Beginning, Moment::End, |_| {}).unwrap_err();
        assert!(matches!(failed, ReplayError::Begins { first: 8, kept: None }), "{failed}");
    }
}
