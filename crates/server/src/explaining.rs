//! Why something is as it is, with where each part of the answer comes from: over the state, the journal and the audit index of this
//! node. It reads files: call it where nobody waits.

use std::collections::BTreeMap;

use loadline_audit::explain::{Explainer, Story};
use loadline_audit::{Index, Trail, TrailError};
use loadline_raft_node::Node;
use loadline_state_machine::{ResourceName, State};

use crate::kept::kept;

/// Of a node that keeps no index: nothing is found, so what comes from the past is missing in the answer.
#[derive(Debug)]
pub(crate) struct NoIndex;

impl Index for NoIndex {
    fn find(&self, _: &[u8], _: Option<u64>, _: usize) -> Result<Vec<u64>, TrailError> {
        Ok(Vec::new())
    }
}

/// Nothing if there is no such thing, or this node no longer, or never, knew of it.
pub(crate) fn explain(node: &Node, state: &State, name: &ResourceName) -> Result<Option<Story>, TrailError> {
    let source = kept(node);
    let nodes: BTreeMap<u64, String> = node.peers().into_iter().map(|peer| (peer.id, peer.name)).collect();
    let index: &dyn Index = match node.audit_index() {
        Some(index) => index,
        None => &NoIndex,
    };
    Explainer::new(Trail { source: &source, index }, state, &nodes).explain(name)
}
