//! Takes in a snapshot from the leader.
//!
//! It goes to a file of its own first, and is read and checked as a whole before Raft hears of it: a transfer that
//! was cut off or damaged leaves nothing behind. A newer transfer ends an older one, whose sender may be gone.

use std::sync::Arc;

use loadline_api::raft as wire;
use openraft::Snapshot;
use tonic::{Status, Streaming};

use super::convert;
use super::service::{failed, refuse, sender};
use crate::errors::Malformed;
use crate::node::{Inner, Running};
use crate::storage::snapshot::{self, SnapshotData};
use crate::storage::{causes, io_error};

pub(super) async fn receive(
    inner: &Arc<Inner>,
    running: &Running,
    mut chunks: Streaming<wire::SnapshotChunk>,
) -> Result<wire::SnapshotReply, Status> {
    let refuse = |malformed: Malformed| refuse(inner, &malformed);
    let mut newer = inner.receiving.subscribe();
    inner.receiving.send_modify(|count| *count += 1);
    newer.mark_unchanged();

    let stalled_after = inner.config.timing.install_snapshot;
    let mut next = async || {
        tokio::select! {
            biased;
            _ = newer.changed() => Err(Status::aborted("another snapshot is coming in")),
            () = inner.ended.cancelled() => Err(Status::unavailable("this node is shutting down")),
            chunk = tokio::time::timeout(stalled_after, chunks.message()) => match chunk {
                Ok(Ok(chunk)) => Ok(chunk.and_then(|chunk| chunk.part)),
                Ok(Err(status)) => Err(Status::invalid_argument(status.message().to_owned())),
                Err(_) => Err(Status::deadline_exceeded(format!("nothing came for {stalled_after:?}"))),
            },
        }
    };

    let Some(wire::snapshot_chunk::Part::Head(mut head)) = next().await? else {
        return Err(refuse(Malformed::Missing("head of a snapshot")));
    };
    let from = sender(running, head.envelope.take()).map_err(refuse)?;
    let vote = convert::vote_in(head.vote).map_err(refuse)?;
    if !vote.committed || vote.leader_id.voted_for != from {
        return Err(refuse(Malformed::wrong("vote", format!("node {from} cannot send a snapshot for {vote}"))));
    }
    let announced = head.meta.ok_or(Malformed::Missing("meta of a snapshot")).and_then(convert::snapshot_meta_in);
    let announced = announced.map_err(refuse)?;
    if let Some(space) = inner.reserve.low() {
        return Err(Status::resource_exhausted(format!(
            "{} bytes of disk are free, {} are kept back",
            space.free, space.reserve
        )));
    }

    let broken = |error: loadline_log::SnapshotError| {
        tracing::warn!("a snapshot could not be taken in: {}", causes(&error));
        Status::invalid_argument(causes(&error))
    };
    let mut receiver = inner.storage.snapshots.receive().map_err(broken)?;
    let mut bytes = 0;
    while let Some(part) = next().await? {
        let wire::snapshot_chunk::Part::Data(data) = part else {
            return Err(refuse(Malformed::wrong("snapshot", "a second head")));
        };
        bytes += data.len() as u64;
        if bytes > head.bytes_total {
            break;
        }
        receiver.write_chunk(&data).map_err(broken)?;
    }
    if bytes != head.bytes_total {
        let wrong = format!("{bytes} bytes came where {} were announced", head.bytes_total);
        return Err(refuse(Malformed::wrong("snapshot", wrong)));
    }

    let group = running.identity.group.clone();
    let (expected, storage) = (announced.clone(), inner.storage.clone());
    let (file, state) = inner
        .storage
        .off_thread(move || {
            // Looked at as a whole before it gets a place among our own: there it would count as this node's state.
            let (meta, body) = receiver.check().map_err(|error| io_error(&error))?;
            if meta.group != group || snapshot::meta(&meta).map_err(|error| io_error(&error))? != expected {
                return Err(std::io::Error::other("the file is not the one that was announced"));
            }
            let state = snapshot::decode(&meta, &body, &storage)?;
            let file = receiver.finish().map_err(|error| io_error(&error))?;
            Ok((file, state))
        })
        .await
        .map_err(|error| refuse(Malformed::wrong("snapshot", error.to_string())))?;
    let snapshot = Snapshot { meta: announced, snapshot: SnapshotData { file, state: Some(state) } };
    let answer = running.raft.install_full_snapshot(vote, snapshot).await.map_err(|fatal| failed(&fatal))?;
    Ok(wire::SnapshotReply { vote: Some(convert::vote_out(&answer.vote)) })
}
