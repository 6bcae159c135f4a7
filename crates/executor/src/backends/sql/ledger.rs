//! Two tables in the database itself: what became of each key, and the highest epoch.
//!
//! An order is entered first, on its own. Then one transaction holds the epoch (shared with other orders, not with a fence), holds the
//! order's row, runs the statement and enters the result. So a fence waits for whatever is in the middle and refuses whatever comes
//! later, and the row and the effect exist together or not at all.
//! Not here: what the statement is, and how its effect is seen (the parent module).

use loadline_state_machine::{Call, DrainResult, Epoch, Report};
use postgres_protocol::escape::escape_identifier;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};

use super::failure::{Stage, judge};
use super::session::left_ms;
use crate::backends::epochs::{epoch_text, parse_epoch};
use crate::{CallError, Found, Order};

/// The names of the two tables, quoted.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    orders: String,
    epoch: String,
    keep_seconds: u64,
}

/// What the ledger says when an order is about to be carried out.
pub(super) enum Turn {
    /// The transaction is open and the row is held: do it, then [`Ledger::enter`].
    Ours,
    Known(Result<Report, CallError>),
}

impl Ledger {
    pub(super) fn new(name: &[String], keep_seconds: u64) -> Self {
        let quoted = |suffix: &str| {
            let (table, schema) = name.split_last().map_or(("", name), |(table, schema)| (table.as_str(), schema));
            let parts = schema.iter().cloned().chain([format!("{table}{suffix}")]);
            parts.map(|part| escape_identifier(&part)).collect::<Vec<_>>().join(".")
        };
        Self { orders: quoted(""), epoch: quoted("_epoch"), keep_seconds }
    }

    /// The statements that make the tables. `docs/backends/sql.md` shows them to those who give Loadline no right to.
    fn definitions(&self) -> String {
        let Self { orders, epoch, .. } = self;
        format!(
            "CREATE TABLE IF NOT EXISTS {orders} (\
             key text PRIMARY KEY, \
             parameters text NOT NULL, \
             epoch text NOT NULL, \
             cluster text NOT NULL, \
             call text NOT NULL, \
             result text CHECK (result IN ('done', 'failed')), \
             incarnation text, \
             moved bigint, \
             left_behind bigint, \
             reason text, \
             accepted_at timestamptz NOT NULL DEFAULT now(), \
             settled_at timestamptz); \
             CREATE TABLE IF NOT EXISTS {epoch} (\
             only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), \
             epoch text COLLATE \"C\" NOT NULL)"
        )
    }

    /// Makes the tables if they are missing.
    pub(super) async fn prepare(&self, client: &Client) -> Result<(), CallError> {
        let there = "SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL";
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&self.orders, Type::TEXT), (&self.epoch, Type::TEXT)];
        let before = |error: Error| judge(&error, Stage::Before);
        let is_there = |row: Row| row.get::<_, bool>(0);
        if client.query_typed_one(there, &parameters).await.map(is_there).map_err(before)? {
            return Ok(());
        }
        if let Err(error) = client.batch_execute(&self.definitions()).await {
            // Another node may have made them in the same moment, which PostgreSQL takes for an error.
            if !client.query_typed_one(there, &parameters).await.map(is_there).map_err(before)? {
                return Err(before(error));
            }
        }
        Ok(())
    }

    /// Raises the highest epoch. Waits for orders that are in the middle: they hold it.
    pub(super) async fn fence(&self, client: &Client, epoch: Epoch) -> Result<(), CallError> {
        let table = &self.epoch;
        let raise = format!(
            "INSERT INTO {table} AS known (only_row, epoch) VALUES (true, $1) ON CONFLICT (only_row) \
             DO UPDATE SET epoch = EXCLUDED.epoch WHERE known.epoch <= EXCLUDED.epoch RETURNING known.epoch"
        );
        let text = epoch_text(epoch);
        let raised = client.query_typed_opt(&raise, &[(&text, Type::TEXT)]).await;
        match raised.map_err(|error| judge(&error, Stage::Before))? {
            Some(_) => Ok(()),
            None => match self.highest(client, "").await? {
                Some(highest) if highest > epoch => Err(CallError::Fenced { highest }),
                _ => Err(CallError::Unknown { reason: format!("{table} took no epoch and holds no higher one") }),
            },
        }
    }

    /// Forgets orders that nobody can send again.
    pub(super) async fn forget(&self, client: &Client) -> Result<(), CallError> {
        let (orders, keep) = (&self.orders, self.keep_seconds);
        let forget = format!("DELETE FROM {orders} WHERE accepted_at < now() - interval '{keep} seconds'");
        client.batch_execute(&forget).await.map_err(|error| judge(&error, Stage::Before))
    }

    /// Opens the transaction in which an order is carried out, unless it is known, fenced or something else.
    pub(super) async fn open(&self, client: &Client, order: &Order) -> Result<Turn, CallError> {
        let before = |error: Error| judge(&error, Stage::Before);
        // A leader fences before it acts. An order that comes without a fence still shows that there is a later leader.
        match self.highest(client, "").await? {
            Some(highest) if highest > order.epoch => return Err(CallError::Fenced { highest }),
            Some(highest) if highest == order.epoch => {}
            _ => self.fence(client, order.epoch).await?,
        }
        let orders = &self.orders;
        let accept = format!(
            "INSERT INTO {orders} (key, parameters, epoch, cluster, call) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (key) DO NOTHING"
        );
        let (parameters, epoch) = (order.parameters.to_string(), epoch_text(order.epoch));
        let (cluster, call) = (order.cluster.id.to_string(), order.call.to_string());
        let values = [&order.key, &parameters, &epoch, &cluster, &call];
        client
            .query_typed(
                &accept,
                &values.map(|value| (value as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT)),
            )
            .await
            .map_err(before)?;

        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await.map_err(before)?;
        match self.highest(client, "FOR SHARE").await? {
            Some(highest) if highest == order.epoch => {}
            Some(highest) if highest > order.epoch => return Err(CallError::Fenced { highest }),
            _ => return Err(CallError::Refused { retryable: true, reason: format!("{} lost its row", self.epoch) }),
        }
        // Whoever carries out the same order at this moment holds the row; then it is done.
        let Some(row) = self.row(client, order, "FOR UPDATE").await.map_err(before)? else {
            return Err(CallError::Refused { retryable: true, reason: format!("{orders} lost the order") });
        };
        Ok(match known(order, &row) {
            Found::Done(report) => Turn::Known(Ok(report)),
            Found::Failed { retryable, reason } => Turn::Known(Err(CallError::Refused { retryable, reason })),
            Found::OtherParameters { known } => {
                Turn::Known(Err(CallError::OtherParameters { key: order.key.clone(), known }))
            }
            Found::NotSeen | Found::UnderWay => Turn::Ours,
        })
    }

    /// Enters what came of it, as the last thing before the commit; refuses if the deadline has passed.
    pub(super) async fn enter(
        &self,
        client: &Client,
        order: &Order,
        report: &Report,
        until: Instant,
    ) -> Result<(), CallError> {
        let inside = |error: Error| judge(&error, Stage::InTransaction);
        let (incarnation, moved, left) = match report {
            Report::Created { incarnation } => (incarnation.clone(), None, None),
            Report::Drained(drained) => (None, i64::try_from(drained.moved).ok(), i64::try_from(drained.left).ok()),
            Report::Nothing => (None, None, None),
        };
        let enter = format!(
            "UPDATE {} SET result = 'done', epoch = $2, incarnation = $3, moved = $4, left_behind = $5, reason = NULL, \
             settled_at = clock_timestamp() WHERE key = $1 AND result IS NULL RETURNING true",
            self.orders
        );
        let epoch = epoch_text(order.epoch);
        let entered = client
            .query_typed_opt(
                &enter,
                &[
                    (&order.key, Type::TEXT),
                    (&epoch, Type::TEXT),
                    (&incarnation, Type::TEXT),
                    (&moved, Type::INT8),
                    (&left, Type::INT8),
                ],
            )
            .await
            .map_err(inside)?;
        // A process that was stopped in between sees here that its time is over. One that is stopped after this line is ended by the
        // server, which does not wait for it longer than for a statement.
        if entered.is_none() || until <= Instant::now() {
            let reason = format!("it was not done before the deadline, {} ms are left", left_ms(until));
            return Err(CallError::Refused { retryable: true, reason });
        }
        client.batch_execute("COMMIT").await.map_err(|error| judge(&error, Stage::Commit))
    }

    /// Remembers that an order was refused for good, after its transaction was rolled back. If this fails, the order is refused again
    /// when it comes again.
    pub(super) async fn enter_refusal(&self, client: &Client, order: &Order, reason: &str) -> Result<(), Error> {
        let refuse = format!(
            "UPDATE {} SET result = 'failed', reason = $2, settled_at = now() WHERE key = $1 AND result IS NULL",
            self.orders
        );
        client.query_typed(&refuse, &[(&order.key, Type::TEXT), (&reason, Type::TEXT)]).await.map(drop)
    }

    pub(super) async fn find(&self, client: &Client, order: &Order) -> Result<Found, CallError> {
        let before = |error: Error| judge(&error, Stage::Before);
        let Some(row) = self.row(client, order, "").await.map_err(before)? else { return Ok(Found::NotSeen) };
        match known(order, &row) {
            // Entered and without a result: somebody holds the row and is at it, or nobody does and it was given up.
            Found::NotSeen => match self.row(client, order, "FOR SHARE NOWAIT").await {
                Ok(Some(row)) => Ok(known(order, &row)),
                Ok(None) => Ok(Found::NotSeen),
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(Found::UnderWay),
                Err(error) => Err(before(error)),
            },
            found => Ok(found),
        }
    }

    async fn highest(&self, client: &Client, lock: &str) -> Result<Option<Epoch>, CallError> {
        let highest = format!("SELECT epoch FROM {} {lock}", self.epoch);
        let row = client.query_typed_opt(&highest, &[]).await.map_err(|error| judge(&error, Stage::Before))?;
        let Some(row) = row else { return Ok(None) };
        let text: String = row.get(0);
        let reason = || format!("{} holds {text:?}, which is no epoch", self.epoch);
        parse_epoch(&text).map(Some).ok_or_else(|| CallError::Refused { retryable: false, reason: reason() })
    }

    async fn row(&self, client: &Client, order: &Order, lock: &str) -> Result<Option<Row>, Error> {
        let row = format!(
            "SELECT parameters, result, incarnation, moved, left_behind, reason FROM {} WHERE key = $1 {lock}",
            self.orders
        );
        client.query_typed_opt(&row, &[(&order.key, Type::TEXT)]).await
    }
}

/// What a row says about an order.
fn known(order: &Order, row: &Row) -> Found {
    let parameters: String = row.get("parameters");
    if parameters != order.parameters.to_string() {
        return Found::OtherParameters { known: parameters };
    }
    match row.get::<_, Option<String>>("result").as_deref() {
        Some("done") => Found::Done(report(&order.call, row)),
        Some(_) => Found::Failed {
            retryable: false,
            reason: row.get::<_, Option<String>>("reason").unwrap_or_else(|| "it was refused".to_owned()),
        },
        None => Found::NotSeen,
    }
}

fn report(call: &Call, row: &Row) -> Report {
    let number = |column: &str| row.get::<_, Option<i64>>(column).and_then(|number| u64::try_from(number).ok());
    match (call, number("moved"), number("left_behind")) {
        (Call::CreateReplica(_), ..) => Report::Created { incarnation: row.get("incarnation") },
        (Call::DrainReplica(_), Some(moved), Some(left)) => Report::Drained(DrainResult { moved, left }),
        _ => Report::Nothing,
    }
}
