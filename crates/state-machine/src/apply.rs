//! How one entry changes the state. [`apply`] is the only way in.
//!
//! Two kinds of change: what users can see goes through `decide` and `evolve` and is told as events; the book-keeping of
//! the machine itself (time, the hash chain, the memory of requests) is done here, and follows from the entries alone.

use loadline_mutants::Mutant;

use crate::chain::{self, Link};
use crate::decide::{Moment, decide, event_count};
use crate::event::encode_caused_events;
use crate::evolve::evolve;
use crate::requests::Remembered;
use crate::scaling::evaluate;
use crate::scaling::wake;
use crate::settings::{REQUEST_WINDOW, REQUEST_WINDOW_COUNT};
use crate::signals::report;
use crate::strategies::STRATEGIES;
use crate::{
    Answer, Blob, Cause, Cluster, ClusterView, Command, Done, Event, Hash, LogIndex, Receipt, Refused, Rejection,
    RejectionClass, Request, Sealed, State, Time, restore,
};

/// More than an `apply -f` of a large file needs; one request must not hold up the log for everybody else.
pub const COMMANDS_PER_REQUEST_MAX: usize = 1_000;

/// What applying one entry brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub index: LogIndex,
    /// Logical time at this index.
    pub time: Time,
    /// The hash chain up to and including this index.
    pub hash: Hash,
    /// One per request, in order.
    pub receipts: Vec<Receipt>,
    pub events: Vec<Event>,
    /// What brought each event about; as many as there are events.
    pub causes: Vec<Cause>,
    events_bytes: Blob,
}

impl Applied {
    /// For the journal; these are the bytes under the hash chain.
    pub fn encode_events(&self) -> Vec<u8> {
        self.events_bytes.as_slice().to_vec()
    }

    /// The same, shared.
    pub fn events_bytes(&self) -> &Blob {
        &self.events_bytes
    }
}

/// Applies one committed entry.
///
/// Cannot fail: a command we dislike becomes a [`Rejection`] in its receipt, and the entry still counts as applied. An
/// error out of here would stop Raft on every node at the same index. It panics only when `index` is not the next one, because
/// then this node has lost its place in the log.
pub fn apply(state: &mut State, index: LogIndex, entry: &Sealed) -> Applied {
    chain::assert_next(state, index);
    let requests = &entry.entry().requests;
    // A new leader's clock may be behind the last one's; logical time may not be, or what has expired could revive.
    state.now = state.now.max(entry.entry().stamped_at);
    if Mutant::TimeGoesBack.is_on() {
        state.now = entry.entry().stamped_at;
    }
    if Mutant::ClockReadInApply.is_on() {
        state.now = state.now.max(Time::from_millis(loadline_mutants::clock_ms()));
    }
    // In one piece: growing would move everything again and again, and a report brings about an event for each cluster.
    let expected = requests.iter().flat_map(|request| &request.commands).map(report::events_expected).sum();
    let mut so_far = SoFar::nothing(index, expected);
    let receipts = (0..).zip(requests).map(|(place, request)| settle(state, &mut so_far, place, request)).collect();
    // Once per entry, not per command: what many requests touched is looked at once.
    react(state, &mut so_far, requests.len());

    let SoFar { events, causes, .. } = so_far;
    let events_bytes = encode_caused_events(causes.iter().copied().zip(&events));
    let hash = chain::extend(state, index, Link::Entry { bytes: entry.bytes(), events: &events_bytes });
    Applied { index, time: state.now, hash, receipts, events, causes, events_bytes: events_bytes.into() }
}

/// Passes over an index that holds something of Raft's own, as a change of membership: it is part of the chain, and
/// nothing else happens.
pub fn pass(state: &mut State, index: LogIndex, payload: &[u8]) -> Applied {
    chain::assert_next(state, index);
    let hash = chain::extend(state, index, Link::Passed { payload });
    let events_bytes = encode_caused_events([]).into();
    Applied { index, time: state.now, hash, receipts: vec![], events: vec![], causes: vec![], events_bytes }
}

/// What `apply` would answer if this request came next, at `now`. Nothing is written, and the request id is not looked at:
/// a rehearsal is no request.
pub fn rehearse(state: &State, request: &Request, now: Time) -> Result<Vec<Done>, Refused> {
    rehearse_fork(state, request, now).map(|(_, done)| done)
}

/// As [`rehearse`], with what the state would be after the request and before anything follows from it: what somebody sees
/// who looks in the middle of their own transaction.
pub fn rehearse_fork(state: &State, request: &Request, now: Time) -> Result<(State, Vec<Done>), Refused> {
    request.proposable()?;
    let mut fork = state.clone();
    fork.now = fork.now.max(now);
    let mut so_far = SoFar::nothing(LogIndex(state.applied.0 + 1), 0);
    let done = perform(&mut fork, &mut so_far, request)?;
    Ok((fork, done))
}

/// The refusal of a request that is wrong by itself, whatever the state: it need not cost everybody an entry of the log. Nothing
/// else is answered from here, because whoever asks may be behind.
pub fn nonsense(state: &State, request: &Request) -> Option<Refused> {
    let outcome = match request.commands.as_slice() {
        // A single command is decided before anything is written, so there is nothing to write for the answer.
        [command] => {
            let at = Moment { index: LogIndex(state.applied.0 + 1), now: state.now, ordinal: 0 };
            let decided =
                decide(state, at, &request.actor, command).map_err(|rejection| Refused { ordinal: 0, rejection });
            request.proposable().and(decided.map(drop))
        }
        _ => rehearse(state, request, state.now).map(drop),
    };
    outcome.err().filter(|refused| refused.rejection.class() == RejectionClass::Invalid)
}

/// What the entry has brought about so far.
struct SoFar {
    index: LogIndex,
    events: Vec<Event>,
    /// Of the first so many events.
    causes: Vec<Cause>,
}

impl SoFar {
    /// With room for as many events as are expected.
    fn nothing(index: LogIndex, expected: usize) -> Self {
        Self { index, events: Vec::with_capacity(expected), causes: Vec::with_capacity(expected) }
    }

    fn moment(&self, state: &State) -> Moment {
        Moment { index: self.index, now: state.now, ordinal: event_count(self.events.len()) }
    }

    /// Says what brought those events about that nobody has said it of.
    fn blame(&mut self, cause: Cause) {
        self.causes.resize(self.events.len(), cause);
    }
}

/// Answers one request: from memory if it was answered before, else by doing all of it or nothing.
fn settle(state: &mut State, so_far: &mut SoFar, place: u32, request: &Request) -> Receipt {
    let index = so_far.index;
    let answered = |result| Receipt { index, result, repeated: false };
    let remember_as = request.request_id.map(|id| (id, request.payload_hash()));
    if let Some((id, payload)) = remember_as {
        match state.requests.recognise(id, payload, state.now, state.settings.span(&REQUEST_WINDOW)) {
            Ok(None) => {}
            Ok(Some(_)) if Mutant::RepeatExecuted.is_on() => {}
            Ok(Some(first_answer)) => return first_answer,
            // Not remembered: under this id there is either another answer already, or no room for one.
            Err(rejection) => return answered(Err(Refused { ordinal: 0, rejection })),
        }
    }

    let receipt = answered(perform_all_or_nothing(state, so_far, request));
    so_far.blame(Cause::Request(place));
    if let Some((id, payload)) = remember_as {
        state.requests.remember(id, Remembered::new(payload, &receipt));
    }
    receipt
}

fn perform_all_or_nothing(state: &mut State, so_far: &mut SoFar, request: &Request) -> Result<Vec<Done>, Refused> {
    // A single command is decided before anything is written, so it is all or nothing without a fork. The fork would make
    // every write of a packed entry copy its path through the tables again.
    if request.commands.len() == 1 || report::none_is_refused(state, so_far.moment(state), request) {
        return perform(state, so_far, request);
    }
    let before = so_far.events.len();
    let mut fork = state.clone();
    let done = perform(&mut fork, so_far, request).inspect_err(|_| so_far.events.truncate(before))?;
    *state = fork;
    Ok(done)
}

/// Does the commands of a request one after the other, each seeing what those before left. If one that is not the first
/// is refused, the state and the events are left in the middle of things and must be thrown away.
fn perform(state: &mut State, so_far: &mut SoFar, request: &Request) -> Result<Vec<Done>, Refused> {
    let count = request.commands.len();
    let whole = |rejection| Refused { ordinal: 0, rejection };
    if count == 0 {
        return Err(whole(Rejection::NoCommands));
    }
    if count > COMMANDS_PER_REQUEST_MAX {
        let count_max = COMMANDS_PER_REQUEST_MAX as u64;
        return Err(whole(Rejection::TooManyCommands { count: count as u64, count_max }));
    }
    let mut done = Vec::with_capacity(count);
    for (ordinal, command) in (0..).zip(&request.commands) {
        let at = so_far.moment(state);
        let events = decide(state, at, &request.actor, command).map_err(|rejection| Refused { ordinal, rejection })?;
        for event in &events {
            evolve(state, event);
        }
        done.push(Done { changed: !events.is_empty(), answer: answer(state, command, &events) });
        so_far.events.extend(events);
    }
    Ok(done)
}

/// What a command left behind, read from the state after it.
fn answer(state: &State, command: &Command, events: &[Event]) -> Answer {
    let answer = match command {
        Command::Tick
        | Command::RaiseRules { .. }
        | Command::FoundGroup { .. }
        | Command::DropSize { .. }
        | Command::DropCluster { .. }
        | Command::DropClusterCascade { .. }
        | Command::DropStrategy { .. }
        | Command::DropStrategies { .. }
        | Command::ExpectStrategy { .. }
        | Command::ExpectUnchanged { .. }
        | Command::SetStrategyState { .. }
        | Command::DeleteActions { .. }
        | Command::PauseCluster { .. }
        | Command::ResumeCluster { .. }
        | Command::CreateReplica { .. }
        | Command::DropReplica { .. }
        | Command::OverrideCluster { .. }
        | Command::ClearOverride { .. }
        | Command::DescribeBackend { .. }
        | Command::DropRole { .. }
        | Command::DropSignal { .. }
        | Command::RecordSignals { .. }
        | Command::PushSignals { .. }
        | Command::AbortRestore { .. } => None,
        Command::AnnounceLeader { .. } => state.epoch().map(Answer::Epoch),
        Command::AdmitNode { .. } => events.iter().find_map(|event| match event {
            Event::NodeAdmitted { node, .. } => Some(Answer::Node(*node)),
            _ => None,
        }),
        Command::CreateSize { name, .. } | Command::ChangeSize { name, .. } => {
            state.size(name).cloned().map(Answer::Size)
        }
        Command::CreateCluster { name } | Command::RenameCluster { to: name, .. } => {
            state.cluster(name).map(|cluster| answer_with(state, cluster))
        }
        Command::PlaceCluster { name, .. } => {
            state.cluster(name).map(|it| Answer::PlacedCluster(state.cluster_view(it)))
        }
        Command::WakeCluster { cluster, .. } => wake::woke(state, cluster).map(Box::new).map(Answer::Woke),
        Command::SetSetting { name, .. }
        | Command::ResetSetting { name, .. }
        | Command::SuggestSetting { name, .. } => state.setting(name).map(Answer::Setting),
        Command::BeginRestore { .. } | Command::RestoreChunk { .. } => state
            .restore
            .as_ref()
            .map(|staging| Answer::Restoring { restore: staging.head.restore, bytes_received: staging.received() }),
        Command::FinishRestore { .. } => events.iter().find_map(|event| match event {
            Event::RestoreFinished { incarnation, backup_index, backup_incarnation, .. } => Some(Answer::Restored {
                incarnation: *incarnation,
                backup_index: *backup_index,
                backup_incarnation: *backup_incarnation,
            }),
            _ => None,
        }),
        Command::CreateStrategy { target, kind, .. } | Command::ChangeStrategy { target, kind, .. } => {
            state.strategy_for(target, *kind).cloned().map(Answer::Strategy)
        }
        Command::CreateRole { name: role, .. }
        | Command::AlterRole { name: role, .. }
        | Command::GrantUsage { role, .. }
        | Command::RevokeUsage { role, .. }
        | Command::CreateToken { role, .. }
        | Command::DropToken { role, .. } => state.role(role).map(|role| Answer::Role(Box::new(role.view()))),
        Command::CreateSignal { name, .. } | Command::ChangeSignal { name, .. } => {
            state.signal(name).map(|signal| Answer::Signal(Box::new(signal.clone())))
        }
        Command::ReportSignals { collector, clusters, .. } => {
            Some(Answer::Reported(report::receipt(state, collector, clusters, events)))
        }
        Command::ClaimAction { action, .. }
        | Command::RecordOutcome { action, .. }
        | Command::ApproveAction { action }
        | Command::RejectAction { action, .. }
        | Command::RetryAction { action, .. }
        | Command::ResolveAction { action, .. }
        | Command::AbandonAction { action, .. } => {
            let told = events.iter().find_map(Event::action).or_else(|| state.action(*action));
            told.map(|action| Answer::Action(Box::new(action.clone())))
        }
    };
    answer.unwrap_or(Answer::Nothing)
}

fn answer_with(state: &State, cluster: &Cluster) -> Answer {
    match state.cluster_view(cluster) {
        ClusterView { cluster, backend: None } => Answer::Cluster(cluster),
        placed => Answer::PlacedCluster(placed),
    }
}

/// What follows from the entry as a whole and from the passing of time.
fn react(state: &mut State, so_far: &mut SoFar, requests: usize) {
    if let Some(event) = restore::give_up_if_idle(state.restore.as_deref(), state.now) {
        evolve(state, &event);
        so_far.events.push(event);
    }
    let events = evaluate::react(state, so_far.moment(state), &so_far.events, &STRATEGIES);
    so_far.events.extend(events);
    so_far.blame(Cause::Reaction);
    let window = state.settings.span(&REQUEST_WINDOW);
    let count_max = state.settings.count(&REQUEST_WINDOW_COUNT);
    state.requests.forget(state.now, window, count_max, requests);
}
