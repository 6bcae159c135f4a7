//! What a plan looks like: data with stable codes for programs, the whole story for people.

use std::collections::BTreeMap;

use loadline_api::scaling as wire;
use loadline_state_machine::{Conclusion, Decision, PlanOutput, Planned, Reason, ReplicaSpec, State, Step};
use serde::Serialize;
use serde_json::Value;

use super::Answer;
use crate::output::scaling::decision;
use crate::output::{Column, View};

type Replicas = BTreeMap<String, String>;

/// `{"desired": {name: size}, "actions": [...], "decision": {...}}`.
#[derive(Debug, Serialize)]
pub(super) struct PlanView {
    desired: Replicas,
    actions: Vec<ActionView>,
    decision: Value,
}

impl PlanView {
    pub(super) fn of(cluster: &str, output: &PlanOutput) -> PlanView {
        PlanView {
            desired: output.desired.clone(),
            actions: output.actions.iter().map(ActionView::of).collect(),
            decision: decision_of(cluster, &output.decision),
        }
    }
}

/// One step, in the order in which they would be taken.
#[derive(Debug, Serialize)]
struct ActionView {
    /// `create_replica`, `replace_replica` or `drop_replica`.
    action: &'static str,
    replica: String,
    size: String,
    /// The replica that goes once the new one is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<SpecView>,
    strategy: &'static str,
    reason: Said,
}

impl ActionView {
    fn of(planned: &Planned) -> ActionView {
        let (action, replica, replaces) = match &planned.step {
            Step::Create(replica) => ("create_replica", replica, None),
            Step::Replace { old, new, .. } => ("replace_replica", new, Some(SpecView::of(old))),
            Step::Drop { replica, .. } => ("drop_replica", replica, None),
            Step::Suspend { replica, .. } => ("suspend_replica", replica, None),
        };
        let SpecView { replica, size } = SpecView::of(replica);
        ActionView {
            action,
            replica,
            size,
            replaces,
            strategy: planned.by.code(),
            reason: Said::reason(&planned.reason),
        }
    }
}

#[derive(Debug, Serialize)]
struct SpecView {
    replica: String,
    size: String,
}

impl SpecView {
    fn of(spec: &ReplicaSpec) -> SpecView {
        SpecView { replica: spec.name.to_string(), size: spec.size.to_string() }
    }
}

/// A code for programs and the same for people.
#[derive(Debug, Serialize)]
struct Said {
    code: &'static str,
    text: String,
}

impl Said {
    fn reason(reason: &Reason) -> Said {
        Said { code: reason.code(), text: reason.to_string() }
    }
}

/// The decision as `get decisions` shows it, without the ids that only a group gives.
fn decision_of(cluster: &str, made: &Decision) -> Value {
    let mut it = wire::decision(made, &State::new());
    cluster.clone_into(&mut it.cluster);
    it.cluster_id.clear();
    if let (Conclusion::Began(_), Some(conclusion)) = (made.conclusion, &mut it.conclusion) {
        // Nothing begins in a plan.
        "An operation would begin.".clone_into(&mut conclusion.text);
    }
    let shadow = it.shadow.iter_mut();
    let (mut stages, mut planned): (Vec<_>, Vec<_>) = shadow.map(|it| (&mut it.stages, &mut it.planned)).unzip();
    stages.push(&mut it.stages);
    planned.push(&mut it.planned);
    stages.into_iter().flatten().for_each(|stage| stage.strategy.clear());
    planned.into_iter().flatten().for_each(|step| step.strategy.clear());
    decision(&it)
}

/// Everything, in words.
pub(super) fn story(cluster: &str, output: &PlanOutput) -> String {
    let mut text = format!("cluster {cluster} at {}\n", output.decision.at);
    for line in output.decision.lines() {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// One of many plans, as a row.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    document: usize,
    cluster: String,
    conclusion: &'static str,
    desired: String,
    actions: usize,
    /// Empty if nobody said what to expect.
    expected: &'static str,
}

impl Summary {
    pub(super) fn of(answer: &Answer) -> Summary {
        let desired = answer.output.desired.iter().map(|(name, size)| format!("{name}={size}"));
        Summary {
            document: answer.number,
            cluster: answer.question.input.cluster.clone(),
            conclusion: answer.output.decision.conclusion.code(),
            desired: desired.collect::<Vec<_>>().join(","),
            actions: answer.output.actions.len(),
            expected: match (&answer.question.expected, answer.as_expected()) {
                (None, _) => "",
                (Some(_), true) => "yes",
                (Some(_), false) => "no",
            },
        }
    }
}

impl View for Summary {
    const COLUMNS: &'static [Column] = &[
        Column::always("DOCUMENT"),
        Column::always("CLUSTER"),
        Column::always("CONCLUSION"),
        Column::always("ACTIONS"),
        Column::always("AS-EXPECTED"),
        Column::always("DESIRED"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.document.to_string(),
            self.cluster.clone(),
            self.conclusion.to_owned(),
            self.actions.to_string(),
            self.expected.to_owned(),
            self.desired.clone(),
        ]
    }

    fn name(&self) -> String {
        format!("clusters/{}", self.cluster)
    }
}
