//! Shows what entries bring about where scaling is concerned.

use std::fmt::Display;

use loadline_state_machine::{
    Action, ActionStatus, Alteration, Answer, Change, Conclusion, Decision, Event, Held, Observation, Operation,
    OperationEnd, Override, Pause, Planned, ReplicaSpec, Resource, Seen, Stage, State, Step, Strategy, Target, Time,
};

pub fn event(event: &Event) -> String {
    match event {
        Event::StrategyCreated { strategy: after } | Event::StrategyRestored { strategy: after } => strategy(after),
        Event::StrategyChanged { before, strategy: after } => {
            format!("{}; before: {}", strategy(after), options(before))
        }
        Event::StrategyDropped { strategy: before } => strategy(before),
        Event::StrategyFaulted { cluster, strategy, reason } => format!("{cluster}, {strategy}, {}", reason.code()),
        Event::StrategyStateSet { cluster, kind, state } => match state {
            None => format!("{cluster}, {kind}: nothing"),
            Some(it) => format!(
                "{cluster}, {kind}: last change {}, {:?}",
                it.last_change_at.map_or("never".to_owned(), clock),
                it.memory
            ),
        },
        Event::ActionRowsDeleted { cluster, numbers } => {
            format!("{cluster}: {}", joined(numbers, u64::to_string))
        }
        Event::SignalsReported { collector, sequence, cluster, observations } => {
            format!("{cluster}, {collector} #{sequence}: {}", joined(observations, observation))
        }
        Event::CourseNoted { cluster, strategy, kind, noted } => {
            let recommended = noted.recommended.map(|it| format!(" recommends {it}")).unwrap_or_default();
            let panic = noted.panic.map(|it| format!(" in panic up to {}", it.highest)).unwrap_or_default();
            format!("{cluster}, {kind} {strategy}{recommended}{panic}")
        }
        Event::CollectorHeard { collector, sequence } => format!("{collector} #{sequence}"),
        Event::ClusterPaused { cluster, pause: after } => format!("{cluster}, {}", pause(after)),
        Event::ReplicaAsked { cluster, asked } => {
            let what = match &asked.step {
                Step::Create(replica) => format!("create {}:{}", replica.name, replica.size),
                Step::Drop { replica, .. } => format!("drop {}:{}", replica.name, replica.size),
                other @ (Step::Replace { .. } | Step::Suspend { .. }) => panic!("{other:?} is not asked for"),
            };
            format!("{cluster}, {what}, {}", asked.reason)
        }
        Event::ClusterResumed { cluster, reason } | Event::OverrideEnded { cluster, reason } => {
            format!("{cluster}, {reason:?}")
        }
        Event::ClusterWoken { cluster, wake } => {
            let ready = wake.ready_at.map_or("not ready yet", |_| "it runs");
            format!("{cluster}, {}{}, {ready}", wake.reason.as_str(), if wake.cold { ", from zero" } else { "" })
        }
        Event::ClusterOverridden { cluster, floor } => format!("{cluster}, {}", overridden(floor)),
        Event::BackendDescribed { backend, checkpoints } => {
            format!("{backend} {}", if *checkpoints { "keeps checkpoints" } else { "keeps none" })
        }
        Event::ClusterKnowledgeRestored { cluster, knowledge } => format!(
            "{cluster}, {} replicas, {} strategy states, {}",
            knowledge.signals.replicas.len(),
            knowledge.states.iter().flatten().count(),
            knowledge.pause.as_ref().map_or_else(|| "not paused".to_owned(), pause),
        ),
        Event::DecisionMade { decision: made } => decision(made),
        Event::ActionPlanned { action: after }
        | Event::ActionApproved { action: after }
        | Event::ActionClaimed { action: after }
        | Event::ActionReturned { action: after }
        | Event::ActionUnsure { action: after }
        | Event::ActionHurried { action: after } => action(after),
        Event::DeadLetterCleared { action: after, reason } => format!("{}; {reason:?}", action(after)),
        Event::ActionSettled { action: after, report } => {
            format!(
                "{}{}",
                action(after),
                if let loadline_state_machine::Report::Nothing = report {
                    String::new()
                } else {
                    format!("; {report:?}")
                }
            )
        }
        Event::OperationBegun { operation: after } | Event::OperationAdvanced { operation: after } => operation(after),
        Event::OperationEnded { operation: before, end } => format!("{}; {}", end_of(*end), operation(before)),
        other => panic!("{other:?} is not about scaling"),
    }
}

pub fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Strategy(shown) => strategy(shown),
        Answer::Reported(receipt) => {
            let heard = if receipt.repeated { "heard before" } else { "heard" };
            let unknown = match receipt.unknown.as_slice() {
                [] => String::new(),
                names => format!(", unknown: {}", names.join(" ")),
            };
            format!("{heard} up to #{}{unknown}", receipt.sequence)
        }
        Answer::Action(shown) => action(shown),
        Answer::Woke(woke) => format!(
            "{}, {}, {} replicas of {}, ready in {}, by {}",
            woke.reason.as_str(),
            if woke.already_running { "already running" } else { "waking" },
            woke.replicas_before,
            woke.replicas_wanted,
            woke.ready_in.map_or_else(|| "nobody knows".to_owned(), |span| span.to_string()),
            clock(woke.ready_by)
        ),
        other => panic!("{other:?} is not about scaling"),
    }
}

/// Short: the event above has said it all.
pub fn resource(resource: &Resource) -> String {
    match resource {
        Resource::Strategy(shown) => format!("etag {}", shown.updated),
        Resource::Decision(shown) => shown.conclusion.code().to_owned(),
        Resource::Operation(shown) => shown.phase().as_str().to_owned(),
        Resource::Action(shown) => shown.status.code().to_owned(),
        other => panic!("{other:?} is not about scaling"),
    }
}

fn strategy(strategy: &Strategy) -> String {
    let target = match &strategy.target {
        Target::Cluster(id) => id.to_string(),
        Target::Pattern(pattern) => format!("like {pattern}"),
        Target::All => "all".to_owned(),
    };
    let migrated = strategy.migrated_from.map(|from| format!(", migrated from version {from}")).unwrap_or_default();
    let problem = match strategy.configuration() {
        Ok(_) => String::new(),
        Err(problem) => format!(", {}", problem.code()),
    };
    format!(
        "{} {} for {target}, {}{migrated}{problem}, etag {}",
        strategy.id,
        strategy.kind,
        options(strategy),
        strategy.updated
    )
}

fn options(strategy: &Strategy) -> String {
    let shown: Vec<String> = strategy.options.iter().map(|(key, value)| format!("{key}={value}")).collect();
    shown.join(" ")
}

fn observation(observation: &Observation) -> String {
    let seen = match &observation.seen {
        Seen::Alive => "alive".to_owned(),
        Seen::Activity { idle_for: None } => "idle ever".to_owned(),
        Seen::Activity { idle_for: Some(span) } => format!("idle {span}"),
        Seen::Replica { name, size, incarnation, ready } => {
            let ready = if *ready { "ready" } else { "starting" };
            format!("replica {name} {size} {ready}{}", life(incarnation.as_deref()))
        }
        Seen::ReplicaGone { name, incarnation } => format!("gone {name}{}", life(incarnation.as_deref())),
        Seen::Hydration { replica, total, hydrated } => format!("hydration {replica} {hydrated}/{total}"),
        Seen::Crash { replica, oom, reason, count } => format!("crash {replica} oom={oom} count={count} {reason:?}"),
        Seen::Metric { name, value_milli } => format!("metric {name} {value_milli}"),
        Seen::Notice { replica, kind, gone_in } => {
            format!(
                "notice {replica} {}{}",
                kind.as_str(),
                gone_in.map(|span| format!(" in {span}")).unwrap_or_default()
            )
        }
    };
    if observation.age.as_millis() == 0 { seen } else { format!("{seen} ({} ago)", observation.age) }
}

fn life(incarnation: Option<&str>) -> String {
    incarnation.map(|it| format!(" ({it})")).unwrap_or_default()
}

fn pause(pause: &Pause) -> String {
    format!("paused since {} {}: {:?}", clock(pause.since), until(pause.expires_at), pause.reason)
}

fn until(time: Option<Time>) -> String {
    time.map_or_else(|| "until further notice".to_owned(), |time| format!("until {}", clock(time)))
}

pub fn decision(decision: &Decision) -> String {
    let conclusion = match decision.conclusion {
        Conclusion::Began(id) | Conclusion::UnderWay(id) => format!("{} {id}", decision.conclusion.code()),
        other => other.code().to_owned(),
    };
    let mut said = format!("{}, {conclusion}, wants {}", decision.cluster, specs(&decision.desired));
    for shown in &decision.stages {
        said += &format!("; {}", stage(shown));
    }
    if !decision.brakes.is_empty() {
        said += &format!("; brakes {}", joined(&decision.brakes, held));
    }
    if let Some(shadow) = &decision.shadow {
        said += &format!("; dry run wants {}", specs(&shadow.desired));
        said += &format!(" by {}", joined(&shadow.stages, stage));
        said += &format!(" and would {}", joined(&shadow.planned, planned));
    }
    if let Some(changes_at) = decision.changes_at {
        said += &format!("; changes at {} {}", clock(changes_at.at), changes_at.why.code());
    }
    said
}

fn stage(stage: &Stage) -> String {
    let changes: Vec<String> = stage.changes.iter().map(change).collect();
    let changes = if changes.is_empty() { String::new() } else { format!(" {}", changes.join(" ")) };
    let held: Vec<String> = stage.held_back.iter().map(change).collect();
    let held = if held.is_empty() { String::new() } else { format!(" (not yet {})", held.join(" ")) };
    let tied = stage.tied_with.map(|id| format!(" (tied with {id})")).unwrap_or_default();
    format!("{} {}{changes}{held}{tied}", stage.kind, stage.reason.code())
}

fn change(change: &Change) -> String {
    match &change.alteration {
        Alteration::Added(replica) => format!("+{}:{}", replica.name, replica.size),
        Alteration::Removed(replica) => format!("-{}:{}", replica.name, replica.size),
        Alteration::Resized { replica, from } => format!("{}:{from}->{}", replica.name, replica.size),
    }
}

fn held(held: &Held) -> String {
    match held.until {
        Some(until) => format!("{} until {}", held.brake.code(), clock(until)),
        None => held.brake.code().to_owned(),
    }
}

pub fn planned(planned: &Planned) -> String {
    step(&planned.step)
}

fn step(step: &Step) -> String {
    match step {
        Step::Create(replica) => format!("create {}:{}", replica.name, replica.size),
        Step::Drop { replica, incarnation } => {
            format!("drop {}:{}{}", replica.name, replica.size, life(incarnation.as_deref()))
        }
        Step::Suspend { replica, incarnation } => {
            format!("suspend {}:{}{}", replica.name, replica.size, life(incarnation.as_deref()))
        }
        Step::Replace { old, incarnation, new } => {
            format!("replace {}:{}{} by {}:{}", old.name, old.size, life(incarnation.as_deref()), new.name, new.size)
        }
    }
}

pub fn action(action: &Action) -> String {
    let status = match action.status {
        ActionStatus::AwaitingApproval { expires_at } => format!("AWAITING_APPROVAL until {}", clock(expires_at)),
        ActionStatus::Pending { not_before: Some(at) } => format!("PENDING not before {}", clock(at)),
        ActionStatus::Claimed { epoch, at } | ActionStatus::Unknown { epoch, at } => {
            format!("{} in epoch {} at {}", action.status.code(), epoch.index, clock(at))
        }
        other => other.code().to_owned(),
    };
    let attempt = match &action.backend {
        Some(backend) => format!(", attempt {} on {backend} by {}", action.attempt, nodes(action)),
        None => String::new(),
    };
    let hurried = if action.hurried > 0 { format!(", hurried {}", action.hurried) } else { String::new() };
    let error = action.error.as_ref().map(|error| format!(", {error:?}")).unwrap_or_default();
    format!(
        "{} #{} {}{}, {status}{attempt}{hurried}{error}, for {} {}",
        action.id,
        action.number,
        action.call,
        action_life(action),
        action.by.code(),
        action.reason.code()
    )
}

/// "1, 2": node 2 has taken over from node 1.
fn nodes(action: &Action) -> String {
    joined(&action.worked_on_by(), ToString::to_string)
}

fn action_life(action: &Action) -> String {
    use loadline_state_machine::Call;
    match &action.call {
        Call::CreateReplica(_) => String::new(),
        Call::CordonReplica(it)
        | Call::DrainReplica(it)
        | Call::DropReplica(it)
        | Call::UncordonReplica(it)
        | Call::CheckpointReplica(it) => life(it.incarnation.as_deref()),
    }
}

pub fn operation(operation: &Operation) -> String {
    let failing = operation.failing.map(|reason| format!(", failing: {}", reason.code())).unwrap_or_default();
    let units: Vec<String> = operation
        .units
        .iter()
        .map(|unit| {
            let drained = unit.drained.map(|it| format!(", {} moved, {} left", it.moved, it.left)).unwrap_or_default();
            let launched = unit.launched.as_ref().map(|it| format!(" as {it}")).unwrap_or_default();
            format!("{} {}{launched}{drained}", step(&unit.planned.step), unit.progress.as_str())
        })
        .collect();
    format!(
        "{} {} of {} {}{failing}: {}",
        operation.id,
        operation.kind.as_str(),
        operation.cluster,
        operation.phase().as_str(),
        units.join(", ")
    )
}

fn end_of(end: OperationEnd) -> String {
    match end {
        OperationEnd::Failed(reason) => format!("FAILED {}", reason.code()),
        other => other.code().to_owned(),
    }
}

fn specs(specs: &[ReplicaSpec]) -> String {
    let shown: Vec<String> = specs.iter().map(|it| format!("{}:{}", it.name, it.size)).collect();
    format!("[{}]", shown.join(" "))
}

fn joined<T>(all: &[T], one: impl Fn(&T) -> String) -> String {
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub fn clock(time: impl Display) -> String {
    time.to_string().replace("2026-11-16T", "").replace(".000Z", "").replace('Z', "")
}

fn overridden(floor: &Override) -> String {
    let Override { replicas_min, size, reason, by, expires_at, .. } = floor;
    format!("at least {replicas_min} of {size} until {}, {reason:?} of {by}", clock(expires_at))
}

/// Everything about scaling that the state holds.
pub fn everything(state: &State) -> Vec<String> {
    let mut lines: Vec<String> = state.strategies().map(|shown| format!("strategy {}", strategy(shown))).collect();
    for cluster in state.clusters_after(None) {
        let Some(standing) = state.standing(cluster.id) else { continue };
        for replica in &standing.signals().replicas {
            let mut shown = format!(
                "replica {}/{} {}{}",
                cluster.name,
                replica.name,
                replica.size,
                life(replica.incarnation.as_deref())
            );
            shown += if replica.ready { " ready" } else { " starting" };
            shown += if replica.cordoned { " cordoned" } else { "" };
            if let Some(hydration) = &replica.hydration {
                shown += &format!(" hydrated {}/{}", hydration.hydrated, hydration.total);
            }
            lines.push(shown);
        }
        if let Some(shown) = standing.floor() {
            lines.push(format!("cluster {} overridden: {}", cluster.name, overridden(shown)));
        }
        let idle = state.idle_state(cluster.id);
        if let Some(at) = idle.as_ref().and_then(|idle| idle.scaled_to_zero_at) {
            lines.push(format!("cluster {} at zero since {}", cluster.name, clock(at)));
        }
        if let Some(wake) = idle.and_then(|idle| idle.last_wake) {
            let ready = wake.ready_at.map_or_else(|| "not ready".to_owned(), |at| format!("ready {}", clock(at)));
            lines.push(format!(
                "cluster {} woken {} ({}), {ready}",
                cluster.name,
                clock(wake.at),
                wake.reason.as_str()
            ));
        }
        if let Some(shown) = standing.pause() {
            lines.push(format!("cluster {} {}", cluster.name, pause(shown)));
        }
    }
    lines.extend(state.operations().map(|shown| format!("operation {}", operation(shown))));
    lines.extend(state.actions().map(|shown| format!("action {}", action(shown))));
    lines.extend(state.dead_letters().map(|shown| format!("dead letter {}", action(shown))));
    lines
}
