//! The one loop that every call goes through: attempt, rotate, wait a little, attempt again.
//!
//! It decides what may be repeated. A repeat of a write carries the id of the first attempt, so the group answers it
//! from memory; an operator's call has no id and is repeated only where it surely never arrived.

use std::sync::Arc;
use std::time::Duration;

use loadline_api::v1::admin_client::AdminClient;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::client::{Client, Options};
use crate::endpoint::{Endpoint, NotConnected};
use crate::error::{Error, Failure, NOT_LOOKED_UP, REQUEST_FROM_FUTURE, REQUEST_TOO_OLD, Refusal};
use crate::surroundings::Surroundings;

/// Answers larger than this are refused. Servers send at most 4 MiB; the rest is room for their successors.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Metadata keys of who asks.
pub(crate) const ACTOR: &str = "loadline-actor";
pub(crate) const AUTHORIZATION: &str = "authorization";

/// May an attempt be repeated that may have arrived?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// A read, or a write under a request id.
    Freely,
    /// A second execution could do a second thing.
    OnlyIfNotSent,
}

/// Limits of one logical request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) timeout: Duration,
    pub(crate) attempt_timeout: Duration,
    /// Attempts that fail at once are repeated for this long.
    pub(crate) retry_for: Duration,
}

/// An attempt that was under way for this long did not fail at once.
const UNDER_WAY: Duration = Duration::from_secs(2);

/// Pauses between attempts: none while there are endpoints that were not tried, then growing and jittered, so that
/// many clients of a group that just lost its leader do not all come back at the same moment.
#[derive(Debug)]
pub(crate) struct Backoff {
    surroundings: Arc<dyn Surroundings>,
    endpoints: u32,
    failures: u32,
}

const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

impl Backoff {
    pub(crate) fn new(endpoints: usize, surroundings: Arc<dyn Surroundings>) -> Backoff {
        Backoff { surroundings, endpoints: u32::try_from(endpoints).unwrap_or(u32::MAX).max(1), failures: 0 }
    }

    /// After one more failure: how long to wait.
    pub(crate) fn pause(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let rounds = self.failures / self.endpoints;
        if rounds == 0 {
            return Duration::ZERO;
        }
        let longest = PAUSE_FIRST.saturating_mul(1 << (rounds - 1).min(10)).min(PAUSE_MAX);
        let shorter = u32::try_from(self.surroundings.random() % 1_000).unwrap_or(0);
        longest - longest * shorter / 2_000
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// How each endpoint last failed.
#[derive(Debug, Default)]
pub(crate) struct Tried(Vec<(String, String)>);

impl Tried {
    pub(crate) fn note(&mut self, endpoint: &Endpoint, why: &str) {
        match self.0.iter_mut().find(|(known, _)| known == endpoint.as_str()) {
            Some((_, last)) => why.clone_into(last),
            None => self.0.push((endpoint.to_string(), why.to_owned())),
        }
    }

    pub(crate) fn into_list(self) -> Vec<(String, String)> {
        self.0
    }
}

/// What is known about one logical request while it is tried.
#[derive(Debug)]
struct Progress {
    tried: Tried,
    /// Some attempt may have reached a node.
    maybe_sent: bool,
    /// Some endpoint accepted a connection.
    connected: bool,
    answer: Option<Box<Refusal>>,
    last_timed_out: bool,
}

impl Client {
    pub(crate) fn limits(&self) -> Limits {
        let Options { timeout, attempt_timeout, .. } = *self.options;
        Limits { timeout, attempt_timeout, retry_for: timeout }
    }

    /// One logical request. `ask` makes the message, given the request id, and `send` puts it to a node.
    pub(crate) async fn call<Q, A, F>(
        &self,
        limits: Limits,
        repeat: Repeat,
        ask: impl Fn(Uuid) -> Q + Send + Sync,
        send: impl Fn(Channel, Request<Q>) -> F + Send + Sync,
    ) -> Result<A, Error>
    where
        Q: Send,
        A: Send,
        F: Future<Output = Result<Response<A>, Status>> + Send,
    {
        let send = &send;
        self.call_by(limits, repeat, ask, |endpoint, until, message| self.attempt(endpoint, until, message, send)).await
    }

    /// The same with another way than a call of its own to put a message to a node and to wait for the answer, until some moment.
    pub(crate) async fn call_by<'a, Q, A, F>(
        &'a self,
        limits: Limits,
        repeat: Repeat,
        ask: impl Fn(Uuid) -> Q + Send + Sync,
        attempt: impl Fn(&'a Endpoint, Instant, Q) -> F + Send + Sync,
    ) -> Result<A, Error>
    where
        F: Future<Output = Result<A, Failure>> + Send,
    {
        let began = Instant::now();
        let deadline = began + limits.timeout;
        let mut retry_until = began + limits.retry_for;
        let mut id = self.ids.fresh();
        let mut rebased = false;
        let mut backoff = self.pool.backoff();
        let mut progress = Progress {
            tried: Tried::default(),
            maybe_sent: false,
            connected: false,
            answer: None,
            last_timed_out: false,
        };
        loop {
            let (turn, endpoint) = self.pool.current();
            let attempt_began = Instant::now();
            let attempt_until = deadline.min(attempt_began + limits.attempt_timeout);
            let failure = match attempt(endpoint, attempt_until, ask(id)).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match failure {
                Failure::Refused(refusal) => {
                    // Only an id that surely never arrived may be given up for another: under a new id the group
                    // could not tell the second attempt from a second request.
                    if !rebased && !progress.maybe_sent && self.rebase(&refusal) {
                        rebased = true;
                        id = self.ids.fresh();
                        continue;
                    }
                    // This answer is about the repeat. What became of the first attempt, nobody has said.
                    if progress.maybe_sent && NOT_LOOKED_UP.contains(&refusal.reason.as_str()) {
                        progress.tried.note(endpoint, &refusal.to_string());
                        progress.answer = Some(refusal);
                        progress.last_timed_out = false;
                        return Err(progress.give_up(limits.timeout));
                    }
                    return Err(Error::Refused(refusal));
                }
                Failure::NotNow { refusal, surely_not_done } => {
                    progress.tried.note(endpoint, &refusal.to_string());
                    progress.answer = Some(refusal);
                    progress.connected = true;
                    progress.maybe_sent |= !surely_not_done;
                    progress.last_timed_out = false;
                }
                Failure::NotSent(why) => {
                    progress.tried.note(endpoint, &why);
                    progress.last_timed_out = false;
                    self.pool.forget(endpoint);
                }
                Failure::NoAnswer { why, timed_out } => {
                    progress.tried.note(endpoint, &why);
                    progress.connected = true;
                    progress.maybe_sent = true;
                    progress.last_timed_out = timed_out;
                    self.pool.forget(endpoint);
                }
            }
            tracing::debug!(%endpoint, ?progress.tried, "an attempt failed");
            self.pool.rotate(turn);
            let pause = backoff.pause();
            if attempt_began.elapsed() > UNDER_WAY {
                retry_until = Instant::now() + limits.retry_for;
            }
            let over = Instant::now() + pause >= deadline.min(retry_until);
            let nobody_there = !progress.connected && self.is_patience_over(began.elapsed() + pause, &progress.tried);
            let must_not_repeat = repeat == Repeat::OnlyIfNotSent && progress.maybe_sent;
            if over || nobody_there || must_not_repeat {
                return Err(progress.give_up(limits.timeout));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Has every endpoint been tried, for as long as somebody waits for a connection at all?
    pub(crate) fn is_patience_over(&self, elapsed: Duration, tried: &Tried) -> bool {
        tried.0.len() == self.pool.len() && self.options.connect_patience.is_some_and(|patience| elapsed >= patience)
    }

    async fn attempt<Q, A, F>(
        &self,
        endpoint: &Endpoint,
        until: Instant,
        message: Q,
        send: &(impl Fn(Channel, Request<Q>) -> F + Send + Sync),
    ) -> Result<A, Failure>
    where
        F: Future<Output = Result<Response<A>, Status>> + Send,
    {
        let channel = self.channel(endpoint).await?;
        let request = self.request(message, Some(until));
        answered(until, send(channel, request)).await.map(Response::into_inner)
    }

    pub(crate) async fn channel(&self, endpoint: &Endpoint) -> Result<Channel, Failure> {
        self.pool.channel(endpoint).await.map_err(|NotConnected(why)| Failure::NotSent(why))
    }

    /// A request with who asks, and how long the node may take: it need not work on what nobody waits for.
    pub(crate) fn request<Q>(&self, message: Q, until: Option<Instant>) -> Request<Q> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(ACTOR, self.actor.clone());
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert(AUTHORIZATION, authorization.clone());
        }
        if let Some(until) = until {
            request.set_timeout(until.saturating_duration_since(Instant::now()));
        }
        request
    }

    /// Takes over the group's time if an id was refused for its time. Says whether it did.
    fn rebase(&self, refusal: &Refusal) -> bool {
        if refusal.reason != REQUEST_TOO_OLD && refusal.reason != REQUEST_FROM_FUTURE {
            return false;
        }
        let Some(now) = refusal.metadata.get("now_ms").and_then(|now| now.parse().ok()) else { return false };
        tracing::warn!(now_ms = now, "this clock differs from the group's; request ids follow the group's");
        self.ids.rebase(now);
        true
    }

    pub(crate) fn admin(channel: Channel) -> AdminClient<Channel> {
        AdminClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
    }
}

/// What came of something that was sent.
pub(crate) async fn answered<A>(
    until: Instant,
    answer: impl Future<Output = Result<A, Status>> + Send,
) -> Result<A, Failure> {
    match tokio::time::timeout_at(until, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(status)) => Err(Failure::of(&status)),
        Err(_) => Err(Failure::NoAnswer { why: "no answer in time".to_owned(), timed_out: true }),
    }
}

impl Progress {
    fn give_up(self, timeout: Duration) -> Error {
        let tried = self.tried.into_list();
        if self.last_timed_out {
            return Error::TimedOut { after: timeout, tried, maybe_done: self.maybe_sent };
        }
        Error::Unavailable { tried, answer: self.answer, maybe_done: self.maybe_sent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_is_tried_before_the_first_pause_and_pauses_are_bounded() {
        let mut backoff = Backoff::new(3, Arc::new(crate::Machine));
        let pauses: Vec<Duration> = (0..60).map(|_| backoff.pause()).collect();
        assert_eq!(pauses[..2], [Duration::ZERO; 2]);
        assert!(pauses[2..].iter().all(|pause| *pause >= PAUSE_FIRST / 2 && *pause <= PAUSE_MAX), "{pauses:?}");
        assert!(pauses[59] >= PAUSE_MAX / 2, "the pause does not grow: {pauses:?}");
    }
}
