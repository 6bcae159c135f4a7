//! `mz_internal.mz_scaling_actions`, `loadline.actions` and `loadline.attempts`: what was done, by whom, and what came of it.
//!
//! Unsettled actions are in the state, settled ones in the journal for as long as the retention shows them.

use std::sync::Arc;

use loadline_state_machine::{Action, ActionStatus, Attempt, AttemptResult, Call};

use super::define::{Column, Definition, column, optional};
use super::error::QueryError;
use super::source::Source;
use super::value::{Kind, Value};

/// The oldest first, as their numbers are.
fn all(source: &Source) -> Result<Vec<Arc<Action>>, QueryError> {
    let mut rows: Vec<Arc<Action>> = source.past.actions(&source.state, &source.budget)?;
    if source.past.shows_what_is() {
        rows.extend(source.state.actions().cloned().map(Arc::new));
    }
    rows.sort_by_key(|action| action.number);
    // Settled once more by hand: the later row tells.
    rows.dedup_by(|later, earlier| {
        let same = later.number == earlier.number;
        if same && later.settled_at > earlier.settled_at {
            *earlier = Arc::clone(later);
        }
        same
    });
    Ok(rows)
}

/// The statement that would have the same effect, as far as there is one.
fn action_sql(action: &Action) -> String {
    let name = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let replica = format!("{}.{}", name(&action.cluster_name), name(action.call.replica()));
    let size = action.call.size().replace('\'', "''");
    match &action.call {
        Call::CreateReplica(_) => format!("CREATE CLUSTER REPLICA {replica} SIZE = '{size}'"),
        Call::DropReplica(_) => format!("DROP CLUSTER REPLICA {replica}"),
        // There is no statement for it: these are steps on the way to a drop.
        Call::CordonReplica(_) | Call::DrainReplica(_) | Call::UncordonReplica(_) | Call::CheckpointReplica(_) => {
            format!("-- {} {replica}", action.call.code().replace('_', " "))
        }
    }
}

/// `user` for what somebody asked for by hand: there is always something, and no strategy is called so.
fn strategy_id(action: &Action) -> Value {
    action.by.strategy().map_or_else(|| action.by.code().into(), Value::show)
}

const NUMBER: Column<Arc<Action>> = column("action_id", Kind::Int8, |_, it| Value::count(it.number));
const STRATEGY_ID: Column<Arc<Action>> = column("strategy_id", Kind::Text, |_, it| strategy_id(it));
const CLUSTER_ID: Column<Arc<Action>> = column("cluster_id", Kind::Text, |_, it| Value::show(it.cluster));
const TYPE: Column<Arc<Action>> = column("action_type", Kind::Text, |_, it| it.call.code().into());
const SQL: Column<Arc<Action>> = column("action_sql", Kind::Text, |_, it| action_sql(it).into());
const REASON: Column<Arc<Action>> = column("reason", Kind::Text, |_, it| Value::show(&it.reason));
const EXECUTED: Column<Arc<Action>> =
    column("executed", Kind::Bool, |_, it| (it.status == ActionStatus::Succeeded).into());
const ERROR: Column<Arc<Action>> = optional("error_message", Kind::Text, |_, it| it.error.clone().into());
const CREATED: Column<Arc<Action>> = column("created_at", Kind::Timestamptz, |_, it| Value::time(it.created_at));

pub(crate) static MZ_ACTIONS: Definition<Arc<Action>> = Definition {
    schema: "mz_internal",
    name: "mz_scaling_actions",
    comment: "The audit of what was done, and of what would have been.",
    is_view: false,
    key: &[0],
    columns: &[NUMBER, STRATEGY_ID, CLUSTER_ID, TYPE, SQL, REASON, EXECUTED, ERROR, CREATED],
    rows: all,
};

pub(crate) static ACTIONS: Definition<Arc<Action>> = Definition {
    schema: "loadline",
    name: "actions",
    comment: "The actions with everything that is known about them.",
    is_view: false,
    key: &[0],
    columns: &[
        NUMBER,
        column("id", Kind::Text, |_, it| Value::show(it.id)),
        CLUSTER_ID,
        column("cluster", Kind::Text, |_, it| (&*it.cluster_name).into()),
        STRATEGY_ID,
        column("strategy_type", Kind::Text, |_, it| it.by.code().into()),
        TYPE,
        column("replica", Kind::Text, |_, it| (&**it.call.replica()).into()),
        column("size", Kind::Text, |_, it| (&**it.call.size()).into()),
        column("status", Kind::Text, |_, it| it.status.code().into()),
        column("reason_code", Kind::Text, |_, it| it.reason.code().into()),
        REASON,
        column("attempts", Kind::Int8, |_, it| it.attempt.into()),
        optional("backend", Kind::Text, |_, it| it.backend.as_deref().into()),
        column("key", Kind::Text, |_, it| it.key().into()),
        column("decision_id", Kind::Text, |_, it| Value::show(it.decision)),
        optional("operation_id", Kind::Text, |_, it| it.operation.map(Value::show).into()),
        ERROR,
        CREATED,
        optional("settled_at", Kind::Timestamptz, |_, it| it.settled_at.map(Value::time).into()),
    ],
    rows: all,
};

/// One try of an action.
pub(crate) struct AttemptRow {
    action: Arc<Action>,
    place: usize,
}

impl AttemptRow {
    fn attempt(&self) -> Option<&Attempt> {
        self.action.attempts.get(self.place)
    }
}

fn node_name(source: &Source, id: u64) -> Value {
    source.nodes.iter().find(|node| node.id == id).map(|node| node.name.as_str()).into()
}

pub(crate) static ATTEMPTS: Definition<AttemptRow> = Definition {
    schema: "loadline",
    name: "attempts",
    comment: "Each try of each action: who tried, in which epoch, and what came of it.",
    is_view: false,
    key: &[0, 1],
    columns: &[
        column("action_id", Kind::Int8, |_, row| Value::count(row.action.number)),
        column("attempt", Kind::Int8, |_, row| row.attempt().map(|it| it.number).into()),
        column("cluster_id", Kind::Text, |_, row| Value::show(row.action.cluster)),
        column("epoch", Kind::Text, |_, row| row.attempt().map(|it| it.epoch.to_string()).into()),
        column("node_id", Kind::Int8, |_, row| row.attempt().map(|it| Value::count(it.node.0)).into()),
        optional("node", Kind::Text, |source, row| {
            row.attempt().map_or(Value::Null, |it| node_name(source, it.node.0))
        }),
        column("claimed_at", Kind::Timestamptz, |_, row| row.attempt().map(|it| Value::time(it.claimed_at)).into()),
        optional("result", Kind::Text, |_, row| {
            row.attempt().and_then(|it| it.ended).map(|it| it.result.code()).into()
        }),
        optional("retryable", Kind::Bool, |_, row| match row.attempt().and_then(|it| it.ended).map(|it| it.result) {
            Some(AttemptResult::Failed { retryable }) => retryable.into(),
            _ => Value::Null,
        }),
        optional("ended_at", Kind::Timestamptz, |_, row| {
            row.attempt().and_then(|it| it.ended).map(|it| Value::time(it.at)).into()
        }),
    ],
    rows: |source| {
        let actions = all(source)?.into_iter();
        let tries = actions.flat_map(|action| {
            (0..action.attempts.len()).map(move |place| AttemptRow { action: Arc::clone(&action), place })
        });
        Ok(tries.collect())
    },
};
