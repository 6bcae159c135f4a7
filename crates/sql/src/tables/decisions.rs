//! `loadline.decisions` and `loadline.decision_stages`: what the strategies said, and why. The latest of each cluster is in the
//! state, the ones before in the journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use loadline_state_machine::{Alteration, Change, Decision, ReplicaSpec, Revision, Stage};
use serde_json::{Value as Json, json};

use super::define::{Definition, column, optional};
use super::error::QueryError;
use super::json;
use super::source::Source;
use super::value::{Kind, Value, timestamp};

/// The oldest first.
fn all(source: &Source) -> Result<Vec<Arc<Decision>>, QueryError> {
    let mut rows: BTreeMap<Revision, Arc<Decision>> = BTreeMap::new();
    let counts = source.past.shows_what_is();
    for (place, cluster) in source.state.clusters_after(None).filter(|_| counts).enumerate() {
        if place % 1_024 == 0 {
            source.budget.check()?;
        }
        if let Some(decision) = source.state.decision_by_id(cluster.id) {
            rows.insert(decision.id, Arc::new(decision));
        }
    }
    let past = source.past.decisions(&source.state, &source.budget)?;
    rows.extend(past.into_iter().map(|decision| (decision.id, decision)));
    Ok(rows.into_values().collect())
}

fn specs(all: &[ReplicaSpec]) -> Value {
    Value::json(&json::object(all.iter().map(|it| (&*it.name, json!(&*it.size)))))
}

fn cluster_name(source: &Source, decision: &Decision) -> Value {
    source.state.cluster_by_id(decision.cluster).map(|it| it.name.as_str()).into()
}

pub(crate) static DECISIONS: Definition<Arc<Decision>> = Definition {
    schema: "loadline",
    name: "decisions",
    comment: "What was decided about each cluster, with what was known at that time.",
    is_view: false,
    key: &[0],
    columns: &[
        column("id", Kind::Text, |_, it| Value::show(it.id)),
        column("log_index", Kind::Int8, |_, it| Value::count(it.id.index.0)),
        column("cluster_id", Kind::Text, |_, it| Value::show(it.cluster)),
        optional("cluster", Kind::Text, |source, it| cluster_name(source, it)),
        column("at", Kind::Timestamptz, |_, it| Value::time(it.at)),
        column("conclusion", Kind::Text, |_, it| it.conclusion.code().into()),
        column("actual", Kind::Jsonb, |_, it| {
            Value::json(&json::object(it.inputs.replicas.iter().map(|it| (&*it.name, json!(&*it.size)))))
        }),
        column("desired", Kind::Jsonb, |_, it| specs(&it.desired)),
        optional("desired_in_dry_run", Kind::Jsonb, |_, it| {
            it.shadow.as_ref().map(|shadow| specs(&shadow.desired)).into()
        }),
        column("planned_steps", Kind::Int8, |_, it| Value::count(it.planned.len())),
        column("held_by", Kind::TextArray, |_, it| Value::array(it.brakes.iter().map(|held| held.brake.code()))),
        optional("changes_at", Kind::Timestamptz, |_, it| it.changes_at.map(|it| Value::time(it.at)).into()),
        optional("changes_because", Kind::Text, |_, it| it.changes_at.map(|it| it.why.code()).into()),
        column("explanation", Kind::Text, |_, it| it.lines().join("\n").into()),
    ],
    rows: all,
};

/// What one strategy said in one decision.
pub(crate) struct StageRow {
    decision: Arc<Decision>,
    place: usize,
    dry_run: bool,
}

impl StageRow {
    fn stage(&self) -> Option<&Stage> {
        match (&self.decision.shadow, self.dry_run) {
            (Some(shadow), true) => shadow.stages.get(self.place),
            _ => self.decision.stages.get(self.place),
        }
    }

    fn of<T: Into<Value>>(&self, read: impl FnOnce(&Stage) -> T) -> Value {
        self.stage().map(read).into()
    }
}

fn changes(all: &[Change]) -> Value {
    let one = |change: &Change| {
        let reason = change.reason.code();
        match &change.alteration {
            Alteration::Added(it) => json!({"add": &*it.name, "size": &*it.size, "reason": reason}),
            Alteration::Removed(it) => json!({"remove": &*it.name, "size": &*it.size, "reason": reason}),
            Alteration::Resized { replica, from } => {
                json!({"resize": &*replica.name, "size": &*replica.size, "from": &**from, "reason": reason})
            }
        }
    };
    Value::json(&Json::Array(all.iter().map(one).collect()))
}

pub(crate) static STAGES: Definition<StageRow> = Definition {
    schema: "loadline",
    name: "decision_stages",
    comment: "What each strategy said in each decision, in the order in which they ran.",
    is_view: false,
    key: &[],
    columns: &[
        column("decision_id", Kind::Text, |_, row| Value::show(row.decision.id)),
        column("cluster_id", Kind::Text, |_, row| Value::show(row.decision.cluster)),
        optional("cluster", Kind::Text, |source, row| cluster_name(source, &row.decision)),
        column("at", Kind::Timestamptz, |_, row| Value::time(row.decision.at)),
        column("stage", Kind::Int8, |_, row| Value::count(row.place)),
        column("dry_run", Kind::Bool, |_, row| row.dry_run.into()),
        column("strategy_id", Kind::Text, |_, row| row.of(|it| it.strategy.to_string())),
        column("strategy_type", Kind::Text, |_, row| row.of(|it| it.kind.as_str().to_owned())),
        column("reason_code", Kind::Text, |_, row| row.of(|it| it.reason.code().to_owned())),
        column("reason", Kind::Text, |_, row| row.of(|it| it.reason.to_string())),
        column("changes", Kind::Jsonb, |_, row| row.of(|it| changes(&it.changes))),
        column("held_back", Kind::Jsonb, |_, row| row.of(|it| changes(&it.held_back))),
        optional("changes_at", Kind::Timestamptz, |_, row| row.of(|it| it.changes_at.map(|it| timestamp(it.at)))),
        optional("tied_with", Kind::Text, |_, row| row.of(|it| it.tied_with.map(|it| it.to_string()))),
    ],
    rows: |source| {
        let mut rows = Vec::new();
        for decision in all(source)? {
            let shadows = decision.shadow.as_ref().map_or(0, |shadow| shadow.stages.len());
            let stages = (0..decision.stages.len()).map(|place| (place, false));
            for (place, dry_run) in stages.chain((0..shadows).map(|place| (place, true))) {
                rows.push(StageRow { decision: Arc::clone(&decision), place, dry_run });
            }
        }
        Ok(rows)
    },
};
