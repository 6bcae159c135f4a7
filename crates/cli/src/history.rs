//! Where a command gets a history from: an export, the folder of a node that has stopped, or, with neither, the running group of the
//! context, whose history is exported into a temporary file.
//!
//! Whatever it is read from, it is the same to whoever reads it: a [`loadline_audit::Source`].

use std::path::{Path, PathBuf};

use clap::Args;
use loadline_audit::{ExportFile, Kept, Moment, ReplayError, Source, SourceError, Start, with_causes};
use loadline_client::{HistoryBound, HistoryRange};
use loadline_state_machine::{State, Time};

use crate::commands::Session;
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::meter::Meter;

/// Which history; that of the running group if none is named.
#[derive(Debug, Clone, Args)]
pub(crate) struct HistoryArgs {
    /// Read an export; no node is needed
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    pub(crate) file: Option<PathBuf>,
    /// Read the folder of a node that is stopped
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// A history, and what to call it.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) source: Box<dyn Source>,
    /// For people: which file or folder.
    pub(crate) called: String,
    /// Where it is kept for as long as it is read.
    _temp: Option<tempfile::NamedTempFile>,
}

impl HistoryArgs {
    /// Whether one is named; without, a running group is asked.
    pub(crate) fn is_given(&self) -> bool {
        self.file.is_some() || self.data_dir.is_some()
    }

    /// The one that is named.
    pub(crate) fn open(&self, console: &mut Console) -> Result<History, Failed> {
        match (&self.file, &self.data_dir) {
            (Some(file), _) => of_file(file, file.display().to_string(), None, console.watched),
            (None, Some(folder)) => of_folder(folder, console),
            (None, None) => {
                Err(Failed::usage("which history? Name an export with --file, or a folder with --data-dir"))
            }
        }
    }
}

/// Every byte of it is read once before anything else, with a bar if somebody watches.
fn of_file(
    path: &Path,
    called: String,
    temp: Option<tempfile::NamedTempFile>,
    watched: bool,
) -> Result<History, Failed> {
    if !path.exists() {
        return Err(Failed::new(Exit::NotFound, format!("{called} is not there")));
    }
    let mut meter = Meter::start(watched);
    let opened = ExportFile::open_telling(path, |done, total| meter.bytes("reading", done, total));
    drop(meter);
    let file = opened.map_err(|error| {
        unreadable(&called, &error).hint(format!("what is wrong with it: loadline audit verify {called}"))
    })?;
    Ok(History { source: Box::new(file), called, _temp: temp })
}

fn of_folder(folder: &Path, console: &mut Console) -> Result<History, Failed> {
    let called = folder.display().to_string();
    check_is_data_folder(folder)?;
    let kept = Kept::open(folder).map_err(|error| {
        let failed = unreadable(&called, &error);
        match error {
            SourceError::Open(_) => failed,
            _ => failed.hint(format!("what is wrong with it: loadline audit verify --data-dir {called}")),
        }
    })?;
    for note in kept.notes() {
        console.warn(note);
    }
    Ok(History { source: Box::new(kept), called, _temp: None })
}

/// What only a node makes. Any of it will do: a folder of which something was taken away is just what is to be looked at.
const OF_A_NODE: [&str; 4] = ["journal", "snapshots", "wal", "identity"];

/// Refuses what is no data folder, with the one that may have been meant.
pub(crate) fn check_is_data_folder(folder: &Path) -> Result<(), Failed> {
    let is_one = |folder: &Path| OF_A_NODE.iter().any(|part| folder.join(part).exists());
    if is_one(folder) {
        return Ok(());
    }
    let called = folder.display();
    if !folder.is_dir() {
        return Err(Failed::new(Exit::NotFound, format!("{called} is not there, or not a folder")));
    }
    let failed = Failed::new(Exit::NotFound, format!("{called} is not the data folder of a node: it has no journal"));
    let inner = folder.join("data");
    Err(if is_one(&inner) { failed.hint(format!("did you mean --data-dir {}?", inner.display())) } else { failed })
}

fn unreadable(called: &str, error: &SourceError) -> Failed {
    Failed::new(Exit::Failure, format!("{called}: {}", with_causes(error)))
}

impl History {
    /// Everything that a node of the running group keeps without a gap.
    pub(crate) async fn of_group(session: &Session<'_>) -> Result<History, Failed> {
        let range = HistoryRange { from: None, to: None, reading: session.reading };
        History::fetched(session, &range).await
    }

    /// The same, only from one moment to another where that can be had: a node makes the state before the first of them from the newest one
    /// that it keeps.
    pub(crate) async fn of_group_from(session: &Session<'_>, from: Moment, to: Moment) -> Result<History, Failed> {
        let applied = match from {
            Moment::End => session.client.status().await.ok().map(|status| status.applied_index),
            _ => None,
        };
        if let Some((from, to)) = near(from, to, applied) {
            let bound = HistoryBound::Index;
            let range = HistoryRange { from: Some(bound(from)), to: to.map(bound), reading: session.reading };
            // What is wrong with it is said of the whole.
            if let Ok(history) = History::fetched(session, &range).await {
                return Ok(history);
            }
        }
        History::of_group(session).await
    }

    async fn fetched(session: &Session<'_>, range: &HistoryRange) -> Result<History, Failed> {
        let mut temp = tempfile::NamedTempFile::new()?;
        let watched = session.console.watched;
        crate::commands::audit::fetch(&session.client, range, temp.as_file_mut(), watched).await?;
        let path = temp.path().to_owned();
        of_file(&path, "the history of the group".to_owned(), Some(temp), watched)
    }

    /// Says that there was no kept state to begin with, to somebody who asked for one.
    pub(crate) fn say_if_from_the_beginning(&self, near: bool, start: &Start, console: &mut Console) {
        if near && !matches!(start, Start::From(_)) {
            let called = &self.called;
            console.say(&format!(
                "{called} has no state that is kept from before that moment: every entry is applied, from the first on"
            ));
        }
    }

    /// Where a replay to a moment begins: with the first entry of all, or, if the history has only a later part, with the state that
    /// it begins with. `near`: with the newest kept state before the moment, whatever else there is.
    pub(crate) fn start(&self, to: Moment, near: bool) -> Result<Start, Failed> {
        let Some(range) = self.source.range() else { return Ok(Start::Beginning) };
        if near {
            return self.nearest(to, *range.end());
        }
        let within = match to {
            Moment::Index(index) => index,
            Moment::Time(_) | Moment::End => *range.end(),
        };
        let stretches = self.source.stretches();
        let Some(stretch) = stretches.into_iter().find(|stretch| stretch.contains(&within)) else {
            return self.nearest(to, *range.end());
        };
        if *stretch.start() == 1 {
            return Ok(Start::Beginning);
        }
        // The oldest state from which everything can be replayed that there is without a gap.
        let oldest = self.source.starts().into_iter().find(|start| start + 1 >= *stretch.start());
        match oldest.map_or(Ok(None), |oldest| self.kept(oldest))? {
            Some(state) if to.holds(state.applied().0, state.now()) => Ok(Start::From(Box::new(state))),
            _ => self.nearest(to, *range.end()),
        }
    }

    /// Of a time, it is not known before which entry that is: the newest state of all that is early enough is looked for from the end.
    fn nearest(&self, to: Moment, end: u64) -> Result<Start, Failed> {
        let mut not_after = match to {
            Moment::Index(index) => index,
            Moment::Time(_) | Moment::End => end,
        };
        loop {
            match self.kept(not_after)? {
                None => return Ok(Start::Beginning),
                Some(state) if to.holds(state.applied().0, state.now()) => return Ok(Start::From(Box::new(state))),
                Some(state) => match state.applied().0.checked_sub(1) {
                    Some(before) => not_after = before,
                    None => return Ok(Start::Beginning),
                },
            }
        }
    }

    fn kept(&self, not_after: u64) -> Result<Option<State>, Failed> {
        self.source.start(not_after).map_err(|error| unreadable(&self.called, &error))
    }

    /// How many entries a replay will go through, as far as that can be told.
    pub(crate) fn expected(&self, start: &Start, to: Moment) -> Option<u64> {
        let end = match to {
            Moment::Index(index) => index,
            Moment::Time(_) => return None,
            Moment::End => *self.source.range()?.end(),
        };
        let began = match start {
            Start::From(state) => state.applied().0,
            Start::Beginning | Start::Snapshot { .. } => 0,
        };
        Some(end.saturating_sub(began))
    }

    /// Says of a time after the last entry that it is answered with the end: what happened in between is not known here.
    pub(crate) fn say_if_later(&self, flag: &str, to: Moment, reached: (u64, Time), console: &mut Console) {
        let Moment::Time(wanted) = to else { return };
        let (index, at) = reached;
        let ends_here = self.source.range().is_none_or(|range| *range.end() <= index);
        if ends_here && wanted > at {
            let called = &self.called;
            console
                .say(&format!("{flag} {wanted} is after the end of {called}: this is its last entry, {index} ({at})"));
        }
    }

    /// Refuses a moment at which nothing had happened yet, of which there is no state to show. Before a leader has stamped its first entry there
    /// is no time.
    pub(crate) fn check_has_begun(&self, to: Moment, reached: &State) -> Result<(), Failed> {
        let wanted = match to {
            Moment::Index(0) => "index 0".to_owned(),
            Moment::Time(wanted) if reached.now() == Time::default() && wanted > reached.now() => wanted.to_string(),
            _ => return Ok(()),
        };
        let called = &self.called;
        Err(Failed::new(
            Exit::NotFound,
            format!("{wanted} is before the beginning of {called}: nothing had happened yet"),
        ))
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> Option<u64> {
        self.source.range().map(|range| range.end() - range.start() + 1)
    }
}

/// The first and the last entry that are needed between two moments; none if that cannot be told. No last one: everything that there is.
/// `applied`: how far the group is.
fn near(from: Moment, to: Moment, applied: Option<u64>) -> Option<(u64, Option<u64>)> {
    let from = match from {
        Moment::Index(index) => index,
        Moment::End => applied?,
        // Before which entry that is, only a whole history tells.
        Moment::Time(_) => return None,
    };
    let to = match to {
        Moment::Index(index) => Some(index),
        Moment::Time(_) | Moment::End => None,
    };
    // With the first entry everything begins.
    (from > 1 && to.is_none_or(|to| from <= to)).then_some((from, to))
}

impl From<ReplayError> for Failed {
    fn from(error: ReplayError) -> Failed {
        let exit = match error {
            ReplayError::NotYet { .. } | ReplayError::Begins { .. } | ReplayError::Gap { .. } => Exit::NotFound,
            _ => Exit::Failure,
        };
        let failed = Failed::new(exit, with_causes(&error));
        match error {
            ReplayError::Begins { .. } | ReplayError::Gap { .. } => {
                failed.hint("a node that was there from the start, or an export of it, has more")
            }
            ReplayError::Differs { .. } => {
                failed.hint("the history was changed since it was made: see loadline audit verify")
            }
            _ => failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use loadline_audit::replay;
    use loadline_log::{Journal, JournalOptions, JournalRecord, RealDisk};
    use loadline_state_machine::{Actor, Command, Entry, JournalEntry, LogIndex, Request, Sealed, apply, pass};

    use super::*;

    /// A blank entry before there is any time, then one cluster every ten seconds; entries 31 to 50 never came.
    fn with_a_gap() -> (tempfile::TempDir, History) {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Arc::new(RealDisk::open(folder.path()).expect("a disk"));
        let journal = Journal::open(disk, JournalOptions::default()).expect("a journal");
        let mut state = State::new();
        for index in 1..=60 {
            let (applied, entry) = match index {
                1 => (pass(&mut state, LogIndex(1), &[]), JournalEntry::encode_blank()),
                _ => {
                    let commands = vec![Command::CreateCluster { name: format!("c{index}") }];
                    let request = Request { actor: Actor::new("somebody", "test"), request_id: None, commands };
                    let entry = Entry { stamped_at: Time::from_millis(index * 10_000), requests: vec![request] };
                    let sealed = Sealed::seal(entry);
                    (apply(&mut state, LogIndex(index), &sealed), JournalEntry::encode_requests(sealed.bytes()))
                }
            };
            let (time_ms, hash) = (applied.time.as_millis(), applied.hash.0);
            let events = applied.encode_events().into();
            let record = JournalRecord { index, time_ms, hash, entry: entry.into(), events, keys: vec![].into() };
            match index {
                50 => journal.start_after(index, hash).expect("a gap"),
                31..50 => {}
                _ => journal.append(record).expect("a record"),
            }
        }
        journal.close().expect("closed");
        drop(journal);
        let source = Box::new(Kept::open(folder.path()).expect("a history"));
        (folder, History { source, called: "it".to_owned(), _temp: None })
    }

    fn at(history: &History, to: Moment) -> Result<u64, Failed> {
        let start = history.start(to, false)?;
        let state = replay(&*history.source, start, to, |_| {})?.state;
        history.check_has_begun(to, &state)?;
        Ok(state.applied().0)
    }

    #[test]
    fn a_moment_in_a_gap_is_not_there_and_says_in_words_where_the_history_goes_on() {
        let (_folder, history) = with_a_gap();
        for to in [Moment::Index(40), Moment::Time(Time::from_millis(401_000)), Moment::Index(55)] {
            let failed = at(&history, to).expect_err("it is not there");
            assert_eq!(failed.exit, Exit::NotFound, "{to:?}: {failed:?}");
            assert_eq!(failed.message, "entry 31 is not in this history, which goes on with entry 51", "{to:?}");
        }
        assert_eq!(at(&history, Moment::Index(30)), Ok(30));
        assert_eq!(at(&history, Moment::Time(Time::from_millis(299_999))), Ok(29));
    }

    #[test]
    fn a_moment_before_the_first_entry_is_not_there() {
        let (_folder, history) = with_a_gap();
        for to in [Moment::Time(Time::from_millis(19_999)), Moment::Index(0)] {
            let failed = at(&history, to).expect_err("nothing had happened");
            assert_eq!(failed.exit, Exit::NotFound, "{to:?}: {failed:?}");
            assert!(failed.message.contains("is before the beginning of it"), "{failed:?}");
        }
        assert_eq!(at(&history, Moment::Time(Time::from_millis(20_000))), Ok(2));
        assert_eq!(at(&history, Moment::Index(1)), Ok(1));
    }

    #[test]
    fn of_a_running_group_only_what_is_needed_is_asked_for() {
        let (index, end, time) = (Moment::Index, Moment::End, Moment::Time(Time::from_millis(5)));
        for (from, to, expected) in [
            (index(40), index(40), Some((40, Some(40)))),
            (index(40), index(60), Some((40, Some(60)))),
            (index(40), end, Some((40, None))),
            (index(40), time, Some((40, None))),
            (end, end, Some((99, None))),
            (time, time, None),
            (index(60), index(40), None),
            (index(1), index(60), None),
            (index(0), index(0), None),
        ] {
            assert_eq!(near(from, to, Some(99)), expected, "from {from:?} to {to:?}");
        }
        assert_eq!(near(end, end, None), None, "nobody said how far the group is");
    }
}
