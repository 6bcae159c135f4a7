//! Who asks, proven. Every client service is behind it: it looks at the credential of a call, and hands on who it is.
//!
//! As long as no role can log in, whoever calls is who they say. From then on a call carries a token
//! (`authorization: Bearer llt_...`), or is refused before any service sees it. What somebody may is not decided here but in
//! the state machine, at the index of the log.
//!
//! A call that a follower passes on to the leader carries the token of the caller with it, and is checked there once more. What
//! raft-node forwards says how its actor was proven; that only a node can say so is what the pass between nodes is for.

use std::net::IpAddr;

use http::{HeaderMap, Request};
use loadline_credentials::token::Token;
use loadline_raft_node::{Consistency, Node, PeerPass};
use loadline_state_machine::{Actor, Proof, State};
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpConnectInfo;
use tower::Layer;

use super::gate::{self, Answering, Behind, Gate, Gated};
use super::{actor, errors};

/// What a guard goes by.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    node: Node,
    /// Callers on this machine need no credential.
    trusts_own_machine: bool,
    pass: Option<PeerPass>,
}

/// A call as far as the guard looks at it.
struct Call {
    actor: Actor,
    from: Option<IpAddr>,
    credential: Option<Credential>,
}

enum Credential {
    Token(Token),
    /// Something else that is meant to be one.
    Unknown,
}

impl Guard {
    pub(crate) fn new(node: Node, trusts_own_machine: bool, pass: Option<PeerPass>) -> Guard {
        Guard { node, trusts_own_machine, pass }
    }

    /// Whether nobody else can speak as a node of this group.
    pub(crate) fn peers_prove_themselves(&self) -> bool {
        self.pass.is_some() || self.is_alone()
    }

    /// Whether somebody there needs no credential.
    pub(crate) fn trusts(&self, from: IpAddr) -> bool {
        self.trusts_own_machine && from.to_canonical().is_loopback()
    }

    fn is_alone(&self) -> bool {
        self.node.peers().len() <= 1
    }

    /// Lets in a call between nodes, or says why not.
    pub(crate) fn admit_peer(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let admitted = match &self.pass {
            Some(pass) => pass.is_shown(metadata),
            // Without a secret a node cannot be told from anybody else. One that is alone has nobody to listen to; others
            // must be able to go on, and were asked for a secret before the first role could log in.
            None => !(self.node.latest().login_needed() && self.is_alone()),
        };
        if admitted {
            return Ok(());
        }
        let message =
            "this is no node of the group: it must show the secret that is in the peer_secret_file of the others";
        Err(errors::unauthenticated("NOT_A_PEER", message))
    }

    /// Who asks over HTTP, found out as for gRPC.
    pub(crate) async fn admit(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<Actor, Status> {
        let said = actor::said(headers, from)?;
        let source = from.map_or_else(|| "http".to_owned(), |address| format!("http {address}"));
        let actor = Actor::new(&said.name, source);
        self.authenticate(Call { actor, from, credential: credential(headers) }).await
    }

    async fn authenticate(&self, call: Call) -> Result<Actor, Status> {
        let state = self.node.latest();
        match &call.credential {
            Some(Credential::Token(token)) => {
                if let Some(actor) = owner(token, &state, &call) {
                    return Ok(actor);
                }
                // It may have been made a moment ago, at another node.
                if state.token(token.id()).is_none()
                    && let Ok(state) = self.node.read(Consistency::Linearizable).await
                    && let Some(actor) = owner(token, &state, &call)
                {
                    return Ok(actor);
                }
                Err(invalid_token())
            }
            Some(Credential::Unknown) => Err(invalid_token()),
            None if !state.login_needed() => Ok(call.actor),
            None if call.from.is_some_and(|from| self.trusts(from)) => Ok(call.actor.proven(Proof::Machine)),
            None => {
                let message = "a login is needed: send a token of a role as authorization: Bearer (loadline: --token, \
                               LOADLINE_TOKEN or the context)";
                Err(errors::unauthenticated("LOGIN_REQUIRED", message))
            }
        }
    }
}

/// The token itself is not repeated.
fn invalid_token() -> Status {
    errors::unauthenticated("INVALID_TOKEN", "the token is none of this group, was taken back, or has expired")
}

fn owner(token: &Token, state: &State, call: &Call) -> Option<Actor> {
    let role = token.owner(state)?;
    Some(Actor::new(&role.name, &call.actor.source).proven(Proof::Token(token.id().to_owned())))
}

fn credential(headers: &HeaderMap) -> Option<Credential> {
    let given = headers.get(http::header::AUTHORIZATION)?;
    let token = given.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| Token::parse(token.trim())).flatten()
    });
    Some(token.map_or(Credential::Unknown, Credential::Token))
}

impl<S> Layer<S> for Guard {
    type Service = Gated<Guard, S>;

    fn layer(&self, service: S) -> Gated<Guard, S> {
        Gated { gate: self.clone(), service }
    }
}

impl Gate for Guard {
    /// Tells the service who asks.
    fn pass<S: Behind>(&self, mut request: Request<Body>, mut service: S) -> Answering {
        let from = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        let from = from.map(|address| address.ip());
        let actor = match actor::said(request.headers(), from) {
            Ok(actor) => actor,
            Err(status) => return gate::refuse(status),
        };
        let call = Call { actor, from, credential: credential(request.headers()) };
        let guard = self.clone();
        Box::pin(async move {
            match guard.authenticate(call).await {
                Ok(actor) => {
                    request.extensions_mut().insert(actor);
                    service.call(request).await
                }
                Err(status) => Ok(status.into_http()),
            }
        })
    }
}
