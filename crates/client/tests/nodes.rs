//! Looking at every node, and moving snapshots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{FakeNode, Reply, client_at, client_of, nobody};
use loadline_client::v1::{NodeStatus, Peer, SnapshotData};
use loadline_client::{NodeReport, SnapshotPart};

fn peer(id: u64, node: &str) -> Peer {
    Peer { id, name: format!("n{id}"), address: node.to_owned() }
}

fn status(id: u64, applied_index: u64) -> NodeStatus {
    NodeStatus { id, name: format!("n{id}"), applied_index, last_index: applied_index, ..Default::default() }
}

/// Id, index of the hash, hash, error.
fn rows(reports: &[NodeReport]) -> Vec<(Option<u64>, u64, String, bool)> {
    reports
        .iter()
        .map(|report| {
            let status = report.status.clone().unwrap_or_default();
            (report.id(), status.hash_index, status.state_hash, report.error.is_some())
        })
        .collect()
}

#[tokio::test]
async fn one_endpoint_is_enough_to_see_every_node_and_hashes_are_taken_at_the_lowest_index() {
    let nodes = [FakeNode::start().await, FakeNode::start().await, FakeNode::start().await];
    let dead = nobody().await;
    let peers: Vec<Peer> =
        nodes.iter().map(FakeNode::endpoint).chain([dead.clone()]).zip(1..).map(|(at, id)| peer(id, &at)).collect();
    nodes[0].is(status(1, 12), &[(10, "aa"), (12, "cc")], &peers);
    nodes[1].is(status(2, 10), &[(10, "aa")], &peers);
    nodes[2].is(status(3, 11), &[(10, "bb"), (11, "dd")], &peers);
    let reports = client_of(&[&nodes[1]]).status_all().await;
    let expected = [
        (Some(1), 10, "aa".to_owned(), false),
        (Some(2), 10, "aa".to_owned(), false),
        (Some(3), 10, "bb".to_owned(), false),
        (Some(4), 0, String::new(), true),
    ];
    assert_eq!(rows(&reports), expected);
    assert_eq!((reports[3].endpoint.as_str(), &reports[3].status), (dead.as_str(), &None));
}

#[tokio::test]
async fn where_the_lowest_index_is_forgotten_hashes_are_taken_at_the_highest() {
    let nodes = [FakeNode::start().await, FakeNode::start().await];
    nodes[0].is(status(1, 2000), &[(2000, "cc")], &[]);
    nodes[1].is(status(2, 10), &[(10, "aa"), (2000, "cc")], &[]);
    let reports = client_of(&[&nodes[0], &nodes[1]]).status_all().await;
    assert_eq!(rows(&reports), [(Some(1), 2000, "cc".into(), false), (Some(2), 2000, "cc".into(), false)]);
}

#[tokio::test]
async fn a_hash_at_another_index_is_not_shown_beside_the_others() {
    let nodes = [FakeNode::start().await, FakeNode::start().await];
    nodes[0].is(status(1, 2000), &[(2000, "cc")], &[]);
    nodes[1].is(status(2, 10), &[(10, "aa")], &[]);
    let reports = client_of(&[&nodes[0], &nodes[1]]).status_all().await;
    assert_eq!(rows(&reports), [(Some(1), 2000, "cc".into(), false), (Some(2), 2000, String::new(), false)]);
}

#[tokio::test]
async fn two_endpoints_of_one_node_are_one_row_and_a_joining_node_holds_nobody_up() {
    let (node, joining) = (FakeNode::start().await, FakeNode::start().await);
    node.is(status(1, 10), &[(10, "aa")], &[peer(1, "localhost:1")]);
    joining.is(NodeStatus { role: "joining".to_owned(), ..Default::default() }, &[], &[]);
    let by_name = node.endpoint().replace("127.0.0.1", "localhost");
    let reports = client_at([node.endpoint(), by_name, joining.endpoint()]).status_all().await;
    assert_eq!(rows(&reports), [(Some(1), 10, "aa".into(), false), (None, 10, String::new(), false)]);
}

#[tokio::test]
async fn a_member_whose_place_another_node_has_taken_is_a_row_of_its_own() {
    let node = FakeNode::start().await;
    let members = [peer(2, &node.endpoint()), peer(4, &node.endpoint())];
    node.is(status(4, 10), &[(10, "aa")], &members);
    let reports = client_of(&[&node]).status_all().await;
    assert_eq!(rows(&reports), [(Some(2), 0, String::new(), true), (Some(4), 10, "aa".into(), false)]);
    assert_eq!(reports[0].error.as_deref(), Some("node 4 answers at its address"));
}

fn part(data: &str, bytes_total: u64) -> SnapshotData {
    SnapshotData { data: data.as_bytes().to_vec().into(), bytes_total }
}

#[tokio::test]
async fn a_snapshot_that_broke_off_is_fetched_again_from_its_beginning() {
    let (first, second) = (FakeNode::start().await, FakeNode::start().await);
    first.will_send_snapshot(vec![part("stale", 10)]);
    second.will_send_snapshot(vec![part("whole ", 10), part("file", 0)]);
    let mut file = Vec::new();
    let mut starts = 0;
    let bytes = client_of(&[&first, &second])
        .save_snapshot(|part| {
            match part {
                SnapshotPart::Start { bytes_total } => {
                    assert_eq!(bytes_total, 10);
                    starts += 1;
                    file.clear();
                }
                SnapshotPart::Data(data) => file.extend_from_slice(data),
            }
            Ok(())
        })
        .await
        .expect("saved");
    assert_eq!((bytes, file.as_slice(), starts), (10, b"whole file".as_slice(), 2));
}

#[tokio::test]
async fn a_restore_whose_answer_was_lost_is_repeated_whole_under_one_id() {
    let node = FakeNode::start().await;
    node.will([Reply::LoseAnswer, Reply::Answer]);
    let file: Vec<u8> = (0..600_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let sent = Arc::new(AtomicU64::new(0));
    let answer = client_of(&[&node]).restore_snapshot(file.clone(), Arc::clone(&sent)).await.expect("restored");
    assert_eq!(answer.revision, 9);
    let restored = node.restored();
    assert_eq!(restored.len(), 2);
    assert_eq!(restored[0], restored[1]);
    assert_eq!((uuid::Uuid::parse_str(&restored[0].0).is_ok(), restored[0].1 == file), (true, true));
    assert_eq!(sent.load(Ordering::Relaxed), 600_000);
}
