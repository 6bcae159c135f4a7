//! Finding things in a history without going through all of it: an index says where to look, the history what happened there.
//!
//! A node has its audit index for that; whoever has only a file goes through it once and makes one ([`Scanned`]). The keys are the
//! same, since every record carries its own. That one is on disk, too, while it is used: a history may be larger than memory.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use loadline_log::{AuditIndex, IndexError, JournalRecord};
use loadline_state_machine::{
    Cause, ClusterId, DecodeError, Event, JournalEntry, ResourceName, Revision, State, Time, audit,
    decode_caused_events,
};
use rusqlite::{Connection, params};

use crate::source::{Source, SourceError, newer_writer};
use crate::words::ClusterNames;

/// Bytes of records that are read at once.
const PART_BYTES: usize = 1 << 20;
/// Entries that are found at once.
const FOUND_AT_ONCE: usize = 256;
/// Memory that the index of a file may take before it goes to disk, in KiB.
const INDEX_CACHE_KIB: i64 = 64 << 10;

/// Why nothing could be found.
#[derive(Debug, thiserror::Error)]
pub enum TrailError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the audit index cannot be read")]
    Index(#[from] IndexError),
    #[error("entry {index} of the history cannot be decoded")]
    Entry { index: u64, source: DecodeError },
    #[error("entry {index} of the history was written by version {version}, and this is version {}", env!("CARGO_PKG_VERSION"))]
    Newer { index: u64, version: String, source: DecodeError },
    #[error("entry {index} is not in this history, which lacks entries {first} to {last}; another node may have them")]
    Lacks { index: u64, first: u64, last: u64 },
    #[error("{count} decisions were recorded at entry {index}: name one of them, such as {last}")]
    Several { index: u64, count: usize, last: Revision },
    #[error("the history cannot be indexed")]
    Sqlite(#[from] rusqlite::Error),
}

/// From the keys of records to their entries.
pub trait Index: fmt::Debug {
    /// Entries before this one that carry the key: the newest first, at most so many.
    fn find(&self, key: &[u8], before: Option<u64>, limit: usize) -> Result<Vec<u64>, TrailError>;
}

impl Index for AuditIndex {
    fn find(&self, key: &[u8], before: Option<u64>, limit: usize) -> Result<Vec<u64>, TrailError> {
        Ok(AuditIndex::find(self, key, before, limit)?)
    }
}

/// An index of whoever has gone through the whole history: a SQLite database without a name, which is in memory as long as it is small
/// and goes when it is dropped.
#[derive(Debug)]
pub struct Scanned {
    by_key: Connection,
}

impl Scanned {
    /// Goes through everything. `tell` hears of every entry.
    pub fn read(source: &dyn Source, mut tell: impl FnMut()) -> Result<Scanned, TrailError> {
        let by_key = Connection::open("")?;
        by_key.pragma_update(None, "journal_mode", "OFF")?;
        by_key.pragma_update(None, "synchronous", "OFF")?;
        by_key.pragma_update(None, "cache_size", -INDEX_CACHE_KIB)?;
        by_key.execute_batch("CREATE TABLE found (key BLOB NOT NULL, entry INTEGER NOT NULL); BEGIN")?;
        Self::fill(&by_key, source, &mut tell)?;
        // All at once, sorted: key by key it would be written all over the place.
        by_key.execute_batch("CREATE INDEX by_key ON found (key, entry); COMMIT")?;
        Ok(Scanned { by_key })
    }

    fn fill(by_key: &Connection, source: &dyn Source, tell: &mut impl FnMut()) -> Result<(), TrailError> {
        let Some(range) = source.range() else { return Ok(()) };
        let mut insert = by_key.prepare("INSERT INTO found (key, entry) VALUES (?1, ?2)")?;
        let mut next = *range.start();
        while next <= *range.end() {
            let records = match read(source, next, PART_BYTES)? {
                Read::Records(records) => records,
                Read::Behind(Some(on)) => {
                    next = on;
                    continue;
                }
                Read::Behind(None) => break,
            };
            for record in &records {
                tell();
                // Times are in the records themselves, in order.
                for key in record.keys.iter().filter(|key| !audit::is_time_key(key)) {
                    insert.execute(params![key, record.index.cast_signed()])?;
                }
                next = record.index + 1;
            }
        }
        Ok(())
    }
}

impl Index for Scanned {
    fn find(&self, key: &[u8], before: Option<u64>, limit: usize) -> Result<Vec<u64>, TrailError> {
        let mut find = self
            .by_key
            .prepare("SELECT entry FROM found WHERE key = ?1 AND entry < ?2 ORDER BY entry DESC LIMIT ?3")?;
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let before = before.map_or(i64::MAX, number);
        let rows = find.query_map(params![key, before, number(limit as u64)], |row| row.get::<_, i64>(0))?;
        Ok(rows.map(|entry| entry.map(i64::cast_unsigned)).collect::<Result<_, _>>()?)
    }
}

/// What was read.
enum Read {
    Records(Vec<JournalRecord>),
    /// There is nothing here; the next entry that there is.
    Behind(Option<u64>),
}

fn read(source: &dyn Source, from: u64, bytes_max: usize) -> Result<Read, TrailError> {
    match source.range() {
        Some(range) if from < *range.start() => return Ok(Read::Behind(Some(*range.start()))),
        Some(range) if from <= *range.end() => {}
        _ => return Ok(Read::Behind(None)),
    }
    match source.read(from, bytes_max) {
        Ok(records) if records.is_empty() => Ok(Read::Behind(None)),
        Ok(records) => Ok(Read::Records(records)),
        Err(error) => match error.missing() {
            Some(next) => Ok(Read::Behind(next)),
            None => Err(error.into()),
        },
    }
}

/// Who asked for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    pub actor: String,
    pub source: String,
    pub proof: String,
    pub request_id: Option<String>,
}

impl From<&loadline_state_machine::Request> for Who {
    fn from(request: &loadline_state_machine::Request) -> Who {
        Who {
            actor: request.actor.name.clone(),
            source: request.actor.source.clone(),
            proof: crate::part::proof_words(&request.actor.proof),
            request_id: request.request_id.map(|id| id.to_string()),
        }
    }
}

/// One entry, opened.
#[derive(Debug)]
pub struct Opened {
    pub index: u64,
    pub at: Time,
    pub entry: JournalEntry,
    pub events: Vec<(Cause, Event)>,
}

impl Opened {
    fn of(record: &JournalRecord, source: &dyn Source) -> Result<Opened, TrailError> {
        let index = record.index;
        let failed = |error| match newer_writer(&error, source.version()) {
            Some(version) => TrailError::Newer { index, version, source: error },
            None => TrailError::Entry { index, source: error },
        };
        Ok(Opened {
            index,
            at: Time::from_millis(record.time_ms),
            entry: JournalEntry::decode(&record.entry).map_err(failed)?,
            events: decode_caused_events(&record.events).map_err(failed)?,
        })
    }

    pub fn who(&self, cause: Cause) -> Option<Who> {
        crate::part::asker(&self.entry, cause).map(Who::from)
    }
}

/// A history with an index.
#[derive(Clone, Copy, Debug)]
pub struct Trail<'a> {
    pub source: &'a dyn Source,
    pub index: &'a dyn Index,
}

impl<'a> Trail<'a> {
    /// What stood at one index; nothing if this history does not have it.
    pub fn at(&self, index: u64) -> Result<Option<Opened>, TrailError> {
        match read(self.source, index, 1)? {
            Read::Records(records) => {
                let found = records.first().filter(|record| record.index == index);
                found.map(|record| Opened::of(record, self.source)).transpose()
            }
            Read::Behind(_) => Ok(None),
        }
    }

    /// Entries in order, from one to another, both included, until whoever looks has seen enough (says false).
    pub fn walk(&self, from: u64, to: u64, mut look: impl FnMut(&Opened) -> bool) -> Result<(), TrailError> {
        let mut next = from;
        while next <= to {
            match read(self.source, next, PART_BYTES)? {
                Read::Records(records) => {
                    for record in records.iter().take_while(|record| record.index <= to) {
                        if !look(&Opened::of(record, self.source)?) {
                            return Ok(());
                        }
                    }
                    next = records.last().map_or(to, |last| last.index) + 1;
                }
                Read::Behind(Some(on)) => next = on,
                Read::Behind(None) => return Ok(()),
            }
        }
        Ok(())
    }

    /// The last entry that is not later than this time; nothing if all are.
    pub fn not_after(&self, time: Time) -> Result<Option<u64>, TrailError> {
        let Some(range) = self.source.range() else { return Ok(None) };
        let (mut low, mut high) = (*range.start(), *range.end() + 1);
        // Times never go back, so the entries that are not later come first.
        while low < high {
            let middle = low + (high - low) / 2;
            let found = match read(self.source, middle, 1)? {
                Read::Records(records) => records.first().map(|record| (record.index, record.time_ms)),
                Read::Behind(Some(on)) => match read(self.source, on, 1)? {
                    Read::Records(records) => records.first().map(|record| (record.index, record.time_ms)),
                    Read::Behind(_) => None,
                },
                Read::Behind(None) => None,
            };
            match found {
                Some((index, millis)) if Time::from_millis(millis) <= time => low = index + 1,
                _ => high = middle,
            }
        }
        Ok((low > *range.start()).then(|| low - 1))
    }

    /// The last entry up to one, that included, that carries the key.
    pub fn last(&self, key: &[u8], up_to: u64) -> Result<Option<u64>, TrailError> {
        Ok(self.index.find(key, up_to.checked_add(1), 1)?.first().copied())
    }

    /// Every entry up to one, that included, that carries the key, the oldest first, at most so many of the newest.
    pub fn all(&self, key: &[u8], up_to: u64, most: usize) -> Result<Vec<u64>, TrailError> {
        let mut found = Vec::new();
        let mut before = up_to.checked_add(1);
        while found.len() < most {
            let part = self.index.find(key, before, FOUND_AT_ONCE)?;
            let Some(last) = part.last() else { break };
            before = Some(*last);
            found.extend(part);
        }
        found.truncate(most);
        found.reverse();
        Ok(found)
    }

    /// What this history does not have, as far as it goes.
    pub fn gaps(&self) -> Vec<RangeInclusive<u64>> {
        let mut gaps = Vec::new();
        let mut next = 1;
        for stretch in self.source.stretches() {
            if next < *stretch.start() {
                gaps.push(next..=*stretch.start() - 1);
            }
            next = *stretch.end() + 1;
        }
        gaps
    }

    /// The cluster of this name or id: the one that is called so now, or was the last to be.
    pub fn cluster_named(&self, name: &str, state: Option<&State>) -> Result<Option<ClusterId>, TrailError> {
        if let Some(cluster) = state.and_then(|state| state.cluster(name)) {
            return Ok(Some(cluster.id));
        }
        let key = audit::resource_key(&ResourceName::cluster(name));
        for entry in self.index.find(&key, None, FOUND_AT_ONCE)? {
            let Some(opened) = self.at(entry)? else { continue };
            let named = opened.events.iter().rev().find_map(|(_, event)| match event {
                Event::ClusterCreated { cluster }
                | Event::ClusterRestored { cluster }
                | Event::ClusterPlaced { cluster, .. }
                | Event::ClusterDropped { cluster }
                    if cluster.name == name =>
                {
                    Some(cluster.id)
                }
                Event::ClusterRenamed { from, cluster } if cluster.name == name || from == name => Some(cluster.id),
                _ => None,
            });
            if named.is_some() {
                return Ok(named);
            }
        }
        Ok(name.parse().ok())
    }
}

/// The state with which a history begins that is only a part: what was there before is told by nothing else.
pub fn beginning(source: &dyn Source) -> Result<Option<State>, TrailError> {
    match (source.range(), source.starts().first()) {
        (Some(range), Some(first)) if *range.start() > 1 => Ok(source.start(*first)?),
        _ => Ok(None),
    }
}

/// What clusters are called: as the state at hand says, and those that are gone as the history had them.
#[derive(Debug)]
pub struct TrailNames<'a> {
    trail: Trail<'a>,
    state: Option<&'a State>,
    /// The state with which a history begins that is only a part.
    before: Option<&'a State>,
    renamed: OnceCell<BTreeMap<ClusterId, String>>,
    known: RefCell<BTreeMap<ClusterId, Option<String>>>,
}

impl<'a> TrailNames<'a> {
    pub fn new(trail: Trail<'a>, state: Option<&'a State>) -> TrailNames<'a> {
        TrailNames { trail, state, before: None, renamed: OnceCell::new(), known: RefCell::default() }
    }

    /// What nothing in the history tells is as it was before.
    pub fn beginning_with(self, before: Option<&'a State>) -> TrailNames<'a> {
        TrailNames { before, ..self }
    }

    /// The last names of those that were renamed; there are few.
    fn renamed(&self) -> &BTreeMap<ClusterId, String> {
        const RENAMED: u16 = 21;
        self.renamed.get_or_init(|| {
            let mut names = BTreeMap::new();
            // A name that cannot be found out is no reason to say nothing: the id is said instead.
            for entry in self.trail.all(&audit::event_key(RENAMED), u64::MAX, usize::MAX).unwrap_or_default() {
                let Ok(Some(opened)) = self.trail.at(entry) else { continue };
                for (_, event) in opened.events {
                    if let Event::ClusterRenamed { cluster, .. } = event {
                        names.insert(cluster.id, cluster.name);
                    }
                }
            }
            names
        })
    }

    /// An id says at which entry its cluster came to be.
    fn at_birth(&self, id: ClusterId) -> Option<String> {
        let opened = self.trail.at(id.index.0).ok().flatten()?;
        opened.events.into_iter().find_map(|(_, event)| match event {
            Event::ClusterCreated { cluster } | Event::ClusterRestored { cluster } if cluster.id == id => {
                Some(cluster.name)
            }
            _ => None,
        })
    }
}

impl ClusterNames for TrailNames<'_> {
    fn name_of(&self, cluster: ClusterId) -> Option<String> {
        if let Some(found) = self.state.and_then(|state| state.cluster_by_id(cluster)) {
            return Some(found.name.clone());
        }
        if let Some(known) = self.known.borrow().get(&cluster) {
            return known.clone();
        }
        let name = self.renamed().get(&cluster).cloned().or_else(|| self.at_birth(cluster));
        let name = name.or_else(|| Some(self.before?.cluster_by_id(cluster)?.name.clone()));
        self.known.borrow_mut().insert(cluster, name.clone());
        name
    }
}
