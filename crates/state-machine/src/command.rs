//! Everything that can be asked of the state machine. What follows from a command is decided in [`crate::decide`].
//!
//! Commands arrive checked for shape by the edge, but are checked again when they are decided: the log is the only
//! thing the state machine trusts, and it trusts it to be the same everywhere, not to be reasonable.

use crate::encoding::numbered;
use crate::{
    ActionId, Blob, ClusterId, ClusterReport, Collected, Epoch, Hash, LogIndex, NodeNumber, Options, Outcome,
    PasswordChange, PushedValue, Revision, RulesVersion, ScramVerifier, SignalKind, Span, StrategyId, StrategyKind,
    StrategyState, TargetName, UsageOn, WakeReason,
};

numbered! {
    /// A change that somebody asks for: imperative, and possibly refused.
    pub enum Command ("command") {
        /// The first entry of a leadership. Its index is the leader's epoch.
        1 => AnnounceLeader { node: NodeNumber, term: u64 },
        /// Nothing but the passing of time, which deadlines need when nobody asks for anything.
        2 => Tick,
        /// Every node knows these rules now: derive by them from the next command on.
        3 => RaiseRules { to: RulesVersion },
        /// Gives a node that wants to join a number that no other node ever had.
        4 => AdmitNode { name: String, address: String },
        /// The group begins with nodes 1 to `nodes`; numbers above are free.
        5 => FoundGroup { nodes: u64 },

        10 => CreateSize {
            name: String,
            /// Position on the ladder; without it, ten above the highest.
            rank: Option<u32>,
            slots: u32,
            price_micros_per_hour: u64,
        },
        /// What is absent stays as it is.
        11 => ChangeSize {
            name: String,
            rank: Option<u32>,
            slots: Option<u32>,
            price_micros_per_hour: Option<u64>,
            etag: Option<Revision>,
        },
        12 => DropSize { name: String, etag: Option<Revision>, allow_missing: bool },

        20 => CreateCluster { name: String },
        21 => RenameCluster { name: String, to: String, etag: Option<Revision> },
        22 => DropCluster { name: String, etag: Option<Revision>, allow_missing: bool },
        /// Also one that has replicas, or actions whose outcome is not known.
        23 => DropClusterCascade { name: String, etag: Option<Revision>, allow_missing: bool },

        /// Says where its replicas live; nothing: wherever the setting `default_backend` says.
        24 => PlaceCluster { name: String, backend: Option<String>, etag: Option<Revision> },

        30 => SetSetting { name: String, value: String, etag: Option<Revision> },
        /// Back to the default.
        31 => ResetSetting { name: String, etag: Option<Revision> },

        /// Announces a backup that will come in chunks. One that was under way is given up.
        40 => BeginRestore { bytes_total: u64, hash: Hash },
        /// The next piece of the backup. `restore` is what `BeginRestore` answered, so that a straggler of an earlier
        /// restore cannot get into this one.
        41 => RestoreChunk { restore: Revision, offset: u64, bytes: Blob },
        /// Puts the complete backup in place, in one step, and starts a new incarnation.
        42 => FinishRestore { restore: Revision },
        /// Gives the restore up; without `restore`, whichever is under way.
        43 => AbortRestore { restore: Option<Revision> },

        50 => CreateStrategy {
            target: TargetName,
            kind: StrategyKind,
            options: Options,
            if_not_exists: bool,
            /// Taken as it is, as a direct write to the table of strategies: if it means nothing, it is out of order.
            unchecked: bool,
        },
        /// What is not named stays as it is.
        51 => ChangeStrategy {
            target: TargetName,
            kind: StrategyKind,
            options: Options,
            /// Keys that go back to their defaults.
            reset: Vec<String>,
            etag: Option<Revision>,
            unchecked: bool,
        },
        52 => DropStrategy { target: TargetName, kind: StrategyKind, etag: Option<Revision>, allow_missing: bool },
        /// Every strategy that is for exactly this target.
        53 => DropStrategies { target: TargetName },
        /// Changes nothing, and is refused if this strategy is not as it was read: whoever computes what to write from what is
        /// there puts it first, so that the whole request is refused if somebody was faster.
        54 => ExpectStrategy { strategy: StrategyId, target: TargetName, etag: Revision },
        /// What a strategy remembers about one cluster, set by hand; nothing: it has forgotten everything. Refused if it does
        /// not remember what was expected.
        55 => SetStrategyState {
            strategy: StrategyId,
            cluster: ClusterId,
            expected: Option<StrategyState>,
            state: Option<StrategyState>,
        },
        /// Changes nothing, and is refused if anything that decides about these targets was changed after this entry: the settings, the sizes,
        /// the clusters themselves with their pause and override, and the strategies that rule them. These strategies must still be there.
        56 => ExpectUnchanged { since: LogIndex, targets: Vec<TargetName>, strategies: Vec<StrategyId> },

        /// What a collector saw. A sequence that was heard before changes nothing.
        60 => ReportSignals { collector: String, sequence: u64, clusters: Vec<ClusterReport> },

        70 => PauseCluster { cluster: String, reason: String, expires_in: Option<Span> },
        71 => ResumeCluster { cluster: String },
        /// One more replica, beside whatever the strategies want. It is made once, and not kept: what strategies that may touch it
        /// make of it is theirs.
        72 => CreateReplica { cluster: String, replica: String, size: String, if_not_exists: bool },
        73 => DropReplica { cluster: String, replica: String, allow_missing: bool },

        /// The intent to call the backend, as the leader of this epoch, for the so-manieth time.
        80 => ClaimAction {
            action: ActionId,
            epoch: Epoch,
            attempt: u32,
            /// Where it is called. The first claim says so for good.
            backend: String,
            /// Of all that the call says, so that nobody repeats it with something else under the same key.
            parameters: Hash,
        },
        81 => RecordOutcome { action: ActionId, epoch: Epoch, attempt: u32, outcome: Outcome },
        82 => ApproveAction { action: ActionId },
        83 => RejectAction { action: ActionId, reason: String },
        /// Do not wait: try again, or read back, at once. What was given up is decided about afresh.
        85 => RetryAction { action: ActionId, reason: String },
        /// An operator has found out what came of it.
        86 => ResolveAction { action: ActionId, succeeded: bool, reason: String },
        /// Nobody will find out what came of it, or wants it done.
        87 => AbandonAction { action: ActionId, reason: String },
        /// Takes rows of settled actions of one cluster out of the table, by their numbers. The journal keeps them.
        88 => DeleteActions { cluster: ClusterId, numbers: Vec<u64> },

        /// What a node was configured with, as the default of the group: it counts only if nobody has ever set or reset this
        /// setting, so that a node that starts does not undo what an operator said.
        90 => SuggestSetting { name: String, value: String },
        /// What `idle_suspend` took away comes back. One that runs is only kept awake.
        91 => WakeCluster { cluster: String, reason: WakeReason },
        /// For a while, at least so many replicas, whatever the strategies say.
        92 => OverrideCluster {
            cluster: String,
            replicas_min: u32,
            /// Of those that have to be made; without one, that of the largest replica there is or was.
            size: Option<String>,
            reason: String,
            expires_in: Span,
        },
        93 => ClearOverride { cluster: String },
        /// What a backend can do, as the leader of this epoch has found out.
        94 => DescribeBackend { epoch: Epoch, backend: String, checkpoints: bool },

        /// Without a verifier it cannot log in with a password.
        110 => CreateRole { name: String, superuser: bool, verifier: Option<ScramVerifier>, if_not_exists: bool },
        /// What is absent stays as it is.
        111 => AlterRole {
            name: String,
            superuser: Option<bool>,
            password: PasswordChange,
            etag: Option<Revision>,
        },
        112 => DropRole { name: String, etag: Option<Revision>, allow_missing: bool },
        113 => GrantUsage { role: String, on: UsageOn },
        114 => RevokeUsage { role: String, on: UsageOn },
        /// The edge has made the token and shown it to whoever asked; here is only what it is recognised by.
        115 => CreateToken { role: String, token: String, hash: Hash, expires_in: Option<Span> },
        116 => DropToken { role: String, token: String, allow_missing: bool },

        120 => CreateSignal {
            name: String,
            kind: SignalKind,
            target: TargetName,
            /// Without it, every 15 s. None for one that is pushed.
            every: Option<Span>,
            options: Options,
            if_not_exists: bool,
        },
        /// What is absent stays as it is.
        121 => ChangeSignal {
            name: String,
            target: Option<TargetName>,
            every: Option<Span>,
            options: Options,
            /// Keys that go back to their defaults.
            reset: Vec<String>,
            etag: Option<Revision>,
        },
        122 => DropSignal { name: String, etag: Option<Revision>, allow_missing: bool },
        /// What came of asking for signals, as the leader of this epoch.
        123 => RecordSignals { epoch: Epoch, collected: Vec<Collected> },
        /// Values of signals that nobody asks for.
        124 => PushSignals { values: Vec<PushedValue> },
    }
}
