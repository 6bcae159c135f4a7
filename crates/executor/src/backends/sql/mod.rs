//! A backend that is a database which speaks PostgreSQL's protocol: replicas are made and dropped by statements.
//!
//! [`Sql`] looks before it acts: what is there decides whether the statement is still needed, and whether the life that an order is
//! about is the one that has the name now. With a [`ledger`] in the same database it does so in one transaction, once per key, and
//! fences; without one it says that it cannot. `docs/backends/sql.md` is for those who configure it.

mod config;
mod failure;
mod ledger;
mod rows;
mod session;
mod template;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loadline_state_machine::{Call, DrainResult, Epoch, Report};
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::config::SslMode;

pub use self::config::{SqlConfig, SqlTls};

use self::config::Templates;
use self::failure::{Stage, judge};
use self::ledger::{Ledger, Turn};
use self::rows::{Managed, Seen};
use self::session::Sessions;
use self::template::{Template, incarnation};
use super::settings::{ConfigError, Secret};
use super::tls;
use crate::{Answering, Backend, CallError, Capabilities, ClusterAddress, Found, ObservedReplica, Order};

const CALLS_MAX_DEFAULT: usize = 4;

/// Without a ledger, what was done may be seen late: other sessions, and other nodes of the database, may lag behind.
const VISIBILITY_DELAY_DEFAULT: Duration = Duration::from_secs(2);

/// How long to wait before looking again for what a statement has done.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Replicas that a database makes.
#[derive(Debug)]
pub struct Sql {
    config: SqlConfig,
    templates: Templates,
    sessions: Sessions,
    ledger: Option<Ledger>,
    /// The tables of the ledger are there.
    prepared: AtomicBool,
}

/// What looking before acting came to.
enum Before {
    /// There is nothing left to do.
    Settled(Report),
    Refused(String),
    Needed,
}

impl Sql {
    /// Connects to nobody yet: a database that is down must not keep a node from starting.
    pub fn new(config: SqlConfig, password: Option<&Secret>) -> Result<Self, ConfigError> {
        config.check()?;
        let mut connection = config.connection()?;
        if let Some(password) = password {
            connection.password(password.reveal());
        }
        let tls = match connection.get_ssl_mode() {
            SslMode::Require => Some(tls::client(config.ca_file.as_deref())?),
            _ => None,
        };
        let ledger = config.ledger_name()?.map(|name| Ledger::new(&name, config.ledger_keep.as_secs()));
        let templates = config.templates()?;
        let sessions = Sessions::new(connection, tls);
        Ok(Self { config, templates, sessions, ledger, prepared: AtomicBool::new(false) })
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.call_deadline
    }

    /// The statement of a call. Nothing for a step that this database does not know.
    fn statement(&self, call: &Call) -> Option<&Template> {
        match call {
            Call::CreateReplica(_) => Some(&self.templates.create),
            Call::DropReplica(_) => Some(&self.templates.drop),
            Call::CordonReplica(_) => self.templates.cordon.as_ref(),
            Call::DrainReplica(_) => self.templates.drain.as_ref(),
            Call::UncordonReplica(_) => self.templates.uncordon.as_ref(),
            Call::CheckpointReplica(_) => self.templates.checkpoint.as_ref(),
        }
    }

    /// Runs a question that changes nothing, on a connection of its own, within the deadline.
    async fn ask<T>(&self, question: impl AsyncFnOnce(&Client) -> Result<T, CallError>) -> Result<T, CallError> {
        let until = self.deadline();
        let asking = async {
            let client = self.sessions.begin(until).await?;
            let answer = question(&client).await?;
            self.sessions.keep(client);
            Ok(answer)
        };
        tokio::time::timeout_at(until, asking).await.unwrap_or_else(|_| Err(too_late()))
    }

    async fn prepare(&self, ledger: &Ledger, client: &Client) -> Result<(), CallError> {
        if !self.prepared.load(Ordering::Relaxed) {
            ledger.prepare(client).await?;
            self.prepared.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn carry_out(&self, order: &Order) -> Result<Report, CallError> {
        let until = self.deadline();
        // Whether something was sent that may change something.
        let sent = AtomicBool::new(false);
        let carrying_out = async {
            let client = self.sessions.begin(until).await?;
            let outcome = match &self.ledger {
                Some(ledger) => self.in_transaction(ledger, &client, order, until, &sent).await,
                None => self.alone(&client, order, until, &sent).await,
            };
            // One that failed in the middle of a transaction is closed, which rolls it back.
            if outcome.is_ok() {
                self.sessions.keep(client);
            }
            outcome
        };
        match tokio::time::timeout_at(until, carrying_out).await {
            Ok(outcome) => outcome,
            Err(_) if sent.load(Ordering::Relaxed) => Err(too_late()),
            Err(_) => {
                let reason = "no connection before the deadline; nothing was sent".to_owned();
                Err(CallError::Refused { retryable: true, reason })
            }
        }
    }

    /// Row and effect exist together or not at all.
    async fn in_transaction(
        &self,
        ledger: &Ledger,
        client: &Client,
        order: &Order,
        until: Instant,
        sent: &AtomicBool,
    ) -> Result<Report, CallError> {
        self.prepare(ledger, client).await?;
        sent.store(true, Ordering::Relaxed);
        match ledger.open(client, order).await? {
            Turn::Known(outcome) => {
                roll_back(client).await?;
                return outcome;
            }
            Turn::Ours => {}
        }
        let done = match self.look(client, order).await.map(|seen| self.before(order, seen.as_ref()))? {
            Before::Settled(report) => Ok(report),
            Before::Refused(reason) => Err(CallError::Refused { retryable: false, reason }),
            Before::Needed => self.change(client, order, Stage::InTransaction).await,
        };
        match done {
            Ok(report) => ledger.enter(client, order, &report, until).await.map(|()| report),
            Err(CallError::Refused { retryable: false, reason }) => {
                roll_back(client).await?;
                if let Err(error) = ledger.enter_refusal(client, order, &reason).await {
                    tracing::debug!(key = order.key, %error, "a refusal could not be entered in the ledger");
                }
                Err(CallError::Refused { retryable: false, reason })
            }
            Err(error) => Err(error),
        }
    }

    /// There is nothing but the statement, and what can be seen before and after.
    async fn alone(
        &self,
        client: &Client,
        order: &Order,
        until: Instant,
        sent: &AtomicBool,
    ) -> Result<Report, CallError> {
        match self.look(client, order).await.map(|seen| self.before(order, seen.as_ref()))? {
            Before::Settled(report) => Ok(report),
            Before::Refused(reason) => Err(CallError::Refused { retryable: false, reason }),
            Before::Needed => {
                // Asked again, and not left to the timer: a process that was stopped while it looked goes on here before any timer
                // is read. The statement gets what time is left, not what there was when the call began.
                session::limit(client, until).await.map_err(|error| judge(&error, Stage::Before))?;
                if until <= Instant::now() {
                    let reason = "the time was over before the statement was sent".to_owned();
                    return Err(CallError::Refused { retryable: true, reason });
                }
                sent.store(true, Ordering::Relaxed);
                self.change(client, order, Stage::Alone).await
            }
        }
    }

    /// Runs the statement, and makes sure that its effect is there.
    async fn change(&self, client: &Client, order: &Order, stage: Stage) -> Result<Report, CallError> {
        let Some(template) = self.statement(&order.call) else { return Ok(Report::Nothing) };
        let statement = template.for_order(order).map_err(refused)?;
        if let Some(managed) = self.managed(client, order).await? {
            return Err(refused(refusal(order, &managed)));
        }
        let answered = client.simple_query(&statement).await.map_err(|error| judge(&error, stage))?;
        match &order.call {
            Call::DrainReplica(_) => {
                let drained = rows::drained(&answered).map_err(refused)?;
                Ok(drained.map_or(Report::Nothing, |(moved, left)| Report::Drained(DrainResult { moved, left })))
            }
            Call::CordonReplica(_) | Call::UncordonReplica(_) | Call::CheckpointReplica(_) => Ok(Report::Nothing),
            Call::CreateReplica(_) | Call::DropReplica(_) => loop {
                let seen = self.look(client, order).await;
                // From here on, a question that fails leaves open what the statement did.
                let seen = match (seen, stage) {
                    (Err(CallError::Refused { reason, .. }), Stage::Alone) => {
                        return Err(CallError::Unknown { reason });
                    }
                    (seen, _) => seen?,
                };
                if let Some(report) = effect(order, seen.as_ref()) {
                    return Ok(report);
                }
                if stage == Stage::InTransaction {
                    let reason = format!("the statement was carried out, and its effect is not there: {}", order.call);
                    return Err(CallError::Refused { retryable: false, reason });
                }
                // It may take a moment to be seen; the deadline ends this.
                tokio::time::sleep(LOOK_AGAIN).await;
            },
        }
    }

    /// Whether the cluster's replicas are the database's own affair. Asked before each statement, because that can be changed there
    /// at any time.
    async fn managed(&self, client: &Client, order: &Order) -> Result<Option<Managed>, CallError> {
        let makes_or_drops = matches!(order.call, Call::CreateReplica(_) | Call::DropReplica(_));
        let Some(query) = self.templates.managed.as_ref().filter(|_| makes_or_drops) else { return Ok(None) };
        let query = query.for_cluster(&order.cluster).map_err(refused)?;
        let messages = client.simple_query(&query).await.map_err(|error| judge(&error, Stage::Before))?;
        rows::managed(&messages).map_err(refused)
    }

    /// The replica that has the name that an order is about.
    async fn look(&self, client: &Client, order: &Order) -> Result<Option<Seen>, CallError> {
        let name = order.call.replica();
        let (query, only) = match &self.templates.verify {
            Some(verify) => (verify.for_order(order).map_err(refused)?, Some(&**name)),
            None => (self.templates.observe.for_cluster(&order.cluster).map_err(refused)?, None),
        };
        let messages = client.simple_query(&query).await.map_err(|error| judge(&error, Stage::Before))?;
        let seen = rows::replicas(&messages, only).map_err(refused)?;
        Ok(seen.into_iter().find(|seen| seen.replica.name == **name))
    }

    /// Whether what is there leaves anything to do.
    fn before(&self, order: &Order, seen: Option<&Seen>) -> Before {
        match (&order.call, seen) {
            // Unlike the other steps it does not count as done: something would be dropped that was to be kept.
            (Call::CheckpointReplica(_), _) if self.templates.checkpoint.is_none() => {
                Before::Refused("this backend has no statement for checkpoints any more".to_owned())
            }
            (Call::CreateReplica(_), None) => Before::Needed,
            (Call::CreateReplica(_), Some(there)) => match self.made_by(order, there) {
                true => Before::Settled(Report::Created { incarnation: there.replica.incarnation.clone() }),
                false => Before::Refused(format!(
                    "there is a replica {} already, of size {}, which this order did not make",
                    there.replica.name, there.replica.size
                )),
            },
            (Call::DropReplica(_), seen) => match seen.is_some_and(|seen| is_meant(order, seen)) {
                true => Before::Needed,
                // Gone is what was asked for. Another life that has the name by now is none of this order's business.
                false => Before::Settled(Report::Nothing),
            },
            (_, Some(there)) if is_meant(order, there) => Before::Needed,
            (call, _) => Before::Refused(format!("the replica {} that is meant is gone", call.replica())),
        }
    }

    /// Whether an order may take a replica for its own work. Where the catalog shows keys, by the key; with a ledger, what this order
    /// made is in the ledger; else a replica of the same name and size is as good as the one that was asked for.
    fn made_by(&self, order: &Order, there: &Seen) -> bool {
        match &there.key {
            Some(key) => *key == order.key,
            None => self.ledger.is_none() && there.replica.size == **order.call.size(),
        }
    }

    /// Without a ledger, only what is there can tell what has become of an order.
    async fn guess(&self, client: &Client, order: &Order) -> Result<Found, CallError> {
        if self.statement(&order.call).is_none() && !matches!(order.call, Call::CheckpointReplica(_)) {
            return Ok(Found::Done(Report::Nothing));
        }
        let seen = self.look(client, order).await?;
        Ok(match (&order.call, seen) {
            (Call::CreateReplica(_), Some(there)) if self.made_by(order, &there) => {
                Found::Done(Report::Created { incarnation: there.replica.incarnation })
            }
            (Call::DropReplica(_), seen) if !seen.as_ref().is_some_and(|seen| is_meant(order, seen)) => {
                Found::Done(Report::Nothing)
            }
            _ => Found::NotSeen,
        })
    }
}

impl Backend for Sql {
    fn capabilities(&self) -> Capabilities {
        let (fences, visible) = match self.ledger {
            Some(_) => (true, Duration::ZERO),
            None => (false, VISIBILITY_DELAY_DEFAULT),
        };
        Capabilities {
            fences,
            visibility_delay: self.config.visibility_delay.unwrap_or(visible),
            call_deadline: self.config.call_deadline,
            calls_max: self.config.calls_max.unwrap_or(CALLS_MAX_DEFAULT),
            observe_every: self.config.observe_every,
            checkpoints: self.templates.checkpoint.is_some(),
        }
    }

    fn fence(&self, epoch: Epoch) -> Answering<'_, ()> {
        Box::pin(async move {
            let Some(ledger) = &self.ledger else { return Ok(()) };
            self.ask(async |client| {
                self.prepare(ledger, client).await?;
                ledger.fence(client, epoch).await?;
                if let Err(error) = ledger.forget(client).await {
                    // The fence stands; the table only grows a little longer.
                    tracing::warn!(%error, "old orders could not be taken out of the ledger");
                }
                Ok(())
            })
            .await
        })
    }

    fn execute<'a>(&'a self, order: &'a Order) -> Answering<'a, Report> {
        Box::pin(self.carry_out(order))
    }

    fn find<'a>(&'a self, order: &'a Order) -> Answering<'a, Found> {
        Box::pin(self.ask(async |client| match &self.ledger {
            Some(ledger) => {
                self.prepare(ledger, client).await?;
                ledger.find(client, order).await
            }
            None => self.guess(client, order).await,
        }))
    }

    fn observe<'a>(&'a self, cluster: &'a ClusterAddress) -> Answering<'a, Vec<ObservedReplica>> {
        Box::pin(self.ask(async |client| {
            let query = self.templates.observe.for_cluster(cluster).map_err(refused)?;
            let messages = client.simple_query(&query).await.map_err(|error| judge(&error, Stage::Before))?;
            let seen = rows::replicas(&messages, None).map_err(refused)?;
            Ok(seen.into_iter().map(|seen| seen.replica).collect())
        }))
    }
}

/// Whether the replica that has the name is the life that the order is about.
fn is_meant(order: &Order, there: &Seen) -> bool {
    incarnation(&order.call).is_none_or(|meant| there.replica.incarnation.as_deref() == Some(meant))
}

/// What a statement came to, if it can be seen.
fn effect(order: &Order, seen: Option<&Seen>) -> Option<Report> {
    match (&order.call, seen) {
        (Call::CreateReplica(_), Some(there)) => {
            Some(Report::Created { incarnation: there.replica.incarnation.clone() })
        }
        (Call::DropReplica(_), seen) if !seen.is_some_and(|seen| is_meant(order, seen)) => Some(Report::Nothing),
        _ => None,
    }
}

/// Why nothing is made or dropped in a cluster that its database manages, and what would help.
fn refusal(order: &Order, managed: &Managed) -> String {
    let cluster = &order.cluster.name;
    let size = managed.size.as_deref().map(|size| format!(" of size {size}")).unwrap_or_default();
    let has = managed.replicas.map(|count| format!(", with {count} replicas{size}")).unwrap_or_default();
    format!(
        "cluster {cluster} is managed by its database{has}: single replicas can be neither made nor dropped there. Make it unmanaged \
         (ALTER CLUSTER ... SET (MANAGED = false)), or leave it to the database and drop its strategies"
    )
}

async fn roll_back(client: &Client) -> Result<(), CallError> {
    client.batch_execute("ROLLBACK").await.map_err(|error| judge(&error, Stage::InTransaction))
}

/// A fault of the configuration or of a name: the same again would be no better.
fn refused(problem: impl Into<String>) -> CallError {
    CallError::Refused { retryable: false, reason: problem.into() }
}

fn too_late() -> CallError {
    CallError::Unknown { reason: "no answer before the deadline".to_owned() }
}
