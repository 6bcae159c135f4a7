//! The backends that this node can reach, by the names that clusters are placed under.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Backend;

/// Which backends there are. Every node has its own list, because addresses and secrets are a matter of the node; a cluster
/// whose backend is not in it is left alone.
#[derive(Clone, Debug, Default)]
pub struct Backends {
    by_name: BTreeMap<String, Arc<dyn Backend>>,
}

impl Backends {
    pub fn new() -> Backends {
        Backends::default()
    }

    #[must_use]
    pub fn with(mut self, name: impl Into<String>, backend: Arc<dyn Backend>) -> Backends {
        self.by_name.insert(name.into(), backend);
        self
    }

    pub fn get(&self, name: &str) -> Option<&Arc<dyn Backend>> {
        self.by_name.get(name)
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<dyn Backend>)> {
        self.by_name.iter().map(|(name, backend)| (name.as_str(), backend))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }
}
