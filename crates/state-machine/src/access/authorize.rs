//! Who may what. Asked for every command when it is decided, so that it holds at the index of the log: a privilege that was
//! taken back at one index cannot be used at the next, whatever an edge believed when it let the request in.
//!
//! Reading is not here: it needs a login and nothing else, and the edge sees to that.

use super::Role;
use super::rejection::AccessRejection;
use crate::configuration::like::Like;
use crate::decide::Moment;
use crate::{
    Action, ActionId, Actor, Cluster, ClusterId, ClusterRef, Command, PasswordChange, Proof, Rejection, State,
    TargetName, Time,
};

/// What somebody can do who was let in.
enum Power<'a> {
    /// One of our own nodes.
    Node,
    /// On the machine of a node that trusts it, as in `loadline dev`.
    Everything,
    Role(&'a Role),
}

pub(crate) fn authorize(state: &State, at: Moment, actor: &Actor, command: &Command) -> Result<(), Rejection> {
    if !state.roles.closed() {
        return Ok(());
    }
    let power = power(state, at.now, actor)?;
    let asked = Asked { state, power, what: command.kind_name() };
    match command {
        Command::AnnounceLeader { .. }
        | Command::Tick
        | Command::RaiseRules { .. }
        | Command::AdmitNode { .. }
        | Command::FoundGroup { .. }
        | Command::SuggestSetting { .. }
        | Command::ClaimAction { .. }
        | Command::RecordOutcome { .. }
        | Command::RecordSignals { .. }
        | Command::DescribeBackend { .. } => asked.node(),

        Command::CreateSize { .. }
        | Command::ChangeSize { .. }
        | Command::DropSize { .. }
        | Command::CreateCluster { .. }
        | Command::RenameCluster { .. }
        | Command::DropCluster { .. }
        | Command::DropClusterCascade { .. }
        | Command::PlaceCluster { .. }
        | Command::SetSetting { .. }
        | Command::ResetSetting { .. }
        | Command::BeginRestore { .. }
        | Command::RestoreChunk { .. }
        | Command::FinishRestore { .. }
        | Command::AbortRestore { .. }
        | Command::CreateRole { .. }
        | Command::DropRole { .. }
        | Command::GrantUsage { .. }
        | Command::RevokeUsage { .. } => asked.superuser(),

        // A node is sent to fetch something, with a secret of its own: that is not for everybody to ask for.
        Command::CreateSignal { .. } | Command::ChangeSignal { .. } | Command::DropSignal { .. } => asked.superuser(),

        // One's own password and tokens are one's own affair; to be a superuser is not.
        Command::AlterRole { name, superuser: None, password: PasswordChange::Set(_), .. } if asked.is(name) => Ok(()),
        Command::CreateToken { role, .. } | Command::DropToken { role, .. } if asked.is(role) => Ok(()),
        Command::AlterRole { .. } | Command::CreateToken { .. } | Command::DropToken { .. } => asked.superuser(),

        Command::CreateStrategy { target, .. }
        | Command::ChangeStrategy { target, .. }
        | Command::DropStrategy { target, .. }
        | Command::DropStrategies { target } => asked.usage_on_target(target),

        // It changes nothing, and whoever can log in may know what strategies there are.
        Command::ExpectStrategy { .. } | Command::ExpectUnchanged { .. } => Ok(()),
        Command::SetStrategyState { cluster, .. } | Command::DeleteActions { cluster, .. } => asked.usage(*cluster),

        Command::PauseCluster { cluster, .. }
        | Command::ResumeCluster { cluster }
        | Command::CreateReplica { cluster, .. }
        | Command::DropReplica { cluster, .. }
        | Command::WakeCluster { cluster, .. }
        | Command::OverrideCluster { cluster, .. }
        | Command::ClearOverride { cluster } => asked.usage_by_name(cluster),
        Command::ReportSignals { clusters, .. } => clusters.iter().try_for_each(|report| match &report.cluster {
            ClusterRef::Name(name) => asked.usage_by_name(name),
            ClusterRef::Id(id) => asked.usage(*id),
        }),
        Command::PushSignals { values } => values.iter().try_for_each(|pushed| match &pushed.cluster {
            Some(name) => asked.usage_by_name(name),
            // One that does not exist is for the command to say.
            None => match state.signal(&pushed.signal) {
                Some(signal) => asked.usage_on_target(&state.target_name(&signal.target)),
                None => Ok(()),
            },
        }),
        Command::ApproveAction { action }
        | Command::RejectAction { action, .. }
        | Command::RetryAction { action, .. }
        | Command::ResolveAction { action, .. }
        | Command::AbandonAction { action, .. } => asked.usage_on_action(*action),
    }
}

impl State {
    /// Whether this actor may still read: whoever was let in once may have lost the role, the token or the trust since.
    pub fn authorize_reader(&self, actor: &Actor) -> Result<(), Rejection> {
        if !self.roles.closed() {
            return Ok(());
        }
        power(self, self.now, actor).map(drop)
    }

    /// Whether this actor may do what is no command and takes a superuser: change who is a member, or take a backup.
    /// `what` is what a person would call it.
    pub fn authorize_operator(&self, actor: &Actor, what: &'static str) -> Result<(), Rejection> {
        if !self.roles.closed() {
            return Ok(());
        }
        Asked { state: self, power: power(self, self.now, actor)?, what }.superuser()
    }
}

fn power<'a>(state: &'a State, now: Time, actor: &Actor) -> Result<Power<'a>, Rejection> {
    match &actor.proof {
        Proof::Said => Err(AccessRejection::LoginRequired.into()),
        Proof::Node => Ok(Power::Node),
        // Under the name of a role it has what that role has, so that privileges can be tried out.
        Proof::Machine => Ok(state.roles.get(&actor.name).map_or(Power::Everything, Power::Role)),
        Proof::Password => {
            let gone = || AccessRejection::RoleGone { role: actor.name.clone() };
            Ok(Power::Role(state.roles.get(&actor.name).ok_or_else(gone)?))
        }
        Proof::Token(id) => {
            let valid = state.roles.token(id).filter(|(_, token)| token.is_valid_at(now));
            let own = valid.filter(|(role, _)| role.name == actor.name);
            let gone = || AccessRejection::TokenGone { token: id.clone() };
            Ok(Power::Role(own.ok_or_else(gone)?.0))
        }
    }
}

/// A command that is looked at.
struct Asked<'a> {
    state: &'a State,
    power: Power<'a>,
    what: &'static str,
}

impl Asked<'_> {
    fn is(&self, name: &str) -> bool {
        matches!(&self.power, Power::Role(role) if role.name == name)
    }

    fn what(&self) -> String {
        self.what.to_owned()
    }

    fn node(&self) -> Result<(), Rejection> {
        match self.power {
            Power::Node => Ok(()),
            Power::Everything | Power::Role(_) => Err(AccessRejection::NodesOnly { what: self.what() }.into()),
        }
    }

    /// The role whose privileges have to be looked at; nothing: it may do everything.
    fn limited(&self) -> Option<&Role> {
        match self.power {
            Power::Node | Power::Everything => None,
            Power::Role(role) => (!role.superuser).then_some(role),
        }
    }

    fn superuser(&self) -> Result<(), Rejection> {
        match self.limited() {
            None => Ok(()),
            Some(role) => Err(AccessRejection::SuperuserNeeded { role: role.name.clone(), what: self.what() }.into()),
        }
    }

    fn usage(&self, cluster: ClusterId) -> Result<(), Rejection> {
        match self.limited() {
            Some(role) if !role.has_usage(cluster) => {
                let name = self.state.clusters.name(cluster).map_or_else(|| cluster.to_string(), str::to_owned);
                Err(AccessRejection::UsageNeeded { role: role.name.clone(), what: self.what(), cluster: name }.into())
            }
            _ => Ok(()),
        }
    }

    /// One that does not exist is for the command to say: whoever can log in may know which clusters there are.
    fn usage_by_name(&self, cluster: &str) -> Result<(), Rejection> {
        self.state.clusters.id(cluster).map_or(Ok(()), |id| self.usage(id))
    }

    fn usage_on_target(&self, target: &TargetName) -> Result<(), Rejection> {
        match target {
            TargetName::Cluster(name) => self.usage_by_name(name),
            TargetName::All => self.usage_on_each(target, |_| true),
            TargetName::Pattern(pattern) => match Like::new(pattern) {
                Some(like) => self.usage_on_each(target, |cluster| like.matches(&cluster.name)),
                // The command says what is wrong with it.
                None => Ok(()),
            },
        }
    }

    /// On every cluster that is there. What is for no cluster yet is for those to come, which nobody has USAGE on but who has it
    /// on all.
    fn usage_on_each(&self, target: &TargetName, is_meant: impl Fn(&Cluster) -> bool) -> Result<(), Rejection> {
        let Some(role) = self.limited().filter(|role| !role.all_clusters) else { return Ok(()) };
        let meant = || self.state.clusters.after(None).filter(|cluster| is_meant(cluster));
        let mut lacking = meant().filter(|cluster| !role.has_usage(cluster.id)).peekable();
        let example = lacking.peek().map(|cluster| cluster.name.clone());
        if example.is_none() && meant().next().is_some() {
            return Ok(());
        }
        Err(AccessRejection::UsageOnEachNeeded {
            role: role.name.clone(),
            what: self.what(),
            target: crate::names::shortened(&target.to_string()),
            missing: lacking.count() as u64,
            example,
        }
        .into())
    }

    /// One that is not known is for the command to say.
    fn usage_on_action(&self, action: ActionId) -> Result<(), Rejection> {
        let given_up = || self.state.scaling.dead_letters.get(action).map(AsRef::as_ref);
        let found: Option<&Action> = self.state.action(action).or_else(given_up);
        found.map_or(Ok(()), |action| self.usage(action.cluster))
    }
}
