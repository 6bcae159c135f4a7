//! The steps on the way of one action, for whoever wants to watch it, hold it or kill the process there.

use std::fmt;

use futures::future::BoxFuture;
use loadline_state_machine::{ActionId, Command};

/// Where an executor is with an action, in the order of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    BeforeClaim,
    AfterClaim,
    /// The claim is committed and the lease has not been looked at.
    BeforeLeaseCheck,
    /// The lease holds; the call goes out next.
    BeforeCall,
    /// The backend has done it, and its answer is not here yet.
    AfterCall,
    /// The answer is here, and not recorded.
    BeforeRecord,
    AfterRecord,
}

impl Step {
    pub const ALL: [Step; 7] = [
        Step::BeforeClaim,
        Step::AfterClaim,
        Step::BeforeLeaseCheck,
        Step::BeforeCall,
        Step::AfterCall,
        Step::BeforeRecord,
        Step::AfterRecord,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Step::BeforeClaim => "before-claim",
            Step::AfterClaim => "after-claim",
            Step::BeforeLeaseCheck => "before-lease-check",
            Step::BeforeCall => "before-call",
            Step::AfterCall => "after-call",
            Step::BeforeRecord => "before-record",
            Step::AfterRecord => "after-record",
        }
    }
}

/// Is told of every step, and may take its time.
pub trait Witness: fmt::Debug + Send + Sync + 'static {
    fn reached(&self, step: Step, action: ActionId) -> BoxFuture<'_, ()>;

    /// Hears a claim or an outcome before it is recorded, so that it can be said once more when it no longer holds: a
    /// request that was handed on to another node can arrive late.
    fn says(&self, _command: &Command) {}
}

/// Nobody looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Witness for Unwatched {
    fn reached(&self, _step: Step, _action: ActionId) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
