//! One of everything about scaling that has a place in the log, in a receipt or in a state.

use loadline_state_machine::{
    Action, ActionId, ActionStatus, Activity, Alteration, Answer, Attempt, AttemptEnd, AttemptResult, Brake, Call,
    CalledWith, Change, ChangeCause, Changed, ChangesAt, ClusterId, ClusterRef, ClusterReport, ClusterView, Command,
    Conclusion, ConfigurationProblem, Course, Crash, Day, DayRow, Decision, DrainResult, Epoch, Event, FailureReason,
    Field, Gone, Hash, Heard, Held, HeldProfile, Hydration, IdleRecord, LogIndex, Memory, Metric, NodeNumber, Noted,
    Notice, NoticeKind, Observation, Operation, OperationEnd, OperationId, OperationKind, Options, Origin, Outcome,
    Override, Panic, Pause, Planned, Progress, Reason, Recommended, Replica, ReplicaLife, ReplicaSpec, Report,
    ReportReceipt, ResourceName, RestoredKnowledge, ResumeReason, Revision, ScalingRejection, Seen, Shadow, Signals,
    Span, Stage, Step, Strategy, StrategyId, StrategyKind, StrategyState, Target, TargetName, Time, Unit, Wake,
    WakeReason, Woke,
};

use super::{NOON, revision, samples};

const EPOCH: Epoch = Epoch { incarnation: NOON.as_millis(), index: LogIndex(40) };

fn at(index: u64, ordinal: u32) -> Revision {
    Revision { index: LogIndex(index), ordinal }
}

fn cluster() -> ClusterId {
    at(300, 1).into()
}

fn strategy_id() -> StrategyId {
    at(301, 0).into()
}

fn action_id() -> ActionId {
    at(302, 3).into()
}

fn operation_id() -> OperationId {
    at(302, 2).into()
}

fn spec(name: &str, size: &str) -> ReplicaSpec {
    ReplicaSpec { name: name.into(), size: size.into() }
}

fn options() -> Options {
    Options::from([("size", "50cc")]).with("cooldown_s", 60).with("enabled", true).with("config_version", 1)
}

fn observations() -> Vec<Observation> {
    let name = || "r1".to_owned();
    let seen = vec![
        Seen::Alive,
        Seen::Activity { idle_for: Some(Span::from_secs(20)) },
        Seen::Activity { idle_for: None },
        Seen::Replica { name: name(), size: "50cc".to_owned(), incarnation: Some("i-1".to_owned()), ready: true },
        Seen::ReplicaGone { name: name(), incarnation: None },
        Seen::Hydration { replica: name(), total: 3, hydrated: 2 },
        Seen::Crash { replica: name(), oom: true, reason: "killed".to_owned(), count: 2 },
        Seen::Metric { name: "queue_depth".to_owned(), value_milli: -2_500 },
        Seen::Notice { replica: name(), kind: NoticeKind::Preemption, gone_in: Some(Span::from_mins(2)) },
    ];
    seen.into_iter().map(|seen| Observation { age: Span::from_secs(3), seen }).collect()
}

pub fn commands() -> Vec<Command> {
    let name = || "demo".to_owned();
    let etag = Some(revision("412.3"));
    let target = TargetName::Cluster(name());
    let kind = StrategyKind::TargetSize;
    let outcome = Outcome::Failed { retryable: true, reason: "no room".to_owned() };
    vec![
        Command::DropClusterCascade { name: name(), etag, allow_missing: false },
        Command::CreateStrategy { target, kind, options: options(), if_not_exists: true, unchecked: false },
        Command::ChangeStrategy {
            target: TargetName::Pattern("prod%".to_owned()),
            kind: StrategyKind::IdleSuspend,
            options: Options::from([("dry_run", true)]),
            reset: vec!["cooldown_s".to_owned()],
            etag,
            unchecked: true,
        },
        Command::DropStrategy { target: TargetName::All, kind: StrategyKind::Burst, etag, allow_missing: true },
        Command::DropStrategies { target: TargetName::All },
        Command::ReportSignals {
            collector: "watcher".to_owned(),
            sequence: 7,
            clusters: vec![
                ClusterReport { cluster: ClusterRef::Name(name()), observations: observations() },
                ClusterReport { cluster: ClusterRef::Id(cluster()), observations: vec![] },
            ],
        },
        Command::PauseCluster { cluster: name(), reason: "moving".to_owned(), expires_in: Some(Span::from_mins(10)) },
        Command::ResumeCluster { cluster: name() },
        Command::CreateReplica {
            cluster: name(),
            replica: "mine".to_owned(),
            size: "50cc".to_owned(),
            if_not_exists: true,
        },
        Command::DropReplica { cluster: name(), replica: "mine".to_owned(), allow_missing: true },
        Command::SuggestSetting { name: "request_window".to_owned(), value: "20m".to_owned() },
        Command::WakeCluster { cluster: name(), reason: WakeReason::Scheduled },
        Command::OverrideCluster {
            cluster: name(),
            replicas_min: 3,
            size: Some("50cc".to_owned()),
            reason: "a big day".to_owned(),
            expires_in: Span::from_hours(2),
        },
        Command::ClearOverride { cluster: name() },
        Command::DescribeBackend { epoch: EPOCH, backend: "local".to_owned(), checkpoints: true },
        Command::PlaceCluster { name: name(), backend: Some("local".to_owned()), etag },
        Command::ClaimAction {
            action: action_id(),
            epoch: EPOCH,
            attempt: 1,
            backend: "local".to_owned(),
            parameters: Hash([3; 32]),
        },
        Command::RecordOutcome { action: action_id(), epoch: EPOCH, attempt: 1, outcome },
        Command::ApproveAction { action: action_id() },
        Command::RejectAction { action: action_id(), reason: "too dear".to_owned() },
        Command::RetryAction { action: action_id(), reason: "room now".to_owned() },
        Command::ResolveAction { action: action_id(), succeeded: true, reason: "seen it".to_owned() },
        Command::AbandonAction { action: action_id(), reason: "never mind".to_owned() },
        Command::DeleteActions { cluster: cluster(), numbers: vec![3, 4, 9] },
        Command::ExpectStrategy { strategy: strategy_id(), target: TargetName::Cluster(name()), etag: at(301, 0) },
        Command::ExpectUnchanged {
            since: LogIndex(301),
            targets: vec![TargetName::Cluster(name()), TargetName::Pattern("d%".into()), TargetName::All],
            strategies: vec![strategy_id()],
        },
        Command::SetStrategyState {
            strategy: strategy_id(),
            cluster: cluster(),
            expected: None,
            state: Some(StrategyState {
                version: 1,
                strategy: strategy_id(),
                last_change_at: Some(NOON),
                memory: Memory::Suspended(vec![spec("r1", "50cc")]),
            }),
        },
    ]
}

fn strategy() -> Strategy {
    Strategy {
        id: strategy_id(),
        kind: StrategyKind::TargetSize,
        target: Target::Pattern("prod%".into()),
        options: options(),
        migrated_from: Some(0),
        created: at(301, 0),
        updated: at(400, 2),
        created_at: NOON,
        updated_at: NOON,
    }
}

fn signals() -> Signals {
    let replica = Replica {
        name: "r1".into(),
        size: "50cc".into(),
        incarnation: Some("i-1".into()),
        ready: true,
        cordoned: true,
        since: NOON,
        seen_at: NOON,
        hydration: Some(Hydration { total: 3, hydrated: 2, as_of: NOON, collector: "watcher".into() }),
        crashes: vec![Crash { at: NOON, count: 2, oom_count: 1, reason: "killed".into() }],
        notice: Some(Box::new(Notice { kind: NoticeKind::Spot, given_at: NOON, gone_at: None })),
    };
    Signals {
        replicas: vec![replica],
        activity: Some(Activity { last_at: Some(NOON), none_since: NOON, as_of: NOON, collector: "watcher".into() }),
        metrics: vec![Metric { name: "cpu".into(), value_milli: 250, as_of: NOON, collector: "watcher".into() }],
        collectors: vec![Heard { collector: "watcher".into(), at: NOON, confirmed_at: Some(NOON) }],
        gone: vec![Gone { name: "r0".into(), at: NOON }],
    }
}

/// Every reason once, so that its number is pinned.
fn reasons() -> Vec<Reason> {
    let time = NOON;
    let key = || "r1".into();
    let problem = ConfigurationProblem::Missing { option: "size".to_owned() };
    vec![
        Reason::Disabled,
        Reason::BadConfiguration(Box::new(problem)),
        Reason::InCooldown { until: time },
        Reason::TargetMissing { size: key() },
        Reason::TargetAlone,
        Reason::TargetNotHydrated { replica: key(), total: 3, hydrated: 1 },
        Reason::TargetHydrated { replica: key() },
        Reason::LadderNeeded { size: key() },
        Reason::LadderExhausted { until: time },
        Reason::OomLooping { ooms: 1 },
        Reason::CrashLooping { crashes: 2 },
        Reason::LargerThanHealthy { healthy: key() },
        Reason::NoneHealthy,
        Reason::FitsAlready { healthy: key() },
        Reason::BurstNeeded { size: key() },
        Reason::OtherHydrated { replica: key() },
        Reason::BurstHelping,
        Reason::BurstNotNeeded { hydrated: key() },
        Reason::BurstSizePresent { replica: key() },
        Reason::NoOthers,
        Reason::Idle { since: time },
        Reason::NoActivitySeen { since: time },
        Reason::Active { last_at: time, suspends_at: time },
        Reason::NothingToSuspend,
        Reason::Woken,
        Reason::StaysSuspended,
        Reason::SignalStale { since: time },
        Reason::SignalMissing,
        Reason::UnderNotice { replica: key() },
        Reason::Panicked,
        Reason::Overran { steps_max: 20_000 },
        Reason::SignalAbove { signal: key(), value_milli: 400_000, wanted: 4, replicas: 3 },
        Reason::SignalBelow { signal: key(), value_milli: -1, wanted: 1, replicas: 2 },
        Reason::SignalOnTarget { signal: key(), value_milli: 250, replicas: 2 },
        Reason::Stabilizing { wanted: 1, replicas: 2, until: Some(time) },
        Reason::PolicyHolds { wanted: 9, replicas: 2, until: None },
        Reason::DirectionDisabled { wanted: 1, replicas: 2 },
        Reason::AtMaximum { wanted: 12, replicas: 10 },
        Reason::AtMinimum { wanted: 0, replicas: 1 },
        Reason::BelowMinimum { replicas: 0, replicas_min: 1 },
        Reason::AboveMaximum { replicas: 11, replicas_max: 10 },
        Reason::NotActivated,
        Reason::MetricMissing { signal: key() },
        Reason::MetricStale { signal: key(), since: time },
        Reason::NeededByOther { replicas: 4 },
        Reason::OtherSizeWanted { size: key() },
        Reason::SuspendedBySchedule { until: Some(time) },
        Reason::WokenBySchedule,
    ]
}

fn planned(step: Step) -> Planned {
    let reason = Reason::TargetMissing { size: "50cc".into() };
    Planned { step, by: Origin::Strategy { id: strategy_id(), kind: StrategyKind::TargetSize }, reason }
}

fn asked(step: Step) -> Planned {
    Planned { step, by: Origin::User, reason: Reason::Asked { by: "alice".into() } }
}

fn steps() -> Vec<Step> {
    let incarnation = || Some("i-1".into());
    vec![
        Step::Create(spec("a", "25cc")),
        Step::Replace { old: spec("b", "25cc"), incarnation: incarnation(), new: spec("b_50cc_auto", "50cc") },
        Step::Drop { replica: spec("c", "25cc"), incarnation: incarnation() },
    ]
}

fn decision() -> Decision {
    let changes = |reason: Reason| {
        let alterations = [
            Alteration::Added(spec("a", "25cc")),
            Alteration::Resized { replica: spec("b", "50cc"), from: "25cc".into() },
            Alteration::Removed(spec("c", "25cc")),
        ];
        let change = |alteration| Change { alteration, reason: reason.clone() };
        alterations.into_iter().map(change).collect::<Vec<_>>()
    };
    let causes = ChangeCause::ALL.iter().cycle();
    let stages = reasons().into_iter().zip(causes).map(|(reason, why)| Stage {
        strategy: strategy_id(),
        kind: StrategyKind::IdleSuspend,
        changes: changes(Reason::Woken),
        held_back: vec![],
        changes_at: Some(ChangesAt { at: NOON, why: *why }),
        tied_with: Some(strategy_id()),
        profile: Some(HeldProfile { row: Some("weekends suspended".into()), until: Some(NOON) }),
        reason,
    });
    let planned: Vec<Planned> = steps().into_iter().map(planned).collect();
    let brakes = Brake::ALL.iter().map(|brake| Held { brake: *brake, until: Some(NOON) }).collect();
    Decision {
        id: at(302, 1),
        cluster: cluster(),
        at: NOON,
        inputs: signals(),
        stale_after: Span::from_mins(2),
        stages: stages.collect(),
        desired: vec![spec("a", "25cc")],
        planned: planned.clone(),
        shadow: Some(Box::new(Shadow { stages: vec![], desired: vec![spec("a", "25cc")], planned })),
        brakes,
        conclusion: Conclusion::Began(operation_id()),
        changes_at: None,
    }
}

pub fn action() -> Action {
    let life = ReplicaLife { name: "r1".into(), size: "50cc".into(), incarnation: Some("i-1".into()) };
    Action {
        id: action_id(),
        number: 9,
        incarnation: NOON.as_millis(),
        cluster: cluster(),
        cluster_name: "demo".into(),
        operation: Some(operation_id()),
        by: Origin::Strategy { id: strategy_id(), kind: StrategyKind::ShrinkToFit },
        reason: Reason::OomLooping { ooms: 2 },
        decision: at(302, 1),
        call: Call::DropReplica(life),
        status: ActionStatus::Claimed { epoch: EPOCH, at: NOON },
        attempt: 2,
        backend: Some("local".into()),
        intent: Some(Hash([3; 32])),
        attempts: attempts(),
        hurried: 1,
        created_at: NOON,
        settled_at: None,
        error: Some("no room".to_owned()),
    }
}

fn attempts() -> Vec<Attempt> {
    let later = Epoch { index: LogIndex(50), ..EPOCH };
    let ended = Some(AttemptEnd { epoch: later, node: NodeNumber(2), at: NOON, result: AttemptResult::Unknown });
    vec![
        Attempt { number: 1, epoch: EPOCH, node: NodeNumber(1), claimed_at: NOON, ended },
        Attempt { number: 2, epoch: later, node: NodeNumber(2), claimed_at: NOON, ended: None },
    ]
}

/// With an end of every kind.
fn settled() -> Action {
    let results = [
        AttemptResult::Succeeded,
        AttemptResult::Failed { retryable: true },
        AttemptResult::Unknown,
        AttemptResult::Resolved { succeeded: false },
        AttemptResult::Abandoned,
    ];
    let ended = |result| Some(AttemptEnd { epoch: EPOCH, node: NodeNumber(1), at: NOON, result });
    let attempts = results.into_iter().map(|result| Attempt { ended: ended(result), ..attempts()[0] });
    Action { attempts: attempts.collect(), ..with(ActionStatus::Abandoned) }
}

fn with(status: ActionStatus) -> Action {
    Action { status, ..action() }
}

fn operation() -> Operation {
    let all = [
        Progress::Waiting,
        Progress::Creating,
        Progress::Joining,
        Progress::Cordoning,
        Progress::Draining,
        Progress::Dropping,
        Progress::Uncordoning,
        Progress::Done,
        Progress::Skipped,
        Progress::Failed,
    ];
    let units = all.into_iter().zip(steps().into_iter().cycle()).map(|(progress, step)| Unit {
        planned: planned(step),
        progress,
        action: Some(action_id()),
        launched: Some("i-2".into()),
        launched_at: Some(NOON),
        cordoned: true,
        drained: Some(DrainResult { moved: 4, left: 1 }),
    });
    Operation {
        id: operation_id(),
        cluster: cluster(),
        kind: OperationKind::Replace,
        units: units.collect(),
        begun_at: NOON,
        progress_at: NOON,
        decision: at(302, 1),
        failing: Some(FailureReason::Stuck),
    }
}

fn course() -> Course {
    Course {
        recommendations: vec![Recommended { at: NOON, lowest: 2, highest: 5, latest: 3 }],
        added: vec![Changed { at: NOON, count: 2 }],
        removed: vec![Changed { at: NOON, count: 1 }],
        panic: Some(Panic { at: NOON, highest: 5 }),
    }
}

fn knowledge() -> RestoredKnowledge {
    let state =
        |memory| Some(StrategyState { version: 1, strategy: strategy_id(), last_change_at: Some(NOON), memory });
    let failed = vec![loadline_state_machine::FailedSize { size: "25cc".into(), at: NOON }];
    RestoredKnowledge {
        signals: signals(),
        states: [
            state(Memory::Nothing),
            state(Memory::FailedSizes(failed)),
            None,
            state(Memory::Suspended(vec![spec("a", "25cc")])),
            state(Memory::Course(Box::new(course()))),
            None,
        ],
        pause: Some(pause()),
        idle: Some(idle()),
        floor: Some(floor()),
    }
}

fn wake() -> Wake {
    Wake { at: NOON, reason: WakeReason::Webhook, cold: true, ready_at: None }
}

fn idle() -> IdleRecord {
    let row = DayRow { day: Day(20_773), idle_millis: 9, zero_millis: 8, saved_micros: 7, hourly_micros: 6 };
    IdleRecord {
        created_at: NOON,
        updated_at: NOON,
        scaled_to_zero_at: Some(NOON),
        hourly_micros: 400_000,
        wake: Some(wake()),
        starts: vec![1_500, 90_000],
        days: vec![row],
    }
}

fn floor() -> Override {
    Override {
        replicas_min: 3,
        size: "50cc".into(),
        reason: "a big day".to_owned(),
        by: "alice".into(),
        since: NOON,
        expires_at: Time::from_millis(NOON.as_millis() + 7_200_000),
        begun: at(303, 0),
    }
}

fn pause() -> Pause {
    Pause { reason: "moving".to_owned(), since: NOON, expires_at: Some(NOON), begun: at(5, 0) }
}

/// What came into the parts of events after their bytes were pinned: each by itself.
pub fn later_parts() -> Vec<(&'static str, Event)> {
    let incarnation = Some("i-1".into());
    let life = ReplicaLife { name: "c".into(), size: "25cc".into(), incarnation: incarnation.clone() };
    let checkpoint = Action { call: Call::CheckpointReplica(life), ..action() };
    let waits = Reason::AwaitsSignal { signal: "latency".into(), replicas: 4 };
    let mut suspends = operation();
    suspends.units.truncate(1);
    suspends.units[0].planned = planned(Step::Suspend { replica: spec("c", "25cc"), incarnation });
    suspends.units[0].progress = Progress::Checkpointing;
    vec![
        ("a checkpoint", Event::ActionPlanned { action: Box::new(checkpoint) }),
        ("a suspension", Event::OperationAdvanced { operation: suspends }),
        ("a wait for a signal", Event::StrategyFaulted { cluster: cluster(), strategy: strategy_id(), reason: waits }),
    ]
}

pub fn events() -> Vec<Event> {
    vec![
        Event::StrategyRestored { strategy: strategy() },
        Event::ClusterKnowledgeRestored { cluster: cluster(), knowledge: Box::new(knowledge()) },
        Event::StrategyCreated { strategy: strategy() },
        Event::StrategyChanged {
            before: Box::new(strategy()),
            strategy: Strategy { target: Target::All, ..strategy() },
        },
        Event::StrategyDropped { strategy: Strategy { target: Target::Cluster(cluster()), ..strategy() } },
        Event::StrategyFaulted { cluster: cluster(), strategy: strategy_id(), reason: Reason::Panicked },
        Event::StrategyStateSet { cluster: cluster(), kind: StrategyKind::IdleSuspend, state: None },
        Event::SignalsReported {
            collector: "watcher".into(),
            sequence: 7,
            cluster: cluster(),
            observations: observations(),
        },
        Event::CollectorHeard { collector: "watcher".into(), sequence: 8 },
        Event::ClusterPaused { cluster: cluster(), pause: pause() },
        Event::ClusterWoken { cluster: cluster(), wake: wake() },
        Event::ClusterOverridden { cluster: cluster(), floor: floor() },
        Event::OverrideEnded { cluster: cluster(), reason: ResumeReason::Asked },
        Event::BackendDescribed { backend: "local".into(), checkpoints: true },
        Event::ClusterResumed { cluster: cluster(), reason: ResumeReason::Expired },
        Event::ReplicaAsked { cluster: cluster(), asked: Box::new(asked(Step::Create(spec("mine", "50cc")))) },
        Event::DecisionMade { decision: Box::new(decision()) },
        Event::ActionPlanned { action: Box::new(with(ActionStatus::AwaitingApproval { expires_at: NOON })) },
        Event::ActionApproved { action: Box::new(with(ActionStatus::Pending { not_before: None })) },
        Event::ActionClaimed { action: Box::new(action()) },
        Event::ActionReturned { action: Box::new(with(ActionStatus::Pending { not_before: Some(NOON) })) },
        Event::ActionUnsure { action: Box::new(with(ActionStatus::Unknown { epoch: EPOCH, at: NOON })) },
        Event::ActionSettled {
            action: Box::new(settled()),
            report: Report::Created { incarnation: Some("i-2".to_owned()) },
        },
        Event::ActionHurried { action: Box::new(with(ActionStatus::Pending { not_before: None })) },
        Event::DeadLetterCleared { action: Box::new(with(ActionStatus::DeadLettered)), reason: "room now".to_owned() },
        Event::ActionRowsDeleted { cluster: cluster(), numbers: vec![3, 4, 9] },
        Event::ClusterPlaced { cluster: samples::cluster(), backend: Some("local".into()) },
        Event::OperationBegun { operation: operation() },
        Event::OperationAdvanced { operation: operation() },
        Event::OperationEnded { operation: operation(), end: OperationEnd::Failed(FailureReason::Restored) },
        Event::CourseNoted {
            cluster: cluster(),
            strategy: strategy_id(),
            kind: StrategyKind::TargetTracking,
            noted: Noted {
                recommended: Some(7),
                panic: Some(Panic { at: NOON, highest: 9 }),
                window: Span::from_secs(300),
            },
        },
    ]
}

pub fn rejections() -> Vec<ScalingRejection> {
    let text = |text: &str| text.to_owned();
    let kind = StrategyKind::TargetSize;
    let action = action_id();
    let configuration = |problem| ScalingRejection::Configuration { kind, problem, expected: text("25cc, 50cc") };
    let later = Time::from_millis(NOON.as_millis() + 1_000);
    let status = || text("CLAIMED");
    vec![
        ScalingRejection::FeatureOff,
        ScalingRejection::StrategyNotFound { target: text("cluster demo"), kind },
        ScalingRejection::AmbiguousPattern {
            pattern: text("a%"),
            other: strategy_id(),
            other_pattern: text("%b"),
            matches: 2,
            cluster: text("ab"),
        },
        ScalingRejection::InvalidPattern { pattern: text("a\\") },
        configuration(ConfigurationProblem::Version),
        configuration(ConfigurationProblem::UnknownOption { option: text("sise") }),
        configuration(ConfigurationProblem::Missing { option: text("size") }),
        configuration(ConfigurationProblem::Invalid { option: text("cooldown_s"), value: text("soon") }),
        configuration(ConfigurationProblem::UnknownSize { option: text("size"), size: text("75cc") }),
        configuration(ConfigurationProblem::NameNotManaged { name: text("main") }),
        ScalingRejection::TooMany { field: Field::Observations, count: 60_000, count_max: 50_000 },
        ScalingRejection::ClusterInUse { cluster: text("demo"), replicas: 2, unsettled: 1 },
        ScalingRejection::ActionNotFound { action },
        ScalingRejection::StaleEpoch { given: EPOCH, current: Epoch { index: LogIndex(50), ..EPOCH } },
        ScalingRejection::NoEpoch,
        ScalingRejection::StaleAttempt { action, given: 1, current: 2 },
        ScalingRejection::NotClaimable { action, status: status() },
        ScalingRejection::RetryNotDue { action, not_before: later },
        ScalingRejection::OutOfTurn { action, first: action },
        ScalingRejection::KillSwitchOff,
        ScalingRejection::RateLimited { action, until: later },
        ScalingRejection::NotClaimed { action, status: status() },
        ScalingRejection::NotAwaitingApproval { action, status: status() },
        ScalingRejection::ParametersDiffer {
            action,
            given: Box::new(CalledWith { backend: text("local"), parameters: Hash([3; 32]) }),
            known: Box::new(CalledWith { backend: text("remote"), parameters: Hash([4; 32]) }),
        },
        ScalingRejection::NoBackend { cluster: text("demo") },
        ScalingRejection::OtherBackend { action, given: text("local"), right: text("remote") },
        ScalingRejection::ClusterGone { action },
        ScalingRejection::NoAttemptLeft { action, attempts_max: 3 },
        ScalingRejection::OperationUnderWay { cluster: text("demo"), operation: operation_id() },
        ScalingRejection::NotRetryable { action, status: status() },
        ScalingRejection::NotResolvable { action, status: text("PENDING") },
        ScalingRejection::StateChanged { strategy: strategy_id(), cluster: cluster() },
        ScalingRejection::NotRuling { strategy: strategy_id(), cluster: cluster() },
        ScalingRejection::InvalidState { kind, expected: text("last_change_at is in the future") },
        ScalingRejection::NotSettled { number: 7 },
        ScalingRejection::ReplicaExists { cluster: text("demo"), replica: text("mine") },
        ScalingRejection::ReplicaNotFound { cluster: text("demo"), replica: text("mine") },
        ScalingRejection::NameReserved { replica: text("mine_auto") },
        ScalingRejection::NotSuspendable { cluster: text("demo") },
        ScalingRejection::SizeNeeded { cluster: text("demo") },
        ScalingRejection::ChangedSince {
            resource: ResourceName::strategy(strategy_id()),
            since: LogIndex(300),
            changed: Some(LogIndex(301)),
        },
    ]
}

pub fn answers() -> Vec<Answer> {
    let receipt = ReportReceipt { repeated: true, sequence: 7, unknown: vec!["nowhere".to_owned()] };
    let placed = ClusterView { cluster: samples::cluster(), backend: Some("local".into()) };
    vec![
        Answer::Strategy(strategy()),
        Answer::Reported(receipt),
        Answer::Action(Box::new(action())),
        Answer::PlacedCluster(placed),
        Answer::Woke(Box::new(Woke {
            cluster: samples::cluster(),
            strategy: strategy_id(),
            reason: WakeReason::ApiRequest,
            already_running: false,
            replicas_before: 0,
            replicas_wanted: 2,
            ready_in: Some(Span::from_secs(30)),
            ready_by: Time::from_millis(NOON.as_millis() + 120_000),
        })),
    ]
}
