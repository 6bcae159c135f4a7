//! Which program wrote a folder, so that one that is too old for it can say which one is not.
//!
//! A line of text in the file `program`: the newest version that ever opened the folder, or was seen at another node of the group, whose
//! entries come here. Nothing else depends on it.

use std::io;

use crate::disk::{Disk, read_all, replace_file};

const FILE: &str = "program";
/// More than any version has.
const BYTES_MAX: usize = 64;

/// The newest version that has written what is in this folder; none if nobody has noted it.
pub fn noted_program(disk: &dyn Disk) -> Option<String> {
    let file = disk.open(FILE, false).ok()?;
    let text = String::from_utf8(read_all(&*file).ok()?).ok()?;
    let version = text.trim();
    (!version.is_empty() && version.len() <= BYTES_MAX).then(|| version.to_owned())
}

/// The same, if it is newer than this one: what this one cannot read, that one can.
pub fn newer_program(disk: &dyn Disk, than: &str) -> Option<String> {
    noted_program(disk).filter(|noted| is_newer(noted, than))
}

/// Notes a version that opens this folder, or whose entries come into it, unless there was a newer one.
pub fn note_program(disk: &dyn Disk, version: &str) -> io::Result<()> {
    match noted_program(disk) {
        Some(noted) if noted == version || is_newer(&noted, version) => Ok(()),
        _ => replace_file(disk, "", FILE, format!("{version}\n").as_bytes()),
    }
}

/// Whether a version comes after another one, number by number.
pub fn is_newer(version: &str, than: &str) -> bool {
    let numbers = |text: &str| -> Vec<u64> {
        let plain = text.split(['-', '+']).next().unwrap_or_default();
        plain.split('.').map(|part| part.parse().unwrap_or(0)).collect()
    };
    numbers(version) > numbers(than)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::ModelDisk;

    #[test]
    fn the_newest_version_stays_noted() {
        let disk = ModelDisk::new(1);
        assert_eq!(noted_program(&disk), None);
        for (opened_by, noted) in [("0.1.0", "0.1.0"), ("0.10.0", "0.10.0"), ("0.9.3", "0.10.0"), ("0.10.0", "0.10.0")]
        {
            note_program(&disk, opened_by).unwrap();
            assert_eq!(noted_program(&disk).as_deref(), Some(noted), "opened by {opened_by}");
        }
    }
}
