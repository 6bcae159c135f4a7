//! The duty that carries out actions: claim, call, record.

use std::future::Future;
use std::pin::Pin;

use crate::{Duty, Executor, Tenure};

/// Carries out what the state says is to be done, for as long as this node leads.
#[derive(Clone, Debug)]
pub struct Acting {
    executor: Executor,
}

impl Acting {
    pub(crate) fn new(executor: Executor) -> Acting {
        Acting { executor }
    }
}

impl Duty for Acting {
    fn name(&self) -> &'static str {
        "acting"
    }

    fn perform(&self, tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let _ = &self.executor;
            tenure.ended().await;
        })
    }
}
