//! The bytes of one file: as a process sees them, and as a power cut may leave them.

use std::collections::BTreeMap;

use super::random::Random;

/// What a device writes as a whole or not at all.
const SECTOR: usize = 512;

#[derive(Default)]
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    unsynced: BTreeMap<usize, Sector>,
    /// Lengths since the last `sync_all`, the durable one first; empty when the length is durable.
    lengths: Vec<usize>,
}

#[derive(Default)]
struct Sector {
    /// What it held before, the durable contents first.
    versions: Vec<Box<[u8]>>,
    /// A sync that failed has dropped it from the cache's list of things to write: a later sync passes over it, as Linux
    /// does, unless it is written again.
    forgotten: bool,
}

impl Contents {
    /// A file that has been there for ever.
    pub(super) fn durable(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::default() }
    }

    pub(super) fn write(&mut self, buf: &[u8], offset: usize) {
        if buf.is_empty() {
            return;
        }
        let end = offset + buf.len();
        self.remember(offset / SECTOR..=(end - 1) / SECTOR);
        self.resize(self.bytes.len().max(end));
        self.bytes[offset..end].copy_from_slice(buf);
    }

    pub(super) fn set_len(&mut self, len: usize) {
        if len < self.bytes.len() {
            // The bytes that are cut off are in doubt with the length: they may come back.
            self.remember(len / SECTOR..=(self.bytes.len() - 1) / SECTOR);
        }
        self.resize(len);
    }

    pub(super) fn sync(&mut self, with_length: bool) {
        self.unsynced.retain(|_, sector| sector.forgotten);
        if with_length {
            self.lengths.clear();
        }
    }

    pub(super) fn fail_sync(&mut self) {
        for sector in self.unsynced.values_mut() {
            sector.forgotten = true;
        }
    }

    /// Keeps what these sectors hold as one of the things that a power cut may leave.
    fn remember(&mut self, sectors: std::ops::RangeInclusive<usize>) {
        for sector in sectors {
            let before = self.sector(sector);
            let entry = self.unsynced.entry(sector).or_default();
            entry.versions.push(before);
            entry.forgotten = false;
        }
    }

    fn resize(&mut self, len: usize) {
        if len != self.bytes.len() {
            self.lengths.push(self.bytes.len());
            self.bytes.resize(len, 0);
        }
    }

    fn sector(&self, sector: usize) -> Box<[u8]> {
        let mut held = vec![0; SECTOR].into_boxed_slice();
        let start = (sector * SECTOR).min(self.bytes.len());
        let end = ((sector + 1) * SECTOR).min(self.bytes.len());
        held[..end - start].copy_from_slice(&self.bytes[start..end]);
        held
    }

    /// Decides which of the unsynced writes the cut spares.
    pub(super) fn settle(&mut self, random: &mut Random) {
        let lengths = std::mem::take(&mut self.lengths);
        let durable_len = lengths.first().copied().unwrap_or(self.bytes.len());
        let len = lengths.get(random.pick(lengths.len() + 1)).copied().unwrap_or(self.bytes.len());
        // A cut of the file that does not survive brings back what was cut off.
        let len_max = lengths.iter().copied().fold(self.bytes.len(), usize::max);
        self.bytes.resize(len_max, 0);
        // Whole outcomes (nothing, everything) are the likely ones in practice and would be rare among coin flips.
        let fate = random.below(4);
        for (number, mut sector) in std::mem::take(&mut self.unsynced) {
            let now = self.sector(number);
            sector.versions.push(now);
            let newest = sector.versions.len() - 1;
            let kept = match fate {
                0 => 0,
                1 => newest,
                // Seen as a torn write: most arrives, a little does not.
                2 if random.below(8) > 0 => newest,
                _ => random.pick(sector.versions.len()),
            };
            let mut bytes = std::mem::take(&mut sector.versions[kept]);
            if kept == 0 && number * SECTOR >= durable_len && random.below(8) == 0 {
                // The file grew into blocks that held something else before.
                bytes.iter_mut().for_each(|byte| [*byte, ..] = random.next().to_le_bytes());
            }
            let start = (number * SECTOR).min(self.bytes.len());
            let end = ((number + 1) * SECTOR).min(self.bytes.len());
            self.bytes[start..end].copy_from_slice(&bytes[..end - start]);
        }
        self.bytes.resize(len, 0);
    }
}
