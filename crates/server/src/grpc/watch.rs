//! Service `Watch`: what is there, then every change, with no gap and no repeat.
//!
//! A watch holds almost nothing: its place in the log, and a few messages that wait to be sent. A watcher that is slow is
//! served from the journal at its own pace, so it costs no memory; one that takes nothing at all for a while is let go, and
//! resumes by revision when it comes back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use loadline_api::v1::watch_response::Body;
use loadline_api::v1::watch_server::Watch;
use loadline_api::v1::{Changes, ResourceChange, Snapshot, WatchRequest, WatchResponse};
use loadline_api::{fields, listing, millis, resource, resource_change, size_of};
use loadline_mutants::Mutant;
use loadline_raft_node::{Consistency, Feed, Happened, Node};
use loadline_state_machine::{
    self as domain, Actor, Event, LogIndex, ResourceKind, ResourceName, State, resource_changes,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status};

use super::actor::actor_of;
use super::errors::{self, Answer};
use super::exchange::name_nodes;
use crate::metrics::Metrics;

/// Messages that wait for a slow connection. Enough to keep a fast one busy; the rest waits in the log.
const WAITING_MAX: usize = 16;
/// Resources in one part of a snapshot: some hundred kilobytes at most.
const PART_RESOURCES: usize = 500;
/// A watcher that takes nothing for this long holds a place that another could have.
const STALLED_AFTER: Duration = Duration::from_secs(30);
const PROGRESS_DEFAULT: Duration = Duration::from_secs(5);
const PROGRESS_MIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct WatchService {
    pub(crate) node: Node,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) message_out_max: usize,
    /// Set when the node is about to stop: watchers move on to another one.
    pub(crate) closing: CancellationToken,
}

#[tonic::async_trait]
impl Watch for WatchService {
    type WatchStream = Messages;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Messages>, Status> {
        let actor = actor_of(&request)?;
        let request = request.into_inner();
        let wanted = Wanted::read(&request)?;
        let (snapshot, feed) = match request.from_revision {
            0 => {
                let state = self.node.read(Consistency::Linearizable).await.map_err(|error| errors::read(&error))?;
                let next = LogIndex(state.applied().0 + 1);
                (Some(state), self.follow(next)?)
            }
            from => {
                let skipped = u64::from(Mutant::WatchSkipsOnResume.is_on());
                let feed = self.follow(LogIndex(from + skipped))?;
                self.refuse_the_future(from).await?;
                (None, feed)
            }
        };
        let (messages, received) = mpsc::channel(WAITING_MAX);
        let (last_word, end) = oneshot::channel();
        let watching = Watching {
            node: self.node.clone(),
            actor,
            feed,
            wanted,
            messages,
            metrics: Arc::clone(&self.metrics),
            message_out_max: self.message_out_max,
            last_sent: Instant::now(),
        };
        let (closing, metrics) = (self.closing.clone(), Arc::clone(&self.metrics));
        metrics.watch_streams.inc();
        tokio::spawn(async move {
            let ended = tokio::select! {
                biased;
                () = closing.cancelled() => Ended::With(shutting_down()),
                ended = watching.run(snapshot) => ended,
            };
            if let Ended::With(status) = ended {
                // Nobody listens any more if the caller went away first.
                let _ = last_word.send(status);
            }
            metrics.watch_streams.dec();
        });
        Ok(Response::new(Messages { received, end: Some(end) }))
    }
}

fn shutting_down() -> Status {
    Answer::new(Code::Unavailable, "SHUTTING_DOWN", "this node is shutting down; go on at another one").status()
}

impl WatchService {
    fn follow(&self, from: LogIndex) -> Result<Feed, Status> {
        self.node.follow(from).map_err(|error| errors::feed(&error))
    }

    /// A revision that no node has reached is one of another group, or of this one before it was made anew. Waiting for it
    /// would look like a watch in which nothing ever happens.
    async fn refuse_the_future(&self, from: u64) -> Result<(), Status> {
        if from <= self.node.latest().applied().0 + 1 {
            return Ok(());
        }
        // This node may only be behind the one that the watcher comes from.
        let state = self.node.read(Consistency::Linearizable).await.map_err(|error| errors::read(&error))?;
        let current = state.applied().0;
        if from <= current + 1 {
            return Ok(());
        }
        let message =
            format!("from_revision {from} is ahead of the group, which is at {current}; watch again without it");
        Err(Answer::new(Code::OutOfRange, "REVISION_AHEAD", message).with("current", &current).status())
    }
}

/// What a watcher wants to see.
#[derive(Debug)]
struct Wanted {
    kinds: Vec<ResourceKind>,
    name: Option<ResourceName>,
    progress_every: Duration,
}

impl Wanted {
    fn read(request: &WatchRequest) -> Result<Wanted, Status> {
        let kinds = fields::kinds("kinds", &request.kinds).map_err(errors::invalid)?;
        let name = fields::resource_name("name", &request.name).map_err(errors::invalid)?;
        if let Some(name) = name.as_ref().filter(|name| !kinds.is_empty() && !kinds.contains(&name.kind)) {
            return Err(errors::invalid_field(
                "name",
                format!("{name} is of none of the kinds asked for; leave kinds out"),
            ));
        }
        let progress_every = match request.progress_interval_ms {
            0 => PROGRESS_DEFAULT,
            asked => Duration::from_millis(asked.into()).max(PROGRESS_MIN),
        };
        Ok(Wanted { kinds, name, progress_every })
    }

    fn matches(&self, name: &ResourceName) -> bool {
        match &self.name {
            Some(only) => only == name,
            None => self.kinds.is_empty() || self.kinds.contains(&name.kind),
        }
    }

    fn kinds(&self) -> impl Iterator<Item = ResourceKind> {
        ResourceKind::ALL.iter().copied().filter(|kind| self.kinds.is_empty() || self.kinds.contains(kind))
    }
}

/// How a watch ends.
enum Ended {
    /// The watcher went away.
    Alone,
    With(Status),
}

/// One watch, at work.
struct Watching {
    node: Node,
    /// Who watches: for as long as they may read.
    actor: Actor,
    feed: Feed,
    wanted: Wanted,
    messages: mpsc::Sender<WatchResponse>,
    metrics: Arc<Metrics>,
    message_out_max: usize,
    last_sent: Instant,
}

impl Watching {
    async fn run(mut self, snapshot: Option<Arc<State>>) -> Ended {
        match self.follow(snapshot).await {
            Err(ended) => ended,
            Ok(never) => match never {},
        }
    }

    async fn follow(&mut self, snapshot: Option<Arc<State>>) -> Result<std::convert::Infallible, Ended> {
        if let Some(state) = snapshot {
            self.send_snapshot(&state).await?;
        }
        loop {
            let progress_at = self.last_sent + self.wanted.progress_every;
            let gone = self.messages.clone();
            tokio::select! {
                biased;
                () = gone.closed() => return Err(Ended::Alone),
                // Before the feed: where much happens that nobody here wants to see, the feed never runs dry.
                () = tokio::time::sleep_until(progress_at) => {
                    // A token may have expired though nothing happens.
                    self.check_reader()?;
                    let revision = self.feed.position().0.saturating_sub(1);
                    self.send(WatchResponse { revision, body: Some(Body::Progress(true)) }).await?;
                }
                happened = self.feed.next() => {
                    let happened = happened.map_err(|error| Ended::With(errors::feed(&error)))?;
                    self.check_reader()?;
                    self.send_changes(&happened).await?;
                }
            }
        }
    }

    /// Whoever has lost the right to read since the watch began sees nothing of what comes after.
    fn check_reader(&self) -> Result<(), Ended> {
        let refused = |rejection: domain::Rejection| {
            Ended::With(errors::unauthenticated(rejection.code(), &rejection.to_string()))
        };
        self.node.latest().authorize_reader(&self.actor).map_err(refused)
    }

    async fn send_snapshot(&mut self, state: &State) -> Result<(), Ended> {
        let revision = state.applied().0;
        let parts = Parts::of(state, &self.wanted);
        let node = self.node.clone();
        let mut send = async |resources, complete| {
            let body = Some(Body::Snapshot(Snapshot { resources, complete }));
            self.send(WatchResponse { revision, body }).await
        };
        let mut waiting = None;
        for mut part in parts {
            name_nodes(&node, &mut part);
            if let Some(resources) = waiting.replace(part) {
                send(resources, false).await?;
            }
        }
        send(waiting.unwrap_or_default(), true).await
    }

    fn wanted_of(&self, happened: &Happened) -> Vec<ResourceChange> {
        // What is stored knows clusters by id; the names are those of now.
        let state = self.node.latest();
        let mut changes = resource_changes(&happened.events);
        changes.extend(shown_anew(happened.index, &happened.events, &state));
        changes.retain(|change| self.wanted.matches(&change.name));
        if changes.is_empty() {
            return Vec::new();
        }
        let mut told: Vec<ResourceChange> = changes.iter().map(|change| resource_change(change, &state)).collect();
        name_nodes(&self.node, told.iter_mut().filter_map(|change| change.resource.as_mut()));
        told
    }

    async fn send_changes(&mut self, happened: &Happened) -> Result<(), Ended> {
        let changes = self.wanted_of(happened);
        if changes.is_empty() {
            return Ok(());
        }
        let count = changes.len() as u64;
        let revision = happened.index.0;
        let body = Some(Body::Changes(Changes { changes, time_ms: millis(happened.time) }));
        let message = WatchResponse { revision, body };
        // A restored backup may change everything at one revision. The present comes in parts, a revision does not.
        if size_of(&message) > self.message_out_max {
            let message = format!(
                "revision {revision} changed {count} resources, too many for one message; watch again without from_revision"
            );
            return Err(Ended::With(errors::compacted(revision + 1, message)));
        }
        self.send(message).await?;
        self.metrics.watch_changes.inc_by(count);
        Ok(())
    }

    async fn send(&mut self, message: WatchResponse) -> Result<(), Ended> {
        match self.messages.send_timeout(message, STALLED_AFTER).await {
            Ok(()) => {
                self.last_sent = Instant::now();
                Ok(())
            }
            Err(mpsc::error::SendTimeoutError::Closed(_)) => Err(Ended::Alone),
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => {
                let message = format!("the watcher took nothing for {STALLED_AFTER:?}; resume by from_revision");
                Err(Ended::With(Answer::new(Code::Unavailable, "WATCHER_STALLED", message).status()))
            }
        }
    }
}

/// Clusters that look different now though no event is about what they are: those that were paused or resumed, and with
/// another `default_backend` all that name no backend of their own. Whoever looks at the past is not told of clusters that
/// did not exist then.
fn shown_anew(index: LogIndex, events: &[Event], state: &State) -> Vec<domain::ResourceChange> {
    let mut anew = Vec::new();
    for event in events {
        match event {
            Event::ClusterPaused { cluster, .. } | Event::ClusterResumed { cluster, .. } => {
                anew.extend(state.cluster_by_id(*cluster).map(|cluster| state.cluster_view(cluster)));
            }
            Event::SettingSet { name, .. } | Event::SettingReset { name, .. } if name == "default_backend" => {
                let then = state.clusters_after(None).filter(|cluster| cluster.id.index <= index);
                anew.extend(then.map(|cluster| state.cluster_view(cluster)).filter(|view| view.backend.is_none()));
            }
            _ => {}
        }
    }
    let put = |view| {
        let resource = domain::Resource::Cluster(view);
        domain::ResourceChange { name: resource.name(), resource: Some(resource) }
    };
    anew.into_iter().map(put).collect()
}

/// What a watcher with no revision is told first, in parts.
struct Parts<'a> {
    state: &'a State,
    kinds: Vec<ResourceKind>,
    name: Option<ResourceName>,
    after: Option<String>,
}

impl<'a> Parts<'a> {
    fn of(state: &'a State, wanted: &Wanted) -> Parts<'a> {
        // The last one first, to be popped.
        let mut kinds: Vec<ResourceKind> = wanted.kinds().collect();
        kinds.reverse();
        Parts { state, kinds, name: wanted.name.clone(), after: None }
    }
}

impl Iterator for Parts<'_> {
    type Item = Vec<loadline_api::v1::Resource>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(name) = self.name.take() {
            self.kinds.clear();
            let state = self.state;
            return Some(state.resource(&name).iter().map(|it| resource(it, state)).collect());
        }
        let kind = self.kinds.last()?;
        let rows = listing::rows(self.state, *kind, self.after.as_deref(), PART_RESOURCES)?;
        self.after = match rows.last() {
            Some((position, _)) if rows.len() == PART_RESOURCES => Some(position.clone()),
            _ => {
                self.kinds.pop();
                None
            }
        };
        Some(rows.into_iter().map(|(_, resource)| resource).collect())
    }
}

/// The stream of one watch. After the last message comes the reason why there are no more.
#[derive(Debug)]
pub(crate) struct Messages {
    received: mpsc::Receiver<WatchResponse>,
    end: Option<oneshot::Receiver<Status>>,
}

impl Stream for Messages {
    type Item = Result<WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(message) = ready!(self.received.poll_recv(cx)) {
            return Poll::Ready(Some(Ok(message)));
        }
        let Some(end) = self.end.as_mut() else { return Poll::Ready(None) };
        let last_word = ready!(Pin::new(end).poll(cx));
        self.end = None;
        Poll::Ready(last_word.ok().map(Err))
    }
}
