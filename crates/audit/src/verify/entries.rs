//! What each entry leads to when it is applied once more, and what is kept with it beside its hash: events, time, and the keys that it is
//! found under. Where no state from before an entry is kept, all that can be told from its bytes.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use loadline_log::JournalRecord;
use loadline_state_machine::{Event, Hash, JournalEntry, LogIndex, State, Time, audit, decode_events};

use super::{Finding, Progress, Verdict, with_causes};
use crate::replay::{Moment, ReplayError, Start, Step, replay};
use crate::source::{Source, newer_writer};

/// Bytes of records that are read at once where nothing is replayed.
const PART_BYTES: usize = 1 << 20;

/// The settings under which a node lets old segments go.
const LIMITS: [&str; 2] = ["journal_retention", "journal_bytes_max"];

const OTHER_KEYS: &str = "it is kept under other keys than those by which it would be found";
const OTHER_TIME: &str = "it is recorded at another time than it happened";
const OTHER_STATE: &str = "the snapshot after it holds another state than the entries lead to";

/// What a history says of how much of it may be let go.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    /// There was a state to ask.
    pub(super) known: bool,
    /// At some time something could be let go, or that cannot be excluded.
    pub(super) set: bool,
}

impl Limits {
    fn ask(&mut self, state: &State) {
        self.known = true;
        self.set |= !state.journal_limits().is_none();
    }

    /// Of events whose state is not known. What sets a limit back says that there was one.
    fn hear(&mut self, events: &[Event]) {
        self.set |= events.iter().any(|event| match event {
            Event::SettingSet { name, .. } | Event::SettingReset { name, .. } | Event::SettingRestored { name, .. } => {
                LIMITS.contains(&name.as_str())
            }
            Event::RestoreFinished { .. } => true,
            _ => false,
        });
    }
}

fn is_about_settings(event: &Event) -> bool {
    matches!(
        event,
        Event::SettingSet { .. }
            | Event::SettingReset { .. }
            | Event::SettingRestored { .. }
            | Event::RestoreFinished { .. }
    )
}

impl Verdict {
    pub(super) fn replay(
        &mut self,
        source: &dyn Source,
        stretch: &RangeInclusive<u64>,
        limits: &mut Limits,
        tell: &mut impl FnMut(Progress),
    ) {
        let (mut first, last) = (*stretch.start(), *stretch.end());
        let mut start = Start::Beginning;
        let snapshots = source.starts();
        if first > 1 {
            // The first state that belongs to this stretch. What is before it has only its chain.
            let kept = snapshots.iter().copied().find(|start| (first - 1..=last).contains(start));
            let unreplayed = first..=kept.unwrap_or(last);
            if let Err(finding) = self.follow_chain(source, &unreplayed, limits, tell) {
                self.findings.push(finding);
                return;
            }
            let Some(kept) = kept else { return };
            match source.start(kept) {
                Ok(Some(state)) => {
                    self.notes.push(taken_on_trust(kept));
                    limits.ask(&state);
                    start = Start::From(Box::new(state));
                }
                Ok(None) => return,
                Err(error) => {
                    self.findings.push(Finding::of_source(&error));
                    return;
                }
            }
            first = kept + 1;
        } else {
            limits.known = true;
        }
        let total = last + 1 - first;
        let mut differs = None;
        let (applied, hash) = (Cell::new(0), Cell::new(None));
        let mut others = Vec::new();
        // An entry that nobody ever proposed may break an assumption of the state machine.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            replay(source, start, Moment::Index(last), |step| {
                applied.set(applied.get() + 1);
                if applied.get() % 1_024 == 0 || applied.get() == total {
                    tell(Progress::Replaying { done: applied.get(), total });
                }
                if step.applied.events.iter().any(is_about_settings) {
                    limits.ask(step.state);
                }
                if differs.is_none() {
                    differs = look_at(step);
                    if differs.is_none() {
                        hash.set(Some(step.applied.hash));
                    }
                }
                if snapshots.contains(&step.record.index) {
                    others.extend(compare_state(source, step));
                }
            })
        }));
        self.replayed += applied.get();
        self.hash = hash.get().or(self.hash);
        self.findings.extend(differs);
        self.findings.extend(others);
        match ended {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => self.findings.push(finding_of_replay(&error)),
            Err(_) => self.findings.push(Finding::at(first + applied.get(), "applying it ends in a broken assumption")),
        }
    }

    /// Computes every hash from the one before it and the bytes of the entry, without knowing the state; and what else follows from those
    /// bytes.
    fn follow_chain(
        &mut self,
        source: &dyn Source,
        stretch: &RangeInclusive<u64>,
        limits: &mut Limits,
        tell: &mut impl FnMut(Progress),
    ) -> Result<(), Finding> {
        if stretch.is_empty() {
            return Ok(());
        }
        let total = stretch.end() + 1 - stretch.start();
        let mut next = *stretch.start();
        // What is before the first one is not here, but the segment that begins with it says what it goes on from.
        let known = source.hash_after(next - 1).map_err(|error| Finding::of_source(&error))?;
        let mut chain = Chain { hash: known, time: None };
        while next <= *stretch.end() {
            let records = source.read(next, PART_BYTES).map_err(|error| Finding::of_source(&error))?;
            if records.is_empty() {
                return Err(Finding::at(next, "it cannot be read"));
            }
            for record in records.iter().take_while(|record| stretch.contains(&record.index)) {
                chain.take(record, source, limits).map_err(|what| Finding::at(record.index, what))?;
                next = record.index + 1;
                self.chained += 1;
            }
            tell(Progress::Replaying { done: self.chained, total });
        }
        self.hash = chain.hash.or(self.hash);
        Ok(())
    }
}

/// What is known after an entry without its state.
struct Chain {
    hash: Option<Hash>,
    time: Option<Time>,
}

impl Chain {
    /// Goes on by one entry, or says what is wrong with it.
    fn take(&mut self, record: &JournalRecord, source: &dyn Source, limits: &mut Limits) -> Result<(), String> {
        let has = Hash(record.hash);
        if let Some(before) = self.hash {
            let gives = JournalEntry::link(before, LogIndex(record.index), &record.entry, &record.events);
            if gives != Some(has) {
                return Err("its hash does not follow from its bytes and the hash before it".to_owned());
            }
        }
        self.hash = Some(has);
        let unreadable = |error| match newer_writer(&error, source.version()) {
            Some(version) => format!(
                "it was written by version {version}, and this is version {}: {error}",
                env!("CARGO_PKG_VERSION")
            ),
            None => format!("it cannot be decoded: {error}"),
        };
        let entry = JournalEntry::decode(&record.entry).map_err(unreadable)?;
        let events = decode_events(&record.events).map_err(unreadable)?;
        limits.hear(&events);
        let at = Time::from_millis(record.time_ms);
        let stamped = match &entry {
            JournalEntry::Requests(sealed) => sealed.entry().stamped_at,
            // Their events are no part of the hash, because there are none.
            JournalEntry::Blank | JournalEntry::Membership(_) if events.is_empty() => Time::default(),
            JournalEntry::Blank | JournalEntry::Membership(_) => {
                return Err("it brings nothing about, and comes with events".to_owned());
            }
        };
        // Of the first one it is only known that time does not go back.
        let right = self.time.map_or(at >= stamped, |before| at == before.max(stamped));
        if !right {
            return Err(OTHER_TIME.to_owned());
        }
        self.time = Some(at);
        match are_keys_of(record, &entry, &events, at) {
            true => Ok(()),
            false => Err(OTHER_KEYS.to_owned()),
        }
    }
}

/// Whether a record is kept under the keys that follow from it. They are in no hash, and whoever looks for something in a history trusts
/// them: what they do not name is not found.
fn are_keys_of(record: &JournalRecord, entry: &JournalEntry, events: &[Event], time: Time) -> bool {
    match entry {
        JournalEntry::Requests(sealed) => *record.keys == *audit::entry_keys(sealed, events, time),
        JournalEntry::Blank | JournalEntry::Membership(_) => record.keys.is_empty(),
    }
}

/// What the hash does not cover, or covers only together with the rest.
fn look_at(step: &Step<'_>) -> Option<Finding> {
    let (record, applied) = (step.record, step.applied);
    if record.events[..] != *applied.events_bytes().as_slice() {
        return Some(Finding::at(record.index, "it brings about other events than are recorded"));
    }
    if Time::from_millis(record.time_ms) != applied.time {
        return Some(Finding::at(record.index, OTHER_TIME));
    }
    if !are_keys_of(record, step.entry, &applied.events, applied.time) {
        return Some(Finding::at(record.index, OTHER_KEYS));
    }
    None
}

/// Whether the state that is kept after an entry is the one that the entry leads to. The hash that it states is not computed from what it
/// holds, so somebody who alters it and leaves the hash alone is found only here. One at a time is in memory.
fn compare_state(source: &dyn Source, step: &Step<'_>) -> Option<Finding> {
    match source.start(step.record.index) {
        // What counts is what a snapshot of either would hold: the same may be kept in memory in two ways.
        Ok(Some(state)) if state.hash() == step.applied.hash && state.encode() != step.state.encode() => {
            Some(Finding::at(step.record.index, OTHER_STATE))
        }
        // One that cannot be read, or is of another history, is said when the snapshots are gone through.
        _ => None,
    }
}

fn taken_on_trust(index: u64) -> String {
    format!(
        "the state after entry {index} is taken on trust: no entry up to it is here that leads to it, and its hash says nothing of what it holds. Compare it with another node"
    )
}

fn finding_of_replay(error: &ReplayError) -> Finding {
    match error {
        ReplayError::Source(error) => Finding::of_source(error),
        ReplayError::Differs { index, ours, theirs } => {
            Finding::at(*index, format!("it leads to the hash {ours}, and {theirs} is recorded"))
        }
        ReplayError::Entry { index, .. } | ReplayError::Newer { index, .. } | ReplayError::Gap { index, .. } => {
            Finding::at(*index, with_causes(error))
        }
        other => Finding::whole(with_causes(other)),
    }
}
