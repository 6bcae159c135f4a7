//! A leader that acts on a backend, and what shows of it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use loadline_api::v1;
use loadline_api::v1::scaling_client::ScalingClient;
use loadline_api::v1::strategy_target::Target;
use loadline_executor::backends::scripted::{Script, Scripted};
use loadline_executor::{Backends, Step, Unwatched, Witness};
use loadline_state_machine::ActionId;

use crate::common::{Node, Place, create_cluster, create_size, eventually, options, set};
use crate::http::promtool;

/// A node whose clusters live on a backend in memory.
async fn with_backend() -> (Node, Scripted) {
    watched(Arc::new(Unwatched)).await
}

async fn watched(witness: Arc<dyn Witness>) -> (Node, Scripted) {
    let backend = Scripted::new(Script::default());
    let backends = Backends::new().with("memory", Arc::new(backend.clone()));
    let place = Place::new().await;
    let mut config = place.config("n1", &[&place.grpc]);
    config.tick_every = Duration::from_millis(100);
    let node = place.start_in(config, |mut world| {
        world.backends = backends;
        world.witness = witness;
        world
    });
    node.until_ready().await;
    let mut admin = node.admin();
    admin.create_size(create_size("100cc", 4)).await.unwrap();
    admin.set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    admin.set_setting(set("default_backend", "memory")).await.unwrap();
    (node, backend)
}

/// A cluster that wants one replica.
async fn create_demo(node: &Node, name: &str) {
    node.admin().create_cluster(create_cluster(name)).await.unwrap();
    create_strategy(node, name, &[("SIZE", "100cc")]).await;
}

async fn create_strategy(node: &Node, cluster: &str, given: &[(&str, &str)]) {
    let strategy = v1::Strategy {
        r#type: "target_size".to_owned(),
        target: Some(v1::StrategyTarget { target: Some(Target::Cluster(cluster.to_owned())) }),
        options: given.iter().map(|(option, value)| ((*option).to_owned(), (*value).to_owned())).collect(),
        ..v1::Strategy::default()
    };
    let request = v1::CreateStrategyRequest { options: options(), strategy: Some(strategy), allow_existing: false };
    ScalingClient::new(node.channel.clone()).create_strategy(request).await.unwrap();
}

async fn figures(node: &Node) -> String {
    node.get("/metrics").await.unwrap().1
}

async fn until_shown(node: &Node, lines: &[&str]) {
    for line in lines {
        eventually(line, async || figures(node).await.lines().any(|shown| shown == *line)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_leader_does_at_a_backend_shows_in_its_figures() {
    let (node, backend) = with_backend().await;
    let before = figures(&node).await;
    for line in [
        "loadline_backend_breaker_state{backend=\"memory\",state=\"closed\"} 1",
        "loadline_backend_breaker_state{backend=\"memory\",state=\"open\"} 0",
        "loadline_backend_alarms_total{alarm=\"dead-lettered\",backend=\"memory\"} 0",
        "loadline_auto_scaling_dead_letters 0",
        "loadline_auto_scaling_unsettled_actions{status=\"UNKNOWN\"} 0",
        "loadline_widget_tick_errors_total{widget=\"auto_scaling\"} 0",
    ] {
        assert!(before.lines().any(|shown| shown == line), "{line} is not in\n{before}");
    }
    assert!(!before.contains("loadline_backend_calls_total{"), "nothing was to be done:\n{before}");

    create_demo(&node, "demo").await;
    until_shown(
        &node,
        &[
            "loadline_auto_scaling_actions_total{action_type=\"create_replica\",status=\"SUCCEEDED\",strategy=\"target_size\"} 1",
            "loadline_backend_calls_total{backend=\"memory\",call=\"create_replica\",outcome=\"succeeded\"} 1",
            "loadline_backend_call_duration_seconds_count{backend=\"memory\"} 1",
            "loadline_backend_fences_total{backend=\"memory\",result=\"done\"} 1",
            "loadline_auto_scaling_unsettled_actions{status=\"PENDING\"} 0",
        ],
    )
    .await;
    assert_eq!(backend.effects().len(), 1);
    let after = figures(&node).await;
    for name in [
        "loadline_auto_scaling_signal_collection_duration_seconds_count",
        "loadline_backend_observations_total{backend=\"memory\",result=\"done\"}",
        "loadline_backend_differences_total{backend=\"memory\"}",
        "loadline_widget_tick_duration_seconds_count{widget=\"auto_scaling\"}",
        "loadline_widget_event_handling_duration_seconds_count{event_type=\"claim\",widget=\"auto_scaling\"}",
        "loadline_widget_event_handling_duration_seconds_count{event_type=\"configuration\",widget=\"auto_scaling\"}",
    ] {
        eventually(name, async || {
            let after = figures(&node).await;
            let shown = after.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            shown.is_some_and(|value| value.parse::<f64>().unwrap() > 0.0)
        })
        .await;
    }
    promtool(&after);
}

/// Nobody who sees something to do gets as far as claiming it.
#[derive(Debug)]
struct NobodyClaims;

impl Witness for NobodyClaims {
    fn reached(&self, step: Step, _action: ActionId) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if step == Step::BeforeClaim {
                std::future::pending::<()>().await;
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_done_is_claimed_with_the_entry_that_says_so() {
    let (node, backend) = watched(Arc::new(NobodyClaims)).await;
    until_shown(&node, &["loadline_backend_fences_total{backend=\"memory\",result=\"done\"} 1"]).await;
    let mut number = 0;
    // Something else may be under way at that moment, a tick or what was seen of a cluster: then nothing goes ahead.
    eventually("one is claimed, and its backend called", async || {
        let cluster = format!("demo{number}");
        number += 1;
        node.admin().create_cluster(create_cluster(&cluster)).await.unwrap();
        let create = v1::CreateReplicaRequest {
            options: options(),
            cluster,
            replica: "mine".to_owned(),
            size: "100cc".to_owned(),
            allow_existing: false,
        };
        ScalingClient::new(node.channel.clone()).create_replica(create).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        !backend.effects().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_an_answer_shows_as_unknown_until_it_is_read_back() {
    let (node, backend) = with_backend().await;
    backend.set_unreachable(true);
    create_demo(&node, "demo").await;
    until_shown(&node, &["loadline_auto_scaling_unsettled_actions{status=\"UNKNOWN\"} 1"]).await;
    backend.set_unreachable(false);
    until_shown(
        &node,
        &[
            "loadline_auto_scaling_unsettled_actions{status=\"UNKNOWN\"} 0",
            "loadline_auto_scaling_actions_total{action_type=\"create_replica\",status=\"SUCCEEDED\",strategy=\"target_size\"} 1",
        ],
    )
    .await;
    assert!(backend.effects().values().all(|times| *times == 1), "{:?}", backend.effects());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_backend_a_node_decides_and_calls_nobody() {
    let (node, backend) = with_backend().await;
    node.admin().set_setting(set("default_backend", "elsewhere")).await.unwrap();
    create_demo(&node, "demo").await;
    until_shown(
        &node,
        &[
            "loadline_executor_clusters_without_backend_total 1",
            "loadline_auto_scaling_unsettled_actions{status=\"PENDING\"} 1",
        ],
    )
    .await;
    assert_eq!(backend.effects().len(), 0, "it was called");
}

/// A strategy that waits for its cooldown, and a cluster that has used up its rate, count once for each decision that says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_cooldown_and_the_rate_limit_show_in_the_figures_when_they_hold_something() {
    let (node, backend) = with_backend().await;
    let mut admin = node.admin();
    admin.set_setting(set("auto_scaling_cluster_cooldown", "0s")).await.unwrap();
    admin.set_setting(set("auto_scaling_rate_limit", "1")).await.unwrap();
    let is_there = async |name: &str| {
        let asked = v1::ExplainRequest { name: format!("clusters/{name}"), ..Default::default() };
        let answer = ScalingClient::new(node.channel.clone()).explain(asked).await.unwrap().into_inner();
        answer.decision.is_some_and(|decision| decision.conclusion.unwrap_or_default().code == "AS_WANTED")
    };
    for (name, cooldown, expected) in [
        ("resting", "1h", "loadline_auto_scaling_cooldown_skips_total{strategy=\"target_size\"} 1".to_owned()),
        ("busy", "0s", "loadline_auto_scaling_rate_limit_hits_total{cluster_id=\"ID\"} 1".to_owned()),
    ] {
        let created = admin.create_cluster(create_cluster(name)).await.unwrap().into_inner();
        let Some(v1::resource::Resource::Cluster(cluster)) =
            created.results.into_iter().next().and_then(|it| it.resource?.resource)
        else {
            panic!("not a cluster")
        };
        let expected = expected.replace("ID", &cluster.id);
        create_strategy(&node, name, &[("SIZE", "100cc"), ("COOLDOWN", cooldown)]).await;
        eventually("its replica is there", async || is_there(name).await).await;
        assert!(!figures(&node).await.contains(expected.split('{').next().unwrap()), "nothing was held yet");
        // Somebody takes it away, and it is wanted again too soon.
        backend.remove_replica(cluster.id.parse().unwrap(), "r1_auto");
        until_shown(&node, &[&expected]).await;
    }
    assert_eq!(backend.effects().len(), 2, "what was held was not called: {:?}", backend.effects());
}
