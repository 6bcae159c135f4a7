//! Service `Audit`.

use std::time::Duration;

use loadline_api::v1::audit_client::AuditClient;
use loadline_api::v1::history_moment::Moment;
use loadline_api::v1::scaling_client::ScalingClient;
use loadline_api::v1::{self, ExportHistoryRequest, ExportHistoryResponse, HistoryMoment};
use loadline_audit::ExportFile;
use loadline_audit::verify::verify_file;
use tonic::{Code, Status};

use crate::common::{Node, create_cluster, options, refused, set};

fn at(moment: Moment) -> Option<HistoryMoment> {
    Some(HistoryMoment { moment: Some(moment) })
}

fn between(from: u64, to: u64) -> ExportHistoryRequest {
    ExportHistoryRequest { from: at(Moment::Index(from)), to: at(Moment::Index(to)), consistency: 0 }
}

/// An export, and every message that it came in.
async fn export(
    node: &Node,
    request: ExportHistoryRequest,
) -> Result<(tempfile::NamedTempFile, Vec<ExportHistoryResponse>), Status> {
    let mut stream = AuditClient::new(node.channel.clone()).export_history(request).await?.into_inner();
    let mut messages = Vec::new();
    while let Some(message) = stream.message().await? {
        messages.push(message);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = messages.iter().flat_map(|message| message.data.to_vec()).collect();
    std::fs::write(file.path(), bytes).unwrap();
    Ok((file, messages))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_a_node_is_exported_signed_and_replays_to_the_hash_of_the_node() {
    let node = Node::alone().await;
    for name in 0..50 {
        node.admin().create_cluster(create_cluster(&format!("c{name}"))).await.unwrap();
    }
    let status = node.status().await;
    let last = status.applied_index;
    for (request, first, last) in [
        (ExportHistoryRequest::default(), 1, last),
        (between(20, 30), 20, 30),
        (ExportHistoryRequest { to: at(Moment::TimeMs(status.time_ms)), ..Default::default() }, 1, last),
    ] {
        let (file, messages) = export(&node, request).await.unwrap();
        assert_eq!((messages[0].first_index, messages[0].last_index), (first, last));
        assert_eq!(messages.last().unwrap().entries, last - first + 1);
        let verdict = verify_file(file.path(), None, |_| {}).unwrap();
        assert!(verdict.is_valid(), "{verdict:?}");
        assert_eq!(verdict.replayed, last - first + 1);
        let head = verdict.head.unwrap();
        assert_eq!((head.group, head.node_id, head.node_name), (status.group.clone(), status.id, status.name.clone()));
        assert_eq!(head.public_key.map(|byte| format!("{byte:02x}")).concat(), status.public_key);
        if last == status.applied_index {
            assert_eq!(verdict.hash.unwrap().to_string(), status.state_hash);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_that_make_no_sense_are_refused() {
    let node = Node::alone().await;
    node.admin().set_setting(set("request_window", "20m")).await.unwrap();
    let refuse = async |request, code, reason, fields: &[&str]| {
        let answer = AuditClient::new(node.channel.clone()).export_history(request).await;
        refused(answer.map(|_| tonic::Response::new(())), code, reason, fields)
    };
    let from = |moment| ExportHistoryRequest { from: at(moment), ..Default::default() };
    let to = |moment| ExportHistoryRequest { to: at(moment), ..Default::default() };
    let invalid = (Code::InvalidArgument, "INVALID_REQUEST");
    refuse(from(Moment::Index(0)), invalid.0, invalid.1, &["from.index"]).await;
    refuse(to(Moment::TimeMs(-1)), invalid.0, invalid.1, &["to.time_ms"]).await;
    let neither = ExportHistoryRequest { from: Some(HistoryMoment { moment: None }), ..Default::default() };
    refuse(neither, invalid.0, invalid.1, &["from"]).await;
    refuse(to(Moment::Index(1_000)), Code::OutOfRange, "HISTORY_MISSING", &[]).await;
    refuse(between(3, 2), Code::NotFound, "NOTHING_TO_EXPORT", &[]).await;
    // Nothing has happened yet in 2100. (Before the first leader has stamped the time there is none, so 1970 has an entry.)
    refuse(from(Moment::TimeMs(4_102_444_800_000)), Code::NotFound, "NOTHING_TO_EXPORT", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_stays_the_same_over_a_restart() {
    let node = Node::alone().await;
    let before = node.status().await.public_key;
    let (ended, folder) = node.stop().await;
    ended.unwrap();
    let place = crate::common::Place { folder, ..crate::common::Place::new().await };
    let mut config = place.config("n1", &[&place.grpc]);
    config.tick_every = Duration::from_secs(60);
    let node = place.start(config);
    node.until_ready().await;
    assert_eq!(node.status().await.public_key, before);
    let (file, _) = export(&node, ExportHistoryRequest { consistency: 2, ..Default::default() }).await.unwrap();
    ExportFile::open(file.path()).unwrap();
}

/// Kinds and actors of what is found, the newest first.
async fn found(node: &Node, request: v1::SearchHistoryRequest) -> Vec<(String, String)> {
    let answer = AuditClient::new(node.channel.clone()).search_history(request).await.unwrap().into_inner();
    assert_eq!(answer.gaps, [], "it was there from the start");
    answer.rows.into_iter().map(|row| (row.kind, row.cluster)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_found_by_cluster_kind_and_time_and_conditions_intersect() {
    let node = Node::alone().await;
    node.admin().set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    for name in ["a", "b", "c"] {
        node.admin().create_cluster(create_cluster(name)).await.unwrap();
    }
    let pause = |cluster: &str| v1::PauseClusterRequest {
        options: options(),
        cluster: cluster.to_owned(),
        reason: "moving".to_owned(),
        ..Default::default()
    };
    let mut scaling = ScalingClient::new(node.channel.clone());
    let paused = scaling.pause_cluster(pause("b")).await.unwrap().into_inner().revision;
    scaling.pause_cluster(pause("c")).await.unwrap();
    let pair = |kind: &str, cluster: &str| (kind.to_owned(), cluster.to_owned());

    let of_b = v1::SearchHistoryRequest { cluster: "b".to_owned(), ..Default::default() };
    assert_eq!(found(&node, of_b.clone()).await, [pair("ClusterPaused", "b"), pair("ClusterCreated", "b")]);
    let kinds = vec!["PauseCluster".to_owned()];
    let both = v1::SearchHistoryRequest { kinds: kinds.clone(), ..of_b.clone() };
    assert_eq!(found(&node, both).await, [pair("ClusterPaused", "b")]);
    let pauses = v1::SearchHistoryRequest { kinds, page_size: 1, ..Default::default() };
    let mut audit = AuditClient::new(node.channel.clone());
    let first = audit.search_history(pauses.clone()).await.unwrap().into_inner();
    assert_eq!((first.rows.len(), first.rows[0].cluster.as_str()), (1, "c"));
    let next = v1::SearchHistoryRequest { page_token: first.next_page_token, ..pauses };
    let second = audit.search_history(next).await.unwrap().into_inner();
    assert_eq!((second.rows.len(), second.rows[0].log_index), (1, paused));
    assert!(!second.rows[0].request_id.is_empty() && !second.rows[0].source.is_empty(), "{second:?}");
    let later = v1::SearchHistoryRequest { since_ms: i64::MAX, ..of_b.clone() };
    assert_eq!(found(&node, later).await, []);

    let unknown = v1::SearchHistoryRequest { kinds: vec!["Nonsense".to_owned()], ..of_b.clone() };
    refused(audit.search_history(unknown).await, Code::InvalidArgument, "INVALID_REQUEST", &["kinds"]);
    let nowhere = v1::SearchHistoryRequest { cluster: "nowhere".to_owned(), ..of_b.clone() };
    refused(audit.search_history(nowhere).await, Code::NotFound, "NOT_FOUND", &[]);
    let token = v1::SearchHistoryRequest { page_token: "x".to_owned(), ..of_b };
    refused(audit.search_history(token).await, Code::InvalidArgument, "INVALID_REQUEST", &["page_token"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_explained_as_it_was_at_a_moment_of_the_past() {
    let node = Node::alone().await;
    node.admin().set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    let created = node.admin().create_cluster(create_cluster("demo")).await.unwrap().into_inner().revision;
    let mut scaling = ScalingClient::new(node.channel.clone());
    let pause = v1::PauseClusterRequest {
        options: options(),
        cluster: "demo".to_owned(),
        reason: "moving".to_owned(),
        ..Default::default()
    };
    let paused = scaling.pause_cluster(pause).await.unwrap().into_inner().revision;
    let at = |at_index| v1::ExplainRequest { name: "clusters/demo".to_owned(), at_index, ..Default::default() };
    let before = scaling.explain(at(created)).await.unwrap().into_inner();
    assert_eq!((before.pause, before.revision), (None, created));
    let then = scaling.explain(at(paused)).await.unwrap().into_inner();
    let fact = then.facts.iter().find(|fact| fact.topic == "pause").unwrap();
    assert_eq!((then.pause.unwrap().reason.as_str(), fact.log_index), ("moving", paused));
    refused(scaling.explain(at(created - 1)).await, Code::NotFound, "NOT_FOUND", &[]);
    refused(scaling.explain(at(1_000_000)).await, Code::OutOfRange, "NOT_YET", &[]);
    let twice = v1::ExplainRequest { at_time_ms: 1, ..at(1) };
    refused(scaling.explain(twice).await, Code::InvalidArgument, "INVALID_REQUEST", &["at_time_ms"]);
}
