//! Segment files: their names, and making one ready.
//!
//! A segment is written full of zeros and synced, length and name included, before its first use. So the hot path only
//! overwrites bytes that exist, and `fdatasync` has no metadata to bring along.

use std::io;

use crate::disk::{Disk, DiskFile, TEMP_SUFFIX};

pub(super) const DIR: &str = "wal";
const SUFFIX: &str = ".wal";

/// No segment was ever made shorter or longer. The upper end keeps offsets within u32.
pub(super) const SEGMENT_BYTES_MIN: usize = 4 << 10;
pub(super) const SEGMENT_BYTES_MAX: usize = 1 << 30;

const NUMBER_DIGITS: usize = 16;

/// Zeros are written in pieces, each synced on its own: one sync of a whole segment would hold up the log's own syncs
/// for tens of milliseconds, since a file system's journal commits them together.
const ZERO_PIECE_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) file: Box<dyn DiskFile>,
    pub(super) capacity: usize,
}

/// What a name in the folder is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Name {
    Segment(u64),
    Temp,
    Foreign,
}

pub(super) fn path(number: u64) -> String {
    format!("{DIR}/{number:0NUMBER_DIGITS$}{SUFFIX}")
}

pub(super) fn parse_name(name: &str) -> Name {
    let (name, temp) = name.strip_suffix(TEMP_SUFFIX).map_or((name, false), |name| (name, true));
    let digits = name.strip_suffix(SUFFIX).unwrap_or_default();
    if digits.len() != NUMBER_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Name::Foreign;
    }
    match digits.parse() {
        Ok(_) if temp => Name::Temp,
        Ok(number) => Name::Segment(number),
        Err(_) => Name::Foreign,
    }
}

impl Segment {
    pub(super) fn open(disk: &dyn Disk, number: u64) -> io::Result<Self> {
        let file = disk.open(&path(number), false)?;
        let capacity = usize::try_from(file.len()?).map_err(io::Error::other)?;
        Ok(Self { number, file, capacity })
    }

    /// Makes a segment of zeros, durable down to its name.
    pub(super) fn create(disk: &dyn Disk, number: u64, bytes: usize) -> io::Result<Self> {
        let path = path(number);
        let temp = format!("{path}{TEMP_SUFFIX}");
        let made = (|| {
            let file = disk.open(&temp, true)?;
            file.set_len(0)?;
            write_zeros(&*file, 0, bytes)?;
            disk.rename(&temp, &path)?;
            Ok(file)
        })();
        let file = match made {
            Ok(file) => file,
            Err(error) => {
                // A full disk wants the bytes back; otherwise the next opening removes it.
                let _ = disk.remove(&temp);
                return Err(error);
            }
        };
        disk.sync_dir(DIR)?;
        Ok(Self { number, file, capacity: bytes })
    }

    /// Makes room for a record that is larger than a whole segment usually is.
    pub(super) fn grow(&mut self, bytes: usize) -> io::Result<()> {
        if bytes > self.capacity {
            write_zeros(&*self.file, self.capacity, bytes)?;
            self.capacity = bytes;
        }
        Ok(())
    }
}

fn write_zeros(file: &dyn DiskFile, from: usize, to: usize) -> io::Result<()> {
    let zeros = vec![0; ZERO_PIECE_BYTES.min(to - from)];
    let mut at = from;
    while at < to {
        let piece = &zeros[..zeros.len().min(to - at)];
        file.write_at(piece, at as u64)?;
        at += piece.len();
        if at < to {
            file.sync_data()?;
        }
    }
    file.sync_all()
}

/// Whether an error only means that there is no room now.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_taken() {
        assert_eq!(path(12), "wal/0000000000000012.wal");
        assert_eq!(parse_name("0000000000000012.wal"), Name::Segment(12));
        assert_eq!(parse_name("0000000000000012.wal.tmp"), Name::Temp);
        for foreign in ["12.wal", "000000000000001x.wal", "+000000000000012.wal", "notes.txt", "notes.tmp", ".wal", ""]
        {
            assert_eq!(parse_name(foreign), Name::Foreign, "{foreign}");
        }
    }
}
