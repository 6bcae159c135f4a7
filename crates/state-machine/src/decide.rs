//! What follows from a command. Deciding may refuse and may not write; writing is [`crate::evolve`]'s.
//!
//! Here is only who decides what; the rules are beside the tables they are about (`sizes`, `clusters`, `settings`, ...).

use crate::access::authorize::authorize;
use crate::access::commands as access;
use crate::configuration::commands::{self as strategies, Changes, Check};
use crate::configuration::unchanged;
use crate::configured::{collected, commands as configured};
use crate::scaling::claims::Claim;
use crate::scaling::knobs::require_feature;
use crate::scaling::removal::{Removal, drop_cluster};
use crate::scaling::{asked, by_hand, checkpoints, claims, floor, pause, rows, wake};
use crate::signals::report::report;
use crate::{
    Actor, Command, Event, LogIndex, RULES_VERSION_MAX, Rejection, Revision, State, Time, clusters, nodes, restore,
    rules, settings, sizes,
};

/// Where in the log a decision is made: index, logical time, and how many events the entry has brought about so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) index: LogIndex,
    pub(crate) now: Time,
    pub(crate) ordinal: u32,
}

impl Moment {
    /// The revision of the next event.
    pub(crate) fn revision(self) -> Revision {
        Revision { index: self.index, ordinal: self.ordinal }
    }

    /// The revision of the event that follows after `before` more.
    pub(crate) fn revision_of(self, before: usize) -> Revision {
        Revision { index: self.index, ordinal: self.ordinal + event_count(before) }
    }
}

/// An entry is far too small to bring about more.
pub(crate) fn event_count(count: usize) -> u32 {
    u32::try_from(count).expect("one entry brings about fewer than 2^32 events")
}

/// The events that this command brings about, or why it is refused. No events: all is as asked already.
pub(crate) fn decide(state: &State, at: Moment, actor: &Actor, command: &Command) -> Result<Vec<Event>, Rejection> {
    authorize(state, at, actor, command)?;
    match command {
        Command::AnnounceLeader { node, term } => nodes::announce(state.leader, state.incarnation, at, *node, *term),
        Command::Tick => Ok(vec![]),
        Command::RaiseRules { to } => rules::raise(state.rules, *to, RULES_VERSION_MAX),
        Command::AdmitNode { name, address } => nodes::admit(state.nodes, name, address),
        Command::FoundGroup { nodes } => nodes::found(state.nodes, *nodes),

        Command::CreateSize { name, rank, slots, price_micros_per_hour } => {
            sizes::create(&state.sizes, at, name, *rank, *slots, *price_micros_per_hour)
        }
        Command::ChangeSize { name, rank, slots, price_micros_per_hour, etag } => {
            sizes::change(&state.sizes, at, name, *rank, *slots, *price_micros_per_hour, *etag)
        }
        Command::DropSize { name, etag, allow_missing } => sizes::drop(&state.sizes, name, *etag, *allow_missing),

        Command::CreateCluster { name } => clusters::create(&state.clusters, at, name),
        Command::RenameCluster { name, to, etag } => clusters::rename(&state.clusters, at, name, to, *etag),
        Command::DropCluster { name, etag, allow_missing } => {
            drop_cluster(state, at, name, *etag, *allow_missing, Removal::Restrict)
        }
        Command::DropClusterCascade { name, etag, allow_missing } => {
            drop_cluster(state, at, name, *etag, *allow_missing, Removal::Cascade)
        }

        Command::PlaceCluster { name, backend, etag } => clusters::place(state, at, name, backend.as_deref(), *etag),

        Command::SetSetting { name, value, etag } => {
            settings::set(&state.settings, state.rules, at, name, value, *etag)
        }
        Command::ResetSetting { name, etag } => settings::reset(&state.settings, state.rules, at, name, *etag),

        Command::BeginRestore { bytes_total, hash } => {
            restore::begin(state.restore.as_deref(), at, *bytes_total, *hash)
        }
        Command::RestoreChunk { restore, offset, bytes } => {
            restore::chunk(state.restore.as_deref(), *restore, *offset, bytes)
        }
        Command::FinishRestore { restore } => restore::finish(state, at, *restore),
        Command::AbortRestore { restore } => restore::abort(state.restore.as_deref(), *restore),

        Command::CreateStrategy { target, kind, options, if_not_exists, unchecked } => {
            require_feature(&state.settings)?;
            let check = Check::unless(*unchecked);
            strategies::create(state, at, target, *kind, options, *if_not_exists, check)
        }
        Command::ChangeStrategy { target, kind, options, reset, etag, unchecked } => {
            require_feature(&state.settings)?;
            let changes = Changes { options, reset, etag: *etag, check: Check::unless(*unchecked) };
            strategies::change(state, at, target, *kind, &changes)
        }
        Command::DropStrategy { target, kind, etag, allow_missing } => {
            require_feature(&state.settings)?;
            strategies::drop(state, target, *kind, *etag, *allow_missing)
        }
        Command::DropStrategies { target } => {
            require_feature(&state.settings)?;
            strategies::drop_all(state, target)
        }
        Command::ExpectStrategy { strategy, target, etag } => strategies::expect(state, *strategy, target, *etag),
        Command::ExpectUnchanged { since, targets, strategies } => {
            unchanged::expect(state, *since, targets, strategies)
        }
        Command::SetStrategyState { strategy, cluster, expected, state: wanted } => {
            require_feature(&state.settings)?;
            rows::set_state(state, at, (*strategy, *cluster), expected.as_ref(), wanted.as_ref())
        }

        Command::ReportSignals { collector, sequence, clusters } => report(state, collector, *sequence, clusters),
        Command::PauseCluster { cluster, reason, expires_in } => {
            require_feature(&state.settings)?;
            pause::pause(state, at, cluster, reason, *expires_in)
        }
        Command::ResumeCluster { cluster } => {
            require_feature(&state.settings)?;
            pause::resume(state, cluster)
        }
        Command::CreateReplica { cluster, replica, size, if_not_exists } => {
            asked::create(state, actor, cluster, replica, size, *if_not_exists)
        }
        Command::DropReplica { cluster, replica, allow_missing } => {
            asked::drop(state, actor, cluster, replica, *allow_missing)
        }

        Command::ClaimAction { action, epoch, attempt, backend, parameters } => {
            let claim = Claim { action: *action, epoch: *epoch, attempt: *attempt, backend, parameters: *parameters };
            claims::claim(state, at, &claim)
        }
        Command::RecordOutcome { action, epoch, attempt, outcome } => {
            claims::record_outcome(state, at, *action, *epoch, *attempt, outcome)
        }
        Command::ApproveAction { action } => claims::approve(state, at, *action),
        Command::RejectAction { action, reason } => claims::reject(state, at, *action, reason),
        Command::RetryAction { action, reason } => {
            require_feature(&state.settings)?;
            by_hand::retry(state, *action, reason)
        }
        Command::ResolveAction { action, succeeded, reason } => {
            by_hand::resolve(state, at, *action, *succeeded, reason)
        }
        Command::AbandonAction { action, reason } => by_hand::abandon(state, at, *action, reason),
        Command::DeleteActions { cluster, numbers } => {
            require_feature(&state.settings)?;
            rows::delete_actions(state, *cluster, numbers)
        }

        Command::SuggestSetting { name, value } => settings::suggest(&state.settings, state.rules, at, name, value),
        Command::WakeCluster { cluster, reason } => {
            require_feature(&state.settings)?;
            wake::wake(state, at, cluster, *reason)
        }
        Command::OverrideCluster { cluster, replicas_min, size, reason, expires_in } => {
            let wanted =
                floor::Wanted { replicas_min: *replicas_min, size: size.as_deref(), reason, expires_in: *expires_in };
            floor::set(state, at, actor, cluster, wanted)
        }
        Command::ClearOverride { cluster } => floor::clear(state, cluster),
        Command::DescribeBackend { epoch, backend, checkpoints } => {
            checkpoints::describe(state, *epoch, backend, *checkpoints)
        }

        Command::CreateRole { name, superuser, verifier, if_not_exists } => {
            access::create(state, at, name, *superuser, verifier.as_ref(), *if_not_exists)
        }
        Command::AlterRole { name, superuser, password, etag } => {
            access::alter(state, at, name, *superuser, password, *etag)
        }
        Command::DropRole { name, etag, allow_missing } => access::drop(state, name, *etag, *allow_missing),
        Command::GrantUsage { role, on } => access::grant(state, at, role, on),
        Command::RevokeUsage { role, on } => access::revoke(state, at, role, on),
        Command::CreateToken { role, token, hash, expires_in } => {
            access::create_token(state, at, role, token, *hash, *expires_in)
        }
        Command::DropToken { role, token, allow_missing } => access::drop_token(state, at, role, token, *allow_missing),

        Command::CreateSignal { name, kind, target, every, options, if_not_exists } => {
            let wanted = configured::Wanted { kind: *kind, target, every: *every, options };
            configured::create(state, at, name, &wanted, *if_not_exists)
        }
        Command::ChangeSignal { name, target, every, options, reset, etag } => {
            let changes = configured::Changes { target: target.as_ref(), every: *every, options, reset, etag: *etag };
            configured::change(state, at, name, &changes)
        }
        Command::DropSignal { name, etag, allow_missing } => configured::drop(state, name, *etag, *allow_missing),
        Command::RecordSignals { epoch, collected } => collected::record(state, *epoch, collected),
        Command::PushSignals { values } => collected::push(state, values),
    }
}
