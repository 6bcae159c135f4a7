//! The permission matrix: every command times every kind of caller, as one table.

use std::collections::BTreeSet;

use crate::common::{World, access_samples, create_cluster, create_size, proven, set, signal_samples};
use loadline_state_machine::{
    ActionId, ClusterRef, ClusterReport, Command, Epoch, Hash, LogIndex, NodeNumber, Observation, Options, Outcome,
    PasswordChange, Proof, PushedValue, RejectionClass, Request, Revision, RulesVersion, Seen, SignalKind, Span,
    StrategyKind, TargetName, UsageOn, WakeReason,
};

/// The kinds of caller, in the order of the columns.
const CALLERS: [Caller; 7] = [
    Caller::Nobody,
    Caller::NoPrivilege,
    Caller::UsageHere,
    Caller::UsageAll,
    Caller::Superuser,
    Caller::Machine,
    Caller::Node,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    /// Says a name and proves nothing.
    Nobody,
    /// Can log in, and that is all.
    NoPrivilege,
    /// USAGE on the cluster `here`.
    UsageHere,
    /// USAGE on all clusters.
    UsageAll,
    Superuser,
    /// On a machine that is trusted.
    Machine,
    /// One of our own nodes.
    Node,
}

impl Caller {
    fn request(self, command: &Command) -> Request {
        let (name, proof) = match self {
            // Even under the name of a superuser.
            Self::Nobody => ("root", Proof::Said),
            Self::NoPrivilege => ("reader", Proof::Password),
            Self::UsageHere => ("here-user", Proof::Token("token-of-here-user".to_owned())),
            Self::UsageAll => ("operator", Proof::Password),
            Self::Superuser => ("root", Proof::Password),
            Self::Machine => ("dev", Proof::Machine),
            Self::Node => ("node n1", Proof::Node),
        };
        proven(name, proof, vec![command.clone()])
    }
}

/// `-` a login is needed, `x` denied, `+` allowed (whatever the command itself then says).
fn may(world: &World, caller: Caller, command: &Command) -> char {
    match world.clone().ask(caller.request(command)).result.map_err(|refused| refused.rejection.class()) {
        Err(RejectionClass::Unauthenticated) => '-',
        Err(RejectionClass::Denied) => 'x',
        _ => '+',
    }
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn create_role(name: &str, superuser: bool) -> Command {
    let verifier = Some(access_samples::verifier());
    Command::CreateRole { name: text(name), superuser, verifier, if_not_exists: false }
}

fn grant(role: &str, on: UsageOn) -> Command {
    Command::GrantUsage { role: text(role), on }
}

fn create_token(role: &str, token: &str) -> Command {
    Command::CreateToken { role: text(role), token: text(token), hash: Hash([1; 32]), expires_in: None }
}

/// Two clusters, a scaling action on each, and one role of every kind.
fn world() -> World {
    let mut world = World::new();
    for command in [
        Command::AnnounceLeader { node: NodeNumber(1), term: 1 },
        set("enable_auto_scaling", "true"),
        set("default_backend", "sim"),
        create_size("25cc", None),
        create_cluster("here"),
        create_cluster("there"),
        create_strategy(TargetName::All, StrategyKind::TargetSize),
        report("there"),
        report("here"),
        pushed_signal("everywhere", TargetName::All),
        pushed_signal("only-here", TargetName::Cluster(text("here"))),
        create_role("root", true),
    ] {
        world.must(command);
    }
    for command in [
        create_role("reader", false),
        create_role("operator", false),
        create_role("here-user", false),
        create_token("here-user", "token-of-here-user"),
        grant("operator", UsageOn::AllClusters),
        grant("here-user", UsageOn::Cluster(text("here"))),
    ] {
        let receipt = world.ask(Caller::Superuser.request(&command));
        assert!(receipt.result.is_ok(), "{receipt:?}");
    }
    world
}

fn create_strategy(target: TargetName, kind: StrategyKind) -> Command {
    let options = Options::default().with("size", "25cc");
    Command::CreateStrategy { target, kind, options, if_not_exists: false, unchecked: true }
}

fn pushed_signal(name: &str, target: TargetName) -> Command {
    let (options, every) = (Options::default(), None);
    Command::CreateSignal { name: text(name), kind: SignalKind::Push, target, every, options, if_not_exists: false }
}

fn push(signal: &str, cluster: Option<&str>) -> Command {
    let cluster = cluster.map(text);
    let value = PushedValue { signal: text(signal), cluster, value_milli: 1, age: Span::from_secs(0) };
    Command::PushSignals { values: vec![value] }
}

fn report(cluster: &str) -> Command {
    let observations = vec![Observation { age: Span::from_millis(0), seen: Seen::Alive }];
    let clusters = vec![ClusterReport { cluster: ClusterRef::Name(text(cluster)), observations }];
    Command::ReportSignals { collector: format!("of-{cluster}"), sequence: 1, clusters }
}

fn action_on(world: &World, cluster: &str) -> ActionId {
    let id = world.state.cluster(cluster).map(|cluster| cluster.id);
    let action = world.state.actions().find(|action| Some(action.cluster) == id);
    action.unwrap_or_else(|| panic!("there is an action on {cluster}")).id
}

/// Commands, and who may: nobody, no privilege, USAGE on `here`, USAGE on all, superuser, a trusted machine, a node.
fn matrix(world: &World) -> Vec<(&'static str, Command)> {
    let name = || text("here");
    let restore = Revision::default();
    let kind = StrategyKind::Burst;
    let options = Options::default;
    let cluster = |name: &str| TargetName::Cluster(text(name));
    let like = |pattern: &str| TargetName::Pattern(text(pattern));
    let (here, there) = (action_on(world, "here"), action_on(world, "there"));
    let epoch = Epoch { incarnation: 1, index: LogIndex(1) };
    let reason = || text("because");
    let outcome = Outcome::Unknown { reason: reason() };
    let set_password = || PasswordChange::Set(access_samples::verifier());
    let alter =
        |name: &str, superuser, password| Command::AlterRole { name: text(name), superuser, password, etag: None };
    let drop_strategy = |target| Command::DropStrategy { target, kind, etag: None, allow_missing: true };
    let change_strategy = |target| Command::ChangeStrategy {
        target,
        kind,
        options: options(),
        reset: vec![],
        etag: None,
        unchecked: false,
    };
    let strategy = world.state.strategies().next().expect("there is one").id;
    let id = |name: &str| world.state.cluster(name).expect("it was created").id;
    let forget = |cluster| Command::SetStrategyState { strategy, cluster, expected: None, state: None };
    let etag = Revision::default();
    let create_replica = |cluster: &str| Command::CreateReplica {
        cluster: text(cluster),
        replica: text("mine"),
        size: text("25cc"),
        if_not_exists: false,
    };
    let drop_replica =
        |cluster: &str| Command::DropReplica { cluster: text(cluster), replica: text("mine"), allow_missing: true };
    let pause = |name: &str| Command::PauseCluster { cluster: text(name), reason: reason(), expires_in: None };
    let wake = |name: &str| Command::WakeCluster { cluster: text(name), reason: WakeReason::Manual };
    let raise = |name: &str| Command::OverrideCluster {
        cluster: text(name),
        replicas_min: 2,
        size: None,
        reason: reason(),
        expires_in: Span::from_hours(1),
    };
    vec![
        ("-xxxxx+", Command::AnnounceLeader { node: NodeNumber(1), term: 9 }),
        ("-xxxxx+", Command::Tick),
        ("-xxxxx+", Command::RaiseRules { to: RulesVersion(1) }),
        ("-xxxxx+", Command::AdmitNode { name: text("n4"), address: text("n4:7700") }),
        ("-xxxxx+", Command::FoundGroup { nodes: 3 }),
        (
            "-xxxxx+",
            Command::ClaimAction { action: here, epoch, attempt: 1, backend: text("sim"), parameters: Hash([0; 32]) },
        ),
        ("-xxxxx+", Command::RecordOutcome { action: here, epoch, attempt: 1, outcome }),
        ("-xxx+++", create_size("50cc", None)),
        (
            "-xxx+++",
            Command::ChangeSize {
                name: text("25cc"),
                rank: None,
                slots: Some(9),
                price_micros_per_hour: None,
                etag: None,
            },
        ),
        ("-xxx+++", Command::DropSize { name: text("25cc"), etag: None, allow_missing: false }),
        ("-xxx+++", create_cluster("new")),
        ("-xxx+++", Command::RenameCluster { name: name(), to: text("new"), etag: None }),
        ("-xxx+++", Command::DropCluster { name: name(), etag: None, allow_missing: false }),
        ("-xxx+++", Command::DropClusterCascade { name: name(), etag: None, allow_missing: false }),
        ("-xxx+++", Command::PlaceCluster { name: name(), backend: None, etag: None }),
        ("-xxx+++", set("enable_auto_scaling", "false")),
        ("-xxx+++", Command::ResetSetting { name: text("enable_auto_scaling"), etag: None }),
        ("-xxx+++", Command::BeginRestore { bytes_total: 9, hash: Hash([1; 32]) }),
        ("-xxx+++", Command::RestoreChunk { restore, offset: 0, bytes: vec![1].into() }),
        ("-xxx+++", Command::FinishRestore { restore }),
        ("-xxx+++", Command::AbortRestore { restore: None }),
        ("-x+++++", create_strategy(cluster("here"), kind)),
        ("-xx++++", create_strategy(cluster("there"), kind)),
        ("-xx++++", create_strategy(TargetName::All, kind)),
        ("-x+++++", create_strategy(like("h%"), kind)),
        ("-xx++++", create_strategy(like("%here"), kind)),
        // For no cluster that is there, so for whichever comes.
        ("-xx++++", create_strategy(like("new%"), kind)),
        ("-x+++++", change_strategy(cluster("here"))),
        ("-xx++++", change_strategy(cluster("there"))),
        ("-xx++++", change_strategy(TargetName::All)),
        ("-x+++++", drop_strategy(cluster("here"))),
        ("-xx++++", drop_strategy(cluster("there"))),
        ("-xx++++", drop_strategy(TargetName::All)),
        ("-xx++++", drop_strategy(like("t%"))),
        ("-x+++++", Command::DropStrategies { target: cluster("here") }),
        ("-xx++++", Command::DropStrategies { target: TargetName::All }),
        ("-x+++++", pause("here")),
        ("-xx++++", pause("there")),
        ("-xxxxx+", Command::SuggestSetting { name: text("request_window"), value: text("20m") }),
        ("-xxxxx+", Command::DescribeBackend { epoch, backend: text("sim"), checkpoints: true }),
        ("-x+++++", wake("here")),
        ("-xx++++", wake("there")),
        ("-x+++++", raise("here")),
        ("-xx++++", raise("there")),
        ("-x+++++", Command::ClearOverride { cluster: text("here") }),
        ("-xx++++", Command::ClearOverride { cluster: text("there") }),
        ("-x+++++", create_replica("here")),
        ("-xx++++", create_replica("there")),
        ("-x+++++", drop_replica("here")),
        ("-xx++++", drop_replica("there")),
        ("-x+++++", Command::ResumeCluster { cluster: text("here") }),
        ("-xx++++", Command::ResumeCluster { cluster: text("there") }),
        ("-x+++++", report("here")),
        ("-xx++++", report("there")),
        ("-x+++++", Command::ApproveAction { action: here }),
        ("-xx++++", Command::ApproveAction { action: there }),
        ("-x+++++", Command::RejectAction { action: here, reason: reason() }),
        ("-xx++++", Command::RejectAction { action: there, reason: reason() }),
        ("-x+++++", Command::RetryAction { action: here, reason: reason() }),
        ("-xx++++", Command::RetryAction { action: there, reason: reason() }),
        ("-x+++++", Command::ResolveAction { action: here, succeeded: true, reason: reason() }),
        ("-xx++++", Command::ResolveAction { action: there, succeeded: true, reason: reason() }),
        ("-x+++++", Command::AbandonAction { action: here, reason: reason() }),
        ("-xx++++", Command::AbandonAction { action: there, reason: reason() }),
        ("-++++++", Command::ExpectStrategy { strategy, target: cluster("here"), etag }),
        (
            "-++++++",
            Command::ExpectUnchanged { since: LogIndex(u64::MAX), targets: vec![cluster("there")], strategies: vec![] },
        ),
        ("-x+++++", forget(id("here"))),
        ("-xx++++", forget(id("there"))),
        ("-x+++++", Command::DeleteActions { cluster: id("here"), numbers: vec![] }),
        ("-xx++++", Command::DeleteActions { cluster: id("there"), numbers: vec![] }),
        ("-xxx+++", create_role("new", false)),
        ("-xxx+++", Command::DropRole { name: text("reader"), etag: None, allow_missing: false }),
        ("-xxx+++", grant("reader", UsageOn::Cluster(name()))),
        ("-xxx+++", grant("reader", UsageOn::AllClusters)),
        ("-xxx+++", Command::RevokeUsage { role: text("here-user"), on: UsageOn::Cluster(name()) }),
        // One's own password and tokens, and nothing more about oneself.
        ("-+xx+++", alter("reader", None, set_password())),
        ("-xxx+++", alter("reader", Some(true), PasswordChange::Keep)),
        ("-xxx+++", alter("reader", Some(true), set_password())),
        ("-xxx+++", alter("reader", None, PasswordChange::Clear)),
        ("-+xx+++", create_token("reader", "token-of-reader")),
        ("-+xx+++", Command::DropToken { role: text("reader"), token: text("token"), allow_missing: true }),
        ("-xxx+++", create_token("root", "token-of-root")),
        // Also for one cluster: a node is sent somewhere with a secret.
        ("-xxx+++", pushed_signal("new", TargetName::Cluster(name()))),
        (
            "-xxx+++",
            Command::ChangeSignal {
                name: text("only-here"),
                target: Some(TargetName::All),
                every: None,
                options: options(),
                reset: vec![],
                etag: None,
            },
        ),
        ("-xxx+++", Command::DropSignal { name: text("only-here"), etag: None, allow_missing: false }),
        ("-xxxxx+", signal_samples::commands().swap_remove(3)),
        ("-x+++++", push("everywhere", Some("here"))),
        ("-xx++++", push("everywhere", Some("there"))),
        ("-xx++++", push("everywhere", None)),
        ("-x+++++", push("only-here", None)),
    ]
}

#[test]
fn every_command_is_allowed_to_exactly_those_who_may() {
    let world = world();
    let matrix = matrix(&world);
    let mut wrong = String::new();
    for (expected, command) in &matrix {
        let found: String = CALLERS.into_iter().map(|caller| may(&world, caller, command)).collect();
        if found != *expected {
            wrong += &format!("expected {expected}, found {found}: {command:?}\n");
        }
    }
    assert_eq!(wrong, "");
    let told: BTreeSet<u16> = matrix.iter().map(|(_, command)| command.kind()).collect();
    let kinds: BTreeSet<u16> = Command::KINDS.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(told, kinds, "every command has a row");
}

/// Of an open group: as it was before there were roles.
#[test]
fn in_a_group_where_nobody_can_log_in_everybody_may_everything() {
    let closed = world();
    let mut open = World::new();
    for command in [
        create_cluster("here"),
        create_cluster("there"),
        Command::CreateRole { name: text("reader"), superuser: false, verifier: None, if_not_exists: false },
    ] {
        open.must(command);
    }
    assert!(!open.state.login_needed());
    for (_, command) in matrix(&closed) {
        assert_eq!(may(&open, Caller::Nobody, &command), '+', "{command:?}");
        assert_eq!(may(&open, Caller::NoPrivilege, &command), '+', "{command:?}");
    }
}
