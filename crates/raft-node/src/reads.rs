//! Reading the state: linearizable by default, stale on request, always from a fork.
//!
//! A linearizable read asks the leader, which makes sure of a majority first, up to which index it must see; then
//! it waits until this node has applied that much. So followers serve them too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use loadline_api::raft as wire;
use loadline_mutants::Mutant;
use loadline_state_machine::{Done, Hash, LogIndex, Refused, Request, State};
use openraft::ReadPolicy;
use tokio::time::Instant;

use crate::errors::ReadError;
use crate::node::Inner;
use crate::types::LogId;

/// How fresh a read must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// Everything that was answered before the read began is seen.
    #[default]
    Linearizable,
    /// Whatever this node has applied, at once, leader or not.
    Stale,
}

/// Lets reads that come in at the same time share one question to the leader.
///
/// A read may only use a question that was asked after it came in: an earlier one could miss what was acknowledged in
/// between. So whoever comes while a question is under way waits for the next one, together with everybody else.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Questions asked so far.
    asked: AtomicU64,
    /// Held while a question is under way: its number, and its answer.
    last: tokio::sync::Mutex<(u64, Option<LogIndex>)>,
}

impl Rounds {
    async fn share<A: Future<Output = Option<LogIndex>>>(&self, ask: impl FnOnce() -> A) -> Option<LogIndex> {
        let needed = self.asked.load(Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        if last.0 < needed {
            let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            *last = (number, ask().await);
        }
        last.1
    }
}

impl Inner {
    pub(crate) async fn read(&self, consistency: Consistency) -> Result<Arc<State>, ReadError> {
        if consistency == Consistency::Linearizable && !Mutant::ReadWithoutAsking.is_on() {
            let index = self.read_index().await?;
            self.wait_applied(index, self.config.timing.propose).await?;
        }
        Ok(self.published.state())
    }

    pub(crate) async fn rehearse(&self, request: &Request) -> Result<Result<Vec<Done>, Refused>, ReadError> {
        let state = self.read(Consistency::Linearizable).await?;
        Ok(loadline_state_machine::rehearse(&state, request, state.now()))
    }

    /// The index that a linearizable read must wait for.
    async fn read_index(&self) -> Result<LogIndex, ReadError> {
        let give_up = Instant::now() + self.config.timing.leader_wait;
        loop {
            if self.ended.is_cancelled() {
                return Err(if self.stopped_for_good() { ReadError::Stopped } else { ReadError::ShuttingDown });
            }
            if let Some(index) = self.rounds.share(|| self.read_index_once()).await {
                return Ok(index);
            }
            if Instant::now() >= give_up {
                return Err(ReadError::NoLeader);
            }
            self.leader_may_have_changed().await;
        }
    }

    async fn read_index_once(&self) -> Option<LogIndex> {
        let Some((running, leader, address)) = self.other_leader() else {
            return self.read_index_here().await.map(|read| LogIndex(read.index()));
        };
        let request = wire::ReadIndexRequest { envelope: Some(running.envelope(leader)) };
        let answer = self.links.read_index(&address, request).await.ok()?;
        Some(LogIndex(answer.read_log_id?.index))
    }

    /// The same, if this node leads and a majority confirms it.
    pub(crate) async fn read_index_here(&self) -> Option<LogId> {
        let running = self.running()?;
        let linearizer = running.raft.get_read_linearizer(ReadPolicy::ReadIndex).await.ok()?;
        Some(*linearizer.read_log_id().log_id())
    }

    /// Waits until this node has applied `index`.
    pub(crate) async fn wait_applied(&self, index: LogIndex, within: Duration) -> Result<(), ReadError> {
        let mut applied = self.published.watch_applied();
        let reached = tokio::time::timeout(within, applied.wait_for(|applied| *applied >= index));
        tokio::select! {
            biased;
            reached = reached => match reached {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(_)) => Err(ReadError::Stopped),
                Err(_) => Err(ReadError::Behind { within }),
            },
            () = self.ended.cancelled() => {
                Err(if self.stopped_for_good() { ReadError::Stopped } else { ReadError::ShuttingDown })
            }
        }
    }

    /// The chain hash at exactly this index, waiting for it to be applied if need be.
    pub(crate) async fn hash_at(&self, index: LogIndex, wait: Duration) -> Option<Hash> {
        self.wait_applied(index, wait).await.ok()?;
        if let Some(recent) = self.published.recent(index) {
            return Some(recent.hash);
        }
        let state = self.published.state();
        if let Some(hash) = state.hash_at(index) {
            return Some(hash);
        }
        self.storage.journal.hash_at(index.0).ok().flatten().map(Hash)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn reads_that_wait_share_a_question_and_none_uses_one_asked_before_it_came() {
        let rounds = Rounds::default();
        let asked = AtomicU64::new(0);
        let ask = || async { Some(LogIndex(asked.fetch_add(1, Ordering::SeqCst) + 1)) };
        let (answer, answered) = oneshot::channel::<()>();
        let first = rounds.share(|| async {
            answered.await.unwrap();
            ask().await
        });
        let later = async {
            // The first question is under way by now, so none of these may use its answer.
            let later = futures::future::join_all((0..10).map(|_| rounds.share(ask)));
            answer.send(()).unwrap();
            later.await
        };
        let (first, later) = tokio::join!(first, later);
        assert_eq!(first, Some(LogIndex(1)));
        assert_eq!(later, [Some(LogIndex(2)); 10]);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert_eq!(rounds.share(ask).await, Some(LogIndex(3)));
    }

    #[tokio::test]
    async fn a_question_that_is_given_up_leaves_the_others_waiting_for_their_own() {
        let rounds = Rounds::default();
        {
            let stuck = rounds.share(std::future::pending);
            tokio::pin!(stuck);
            assert!(futures::poll!(stuck.as_mut()).is_pending());
        }
        assert_eq!(rounds.share(|| async { Some(LogIndex(7)) }).await, Some(LogIndex(7)));
    }
}
