//! What keeper and server tell each other: one line of JSON each, over the server's standard input and output.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToServer {
    Cordon,
    Uncordon,
    /// Take no new requests, and say when those that there are have finished.
    Drain,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToKeeper {
    Listening {
        address: String,
    },
    Status {
        ready: bool,
        hydrated: u64,
    },
    Drained {
        /// Requests that were finished.
        moved: u64,
        /// Requests that were not, by the deadline.
        left: u64,
    },
}
