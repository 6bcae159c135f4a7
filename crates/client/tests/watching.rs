//! A watch goes on at another node where the last one stopped: nothing missing, nothing twice.

use std::time::Duration;

use crate::support::{FakeNode, WatchEnd, client_at, client_of, cluster, nobody, refusal};
use loadline_client::v1::watch_response::Body;
use loadline_client::v1::{Changes, ResourceChange, Snapshot, WatchResponse};
use loadline_client::{Error, Kind, Watch, WatchEvent, WatchOptions};
use tonic::{Code, Status};

fn snapshot(revision: u64, names: &[&str], complete: bool) -> WatchResponse {
    let resources = names.iter().map(|name| cluster(name)).collect();
    WatchResponse { revision, body: Some(Body::Snapshot(Snapshot { resources, complete })) }
}

fn change(revision: u64) -> WatchResponse {
    WatchResponse { revision, body: Some(Body::Changes(Changes { changes: changes(revision), time_ms: 1 })) }
}

fn changes(revision: u64) -> Vec<ResourceChange> {
    vec![ResourceChange { name: format!("clusters/at-{revision}"), resource: Some(cluster(&format!("at-{revision}"))) }]
}

fn progress(revision: u64) -> WatchResponse {
    WatchResponse { revision, body: Some(Body::Progress(true)) }
}

fn changed(revision: u64) -> WatchEvent {
    WatchEvent::Changes { revision, time_ms: 1, changes: changes(revision) }
}

fn options() -> WatchOptions {
    WatchOptions { kinds: vec![Kind::Cluster], progress_every: Duration::from_millis(200), ..Default::default() }
}

async fn take(watch: &mut Watch, count: usize) -> Vec<WatchEvent> {
    let mut events = Vec::new();
    while events.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
        events.push(next.unwrap_or_else(|_| panic!("only {events:?} came")).expect("an event"));
    }
    events
}

#[tokio::test]
async fn a_watch_resumes_at_the_revision_after_the_last_one_it_saw() {
    let (first, second) = (FakeNode::start().await, FakeNode::start().await);
    first.will_watch([snapshot(10, &["a"], true), change(11), change(14)], WatchEnd::Close);
    // The second node is behind the first: it repeats, and its first notice is of an earlier revision.
    second.will_watch([progress(9), change(14), change(15), progress(20)], WatchEnd::Fail(Status::unavailable("bye")));
    first.will_watch([change(21)], WatchEnd::Stay);
    let mut watch = client_of(&[&first, &second]).watch(options());
    let events = take(&mut watch, 6).await;
    let expected = [
        WatchEvent::Snapshot { revision: 10, resources: vec![cluster("a")] },
        changed(11),
        changed(14),
        changed(15),
        WatchEvent::Progress { revision: 20 },
        changed(21),
    ];
    assert_eq!(events, expected);
    assert_eq!(watch.resume_at(), 22);
    assert_eq!((first.watched_from(), second.watched_from()), (vec![0, 21], vec![15]));
}

#[tokio::test]
async fn a_snapshot_that_was_cut_off_is_not_seen_in_part() {
    let (first, second) = (FakeNode::start().await, FakeNode::start().await);
    first.will_watch([snapshot(10, &["a", "b"], false)], WatchEnd::Close);
    second.will_watch([snapshot(12, &["a"], false), snapshot(12, &["c"], true)], WatchEnd::Stay);
    let mut watch = client_of(&[&first, &second]).watch(options());
    let expected = WatchEvent::Snapshot { revision: 12, resources: vec![cluster("a"), cluster("c")] };
    assert_eq!(take(&mut watch, 1).await, [expected]);
}

#[tokio::test]
async fn a_cut_connection_is_resumed() {
    let node = FakeNode::start().await;
    node.will_watch([change(5)], WatchEnd::Stay);
    node.will_watch([change(6)], WatchEnd::Stay);
    let mut watch = client_at([node.endpoint(), nobody().await]).watch(WatchOptions { from_revision: 5, ..options() });
    assert_eq!(take(&mut watch, 1).await, [changed(5)]);
    node.cut();
    assert_eq!(take(&mut watch, 1).await, [changed(6)]);
    assert_eq!(node.watched_from(), [5, 6]);
}

#[tokio::test]
async fn a_node_that_falls_silent_is_left() {
    let (first, second) = (FakeNode::start().await, FakeNode::start().await);
    first.will_watch([change(5)], WatchEnd::Stay);
    second.will_watch([change(6)], WatchEnd::Stay);
    let mut watch = client_of(&[&first, &second]).watch(WatchOptions { from_revision: 5, ..options() });
    assert_eq!(take(&mut watch, 2).await, [changed(5), changed(6)]);
}

#[tokio::test]
async fn changes_that_one_node_no_longer_has_come_from_another() {
    let (first, second) = (FakeNode::start().await, FakeNode::start().await);
    let compacted = || WatchEnd::Fail(refusal(Code::OutOfRange, "REVISION_COMPACTED", &[("first", "40")]));
    first.will_watch([], compacted());
    second.will_watch([change(5)], WatchEnd::Stay);
    let mut watch = client_of(&[&first, &second]).watch(WatchOptions { from_revision: 5, ..options() });
    assert_eq!(take(&mut watch, 1).await, [changed(5)]);
}

#[tokio::test]
async fn changes_that_no_node_has_any_more_are_an_error_that_stays() {
    let (first, second) = (FakeNode::start().await, FakeNode::start().await);
    for node in [&first, &second] {
        node.will_watch([], WatchEnd::Fail(refusal(Code::OutOfRange, "REVISION_COMPACTED", &[("first", "40")])));
    }
    let mut watch = client_of(&[&first, &second]).watch(WatchOptions { from_revision: 5, ..options() });
    for _ in 0..2 {
        let error = watch.next().await.expect_err("compacted");
        assert_eq!(error, Error::Compacted { asked: 5, first: Some(40) });
    }
    assert_eq!((first.watched_from(), second.watched_from()), (vec![5], vec![5]));
}

#[tokio::test]
async fn a_node_that_is_away_may_still_have_what_the_others_have_not() {
    let (first, second) = (FakeNode::start().await, FakeNode::start().await);
    let compacted = || WatchEnd::Fail(refusal(Code::OutOfRange, "REVISION_COMPACTED", &[("first", "40")]));
    for _ in 0..3 {
        first.will_watch([], compacted());
        second.will_watch([], WatchEnd::Fail(Status::unavailable("starting")));
    }
    second.will_watch([change(5)], WatchEnd::Stay);
    let mut watch = client_of(&[&first, &second]).watch(WatchOptions { from_revision: 5, ..options() });
    assert_eq!(take(&mut watch, 1).await, [changed(5)]);
}

#[tokio::test]
async fn a_watch_that_was_refused_is_not_tried_elsewhere() {
    let (first, second) = (FakeNode::start().await, FakeNode::start().await);
    first.will_watch([], WatchEnd::Fail(refusal(Code::InvalidArgument, "UNKNOWN_KIND", &[])));
    let error = client_of(&[&first, &second]).watch(options()).next().await.expect_err("refused");
    assert_eq!(error.refusal().map(|refusal| refusal.reason.as_str()), Some("UNKNOWN_KIND"));
    assert!(second.watched_from().is_empty());
}

#[tokio::test]
async fn a_watch_gives_up_when_for_too_long_no_node_answers() {
    let options = WatchOptions { outage_max: Duration::from_millis(300), ..options() };
    let error = client_at([nobody().await]).watch(options).next().await.expect_err("nobody there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}
