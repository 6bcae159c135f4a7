//! Restoring a snapshot file: checked whole before anything is written, then proposed piece by piece.
//!
//! The pieces go through the log, so every node restores at the same index. Each step has a request id of its own, derived
//! from the caller's: a retry of the whole call, at any node, walks the same steps, gets the first answers, and restores
//! once.

use std::time::Duration;

use loadline_api::fields;
use loadline_api::v1::{RestoreSnapshotRequest, RestoreSnapshotResponse};
use loadline_log::snapshot;
use loadline_raft_node::ProposeError;
use loadline_state_machine::{
    Actor, Answer as Left, Blob, Command, Hash, RESTORE_BYTES_MAX, Receipt, Request, RequestId, State,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};
use tracing::{info, warn};

use super::errors::{self, Answer};
use crate::proposals::Proposals;

/// Bytes of the state in one step: well below what one request may take.
const STEP_BYTES: usize = 512 << 10;
/// A sender that sends nothing for this long is gone.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// A step is tried again for this long: a change of leader in the middle of a large restore should not end it.
const STEP_PATIENCE: Duration = Duration::from_secs(30);
const STEP_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Takes in one file at a time: each is held in memory while it is checked.
#[derive(Debug)]
pub(crate) struct Restores {
    proposals: Proposals,
    file_bytes_max: u64,
    one_at_a_time: Semaphore,
}

impl Restores {
    pub(crate) fn new(proposals: Proposals, file_bytes_max: u64) -> Restores {
        Restores { proposals, file_bytes_max, one_at_a_time: Semaphore::new(1) }
    }

    pub(super) async fn restore(
        &self,
        actor: Actor,
        mut messages: Streaming<RestoreSnapshotRequest>,
    ) -> Result<RestoreSnapshotResponse, Status> {
        let _alone = self.one_at_a_time.try_acquire().map_err(|_| {
            let message = "this node takes in another snapshot file already; try again when that is done";
            Answer::new(Code::Unavailable, "RESTORE_IN_PROGRESS", message).status()
        })?;
        let (id, file) = self.receive(&mut messages).await?;
        let state = tokio::task::spawn_blocking(move || check(&file)).await.map_err(|error| {
            Answer::new(Code::Internal, "RESTORE_FAILED", format!("the file could not be checked: {error}")).status()
        })??;
        info!(request = %id, bytes = state.len(), "restoring a snapshot file");
        self.propose_all(Steps { actor, id }, &state).await
    }

    async fn receive(&self, messages: &mut Streaming<RestoreSnapshotRequest>) -> Result<(RequestId, Vec<u8>), Status> {
        let mut file = Vec::new();
        let mut id = None;
        loop {
            let message = tokio::time::timeout(STALLED_AFTER, messages.message()).await.map_err(|_| {
                let message =
                    format!("nothing came for {STALLED_AFTER:?}; send the file again with the same request id");
                Answer::new(Code::DeadlineExceeded, "SENDER_STALLED", message).status()
            })??;
            let Some(message) = message else { break };
            if id.is_none() {
                id = Some(fields::request_id("request_id", &message.request_id).map_err(errors::invalid)?);
            }
            file.extend_from_slice(&message.data);
            if file.len() as u64 > self.file_bytes_max {
                let message = format!("the file is larger than {} bytes (limits.restore_max)", self.file_bytes_max);
                return Err(Answer::new(Code::InvalidArgument, "TOO_LARGE", message)
                    .with("bytes_max", &self.file_bytes_max)
                    .status());
            }
        }
        let id = id.ok_or_else(|| errors::invalid_field("request_id", "is required on the first message"))?;
        Ok((id, file))
    }

    async fn propose_all(&self, steps: Steps, state: &[u8]) -> Result<RestoreSnapshotResponse, Status> {
        let begin = Command::BeginRestore { bytes_total: state.len() as u64, hash: Hash::of(state) };
        let (left, _) = self.step(steps.request("begin", begin)).await?;
        let Left::Restoring { restore, .. } = left else { return Err(unexpected(&left)) };
        for (number, chunk) in state.chunks(STEP_BYTES).enumerate() {
            let offset = (number * STEP_BYTES) as u64;
            let command = Command::RestoreChunk { restore, offset, bytes: Blob::from(chunk.to_vec()) };
            self.step(steps.request(&format!("chunk at {offset}"), command)).await?;
        }
        let (left, receipt) = self.step(steps.request("finish", Command::FinishRestore { restore })).await?;
        let Left::Restored { incarnation, backup_index, backup_incarnation } = left else {
            return Err(unexpected(&left));
        };
        info!(revision = %receipt.index, incarnation, repeated = receipt.repeated, "the snapshot file is in place");
        Ok(RestoreSnapshotResponse {
            revision: receipt.index.0,
            incarnation,
            backup_revision: backup_index.0,
            backup_incarnation,
        })
    }

    /// Proposes one step until it is answered. Asking again is safe: the id is the same.
    async fn step(&self, request: Request) -> Result<(Left, Receipt), Status> {
        let give_up = Instant::now() + STEP_PATIENCE;
        loop {
            match self.proposals.propose(request.clone()).await {
                Ok(receipt) => {
                    let done = match &receipt.result {
                        Ok(done) => done,
                        Err(refused) => return Err(errors::rejected(&refused.rejection)),
                    };
                    let left = done.first().map_or(Left::Nothing, |done| done.answer.clone());
                    return Ok((left, receipt));
                }
                Err(error) if passes(&error) && Instant::now() < give_up => {
                    warn!(%error, "a step of a restore is tried again");
                    tokio::time::sleep(STEP_AGAIN_AFTER).await;
                }
                Err(error) => return Err(errors::propose(&error)),
            }
        }
    }
}

fn passes(error: &ProposeError) -> bool {
    matches!(error, ProposeError::NoLeader | ProposeError::Overloaded | ProposeError::Unknown { .. })
}

fn unexpected(left: &Left) -> Status {
    let message = format!("a step of the restore was answered with {left:?}; another version of Loadline may lead");
    Answer::new(Code::Internal, "RESTORE_FAILED", message).status()
}

/// The state inside a snapshot file, if the file is whole and this release can read it. Nothing is proposed otherwise.
fn check(file: &[u8]) -> Result<Vec<u8>, Status> {
    let wrong = |why: String| Answer::new(Code::InvalidArgument, "NOT_A_SNAPSHOT", why).status();
    let (meta, body) = snapshot::parse_bytes(file).map_err(|error| wrong(error.to_string()))?;
    let state =
        State::decode(&body).map_err(|error| wrong(format!("the state in the file cannot be read: {error}")))?;
    if state.hash() != Hash(meta.state_hash) {
        return Err(wrong("the state in the file is not the one that the file announces".to_owned()));
    }
    if body.len() as u64 > RESTORE_BYTES_MAX {
        let message =
            format!("the state in the file has {} bytes; at most {RESTORE_BYTES_MAX} can be restored", body.len());
        return Err(Answer::new(Code::InvalidArgument, "TOO_LARGE", message)
            .with("bytes_max", &RESTORE_BYTES_MAX)
            .status());
    }
    Ok(body)
}

/// The steps of one restore.
struct Steps {
    actor: Actor,
    id: RequestId,
}

impl Steps {
    fn request(&self, step: &str, command: Command) -> Request {
        Request { actor: self.actor.clone(), request_id: Some(derived(self.id, step)), commands: vec![command] }
    }
}

/// An id for one step: the time of the caller's id, which bounds how long it is remembered, and bits that follow from the
/// id and the step alone.
fn derived(id: RequestId, step: &str) -> RequestId {
    const TIME: u128 = !0 << 80;
    const VERSION_7: u128 = 7 << 76;
    const VARIANT: u128 = 0b10 << 62;
    const FIXED: u128 = TIME | (0xf << 76) | (0b11 << 62);
    let mut bits = [0; 16];
    bits.copy_from_slice(&Hash::of(format!("{id} {step}").as_bytes()).0[..16]);
    RequestId((id.0 & TIME) | VERSION_7 | VARIANT | (u128::from_be_bytes(bits) & !FIXED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_an_id_of_its_own_that_every_retry_finds_again() {
        let id: RequestId = "019a7f3e-1234-7000-8000-000000000001".parse().unwrap();
        let other: RequestId = "019a7f3e-1234-7000-8000-000000000002".parse().unwrap();
        let begin = derived(id, "begin");
        assert!(begin.is_v7());
        assert_eq!(begin.time(), id.time());
        assert_eq!(begin, derived(id, "begin"));
        assert_ne!(begin, derived(id, "finish"));
        assert_ne!(begin, derived(other, "begin"));
        assert_ne!(begin, id);
    }

    #[test]
    fn a_file_that_is_no_snapshot_is_refused_before_anything_is_proposed() {
        for file in [&b""[..], b"garbage", &[0; 4096]] {
            let status = check(file).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        }
    }
}
