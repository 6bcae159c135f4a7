//! Writes of many callers on one stream: each is a request of its own.

use std::collections::BTreeMap;

use loadline_api::v1::tagged_answer::Answer;
use loadline_api::v1::tagged_write::Write;
use loadline_api::v1::writes_client::WritesClient;
use loadline_api::v1::{self, StreamWritesRequest, TaggedWrite};
use tonic::{Code, Response, Status};

use super::common::{Node, create_cluster, options, refused, set};

fn pause(cluster: &str) -> Write {
    let (cluster, reason) = (cluster.to_owned(), "maintenance".to_owned());
    Write::PauseCluster(v1::PauseClusterRequest { options: options(), cluster, reason, expires_in_ms: 0 })
}

fn create(cluster: &str) -> Write {
    let change = v1::change::Change::CreateCluster(create_cluster(cluster));
    let changes = vec![v1::Change { change: Some(change) }];
    Write::Transact(v1::TransactRequest { options: options(), changes })
}

/// A node that may scale, and something to scale.
async fn with_a_cluster() -> Node {
    let node = Node::alone().await;
    let on = v1::change::Change::SetSetting(set("enable_auto_scaling", "true"));
    let changes = vec![v1::Change { change: Some(on) }];
    let on = Write::Transact(v1::TransactRequest { options: options(), changes });
    let answers = ask(&node, vec![Some(on), Some(create("demo"))]).await;
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    node
}

/// Everything in one message, and all answers by tag.
async fn ask(node: &Node, writes: Vec<Option<Write>>) -> BTreeMap<u64, Result<Response<v1::WriteResponse>, Status>> {
    let writes: Vec<TaggedWrite> = (0..).zip(writes).map(|(tag, write)| TaggedWrite { tag, write }).collect();
    let message = StreamWritesRequest { writes };
    let stream = WritesClient::new(node.channel.clone()).stream_writes(tokio_stream::iter([message])).await;
    let mut stream = stream.unwrap().into_inner();
    let mut answers = BTreeMap::new();
    while let Some(message) = stream.message().await.unwrap() {
        for answer in message.answers {
            let result = match answer.answer.unwrap() {
                Answer::Done(done) => Ok(Response::new(done)),
                Answer::Refused(why) => Err(Status::with_details(Code::from_i32(why.code), why.message, why.details)),
            };
            assert!(answers.insert(answer.tag, result).is_none(), "{} was answered twice", answer.tag);
        }
    }
    answers
}

#[tokio::test]
async fn each_write_of_a_stream_is_answered_as_its_call_would_be() {
    let node = with_a_cluster().await;
    let (first, unknown) = (pause("demo"), v1::ApproveActionRequest { options: options(), action: "a7.0".to_owned() });
    let writes = vec![
        Some(first.clone()),
        Some(first),
        Some(pause("nowhere")),
        None,
        Some(Write::ApproveAction(unknown)),
        Some(create("demo")),
    ];
    let mut answers = ask(&node, writes).await;
    let mut next = || answers.pop_first().unwrap().1;
    let (one, other) = (next().unwrap().into_inner(), next().unwrap().into_inner());
    // The same request twice is recorded once.
    assert_eq!(one.revision, other.revision);
    assert_eq!([one.repeated_request, other.repeated_request].iter().filter(|repeated| **repeated).count(), 1);
    refused(next(), Code::NotFound, "NOT_FOUND", &["cluster"]);
    refused(next(), Code::InvalidArgument, "INVALID_REQUEST", &["write"]);
    refused(next(), Code::NotFound, "ACTION_NOT_FOUND", &["action"]);
    refused(next(), Code::AlreadyExists, "ALREADY_EXISTS", &["changes[0].create_cluster.cluster.name"]);
    node.stop().await.0.unwrap();
}

#[tokio::test]
async fn more_writes_than_may_be_under_way_are_all_answered() {
    const WRITES: u64 = 3_000;
    let node = with_a_cluster().await;
    let answers = ask(&node, (0..WRITES).map(|_| Some(pause("demo"))).collect()).await;
    assert_eq!(answers.len() as u64, WRITES);
    assert!(answers.values().all(Result::is_ok));
    let revisions: std::collections::BTreeSet<u64> =
        answers.into_values().map(|answer| answer.unwrap().into_inner().revision).collect();
    assert!((revisions.len() as u64) < WRITES / 2, "each write has an entry of its own");
    node.stop().await.0.unwrap();
}

#[tokio::test]
async fn a_node_that_stops_ends_the_stream_and_says_so() {
    let node = Node::alone().await;
    let (writes, coming) = tokio::sync::mpsc::channel::<StreamWritesRequest>(1);
    let coming = tokio_stream::wrappers::ReceiverStream::new(coming);
    let mut answers = WritesClient::new(node.channel.clone()).stream_writes(coming).await.unwrap().into_inner();
    let write = TaggedWrite { tag: 7, write: Some(create("demo")) };
    writes.send(StreamWritesRequest { writes: vec![write] }).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().answers[0].tag, 7);
    let stopping = tokio::spawn(node.stop());
    let ended = answers.message().await.map(Response::new);
    refused(ended, Code::Unavailable, "SHUTTING_DOWN", &[]);
    stopping.await.unwrap().0.unwrap();
    drop(writes);
}
