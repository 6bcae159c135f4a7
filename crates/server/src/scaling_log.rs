//! What scaling decides, what fails, and when it is switched on or off, as log lines for machines.
//!
//! Every node applies everything, and each of these lines is said once: by the node that leads, for the indexes of its own
//! leadership. What a leader had no time to say before it died is in the journal (`loadline get decisions --history`).

use std::future::Future;
use std::pin::Pin;

use loadline_executor::{Duty, Tenure};
use loadline_raft_node::{FeedError, Node};
use loadline_state_machine::{
    Action, ActionStatus, Call, Conclusion, Decision, Event, LogIndex, ReplicaSpec, SettingValue, State,
};
use serde_json::{Map, Value, json};
use tracing::{debug, error, info, warn};

/// Switching one of these off ends scaling as a whole.
const SWITCHES: [&str; 2] = ["auto_scaling_enabled", "enable_auto_scaling"];

/// Says it while this node leads.
#[derive(Debug)]
pub(crate) struct TellScaling {
    pub(crate) node: Node,
}

impl Duty for TellScaling {
    fn name(&self) -> &'static str {
        "tell-scaling"
    }

    fn perform(&self, tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let mut from = tenure.epoch().index;
            loop {
                match self.tell(from).await {
                    // A snapshot was put in place: what led to it did not happen here.
                    FeedError::Compacted { .. } => from = LogIndex(self.node.latest().applied().0 + 1),
                    FeedError::Journal(_) | FeedError::ShuttingDown => return,
                }
            }
        })
    }
}

impl TellScaling {
    async fn tell(&self, from: LogIndex) -> FeedError {
        let mut feed = match self.node.follow(from) {
            Ok(feed) => feed,
            Err(error) => return error,
        };
        loop {
            match feed.next().await {
                Ok(happened) => {
                    // Of most entries nothing is said, and a look at the state after each of them would be dear.
                    if happened.events.iter().any(is_told) {
                        let state = self.node.latest();
                        happened.events.iter().for_each(|event| say(event, &state));
                    }
                }
                Err(error) => return error,
            }
        }
    }
}

/// Whether [`say`] has anything to say of it.
fn is_told(event: &Event) -> bool {
    matches!(
        event,
        Event::DecisionMade { .. }
            | Event::ReplicaAsked { .. }
            | Event::ActionReturned { .. }
            | Event::ActionSettled { .. }
            | Event::SettingSet { .. }
            | Event::SettingReset { .. }
    )
}

fn say(event: &Event, state: &State) {
    match event {
        Event::DecisionMade { decision } => decided(decision, state),
        Event::ReplicaAsked { cluster, asked } => {
            let (name, reason) = (cluster_name(state, *cluster), asked.reason.to_string());
            let creates = asked.step.creates().map(|replica| call("create_replica", replica));
            let drops = asked.step.drops().map(|replica| call("drop_replica", replica));
            let actions = Value::Array(creates.into_iter().chain(drops).collect()).to_string();
            info!(event = "auto_scaling_asked", cluster_id = %cluster, cluster = name, actions, reason);
        }
        Event::ActionReturned { action } => failed(action, state),
        Event::ActionSettled { action, .. } => match action.status {
            ActionStatus::Failed | ActionStatus::DeadLettered => failed(action, state),
            _ => {}
        },
        Event::SettingSet { name, value: SettingValue::Bool(on), .. } if SWITCHES.contains(&name.as_str()) => {
            switched(*on, &format!("system variable {name} set to {on}"));
        }
        Event::SettingReset { name, .. } if SWITCHES.contains(&name.as_str()) => {
            let default = state.setting(name).map(|setting| setting.default_value).unwrap_or_default();
            switched(default == "true", &format!("system variable {name} reset to its default, {default}"));
        }
        _ => {}
    }
}

fn switched(on: bool, reason: &str) {
    match on {
        true => info!(event = "auto_scaling_enabled", reason),
        false => warn!(event = "auto_scaling_disabled", reason),
    }
}

/// One line for each type of strategy that wants something: what several want in one decision has several reasons.
fn decided(decision: &Decision, state: &State) {
    let old = decision.inputs.replicas.iter().map(|it| (it.name.to_string(), Value::from(&*it.size)));
    let old = Value::Object(old.collect::<Map<_, _>>()).to_string();
    let desired = decision.desired.iter().map(|it| (it.name.to_string(), Value::from(&*it.size)));
    let desired = Value::Object(desired.collect::<Map<_, _>>()).to_string();
    let (cluster_id, cluster) = (decision.cluster, cluster_name(state, decision.cluster));
    let (decision_id, conclusion) = (decision.id, decision.conclusion.code());
    let held_by = decision.brakes.iter().map(|held| held.brake.code()).collect::<Vec<_>>().join(",");

    let mut kinds: Vec<&'static str> = Vec::new();
    for planned in &decision.planned {
        if !kinds.contains(&planned.by.code()) {
            kinds.push(planned.by.code());
        }
    }
    for kind in kinds {
        let wanted = decision.planned.iter().filter(|planned| planned.by.code() == kind);
        let reason = wanted.clone().map(|planned| planned.reason.to_string()).next().unwrap_or_default();
        let calls = wanted.flat_map(|planned| {
            let creates = planned.step.creates().map(|replica| call("create_replica", replica));
            creates.into_iter().chain(planned.step.drops().map(|replica| call("drop_replica", replica)))
        });
        let actions = Value::Array(calls.collect()).to_string();
        info!(
            event = "auto_scaling_decision",
            %cluster_id,
            cluster,
            strategy_type = kind,
            old_replica_state = old,
            desired_replica_state = desired,
            actions,
            reason,
            %decision_id,
            conclusion,
            held_by,
        );
    }
    // That all is as wanted, or waits, is for those who look closely.
    if decision.planned.is_empty() && decision.conclusion != Conclusion::AsWanted {
        debug!(event = "auto_scaling_decision", %cluster_id, cluster, old_replica_state = old, desired_replica_state = desired, actions = "[]", %decision_id, conclusion, held_by);
    }
}

fn call(kind: &str, replica: &ReplicaSpec) -> Value {
    json!({ "type": kind, "name": &*replica.name, "size": &*replica.size })
}

fn failed(action: &Action, state: &State) {
    let (cluster_id, cluster) = (action.cluster, cluster_name(state, action.cluster));
    let strategy_type = action.by.code();
    let (action_id, attempt, status) = (action.id, action.attempt, action.status.code());
    let ddl = in_sql(&action.call, &cluster);
    let error_message = action.error.as_deref().unwrap_or_default();
    macro_rules! line {
        ($level:ident) => {
            $level!(
                event = "auto_scaling_action_failed",
                %cluster_id,
                cluster,
                strategy_type,
                ddl,
                error_message,
                %action_id,
                attempt,
                status,
            )
        };
    }
    // One that is tried again by itself is no reason to wake anybody.
    match action.status.is_settled() {
        true => line!(error),
        false => line!(warn),
    }
}

fn cluster_name(state: &State, id: loadline_state_machine::ClusterId) -> String {
    state.cluster_by_id(id).map_or_else(|| id.to_string(), |cluster| cluster.name.to_string())
}

/// The call as a statement, for readers who know their database by its SQL.
fn in_sql(call: &Call, cluster: &str) -> String {
    let quoted = |name: &str| {
        let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
    };
    let replica = format!("{}.{}", quoted(cluster), quoted(call.replica()));
    match call {
        Call::CreateReplica(spec) => {
            format!("CREATE CLUSTER REPLICA {replica} SIZE '{}'", spec.size.replace('\'', "''"))
        }
        Call::DropReplica(_) => format!("DROP CLUSTER REPLICA {replica}"),
        // No SQL has a word for it.
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::{
        Actor, ClusterRef, ClusterReport, Command, Entry, Observation, Options, Report, Request, Sealed, Seen, Span,
        StrategyKind, TargetName, Time, apply,
    };

    use super::*;
    use crate::json_lines::tests::logged;

    /// The state after these commands, each an entry of its own, and everything that happened on the way.
    fn after(commands: Vec<Command>) -> (State, Vec<Event>) {
        let (mut state, mut events) = (State::new(), Vec::new());
        for (index, command) in (1..).zip(commands) {
            let request =
                Request { actor: Actor::new("test", "test"), request_id: None, commands: vec![command.clone()] };
            let entry = Entry { stamped_at: Time::from_millis(1_000), requests: vec![request] };
            let applied = apply(&mut state, LogIndex(index), &Sealed::seal(entry));
            assert!(applied.receipts.iter().all(|receipt| receipt.result.is_ok()), "{command:?}: {applied:?}");
            events.extend(applied.events);
        }
        (state, events)
    }

    fn demo() -> (State, Vec<Event>) {
        let set = |name: &str, value: &str| Command::SetSetting { name: name.into(), value: value.into(), etag: None };
        let size =
            |name: &str, slots| Command::CreateSize { name: name.into(), rank: None, slots, price_micros_per_hour: 1 };
        let seen = Seen::Replica { name: "r1".into(), size: "100cc".into(), incarnation: None, ready: true };
        after(vec![
            set("enable_auto_scaling", "true"),
            size("100cc", 1),
            size("200cc", 2),
            Command::CreateCluster { name: "demo".into() },
            Command::CreateStrategy {
                target: TargetName::Cluster("demo".into()),
                kind: StrategyKind::TargetSize,
                options: Options::from([("size", "200cc")]),
                if_not_exists: false,
                unchecked: false,
            },
            Command::ReportSignals {
                collector: "c".into(),
                sequence: 1,
                clusters: vec![ClusterReport {
                    cluster: ClusterRef::Name("demo".into()),
                    observations: vec![Observation { age: Span::from_millis(0), seen }],
                }],
            },
            set("auto_scaling_enabled", "false"),
            Command::ResetSetting { name: "auto_scaling_enabled".into(), etag: None },
        ])
    }

    #[test]
    fn decisions_and_switches_are_told_in_the_agreed_words() {
        let (state, events) = demo();
        let cluster_id = state.cluster("demo").unwrap().id.to_string();
        let lines = logged(|| events.iter().for_each(|event| say(event, &state)));
        let passed_over = logged(|| events.iter().filter(|event| !is_told(event)).for_each(|event| say(event, &state)));
        assert_eq!(passed_over, Vec::<Value>::new());
        let told: Vec<&Value> = lines.iter().filter(|line| line["level"] != "DEBUG").collect();
        assert_eq!(
            *told[0],
            json!({ "level": "INFO", "event": "auto_scaling_enabled", "reason": "system variable enable_auto_scaling set to true" })
        );
        let decision = lines
            .iter()
            .find(|line| line["event"] == "auto_scaling_decision" && line["old_replica_state"]["r1"] == "100cc")
            .unwrap();
        let expected = [
            ("cluster_id", json!(cluster_id)),
            ("cluster", json!("demo")),
            ("strategy_type", json!("target_size")),
            ("old_replica_state", json!({ "r1": "100cc" })),
            ("desired_replica_state", json!({ "r1": "100cc", "r1_auto": "200cc" })),
            ("actions", json!([{ "type": "create_replica", "name": "r1_auto", "size": "200cc" }])),
            ("reason", json!("target size 200cc not present")),
        ];
        for (field, value) in expected {
            assert_eq!(decision[field], value, "{field} of {decision}");
        }
        let switches = told.iter().skip(1).filter(|line| line["event"] != "auto_scaling_decision");
        let switches: Vec<Value> = switches.map(|line| json!([line["level"], line["event"], line["reason"]])).collect();
        assert_eq!(
            Value::Array(switches),
            json!([
                ["WARN", "auto_scaling_disabled", "system variable auto_scaling_enabled set to false"],
                ["INFO", "auto_scaling_enabled", "system variable auto_scaling_enabled reset to its default, true"],
            ])
        );
    }

    #[test]
    fn a_failure_names_the_statement_and_what_the_backend_said() {
        let (state, _) = demo();
        let planned = state.actions().next().unwrap().clone();
        let error = Some("size not available in region".to_owned());
        let retried = Action { status: ActionStatus::Pending { not_before: None }, error, attempt: 1, ..planned };
        let dead = Action { status: ActionStatus::DeadLettered, attempt: 3, ..retried.clone() };
        let done = Action { status: ActionStatus::Succeeded, ..dead.clone() };
        let lines = logged(|| {
            say(&Event::ActionReturned { action: Box::new(retried.clone()) }, &state);
            say(&Event::ActionSettled { action: Box::new(dead), report: Report::Nothing }, &state);
            say(&Event::ActionSettled { action: Box::new(done), report: Report::Nothing }, &state);
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        let expected = json!({
            "level": "WARN",
            "event": "auto_scaling_action_failed",
            "cluster_id": retried.cluster.to_string(),
            "cluster": "demo",
            "strategy_type": "target_size",
            "ddl": "CREATE CLUSTER REPLICA demo.r1_auto SIZE '200cc'",
            "error_message": "size not available in region",
            "action_id": retried.id.to_string(),
            "attempt": 1,
            "status": "PENDING",
        });
        assert_eq!(lines[0], expected);
        assert_eq!((&lines[1]["level"], &lines[1]["status"]), (&json!("ERROR"), &json!("DEAD_LETTERED")));
    }

    #[test]
    fn names_that_sql_would_not_take_as_they_are_stand_in_quotes() {
        let spec = |name: &str| ReplicaSpec { name: name.into(), size: "o'cc".into() };
        let create = Call::CreateReplica(spec("25cc_auto"));
        assert_eq!(in_sql(&create, "a\"b"), "CREATE CLUSTER REPLICA \"a\"\"b\".\"25cc_auto\" SIZE 'o''cc'");
    }
}
