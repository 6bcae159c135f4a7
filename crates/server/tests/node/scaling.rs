//! Strategies, signals, and everything that follows from them.

use loadline_api::v1::change::Change as Step;
use loadline_api::v1::observation::Seen;
use loadline_api::v1::resource::Resource as Kept;
use loadline_api::v1::scaling_client::ScalingClient;
use loadline_api::v1::signals_client::SignalsClient;
use loadline_api::v1::strategy_target::Target;
use loadline_api::v1::{self, cluster_signals};
use tonic::Code;
use tonic::transport::Channel;

use crate::common::{Node, create_cluster, create_size, eventually, named, options, refused, set};

pub(crate) fn scaling(node: &Node) -> ScalingClient<Channel> {
    ScalingClient::new(node.channel.clone())
}

fn signals(node: &Node) -> SignalsClient<Channel> {
    SignalsClient::new(node.channel.clone())
}

pub(crate) fn on(cluster: &str) -> Option<v1::StrategyTarget> {
    Some(v1::StrategyTarget { target: Some(Target::Cluster(cluster.to_owned())) })
}

pub(crate) fn strategy(kind: &str, cluster: &str, given: &[(&str, &str)]) -> v1::CreateStrategyRequest {
    let strategy = v1::Strategy {
        r#type: kind.to_owned(),
        target: on(cluster),
        options: given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..v1::Strategy::default()
    };
    v1::CreateStrategyRequest { options: options(), strategy: Some(strategy), allow_existing: false }
}

fn report(sequence: u64, cluster: &str, seen: Vec<Seen>) -> v1::ReportSignalsRequest {
    let observations = seen.into_iter().map(|seen| v1::Observation { age_ms: 0, seen: Some(seen) }).collect();
    let cluster = Some(cluster_signals::Cluster::Name(cluster.to_owned()));
    v1::ReportSignalsRequest {
        collector: "probe".to_owned(),
        sequence,
        clusters: vec![v1::ClusterSignals { cluster, observations }],
    }
}

fn replica(name: &str, size: &str) -> Seen {
    let (name, size) = (name.to_owned(), size.to_owned());
    Seen::Replica(v1::ReplicaSeen { name, size, incarnation: String::new(), ready: true })
}

pub(crate) fn all() -> v1::ListScalingRequest {
    v1::ListScalingRequest::default()
}

/// Two sizes, one cluster, and scaling switched on.
pub(crate) async fn ready() -> Node {
    let node = Node::alone().await;
    let mut admin = node.admin();
    admin.create_size(create_size("25cc", 1)).await.unwrap();
    admin.create_size(create_size("100cc", 4)).await.unwrap();
    admin.create_cluster(create_cluster("demo")).await.unwrap();
    admin.set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    node
}

fn kept_strategy(resource: Option<v1::Resource>) -> v1::Strategy {
    match resource.and_then(|it| it.resource) {
        Some(Kept::Strategy(strategy)) => strategy,
        other => panic!("not a strategy: {other:?}"),
    }
}

pub(crate) async fn actions(node: &Node) -> Vec<v1::Action> {
    let listed = scaling(node).list_actions(all()).await.unwrap().into_inner();
    let of = |it: v1::Resource| match it.resource {
        Some(Kept::Action(action)) => action,
        other => panic!("not an action: {other:?}"),
    };
    listed.resources.into_iter().map(of).collect()
}

#[tokio::test]
async fn a_strategy_is_created_changed_in_part_and_deleted() {
    let node = ready().await;
    let mut scaling = scaling(&node);
    let request = strategy("target_size", "demo", &[("SIZE", "100cc"), ("COOLDOWN", "5m")]);
    let answer = scaling.create_strategy(request.clone()).await.unwrap().into_inner();
    let made = kept_strategy(answer.results[0].resource.clone());
    assert_eq!((made.r#type.as_str(), made.target.clone()), ("target_size", on("demo")));
    assert_eq!((made.options["size"].as_str(), made.options["cooldown_s"].as_str()), ("100cc", "300"));
    assert!(made.enabled && made.problem.is_none());

    let again = scaling.create_strategy(request).await.unwrap().into_inner();
    assert!(again.repeated_request, "a retry is not a second request");

    let change = v1::UpdateStrategyRequest {
        options: options(),
        target: on("demo"),
        r#type: "target_size".to_owned(),
        set: [("ENABLED".to_owned(), "false".to_owned())].into(),
        reset: vec!["COOLDOWN".to_owned()],
        etag: made.etag.clone(),
    };
    let answer = scaling.update_strategy(change.clone()).await.unwrap().into_inner();
    let changed = kept_strategy(answer.results[0].resource.clone());
    assert!(!changed.enabled);
    assert_eq!((changed.options["size"].as_str(), changed.options.get("cooldown_s")), ("100cc", None));
    let late = v1::UpdateStrategyRequest { options: options(), ..change };
    refused(scaling.update_strategy(late).await, Code::Aborted, "ETAG_MISMATCH", &["etag"]);

    let got = scaling.get_strategy(named(&made.id)).await.unwrap().into_inner();
    assert_eq!(kept_strategy(got.resource), changed);
    let ruling = v1::ListScalingRequest { cluster: "demo".to_owned(), ..all() };
    assert_eq!(scaling.list_strategies(ruling).await.unwrap().into_inner().resources.len(), 1);

    let delete = v1::DeleteStrategyRequest {
        options: options(),
        target: on("demo"),
        r#type: "target_size".to_owned(),
        ..v1::DeleteStrategyRequest::default()
    };
    scaling.delete_strategy(delete.clone()).await.unwrap();
    let twice = v1::DeleteStrategyRequest { options: options(), ..delete };
    refused(scaling.delete_strategy(twice).await, Code::NotFound, "STRATEGY_NOT_FOUND", &["target"]);
    refused(scaling.get_strategy(named(&made.id)).await, Code::NotFound, "NOT_FOUND", &[]);
    node.stop().await.0.unwrap();
}

fn transaction(steps: impl IntoIterator<Item = Step>) -> v1::TransactRequest {
    let changes = steps.into_iter().map(|change| v1::Change { change: Some(change) }).collect();
    v1::TransactRequest { options: options(), changes }
}

#[tokio::test]
async fn a_cluster_and_its_strategies_come_at_one_revision_and_go_at_one() {
    let node = ready().await;
    let (mut admin, mut scaling) = (node.admin(), scaling(&node));
    let create = |kind: &str, given: &[(&str, &str)]| Step::CreateStrategy(strategy(kind, "fresh", given));
    let steps = |size: &str| {
        [
            Step::CreateCluster(create_cluster("fresh")),
            create("target_size", &[("SIZE", size)]),
            create("idle_suspend", &[("IDLE_AFTER", "30m")]),
        ]
    };
    // One step that is wrong, and nothing of the others remains.
    let wrong = admin.transact(transaction(steps("9cc"))).await;
    let field = "changes[1].create_strategy.strategy.options[size]";
    refused(wrong, Code::InvalidArgument, "UNKNOWN_SIZE", &[field]);
    refused(admin.get_cluster(named("fresh")).await, Code::NotFound, "NOT_FOUND", &[]);

    let answer = admin.transact(transaction(steps("100cc"))).await.unwrap().into_inner();
    assert_eq!(answer.results.len(), 3);
    for result in &answer.results[1..] {
        assert_eq!(kept_strategy(result.resource.clone()).create_revision, answer.revision);
    }
    scaling.create_strategy(strategy("burst", "demo", &[("BURST_SIZE", "100cc")])).await.unwrap();

    let delete = v1::DeleteStrategiesRequest { options: options(), target: on("fresh") };
    let gone = scaling.delete_strategies(delete).await.unwrap().into_inner();
    assert!(gone.results[0].changed && gone.results[0].resource.is_none(), "{gone:?}");
    let left = scaling.list_strategies(all()).await.unwrap().into_inner().resources;
    assert_eq!(left.into_iter().map(|it| kept_strategy(Some(it)).r#type).collect::<Vec<_>>(), ["burst"]);
    let again = v1::DeleteStrategiesRequest { options: options(), target: on("fresh") };
    let again = scaling.delete_strategies(again).await.unwrap().into_inner();
    assert!(!again.results[0].changed, "there was nothing left to delete");
    node.stop().await.0.unwrap();
}

#[tokio::test]
async fn a_wrong_strategy_is_refused_to_the_option() {
    let node = ready().await;
    let mut scaling = scaling(&node);
    let create = |kind: &str, cluster: &str, given: &[(&str, &str)]| {
        let (request, mut scaling) = (strategy(kind, cluster, given), scaling.clone());
        async move { scaling.create_strategy(request).await }
    };
    let nothing = create("nonsense", "demo", &[]).await;
    refused(nothing, Code::InvalidArgument, "INVALID_REQUEST", &["strategy.type"]);
    let missing = create("target_size", "demo", &[]).await;
    refused(missing, Code::InvalidArgument, "MISSING_OPTION", &["strategy.options[size]"]);
    let unknown = create("target_size", "demo", &[("SIZE", "7cc")]).await;
    refused(unknown, Code::InvalidArgument, "UNKNOWN_SIZE", &["strategy.options[size]"]);
    let wrong = create("idle_suspend", "demo", &[("IDLE_AFTER", "soon")]).await;
    refused(wrong, Code::InvalidArgument, "INVALID_OPTION", &["strategy.options[idle_after_s]"]);
    let nowhere = create("burst", "nowhere", &[("BURST_SIZE", "25cc")]).await;
    refused(nowhere, Code::NotFound, "NOT_FOUND", &["strategy.target.cluster"]);
    let empty = scaling.create_strategy(v1::CreateStrategyRequest::default()).await;
    refused(empty, Code::InvalidArgument, "INVALID_REQUEST", &["options.request_id", "strategy"]);
    node.stop().await.0.unwrap();
}

#[tokio::test]
async fn signals_lead_to_a_decision_an_operation_and_an_action_and_each_can_be_explained() {
    let node = ready().await;
    let mut scaling = scaling(&node);
    scaling.create_strategy(strategy("target_size", "demo", &[("SIZE", "100cc")])).await.unwrap();
    let answer = signals(&node).report_signals(report(1, "demo", vec![replica("old", "25cc")])).await;
    let answer = answer.unwrap().into_inner();
    assert_eq!((answer.sequence, answer.repeated_report), (1, false));
    let again = signals(&node).report_signals(report(1, "demo", vec![replica("old", "25cc")])).await.unwrap();
    assert!(again.into_inner().repeated_report, "what was heard before is not heard again");

    eventually("an action is planned", async || !actions(&node).await.is_empty()).await;
    let action = actions(&node).await.remove(0);
    assert_eq!(
        (action.call.as_str(), action.size.as_str(), action.cluster.as_str()),
        ("create_replica", "100cc", "demo")
    );
    let got = scaling.get_action(named(&action.id)).await.unwrap().into_inner();
    assert_eq!(got.resource.unwrap().resource, Some(Kept::Action(action.clone())));
    let operations = scaling.list_operations(all()).await.unwrap().into_inner().resources;
    assert_eq!(operations.len(), 1);
    scaling.get_operation(named(&action.operation)).await.unwrap();

    let decided = scaling.get_decision(named(&action.decision)).await.unwrap().into_inner();
    let Some(Kept::Decision(decision)) = decided.resource.unwrap().resource else { panic!("not a decision") };
    assert_eq!(decision.stages[0].reason.as_ref().unwrap().code, "TARGET_MISSING");
    assert_eq!(decision.conclusion.as_ref().unwrap().code, "BEGAN");
    let latest = scaling.list_decisions(all()).await.unwrap().into_inner().resources;
    assert_eq!(latest.len(), 1);
    let past = v1::ListScalingRequest { history: true, cluster: "demo".to_owned(), ..all() };
    let past = scaling.list_decisions(past).await.unwrap().into_inner().resources;
    assert!(past.iter().any(|it| matches!(&it.resource, Some(Kept::Decision(it)) if it.id == action.decision)));

    for (name, words) in [
        ("clusters/demo".to_owned(), "target_size"),
        (format!("decisions/{}", action.decision), "TARGET_MISSING"),
        (format!("actions/{}", action.id), "create replica"),
    ] {
        let asked = v1::ExplainRequest { name: name.clone(), ..Default::default() };
        let answer = scaling.explain(asked).await.unwrap().into_inner();
        assert!(answer.lines.join("\n").contains(words), "{name}: {:?}", answer.lines);
        assert!(answer.decision.is_some(), "{name}");
    }
    node.stop().await.0.unwrap();
}

#[tokio::test]
async fn what_nobody_can_explain_or_find_is_refused_by_name() {
    let node = ready().await;
    let mut scaling = scaling(&node);
    let explain = |name: &str| {
        let (asked, mut scaling) =
            (v1::ExplainRequest { name: name.to_owned(), ..Default::default() }, scaling.clone());
        async move { scaling.explain(asked).await }
    };
    refused(explain("clusters/nowhere").await, Code::NotFound, "NOT_FOUND", &[]);
    refused(explain("sizes/25cc").await, Code::InvalidArgument, "INVALID_REQUEST", &["name"]);
    refused(explain("").await, Code::InvalidArgument, "INVALID_REQUEST", &["name"]);
    refused(explain("decisions/1").await, Code::NotFound, "NOT_FOUND", &[]);
    refused(explain("actions/7").await, Code::InvalidArgument, "INVALID_REQUEST", &["name"]);
    refused(scaling.get_action(named("a1.0")).await, Code::NotFound, "NOT_FOUND", &[]);
    refused(scaling.get_operation(named("x")).await, Code::InvalidArgument, "INVALID_REQUEST", &["name"]);
    refused(scaling.get_decision(named("")).await, Code::InvalidArgument, "INVALID_REQUEST", &["name"]);
    let nowhere = v1::ListScalingRequest { cluster: "nowhere".to_owned(), ..all() };
    refused(scaling.list_actions(nowhere).await, Code::NotFound, "NOT_FOUND", &[]);
    let token = v1::ListScalingRequest { page_token: "zz".to_owned(), history: true, ..all() };
    refused(scaling.list_actions(token).await, Code::InvalidArgument, "INVALID_REQUEST", &["page_token"]);
    let history = v1::ListScalingRequest { history: true, ..all() };
    refused(scaling.list_strategies(history).await, Code::InvalidArgument, "INVALID_REQUEST", &["history"]);
    node.stop().await.0.unwrap();
}

#[tokio::test]
async fn a_paused_cluster_decides_and_begins_nothing_until_it_is_resumed() {
    let node = ready().await;
    let mut scaling = scaling(&node);
    let pause = v1::PauseClusterRequest {
        options: options(),
        cluster: "demo".to_owned(),
        reason: "maintenance".to_owned(),
        expires_in_ms: 0,
    };
    scaling.pause_cluster(pause.clone()).await.unwrap();
    scaling.create_strategy(strategy("target_size", "demo", &[("SIZE", "100cc")])).await.unwrap();
    signals(&node).report_signals(report(1, "demo", vec![replica("old", "25cc")])).await.unwrap();
    let asked = v1::ExplainRequest { name: "clusters/demo".to_owned(), ..Default::default() };
    let answer = scaling.explain(asked).await.unwrap().into_inner();
    assert_eq!(answer.pause.unwrap().reason, "maintenance");
    let held: Vec<String> =
        answer.decision.unwrap().brakes.into_iter().map(|held| held.brake.unwrap_or_default().code).collect();
    assert_eq!(held, ["PAUSED"]);
    assert_eq!(actions(&node).await, []);
    let resume = v1::ResumeClusterRequest { options: options(), cluster: "demo".to_owned() };
    scaling.resume_cluster(resume).await.unwrap();
    eventually("an action is planned", async || !actions(&node).await.is_empty()).await;

    let nowhere = v1::PauseClusterRequest { options: options(), cluster: "nowhere".to_owned(), ..pause.clone() };
    refused(scaling.pause_cluster(nowhere).await, Code::NotFound, "NOT_FOUND", &["cluster"]);
    let long = v1::PauseClusterRequest { options: options(), expires_in_ms: u64::MAX, ..pause };
    refused(scaling.pause_cluster(long).await, Code::InvalidArgument, "OUT_OF_RANGE", &["expires_in_ms"]);
    node.stop().await.0.unwrap();
}

#[tokio::test]
async fn an_action_that_needs_an_approval_waits_for_one() {
    let node = ready().await;
    let mut scaling = scaling(&node);
    let manual = [("SIZE", "100cc"), ("APPROVAL", "manual")];
    scaling.create_strategy(strategy("target_size", "demo", &manual)).await.unwrap();
    signals(&node).report_signals(report(1, "demo", vec![replica("old", "25cc")])).await.unwrap();
    eventually("an action is planned", async || !actions(&node).await.is_empty()).await;
    let action = actions(&node).await.remove(0);
    assert_eq!(action.status.as_ref().unwrap().code, "AWAITING_APPROVAL");
    assert!(action.expire_time_ms > 0);
    let approve = v1::ApproveActionRequest { options: options(), action: action.id.clone() };
    scaling.approve_action(approve.clone()).await.unwrap();
    assert_eq!(actions(&node).await[0].status.as_ref().unwrap().code, "PENDING");
    let again = v1::ApproveActionRequest { options: options(), ..approve };
    refused(scaling.approve_action(again).await, Code::FailedPrecondition, "NOT_AWAITING_APPROVAL", &["action"]);
    let reject = v1::RejectActionRequest { options: options(), action: "a1.0".to_owned(), reason: String::new() };
    refused(scaling.reject_action(reject).await, Code::NotFound, "ACTION_NOT_FOUND", &["action"]);
    node.stop().await.0.unwrap();
}

#[tokio::test]
async fn every_report_of_a_stream_is_acknowledged_and_a_wrong_one_ends_it() {
    let node = ready().await;
    let wrong = Seen::Hydration(v1::HydrationSeen { replica: "old".to_owned(), total: 1, hydrated: 2 });
    let reports = vec![
        report(1, "demo", vec![replica("old", "25cc")]),
        report(2, "nowhere", vec![Seen::Alive(true)]),
        report(3, "demo", vec![wrong]),
        report(4, "demo", vec![Seen::Alive(true)]),
    ];
    let answer = signals(&node).stream_signals(tokio_stream::iter(reports)).await.unwrap();
    let mut acknowledged = answer.into_inner();
    assert_eq!(acknowledged.message().await.unwrap().unwrap().sequence, 1);
    let second = acknowledged.message().await.unwrap().unwrap();
    assert_eq!((second.sequence, second.unknown_clusters.as_slice()), (2, &["nowhere".to_owned()][..]));
    let ended = acknowledged.message().await.map(tonic::Response::new);
    refused(ended, Code::InvalidArgument, "OUT_OF_RANGE", &["hydrated"]);
    node.stop().await.0.unwrap();
}

#[tokio::test]
async fn reports_that_arrive_together_are_recorded_together_and_in_order() {
    const REPORTS: u64 = 1_000;
    let node = ready().await;
    let reports = (1..=REPORTS).map(|sequence| report(sequence, "demo", vec![replica("old", "25cc")]));
    let answer = signals(&node).stream_signals(tokio_stream::iter(reports)).await.unwrap();
    let mut acknowledgements = answer.into_inner();
    let (mut last, mut revisions) = (0, Vec::new());
    while let Some(acknowledged) = acknowledgements.message().await.unwrap() {
        assert!(acknowledged.sequence > last && !acknowledged.repeated_report, "{acknowledged:?}");
        last = acknowledged.sequence;
        revisions.push(acknowledged.revision);
    }
    assert_eq!(last, REPORTS, "all of them are acknowledged");
    assert!(revisions.is_sorted(), "{revisions:?}");
    assert!(revisions.len() < 500, "{} answers for {REPORTS} reports that came without waiting", revisions.len());
    let again = signals(&node).report_signals(report(REPORTS, "demo", vec![Seen::Alive(true)])).await.unwrap();
    assert!(again.into_inner().repeated_report, "the last one was heard");
    node.stop().await.0.unwrap();
}

#[tokio::test]
async fn a_report_that_says_nothing_is_refused_to_the_place() {
    let node = ready().await;
    let empty = v1::ReportSignalsRequest { sequence: 1, ..v1::ReportSignalsRequest::default() };
    refused(signals(&node).report_signals(empty).await, Code::InvalidArgument, "INVALID_NAME", &["collector"]);
    let mut request = report(1, "demo", vec![Seen::Alive(true)]);
    request.clusters[0].observations[0].seen = None;
    let field = "clusters[0].observations[0]";
    refused(signals(&node).report_signals(request).await, Code::InvalidArgument, "INVALID_REQUEST", &[field]);
    node.stop().await.0.unwrap();
}

fn update(backend: Option<&str>, new_name: Option<&str>) -> v1::UpdateClusterRequest {
    v1::UpdateClusterRequest {
        options: options(),
        name: "demo".to_owned(),
        new_name: new_name.map(str::to_owned),
        backend: backend.map(str::to_owned),
        etag: String::new(),
    }
}

/// The only cluster that a write left behind, and where it lives.
fn lives(answer: &v1::WriteResponse) -> (String, String, bool) {
    let [result] = answer.results.as_slice() else { panic!("one change, one result: {answer:?}") };
    match result.resource.as_ref().and_then(|it| it.resource.as_ref()) {
        Some(Kept::Cluster(it)) => (it.name.clone(), it.backend.clone(), it.backend_is_default),
        other => panic!("not a cluster: {other:?}"),
    }
}

#[tokio::test]
async fn a_cluster_says_where_it_lives_and_moves_when_it_is_told_to() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let at = |name: &str, backend: &str, by_default| (name.to_owned(), backend.to_owned(), by_default);
    let made = admin.create_cluster(create_cluster("demo")).await.unwrap().into_inner();
    assert_eq!(lives(&made), at("demo", "", true), "nobody has said anything");
    admin.set_setting(set("default_backend", "local")).await.unwrap();
    let mut created = create_cluster("placed");
    created.cluster.as_mut().unwrap().backend = "remote".to_owned();
    let made = admin.create_cluster(created).await.unwrap().into_inner();
    assert_eq!(lives(&made), at("placed", "remote", false));

    let moved = admin.update_cluster(update(Some("remote"), None)).await.unwrap().into_inner();
    assert_eq!(lives(&moved), at("demo", "remote", false));
    let back = admin.update_cluster(update(Some(""), None)).await.unwrap().into_inner();
    assert_eq!(lives(&back), at("demo", "local", true));
    let both = admin.update_cluster(update(Some("remote"), Some("prod"))).await.unwrap().into_inner();
    assert_eq!(lives(&both), at("prod", "remote", false));

    let listed = admin.list_clusters(v1::ListRequest::default()).await.unwrap().into_inner().resources;
    let backends: Vec<String> = listed
        .into_iter()
        .map(|it| match it.resource {
            Some(Kept::Cluster(cluster)) => format!("{} on {}", cluster.name, cluster.backend),
            other => panic!("not a cluster: {other:?}"),
        })
        .collect();
    assert_eq!(backends, ["placed on remote", "prod on remote"]);

    let elsewhere = v1::UpdateClusterRequest { name: "prod".to_owned(), ..update(Some("a/b"), None) };
    refused(admin.update_cluster(elsewhere).await, Code::InvalidArgument, "INVALID_NAME", &["backend"]);
    let nothing = admin.update_cluster(update(None, None)).await;
    refused(nothing, Code::InvalidArgument, "INVALID_REQUEST", &["new_name"]);
    let mut nowhere = create_cluster("third");
    nowhere.cluster.as_mut().unwrap().backend = "-".to_owned();
    refused(admin.create_cluster(nowhere).await, Code::InvalidArgument, "INVALID_NAME", &["cluster.backend"]);
    assert!(admin.get_cluster(named("third")).await.is_err(), "both of its commands, or none");
    node.stop().await.0.unwrap();
}

#[tokio::test]
async fn an_operator_deals_with_an_action_by_hand() {
    let node = ready().await;
    node.admin().set_setting(set("default_backend", "nowhere")).await.unwrap();
    let mut scaling = scaling(&node);
    let manual = [("SIZE", "100cc"), ("APPROVAL", "manual")];
    scaling.create_strategy(strategy("target_size", "demo", &manual)).await.unwrap();
    signals(&node).report_signals(report(1, "demo", vec![replica("old", "25cc")])).await.unwrap();
    eventually("an action is planned", async || !actions(&node).await.is_empty()).await;
    let action = actions(&node).await.remove(0);
    assert_eq!((action.backend.as_str(), action.by.as_str(), action.attempts.len()), ("nowhere", "", 0));

    let about = |action: &str| (options(), action.to_owned(), "by hand".to_owned());
    let (options, id, reason) = about(&action.id);
    let retry = v1::RetryActionRequest { options, action: id, reason };
    refused(scaling.retry_action(retry).await, Code::FailedPrecondition, "NOT_RETRYABLE", &["action"]);
    let (options, id, reason) = about(&action.id);
    let resolve = v1::ResolveActionRequest { options, action: id, succeeded: true, reason };
    refused(scaling.resolve_action(resolve).await, Code::FailedPrecondition, "NOT_RESOLVABLE", &["action"]);
    let (options, id, reason) = about(&action.id);
    let abandon = v1::AbandonActionRequest { options, action: id, reason };
    let answer = scaling.abandon_action(abandon).await.unwrap().into_inner();
    let left = answer.results.into_iter().next().and_then(|it| it.resource).and_then(|it| it.resource);
    let Some(Kept::Action(left)) = left else { panic!("not an action: {left:?}") };
    assert_eq!((left.status.unwrap().code.as_str(), left.error.as_str()), ("ABANDONED", "by hand"));
    let (options, id, reason) = about(&action.id);
    let again = v1::AbandonActionRequest { options, action: id, reason };
    refused(scaling.abandon_action(again).await, Code::NotFound, "ACTION_NOT_FOUND", &["action"]);

    // The rows of one cluster are found without looking at those of others.
    let past = v1::ListScalingRequest { history: true, cluster: "demo".to_owned(), ..all() };
    let rows = scaling.list_actions(past).await.unwrap().into_inner().resources;
    let ids: Vec<String> = rows
        .into_iter()
        .map(|it| match it.resource {
            Some(Kept::Action(action)) => action.id,
            other => panic!("not an action: {other:?}"),
        })
        .collect();
    assert_eq!(ids, [action.id]);
    let ended = v1::ListScalingRequest { history: true, cluster: "demo".to_owned(), ..all() };
    assert_eq!(scaling.list_operations(ended).await.unwrap().into_inner().resources.len(), 1);

    let letters = v1::ListScalingRequest { dead_letters: true, ..all() };
    assert_eq!(scaling.list_actions(letters.clone()).await.unwrap().into_inner().resources, []);
    let wrong = scaling.list_decisions(letters.clone()).await;
    refused(wrong, Code::InvalidArgument, "INVALID_REQUEST", &["dead_letters"]);
    let wrong = scaling.list_actions(v1::ListScalingRequest { history: true, ..letters }).await;
    refused(wrong, Code::InvalidArgument, "INVALID_REQUEST", &["dead_letters"]);
    node.stop().await.0.unwrap();
}
