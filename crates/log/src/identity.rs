//! Who this folder belongs to: the group, and this node's id in it.
//!
//! The id lives here and not in a pod's ordinal: a node whose folder was emptied has forgotten its votes and must not come
//! back under its old id.

use std::io;

use crate::{
    HOW_TO_RECOVER,
    disk::{Disk, read_all, replace_file},
    encoding::{Fields, Malformed, PutFields as _},
    frame::{Chain, Family, Walk},
};

const FILE: &str = "identity";
const KIND: u16 = 1;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Id of the Raft group.
    pub group: String,
    pub node_id: u64,
    /// The configured name under which the id was given.
    pub name: String,
    /// The founding members (id, name, address), for a node that was there when the group came into being.
    pub founding: Option<Vec<(u64, String, String)>>,
}

/// Why the identity could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot {doing} the file identity")]
    Io { doing: &'static str, source: io::Error },
    #[error("the file identity is damaged: {what}; {HOW_TO_RECOVER}")]
    Damaged { what: String },
}

impl Identity {
    /// What the folder says; `None` for a folder that belongs to nobody yet.
    pub fn load(disk: &dyn Disk) -> Result<Option<Self>, IdentityError> {
        let file = match disk.open(FILE, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(IdentityError::Io { doing: "open", source }),
        };
        let bytes = read_all(&*file).map_err(|source| IdentityError::Io { doing: "read", source })?;
        let damaged = |what: &str| IdentityError::Damaged { what: what.to_owned() };
        let mut walk = Walk::new(&bytes, Family::Identity, 0, Some(0));
        let frame = walk.next_frame().map_err(|error| damaged(&error.to_string()))?;
        match frame {
            Some(frame) if frame.kind == KIND && frame.end() == bytes.len() => {
                Self::decode(frame.body).map(Some).map_err(|error| damaged(&error.to_string()))
            }
            _ => Err(damaged("it is not one intact record")),
        }
    }

    /// Puts it in place: afterwards the folder says this, or, after a crash in the middle, what it said before.
    pub fn store(&self, disk: &dyn Disk) -> Result<(), IdentityError> {
        let mut bytes = Vec::new();
        let mut chain = Chain { family: Family::Identity, segment: 0, link: 0 };
        chain
            .put(&mut bytes, KIND, 0, |out| self.encode(out))
            .map_err(io::Error::from)
            .and_then(|()| replace_file(disk, "", FILE, &bytes))
            .map_err(|source| IdentityError::Io { doing: "write", source })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_bytes(self.group.as_bytes());
        out.put_u64(self.node_id);
        out.put_bytes(self.name.as_bytes());
        out.put_option(self.founding.as_ref(), |out, founding| {
            out.put_u64(founding.len() as u64);
            for (id, name, address) in founding {
                out.put_u64(*id);
                out.put_bytes(name.as_bytes());
                out.put_bytes(address.as_bytes());
            }
        });
    }

    fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        let identity = Self {
            group: fields.string()?,
            node_id: fields.u64()?,
            name: fields.string()?,
            founding: fields.option(|fields| {
                let count = fields.u64()?;
                (0..count).map(|_| Ok((fields.u64()?, fields.string()?, fields.string()?))).collect()
            })?,
        };
        fields.end()?;
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{ModelDisk, TEMP_SUFFIX};

    fn identity(node_id: u64) -> Identity {
        Identity {
            group: "0193-abc".to_owned(),
            node_id,
            name: "n1".to_owned(),
            founding: Some(vec![(1, "n1".to_owned(), "h1:7".to_owned()), (2, "n2".to_owned(), "h2:7".to_owned())]),
        }
    }

    #[test]
    fn what_was_stored_is_loaded_and_an_empty_folder_belongs_to_nobody() {
        let dir = tempfile::TempDir::new().unwrap();
        let real = crate::disk::RealDisk::open(dir.path()).unwrap();
        let model = ModelDisk::new(1);
        for disk in [&real as &dyn Disk, &model] {
            assert_eq!(Identity::load(disk).unwrap(), None);
            for stored in [identity(1), Identity { founding: None, ..identity(7) }] {
                stored.store(disk).unwrap();
                assert_eq!(Identity::load(disk).unwrap(), Some(stored));
            }
        }
    }

    #[test]
    fn a_power_cut_while_storing_leaves_the_old_or_the_new() {
        for seed in 0..40 {
            for cut_at in 1..8 {
                let disk = ModelDisk::new(seed);
                identity(1).store(&disk).unwrap();
                disk.cut_power_at(cut_at);
                let stored = identity(2).store(&disk).is_ok();
                disk.power_cut();
                let disk = disk.reopen();
                let found = Identity::load(&disk).unwrap().unwrap();
                assert!(found == identity(2) || (found == identity(1) && !stored), "seed {seed}, cut at {cut_at}");
                identity(3).store(&disk).unwrap();
                assert!(!disk.exists(&format!("{FILE}{TEMP_SUFFIX}")).unwrap());
            }
        }
    }

    #[test]
    fn any_flipped_bit_is_refused_with_the_way_out() {
        let disk = ModelDisk::new(1);
        identity(1).store(&disk).unwrap();
        for offset in 0..disk.contents(FILE).unwrap().len() as u64 {
            disk.flip_bit(FILE, offset, 2).unwrap();
            let message = Identity::load(&disk).unwrap_err().to_string();
            assert!(message.contains("remove-peer"), "{message}");
            disk.flip_bit(FILE, offset, 2).unwrap();
        }
        disk.place(FILE, b"garbage").unwrap();
        assert!(Identity::load(&disk).is_err());
    }
}
