//! Whether an index that is there can be answered from.
//!
//! Per interval of log indexes there is a mark: how many keys were inserted, and the hash of the last record. The marks are
//! compared with the keys and with the journal. After an orderly close a hash of sled's files stands in for the count.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use super::{FILLED_KEY, FORMAT, FORMAT_KEY, INTERVAL, KEYS, MARKS, SLED_DIR, split_entry};
use crate::{
    encoding::{Fields, Malformed, PutFields as _},
    journal::{Journal, JournalError},
};

/// The file that says how sled's files looked when the index was closed. It is there only while the index is not open.
const SEAL_FILE: &str = "seal";

/// What was inserted for one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) keys: u64,
    /// The last record, and its hash.
    pub(super) last: u64,
    pub(super) hash: [u8; 32],
}

impl Mark {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.keys);
        out.put_u64(self.last);
        out.put_raw(&self.hash);
        out
    }

    fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        let mark = Self { keys: fields.u64()?, last: fields.u64()?, hash: fields.array()? };
        fields.end()?;
        Ok(mark)
    }
}

pub(super) fn mark_key(interval: u64) -> Vec<u8> {
    let mut key = vec![MARKS];
    key.extend_from_slice(&interval.to_be_bytes());
    key
}

/// What a check comes to.
#[derive(Debug)]
pub(super) enum Found {
    /// How far the journal is indexed.
    Usable {
        through: Option<u64>,
    },
    Unusable(&'static str),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CheckError {
    #[error(transparent)]
    Sled(#[from] sled::Error),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

pub(super) fn check(db: &sled::Db, journal: &Journal, closed_in_order: bool) -> Result<Found, CheckError> {
    if db.get(FORMAT_KEY)?.as_deref() != Some(FORMAT) {
        return Ok(Found::Unusable("it is of another format"));
    }
    // Before everything that costs time: it may have been known when the process ended, and nothing else on disk tells of it.
    let known = filled(db)?;
    let is_known = |part: &RangeInclusive<u64>| {
        known.iter().any(|known| known.start() <= part.start() && part.end() <= known.end())
    };
    if !journal.filled_gaps().iter().all(is_known) {
        return Ok(Found::Unusable("older entries were fetched since"));
    }
    let mut marks = BTreeMap::new();
    for item in db.scan_prefix([MARKS]) {
        let (key, value) = item?;
        let interval = key.get(1..).and_then(|key| <[u8; 8]>::try_from(key).ok()).map(u64::from_be_bytes);
        match (interval, Mark::decode(&value)) {
            (Some(interval), Ok(mark)) if mark.last / INTERVAL == interval => marks.insert(interval, mark),
            _ => return Ok(Found::Unusable("a mark cannot be read")),
        };
    }
    let end = journal.last_index();
    let ahead = marks.values().next_back().is_some_and(|mark| Some(mark.last) > end);
    if ahead {
        // The journal lost its unsynced tail in a crash, and the index did not. The entries will come again, but until then
        // nothing may be found that cannot be shown; and some of the interval in which the journal now ends went with it.
        forget_from(db, end.map_or(0, |end| end / INTERVAL), &mut marks)?;
    }
    if !closed_in_order || ahead {
        let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
        for item in db.scan_prefix([KEYS]) {
            let (entry, _) = item?;
            match split_entry(&entry) {
                Some((_, interval)) => *counted.entry(interval).or_default() += 1,
                None => return Ok(Found::Unusable("an entry cannot be read")),
            }
        }
        let mut expected: BTreeMap<u64, u64> = marks.iter().map(|(interval, mark)| (*interval, mark.keys)).collect();
        expected.retain(|_, keys| *keys > 0);
        // What was being written when the process ended has no mark, and is behind everything that has one.
        let unfinished = marks.keys().next_back().map_or(0, |last| last + 1);
        if !counted.split_off(&unfinished).is_empty() {
            forget_from(db, unfinished, &mut marks)?;
        }
        if counted != expected {
            return Ok(Found::Unusable("keys are missing"));
        }
    }
    let Some((_, mark)) = marks.last_key_value() else {
        return Ok(Found::Usable { through: None });
    };
    // The oldest and the newest: whoever has the same records at both ends has the same between, the hashes are a chain. What the
    // journal has let go cannot be compared any more; it is found, and shown to nobody.
    let first = journal.first_index();
    for mark in marks.values().find(|mark| Some(mark.last) >= first).into_iter().chain([mark]) {
        if journal.hash_at(mark.last)? != Some(mark.hash) {
            return Ok(Found::Unusable("it belongs to another journal"));
        }
    }
    Ok(Found::Usable { through: Some(mark.last) })
}

/// Notes which filled gaps of the journal will be found when it is gone through from here on. One that is filled later is older than what is
/// indexed by then, and would never be looked at.
pub(super) fn put_filled(db: &sled::Db, journal: &Journal) -> Result<(), sled::Error> {
    let mut out = Vec::new();
    for part in journal.filled_gaps() {
        out.put_u64(*part.start());
        out.put_u64(*part.end());
    }
    db.insert(FILLED_KEY, out).map(drop)
}

/// What was noted; nothing where it cannot be read, so that whatever was filled is looked at again.
fn filled(db: &sled::Db) -> Result<Vec<RangeInclusive<u64>>, sled::Error> {
    let noted = db.get(FILLED_KEY)?.unwrap_or_default();
    let (mut fields, mut filled) = (Fields(&noted), Vec::new());
    while let (Ok(first), Ok(last)) = (fields.u64(), fields.u64()) {
        filled.push(first..=last);
    }
    Ok(filled)
}

/// Takes back what was inserted for `interval` and later ones.
fn forget_from(db: &sled::Db, interval: u64, marks: &mut BTreeMap<u64, Mark>) -> Result<(), sled::Error> {
    for item in db.scan_prefix([KEYS]) {
        let (entry, _) = item?;
        if split_entry(&entry).is_some_and(|(_, of)| of >= interval) {
            db.remove(entry)?;
        }
    }
    for interval in marks.split_off(&interval).into_keys() {
        db.remove(mark_key(interval))?;
    }
    Ok(())
}

/// Removes the seal and says whether sled's files are still what it says.
pub(super) fn take_seal(dir: &Path) -> io::Result<bool> {
    let path = dir.join(SEAL_FILE);
    let seal = match fs::read(&path) {
        Ok(seal) => seal,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    fs::remove_file(&path)?;
    File::open(dir)?.sync_all()?;
    // Files that cannot even be read are in doubt like any that have changed.
    Ok(hash_files(dir).is_ok_and(|hash| seal == hash.as_bytes()))
}

/// Makes sled's files durable, which sled does not, and notes how they look.
pub(super) fn put_seal(dir: &Path) -> io::Result<()> {
    for path in files(&dir.join(SLED_DIR))? {
        File::open(path)?.sync_all()?;
    }
    let seal = dir.join(SEAL_FILE);
    fs::write(&seal, hash_files(dir)?.as_bytes())?;
    File::open(&seal)?.sync_all()?;
    File::open(dir)?.sync_all()
}

fn hash_files(dir: &Path) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    for path in files(&dir.join(SLED_DIR))? {
        hasher.update(path.as_os_str().as_encoded_bytes());
        hasher.update(&fs::metadata(&path)?.len().to_le_bytes());
        io::copy(&mut File::open(&path)?, &mut hasher)?;
    }
    Ok(hasher.finalize())
}

/// All files below a folder, sorted.
fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => {
            for entry in entries? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    found.extend(files(&entry.path())?);
                } else {
                    found.push(entry.path());
                }
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}
