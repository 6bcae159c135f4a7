//! Why a decision came out as it did, in one line.

use loadline_state_machine::{
    ClusterId, Conclusion, Decision, Operation, Origin, Planned, Replica, ReplicaSpec, Shadow, Stage, State,
};

/// Of the first step that is planned; else of the strategy that decided. What held it comes first where something did.
pub(crate) fn why(decision: &Decision) -> String {
    let planned = decision.planned.first().map(why_planned);
    let said = || deciding(&decision.stages).map(|stage| format!("{}: {}", stage.kind, stage.reason));
    let wanted = planned.or_else(said);
    // Where a dry run would come to something else, it says more than what is done does.
    let tried = dry_run(decision).and_then(|shadow| deciding(&shadow.stages));
    let wanted = match tried.map(|stage| format!("{}: {}", stage.kind, stage.reason)) {
        Some(tried) => Some(wanted.map_or_else(String::new, |wanted| wanted + "; ") + "in dry run " + &tried),
        None => wanted,
    };
    let held: Vec<&str> = match decision.conclusion {
        Conclusion::Held | Conclusion::Suppressed => decision.brakes.iter().map(|held| held.brake.text()).collect(),
        _ => Vec::new(),
    };
    match (held.is_empty(), wanted) {
        (false, Some(wanted)) => format!("{} ({wanted})", held.join(", ")),
        (false, None) => held.join(", "),
        (true, Some(wanted)) => wanted,
        (true, None) if matches!(decision.conclusion, Conclusion::AsWanted) => "no strategy wants anything".to_owned(),
        (true, None) => decision.conclusion.code().to_owned(),
    }
}

/// What strategies in dry run would make of it, where that is something else.
pub(crate) fn dry_run(decision: &Decision) -> Option<&Shadow> {
    decision.shadow.as_deref().filter(|shadow| shadow.desired != decision.desired)
}

/// Why an operation began. One that somebody asked for has nothing to do with what the strategies said when it did.
pub(crate) fn why_begun(operation: &Operation) -> Option<String> {
    operation.units.first().map(|unit| &unit.planned).filter(|planned| planned.by == Origin::User).map(why_planned)
}

fn why_planned(planned: &Planned) -> String {
    format!("{}: {}", planned.by.code(), planned.reason)
}

/// What becomes of a cluster that is dropped, with these replicas.
pub fn dropped(left: &[ReplicaSpec]) -> String {
    if left.is_empty() {
        return "the cluster is dropped".to_owned();
    }
    let left: Vec<String> = left.iter().map(|spec| format!("{} of size {}", spec.name, spec.size)).collect();
    format!("the cluster is dropped, and nobody drops the replicas it leaves behind: {}", left.join(", "))
}

/// What is there of a cluster.
pub(crate) fn replicas_of(state: &State, cluster: ClusterId) -> Vec<ReplicaSpec> {
    let replicas = state.standing(cluster).map_or(&[][..], |standing| &standing.signals().replicas);
    let spec = |replica: &Replica| ReplicaSpec { name: replica.name.clone(), size: replica.size.clone() };
    replicas.iter().map(spec).collect()
}

/// The strategy that waits to change something; else the last that changed something; else the one with the last word. One that comes later in the
/// chain and leaves everything as it is has decided nothing.
fn deciding(stages: &[Stage]) -> Option<&Stage> {
    let waits = stages.iter().rev().find(|stage| !stage.held_back.is_empty());
    waits.or_else(|| stages.iter().rev().find(|stage| !stage.changes.is_empty())).or(stages.last())
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::{
        Actor, Command, Entry, LogIndex, NodeNumber, OptionValue, Request, Sealed, Span, State, StrategyKind,
        TargetName, Time, apply,
    };

    use super::*;

    fn state(commands: Vec<Command>) -> State {
        let mut state = State::new();
        for (index, command) in (1..).zip(commands) {
            let actor = Actor::node("loadline", "n1");
            let requests = vec![Request { actor, request_id: None, commands: vec![command] }];
            let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(1_794_830_400_000), requests });
            let applied = apply(&mut state, LogIndex(index), &sealed);
            assert!(applied.receipts[0].result.is_ok(), "{applied:?}");
        }
        state
    }

    fn set(name: &str, value: &str) -> Command {
        Command::SetSetting { name: name.into(), value: value.into(), etag: None }
    }

    #[test]
    fn what_held_it_comes_first_and_a_strategy_that_changed_nothing_is_not_named() {
        let strategy = |kind, options: &[(&str, OptionValue)]| Command::CreateStrategy {
            target: TargetName::Cluster("demo".into()),
            kind,
            options: options.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
            if_not_exists: false,
            unchecked: false,
        };
        let price_micros_per_hour = 1;
        let mut commands = vec![
            Command::FoundGroup { nodes: 1 },
            Command::AnnounceLeader { node: NodeNumber(1), term: 1 },
            Command::CreateSize { name: "25cc".into(), rank: None, slots: 1, price_micros_per_hour },
            set("enable_auto_scaling", "true"),
            set("default_backend", "local"),
            Command::CreateCluster { name: "demo".into() },
            Command::PauseCluster { cluster: "demo".into(), reason: "x".into(), expires_in: Some(Span::from_hours(1)) },
            strategy(StrategyKind::TargetSize, &[("size", OptionValue::Text("25cc".into()))]),
        ];
        commands.push(strategy(StrategyKind::IdleSuspend, &[("idle_after_s", OptionValue::Number(600))]));
        let state = state(commands);
        let decision = state.would_decide(state.cluster("demo").unwrap().id).unwrap();
        assert_eq!(decision.stages.last().unwrap().kind, StrategyKind::IdleSuspend);
        let told = why(&decision);
        assert!(told.starts_with("the cluster is paused (target_size: "), "{told}");
    }
}
