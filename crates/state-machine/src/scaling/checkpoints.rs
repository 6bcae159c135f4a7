//! Which backends keep a checkpoint of a replica that is suspended, so that the one that comes back can go on from it.
//!
//! What a backend can do is known to whoever calls it, and what is planned must be the same on every node. So the leader puts it
//! into the log when it finds out, and from there on a suspension there has one step more. A backend of which nobody has
//! said anything keeps none.
//!
//! Not here: when the step is taken (`operations`), and what a checkpoint is. That is the backend's.

use super::Scaling;
use super::claims::check_epoch;
use crate::names::check_name;
use crate::table::Key;
use crate::{ClusterId, Epoch, Event, Field, Rejection, State};

pub(crate) fn describe(state: &State, epoch: Epoch, backend: &str, checkpoints: bool) -> Result<Vec<Event>, Rejection> {
    check_epoch(state, epoch)?;
    check_name(Field::Backend, backend)?;
    if state.keeps_checkpoints(backend) == checkpoints {
        return Ok(vec![]);
    }
    Ok(vec![Event::BackendDescribed { backend: backend.into(), checkpoints }])
}

pub(crate) fn described(scaling: &mut Scaling, backend: &Key, checkpoints: bool) {
    match checkpoints {
        true => scaling.checkpointing.insert(backend.clone(), ()),
        false => scaling.checkpointing.remove(backend),
    };
}

impl State {
    /// Whether this backend keeps a checkpoint of what is suspended, as far as a leader has said so.
    pub fn keeps_checkpoints(&self, backend: &str) -> bool {
        self.scaling.checkpointing.contains_key(backend)
    }

    /// The same of the backend that this cluster lives on.
    pub(crate) fn keeps_checkpoints_of(&self, cluster: ClusterId) -> bool {
        // Looked at with every evaluation, and mostly there is nothing to look for.
        !self.scaling.checkpointing.is_empty()
            && self.backend_of(cluster).is_some_and(|backend| self.keeps_checkpoints(backend))
    }
}
