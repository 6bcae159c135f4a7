//! A node, as it sees itself.

use std::fmt;
use std::time::Duration;

use loadline_state_machine::{Epoch, Hash, LogIndex, RulesVersion, Time};
use openraft::ServerState;

use crate::node::Inner;
use crate::probe::SKEW_WORTH_A_WARNING;
use crate::types::Metrics;

/// What a node is in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nobody yet: it waits to found a group or to be let into one.
    Joining,
    Learner,
    Follower,
    Candidate,
    Leader,
    Stopped,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Joining => "joining",
            Self::Learner => "learner",
            Self::Follower => "follower",
            Self::Candidate => "candidate",
            Self::Leader => "leader",
            Self::Stopped => "stopped",
        })
    }
}

/// A node, as it sees itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// None: it is nobody yet.
    pub id: Option<u64>,
    pub name: String,
    pub address: String,
    /// Empty: none yet.
    pub group: String,
    pub role: Role,
    pub term: u64,
    /// Id and address of the leader, as far as this node knows.
    pub leader: Option<(u64, String)>,
    pub last_index: u64,
    pub applied_index: LogIndex,
    /// At `applied_index`.
    pub state_hash: Hash,
    pub snapshot_index: u64,
    pub purged_index: u64,
    pub disk_used_bytes: u64,
    pub disk_free_bytes: u64,
    /// Logical time.
    pub time: Time,
    pub incarnation: u64,
    /// Of the leader that was announced last.
    pub epoch: Option<Epoch>,
    pub rules: RulesVersion,
    /// Of the key with which this node signs exports of its history.
    pub public_key: [u8; 32],
    /// Whatever keeps this node from being as it should be, in words for a person.
    pub errors: Vec<String>,
}

impl Inner {
    pub(crate) fn status(&self) -> Status {
        let state = self.published.state();
        let running = self.running();
        let metrics = running.as_ref().map(|running| running.metrics());
        let raft = |index: fn(&Metrics) -> u64| metrics.as_ref().map_or(0, index);
        Status {
            id: running.as_ref().map(|running| running.identity.node_id),
            name: self.config.name.clone(),
            address: self.config.address.clone(),
            group: running.as_ref().map(|running| running.identity.group.clone()).unwrap_or_default(),
            role: self.role(metrics.as_ref()),
            term: raft(|metrics| metrics.current_term),
            leader: self.known_leader(),
            last_index: raft(|metrics| metrics.last_log_index.unwrap_or(0)),
            applied_index: state.applied(),
            state_hash: state.hash(),
            snapshot_index: raft(|metrics| metrics.snapshot.map_or(0, |log_id| log_id.index())),
            purged_index: raft(|metrics| metrics.purged.map_or(0, |log_id| log_id.index())),
            disk_used_bytes: self.storage.disk.used_bytes().unwrap_or(0),
            disk_free_bytes: self.reserve.space().free,
            time: state.now(),
            incarnation: state.incarnation(),
            epoch: state.epoch(),
            rules: state.rules(),
            public_key: self.signing_key.public(),
            errors: self.errors(metrics.as_ref()),
        }
    }

    fn role(&self, metrics: Option<&Metrics>) -> Role {
        match metrics {
            _ if self.stop.raised().is_some() => Role::Stopped,
            None => Role::Joining,
            Some(metrics) => match metrics.state {
                ServerState::Learner => Role::Learner,
                ServerState::Follower => Role::Follower,
                ServerState::Candidate => Role::Candidate,
                // Elected, but not yet announced: nobody is served yet.
                ServerState::Leader if self.leadership.borrow().is_none() => Role::Candidate,
                ServerState::Leader => Role::Leader,
                ServerState::Shutdown => Role::Stopped,
            },
        }
    }

    fn errors(&self, metrics: Option<&Metrics>) -> Vec<String> {
        let mut errors = Vec::new();
        if let Some(reason) = self.stop.raised() {
            errors.push(reason.to_string());
        }
        errors.extend(self.waiting());
        if let Some(space) = self.reserve.low() {
            errors.push(format!(
                "{} bytes of disk are free, {} are kept back: nothing is recorded",
                space.free, space.reserve
            ));
        }
        if self.lease.suspended() {
            errors.push("the nodes disagree about the state and no majority can be found".to_owned());
        }
        if let Some(what) = self.audit_failed() {
            errors.push(format!("the audit index failed and is left as it is until a restart: {what}"));
        }
        if let Some(metrics) = metrics {
            let membership = &metrics.membership_config;
            match membership.get_node(&metrics.id) {
                None if membership.nodes().next().is_some() => {
                    errors.push("this node was removed from the group".to_owned());
                }
                Some(member) if member.address != self.config.address => {
                    errors.push(format!(
                        "the group knows this node at {}, it is at {}",
                        member.address, self.config.address
                    ));
                }
                _ => {}
            }
            if metrics.current_leader.is_none() {
                errors.push("no leader is known".to_owned());
            }
        }
        for (id, seen) in self.neighbours.all() {
            if Duration::from_millis(seen.skew_ms.unsigned_abs()) > SKEW_WORTH_A_WARNING {
                errors.push(format!("the clock of node {id} is {} ms from this node's", seen.skew_ms));
            }
        }
        errors
    }
}
