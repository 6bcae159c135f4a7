//! What a plan looks like: data with stable codes for programs, the whole story for people.

use std::collections::BTreeMap;

use loadline_state_machine::{
    Alteration, Change, ChangesAt, Conclusion, Decision, Freshness, Held, PlanOutput, Planned, Reason, Replica,
    ReplicaSpec, Shadow, Stage, Step, Time,
};
use serde::Serialize;

use super::Answer;
use crate::output::{Column, View};

type Replicas = BTreeMap<String, String>;

/// `{"desired": {name: size}, "actions": [...], "decision": {...}}`.
#[derive(Debug, Serialize)]
pub(super) struct PlanView {
    desired: Replicas,
    actions: Vec<ActionView>,
    decision: DecisionView,
}

impl PlanView {
    pub(super) fn of(output: &PlanOutput) -> PlanView {
        PlanView {
            desired: output.desired.clone(),
            actions: output.actions.iter().map(ActionView::of).collect(),
            decision: DecisionView::of(&output.decision),
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
        };
        let SpecView { replica, size } = SpecView::of(replica);
        ActionView {
            action,
            replica,
            size,
            replaces,
            strategy: planned.kind.as_str(),
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

    fn conclusion(conclusion: Conclusion) -> Said {
        let code = conclusion.code();
        let text = match conclusion {
            // Nothing begins in a plan.
            Conclusion::Began(_) => "An operation would begin.",
            _ => Conclusion::CODES.iter().find(|(known, _)| *known == code).map_or("", |(_, text)| text),
        };
        Said { code, text: text.to_owned() }
    }
}

#[derive(Debug, Serialize)]
struct DecisionView {
    at: String,
    conclusion: Said,
    signals: SignalsView,
    /// In the order in which the strategies ran.
    stages: Vec<StageView>,
    /// What it would be with the strategies that are in dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<ShadowView>,
    brakes: Vec<BrakeView>,
    changes_at: Option<ChangesAtView>,
}

impl DecisionView {
    fn of(decision: &Decision) -> DecisionView {
        let actual = || -> Replicas {
            decision.inputs.replicas.iter().map(|it| (it.name.to_string(), it.size.to_string())).collect()
        };
        DecisionView {
            at: decision.at.to_string(),
            conclusion: Said::conclusion(decision.conclusion),
            signals: SignalsView::of(decision),
            stages: stages(actual(), &decision.stages, decision.at),
            dry_run: decision.shadow.as_ref().map(|shadow| ShadowView::of(shadow, actual(), decision.at)),
            brakes: decision.brakes.iter().map(BrakeView::of).collect(),
            changes_at: decision.changes_at.map(|it| ChangesAtView::of(it, decision.at)),
        }
    }
}

#[derive(Debug, Serialize)]
struct SignalsView {
    activity: Option<ActivityView>,
    replicas: Vec<ReplicaView>,
}

#[derive(Debug, Serialize)]
struct ActivityView {
    /// Nothing: none was seen at all.
    idle_for_s: Option<f64>,
    stale: bool,
}

#[derive(Debug, Serialize)]
struct ReplicaView {
    name: String,
    size: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hydration: Option<HydrationView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crashes: Option<CrashesView>,
}

#[derive(Debug, Serialize)]
struct HydrationView {
    total: u64,
    hydrated: u64,
}

#[derive(Debug, Serialize)]
struct CrashesView {
    total: u64,
    oom: u64,
}

impl SignalsView {
    fn of(decision: &Decision) -> SignalsView {
        let signals = &decision.inputs;
        let activity = signals.activity.as_ref().map(|activity| {
            let fresh = signals.freshness(&activity.collector, activity.as_of, decision.at, decision.stale_after);
            ActivityView {
                idle_for_s: activity.last_at.map(|last_at| secs_between(last_at, decision.at)),
                stale: matches!(fresh, Freshness::StaleSince(_)),
            }
        });
        SignalsView { activity, replicas: signals.replicas.iter().map(ReplicaView::of).collect() }
    }
}

impl ReplicaView {
    fn of(replica: &Replica) -> ReplicaView {
        let sum = |of: fn(&loadline_state_machine::Crash) -> u64| replica.crashes.iter().map(of).sum();
        let hydration = replica.hydration.as_ref();
        ReplicaView {
            name: replica.name.to_string(),
            size: replica.size.to_string(),
            hydration: hydration.map(|it| HydrationView { total: it.total, hydrated: it.hydrated }),
            crashes: (!replica.crashes.is_empty())
                .then(|| CrashesView { total: sum(|crash| crash.count), oom: sum(|crash| crash.oom_count) }),
        }
    }
}

#[derive(Debug, Serialize)]
struct StageView {
    strategy: &'static str,
    reason: Said,
    before: Replicas,
    after: Replicas,
    changes: Vec<ChangeView>,
    changes_at: Option<ChangesAtView>,
}

#[derive(Debug, Serialize)]
struct ChangeView {
    /// `added`, `resized` or `removed`.
    change: &'static str,
    replica: String,
    size: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_size: Option<String>,
    reason: Said,
}

/// What each strategy found and what it left behind, beginning with what is there.
fn stages(mut replicas: Replicas, stages: &[Stage], now: Time) -> Vec<StageView> {
    let mut views = Vec::with_capacity(stages.len());
    for stage in stages {
        let before = replicas.clone();
        for change in &stage.changes {
            match &change.alteration {
                Alteration::Added(replica) | Alteration::Resized { replica, .. } => {
                    replicas.insert(replica.name.to_string(), replica.size.to_string());
                }
                Alteration::Removed(replica) => {
                    replicas.remove(replica.name.as_ref());
                }
            }
        }
        views.push(StageView {
            strategy: stage.kind.as_str(),
            reason: Said::reason(&stage.reason),
            before,
            after: replicas.clone(),
            changes: stage.changes.iter().map(ChangeView::of).collect(),
            changes_at: stage.changes_at.map(|it| ChangesAtView::of(it, now)),
        });
    }
    views
}

impl ChangeView {
    fn of(change: &Change) -> ChangeView {
        let (word, replica, from) = match &change.alteration {
            Alteration::Added(replica) => ("added", replica, None),
            Alteration::Resized { replica, from } => ("resized", replica, Some(from.to_string())),
            Alteration::Removed(replica) => ("removed", replica, None),
        };
        let SpecView { replica, size } = SpecView::of(replica);
        ChangeView { change: word, replica, size, from_size: from, reason: Said::reason(&change.reason) }
    }
}

#[derive(Debug, Serialize)]
struct ShadowView {
    desired: Replicas,
    actions: Vec<ActionView>,
    stages: Vec<StageView>,
}

impl ShadowView {
    fn of(shadow: &Shadow, actual: Replicas, now: Time) -> ShadowView {
        ShadowView {
            desired: shadow.desired.iter().map(|it| (it.name.to_string(), it.size.to_string())).collect(),
            actions: shadow.planned.iter().map(ActionView::of).collect(),
            stages: stages(actual, &shadow.stages, now),
        }
    }
}

#[derive(Debug, Serialize)]
struct BrakeView {
    code: &'static str,
    text: &'static str,
    until: Option<String>,
}

impl BrakeView {
    fn of(held: &Held) -> BrakeView {
        let until = held.until.map(|until| until.to_string());
        BrakeView { code: held.brake.code(), text: held.brake.text(), until }
    }
}

/// When it would come out differently though nothing is heard.
#[derive(Debug, Serialize)]
struct ChangesAtView {
    at: String,
    in_s: f64,
    code: &'static str,
    text: &'static str,
}

impl ChangesAtView {
    fn of(changes_at: ChangesAt, now: Time) -> ChangesAtView {
        ChangesAtView {
            at: changes_at.at.to_string(),
            in_s: secs_between(now, changes_at.at),
            code: changes_at.why.code(),
            text: changes_at.why.text(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact for 285,000 years")]
fn secs_between(earlier: Time, later: Time) -> f64 {
    later.since(earlier).as_millis() as f64 / 1_000.0
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
