//! Strategies, decisions, operations and actions as a caller sees them.
//!
//! What is stored knows clusters by id and holds no words. Both are added here: the name that a cluster has in the state at
//! hand, and a text beside every code.

use std::collections::BTreeMap;

use loadline_state_machine::{
    Action, ActionStatus, Alteration, Attempt, ClusterId, Conclusion, Configuration, ConfigurationProblem, Decision,
    Fact, Freshness, Holding, Operation, OperationEnd, Pause, Planned, Reason, Replica, ReplicaSpec, Signals, Span,
    Stage, State, Step, Strategy, Target, Time,
};

use crate::resources::millis;
use crate::v1;

fn name_of(cluster: ClusterId, state: &State) -> String {
    state.cluster_by_id(cluster).map(|cluster| cluster.name.clone()).unwrap_or_default()
}

fn time(time: Option<Time>) -> i64 {
    time.map(millis).unwrap_or_default()
}

fn coded(code: &str, text: impl Into<String>) -> v1::Reason {
    v1::Reason { code: code.to_owned(), text: text.into() }
}

/// The text that stands beside a code in the list of all codes.
fn listed(code: &str, codes: &[(&str, &str)]) -> v1::Reason {
    let text = codes.iter().find(|(known, _)| *known == code).map(|(_, text)| *text);
    coded(code, text.unwrap_or_default())
}

fn reason(reason: &Reason) -> v1::Reason {
    coded(reason.code(), reason.to_string())
}

fn spec(replica: &ReplicaSpec) -> v1::ReplicaSpec {
    v1::ReplicaSpec { name: replica.name.to_string(), size: replica.size.to_string() }
}

fn specs(replicas: &[ReplicaSpec]) -> Vec<v1::ReplicaSpec> {
    replicas.iter().map(spec).collect()
}

/// Which clusters are meant, by name.
pub fn target(target: &Target, state: &State) -> v1::StrategyTarget {
    use v1::strategy_target::Target as Wire;
    let target = match target {
        Target::Cluster(id) => Wire::Cluster(name_of(*id, state)),
        Target::Pattern(pattern) => Wire::Pattern(pattern.to_string()),
        Target::All => Wire::All(true),
    };
    v1::StrategyTarget { target: Some(target) }
}

/// A strategy, with what is wrong with it as things are.
pub fn strategy(strategy: &Strategy, state: &State) -> v1::Strategy {
    let cluster_id = match &strategy.target {
        Target::Cluster(id) => id.to_string(),
        Target::Pattern(_) | Target::All => String::new(),
    };
    let configuration = strategy.configuration();
    let (enabled, dry_run) = configuration.as_ref().map_or((false, false), |it| (it.enabled, it.dry_run));
    let profile = configuration.as_ref().ok().and_then(|it| it.at(state.now()).1.map(profile));
    let problem = configuration.map_or_else(Some, |configuration| missing_size(&configuration, state));
    v1::Strategy {
        id: strategy.id.to_string(),
        r#type: strategy.kind.to_string(),
        target: Some(target(&strategy.target, state)),
        options: strategy.options.iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect(),
        etag: strategy.updated.to_string(),
        create_revision: strategy.created.index.0,
        update_revision: strategy.updated.index.0,
        create_time_ms: millis(strategy.created_at),
        update_time_ms: millis(strategy.updated_at),
        enabled,
        dry_run,
        problem: problem.map(|problem| v1::Problem { code: problem.code().to_owned(), text: problem.to_string() }),
        matches: state.pattern_matches(strategy),
        migrated_from: strategy.migrated_from,
        cluster_id,
        profile,
    }
}

fn profile(holding: Holding<'_>) -> v1::Profile {
    let row = holding.row.map(|(text, _)| text.to_string()).unwrap_or_default();
    v1::Profile { row, until_ms: time(holding.until) }
}

/// The size that a strategy names may have been deleted since.
fn missing_size(configuration: &Configuration, state: &State) -> Option<ConfigurationProblem> {
    let (option, size) = configuration.sizes().find(|(_, size)| state.size(size).is_none())?;
    Some(ConfigurationProblem::UnknownSize { option: option.to_owned(), size: size.to_string() })
}

pub fn decision(decision: &Decision, state: &State) -> v1::Decision {
    let recorded = decision.id != loadline_state_machine::Revision::default();
    let operation = match decision.conclusion {
        // Of a decision that was only asked for, nothing began.
        Conclusion::Began(id) if recorded => id.to_string(),
        Conclusion::UnderWay(id) => id.to_string(),
        _ => String::new(),
    };
    v1::Decision {
        id: if recorded { decision.id.to_string() } else { String::new() },
        cluster: name_of(decision.cluster, state),
        cluster_id: decision.cluster.to_string(),
        time_ms: millis(decision.at),
        signals: Some(signals(&decision.inputs, decision.at, decision.stale_after)),
        stages: stages(&decision.stages, &decision.inputs),
        desired: specs(&decision.desired),
        planned: decision.planned.iter().map(planned).collect(),
        shadow: decision.shadow.as_deref().map(|shadow| v1::Shadow {
            stages: stages(&shadow.stages, &decision.inputs),
            desired: specs(&shadow.desired),
            planned: shadow.planned.iter().map(planned).collect(),
        }),
        brakes: decision
            .brakes
            .iter()
            .map(|held| v1::HeldBy {
                brake: Some(coded(held.brake.code(), held.brake.text())),
                until_ms: time(held.until),
            })
            .collect(),
        conclusion: Some(listed(decision.conclusion.code(), Conclusion::CODES)),
        operation,
        would_change: decision
            .changes_at
            .map(|at| v1::WouldChange { time_ms: millis(at.at), cause: Some(coded(at.why.code(), at.why.text())) }),
    }
}

/// The stages, each with the desired state after it: what is there, with all changes up to it.
fn stages(stages: &[Stage], inputs: &Signals) -> Vec<v1::Stage> {
    let actual = inputs.replicas.iter().map(|replica| (replica.name.to_string(), replica.size.to_string()));
    let mut desired: BTreeMap<String, String> = actual.collect();
    let mut shown = Vec::with_capacity(stages.len());
    for stage in stages {
        for change in &stage.changes {
            match &change.alteration {
                Alteration::Added(replica) | Alteration::Resized { replica, .. } => {
                    desired.insert(replica.name.to_string(), replica.size.to_string());
                }
                Alteration::Removed(replica) => {
                    desired.remove(replica.name.as_ref());
                }
            }
        }
        let after = desired.iter().map(|(name, size)| v1::ReplicaSpec { name: name.clone(), size: size.clone() });
        shown.push(v1::Stage {
            strategy: stage.strategy.to_string(),
            r#type: stage.kind.to_string(),
            reason: Some(reason(&stage.reason)),
            changes: stage.changes.iter().map(change).collect(),
            desired: after.collect(),
            would_change: stage
                .changes_at
                .map(|at| v1::WouldChange { time_ms: millis(at.at), cause: Some(coded(at.why.code(), at.why.text())) }),
            tied_with: stage.tied_with.map(|other| other.to_string()).unwrap_or_default(),
            profile: stage.profile.as_ref().map(|held| v1::Profile {
                row: held.row.as_deref().unwrap_or_default().to_owned(),
                until_ms: time(held.until),
            }),
        });
    }
    shown
}

fn change(change: &loadline_state_machine::Change) -> v1::StageChange {
    let (what, replica, from_size) = match &change.alteration {
        Alteration::Added(replica) => ("added", replica, String::new()),
        Alteration::Removed(replica) => ("removed", replica, String::new()),
        Alteration::Resized { replica, from } => ("resized", replica, from.to_string()),
    };
    v1::StageChange {
        what: what.to_owned(),
        replica: Some(spec(replica)),
        from_size,
        reason: Some(reason(&change.reason)),
    }
}

fn planned(planned: &Planned) -> v1::PlannedStep {
    let (step, replica, old) = match &planned.step {
        Step::Create(replica) => ("create", replica, None),
        Step::Drop { replica, .. } => ("drop", replica, None),
        Step::Suspend { replica, .. } => ("suspend", replica, None),
        Step::Replace { old, new, .. } => ("replace", new, Some(old)),
    };
    v1::PlannedStep {
        step: step.to_owned(),
        replica: Some(spec(replica)),
        old: old.map(spec),
        strategy: planned.by.strategy().map(|id| id.to_string()).unwrap_or_default(),
        r#type: planned.by.code().to_owned(),
        reason: Some(reason(&planned.reason)),
    }
}

fn signals(signals: &Signals, now: Time, stale_after: Span) -> v1::SignalsView {
    let freshness = |collector: &str, as_of: Time| {
        let (stale, at) = match signals.freshness(collector, as_of, now, stale_after) {
            Freshness::FreshUntil(at) => (false, at),
            Freshness::StaleSince(at) => (true, at),
        };
        let age_ms = now.since(as_of).as_millis();
        Some(v1::Freshness { collector: collector.to_owned(), age_ms, stale, stale_at_ms: millis(at) })
    };
    v1::SignalsView {
        activity: signals.activity.as_ref().map(|activity| v1::ActivityView {
            last_time_ms: time(activity.last_at),
            idle_since_ms: millis(activity.idle_since()),
            freshness: freshness(&activity.collector, activity.as_of),
        }),
        replicas: signals
            .replicas
            .iter()
            .map(|it| {
                let hydration = it.hydration.as_ref().map(|hydration| v1::HydrationView {
                    total: hydration.total,
                    hydrated: hydration.hydrated,
                    freshness: freshness(&hydration.collector, hydration.as_of),
                });
                replica(it, hydration)
            })
            .collect(),
        metrics: signals
            .metrics
            .iter()
            .map(|metric| v1::MetricView {
                name: metric.name.to_string(),
                value_milli: metric.value_milli,
                freshness: freshness(&metric.collector, metric.as_of),
            })
            .collect(),
        collectors: signals
            .collectors
            .iter()
            .map(|heard| v1::CollectorView { name: heard.collector.to_string(), heard_time_ms: millis(heard.at) })
            .collect(),
    }
}

fn replica(replica: &Replica, hydration: Option<v1::HydrationView>) -> v1::ReplicaView {
    let last = replica.crashes.last();
    let sum = |count: fn(&loadline_state_machine::Crash) -> u64| {
        replica.crashes.iter().fold(0_u64, |sum, crash| sum.saturating_add(count(crash)))
    };
    v1::ReplicaView {
        name: replica.name.to_string(),
        size: replica.size.to_string(),
        incarnation: replica.incarnation.as_deref().unwrap_or_default().to_owned(),
        ready: replica.ready,
        cordoned: replica.cordoned,
        since_ms: millis(replica.since),
        seen_time_ms: millis(replica.seen_at),
        hydration,
        crashes: sum(|crash| crash.count),
        ooms: sum(|crash| crash.oom_count),
        last_crash_time_ms: time(last.map(|crash| crash.at)),
        last_crash_reason: last.map(|crash| crash.reason.to_string()).unwrap_or_default(),
        notice: replica.notice.as_ref().map(|notice| notice.kind.as_str().to_owned()).unwrap_or_default(),
        gone_at_ms: time(replica.notice.as_ref().and_then(|notice| notice.gone_at)),
    }
}

/// An operation; `end` for one that is over.
pub fn operation(operation: &Operation, end: Option<OperationEnd>, state: &State) -> v1::Operation {
    let failing = match end {
        Some(OperationEnd::Failed(why)) => Some(why),
        _ => operation.failing,
    };
    v1::Operation {
        id: operation.id.to_string(),
        cluster: name_of(operation.cluster, state),
        cluster_id: operation.cluster.to_string(),
        kind: operation.kind.as_str().to_owned(),
        phase: operation.phase().as_str().to_owned(),
        units: operation
            .units
            .iter()
            .map(|unit| v1::OperationUnit {
                planned: Some(planned(&unit.planned)),
                progress: unit.progress.as_str().to_owned(),
                action: unit.action.map(|action| action.to_string()).unwrap_or_default(),
                launched: unit.launched.as_deref().unwrap_or_default().to_owned(),
                cordoned: unit.cordoned,
                drained: unit.drained.map(|drained| v1::DrainView { moved: drained.moved, left: drained.left }),
            })
            .collect(),
        begin_time_ms: millis(operation.begun_at),
        progress_time_ms: millis(operation.progress_at),
        decision: operation.decision.to_string(),
        failing: failing.map(|why| coded(why.code(), why.text())),
        end: end.map(|end| end.code().to_owned()).unwrap_or_default(),
    }
}

pub fn action(action: &Action, state: &State) -> v1::Action {
    let (expires_at, not_before) = match action.status {
        ActionStatus::AwaitingApproval { expires_at } => (Some(expires_at), None),
        ActionStatus::Pending { not_before } => (None, not_before),
        _ => (None, None),
    };
    let attempts: Vec<v1::Attempt> = action.attempts.iter().map(attempt).collect();
    v1::Action {
        id: action.id.to_string(),
        number: action.number,
        // One that is gone has no other name any more than the one it had then.
        cluster: state.cluster_by_id(action.cluster).map_or(&*action.cluster_name, |it| &it.name).to_owned(),
        cluster_id: action.cluster.to_string(),
        operation: action.operation.map(|operation| operation.to_string()).unwrap_or_default(),
        strategy: action.by.strategy().map(|id| id.to_string()).unwrap_or_default(),
        r#type: action.by.code().to_owned(),
        reason: Some(reason(&action.reason)),
        decision: action.decision.to_string(),
        call: action.call.code().to_owned(),
        replica: action.call.replica().to_string(),
        size: action.call.size().to_string(),
        status: Some(listed(action.status.code(), ActionStatus::CODES)),
        attempt: action.attempt,
        create_time_ms: millis(action.created_at),
        settle_time_ms: time(action.settled_at),
        error: action.error.clone().unwrap_or_default(),
        key: action.key(),
        expire_time_ms: time(expires_at),
        not_before_ms: time(not_before),
        backend: state.backend_for(action).unwrap_or_default().to_owned(),
        by: by(&attempts),
        attempts,
        hurried: action.hurried,
    }
}

fn attempt(attempt: &Attempt) -> v1::Attempt {
    let ended = attempt.ended;
    v1::Attempt {
        number: attempt.number,
        node: nameless(attempt.node.0),
        node_id: attempt.node.0,
        epoch: attempt.epoch.to_string(),
        claim_time_ms: millis(attempt.claimed_at),
        result: ended.map(|end| end.result.code().to_owned()).unwrap_or_default(),
        end_node: ended.map(|end| nameless(end.node.0)).unwrap_or_default(),
        end_node_id: ended.map(|end| end.node.0).unwrap_or_default(),
        end_time_ms: time(ended.map(|end| end.at)),
    }
}

/// A node that is not a member any more.
fn nameless(node: u64) -> String {
    format!("node {node}")
}

/// Who has worked on it: "n1, resumed by n2". An operator who had the last word is in the history of requests.
fn by(attempts: &[v1::Attempt]) -> String {
    let mut nodes: Vec<&str> = Vec::new();
    for attempt in attempts {
        nodes.push(&attempt.node);
        if !matches!(attempt.result.as_str(), "" | "RESOLVED" | "ABANDONED") {
            nodes.push(&attempt.end_node);
        }
    }
    nodes.dedup();
    nodes.join(", resumed by ")
}

/// Says the names of nodes where so far there are numbers. The log knows nodes by number; only who asks a node knows its name.
pub fn name_nodes(action: &mut v1::Action, names: &BTreeMap<u64, String>) {
    let name = |node: u64| names.get(&node).cloned().unwrap_or_else(|| nameless(node));
    for attempt in &mut action.attempts {
        attempt.node = name(attempt.node_id);
        if !attempt.result.is_empty() {
            attempt.end_node = name(attempt.end_node_id);
        }
    }
    action.by = by(&action.attempts);
}

/// One line of an explanation.
pub fn fact(fact: &Fact) -> v1::ExplainedFact {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    v1::ExplainedFact {
        topic: fact.topic.to_owned(),
        name: fact.name.clone(),
        text: fact.text.clone(),
        log_index: fact.index.unwrap_or_default(),
        time_ms: time(fact.at),
        actor: text(&fact.actor),
        source: text(&fact.source),
        proof: text(&fact.proof),
        request_id: text(&fact.request_id),
        node_id: fact.node_id.unwrap_or_default(),
        epoch: text(&fact.epoch),
        resource: text(&fact.resource),
    }
}

pub fn pause(pause: &Pause) -> v1::Pause {
    v1::Pause { reason: pause.reason.clone(), since_ms: millis(pause.since), expire_time_ms: time(pause.expires_at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(number: u32, node: u64, end: Option<(u64, &str)>) -> v1::Attempt {
        v1::Attempt {
            number,
            node: nameless(node),
            node_id: node,
            result: end.map(|(_, result)| result.to_owned()).unwrap_or_default(),
            end_node: end.map(|(node, _)| nameless(node)).unwrap_or_default(),
            end_node_id: end.map(|(node, _)| node).unwrap_or_default(),
            ..v1::Attempt::default()
        }
    }

    #[test]
    fn who_worked_on_an_action_is_said_in_one_line_by_name_where_there_is_one() {
        let names = BTreeMap::from([(1, "n1".to_owned()), (2, "n2".to_owned())]);
        for (attempts, numbers, expected) in [
            (vec![], "", ""),
            (vec![attempt(1, 1, None)], "node 1", "n1"),
            (vec![attempt(1, 1, Some((1, "FAILED"))), attempt(2, 1, Some((1, "SUCCEEDED")))], "node 1", "n1"),
            (vec![attempt(1, 1, Some((2, "SUCCEEDED")))], "node 1, resumed by node 2", "n1, resumed by n2"),
            (vec![attempt(1, 7, None), attempt(2, 1, None)], "node 7, resumed by node 1", "node 7, resumed by n1"),
            (vec![attempt(1, 1, Some((2, "RESOLVED")))], "node 1", "n1"),
        ] {
            assert_eq!(by(&attempts), numbers);
            let mut action = v1::Action { attempts, ..v1::Action::default() };
            name_nodes(&mut action, &names);
            assert_eq!(action.by, expected);
            assert!(action.attempts.iter().all(|it| it.end_node.is_empty() == it.result.is_empty()));
        }
    }
}
