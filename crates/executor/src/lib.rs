//! The outside world: what only a leader does, and the brakes on doing it.
//!
//! [`Duties`] run while, and only while, a leadership lasts. An [`Executor`] has two of them: [`Acting`] carries out actions,
//! [`Observing`] looks at what is there. [`Collecting`] asks for the signals that somebody configured. A [`Backend`] is where replicas live; a [`Group`] is what is acted for.
//!
//! Not here, and never: Raft. Who leads comes in as a stream of [`Leadership`]; where it comes from is the server's
//! business. `docs/executor.md` says what holds whatever fails, and which part sees to it.

mod acting;
mod backend;
pub mod backends;
#[cfg(feature = "collectors")]
mod collecting;
#[cfg(feature = "testing")]
pub mod conformance;
mod duties;
mod executor;
mod group;
mod leadership;
mod notes;
mod observing;
mod registry;
mod steps;

pub use acting::{Acting, ClaimsAhead};
pub use backend::{
    Answering, Backend, CallError, Capabilities, ClusterAddress, Found, ObservedHydration, ObservedReplica, Order,
};
#[cfg(feature = "collectors")]
pub use collecting::{Collecting, Variables};
pub use duties::{Duties, Duty};
pub use executor::{ActingSettings, Executor, ObservingSettings, Settings};
pub use group::{Group, NotRecorded};
pub use leadership::{Leadership, Tenure};
pub use notes::{Alarm, BreakerState, CallEnding, Finding, Note, Noting, Unnoted};
pub use observing::Observing;
pub use registry::Backends;
pub use steps::{Step, Unwatched, Witness};
