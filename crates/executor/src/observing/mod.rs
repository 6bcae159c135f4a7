//! The duty that looks at what is there, and tells the log what differs from what is believed.

use std::future::Future;
use std::pin::Pin;

use crate::{Duty, Executor, Tenure};

/// Looks at the backends for as long as this node leads.
#[derive(Clone, Debug)]
pub struct Observing {
    executor: Executor,
}

impl Observing {
    pub(crate) fn new(executor: Executor) -> Observing {
        Observing { executor }
    }
}

impl Duty for Observing {
    fn name(&self) -> &'static str {
        "observing"
    }

    fn perform(&self, tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let _ = &self.executor;
            tenure.ended().await;
        })
    }
}
