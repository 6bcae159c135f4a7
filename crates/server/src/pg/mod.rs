//! SQL over PostgreSQL's own protocol: psql and every driver can ask, on any node; what is written goes to the leader.
//!
//! - here: the door, which counts connections, and the handlers that every connection shares;
//! - `login` is who may come in, `session` what a connection remembers, `cancel` how one ends what another asked;
//! - `statements` carries one statement out, over the tables of `loadline-sql`; `past` reads what is over from the journal;
//! - `wire` turns values and errors into bytes.
//!
//! Not here: what the statements and tables are (`loadline-sql`), and what they mean (`loadline-state-machine`).

mod cancel;
mod handlers;
mod login;
mod past;
mod session;
mod statements;
mod wire;
mod writing;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use loadline_raft_node::{Consistency, Node};
use loadline_sql::tables::Limits as AnswerLimits;
use loadline_sql::{SqlError, SqlState, Statement};
use loadline_state_machine::State;
use pgwire::tokio::process_socket;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::config::ServerConfig;
use crate::grpc::errors;
use crate::grpc::guard::Guard;
use crate::proposals::Proposals;
use crate::travel::Travel;
use cancel::Cancelling;
use handlers::Handlers;
use past::JournalPast;

/// How long the door waits after the kernel refused it a connection, as when it is out of files: at once would be a hot loop.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// How long somebody who logs in waits for a leader to say which passwords there are.
const LEADER_PATIENCE: Duration = Duration::from_secs(2);

/// What every connection shares.
#[derive(Debug)]
pub(crate) struct Sql {
    node: Node,
    proposals: Proposals,
    guard: Guard,
    past: Arc<JournalPast>,
    travel: Arc<Travel>,
    cancelling: Arc<Cancelling>,
    /// Statements that are carried out at once: each has a thread, and a good share of memory.
    statements: Arc<Semaphore>,
    statements_max: u32,
    connections: Arc<Semaphore>,
    statement_timeout: Duration,
    answer: AnswerLimits,
    address: Option<SocketAddr>,
}

impl Sql {
    pub(crate) fn new(
        node: Node,
        proposals: Proposals,
        config: &ServerConfig,
        guard: Guard,
        address: Option<SocketAddr>,
        travel: Arc<Travel>,
    ) -> Arc<Sql> {
        let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let limits = &config.limits;
        Arc::new(Sql {
            past: Arc::new(JournalPast::new(node.clone())),
            travel,
            node,
            proposals,
            guard,
            cancelling: Arc::default(),
            statements: Arc::new(Semaphore::new(count(limits.pg_statements_max))),
            statements_max: u32::try_from(limits.pg_statements_max).unwrap_or(u32::MAX),
            connections: Arc::new(Semaphore::new(count(limits.pg_connections_max))),
            statement_timeout: limits.pg_statement_timeout,
            answer: AnswerLimits { rows_max: count(limits.pg_rows_max), ..AnswerLimits::default() },
            address,
        })
    }

    /// The state that says who may come in. A password that was set a moment ago at another node counts here, too; without a
    /// leader what this node knows has to do, or nobody could look at a group that is in trouble.
    async fn who_is_who(&self, from: IpAddr) -> Arc<State> {
        if self.guard.trusts(from) {
            return self.node.latest();
        }
        // For everybody alike: what takes longer for a name that is unknown here would say that it is.
        let reading = Box::pin(self.node.read(Consistency::Linearizable));
        match tokio::time::timeout(LEADER_PATIENCE, reading).await {
            Ok(Ok(state)) => state,
            Ok(Err(_)) | Err(_) => self.node.latest(),
        }
    }

    /// Roles mean nothing if whoever reaches this node can speak as another one.
    fn closing_is_safe(&self, statement: &Statement) -> Result<(), SqlError> {
        if !matches!(statement, Statement::CreateRole(_) | Statement::AlterRole(_))
            || self.guard.peers_prove_themselves()
        {
            return Ok(());
        }
        Err(SqlError::new(SqlState("55000"), errors::peer_secret_missing().message()))
    }

    /// Takes connections until it is told to stop, then lets the statements under way finish.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => {
                    connections.spawn(Arc::clone(&self).connection(socket, peer, stop.clone()));
                }
                Err(error) => {
                    warn!("a SQL connection was not taken: {error}");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
        drop(listener);
        connections.close();
        connections.wait().await;
        Ok(())
    }

    async fn connection(self: Arc<Self>, socket: TcpStream, peer: SocketAddr, stop: CancellationToken) {
        // Small answers to small questions: waiting to fill a packet would only make them late.
        let _ = socket.set_nodelay(true);
        let place: Option<OwnedSemaphorePermit> = Arc::clone(&self.connections).try_acquire_owned().ok();
        let handlers = Handlers::new(Arc::clone(&self), place.is_some(), stop.clone());
        let ended = tokio::select! {
            ended = process_socket(socket, None, Arc::new(handlers)) => ended,
            () = idle_after(&stop, &self) => Ok(()),
        };
        if let Err(error) = ended {
            debug!(%peer, "a SQL connection ended: {error}");
        }
    }
}

/// Resolves when the node stops and no statement is under way any more: an idle connection is not waited for.
async fn idle_after(stop: &CancellationToken, sql: &Sql) {
    stop.cancelled().await;
    // Every place is taken once: whoever was inside has left.
    if let Ok(taken) = sql.statements.acquire_many(sql.statements_max).await {
        // Given back at once, so that the other connections see the same.
        drop(taken);
    }
    // What the last statement answered is still on its way out.
    tokio::time::sleep(Duration::from_millis(50)).await;
}
