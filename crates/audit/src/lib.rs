//! What a history says, for somebody who was not there: reading it, replaying it to a byte-equal state, checking it.
//!
//! - [`source`]: where a history comes from, whatever it is kept in; [`kept`]: the journal and the snapshots of a node.
//! - [`export`]: a stretch of it in one signed file, which is a source again.
//! - [`verify`]: whether it is what it says it is, to the last byte.
//! - [`replay`]: applies it once more, to any moment, and compares the hash after every entry.
//! - [`diff`]: what changed between two moments, and who did it.
//! - [`explain`]: why something is as it is, with where each part of the answer comes from.
//! - [`trail`]: finding things through an index; [`search`]: what somebody did, or what happened to a cluster.
//! - [`part`]: what is over, as rows; [`words`]: what each event says to people; [`sqlite`]: all of it as a file that `sqlite3` opens.
//! - [`change`]: statements that somebody wants to try; [`whatif`]: what they would make of a state now; [`backtest`]: what they
//!   would have made of a window of the past.
//!
//! Everything here works on bytes that are at rest, with the same state machine that made them: no node needs to run, and nothing
//! that is asked here leaves a trace in the log.
//!
//! Deliberately not here: how the bytes got there (`loadline-raft-node`), how they are kept (`loadline-log`), asking a running
//! group for them (`loadline-client`), and showing what came out (`loadline-cli`).

pub mod backtest;
pub mod change;
#[cfg(any(test, feature = "testing"))]
pub mod day;
pub mod diff;
pub mod explain;
pub mod export;
pub mod kept;
#[cfg(test)]
mod made;
pub mod part;
pub mod replay;
pub mod search;
pub mod source;
pub mod sqlite;
mod stretch;
pub mod trail;
pub mod verify;
pub mod whatif;
mod why;
pub mod words;

pub use change::{Change, ChangeError};
pub use export::ExportFile;
pub use kept::Kept;
pub use replay::{Moment, ReplayError, Replayed, Start, Step, begin, replay, replay_while};
pub use source::{Source, SourceError};
pub use trail::{Index, Scanned, Trail, TrailError, TrailNames, Who, beginning};
pub use verify::with_causes;
