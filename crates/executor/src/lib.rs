//! The outside world: what only a leader does, and the brakes on doing it.
//!
//! [`Duties`] run while, and only while, a leadership lasts. A [`Backend`] is where replicas live; a [`Group`] is what is acted for.
//! Not here, and never: Raft. Who leads comes in as a stream of [`Leadership`]; where it comes from is the server's
//! business.

mod backend;
mod duties;
mod group;
mod leadership;
mod steps;

pub use backend::{
    Answering, Backend, CallError, Capabilities, ClusterAddress, Found, ObservedHydration, ObservedReplica, Order,
};
pub use duties::{Duties, Duty};
pub use group::{Group, NotRecorded};
pub use leadership::{Leadership, Tenure};
pub use steps::{Step, Unwatched, Witness};
