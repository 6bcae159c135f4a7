//! Service `Signals`: what collectors see goes into the log, once.

use std::pin::Pin;

use futures::Stream;
use loadline_api::v1::signals_server::Signals;
use loadline_api::v1::{ReportSignalsRequest, ReportSignalsResponse};
use loadline_api::{Report, report_response};
use loadline_raft_node::Node;
use loadline_state_machine::{Actor, Answer as Said, Done, RejectionClass, Request as Asked, rehearse};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};

use super::actor::actor_of;
use super::errors;
use crate::proposals::Proposals;

#[derive(Debug, Clone)]
pub(crate) struct SignalsService {
    pub(crate) node: Node,
    pub(crate) proposals: Proposals,
    /// Set when the node is about to stop: collectors go on at another one.
    pub(crate) closing: CancellationToken,
}

impl SignalsService {
    async fn report(&self, actor: Actor, request: ReportSignalsRequest) -> Result<ReportSignalsResponse, Status> {
        let Report { command } = Report::read(request).map_err(errors::invalid)?;
        // No request id: collector and sequence say whether it was heard before.
        let asked = Asked { actor, request_id: None, commands: vec![command] };
        // What no state would accept need not cost everybody an entry.
        let state = self.node.latest();
        if let Err(refused) = rehearse(&state, &asked, state.now())
            && refused.rejection.class() == RejectionClass::Invalid
        {
            return Err(errors::rejected_field(&refused.rejection));
        }
        let receipt = self.proposals.propose(asked).await.map_err(|error| errors::propose(&error))?;
        let done = receipt.result.map_err(|refused| errors::rejected_field(&refused.rejection))?;
        match done.as_slice() {
            [Done { answer: Said::Reported(said), .. }] => Ok(report_response(said, receipt.index)),
            _ => Err(Status::internal("the report was recorded, but not answered as one")),
        }
    }
}

type Acknowledgements = Pin<Box<dyn Stream<Item = Result<ReportSignalsResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Signals for SignalsService {
    async fn report_signals(
        &self,
        request: Request<ReportSignalsRequest>,
    ) -> Result<Response<ReportSignalsResponse>, Status> {
        let actor = actor_of(&request)?;
        self.report(actor, request.into_inner()).await.map(Response::new)
    }

    type StreamSignalsStream = Acknowledgements;

    /// One report after the other: the next is read when the last one is recorded, so a collector that is faster than the log
    /// is held up by flow control, not by memory.
    async fn stream_signals(
        &self,
        request: Request<Streaming<ReportSignalsRequest>>,
    ) -> Result<Response<Acknowledgements>, Status> {
        let actor = actor_of(&request)?;
        let (service, reports) = (self.clone(), request.into_inner());
        let step = |(service, actor, mut reports, over): (SignalsService, Actor, Streaming<_>, bool)| async move {
            if over {
                return None;
            }
            let next = tokio::select! {
                biased;
                () = service.closing.cancelled() => Err(shutting_down()),
                next = reports.message() => next,
            };
            let answer = match next {
                Ok(None) => return None,
                Ok(Some(report)) => service.report(actor.clone(), report).await,
                Err(status) => Err(status),
            };
            let over = answer.is_err();
            Some((answer, (service, actor, reports, over)))
        };
        Ok(Response::new(Box::pin(futures::stream::unfold((service, actor, reports, false), step))))
    }
}

fn shutting_down() -> Status {
    let message = "this node is shutting down; go on at another one, with what was not acknowledged";
    errors::Answer::new(Code::Unavailable, "SHUTTING_DOWN", message).status()
}
