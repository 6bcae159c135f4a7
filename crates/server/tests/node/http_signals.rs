//! Values of signals that are pushed over HTTP.

use loadline_api::v1;
use loadline_credentials::token::Token;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Node, create_cluster, create_size, named, options, set};
use crate::http::promtool;
use crate::scaling::{scaling, strategy};

async fn post(node: &Node, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(&node.http).await.unwrap();
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let (host, length) = (&node.http, body.len());
    let head = format!(
        "POST /api/v1/signals HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}content-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

fn pushed(name: &str) -> v1::CreateSignalRequest {
    let signal = v1::Signal { name: name.to_owned(), r#type: "push".to_owned(), ..v1::Signal::default() };
    v1::CreateSignalRequest { options: options(), signal: Some(signal), allow_existing: false }
}

async fn value(node: &Node, name: &str) -> Option<i64> {
    let found = node.admin().get_signal(named(name)).await.unwrap().into_inner();
    match found.resource.unwrap().resource {
        Some(v1::resource::Resource::Signal(signal)) => signal.value_milli,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_pushed_once_however_often_it_is_sent_and_a_mistake_is_named() {
    let node = Node::alone().await;
    node.admin().create_cluster(create_cluster("demo")).await.unwrap();
    node.admin().create_signal(pushed("load")).await.unwrap();
    assert_eq!(value(&node, "load").await, None);
    let key = uuid::Uuid::now_v7().to_string();
    let headers = [("idempotency-key", key.as_str())];
    let (status, first) = post(&node, &headers, r#"{"signal": "load", "value": 0.85}"#).await;
    assert_eq!((status, &first["repeated"]), (200, &Value::Bool(false)), "{first}");
    assert_eq!(value(&node, "load").await, Some(850));
    let (status, again) = post(&node, &headers, r#"{"signal": "load", "value": 0.85}"#).await;
    assert_eq!((status, &again["repeated"], &again["revision"]), (200, &Value::Bool(true), &first["revision"]));
    let (status, _) = post(&node, &headers, r#"{"signal": "load", "value": 0.9}"#).await;
    assert_eq!(status, 400, "another push under the same key");
    let several = r#"{"values": [{"signal": "load", "value": 1, "cluster": "demo"}, {"signal": "none", "value": 1}]}"#;
    assert_eq!(post(&node, &[], several).await.0, 404);
    assert_eq!(value(&node, "load").await, Some(850), "all of them or none");
    for (body, status) in [
        ("", 400),
        ("{", 400),
        (r#"{"signal": "load", "value": "much"}"#, 400),
        (r#"{"signal": "load", "value": 1e300}"#, 400),
        (r#"{"signal": "load", "value": 1, "cluster": "other"}"#, 404),
        (r#"{"values": []}"#, 400),
    ] {
        let (found, answer) = post(&node, &[], body).await;
        assert_eq!(found, status, "{body}: {answer}");
        assert!(answer["error"].as_str().is_some_and(|error| !error.is_empty()), "{body}: {answer}");
    }
    assert_eq!(post(&node, &[("idempotency-key", "7")], r#"{"signal": "load", "value": 1}"#).await.0, 400);
    assert_eq!(node.get("/api/v1/signals").await.unwrap().0, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_shown_under_one_name_whatever_its_signals_are_called_and_not_while_nobody_knows() {
    let node = Node::alone().await;
    node.admin().set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    node.admin().create_size(create_size("100cc", 1)).await.unwrap();
    node.admin().create_cluster(create_cluster("workers")).await.unwrap();
    for name in ["stage_queue_depth", "exec_queue_depth", "oldest", "busy"] {
        node.admin().create_signal(pushed(name)).await.unwrap();
    }
    let options = [
        ("SIZE", "100cc"),
        ("DEPTH_SIGNAL", "stage_queue_depth + exec_queue_depth"),
        ("WAIT_SIGNAL", "oldest"),
        ("SATURATION_SIGNAL", "busy"),
    ];
    scaling(&node).create_strategy(strategy("queue_depth", "workers", &options)).await.unwrap();
    let body = r#"{"values": [{"signal": "stage_queue_depth", "value": 12}, {"signal": "exec_queue_depth", "value": 3},
                              {"signal": "oldest", "value": 45.2}]}"#;
    assert_eq!(post(&node, &[], body).await.0, 200);
    let (_, figures) = node.get("/metrics").await.unwrap();
    for line in [
        "loadline_queue_depth{cluster=\"workers\"} 15",
        "loadline_queue_oldest_wait_seconds{cluster=\"workers\"} 45.2",
        "loadline_signal_value{cluster=\"workers\",signal=\"exec_queue_depth\"} 3",
    ] {
        assert!(figures.lines().any(|shown| shown == line), "{line} is not in\n{figures}");
    }
    assert!(!figures.contains("loadline_worker_saturation{"), "nobody has said how busy they are:\n{figures}");
    promtool(&figures);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_pushes_needs_a_token_and_usage_once_somebody_can_log_in() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    admin.create_cluster(create_cluster("demo")).await.unwrap();
    admin.create_signal(pushed("load")).await.unwrap();
    let role = |name: &str, superuser| v1::CreateRoleRequest {
        options: options(),
        name: name.to_owned(),
        superuser,
        ..v1::CreateRoleRequest::default()
    };
    for (name, superuser) in [("root", true), ("worker", false), ("guest", false)] {
        admin.create_role(role(name, superuser)).await.unwrap();
    }
    let (role, cluster, all_clusters) = ("worker".to_owned(), String::new(), true);
    admin.grant_usage(v1::UsageRequest { options: options(), role, cluster, all_clusters }).await.unwrap();
    // The last one closes the group, so everybody else has a token by then.
    let tokens = [Token::mint(), Token::mint(), Token::mint()];
    let keep = |role: &str, token: &Token| v1::CreateTokenRequest {
        options: options(),
        role: role.to_owned(),
        token_id: token.id().to_owned(),
        token_hash: token.hash().0.to_vec().into(),
        expires_in_ms: 0,
    };
    admin.create_token(keep("root", &tokens[0])).await.unwrap();
    for (name, token) in [("worker", &tokens[1]), ("guest", &tokens[2])] {
        let mut request = tonic::Request::new(keep(name, token));
        let root = format!("Bearer {}", tokens[0].reveal());
        request.metadata_mut().insert("authorization", root.parse().unwrap());
        admin.create_token(request).await.unwrap();
    }
    let body = r#"{"signal": "load", "value": 1}"#;
    let with = |token: &Token| format!("Bearer {}", token.reveal());
    assert_eq!(post(&node, &[], body).await.0, 401);
    assert_eq!(post(&node, &[("authorization", &with(&Token::mint()))], body).await.0, 401);
    assert_eq!(post(&node, &[("authorization", &with(&tokens[2]))], body).await.0, 403);
    assert_eq!(post(&node, &[("authorization", &with(&tokens[1]))], body).await.0, 200);
}
