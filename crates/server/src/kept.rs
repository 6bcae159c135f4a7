//! The history of the node that runs here, for whoever reads the past.

use loadline_audit::Kept;
use loadline_raft_node::Node;

pub(crate) fn kept(node: &Node) -> Kept {
    Kept::new(node.journal().clone(), node.snapshots().clone(), node.newest_program())
}
