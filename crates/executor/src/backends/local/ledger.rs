//! The ledger: one file that every node of a machine and every replica appends to, and the book that follows from it.
//!
//! There is no lock on it. A lock would be held by somebody, and who is stopped while holding one stops everybody else. What
//! there is instead:
//!
//! - **One order of things.** A record is one `write` to a file that was opened for appending. The kernel puts such writes one
//!   after another, each as a whole. The place in the file is the order, for everybody alike.
//! - **Written first, judged afterwards.** Whoever has written a record reads the ledger to its end and sees in the [`Book`] whether it
//!   counts. Whoever is stopped *before* the write finds, when it goes on, that its record stands behind what others wrote
//!   meanwhile, and is judged by that; whoever is stopped *after* the write has it written. There is no third place.
//! - **On disk before anything follows from it.** A record is synced, and with it all that stand before it, before its writer acts.
//! - **Torn records do not count.** Each has a checksum and is written between two line breaks, so that the rest of one that was cut
//!   off, by a death or a full disk, spoils only itself.
//!
//! It stays small without ever being replaced, which would need a lock again: an image of the book is appended now and then, and the
//! space before the image is given back to the disk as a hole. Offsets keep their meaning for ever.
//!
//! The file must be on a local disk: network file systems do not keep the promise about appending.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use serde::{Deserialize, Serialize};

use super::book::{Book, Record};

/// Begins every line: which format it is in.
const FORMAT: &str = "L1";

/// When an image is due, and in what steps space is given back. The step is a multiple of every block size there is: inside a
/// block the system could only write zeros, which nobody could tell from damage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
    pub(super) image_after: u64,
    pub(super) hole_step: u64,
    pub(super) settled_kept_for: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            image_after: 8 << 20,
            hole_step: 1 << 20,
            // See `SETTLED_KEPT` in the book for why a key that is older, and not among the newest, cannot come again.
            settled_kept_for: Duration::from_secs(24 * 60 * 60),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LedgerError {
    #[error("the ledger {path} cannot be {doing}: {source}")]
    Io { path: String, doing: &'static str, source: io::Error },
    #[error("the ledger {path} has a record that this version does not know ({problem}); is a newer one running?")]
    NotUnderstood { path: String, problem: String },
    #[error("the ledger {path} does not begin with what was before")]
    NoImage { path: String },
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    id: String,
    at: u64,
    record: Record,
}

#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    file: File,
    /// Up to where the book has been read.
    read: u64,
    /// Where the last image was taken.
    imaged: u64,
    book: Book,
    tuning: Tuning,
}

/// Milliseconds since 1970. For people and for retention; never for the order of things.
pub(super) fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Ledger {
    pub(super) fn open(folder: &Path) -> Result<Ledger, LedgerError> {
        Ledger::open_with(folder, Tuning::default())
    }

    pub(super) fn open_with(folder: &Path, tuning: Tuning) -> Result<Ledger, LedgerError> {
        let path = folder.join("ledger");
        let failed = |doing| move |source| LedgerError::Io { path: folder.display().to_string(), doing, source };
        std::fs::create_dir_all(folder).map_err(failed("put into its folder"))?;
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed("opened"))?;
        // The name itself must survive a power cut, or the next one to come would start an empty ledger.
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("made durable"))?;
        let mut ledger = Ledger { path, file, read: 0, imaged: 0, book: Book::default(), tuning };
        ledger.catch_up()?;
        Ok(ledger)
    }

    /// The book as far as it has been read.
    pub(super) fn book(&self) -> &Book {
        &self.book
    }

    /// Whether anything was written since the book was read.
    pub(super) fn has_grown(&self) -> bool {
        // Who cannot tell reads, and finds out.
        self.file.metadata().map_or(true, |metadata| metadata.len() > self.read)
    }

    /// Whether the file has been removed, usually with its folder.
    pub(super) fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }

    /// Writes a record, makes it durable, and reads on to the end, so that the book tells whether it counts. Answers its id.
    pub(super) fn append(&mut self, record: Record) -> Result<String, LedgerError> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let line = Line { id: id.clone(), at: now_millis(), record };
        let text = serde_json::to_string(&line)
            .map_err(|error| self.failed("written", io::Error::new(io::ErrorKind::InvalidData, error)))?;
        let bytes = format!("\n{FORMAT} {:08x} {text}\n", crc32c::crc32c(text.as_bytes()));
        // One write and no more: a second one could come behind a record of somebody else.
        let written = loop {
            match self.file.write(bytes.as_bytes()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => break written.map_err(|error| self.failed("written", error))?,
            }
        };
        if written < bytes.len() {
            return Err(self.failed("written", io::Error::new(io::ErrorKind::WriteZero, "only a part fitted")));
        }
        self.file.sync_data().map_err(|error| self.failed("made durable", error))?;
        self.catch_up()?;
        Ok(id)
    }

    /// Reads what was written since.
    pub(super) fn catch_up(&mut self) -> Result<(), LedgerError> {
        let unread = self.bytes_from(self.read)?;
        // Looked at after reading: a hole only grows, so what lies behind it now was whole when it was read.
        if self.start()? > self.read {
            return self.begin_again();
        }
        self.fold(&unread)
    }

    /// Who slept while the beginning was given back starts with the image that made that possible.
    fn begin_again(&mut self) -> Result<(), LedgerError> {
        loop {
            let start = self.start()?;
            let bytes = self.bytes_from(start)?;
            if self.start()? != start {
                continue;
            }
            let image = lines(&bytes).find_map(|line| match self.understand(line) {
                Ok(Some(Line { record: Record::Image { as_of, book }, .. })) if as_of >= start => Some((as_of, book)),
                _ => None,
            });
            let Some((as_of, book)) = image else {
                return Err(LedgerError::NoImage { path: self.path.display().to_string() });
            };
            self.book = *book;
            self.read = as_of;
            self.imaged = as_of;
            let skipped = usize::try_from(as_of - start).unwrap_or(usize::MAX).min(bytes.len());
            return self.fold(&bytes[skipped..]);
        }
    }

    /// Takes in all complete lines. One that is not complete is being written at this moment, or never will be.
    fn fold(&mut self, bytes: &[u8]) -> Result<(), LedgerError> {
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in lines(&bytes[..end]) {
            if let Some(Line { id, at, record }) = self.understand(line)? {
                if let Record::Image { as_of, .. } = record {
                    self.imaged = self.imaged.max(as_of);
                }
                self.book.take(&id, at, &record);
            }
        }
        self.read += end as u64;
        Ok(())
    }

    /// Nothing for a line that is damaged: whoever wrote it was cut off, and has not acted on it.
    fn understand(&self, line: &[u8]) -> Result<Option<Line>, LedgerError> {
        let Ok(line) = std::str::from_utf8(line) else { return Ok(None) };
        let Some((format, rest)) = line.split_once(' ') else { return Ok(None) };
        let Some((crc, text)) = rest.split_once(' ') else { return Ok(None) };
        if u32::from_str_radix(crc, 16) != Ok(crc32c::crc32c(text.as_bytes())) {
            return Ok(None);
        }
        let not_understood = |problem| LedgerError::NotUnderstood { path: self.path.display().to_string(), problem };
        if format != FORMAT {
            return Err(not_understood(format!("format {format}")));
        }
        serde_json::from_str(text).map(Some).map_err(|error| not_understood(error.to_string()))
    }

    /// Forgets what is old and gives back the space of what an image has made superfluous, if there is enough of it.
    pub(super) fn tidy(&mut self) -> Result<(), LedgerError> {
        if self.read.saturating_sub(self.imaged) < self.tuning.image_after {
            return Ok(());
        }
        let kept = u64::try_from(self.tuning.settled_kept_for.as_millis()).unwrap_or(u64::MAX);
        self.append(Record::Forgotten { before_millis: now_millis().saturating_sub(kept) })?;
        let as_of = self.read;
        self.append(Record::Image { as_of, book: Box::new(self.book.clone()) })?;
        // The image is on disk. That it was also read back says that it is whole.
        let hole = as_of - as_of % self.tuning.hole_step;
        if hole > 0 && self.imaged >= as_of {
            let punched = fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, hole);
            match punched {
                // A file system that cannot do it keeps everything.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) => return Err(self.failed("shortened", error.into())),
            }
        }
        Ok(())
    }

    /// Where the hole at the beginning ends.
    fn start(&self) -> Result<u64, LedgerError> {
        match seek(&self.file, SeekFrom::Data(0)) {
            Ok(start) => Ok(start),
            // There is nothing in it.
            Err(rustix::io::Errno::NXIO) => Ok(0),
            Err(error) => Err(self.failed("read", error.into())),
        }
    }

    fn bytes_from(&self, offset: u64) -> Result<Vec<u8>, LedgerError> {
        let (mut bytes, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            match self.file.read_at(&mut chunk, offset + bytes.len() as u64) {
                Ok(0) => return Ok(bytes),
                Ok(count) => bytes.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read", error)),
            }
        }
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> LedgerError {
        LedgerError::Io { path: self.path.display().to_string(), doing, source }
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::{ClusterId, Epoch, LogIndex};

    use super::*;
    use crate::backends::local::book::{Ending, Intent, Progress, Ticket, Verb};

    const TICKET: Ticket = Ticket { epoch: Epoch { incarnation: 1, index: LogIndex(5) }, attempt: 1 };

    fn asked(key: &str) -> Record {
        let cluster = ClusterId { index: LogIndex(7), ordinal: 0 };
        let (name, size) = ("r1".to_owned(), "s".repeat(100));
        let intent = Intent { verb: Verb::Create, cluster, name, size, incarnation: None };
        Record::Asked { key: key.to_owned(), ticket: TICKET, parameters: "p".to_owned(), intent }
    }

    fn begun(key: &str, life: &str) -> Record {
        Record::Begun { key: key.to_owned(), ticket: TICKET, incarnation: Some(life.to_owned()) }
    }

    fn made(ledger: &Ledger, key: &str) -> Option<String> {
        match &ledger.book().entry(key)?.progress {
            Progress::Settled { ending: Ending::Created { incarnation }, .. } => Some(incarnation.clone()),
            _ => None,
        }
    }

    #[test]
    fn whoever_reads_the_same_ledger_comes_to_the_same_book() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = Ledger::open(folder.path()).unwrap();
        let mut other = Ledger::open(folder.path()).unwrap();
        one.append(asked("k1")).unwrap();
        assert!(other.has_grown());
        other.append(begun("k1", "a")).unwrap();
        one.append(begun("k1", "b")).unwrap();
        other.catch_up().unwrap();
        assert_eq!(made(&one, "k1").as_deref(), Some("a"), "the first one in the file");
        assert_eq!(one.book(), other.book());
        assert_eq!(Ledger::open(folder.path()).unwrap().book(), one.book());
    }

    /// Many writers at once, each in a thread with a file of its own as it would be in a process: none is lost, none is torn, and each key
    /// begins once.
    #[test]
    fn many_writers_at_once_agree_who_was_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path()).unwrap();
        for number in 0..20 {
            ledger.append(asked(&format!("k{number}"))).unwrap();
        }
        let seen: Vec<Vec<Option<String>>> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let folder = folder.path();
                    scope.spawn(move || {
                        let mut ledger = Ledger::open(folder).unwrap();
                        let mut seen = Vec::new();
                        for number in 0..20 {
                            let key = format!("k{number}");
                            ledger.append(begun(&key, &format!("life of {writer}"))).unwrap();
                            seen.push(made(&ledger, &key));
                        }
                        seen
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        assert!(seen[0].iter().all(Option::is_some), "each key has begun");
        assert!(seen.iter().all(|one| *one == seen[0]), "and everybody saw the same begin: {seen:?}");
    }

    #[test]
    fn what_was_cut_off_spoils_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let mut ledger = Ledger::open(folder.path()).unwrap();
        ledger.append(asked("k1")).unwrap();
        let whole = std::fs::read(&path).unwrap();
        // The same record once more, cut off at every length: somebody died while it was written.
        for length in 1..whole.len() - 1 {
            let torn = &whole[..length];
            std::fs::write(&path, [&whole[..], torn].concat()).unwrap();
            let mut ledger = Ledger::open(folder.path()).unwrap();
            ledger.append(asked("k2")).unwrap();
            assert!(ledger.book().entry("k1").is_some() && ledger.book().entry("k2").is_some(), "{length}");
            let again = Ledger::open(folder.path()).unwrap();
            assert_eq!(again.book(), ledger.book(), "{length}");
        }
    }

    #[test]
    fn a_record_of_a_newer_version_stops_the_reader() {
        let folder = tempfile::tempdir().unwrap();
        for (format, text) in [("L2", "{}"), (FORMAT, r#"{"id":"x","at":1,"record":{"melted":{}}}"#)] {
            let line = format!("\n{format} {:08x} {text}\n", crc32c::crc32c(text.as_bytes()));
            std::fs::write(folder.path().join("ledger"), line).unwrap();
            let error = Ledger::open(folder.path()).unwrap_err();
            assert!(matches!(error, LedgerError::NotUnderstood { .. }), "{error}");
        }
    }

    #[test]
    fn an_image_frees_the_space_and_whoever_slept_finds_the_way_back() {
        let folder = tempfile::tempdir().unwrap();
        let tuning = Tuning { image_after: 96 << 10, hole_step: 64 << 10, ..Tuning::default() };
        let mut sleeper = Ledger::open_with(folder.path(), tuning).unwrap();
        let mut ledger = Ledger::open_with(folder.path(), tuning).unwrap();
        ledger.append(asked("first")).unwrap();
        ledger.append(begun("first", "a")).unwrap();
        sleeper.catch_up().unwrap();
        // Not by `append`, which waits for the disk each time.
        for number in 0..4_000 {
            let line = Line { id: format!("i{number}"), at: 1, record: begun("nobody's", "x") };
            let text = serde_json::to_string(&line).unwrap();
            writeln!(ledger.file, "\n{FORMAT} {:08x} {text}", crc32c::crc32c(text.as_bytes())).unwrap();
        }
        ledger.catch_up().unwrap();
        let full = std::fs::metadata(folder.path().join("ledger")).unwrap();
        ledger.tidy().unwrap();
        let tidy = std::fs::metadata(folder.path().join("ledger")).unwrap();
        assert!(tidy.len() > full.len(), "offsets keep their meaning");
        assert!(tidy.blocks() < full.blocks() / 2, "{} of {} blocks are left", tidy.blocks(), full.blocks());
        assert!(ledger.start().unwrap() > sleeper.read, "the sleeper's place is not there any more");

        ledger.append(asked("second")).unwrap();
        sleeper.catch_up().unwrap();
        let fresh = Ledger::open_with(folder.path(), tuning).unwrap();
        for reader in [&sleeper, &fresh] {
            assert_eq!(reader.book(), ledger.book());
            assert_eq!(made(reader, "first").as_deref(), Some("a"));
        }
        // And there is nothing more to do, for anybody.
        for mut reader in [ledger, sleeper, fresh] {
            let before = reader.read;
            reader.tidy().unwrap();
            assert_eq!(reader.read, before);
        }
    }
}
