//! Service `Audit`.

use std::time::Duration;

use loadline_api::v1::audit_client::AuditClient;
use loadline_api::v1::history_moment::Moment;
use loadline_api::v1::{ExportHistoryRequest, ExportHistoryResponse, HistoryMoment};
use loadline_audit::ExportFile;
use loadline_audit::verify::verify_file;
use tonic::{Code, Status};

use crate::common::{Node, create_cluster, refused, set};

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
    refuse(to(Moment::TimeMs(1)), Code::NotFound, "NOTHING_TO_EXPORT", &[]).await;
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
