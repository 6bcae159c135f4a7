//! What stands before a service: it sees a call first and its answer last, and need not let it through.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tower::Service;

/// An answer on its way.
pub(super) type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// A service that can stand behind a gate.
pub(super) trait Behind:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static> + Clone + Send + 'static
{
}

impl<S> Behind for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + 'static
{
}

pub(super) trait Gate {
    /// Hands the call to the service, which is ready for it, or answers it here.
    fn pass<S: Behind>(&self, request: Request<Body>, service: S) -> Answering;
}

/// Answers in place of the service.
pub(super) fn refuse(status: Status) -> Answering {
    Box::pin(std::future::ready(Ok(status.into_http())))
}

/// A service behind a gate.
#[derive(Debug, Clone)]
pub(crate) struct Gated<G, S> {
    pub(super) gate: G,
    pub(super) service: S,
}

impl<G: Gate, S: Behind> Service<Request<Body>> for Gated<G, S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        // The clone may not be ready; the one that was polled is.
        let clone = self.service.clone();
        let ready = std::mem::replace(&mut self.service, clone);
        self.gate.pass(request, ready)
    }
}
