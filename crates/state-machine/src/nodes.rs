//! Our own nodes, as far as the log must know them: which numbers are taken, and who was last announced as leader.
//!
//! Not here: who is a member and where it listens. That is Raft's membership, in `crates/raft-node`.

use serde::{Deserialize, Serialize};

use crate::decide::Moment;
use crate::names::{check_range, shortened};
use crate::{Epoch, Event, Field, LogIndex, NameProblem, NodeNumber, Rejection};

/// Far more than a group can have voters; it only keeps a slip of the finger out of the log.
const FOUNDING_NODES_MAX: u64 = 64;
/// So that a number survives JSON, whose numbers are exact only this far.
const NODE_NUMBER_MAX: u64 = 1 << 53;
const NODE_TEXT_BYTES_MAX: usize = 255;

/// The leader that was announced last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    pub node: NodeNumber,
    pub term: u64,
    /// The index of the announcement: the leader's epoch within the incarnation.
    pub announced: LogIndex,
}

/// The counter of node numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nodes {
    /// How many nodes the group began with; 0: not founded.
    pub(crate) founding: u64,
    /// The highest number ever given out.
    pub(crate) highest: u64,
}

pub(crate) fn found(nodes: Nodes, founding: u64) -> Result<Vec<Event>, Rejection> {
    check_range(Field::Nodes, founding, 1, FOUNDING_NODES_MAX)?;
    match nodes.founding {
        0 => Ok(vec![Event::GroupFounded { nodes: founding }]),
        // The founder may not know whether its first try was recorded.
        same if same == founding => Ok(vec![]),
        nodes => Err(Rejection::AlreadyFounded { nodes }),
    }
}

pub(crate) fn admit(nodes: Nodes, name: &str, address: &str) -> Result<Vec<Event>, Rejection> {
    check_text(Field::Name, name)?;
    check_text(Field::Address, address)?;
    if nodes.founding == 0 {
        return Err(Rejection::NotFounded);
    }
    let next = nodes.highest.saturating_add(1);
    // Only a forged backup can have brought the counter near its end.
    check_range(Field::Nodes, next, 1, NODE_NUMBER_MAX)?;
    let node = NodeNumber(next);
    Ok(vec![Event::NodeAdmitted { node, name: name.to_owned(), address: address.to_owned() }])
}

/// Host names and addresses have forms of their own, which are the edge's to check; here only what would spoil the audit.
fn check_text(field: Field, text: &str) -> Result<(), Rejection> {
    let problem = if text.is_empty() {
        NameProblem::Empty
    } else if text.len() > NODE_TEXT_BYTES_MAX {
        NameProblem::TooLong { bytes: text.len() as u64 }
    } else if let Some(character) = text.chars().find(|c| c.is_control() || c.is_whitespace()) {
        NameProblem::Contains { character }
    } else {
        return Ok(());
    };
    Err(Rejection::InvalidText { field, value: shortened(text), problem })
}

pub(crate) fn announce(
    leader: Option<Leader>,
    incarnation: u64,
    at: Moment,
    node: NodeNumber,
    term: u64,
) -> Result<Vec<Event>, Rejection> {
    // Raft elects one leader per term and terms only grow, so anything else is a straggler. The same leader may say it
    // twice, when it does not know what became of the first time: its epoch is then the later one.
    if let Some(leader) = leader
        && (term < leader.term || (term == leader.term && node != leader.node))
    {
        return Err(Rejection::StaleTerm { node, term, current_node: leader.node, current_term: leader.term });
    }
    // The first announcement ever starts the first life of the group. Its time tells it from the life of any other group.
    let incarnation = if incarnation == 0 { at.now.as_millis().max(1) } else { incarnation };
    Ok(vec![Event::LeaderAnnounced { node, term, epoch: Epoch { incarnation, index: at.index } }])
}
