//! Speaks to a group of nodes: any endpoint will do, and a retry is never a second request.
//!
//! A node that is not the leader forwards, so this crate does not look for the leader: it looks for a node that answers.
//! [`Client`] keeps one logical request alive across lost replies, dead nodes and elections by sending it again under
//! the request id it was given at the start, until its deadline. What a node *refused* is never sent again.
//!
//! - [`client`](Client): connecting, options, and the one loop that every call goes through (`call.rs`)
//! - `admin.rs`: sizes, clusters, settings, transactions
//! - `roles.rs`: roles, passwords, tokens, privileges
//! - `scale_to_zero.rs`: waking, idle clusters, savings, overrides
//! - `scaling.rs`: strategies, decisions, operations, actions, pauses, one report of signals
//! - [`SignalStream`]: reports of a collector, recorded once each across nodes
//! - `writes.rs`: writes of many callers on one stream
//! - [`Watch`]: changes from a revision on, with no gap and no repeat across nodes
//! - `status.rs`: every node's own view, with state hashes taken at one index so that they can be compared
//! - `operator.rs`: peers, leadership, snapshots
//! - `history.rs`: what happened, and who did it
//! - `audit.rs`: the history, as a signed file
//! - [`Surroundings`]: clock, chance and network, which a simulator replaces
//!
//! Not here: how anything is shown, and what the state means. The types of answers are those of the wire
//! ([`loadline_api::v1`]).

mod admin;
mod audit;
mod call;
mod client;
mod endpoint;
mod error;
mod history;
mod operator;
mod request_id;
mod roles;
mod scale_to_zero;
mod scaling;
mod signals;
mod status;
mod surroundings;
mod transfer;
mod watch;
mod writes;

pub use admin::{Found, Kind, Listing, Reading, Writing};
pub use audit::{ExportPart, ExportedHistory, HistoryBound, HistoryRange};
pub use client::{Client, Options, default_actor};
pub use endpoint::{Endpoint, EndpointError, Endpoints};
pub use error::{Error, FieldViolation, Refusal};
pub use history::{FoundHistory, HistoryQuery};
pub use loadline_api::v1;
pub use operator::SnapshotPart;
pub use roles::{Secret, TokenKept, Usage};
pub use scale_to_zero::Sleepers;
pub use scaling::{ExplainAt, ScalingWrite, Scope};
pub use signals::{Acknowledged, Numbering, SignalOptions, SignalStream, Tally};
pub use status::NodeReport;
pub use surroundings::{Machine, Surroundings};
pub use watch::{Watch, WatchEvent, WatchOptions};
