//! One Raft node: proposer, network, membership, leadership, reads.
//!
//! The only crate that names openraft. [`Node`] is the way in; around it:
//! - `proposer` takes requests in and `packing` makes entries of them, `foresight` adds what follows from one; `forward` is for those that belong to the leader; `office` is what a node
//!   does while it leads; `lease` says for how long it may act;
//! - `reads`, `feed` and `status` are for those who only look;
//! - `founding` and `membership` are how nodes become, and cease to be, members of a group;
//! - `fetching` asks them for the part of the history that this node lacks;
//! - `probe` asks the others how they are, and stops a node that has come to believe something else;
//! - `storage` and `network` are openraft's adapters over `loadline-log` and the service `loadline.v1.Raft`.
//!
//! Deliberately not here: what an entry means (`loadline-state-machine`), how bytes survive (`loadline-log`), listening
//! on a port, encryption, who may call what and which status an error becomes (`loadline-server`), and everything
//! that acts on the outside world (`loadline-executor`): this crate only says whether a node may.

mod clock;
mod config;
mod errors;
mod feed;
mod fetching;
mod foresight;
mod forward;
mod founding;
mod lease;
mod membership;
mod network;
mod node;
mod observer;
mod office;
mod packed;
mod packing;
mod probe;
mod proposer;
mod reads;
mod reserve;
mod runtime;
mod status;
mod stop;
mod storage;
mod types;

pub use clock::{Clock, SystemClock};
pub use config::{NodeConfig, Timing};
pub use errors::{DialError, FeedError, MembershipError, ProposeError, ReadError, StartError, StopReason};
pub use feed::Feed;
pub use foresight::Foresight;
pub use lease::Lease;
pub use membership::PeerView;
pub use network::service::RaftService;
pub use network::{Dial, PeerPass, PlainDial};
pub use node::Node;
pub use observer::{NoObserver, NodeObserver, Observers};
pub use office::Leadership;
pub use proposer::REQUEST_BYTES_MAX;
pub use reads::Consistency;
pub use runtime::seed_randomness;
pub use status::{Role, Status};
pub use storage::published::{Happened, Work};
