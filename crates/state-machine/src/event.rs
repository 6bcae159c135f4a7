//! Everything that can have happened. An event is a fact that nobody can refuse: [`crate::evolve`] writes it into the state.
//!
//! Events carry the whole new resource, so that a watcher and the journal need nothing else to tell what happened.
//! They carry no explanatory text: they are under the hash chain, and a better wording must not look like divergence.

use serde::{Deserialize, Serialize};

use crate::encoding::{Decoder, Encoder, numbered};
use crate::table::Key;
use crate::{
    Action, Blob, Cluster, ClusterId, Decision, DecodeError, Epoch, Hash, LogIndex, NodeNumber, Noted, Observation,
    Operation, OperationEnd, Override, Pause, Planned, Reason, Report, RestoredKnowledge, ResumeReason, Revision, Role,
    RulesVersion, SettingValue, Signal, Size, Strategy, StrategyId, StrategyKind, StrategyState, Wake,
};

numbered! {
    /// A fact: past tense, derived from a command or from the passing of time.
    pub enum Event ("event") {
        1 => LeaderAnnounced { node: NodeNumber, term: u64, epoch: Epoch },
        3 => RulesRaised { from: RulesVersion, to: RulesVersion },
        4 => NodeAdmitted { node: NodeNumber, name: String, address: String },
        5 => GroupFounded { nodes: u64 },

        10 => SizeCreated { size: Size },
        11 => SizeChanged { before: Box<Size>, size: Size },
        12 => SizeDropped { size: Size },

        20 => ClusterCreated { cluster: Cluster },
        21 => ClusterRenamed { from: String, cluster: Cluster },
        22 => ClusterDropped { cluster: Cluster },

        /// It lives there now, or, without a backend, wherever the setting says. Follows a rename and a restore, too.
        24 => ClusterPlaced { cluster: Cluster, backend: Option<Key> },

        30 => SettingSet { name: String, value: SettingValue, updated: Revision },
        31 => SettingReset { name: String, updated: Revision },

        40 => RestoreBegun { restore: Revision, bytes_total: u64, hash: Hash },
        41 => RestoreChunkStored { restore: Revision, offset: u64, bytes: Blob },
        /// The tables are empty now; what the backup held follows as events of its own.
        42 => RestoreFinished {
            restore: Revision,
            incarnation: u64,
            backup_index: LogIndex,
            backup_incarnation: u64,
            /// The highest node number that either the group or the backup had given out.
            nodes: u64,
        },
        43 => RestoreAborted { restore: Revision, reason: AbortReason },
        44 => SizeRestored { size: Size },
        45 => ClusterRestored { cluster: Cluster },
        /// Without a value: somebody had set it back to the default.
        46 => SettingRestored { name: String, value: Option<SettingValue>, updated: Revision },
        47 => StrategyRestored { strategy: Strategy },
        /// What is known about a cluster that is there after a restore.
        48 => ClusterKnowledgeRestored { cluster: ClusterId, knowledge: Box<RestoredKnowledge> },

        50 => StrategyCreated { strategy: Strategy },
        51 => StrategyChanged { before: Box<Strategy>, strategy: Strategy },
        52 => StrategyDropped { strategy: Strategy },
        /// It came to no decision; its cluster holds.
        53 => StrategyFaulted { cluster: ClusterId, strategy: StrategyId, reason: Reason },
        /// Somebody has set by hand what it remembers; without a state: it has forgotten everything.
        54 => StrategyStateSet { cluster: ClusterId, kind: StrategyKind, state: Option<StrategyState> },

        60 => SignalsReported {
            collector: Key,
            sequence: u64,
            cluster: ClusterId,
            observations: Vec<Observation>,
        },
        /// It had nothing to say about any cluster that exists.
        61 => CollectorHeard { collector: Key, sequence: u64 },

        70 => ClusterPaused { cluster: ClusterId, pause: Pause },
        71 => ClusterResumed { cluster: ClusterId, reason: ResumeReason },
        /// Somebody wants a replica to be made or dropped. It begins as soon as nothing else is under way on the cluster.
        72 => ReplicaAsked { cluster: ClusterId, asked: Box<Planned> },

        80 => DecisionMade { decision: Box<Decision> },

        90 => ActionPlanned { action: Box<Action> },
        91 => ActionApproved { action: Box<Action> },
        92 => ActionClaimed { action: Box<Action> },
        /// It failed and will be tried again.
        93 => ActionReturned { action: Box<Action> },
        /// It was called, and nobody knows what came of it.
        94 => ActionUnsure { action: Box<Action> },
        /// Also once more, when an operator has found out what came of one that had been given up.
        95 => ActionSettled { action: Box<Action>, report: Report },
        /// An operator wants it to be tried again, or read back, at once.
        96 => ActionHurried { action: Box<Action> },
        /// An operator wants what was given up to be decided about afresh.
        97 => DeadLetterCleared { action: Box<Action>, reason: String },
        /// The rows of these settled actions are no longer shown. What happened stays in the journal.
        98 => ActionRowsDeleted { cluster: ClusterId, numbers: Vec<u64> },

        100 => OperationBegun { operation: Operation },
        101 => OperationAdvanced { operation: Operation },
        102 => OperationEnded { operation: Operation, end: OperationEnd },

        110 => RoleCreated { role: Box<Role> },
        111 => RoleChanged { role: Box<Role> },
        112 => RoleDropped { role: Box<Role> },
        /// On this cluster, or, without one, on all.
        113 => UsageGranted { role: Box<Role>, on: Option<ClusterId> },
        /// Also because the cluster has gone.
        114 => UsageRevoked { role: Box<Role>, on: Option<ClusterId> },
        115 => TokenCreated { role: Box<Role>, token: String },
        116 => TokenDropped { role: Box<Role>, token: String },
        117 => RoleRestored { role: Box<Role> },

        120 => SignalCreated { signal: Box<Signal> },
        121 => SignalChanged { before: Box<Signal>, signal: Box<Signal> },
        122 => SignalDropped { signal: Box<Signal> },
        123 => SignalRestored { signal: Box<Signal> },
        /// It was asked for, and no value came of it.
        124 => SignalFailed { signal: String, error: String },
        /// Somebody wants it awake, or it wakes by itself because somebody uses it.
        140 => ClusterWoken { cluster: ClusterId, wake: Wake },
        141 => ClusterOverridden { cluster: ClusterId, floor: Override },
        142 => OverrideEnded { cluster: ClusterId, reason: ResumeReason },
        /// Whether it keeps checkpoints of what is suspended there.
        143 => BackendDescribed { backend: Key, checkpoints: bool },

        /// What a strategy that follows signals recommends from here on.
        150 => CourseNoted { cluster: ClusterId, strategy: StrategyId, kind: StrategyKind, noted: Noted },
    }
}

/// The numbers of those that the past is read by, for the keys of the audit index.
impl Event {
    pub const DECISION_MADE: u16 = 80;
    pub const ACTION_SETTLED: u16 = 95;
    pub const OPERATION_ENDED: u16 = 102;
}

/// Why a restore ended without being put in place. New reasons go at the end: the place is the number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AbortReason {
    Asked,
    /// Another restore began.
    Superseded,
    /// No chunk came for too long.
    Idle,
}

/// What brought an event about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The request at this place in the entry.
    Request(u32),
    /// No request by itself: what was due, or followed from the entry as a whole.
    Reaction,
}

const EVENTS_FORMAT: u16 = 1;
/// What an event takes, about.
const EVENT_BYTES: usize = 128;

/// The counterpart of [`decode_caused_events`].
pub fn encode_caused_events<'a>(events: impl IntoIterator<Item = (Cause, &'a Event)>) -> Vec<u8> {
    let events = events.into_iter();
    let mut out = Encoder::with_format(EVENTS_FORMAT);
    out.expect(events.size_hint().0 * EVENT_BYTES);
    for (cause, event) in events {
        out.put(&cause);
        event.write(&mut out);
    }
    out.into_bytes()
}

/// The events of one entry, in order.
pub fn decode_events(bytes: &[u8]) -> Result<Vec<Event>, DecodeError> {
    Ok(decode_caused_events(bytes)?.into_iter().map(|(_, event)| event).collect())
}

/// The events of one entry, each with the request that brought it about: who did it is in the entry.
pub fn decode_caused_events(bytes: &[u8]) -> Result<Vec<(Cause, Event)>, DecodeError> {
    let mut from = Decoder::with_format("events", EVENTS_FORMAT, bytes)?;
    let mut events = Vec::new();
    while !from.is_empty() {
        events.push((from.take()?, Event::read(&mut from)?));
    }
    from.finish()?;
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There is one for every signal, they are moved about, and the latest ones are kept in memory: what is large is boxed.
    #[test]
    fn an_event_is_small() {
        assert!(size_of::<Event>() <= 128, "{}", size_of::<Event>());
    }
}
