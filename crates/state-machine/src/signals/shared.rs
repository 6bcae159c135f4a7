//! Names that many clusters use are kept once. A hundred thousand clusters with a replica called `r1_auto` would else keep a
//! hundred thousand copies of it, each in a place of its own that every look at the cluster has to fetch.

use crate::table::{Key, Table};

/// Beyond, names are not shared any more: they are not the same everywhere then.
const NAMES_MAX: usize = 4_096;

/// Only a matter of memory: two states that share different names are equal, and it is not written to snapshots.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedNames {
    names: Table<Key, ()>,
}

impl PartialEq for SharedNames {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SharedNames {}

impl SharedNames {
    pub(crate) fn key(&mut self, name: &str) -> Key {
        if let Some((key, ())) = self.names.get_key_value(name) {
            return Key::clone(key);
        }
        let key: Key = name.into();
        if self.names.len() < NAMES_MAX {
            self.names.insert(Key::clone(&key), ());
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_and_there_is_an_end_to_it() {
        let mut shared = SharedNames::default();
        assert!(Key::ptr_eq(&shared.key("r1_auto"), &shared.key("r1_auto")));
        for number in 0..2 * NAMES_MAX {
            assert_eq!(shared.key(&number.to_string()).as_ref(), number.to_string());
        }
        assert_eq!(shared.names.len(), NAMES_MAX);
        assert_eq!(shared, SharedNames::default());
    }
}
