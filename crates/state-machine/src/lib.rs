//! What Loadline believes, and how one log entry changes it.
//!
//! This crate is pure: no clock, no randomness, no threads, no I/O, no floats, no unordered maps. The same entries give
//! the same state, byte for byte, on every machine and for ever. `clippy.toml` beside it keeps it so.
//!
//! Where to look:
//! - [`apply`] is the way of one entry: deduplicate, `decide`, `evolve`, `react`, extend the hash chain.
//! - [`Command`] is what can be asked, [`Event`] what can have happened, [`Rejection`] why something is refused.
//! - [`State`] is what is believed; `sizes`, `clusters`, `settings`, `access`, `nodes`, `requests` and `restore` are its parts, each
//!   beside the rules that govern it.
//! - `encoding` is how all of it becomes bytes.
//!
//! Deliberately not here: how entries get into the log and who leads (`crates/raft-node`), how bytes survive
//! (`crates/log`), and everything that touches the world outside (`crates/executor`).

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

mod access;
mod apply;
pub mod audit;
mod chain;
mod clusters;
mod command;
mod configuration;
mod configured;
mod decide;
mod encoding;
mod entry;
mod event;
mod evolve;
mod ids;
mod index;
mod journal_entry;
mod names;
mod nodes;
mod receipt;
mod rejection;
mod requests;
mod resource;
mod restore;
mod rules;
mod scaling;
mod settings;
mod signals;
mod sizes;
mod state;
mod state_encoding;
mod strategies;
mod table;
mod time;
mod zones;

pub use access::rejection::AccessRejection;
pub use access::{PasswordChange, Role, RoleView, ScramVerifier, Token, TokenView, UsageOn};
pub use apply::{Applied, COMMANDS_PER_REQUEST_MAX, apply, nonsense, pass, rehearse, rehearse_fork};
pub use chain::{CHECKPOINT_EVERY, CHECKPOINTS_KEPT};
pub use clusters::{Cluster, ClusterView, Whereabouts};
pub use command::Command;
pub use configuration::decimal::{milli_of as read_milli, show_milli};
pub use configuration::options::{
    CONFIG_VERSION, OptionDefinition, OptionKind, OptionValue, Options, option_definition, option_definitions,
    read_option,
};
pub use configuration::schedule::{Holding, Profile, Schedule};
pub use configuration::stored::{Strategy, Target, TargetName};
pub use configuration::tracking::{
    Algorithm, Amount, Behavior, Knative, Policy, Select, TargetKind, TrackedSignal, Tracking,
};
pub use configuration::{Approval, Configuration, ConfigurationProblem, ReplicaScope, Rule, StrategyKind};
pub use configured::collected::{Collected, CollectedOutcome, PushedValue};
pub use configured::options::{
    SignalOption, SignalOptionKind, check_signal_option, read_signal_option, signal_option, signal_options,
    signal_timeout,
};
pub use configured::rejection::{SignalOptionProblem, SignalRejection};
pub use configured::{Signal, SignalKind, SignalStanding, SignalView};
pub use encoding::{Blob, DecodeError};
pub use entry::{Entry, Request, Sealed};
pub use event::{AbortReason, Cause, Event, decode_caused_events, decode_events, encode_caused_events};
pub use ids::{
    Actor, ActorParts, ClusterId, Epoch, Hash, LogIndex, NodeNumber, ParseIdError, Proof, RequestId, Revision,
    RulesVersion,
};
pub use journal_entry::JournalEntry;
pub use nodes::Leader;
pub use receipt::{Answer, Done, Receipt, Refused};
pub use rejection::{Field, NameProblem, Rejection, RejectionClass};
pub use resource::{Resource, ResourceChange, ResourceKind, ResourceName, resource_changes};
pub use restore::{RESTORE_BYTES_MAX, RESTORE_CHUNK_BYTES_MAX};
pub use rules::RULES_VERSION_MAX;
pub use scaling::actions::{
    Action, ActionStatus, Attempt, AttemptEnd, AttemptResult, Call, DrainResult, Outcome, ReplicaLife, Report,
};
pub use scaling::decisions::{Brake, Conclusion, Decision, Held, Shadow};
pub use scaling::explain::Explanation;
pub use scaling::facts::{Fact, Said, Topic};
pub use scaling::floor::Override;
pub use scaling::idle::{IdleRecord, IdleState, IdleTimes, Wake, WakeReason};
pub use scaling::ids::{ActionId, OperationId, StrategyId};
pub use scaling::operations::{FailureReason, Operation, OperationEnd, OperationKind, Phase, Progress, Unit};
pub use scaling::pause::{Pause, ResumeReason};
pub use scaling::plan::{Origin, Planned, Step};
pub use scaling::queues::QueueStanding;
pub use scaling::rejection::{CalledWith, ScalingRejection};
pub use scaling::restored::RestoredKnowledge;
pub use scaling::retention::ActionHistory;
pub use scaling::savings::{DayRow, SavingsDay};
pub use scaling::views::{Ruled, Standing};
pub use scaling::wake::Woke;
pub use scaling::what_if::{
    PlanActivity, PlanCrashes, PlanError, PlanHydration, PlanInput, PlanOutput, PlanReplica, PlanState, PlanStrategy,
    plan,
};
pub use settings::{JournalLimits, SettingValue, SettingView};
pub use signals::collectors::Collector;
pub use signals::replica::{Crash, CrashCount, Hydration, Notice, NoticeKind, Replica};
pub use signals::report::{ClusterRef, ClusterReport, Observation, ReportReceipt, Seen, check_report};
pub use signals::{Activity, Freshness, Gone, Heard, Metric, Signals};
pub use sizes::Size;
pub use state::State;
pub use strategies::chain::{HeldProfile, Stage};
pub use strategies::desired::{Alteration, Change, ReplicaSpec};
pub use strategies::reason::{ChangeCause, ChangesAt, Reason};
pub use strategies::tracking::pace::{Changed, Course, Noted, Panic, Recommended};
pub use strategies::{FailedSize, Memory, STRATEGY_STATE_VERSION, StrategyState};
pub use time::{ParseSpanError, Span, Time};
pub use zones::Day;
