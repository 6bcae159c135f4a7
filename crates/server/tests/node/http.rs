//! HTTP: probes and metrics; and health and reflection, which are gRPC's own.

use std::io::Write as _;
use std::process::{Command, Stdio};

use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::common::{Node, create_cluster, create_size, eventually, named};

pub(crate) async fn serving(node: &Node, service: &str) -> bool {
    let mut health = HealthClient::new(node.channel.clone());
    let answer = health.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap();
    answer.into_inner().status() == ServingStatus::Serving
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_answer_as_kubernetes_asks() {
    let node = Node::alone().await;
    for path in ["/livez", "/health"] {
        assert_eq!(node.get(path).await.unwrap(), (200, "{\"live\":true}\n".to_owned()));
    }
    for path in ["/readyz", "/ready"] {
        assert_eq!(node.get(path).await.unwrap(), (200, "{\"ready\":true}\n".to_owned()));
    }
    let (code, body) = node.get("/nothing").await.unwrap();
    assert_eq!((code, body.contains("there is no /nothing")), (404, true), "{body}");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert!(body["error"].is_string());
    assert_eq!(node.ask("POST", "/livez").await.unwrap().0, 405);
    for service in ["", "loadline.v1.Admin", "loadline.v1.Watch", "loadline.v1.Operator"] {
        eventually("health follows", async || serving(&node, service).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_leader_lives_but_is_not_ready_and_says_why() {
    let node = Node::leaderless_with(|_| ()).await;
    assert_eq!(node.get("/livez").await.unwrap().0, 200);
    let (code, body) = node.get("/readyz").await.unwrap();
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &body["ready"]), (503, &serde_json::Value::Bool(false)));
    assert!(!body["reasons"].as_array().unwrap().is_empty(), "{body}");
    let (_, figures) = node.get("/metrics").await.unwrap();
    assert!(figures.contains("\nloadline_raft_has_leader 0\n"), "{figures}");
    assert!(figures.contains("\nloadline_ready 0\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_promised_figure_is_there_and_promtool_finds_no_fault() {
    let node = Node::alone().await;
    node.admin().create_size(create_size("small", 2)).await.unwrap();
    node.admin().create_cluster(create_cluster("bad name")).await.unwrap_err();
    node.admin().get_cluster(named("none")).await.unwrap_err();
    let (code, figures) = node.get("/metrics").await.unwrap();
    assert_eq!(code, 200);
    for line in [
        "loadline_raft_has_leader 1",
        "loadline_raft_role{role=\"leader\"} 1",
        "loadline_raft_role{role=\"follower\"} 0",
        "loadline_raft_elections_won_total 1",
        "loadline_ready 1",
        "loadline_grpc_requests_total{code=\"OK\",method=\"CreateSize\"} 1",
        "loadline_grpc_requests_total{code=\"INVALID_ARGUMENT\",method=\"CreateCluster\"} 1",
        "loadline_grpc_requests_total{code=\"NOT_FOUND\",method=\"GetCluster\"} 1",
        "loadline_grpc_request_duration_seconds_count{method=\"CreateSize\"} 1",
        "loadline_proposals_total{result=\"recorded\"} 1",
        "loadline_proposals_in_flight 0",
        "loadline_watch_streams 0",
        "loadline_disk_reserve_bytes 0",
    ] {
        assert!(figures.lines().any(|shown| shown == line), "{line} is not in\n{figures}");
    }
    // Present, and not nothing.
    for name in [
        "loadline_raft_term",
        "loadline_raft_last_index",
        "loadline_raft_applied_index",
        "loadline_raft_epoch_index",
        "loadline_rules_version",
        "loadline_disk_free_bytes",
        "loadline_disk_used_bytes",
        "loadline_wal_sync_duration_seconds_count",
        "loadline_wal_synced_bytes_total",
        "loadline_apply_duration_seconds_count",
        "loadline_applied_entries_total",
        "loadline_entry_requests_count",
        "loadline_proposal_duration_seconds_count",
        "loadline_build_info{version=\"0.1.0\"}",
    ] {
        let shown = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        assert!(shown.is_some_and(|value| value.parse::<f64>().unwrap() > 0.0), "{name} is {shown:?}");
    }
    promtool(&figures);
}

/// Prometheus' own linter, where it is installed.
pub(crate) fn promtool(figures: &str) {
    let spawned = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            println!("promtool is not here ({error}); the figures were not linted");
            return;
        }
    };
    child.stdin.take().unwrap().write_all(figures.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.trim().is_empty(), "promtool says:\n{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_services_describe_themselves() {
    let node = Node::alone().await;
    let mut reflection = ServerReflectionClient::new(node.channel.clone());
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = reflection.server_reflection_info(tokio_stream::iter([list])).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else { panic!("{answer:?}") };
    let mut names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    names.sort();
    for service in ["grpc.health.v1.Health", "loadline.v1.Admin", "loadline.v1.Operator", "loadline.v1.Watch"] {
        assert!(names.iter().any(|name| name == service), "{service} is not in {names:?}");
    }
}
