//! A made-up history in memory, for tests.

use std::ops::RangeInclusive;

use loadline_log::{JournalError, JournalRecord, SigningKey};
use loadline_state_machine::{Actor, Command, Entry, JournalEntry, LogIndex, Request, Sealed, State, Time, apply};

use crate::export::{Origin, export};
use crate::replay::{Moment, Start, replay};
use crate::source::{Source, SourceError};

/// Entries of which each creates a cluster, ten milliseconds after the one before.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) records: Vec<JournalRecord>,
    /// A state that is kept, and the entry after which it was so.
    pub(crate) kept: Option<(u64, State)>,
}

impl Made {
    pub(crate) fn new(entries: u64) -> Made {
        let mut state = State::new();
        let records = (1..=entries).map(|index| record(&mut state, index, &format!("c{index}"))).collect();
        Made { records, kept: None }
    }

    /// As if these had never been here, and a snapshot stood in for them.
    pub(crate) fn without(mut self, gone: RangeInclusive<u64>) -> Made {
        let state = replay(&self, Start::Beginning, Moment::Index(*gone.end()), |_| {}).unwrap().state;
        self.kept = Some((*gone.end(), state));
        self.records.retain(|record| !gone.contains(&record.index));
        self
    }

    pub(crate) fn exported(&self, entries: RangeInclusive<u64>) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        export(self, entries, &origin(), &key(), std::fs::File::create(file.path()).unwrap(), |_, _| {}).unwrap();
        file
    }
}

pub(crate) fn record(state: &mut State, index: u64, cluster: &str) -> JournalRecord {
    let command = Command::CreateCluster { name: cluster.to_owned() };
    let request = Request { actor: Actor::new("somebody", "test"), request_id: None, commands: vec![command] };
    let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(index * 10), requests: vec![request] });
    let applied = apply(state, LogIndex(index), &sealed);
    JournalRecord {
        index,
        time_ms: applied.time.as_millis(),
        hash: applied.hash.0,
        entry: JournalEntry::encode_requests(sealed.bytes()).into(),
        events: applied.encode_events().into(),
        keys: applied.index_keys(&sealed).into(),
    }
}

pub(crate) fn key() -> SigningKey {
    SigningKey::of_seed(&[7; 32]).unwrap()
}

pub(crate) fn origin() -> Origin {
    Origin {
        group: "made-up".to_owned(),
        node_id: 1,
        node_name: "n1".to_owned(),
        incarnation: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made_ms: 0,
    }
}

impl Source for Made {
    fn range(&self) -> Option<RangeInclusive<u64>> {
        Some(self.records.first()?.index..=self.records.last()?.index)
    }

    fn stretches(&self) -> Vec<RangeInclusive<u64>> {
        let mut stretches: Vec<RangeInclusive<u64>> = Vec::new();
        for record in &self.records {
            match stretches.last_mut() {
                Some(last) if *last.end() + 1 == record.index => *last = *last.start()..=record.index,
                _ => stretches.push(record.index..=record.index),
            }
        }
        stretches
    }

    fn read(&self, from: u64, _: usize) -> Result<Vec<JournalRecord>, SourceError> {
        let at = self.records.partition_point(|record| record.index < from);
        let Some(found) = self.records.get(at) else { return Ok(Vec::new()) };
        if found.index != from {
            let missing = JournalError::Missing { index: from, next: Some(found.index) };
            return Err(SourceError::Journal(missing));
        }
        Ok((from..)
            .zip(&self.records[at..])
            .take_while(|(index, record)| record.index == *index)
            .map(|(_, record)| record.clone())
            .collect())
    }

    fn starts(&self) -> Vec<u64> {
        self.kept.iter().map(|(index, _)| *index).collect()
    }

    fn start(&self, not_after: u64) -> Result<Option<State>, SourceError> {
        Ok(self.kept.as_ref().filter(|(index, _)| *index <= not_after).map(|(_, state)| state.clone()))
    }
}
