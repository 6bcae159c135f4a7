//! The outside world: what only a leader does, and the brakes on doing it.
//!
//! So far: [`Duties`], which run while, and only while, a leadership lasts. Calls on backends will hang on it.
//! Not here, and never: Raft. Who leads comes in as a stream of [`Leadership`]; where it comes from is the server's
//! business.

mod duties;
mod leadership;

pub use duties::{Duties, Duty};
pub use leadership::{Leadership, Tenure};
