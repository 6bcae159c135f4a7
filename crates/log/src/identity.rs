//! Who this folder belongs to.
use std::io;

use crate::disk::Disk;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub group: String,
    pub node_id: u64,
    pub name: String,
    /// The founding members (id, name, address), while the group is being founded.
    pub founding: Option<Vec<(u64, String, String)>>,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot {doing}")]
    Io { doing: String, source: io::Error },
}

impl Identity {
    pub fn load(_disk: &dyn Disk) -> Result<Option<Self>, IdentityError> {
        todo!()
    }
    pub fn store(&self, _disk: &dyn Disk) -> Result<(), IdentityError> {
        todo!()
    }
}
