//! Service `Watch`.

use std::time::Duration;

use loadline_api::v1::scaling_client::ScalingClient;
use loadline_api::v1::watch_response::Body;
use loadline_api::v1::{self, TransactRequest, WatchRequest, WatchResponse, change::Change};
use tonic::{Code, Streaming};

use crate::common::{Node, PATIENCE, create_cluster, create_size, delete, options, refused, set};

async fn next(stream: &mut Streaming<WatchResponse>) -> WatchResponse {
    tokio::time::timeout(PATIENCE, stream.message()).await.expect("a message comes").unwrap().expect("it goes on")
}

/// The next message that is not a progress notice: revision, and the names with `+` or `-`.
async fn next_changes(stream: &mut Streaming<WatchResponse>) -> (u64, Vec<String>) {
    loop {
        let message = next(stream).await;
        match message.body {
            Some(Body::Changes(changes)) => {
                let told = changes.changes.iter();
                let told =
                    told.map(|change| format!("{}{}", if change.resource.is_some() { '+' } else { '-' }, change.name));
                return (message.revision, told.collect());
            }
            Some(Body::Progress(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn open(node: &Node, request: WatchRequest) -> Streaming<WatchResponse> {
    node.watch().watch(request).await.unwrap().into_inner()
}

/// Names of the snapshot, in as many parts as it comes, and its revision.
async fn snapshot(stream: &mut Streaming<WatchResponse>) -> (u64, usize, usize) {
    let (mut parts, mut resources) = (0, 0);
    loop {
        let message = next(stream).await;
        let Some(Body::Snapshot(part)) = message.body else { panic!("{message:?}") };
        parts += 1;
        resources += part.resources.len();
        if part.complete {
            return (message.revision, parts, resources);
        }
    }
}

fn clusters(from_revision: u64) -> WatchRequest {
    WatchRequest { kinds: vec!["clusters".to_owned()], from_revision, ..WatchRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_what_is_there_then_every_change_and_only_what_was_asked_for() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    admin.create_cluster(create_cluster("a")).await.unwrap();
    admin.create_size(create_size("small", 2)).await.unwrap();
    let mut all = open(&node, WatchRequest::default()).await;
    let (revision, _, resources) = snapshot(&mut all).await;
    assert!(resources >= 7, "a cluster, a size and the settings: {resources}");
    let mut only_clusters = open(&node, clusters(0)).await;
    assert_eq!(snapshot(&mut only_clusters).await.2, 1);
    let one = WatchRequest { name: "clusters/b".to_owned(), ..WatchRequest::default() };
    let mut only_b = open(&node, one).await;
    assert_eq!(snapshot(&mut only_b).await.2, 0);

    let size = admin.create_size(create_size("big", 2)).await.unwrap().into_inner().revision;
    let b = admin.create_cluster(create_cluster("b")).await.unwrap().into_inner().revision;
    let rename = v1::RenameClusterRequest {
        options: options(),
        name: "a".to_owned(),
        new_name: "c".to_owned(),
        etag: String::new(),
    };
    let renamed = admin.rename_cluster(rename).await.unwrap().into_inner().revision;
    let setting = admin.set_setting(set("enable_auto_scaling", "true")).await.unwrap().into_inner().revision;
    let gone = admin.delete_cluster(delete("b")).await.unwrap().into_inner().revision;
    assert!(size > revision);

    let told = |revision, names: &[&str]| (revision, names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(next_changes(&mut all).await, told(size, &["+sizes/big"]));
    assert_eq!(next_changes(&mut all).await, told(b, &["+clusters/b"]));
    assert_eq!(next_changes(&mut all).await, told(renamed, &["-clusters/a", "+clusters/c"]));
    assert_eq!(next_changes(&mut all).await, told(setting, &["+settings/enable_auto_scaling"]));
    assert_eq!(next_changes(&mut all).await, told(gone, &["-clusters/b"]));
    assert_eq!(next_changes(&mut only_clusters).await, told(b, &["+clusters/b"]));
    assert_eq!(next_changes(&mut only_clusters).await, told(renamed, &["-clusters/a", "+clusters/c"]));
    assert_eq!(next_changes(&mut only_b).await, told(b, &["+clusters/b"]));
    assert_eq!(next_changes(&mut only_b).await, told(gone, &["-clusters/b"]));

    // Wherever a watcher stops, it goes on with no gap and no repeat.
    let mut resumed = open(&node, clusters(b + 1)).await;
    assert_eq!(next_changes(&mut resumed).await, told(renamed, &["-clusters/a", "+clusters/c"]));
    assert_eq!(next_changes(&mut resumed).await, told(gone, &["-clusters/b"]));
    let mut from_the_beginning = open(&node, clusters(1)).await;
    assert_eq!(next_changes(&mut from_the_beginning).await.1, ["+clusters/a"]);
}

/// Neither is an event about the cluster itself, and both change what a listing shows of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_and_another_default_backend_are_told_with_the_clusters_that_they_change() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let mut scaling = ScalingClient::new(node.channel.clone());
    admin.set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    admin.create_cluster(create_cluster("a")).await.unwrap();
    let placed = v1::Cluster { name: "b".to_owned(), backend: "own".to_owned(), ..v1::Cluster::default() };
    admin.create_cluster(v1::CreateClusterRequest { options: options(), cluster: Some(placed) }).await.unwrap();
    let mut stream = open(&node, clusters(0)).await;
    assert_eq!(snapshot(&mut stream).await.2, 2);
    let mut told = async || match next(&mut stream).await.body {
        Some(Body::Changes(changes)) => {
            let cluster = |change: v1::ResourceChange| match change.resource.and_then(|it| it.resource) {
                Some(v1::resource::Resource::Cluster(cluster)) => cluster,
                other => panic!("not a cluster: {other:?}"),
            };
            changes.changes.into_iter().map(cluster).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };

    admin.set_setting(set("default_backend", "elsewhere")).await.unwrap();
    let moved = told().await;
    assert_eq!(moved.len(), 1, "one names a backend of its own: {moved:?}");
    assert_eq!((moved[0].name.as_str(), moved[0].backend.as_str()), ("a", "elsewhere"));

    let pause = v1::PauseClusterRequest {
        options: options(),
        cluster: "b".to_owned(),
        reason: "maintenance".to_owned(),
        expires_in_ms: 3_600_000,
    };
    scaling.pause_cluster(pause).await.unwrap();
    let paused = told().await.remove(0);
    let (name, pause) = (paused.name, paused.pause.expect("it is paused"));
    assert_eq!((name.as_str(), pause.reason.as_str()), ("b", "maintenance"));
    assert_eq!(pause.expire_time_ms - pause.since_ms, 3_600_000);
    let resume = v1::ResumeClusterRequest { options: options(), cluster: "b".to_owned() };
    scaling.resume_cluster(resume).await.unwrap();
    assert_eq!(told().await.remove(0).pause, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_when_nothing_happens_and_the_watch_can_resume_there() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let mut stream = open(&node, WatchRequest { progress_interval_ms: 100, ..clusters(0) }).await;
    let (revision, _, _) = snapshot(&mut stream).await;
    let other = admin.create_size(create_size("small", 2)).await.unwrap().into_inner().revision;
    // Nothing that matches has happened, but the place moves on.
    loop {
        let message = next(&mut stream).await;
        assert!(message.revision >= revision, "{message:?}");
        assert_eq!(message.body, Some(Body::Progress(true)));
        if message.revision >= other {
            break;
        }
    }
    let mut resumed = open(&node, clusters(other + 1)).await;
    admin.create_cluster(create_cluster("a")).await.unwrap();
    assert_eq!(next_changes(&mut resumed).await.1, ["+clusters/a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_watcher_misses_nothing() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let mut stream = open(&node, clusters(0)).await;
    let (mut last, _, _) = snapshot(&mut stream).await;
    // More than the messages that wait for it, before it takes the first.
    for number in 0..200 {
        admin.create_cluster(create_cluster(&format!("c{number}"))).await.unwrap();
    }
    for number in 0..200 {
        let (revision, names) = next_changes(&mut stream).await;
        assert_eq!(names, [format!("+clusters/c{number}")]);
        assert!(revision > last);
        last = revision;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_snapshot_comes_in_parts_at_one_revision() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    let many = (0..1_000).map(|number| Change::CreateCluster(create_cluster(&format!("c{number:04}"))));
    let changes = many.map(|change| v1::Change { change: Some(change) }).collect();
    admin.transact(TransactRequest { options: options(), changes }).await.unwrap();
    let mut stream = open(&node, clusters(0)).await;
    let (_, parts, resources) = snapshot(&mut stream).await;
    assert_eq!(resources, 1_000);
    assert!(parts >= 2, "{parts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_does_not_fit_a_message_ends_the_watch_with_a_way_on() {
    let node = Node::alone_with(|config| {
        config.limits.message_in_max = 60 << 10;
        config.limits.message_out_max = 64 << 10;
    })
    .await;
    let mut admin = node.admin();
    let mut stream = open(&node, clusters(0)).await;
    snapshot(&mut stream).await;
    let many = (0..1_000).map(|number| {
        Change::CreateCluster(v1::CreateClusterRequest {
            options: None,
            ..create_cluster(&format!("a-cluster-with-a-long-name-{number:04}"))
        })
    });
    let changes = many.map(|change| v1::Change { change: Some(change) }).collect();
    // The answer is too large as well, but it is recorded.
    let _ = admin.transact(TransactRequest { options: options(), changes }).await;
    let ended = tokio::time::timeout(PATIENCE, stream.message()).await.unwrap();
    refused(ended.map(tonic::Response::new), Code::OutOfRange, "REVISION_COMPACTED", &[]);
    let mut again = open(&node, clusters(0)).await;
    assert_eq!(snapshot(&mut again).await.2, 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_makes_no_sense_is_refused() {
    let node = Node::alone().await;
    let mut watch = node.watch();
    let invalid = Code::InvalidArgument;
    let kinds = WatchRequest { kinds: vec!["clusters".to_owned(), "pods".to_owned()], ..WatchRequest::default() };
    refused(watch.watch(kinds).await, invalid, "INVALID_REQUEST", &["kinds[1]"]);
    let name = WatchRequest { name: "demo".to_owned(), ..WatchRequest::default() };
    refused(watch.watch(name).await, invalid, "INVALID_REQUEST", &["name"]);
    let both =
        WatchRequest { kinds: vec!["sizes".to_owned()], name: "clusters/a".to_owned(), ..WatchRequest::default() };
    refused(watch.watch(both).await, invalid, "INVALID_REQUEST", &["name"]);
    let status = refused(watch.watch(clusters(1 << 40)).await, Code::OutOfRange, "REVISION_AHEAD", &[]);
    assert!(status.message().contains("watch again without it"), "{}", status.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_are_sent_away_when_the_node_ends() {
    let node = Node::alone().await;
    let mut stream = open(&node, clusters(0)).await;
    snapshot(&mut stream).await;
    let watching = tokio::spawn(async move {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                ended => return ended,
            }
        }
    });
    let (ended, _folder) = node.stop().await;
    ended.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(10), watching).await.unwrap().unwrap();
    refused(told.map(tonic::Response::new), Code::Unavailable, "SHUTTING_DOWN", &[]);
}
