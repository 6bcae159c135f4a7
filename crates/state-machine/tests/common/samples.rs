//! One of everything that has a place in the log, in a receipt or in a state.

use loadline_state_machine::{
    AbortReason, Actor, Answer, Cluster, ClusterId, Command, Done, Entry, Epoch, Event, Field, Hash, LogIndex,
    NameProblem, NodeNumber, Receipt, Refused, Rejection, Request, RequestId, ResourceName, RulesVersion, SettingValue,
    SettingView, Size, Span, Time,
};

use super::{NOON, access_samples, request_id, revision, scaling_samples, signal_samples};

pub fn size() -> Size {
    Size {
        name: "50cc".to_owned(),
        rank: 20,
        slots: 4,
        price_micros_per_hour: 250_000,
        created: revision("17.0"),
        updated: revision("412.3"),
    }
}

pub fn cluster() -> Cluster {
    Cluster {
        id: ClusterId { index: LogIndex(300), ordinal: 1 },
        name: "demo".to_owned(),
        created: revision("300.1"),
        updated: revision("70000.2"),
        created_at: NOON,
    }
}

fn setting() -> SettingView {
    SettingView {
        name: "request_window".to_owned(),
        value: "20m".to_owned(),
        default_value: "10m".to_owned(),
        is_default: false,
        description: "How long.".to_owned(),
        updated: Some(revision("9.0")),
    }
}

pub fn commands() -> Vec<Command> {
    let name = || "demo".to_owned();
    let etag = Some(revision("412.3"));
    vec![
        Command::AnnounceLeader { node: NodeNumber(3), term: 7 },
        Command::Tick,
        Command::RaiseRules { to: RulesVersion(1) },
        Command::AdmitNode { name: "n4".to_owned(), address: "10.0.0.4:7001".to_owned() },
        Command::FoundGroup { nodes: 3 },
        Command::CreateSize { name: name(), rank: Some(20), slots: 4, price_micros_per_hour: 250_000 },
        Command::ChangeSize { name: name(), rank: None, slots: Some(8), price_micros_per_hour: Some(1), etag },
        Command::DropSize { name: name(), etag: None, allow_missing: true },
        Command::CreateCluster { name: name() },
        Command::RenameCluster { name: name(), to: "prod".to_owned(), etag },
        Command::DropCluster { name: name(), etag, allow_missing: false },
        Command::SetSetting { name: "request_window".to_owned(), value: "20 minutes".to_owned(), etag: None },
        Command::ResetSetting { name: "request_window".to_owned(), etag },
        Command::BeginRestore { bytes_total: 70_000, hash: Hash([0xab; 32]) },
        Command::RestoreChunk { restore: revision("40.0"), offset: 300, bytes: vec![1, 2, 3].into() },
        Command::FinishRestore { restore: revision("40.0") },
        Command::AbortRestore { restore: Some(revision("40.0")) },
    ]
}

pub fn events() -> Vec<Event> {
    let restore = revision("40.0");
    let updated = revision("412.3");
    let name = || "request_window".to_owned();
    vec![
        Event::LeaderAnnounced {
            node: NodeNumber(3),
            term: 7,
            epoch: Epoch { incarnation: NOON.as_millis(), index: LogIndex(40) },
        },
        Event::RulesRaised { from: RulesVersion(1), to: RulesVersion(2) },
        Event::NodeAdmitted { node: NodeNumber(4), name: "n4".to_owned(), address: "10.0.0.4:7001".to_owned() },
        Event::GroupFounded { nodes: 3 },
        Event::SizeCreated { size: size() },
        Event::SizeChanged { before: Box::new(size()), size: Size { slots: 8, ..size() } },
        Event::SizeDropped { size: size() },
        Event::ClusterCreated { cluster: cluster() },
        Event::ClusterRenamed { from: "old".to_owned(), cluster: cluster() },
        Event::ClusterDropped { cluster: cluster() },
        Event::SettingSet { name: name(), value: SettingValue::Span(Span::from_mins(20)), updated },
        Event::SettingReset { name: name(), updated },
        Event::RestoreBegun { restore, bytes_total: 70_000, hash: Hash([0xab; 32]) },
        Event::RestoreChunkStored { restore, offset: 300, bytes: vec![1, 2, 3].into() },
        Event::RestoreFinished {
            restore,
            incarnation: NOON.as_millis() + 1,
            backup_index: LogIndex(30),
            backup_incarnation: NOON.as_millis(),
            nodes: 5,
        },
        Event::RestoreAborted { restore, reason: AbortReason::Idle },
        Event::SizeRestored { size: size() },
        Event::ClusterRestored { cluster: cluster() },
        Event::SettingRestored { name: name(), value: Some(SettingValue::Bool(true)), updated },
    ]
}

/// Those above, those about scaling, about roles and about signals, by number.
pub fn all_commands() -> Vec<Command> {
    let mut all = commands();
    all.extend(scaling_samples::commands());
    all.extend(access_samples::commands());
    all.extend(signal_samples::commands());
    all.sort_by_key(Command::kind);
    all
}

/// Those above, those about scaling, about roles and about signals, by number.
pub fn all_events() -> Vec<Event> {
    let mut all = events();
    all.extend(scaling_samples::events());
    all.extend(access_samples::events());
    all.extend(signal_samples::events());
    all.sort_by_key(Event::kind);
    all
}

pub fn rejections() -> Vec<Rejection> {
    let id = request_id(NOON, 7);
    let resource = ResourceName::cluster("demo");
    let etag = revision("412.3");
    let text = |text: &str| text.to_owned();
    vec![
        Rejection::NoCommands,
        Rejection::TooManyCommands { count: 1_001, count_max: 1_000 },
        Rejection::RequestIdNotV7 { id: RequestId(5) },
        Rejection::RequestIdReused { id, index: LogIndex(40) },
        Rejection::RequestTooOld { id, made_at: NOON, floor: Time::from_millis(9), now: NOON },
        Rejection::RequestFromFuture { id, made_at: NOON, now: Time::from_millis(9), window: Span::from_mins(10) },
        Rejection::InvalidName {
            field: Field::Name,
            value: text("a/b"),
            problem: NameProblem::Contains { character: '/' },
        },
        Rejection::InvalidText { field: Field::Address, value: text(""), problem: NameProblem::Empty },
        Rejection::OutOfRange { field: Field::Slots, value: 0, min: 1, max: 1_000_000 },
        Rejection::NotFound { resource: resource.clone() },
        Rejection::AlreadyExists { field: Field::To, resource: resource.clone(), etag },
        Rejection::RankTaken { rank: 20, by: ResourceName::size("50cc") },
        Rejection::EtagMismatch { resource, given: etag, current: Some(revision("413.0")) },
        Rejection::UnknownSetting { name: text("request-windw"), close: vec![text("request_window")] },
        Rejection::InvalidSetting { name: text("request_window"), value: text("5"), expected: text("a duration") },
        Rejection::RulesCannotFall { to: RulesVersion(1), current: RulesVersion(2) },
        Rejection::RulesUnknown { to: RulesVersion(3), known: RulesVersion(2) },
        Rejection::StaleTerm { node: NodeNumber(1), term: 3, current_node: NodeNumber(2), current_term: 4 },
        Rejection::AlreadyFounded { nodes: 3 },
        Rejection::NotFounded,
        Rejection::NoRestore,
        Rejection::OtherRestore { given: revision("40.0"), current: revision("41.0") },
        Rejection::RestoreOffset { offset: 5, expected: 3 },
        Rejection::RestoreIncomplete { received: 3, total: 70_000 },
        Rejection::RestoreHashMismatch { announced: Hash([1; 32]), found: Hash([2; 32]) },
        Rejection::BackupUnreadable { reason: text("state ends too early") },
        Rejection::BackupTooNew { backup: RulesVersion(2), current: RulesVersion(1) },
    ]
    .into_iter()
    .chain(scaling_samples::rejections().into_iter().map(Rejection::from))
    .chain(access_samples::rejections().into_iter().map(Rejection::from))
    .chain(signal_samples::rejections().into_iter().map(Rejection::from))
    .collect()
}

pub fn answers() -> Vec<Answer> {
    vec![
        Answer::Nothing,
        Answer::Size(size()),
        Answer::Cluster(cluster()),
        Answer::Setting(setting()),
        Answer::Node(NodeNumber(4)),
        Answer::Epoch(Epoch { incarnation: NOON.as_millis(), index: LogIndex(40) }),
        Answer::Restored { incarnation: 9, backup_index: LogIndex(30), backup_incarnation: 8 },
        Answer::Restoring { restore: revision("40.0"), bytes_received: 300 },
    ]
    .into_iter()
    .chain(scaling_samples::answers())
    .chain([Answer::Role(Box::new(access_samples::role().view())), Answer::Signal(Box::new(signal_samples::signal()))])
    .collect()
}

/// A receipt for every answer and every rejection.
pub fn receipts() -> Vec<Receipt> {
    let done = answers().into_iter().map(|answer| Ok(vec![Done { changed: true, answer }]));
    let refused = rejections().into_iter().map(|rejection| Err(Refused { ordinal: 2, rejection }));
    done.chain(refused).map(|result| Receipt { index: LogIndex(412), result, repeated: false }).collect()
}

pub fn requests() -> Vec<Request> {
    vec![
        Request { actor: Actor::new("loadline", "n1"), request_id: None, commands: vec![Command::Tick] },
        Request {
            actor: Actor::new("alice", "grpc 10.0.0.9"),
            request_id: Some(request_id(NOON, 7)),
            commands: commands(),
        },
    ]
}

/// One with everything about scaling.
pub fn scaling_request() -> Request {
    Request { actor: Actor::new("alice", "grpc"), request_id: None, commands: scaling_samples::commands() }
}

pub fn entry() -> Entry {
    Entry { stamped_at: NOON, requests: requests() }
}
