//! Changes as they happen, from any node, with no gap and no repeat.
//!
//! All changes of one revision arrive in one message, so the only state of a watch is the next revision it wants. When
//! a node is lost, or is silent for longer than it promised, the watch asks another one for exactly that revision.

use std::collections::BTreeSet;
use std::time::Duration;

use loadline_api::v1::watch_client::WatchClient;
use loadline_api::v1::watch_response::Body;
use loadline_api::v1::{Resource, ResourceChange, WatchRequest, WatchResponse};
use tokio::time::Instant;
use tonic::{Code, Streaming};

use crate::admin::Kind;
use crate::call::{ANSWER_BYTES_MAX, Backoff, Tried};
use crate::client::Client;
use crate::endpoint::{Endpoint, NotConnected};
use crate::error::{Error, Failure, REVISION_COMPACTED, Refusal};

/// What to watch, and from where.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// None means all kinds.
    pub kinds: Vec<Kind>,
    /// Only this resource, as "clusters/NAME".
    pub name: Option<String>,
    /// 0: first everything that matches, then each change. Otherwise each change at this revision or later.
    pub from_revision: u64,
    /// Nodes say at least this often that they are there; three times as long without a word counts as lost.
    pub progress_every: Duration,
    /// Give up when for this long no node could be watched.
    pub outage_max: Duration,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions {
            kinds: Vec::new(),
            name: None,
            from_revision: 0,
            progress_every: Duration::from_secs(1),
            outage_max: Duration::from_secs(60),
        }
    }
}

/// One message of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// Everything that matched at this revision. First, once, and only if no revision was asked for.
    Snapshot { revision: u64, resources: Vec<Resource> },
    /// All matching changes of one revision.
    Changes { revision: u64, time_ms: i64, changes: Vec<ResourceChange> },
    /// Nothing that matches has happened up to this revision.
    Progress { revision: u64 },
}

/// A watch that outlives the nodes it is answered by.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    options: WatchOptions,
    /// The next revision that was not seen yet; 0 until the snapshot is complete.
    next: u64,
    /// The latest revision that was told of to the caller, as progress or otherwise.
    told: u64,
    stream: Option<Open>,
    backoff: Backoff,
    tried: Tried,
    lost_since: Option<Instant>,
    /// Nodes that no longer have `next`, and the first revision that the last of them has.
    compacted: BTreeSet<Endpoint>,
    first_kept: Option<u64>,
    failed: Option<Error>,
}

#[derive(Debug)]
struct Open {
    stream: Streaming<WatchResponse>,
    endpoint: Endpoint,
    turn: usize,
    /// Parts of a snapshot that is not complete. Dropped with the stream: the next node starts its own.
    parts: Vec<Resource>,
}

impl Client {
    /// Nothing is sent before the first [`Watch::next`].
    pub fn watch(&self, options: WatchOptions) -> Watch {
        Watch {
            next: options.from_revision,
            told: options.from_revision.saturating_sub(1),
            backoff: self.pool.backoff(),
            client: self.clone(),
            options,
            stream: None,
            tried: Tried::default(),
            lost_since: None,
            compacted: BTreeSet::new(),
            first_kept: None,
            failed: None,
        }
    }
}

impl Watch {
    /// The next revision that this watch has not delivered; 0 before the snapshot. Another watch can begin there.
    pub fn resume_at(&self) -> u64 {
        self.next
    }

    /// The next message. Waits as long as there is none; an error is final.
    pub async fn next(&mut self) -> Result<WatchEvent, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let silence_max = self.options.progress_every.saturating_mul(3).max(Duration::from_secs(1));
        loop {
            let Some(open) = &mut self.stream else {
                self.open().await?;
                continue;
            };
            let failure = match tokio::time::timeout(silence_max, open.stream.message()).await {
                Ok(Ok(Some(message))) => {
                    self.lost_since = None;
                    self.backoff.reset();
                    self.compacted.clear();
                    if let Some(event) = self.take(message)? {
                        return Ok(event);
                    }
                    continue;
                }
                Ok(Ok(None)) => Failure::NoAnswer { why: "the node ended the watch".to_owned(), timed_out: false },
                Ok(Err(status)) => Failure::of(&status),
                Err(_) => Failure::NoAnswer { why: "the node fell silent".to_owned(), timed_out: true },
            };
            let (endpoint, turn) = (open.endpoint.clone(), open.turn);
            self.lost(&endpoint, turn, failure).await?;
        }
    }

    /// Takes one message in: what the caller should see of it, if anything.
    fn take(&mut self, message: WatchResponse) -> Result<Option<WatchEvent>, Error> {
        let revision = message.revision;
        match message.body {
            Some(Body::Snapshot(part)) => {
                let Some(open) = self.stream.as_mut().filter(|_| self.next == 0) else {
                    let lacks = "the changes that were asked for (it sent a snapshot)";
                    return Err(self.fail(self.client.malformed(lacks)));
                };
                open.parts.extend(part.resources);
                if !part.complete {
                    return Ok(None);
                }
                let resources = std::mem::take(&mut open.parts);
                self.next = revision.saturating_add(1);
                self.told = revision;
                Ok(Some(WatchEvent::Snapshot { revision, resources }))
            }
            Some(Body::Changes(body)) if revision >= self.next && self.next > 0 => {
                self.next = revision.saturating_add(1);
                self.told = revision;
                Ok(Some(WatchEvent::Changes { revision, time_ms: body.time_ms, changes: body.changes }))
            }
            // A node that is behind the one before it may say what was said already.
            Some(Body::Changes(_)) => Ok(None),
            Some(Body::Progress(_)) if revision > self.told && self.next > 0 => {
                // "Nothing matched up to here": the next node need not look at it again.
                self.next = self.next.max(revision.saturating_add(1));
                self.told = revision;
                Ok(Some(WatchEvent::Progress { revision }))
            }
            Some(Body::Progress(_)) | None => Ok(None),
        }
    }

    /// Opens a stream at the endpoint in use, or moves on from it.
    async fn open(&mut self) -> Result<(), Error> {
        let pool = self.client.pool.clone();
        let (turn, endpoint) = pool.current();
        let channel = match pool.channel(endpoint).await {
            Ok(channel) => channel,
            Err(NotConnected(why)) => return self.lost(endpoint, turn, Failure::NotSent(why)).await,
        };
        let message = WatchRequest {
            kinds: self.options.kinds.iter().map(|kind| kind.plural().to_owned()).collect(),
            name: self.options.name.clone().unwrap_or_default(),
            from_revision: self.next,
            progress_interval_ms: u32::try_from(self.options.progress_every.as_millis()).unwrap_or(u32::MAX),
        };
        // No deadline on the call: it is meant to last. Only its beginning is limited.
        let request = self.client.request(message, None);
        let mut service = WatchClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        let opening = tokio::time::timeout(self.client.options.attempt_timeout, service.watch(request));
        let failure = match opening.await {
            Ok(Ok(answer)) => {
                let stream = answer.into_inner();
                self.stream = Some(Open { stream, endpoint: endpoint.clone(), turn, parts: Vec::new() });
                return Ok(());
            }
            Ok(Err(status)) => Failure::of(&status),
            Err(_) => Failure::NoAnswer { why: "no answer in time".to_owned(), timed_out: true },
        };
        self.lost(endpoint, turn, failure).await
    }

    /// Moves on from a node that failed, after a pause; an error if that is not worth while.
    async fn lost(&mut self, endpoint: &Endpoint, turn: usize, failure: Failure) -> Result<(), Error> {
        self.stream = None;
        let mut answer = None;
        match failure {
            // Nodes purge on their own, so another one may still have it.
            Failure::Refused(refusal) if is_compacted(&refusal) => {
                self.first_kept = refusal.metadata.get("first").and_then(|first| first.parse().ok());
                self.compacted.insert(endpoint.clone());
                if self.compacted.len() == self.client.pool.len() {
                    return Err(self.fail(Error::Compacted { asked: self.next, first: self.first_kept }));
                }
                self.tried.note(endpoint, &refusal.to_string());
            }
            Failure::Refused(refusal) => return Err(self.fail(Error::Refused(refusal))),
            Failure::NotNow { refusal, .. } => {
                self.tried.note(endpoint, &refusal.to_string());
                answer = Some(refusal);
            }
            Failure::NotSent(why) | Failure::NoAnswer { why, .. } => {
                self.tried.note(endpoint, &why);
                self.client.pool.forget(endpoint);
            }
        }
        self.client.pool.rotate(turn);
        tracing::debug!(%endpoint, next = self.next, "a watch moves on to another node");
        let since = *self.lost_since.get_or_insert_with(Instant::now);
        let pause = self.backoff.pause();
        if since.elapsed() + pause >= self.options.outage_max {
            if !self.compacted.is_empty() {
                return Err(self.fail(Error::Compacted { asked: self.next, first: self.first_kept }));
            }
            let tried = std::mem::take(&mut self.tried).into_list();
            return Err(self.fail(Error::Unavailable { tried, answer, maybe_done: false }));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn fail(&mut self, error: Error) -> Error {
        self.stream = None;
        self.failed = Some(error.clone());
        error
    }
}

fn is_compacted(refusal: &Refusal) -> bool {
    refusal.code == Code::OutOfRange && refusal.reason == REVISION_COMPACTED
}
