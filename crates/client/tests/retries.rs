//! What is sent again, what is not, and under which id.

use crate::support;
use std::time::Duration;

use crate::support::{FakeNode, Reply, client_at, client_of, nobody, quick, refusal};
use loadline_client::v1::change::Change as Step;
use loadline_client::v1::{Cluster, CreateClusterRequest};
use loadline_client::{Client, Endpoints, Error, Kind, Options, Reading, Writing};
use tonic::{Code, Status};

fn create(name: &str) -> Step {
    let cluster = Cluster { name: name.to_owned(), ..Default::default() };
    Step::CreateCluster(CreateClusterRequest { options: None, cluster: Some(cluster) })
}

fn ids(nodes: &[&FakeNode]) -> Vec<String> {
    nodes.iter().flat_map(|node| node.seen()).map(|seen| seen.request_id).collect()
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_sent_again_under_the_same_id() {
    let node = FakeNode::start().await;
    node.will([Reply::LoseAnswer, Reply::LoseAnswer, Reply::Answer]);
    let answer = client_of(&[&node]).write(create("demo"), Writing::Record).await.expect("recorded");
    assert_eq!(answer.revision, 7);
    let seen = node.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|one| *one == seen[0]), "the attempts differ: {seen:?}");
    assert_eq!((seen[0].call, seen[0].name.as_str(), seen[0].actor.as_str()), ("create_cluster", "demo", "ada@desk"));
    assert_eq!(uuid::Uuid::parse_str(&seen[0].request_id).expect("a UUID").get_version_num(), 7);
}

#[tokio::test]
async fn two_writes_have_two_ids() {
    let node = FakeNode::start().await;
    let client = client_of(&[&node]);
    client.write(create("demo"), Writing::Record).await.expect("recorded");
    client.transact(vec![create("a"), create("b")], Writing::Record).await.expect("recorded");
    let seen = node.seen();
    assert_eq!((seen[1].call, seen[1].name.as_str()), ("transact", "2"));
    assert_ne!(seen[0].request_id, seen[1].request_id);
}

#[tokio::test]
async fn a_node_that_hangs_is_left_for_the_next_with_the_same_id() {
    let (first, second) = (FakeNode::start().await, FakeNode::start().await);
    first.will([Reply::Hang]);
    client_of(&[&first, &second]).write(create("demo"), Writing::Record).await.expect("recorded");
    let ids = ids(&[&first, &second]);
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_dead_endpoint_is_left_and_not_tried_first_again() {
    let node = FakeNode::start().await;
    let client = client_at([nobody().await, node.endpoint()]);
    for _ in 0..3 {
        client.get(Kind::Cluster, "demo", Reading::Linearizable).await.expect("found");
    }
    assert_eq!(node.seen().len(), 3);
}

#[tokio::test]
async fn a_group_without_a_leader_is_asked_until_it_has_one() {
    let nodes = [FakeNode::start().await, FakeNode::start().await];
    let no_leader = || Reply::Fail(refusal(Code::Unavailable, "NO_LEADER", &[]));
    nodes[0].will([no_leader(), no_leader(), Reply::Answer]);
    nodes[1].will([no_leader(), no_leader()]);
    client_of(&[&nodes[0], &nodes[1]]).write(create("demo"), Writing::Record).await.expect("recorded");
    let ids = ids(&[&nodes[0], &nodes[1]]);
    assert_eq!(ids.len(), 5);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test]
async fn what_was_refused_is_not_sent_again_and_says_why() {
    for code in [Code::InvalidArgument, Code::NotFound, Code::AlreadyExists, Code::Aborted, Code::FailedPrecondition] {
        let (node, other) = (FakeNode::start().await, FakeNode::start().await);
        node.will([Reply::Fail(refusal(code, "SOME_REASON", &[("etag", "4.0")]))]);
        let client = client_of(&[&node, &other]);
        let error = client.write(create("demo"), Writing::Record).await.expect_err("refused");
        let refused = error.refusal().expect("a refusal");
        assert_eq!((refused.code, refused.reason.as_str()), (code, "SOME_REASON"));
        assert_eq!(refused.metadata.get("etag").map(String::as_str), Some("4.0"));
        assert_eq!(error.to_string(), "no, because");
        assert!(!error.maybe_done());
        assert_eq!((node.seen().len(), other.seen().len()), (1, 0), "{code:?}");
    }
}

#[tokio::test]
async fn an_id_refused_for_its_time_is_made_anew_on_the_clock_of_the_group() {
    let group_now: u64 = 4_000_000_000_000;
    for reason in ["REQUEST_TOO_OLD", "REQUEST_FROM_FUTURE"] {
        let node = FakeNode::start().await;
        let now = group_now.to_string();
        node.will([Reply::Fail(refusal(Code::FailedPrecondition, reason, &[("now_ms", &now)]))]);
        let client = client_of(&[&node]);
        client.write(create("demo"), Writing::Record).await.expect("recorded under the second id");
        client.write(create("demo"), Writing::Record).await.expect("recorded at once");
        let ids = ids(&[&node]);
        assert_eq!(ids.len(), 3, "the second write needs no second correction");
        assert_ne!(ids[0], ids[1]);
        for id in &ids[1..] {
            let id = uuid::Uuid::parse_str(id).expect("a UUID").as_u128() >> 80;
            assert!(id.abs_diff(u128::from(group_now)) < 60_000, "{id}");
        }
    }
}

#[tokio::test]
async fn an_id_that_may_have_arrived_before_is_never_exchanged_for_another() {
    let node = FakeNode::start().await;
    let too_old = refusal(Code::FailedPrecondition, "REQUEST_TOO_OLD", &[("now_ms", "4000000000000")]);
    node.will([Reply::LoseAnswer, Reply::Fail(too_old)]);
    client_of(&[&node]).write(create("demo"), Writing::Record).await.expect_err("refused");
    let ids = ids(&[&node]);
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_repeat_refused_without_a_look_at_the_first_attempt_leaves_open_whether_it_was_recorded() {
    for (code, reason) in [(Code::FailedPrecondition, "REQUEST_TOO_OLD"), (Code::ResourceExhausted, "DISK_RESERVE")] {
        let node = FakeNode::start().await;
        node.will([Reply::LoseAnswer, Reply::Fail(refusal(code, reason, &[("now_ms", "4000000000000")]))]);
        let error = client_of(&[&node]).write(create("demo"), Writing::Record).await.expect_err("not known");
        assert!(error.maybe_done(), "the first attempt may have been recorded: {error:?}");
        let Error::Unavailable { answer: Some(answer), .. } = error else { panic!("{error:?}") };
        assert_eq!(answer.reason, reason);
    }
}

#[tokio::test]
async fn a_change_of_membership_whose_answer_was_lost_is_not_sent_again() {
    let (node, other) = (FakeNode::start().await, FakeNode::start().await);
    node.will([Reply::LoseAnswer]);
    let error = client_of(&[&node, &other]).remove_peer("n3").await.expect_err("no answer");
    assert!(error.maybe_done(), "{error:?}");
    assert_eq!((node.seen().len(), other.seen().len()), (1, 0));
}

#[tokio::test]
async fn a_change_of_membership_goes_past_an_endpoint_where_nobody_listens() {
    let node = FakeNode::start().await;
    client_at([nobody().await, node.endpoint()]).remove_peer("n3").await.expect("removed");
    assert_eq!(node.seen().len(), 1);
}

#[tokio::test]
async fn a_change_of_membership_that_found_no_leader_is_sent_again() {
    let node = FakeNode::start().await;
    node.will([Reply::Fail(refusal(Code::Unavailable, "NO_LEADER", &[])), Reply::Answer]);
    client_of(&[&node]).remove_peer("n3").await.expect("removed");
    node.will([Reply::Fail(refusal(Code::Unavailable, "OUTCOME_UNKNOWN", &[]))]);
    let error = client_of(&[&node]).remove_peer("n3").await.expect_err("unknown");
    assert!(error.maybe_done(), "{error:?}");
    assert_eq!(node.seen().len(), 3);
}

#[tokio::test]
async fn when_nobody_listens_the_error_names_every_endpoint_and_nothing_was_done() {
    let (a, b) = (nobody().await, nobody().await);
    let options = Options { connect_patience: Some(Duration::from_millis(200)), ..quick() };
    let client = Client::connect(Endpoints::parse([&a, &b]).expect("endpoints"), options);
    let error = client.write(create("demo"), Writing::Record).await.expect_err("nobody there");
    let Error::Unavailable { tried, answer: None, maybe_done: false } = &error else { panic!("{error:?}") };
    assert_eq!(tried.iter().map(|(endpoint, _)| endpoint).collect::<Vec<_>>(), [&a, &b]);
    assert!(tried.iter().all(|(_, why)| why.contains("refused")), "{tried:?}");
}

#[tokio::test]
async fn when_time_is_up_the_error_says_that_the_write_may_have_happened() {
    let node = FakeNode::start().await;
    node.will(vec![Reply::Hang; 50]);
    let options = Options { timeout: Duration::from_millis(500), ..quick() };
    let client = Client::connect(Endpoints::parse([node.endpoint()]).expect("an endpoint"), options);
    let error = client.write(create("demo"), Writing::Record).await.expect_err("no answer");
    assert!(matches!(error, Error::TimedOut { maybe_done: true, .. }), "{error:?}");
}

#[tokio::test]
async fn an_overloaded_node_is_asked_again() {
    let node = FakeNode::start().await;
    node.will([Reply::Fail(refusal(Code::ResourceExhausted, "OVERLOADED", &[]))]);
    client_of(&[&node]).get(Kind::Cluster, "demo", Reading::Linearizable).await.expect("found");
    node.will([Reply::Fail(refusal(Code::ResourceExhausted, "DISK_RESERVE", &[]))]);
    let error = client_of(&[&node]).write(create("demo"), Writing::Record).await.expect_err("refused");
    assert!(error.refusal().is_some(), "{error:?}");
}

#[tokio::test]
async fn a_list_is_read_page_by_page_to_its_end() {
    let node = FakeNode::start().await;
    node.will([Reply::Answer, Reply::Fail(Status::unavailable("between two pages")), Reply::Answer]);
    let listing = client_of(&[&node]).list(Kind::Cluster, Reading::Stale).await.expect("listed");
    assert_eq!(listing.resources, [support::cluster("a"), support::cluster("b")]);
    assert_eq!(node.seen().iter().map(|seen| seen.name.as_str()).collect::<Vec<_>>(), ["", "a", "a"]);
}
