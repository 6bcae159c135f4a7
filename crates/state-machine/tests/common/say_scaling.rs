//! The part of the language of conversations that is about scaling.
//!
//! ```text
//! create strategy target_size for demo size=25cc     also: for all, for like prod_%; "unchecked" takes it as it is
//! change strategy target_size for demo size=50cc reset=cooldown_s
//! report demo: replica r1 25cc ready, idle 20s | other: alive    also: from=NAME seq=N, and age=3s in any part
//! claim next; outcome it succeeded life=i-1           also by id, with epoch=... attempt=... backend=... parameters=...
//! retry letter "room now"; resolve it succeeded "seen it"; abandon it "never mind"; place cluster demo on other
//! forget s5.0 about demo; remember s5.0 about demo failed 25cc; also: suspended r1 25cc; delete actions of demo 1 2
//! create replica mine 25cc on demo; drop replica mine on demo if exists
//! wake demo webhook; override demo "a big day" min=3 for=2h size=25cc; clear override demo; suggest NAME to VALUE
//! expect strategy s5.0 for demo etag=5.0; expect unchanged since 6 for demo; expect unchanged since 6 and strategy s5.0 for all
//! approve waiting; reject waiting "too dear"; pause demo "maintenance" for=10m; resume demo
//! ```

use std::collections::BTreeMap;
use std::str::FromStr;

use loadline_state_machine::{
    ActionId, ActionStatus, ClusterId, ClusterRef, ClusterReport, Command, DrainResult, Epoch, FailedSize, Hash,
    LogIndex, Memory, NoticeKind, Observation, OptionValue, Options, Outcome, ReplicaSpec, Report,
    STRATEGY_STATE_VERSION, Seen, Span, State, StrategyKind, StrategyState, TargetName, WakeReason, option_definition,
};

pub fn command(state: &State, text: &str, plain: &[&str], named: &BTreeMap<&str, &str>) -> Command {
    let etag = named.get("etag").map(|etag| read(etag));
    match plain {
        ["create", "strategy", kind, "for", rest @ ..] => {
            let (target, rest) = target(rest);
            let kind: StrategyKind = read(kind);
            let options = options(kind, named);
            let (if_not_exists, unchecked) = (rest.contains(&"exists"), rest.contains(&"unchecked"));
            Command::CreateStrategy { target, kind, options, if_not_exists, unchecked }
        }
        ["change", "strategy", kind, "for", rest @ ..] => {
            let (target, rest) = target(rest);
            let kind: StrategyKind = read(kind);
            let reset = named.get("reset").map(|keys| keys.split(',').map(str::to_owned).collect()).unwrap_or_default();
            let options = options(kind, named);
            Command::ChangeStrategy { target, kind, options, reset, etag, unchecked: rest.contains(&"unchecked") }
        }
        ["drop", "strategy", kind, "for", rest @ ..] => {
            let (target, rest) = target(rest);
            Command::DropStrategy { target, kind: read(kind), etag, allow_missing: rest == ["if", "exists"] }
        }
        ["drop", "strategies", "for", rest @ ..] => Command::DropStrategies { target: target(rest).0 },
        ["cascade", "cluster", name] => {
            Command::DropClusterCascade { name: (*name).to_owned(), etag, allow_missing: false }
        }
        ["report", ..] => report(state, text),
        ["pause", cluster, reason @ ..] => Command::PauseCluster {
            cluster: (*cluster).to_owned(),
            reason: reason.join(" "),
            expires_in: named.get("for").map(|span| read(span)),
        },
        ["wake", cluster, rest @ ..] => Command::WakeCluster {
            cluster: (*cluster).to_owned(),
            reason: rest.first().map_or(WakeReason::Manual, |text| WakeReason::asked(text).expect("a reason")),
        },
        ["override", cluster, reason @ ..] => Command::OverrideCluster {
            cluster: (*cluster).to_owned(),
            replicas_min: read(named["min"]),
            size: named.get("size").map(|size| (*size).to_owned()),
            reason: reason.join(" "),
            expires_in: read(named["for"]),
        },
        ["clear", "override", cluster] => Command::ClearOverride { cluster: (*cluster).to_owned() },
        ["describe", backend, what @ ..] => Command::DescribeBackend {
            epoch: epoch(state, named),
            backend: (*backend).to_owned(),
            checkpoints: what == ["keeps", "checkpoints"],
        },
        ["suggest", name, "to", value] => {
            Command::SuggestSetting { name: (*name).to_owned(), value: (*value).to_owned() }
        }
        ["resume", cluster] => Command::ResumeCluster { cluster: (*cluster).to_owned() },
        ["claim", action] => {
            let action = find_action(state, action);
            let next = state.action(action).map_or(1, |action| action.attempt + 1);
            let lives = state.action(action).and_then(|action| state.backend_for(action));
            let backend = named.get("backend").copied().or(lives).unwrap_or("sim").to_owned();
            let right = state.action(action).map(|action| action.parameters(&backend)).unwrap_or_default();
            let parameters = named.get("parameters").map_or(right, |other| Hash::of(other.as_bytes()));
            let (epoch, attempt) = (epoch(state, named), attempt(named, next));
            Command::ClaimAction { action, epoch, attempt, backend, parameters }
        }
        ["outcome", action, rest @ ..] => {
            let action = find_action(state, action);
            let current = state.action(action).map_or(1, |action| action.attempt);
            let outcome = outcome(rest, named);
            Command::RecordOutcome { action, epoch: epoch(state, named), attempt: attempt(named, current), outcome }
        }
        ["approve", action] => Command::ApproveAction { action: find_action(state, action) },
        ["reject", action, reason @ ..] => {
            Command::RejectAction { action: find_action(state, action), reason: reason.join(" ") }
        }
        ["retry", action, reason @ ..] => {
            Command::RetryAction { action: find_action(state, action), reason: reason.join(" ") }
        }
        ["resolve", action, how, reason @ ..] => {
            let action = find_action(state, action);
            Command::ResolveAction { action, succeeded: *how == "succeeded", reason: reason.join(" ") }
        }
        ["abandon", action, reason @ ..] => {
            Command::AbandonAction { action: find_action(state, action), reason: reason.join(" ") }
        }
        ["create", "replica", name, size, "on", cluster, rest @ ..] => Command::CreateReplica {
            cluster: (*cluster).to_owned(),
            replica: (*name).to_owned(),
            size: (*size).to_owned(),
            if_not_exists: rest.contains(&"exists"),
        },
        ["drop", "replica", name, "on", cluster, rest @ ..] => Command::DropReplica {
            cluster: (*cluster).to_owned(),
            replica: (*name).to_owned(),
            allow_missing: rest == ["if", "exists"],
        },
        ["expect", "strategy", id, "for", rest @ ..] => {
            Command::ExpectStrategy { strategy: read(id), target: target(rest).0, etag: etag.expect("an etag") }
        }
        ["expect", "unchanged", "since", since, "for", rest @ ..] => {
            let (since, targets, strategies) = (LogIndex(read(since)), vec![target(rest).0], Vec::new());
            Command::ExpectUnchanged { since, targets, strategies }
        }
        ["expect", "unchanged", "since", since, "and", "strategy", id, "for", rest @ ..] => {
            let (since, targets, strategies) = (LogIndex(read(since)), vec![target(rest).0], vec![read(id)]);
            Command::ExpectUnchanged { since, targets, strategies }
        }
        ["forget", strategy, "about", cluster, how @ ..] => {
            let known = remembered(state, strategy, cluster).filter(|_| how != ["blindly"]);
            let cluster = cluster_id(state, cluster);
            Command::SetStrategyState { strategy: read(strategy), cluster, expected: known, state: None }
        }
        ["remember", strategy, "about", cluster, "failed", size] => {
            let at = state.now();
            let memory = Memory::FailedSizes(vec![FailedSize { size: (*size).into(), at }]);
            remember(state, strategy, cluster, memory, named)
        }
        ["remember", strategy, "about", cluster, "suspended", name, size] => {
            let replica = ReplicaSpec { name: (*name).into(), size: (*size).into() };
            remember(state, strategy, cluster, Memory::Suspended(vec![replica]), named)
        }
        ["delete", "actions", "of", cluster, numbers @ ..] => {
            let numbers = numbers.iter().map(|number| read(number)).collect();
            Command::DeleteActions { cluster: cluster_id(state, cluster), numbers }
        }
        ["place", "cluster", name, "by", "default"] => {
            Command::PlaceCluster { name: (*name).to_owned(), backend: None, etag }
        }
        ["place", "cluster", name, "on", backend] => {
            Command::PlaceCluster { name: (*name).to_owned(), backend: Some((*backend).to_owned()), etag }
        }
        _ => panic!("{text:?} is not understood"),
    }
}

fn cluster_id(state: &State, name: &str) -> ClusterId {
    state.cluster(name).map_or_else(|| read(name), |cluster| cluster.id)
}

fn remembered(state: &State, strategy: &str, cluster: &str) -> Option<StrategyState> {
    let kind = state.strategy(read(strategy))?.kind;
    state.standing(cluster_id(state, cluster))?.strategy_state(kind).cloned()
}

fn remember(state: &State, strategy: &str, cluster: &str, memory: Memory, named: &BTreeMap<&str, &str>) -> Command {
    let ahead = named.get("changed_in").map(|span| state.now() + read::<Span>(span));
    let wanted =
        StrategyState { version: STRATEGY_STATE_VERSION, strategy: read(strategy), last_change_at: ahead, memory };
    let expected = remembered(state, strategy, cluster);
    Command::SetStrategyState {
        strategy: read(strategy),
        cluster: cluster_id(state, cluster),
        expected,
        state: Some(wanted),
    }
}

fn target<'a, 'b>(words: &'a [&'b str]) -> (TargetName, &'a [&'b str]) {
    match words {
        ["all", rest @ ..] => (TargetName::All, rest),
        ["like", pattern, rest @ ..] => (TargetName::Pattern((*pattern).to_owned()), rest),
        [name, rest @ ..] => (TargetName::Cluster((*name).to_owned()), rest),
        [] => panic!("a strategy is for somebody"),
    }
}

/// Values as SQL would write them where the option is known, else as they look.
fn options(kind: StrategyKind, named: &BTreeMap<&str, &str>) -> Options {
    let known = named.iter().filter(|(key, _)| !["etag", "reset"].contains(key));
    known
        .map(|(key, text)| {
            let parsed = option_definition(kind, key).and_then(|definition| definition.parse(text));
            let guessed = || match (text.parse::<i64>(), text.parse::<bool>()) {
                (Ok(number), _) => OptionValue::Number(number),
                (_, Ok(value)) => OptionValue::Bool(value),
                _ => OptionValue::Text((*text).to_owned()),
            };
            let key = option_definition(kind, key).map_or(*key, |definition| definition.key);
            (key, parsed.unwrap_or_else(guessed))
        })
        .collect()
}

fn report(state: &State, text: &str) -> Command {
    let text = text.strip_prefix("report ").expect("a report");
    let (named, plain): (Vec<&str>, Vec<&str>) =
        text.split(' ').partition(|word| word.starts_with("from=") || word.starts_with("seq="));
    let named: BTreeMap<&str, &str> = named.into_iter().filter_map(|word| word.split_once('=')).collect();
    let collector = named.get("from").copied().unwrap_or("watcher").to_owned();
    let next = state.collector(&collector).map_or(1, |known| known.sequence + 1);
    let sequence = named.get("seq").map_or(next, |sequence| read(sequence));
    let plain = plain.join(" ");
    let clusters = plain.split(" | ").filter(|part| *part != "nothing").map(|part| {
        let (cluster, seen) = part.split_once(": ").unwrap_or_else(|| panic!("{part:?}: about which cluster?"));
        let cluster = match cluster.parse() {
            Ok(id) => ClusterRef::Id(id),
            Err(_) => ClusterRef::Name(cluster.to_owned()),
        };
        ClusterReport { cluster, observations: seen.split(", ").map(observation).collect() }
    });
    Command::ReportSignals { collector, sequence, clusters: clusters.collect() }
}

fn observation(text: &str) -> Observation {
    let (named, plain): (Vec<&str>, Vec<&str>) = text.split_whitespace().partition(|word| word.contains('='));
    let named: BTreeMap<&str, &str> = named.into_iter().filter_map(|word| word.split_once('=')).collect();
    let life = named.get("life").map(|life| (*life).to_owned());
    let owned = |name: &str| name.to_owned();
    let seen = match plain.as_slice() {
        ["alive"] => Seen::Alive,
        ["idle", "ever"] => Seen::Activity { idle_for: None },
        ["idle", span] => Seen::Activity { idle_for: Some(read(span)) },
        ["replica", name, size, ready] => {
            Seen::Replica { name: owned(name), size: owned(size), incarnation: life, ready: *ready == "ready" }
        }
        ["gone", name] => Seen::ReplicaGone { name: owned(name), incarnation: life },
        ["hydration", name, of] => {
            let (hydrated, total) = of.split_once('/').expect("as in 1/3");
            Seen::Hydration { replica: owned(name), total: read(total), hydrated: read(hydrated) }
        }
        ["crash", name, rest @ ..] => Seen::Crash {
            replica: owned(name),
            oom: rest.first() == Some(&"oom"),
            reason: rest.join(" "),
            count: named.get("count").map_or(1, |count| read(count)),
        },
        ["metric", name, value] => Seen::Metric { name: owned(name), value_milli: read(value) },
        ["notice", name, kind] => Seen::Notice {
            replica: owned(name),
            kind: if *kind == "spot" { NoticeKind::Spot } else { NoticeKind::Preemption },
            gone_in: named.get("in").map(|span| read(span)),
        },
        _ => panic!("{text:?} cannot be seen"),
    };
    Observation { age: named.get("age").map_or(Span::default(), |age| read(age)), seen }
}

fn outcome(words: &[&str], named: &BTreeMap<&str, &str>) -> Outcome {
    match words {
        ["succeeded"] => {
            let number = |name| named.get(name).map(|number| read::<u64>(number));
            let report = match (named.get("life"), number("moved")) {
                (Some(life), _) => Report::Created { incarnation: Some((*life).to_owned()) },
                (None, Some(moved)) => Report::Drained(DrainResult { moved, left: number("left").unwrap_or(0) }),
                (None, None) => Report::Nothing,
            };
            Outcome::Succeeded { report }
        }
        ["failed", "retryable", reason @ ..] => Outcome::Failed { retryable: true, reason: reason.join(" ") },
        ["failed", reason @ ..] => Outcome::Failed { retryable: false, reason: reason.join(" ") },
        ["unknown", reason @ ..] => Outcome::Unknown { reason: reason.join(" ") },
        _ => panic!("{words:?} is no outcome"),
    }
}

/// "next" can be claimed, "it" was, "waiting" waits for an approval, "letter" was given up.
pub fn find_action(state: &State, word: &str) -> ActionId {
    let found = match word {
        "next" => state.claimable_actions().next(),
        "it" => state.actions().find(|action| action.status.is_in_flight()),
        "waiting" => state.actions().find(|action| matches!(action.status, ActionStatus::AwaitingApproval { .. })),
        "letter" => state.dead_letters().next(),
        "pending" => state.actions().find(|action| matches!(action.status, ActionStatus::Pending { .. })),
        id => return read(id),
    };
    // What is not there is asked for all the same: the refusal is the answer.
    found.map_or(ActionId { index: LogIndex(0), ordinal: 0 }, |action| action.id)
}

fn epoch(state: &State, named: &BTreeMap<&str, &str>) -> Epoch {
    let current = state.epoch().expect("a leader was announced");
    named.get("epoch").map_or(current, |index| Epoch { index: LogIndex(read(index)), ..current })
}

fn attempt(named: &BTreeMap<&str, &str>, default: u32) -> u32 {
    named.get("attempt").map_or(default, |attempt| read(attempt))
}

fn read<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not understood"))
}
