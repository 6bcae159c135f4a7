//! From what a caller asks about strategies, pauses and actions to commands of the state machine.
//!
//! Options come as text. What an option is for says how its text is read; a text that cannot be read, and an option that does
//! not exist, go on as they are, so that the state machine refuses them with what would be right.

use std::collections::BTreeMap;
use std::str::FromStr;

use loadline_state_machine::{
    ActionId, Command, LogIndex, Options, Span, StrategyKind, TargetName, option_definition, read_option,
};

use crate::fields::{self, Findings, Invalid};
use crate::v1::{self, change::Change};
use crate::writes::Write;

impl Write {
    pub fn create_strategy(request: v1::CreateStrategyRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::CreateStrategy(request))
    }

    pub fn update_strategy(request: v1::UpdateStrategyRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::UpdateStrategy(request))
    }

    pub fn delete_strategy(request: v1::DeleteStrategyRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::DeleteStrategy(request))
    }

    pub fn delete_strategies(request: v1::DeleteStrategiesRequest) -> Result<Write, Invalid> {
        Write::single(request.options.clone(), Change::DeleteStrategies(request))
    }

    pub fn pause_cluster(request: v1::PauseClusterRequest) -> Result<Write, Invalid> {
        let expires_in = (request.expires_in_ms > 0).then(|| Span::from_millis(request.expires_in_ms));
        let command = Command::PauseCluster { cluster: request.cluster, reason: request.reason, expires_in };
        let renamed = &[("name", "cluster"), ("expires_in", "expires_in_ms")];
        Write::one(request.options, Some(command), "", renamed, Findings::default())
    }

    pub fn resume_cluster(request: v1::ResumeClusterRequest) -> Result<Write, Invalid> {
        let command = Command::ResumeCluster { cluster: request.cluster };
        Write::one(request.options, Some(command), "", &[("name", "cluster")], Findings::default())
    }

    pub fn override_cluster(request: v1::OverrideClusterRequest) -> Result<Write, Invalid> {
        let v1::OverrideClusterRequest { options, cluster, replicas_min, size, reason, expires_in_ms } = request;
        let command = Command::OverrideCluster {
            cluster,
            replicas_min,
            size: Some(size).filter(|size| !size.is_empty()),
            reason,
            expires_in: Span::from_millis(expires_in_ms),
        };
        let renamed = &[("name", "cluster"), ("expires_in", "expires_in_ms")];
        Write::one(options, Some(command), "", renamed, Findings::default())
    }

    pub fn clear_override(request: v1::ClearOverrideRequest) -> Result<Write, Invalid> {
        let command = Command::ClearOverride { cluster: request.cluster };
        Write::one(request.options, Some(command), "", &[("name", "cluster")], Findings::default())
    }

    pub fn create_replica(request: v1::CreateReplicaRequest) -> Result<Write, Invalid> {
        let v1::CreateReplicaRequest { options, cluster, replica, size, allow_existing } = request;
        let command = Command::CreateReplica { cluster, replica, size, if_not_exists: allow_existing };
        Write::one(options, Some(command), "", &[("name", "cluster")], Findings::default())
    }

    pub fn delete_replica(request: v1::DeleteReplicaRequest) -> Result<Write, Invalid> {
        let v1::DeleteReplicaRequest { options, cluster, replica, allow_missing } = request;
        let command = Command::DropReplica { cluster, replica, allow_missing };
        Write::one(options, Some(command), "", &[("name", "cluster")], Findings::default())
    }

    pub fn approve_action(request: v1::ApproveActionRequest) -> Result<Write, Invalid> {
        Write::about_action(request.options, &request.action, |action| Command::ApproveAction { action })
    }

    pub fn reject_action(request: v1::RejectActionRequest) -> Result<Write, Invalid> {
        Write::about_action(request.options, &request.action, |action| Command::RejectAction {
            action,
            reason: request.reason,
        })
    }

    pub fn retry_action(request: v1::RetryActionRequest) -> Result<Write, Invalid> {
        Write::about_action(request.options, &request.action, |action| Command::RetryAction {
            action,
            reason: request.reason,
        })
    }

    pub fn resolve_action(request: v1::ResolveActionRequest) -> Result<Write, Invalid> {
        let v1::ResolveActionRequest { options, action, succeeded, reason } = request;
        Write::about_action(options, &action, |action| Command::ResolveAction { action, succeeded, reason })
    }

    pub fn abandon_action(request: v1::AbandonActionRequest) -> Result<Write, Invalid> {
        Write::about_action(request.options, &request.action, |action| Command::AbandonAction {
            action,
            reason: request.reason,
        })
    }

    fn about_action(
        options: Option<v1::WriteOptions>,
        action: &str,
        command: impl FnOnce(ActionId) -> Command,
    ) -> Result<Write, Invalid> {
        let mut findings = Findings::default();
        let action = findings.take(id("action", action));
        Write::one(options, action.map(command), "", &[], findings)
    }
}

/// `step` is where the request stands in a transaction, as in `changes[2].create_strategy.`; empty for a call of its own.
pub(crate) fn create_strategy(
    request: v1::CreateStrategyRequest,
    step: &str,
    findings: &mut Findings,
) -> Option<Command> {
    let Some(strategy) = request.strategy else {
        findings.add(format!("{step}strategy"), "is required: the strategy to create");
        return None;
    };
    let target = findings.take(target(&format!("{step}strategy.target"), strategy.target));
    let kind = findings.take(kind(&format!("{step}strategy.type"), &strategy.r#type));
    let (target, kind) = target.zip(kind)?;
    let options = options(kind, &strategy.options);
    Some(Command::CreateStrategy { target, kind, options, if_not_exists: request.allow_existing, unchecked: false })
}

pub(crate) fn update_strategy(
    request: v1::UpdateStrategyRequest,
    step: &str,
    findings: &mut Findings,
) -> Option<Command> {
    let target = findings.take(target(&format!("{step}target"), request.target));
    let kind = findings.take(kind(&format!("{step}type"), &request.r#type));
    let etag = findings.take(fields::etag(&format!("{step}etag"), &request.etag));
    let ((target, kind), etag) = target.zip(kind).zip(etag)?;
    let reset = request.reset.iter().map(|name| key(kind, name)).collect();
    Some(Command::ChangeStrategy { target, kind, options: options(kind, &request.set), reset, etag, unchecked: false })
}

pub(crate) fn delete_strategy(
    request: v1::DeleteStrategyRequest,
    step: &str,
    findings: &mut Findings,
) -> Option<Command> {
    let target = findings.take(target(&format!("{step}target"), request.target));
    let kind = findings.take(kind(&format!("{step}type"), &request.r#type));
    let etag = findings.take(fields::etag(&format!("{step}etag"), &request.etag));
    let ((target, kind), etag) = target.zip(kind).zip(etag)?;
    Some(Command::DropStrategy { target, kind, etag, allow_missing: request.allow_missing })
}

pub(crate) fn delete_strategies(
    request: v1::DeleteStrategiesRequest,
    step: &str,
    findings: &mut Findings,
) -> Option<Command> {
    let target = findings.take(target(&format!("{step}target"), request.target))?;
    Some(Command::DropStrategies { target })
}

pub(crate) fn expect_unchanged(
    request: v1::ExpectUnchangedRequest,
    step: &str,
    findings: &mut Findings,
) -> Option<Command> {
    let mut targets = Vec::new();
    for (number, wanted) in request.targets.into_iter().enumerate() {
        targets.push(findings.take(target(&format!("{step}targets[{number}]"), Some(wanted))));
    }
    let mut strategies = Vec::new();
    for (number, text) in request.strategies.iter().enumerate() {
        strategies.push(findings.take(id(&format!("{step}strategies[{number}]"), text)));
    }
    let (targets, strategies) =
        (targets.into_iter().collect::<Option<_>>()?, strategies.into_iter().collect::<Option<_>>()?);
    Some(Command::ExpectUnchanged { since: LogIndex(request.since_revision), targets, strategies })
}

/// An id such as `a412.3`.
pub(crate) fn id<T: FromStr<Err: std::fmt::Display>>(field: &str, text: &str) -> Result<T, Invalid> {
    if text.is_empty() {
        return Err(Invalid::one(field, "is required"));
    }
    text.parse().map_err(|error: T::Err| Invalid::one(field, error.to_string()))
}

fn kind(field: &str, text: &str) -> Result<StrategyKind, Invalid> {
    let known = StrategyKind::PRIORITY_ORDER.map(StrategyKind::as_str).join(", ");
    text.parse().map_err(|_| Invalid::one(field, format!("{text:?} must be one of {known}")))
}

pub(crate) fn target(field: &str, target: Option<v1::StrategyTarget>) -> Result<TargetName, Invalid> {
    use v1::strategy_target::Target;
    match target.and_then(|target| target.target) {
        Some(Target::Cluster(name)) => Ok(TargetName::Cluster(name)),
        Some(Target::Pattern(pattern)) => Ok(TargetName::Pattern(pattern)),
        Some(Target::All(true)) => Ok(TargetName::All),
        Some(Target::All(false)) => Err(Invalid::one(format!("{field}.all"), "must be true: for every cluster")),
        None => Err(Invalid::one(field, "is required: a cluster, a pattern, or all")),
    }
}

fn options(kind: StrategyKind, given: &BTreeMap<String, String>) -> Options {
    given.iter().map(|(name, text)| read_option(kind, name, text)).collect()
}

/// The name under which an option is stored, if there is such an option.
fn key(kind: StrategyKind, name: &str) -> String {
    option_definition(kind, name).map_or(name, |known| known.key).to_owned()
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::OptionValue;

    use super::*;

    const ID: &str = "019a7f3e-0000-7000-8000-000000000001";

    fn intent() -> Option<v1::WriteOptions> {
        Some(v1::WriteOptions { request_id: ID.to_owned(), validate_only: false })
    }

    fn on(cluster: &str) -> Option<v1::StrategyTarget> {
        Some(v1::StrategyTarget { target: Some(v1::strategy_target::Target::Cluster(cluster.to_owned())) })
    }

    fn given(options: &[(&str, &str)]) -> BTreeMap<String, String> {
        options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn options_are_read_by_what_they_are_for_and_stored_under_their_own_names() {
        let strategy = v1::Strategy {
            r#type: "IDLE_SUSPEND".to_owned(),
            target: on("demo"),
            options: given(&[("IDLE_AFTER", "30m"), ("dry_run", "on"), ("nonsense", "x"), ("config_version", "1")]),
            ..v1::Strategy::default()
        };
        let request = v1::CreateStrategyRequest { options: intent(), strategy: Some(strategy), allow_existing: true };
        let write = Write::create_strategy(request).unwrap();
        let options = Options::from([("idle_after_s", OptionValue::Number(1_800))])
            .with("dry_run", true)
            .with("nonsense", "x")
            .with("config_version", 1);
        let expected = Command::CreateStrategy {
            target: TargetName::Cluster("demo".to_owned()),
            kind: StrategyKind::IdleSuspend,
            options,
            if_not_exists: true,
            unchecked: false,
        };
        assert_eq!(write.commands, [expected]);
        assert_eq!(write.field(0, "options"), "strategy.options");
        assert_eq!(write.field(0, "request_id"), "options.request_id");
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let request = v1::UpdateStrategyRequest { etag: "x".to_owned(), ..v1::UpdateStrategyRequest::default() };
        let invalid = Write::update_strategy(request).unwrap_err();
        let fields: Vec<&str> = invalid.violations.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["options.request_id", "target", "type", "etag"]);
        let request = v1::RejectActionRequest { options: intent(), action: "7".to_owned(), reason: String::new() };
        assert_eq!(Write::reject_action(request).unwrap_err().violations[0].field, "action");
    }

    #[test]
    fn what_an_operator_says_about_an_action_names_it_and_why() {
        let (action, reason) = (ActionId { index: LogIndex(412), ordinal: 3 }, "seen it");
        let (named, said) = (action.to_string(), reason.to_owned());
        let retry = v1::RetryActionRequest { options: intent(), action: named.clone(), reason: said.clone() };
        let expected = Command::RetryAction { action, reason: said.clone() };
        assert_eq!(Write::retry_action(retry).unwrap().commands, [expected]);
        let resolve = v1::ResolveActionRequest {
            options: intent(),
            action: named.clone(),
            succeeded: true,
            reason: said.clone(),
        };
        let expected = Command::ResolveAction { action, succeeded: true, reason: said.clone() };
        assert_eq!(Write::resolve_action(resolve).unwrap().commands, [expected]);
        let abandon = v1::AbandonActionRequest { options: intent(), action: named, reason: said.clone() };
        assert_eq!(Write::abandon_action(abandon).unwrap().commands, [Command::AbandonAction { action, reason: said }]);
        let nobody = v1::AbandonActionRequest { options: intent(), ..v1::AbandonActionRequest::default() };
        assert_eq!(Write::abandon_action(nobody).unwrap_err().violations[0].field, "action");
    }

    #[test]
    fn a_change_names_what_to_set_and_what_to_reset() {
        let request = v1::UpdateStrategyRequest {
            options: intent(),
            target: on("demo"),
            r#type: "burst".to_owned(),
            set: given(&[("COOLDOWN", "90s")]),
            reset: vec!["BURST_SIZE".to_owned()],
            etag: "412.3".to_owned(),
        };
        let write = Write::update_strategy(request).unwrap();
        let Command::ChangeStrategy { options, reset, etag, .. } = &write.commands[0] else { panic!("{write:?}") };
        assert_eq!(options.get("cooldown_s"), Some(&OptionValue::Number(90)));
        assert_eq!(reset, &["burst_size"]);
        assert_eq!(etag.unwrap().to_string(), "412.3");
        assert_eq!(write.field(0, "options"), "set");
    }

    #[test]
    fn a_pause_without_an_end_has_none() {
        let request = |expires_in_ms| v1::PauseClusterRequest {
            options: intent(),
            cluster: "demo".to_owned(),
            reason: "maintenance".to_owned(),
            expires_in_ms,
        };
        for (millis, expected) in [(0, None), (5, Some(Span::from_millis(5)))] {
            let write = Write::pause_cluster(request(millis)).unwrap();
            assert!(matches!(&write.commands[0], Command::PauseCluster { expires_in, .. } if *expires_in == expected));
            assert_eq!(write.field(0, "name"), "cluster");
        }
    }

    #[test]
    fn strategies_are_steps_of_a_transaction_and_mistakes_in_them_say_which_step() {
        let strategy = v1::Strategy {
            r#type: "burst".to_owned(),
            target: on("demo"),
            options: given(&[("BURST_SIZE", "100cc")]),
            ..v1::Strategy::default()
        };
        let steps = |kind: &str, etag: &str| {
            let (kind, etag) = (kind.to_owned(), etag.to_owned());
            let create = v1::CreateStrategyRequest {
                options: None,
                strategy: Some(v1::Strategy { r#type: kind.clone(), ..strategy.clone() }),
                allow_existing: false,
            };
            let delete = v1::DeleteStrategyRequest {
                options: None,
                target: on("other"),
                r#type: kind,
                etag,
                allow_missing: true,
            };
            let rest = v1::DeleteStrategiesRequest { options: None, target: on("third") };
            let changes =
                [Change::CreateStrategy(create), Change::DeleteStrategy(delete), Change::DeleteStrategies(rest)];
            let changes = changes.map(|change| v1::Change { change: Some(change) }).to_vec();
            v1::TransactRequest { options: intent(), changes }
        };
        let write = Write::transact(steps("burst", "")).unwrap();
        let kind = StrategyKind::Burst;
        let expected = [
            Command::CreateStrategy {
                target: TargetName::Cluster("demo".to_owned()),
                kind,
                options: Options::from([("burst_size", "100cc")]),
                if_not_exists: false,
                unchecked: false,
            },
            Command::DropStrategy {
                target: TargetName::Cluster("other".to_owned()),
                kind,
                etag: None,
                allow_missing: true,
            },
            Command::DropStrategies { target: TargetName::Cluster("third".to_owned()) },
        ];
        assert_eq!(write.commands, expected);
        assert_eq!(write.field(0, "options"), "changes[0].create_strategy.strategy.options");
        assert_eq!(write.field(1, "name"), "changes[1].delete_strategy.target.cluster");

        let wrong = Write::transact(steps("bust", "x")).unwrap_err();
        let fields: Vec<&str> = wrong.violations.iter().map(|it| it.field.as_str()).collect();
        let expected = [
            "changes[0].create_strategy.strategy.type",
            "changes[1].delete_strategy.type",
            "changes[1].delete_strategy.etag",
        ];
        assert_eq!(fields, expected);
    }
}
