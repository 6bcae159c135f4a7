//! What a node refuses to be burdened with.

use std::time::Duration;

use loadline_api::v1::{self, WatchRequest};
use tonic::Code;

use crate::common::{Node, create_cluster, eventually, named, refused};

#[tokio::test(flavor = "multi_thread")]
async fn calls_beyond_the_limit_are_shed_with_a_reason_and_other_services_go_on() {
    // Without a leader a linearizable read waits for one, and holds its place meanwhile.
    let node = Node::leaderless_with(|config| config.limits.requests_max = 1).await;
    let mut waiting = node.admin();
    let held = tokio::spawn(async move { waiting.get_cluster(named("x")).await });
    eventually("the call is inside", async || {
        let (_, figures) = node.get("/metrics").await.unwrap();
        figures.contains("loadline_grpc_requests_in_flight{service=\"Admin\"} 1\n")
    })
    .await;
    let stale = v1::GetRequest { consistency: v1::Consistency::Stale.into(), ..named("x") };
    let shed = node.admin().get_cluster(stale.clone()).await;
    let status = refused(shed, Code::ResourceExhausted, "OVERLOADED", &[]);
    assert!(status.message().contains("at most 1 calls of Admin at once"), "{}", status.message());
    node.status().await;
    refused(held.await.unwrap(), Code::Unavailable, "NO_LEADER", &[]);
    refused(node.admin().get_cluster(stale).await, Code::NotFound, "NOT_FOUND", &[]);
    let (_, figures) = node.get("/metrics").await.unwrap();
    assert!(figures.contains("loadline_grpc_requests_shed_total{service=\"Admin\"}"), "{figures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_are_limited_and_a_place_comes_back() {
    let node = Node::alone_with(|config| config.limits.watches_max = 1).await;
    // On a connection of its own, so that dropping the client is seen.
    let first = node.watch().watch(WatchRequest::default()).await.unwrap();
    refused(node.watch().watch(WatchRequest::default()).await, Code::ResourceExhausted, "OVERLOADED", &[]);
    drop(first);
    eventually("the place comes back", async || node.watch().watch(WatchRequest::default()).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_is_kept_whether_the_caller_sets_one_or_not() {
    let node = Node::leaderless_with(|config| {
        config.limits.request_deadline = Duration::from_millis(300);
        config.limits.request_deadline_max = Duration::from_millis(600);
    })
    .await;
    // A shorter one is kept by the client of this test itself, before the node can answer.
    let ask = async |timeout: Option<&str>| {
        let mut request = tonic::Request::new(named("x"));
        if let Some(timeout) = timeout {
            request.metadata_mut().insert("grpc-timeout", timeout.parse().unwrap());
        }
        let status = refused(node.admin().get_cluster(request).await, Code::DeadlineExceeded, "DEADLINE_EXCEEDED", &[]);
        status.message().to_owned()
    };
    assert!(ask(None).await.starts_with("not done within 300ms"));
    assert!(ask(Some("1H")).await.starts_with("not done within 600ms"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_is_refused() {
    let node = Node::alone_with(|config| config.limits.message_in_max = 4096).await;
    let before = node.status().await.last_index;
    let large = node.admin().create_cluster(create_cluster(&"x".repeat(8192))).await;
    let status = refused(large, Code::InvalidArgument, "MESSAGE_TOO_LARGE", &[]);
    assert!(status.message().contains("4096"), "{}", status.message());
    assert_eq!(node.status().await.last_index, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_none_and_a_method_that_is_none_are_refused_with_a_reason() {
    let node = Node::alone().await;
    let mut grpc = tonic::client::Grpc::new(node.channel.clone());
    let mut send = async |path: &'static str| {
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<Vec<u8>, ()>::default();
        // Bytes where a message is expected: field 1 with a length that is not there.
        grpc.unary(tonic::Request::new(vec![0xff; 9]), path.parse().unwrap(), codec).await
    };
    let path = "/loadline.v1.Admin/CreateCluster";
    refused(send(path).await, Code::InvalidArgument, "MALFORMED_MESSAGE", &[]);
    refused(send("/loadline.v1.Admin/CreatePod").await, Code::Unimplemented, "NO_SUCH_METHOD", &[]);
}
