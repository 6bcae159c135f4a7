//! What a query reads: one fork of the state, what is over from the journal, and who asks.
//!
//! The fork is taken once per statement, so that all its tables show the same log index, and apply goes on meanwhile.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use loadline_state_machine::{Action, Decision, Fact, LogIndex, Operation, OperationEnd, State, Time};

use super::error::{QueryError, code};

/// Rows of one table that are read from the journal at most. Older ones are there, but not shown by SQL.
pub const PAST_ROWS_MAX: usize = 100_000;

/// Everything one statement looks at.
#[derive(Debug)]
pub struct Source {
    pub state: Arc<State>,
    pub past: Arc<dyn Past>,
    pub nodes: Vec<NodeRow>,
    pub session: SessionFacts,
    pub budget: Budget,
}

/// One of our own nodes, as the node that answers sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRow {
    pub id: u64,
    pub name: String,
    pub address: String,
    pub voter: bool,
    pub leader: bool,
    /// The node that answers.
    pub is_self: bool,
    pub matched_index: Option<u64>,
}

/// Who asks, for the functions that tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFacts {
    pub user: String,
    pub database: String,
    /// The schemas in which a bare name is looked for.
    pub search_path: Vec<String>,
    pub process_id: i64,
    pub server_address: String,
    pub server_port: i64,
    /// By name, lower case: what `current_setting` and `SHOW` tell.
    pub settings: Vec<(String, String)>,
}

impl Default for SessionFacts {
    fn default() -> Self {
        Self {
            user: "loadline".to_owned(),
            database: "loadline".to_owned(),
            search_path: default_search_path(),
            process_id: 0,
            server_address: String::new(),
            server_port: 0,
            settings: Vec::new(),
        }
    }
}

/// Ours first, then those of the seed's names.
pub fn default_search_path() -> Vec<String> {
    ["loadline", "mz_internal", "mz_catalog"].map(str::to_owned).into()
}

/// How long a statement may take, and whether somebody has taken it back.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    pub deadline: Option<Instant>,
    pub cancelled: Arc<AtomicBool>,
}

impl Budget {
    /// Asked between two steps that may each take a while.
    pub fn check(&self) -> Result<(), QueryError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(QueryError::new(code::CANCELLED, "canceling statement due to user request"));
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(QueryError::new(code::CANCELLED, "canceling statement due to statement timeout"));
        }
        Ok(())
    }

    pub fn is_over(&self) -> bool {
        self.check().is_err()
    }
}

/// What is no longer in the state: settled actions, past decisions, ended operations, and what happened at each index. The newest
/// first, at most [`PAST_ROWS_MAX`] of each.
pub trait Past: Send + Sync + fmt::Debug {
    /// Whether rows of what is not over, which the state has, belong to the same tables. Not for whoever reads the past in parts.
    fn shows_what_is(&self) -> bool {
        true
    }

    fn actions(&self, state: &State, budget: &Budget) -> Result<Vec<Arc<Action>>, QueryError>;
    fn decisions(&self, state: &State, budget: &Budget) -> Result<Vec<Arc<Decision>>, QueryError>;
    fn operations(&self, state: &State, budget: &Budget) -> Result<Vec<Arc<EndedOperation>>, QueryError>;
    fn events(&self, state: &State, budget: &Budget) -> Result<Vec<Arc<EventRow>>, QueryError>;

    /// Why something is as it is: `actions/a12.0`, `decisions/12.0` or `clusters/demo`. Nothing if there is no such thing.
    fn explain(&self, _state: &State, _subject: &str, _budget: &Budget) -> Result<Vec<Fact>, QueryError> {
        Ok(Vec::new())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedOperation {
    pub operation: Operation,
    pub end: OperationEnd,
    pub ended_at: Time,
}

/// One event of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    pub index: LogIndex,
    pub ordinal: u32,
    pub at: Time,
    /// As the log calls it: `ClusterCreated`.
    pub kind: &'static str,
    pub cluster: Option<loadline_state_machine::ClusterId>,
    /// What that one is called; nothing if nobody knows any more.
    pub cluster_name: Option<String>,
    /// What it changed: `clusters/demo`.
    pub resource: Option<String>,
    /// Who asked; nothing if it followed by itself.
    pub actor: Option<String>,
    /// By which way it came.
    pub source: Option<String>,
    /// How it is known who asked: `password`, `token ID`, `machine`, `node`, or `said` if it is not.
    pub proof: Option<String>,
    /// Under which a repeat of the request would be recognised.
    pub request_id: Option<String>,
    /// In words.
    pub what: String,
}

/// Nothing is over, or nobody knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPast;

impl Past for NoPast {
    fn actions(&self, _: &State, _: &Budget) -> Result<Vec<Arc<Action>>, QueryError> {
        Ok(Vec::new())
    }

    fn decisions(&self, _: &State, _: &Budget) -> Result<Vec<Arc<Decision>>, QueryError> {
        Ok(Vec::new())
    }

    fn operations(&self, _: &State, _: &Budget) -> Result<Vec<Arc<EndedOperation>>, QueryError> {
        Ok(Vec::new())
    }

    fn events(&self, _: &State, _: &Budget) -> Result<Vec<Arc<EventRow>>, QueryError> {
        Ok(Vec::new())
    }
}
