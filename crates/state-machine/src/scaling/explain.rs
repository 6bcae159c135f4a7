//! Decisions in words, for people. The words are made here, when somebody looks; nothing that is stored holds them.

use std::fmt;

use super::ClusterRecord;
use super::actions::{Action, ActionStatus, Attempt};
use super::asked::makes_sense;
use super::assess::assess;
use super::conclude::{changes_at, draft};
use super::decisions::{Brake, Conclusion, Decision, Held, Shadow};
use super::facts::{Said, Topic, lines_of};
use super::floor::Override;
use super::idle::IdleState;
use super::operations::Operation;
use super::pause::Pause;
use super::plan::{Origin, Planned, Step, difference};
use super::views::NotClaimable;
use crate::signals::replica::Replica;
use crate::signals::{Freshness, Signals};
use crate::strategies::STRATEGIES;
use crate::strategies::chain::Stage;
use crate::strategies::desired::{Alteration, Change, ReplicaSpec};
use crate::strategies::reason::ChangesAt;
use crate::{Cluster, ClusterId, OperationId, Revision, Span, State, Time};

/// The setting that stops everything, and the one without which nothing is decided at all.
const SWITCH: &str = "auto_scaling_enabled";
const FEATURE: &str = "enable_auto_scaling";

/// Why a cluster is as it is, right now.
#[derive(Clone, Debug)]
pub struct Explanation {
    pub cluster: Cluster,
    /// What would be decided if the cluster were looked at now. It has no id: nothing was recorded.
    pub now: Decision,
    /// The latest that was recorded.
    pub recorded: Option<Decision>,
    pub pause: Option<Pause>,
    /// Nothing is begun anywhere: the kill switch is off.
    pub switched_off: bool,
    /// Nothing is decided anywhere: scaling as a whole was never switched on, or is off again.
    pub feature_off: bool,
    pub operation: Option<Operation>,
    /// Those of the operation that are not settled, each with what it waits for if nobody can carry it out now.
    pub actions: Vec<(Action, Option<&'static str>)>,
    /// What somebody asked for by hand and has not begun.
    pub asked: Vec<Planned>,
    pub pending_since: Option<Time>,
    pub idle_since: Option<Time>,
    pub floor: Option<Override>,
    /// Nothing if no `idle_suspend` strategy rules it.
    pub idle: Option<IdleState>,
}

impl State {
    /// Nothing if there is no such cluster.
    pub fn explain(&self, cluster: &str) -> Option<Explanation> {
        let cluster = self.cluster(cluster)?;
        let nothing = ClusterRecord::default();
        let record = self.scaling.record(cluster.id).unwrap_or(&nothing);
        let now = self.decided(cluster.id, record);
        let operation = record.operation.as_deref().cloned();
        let live = operation.iter().flat_map(|operation| &operation.units).filter_map(|unit| unit.action);
        let standing = self.standing(cluster.id);
        Some(Explanation {
            cluster: cluster.clone(),
            now,
            recorded: record.decision.as_ref().and_then(|kept| kept.read().ok()),
            pause: record.pause.as_deref().cloned(),
            switched_off: !self.settings.knobs().acting,
            feature_off: !self.settings.knobs().feature,
            actions: live
                .filter_map(|action| self.action(action))
                .map(|action| (action.clone(), self.action_waits(action)))
                .collect(),
            operation,
            asked: record.asked.clone(),
            pending_since: record.pending_since,
            idle_since: standing.and_then(|standing| standing.idle_since()),
            floor: record.floor.as_deref().cloned(),
            idle: self.idle_state(cluster.id),
        })
    }

    /// What an action of this state waits for, where nobody can carry it out now and its own status does not say why.
    pub fn action_waits(&self, action: &Action) -> Option<&'static str> {
        let unsettled = self.action(action.id) == Some(action);
        self.not_claimable(action).filter(|_| unsettled).and_then(NotClaimable::text)
    }

    /// What would be decided if this cluster were looked at now. It has no id: nothing is recorded. Nothing if there is no such
    /// cluster.
    ///
    /// What somebody asked for by hand is planned first: a recorded decision has it in its operation alone.
    pub fn would_decide(&self, cluster: ClusterId) -> Option<Decision> {
        self.cluster_by_id(cluster)?;
        let nothing = ClusterRecord::default();
        let record = self.scaling.record(cluster).unwrap_or(&nothing);
        let mut decision = self.decided(cluster, record);
        let asked = record.asked.iter().filter(|planned| makes_sense(record, planned)).cloned();
        decision.planned.splice(..0, asked);
        Some(decision)
    }

    fn decided(&self, cluster: ClusterId, record: &ClusterRecord) -> Decision {
        let knobs = *self.settings.knobs();
        let assessment = assess(self, cluster, Some(record), &knobs, &STRATEGIES);
        let draft = draft(record, &knobs, self.now, &assessment, OperationId::from(Revision::default()));
        let changes_at = changes_at(self, record, &knobs, &assessment, &draft);
        // While the feature is off nobody looks at any cluster, so whatever would follow does not.
        let (conclusion, changes_at) =
            if knobs.feature { (draft.conclusion, changes_at) } else { (Conclusion::Held, None) };
        let replicas = &record.signals.replicas;
        let shadow = assessment.said.shadow.map(|shadow| {
            Box::new(Shadow {
                planned: difference(replicas, &shadow, &self.sizes, self.keeps_checkpoints_of(cluster)),
                desired: shadow.desired.specs(),
                stages: shadow.stages,
            })
        });
        Decision {
            id: Revision::default(),
            cluster,
            at: self.now,
            inputs: record.signals.clone(),
            stale_after: knobs.stale_after,
            desired: assessment.said.desired.specs(),
            stages: assessment.said.stages,
            planned: assessment.planned,
            shadow,
            brakes: draft.brakes,
            conclusion,
            changes_at,
        }
    }
}

impl Explanation {
    pub fn lines(&self) -> Vec<String> {
        lines_of(&self.said())
    }

    /// The same, each line with what it is about.
    pub fn said(&self) -> Vec<Said> {
        let Cluster { name, id, .. } = &self.cluster;
        let mut said = vec![Said::new(Topic::Cluster, name, format!("cluster {name} ({id}) at {}", self.now.at))];
        if self.feature_off {
            let text = "nothing is decided for any cluster: enable_auto_scaling is false";
            said.push(Said::new(Topic::Switch, FEATURE, text));
        }
        if self.switched_off {
            let text = "auto-scaling is switched off for all clusters: auto_scaling_enabled is false";
            said.push(Said::new(Topic::Switch, SWITCH, text));
        }
        if let Some(pause) = &self.pause {
            let until = pause.expires_at.map(|at| format!(" until {at}")).unwrap_or_default();
            let text = format!("paused since {}{until}: {}", pause.since, pause.reason);
            said.push(Said::new(Topic::Pause, name, text));
        }
        if let Some(floor) = &self.floor {
            let Override { replicas_min, reason, by, since, expires_at, .. } = floor;
            let text = format!(
                "overridden by {by} since {since} until {expires_at}: at least {replicas_min} replicas: {reason}"
            );
            said.push(Said::new(Topic::Override, name, text));
        }
        let idle = self.idle.iter().flat_map(IdleState::lines);
        said.extend(idle.map(|text| Said::new(Topic::Idle, name, text)));
        said.extend(self.now.said());
        if let Some(operation) = &self.operation {
            said.extend(operation.said());
        }
        for (action, waits) in &self.actions {
            let waits = waits.map(|waits| format!(", {waits}")).unwrap_or_default();
            said.push(Said::new(Topic::Action, action.id, format!("{}{waits}", action.line())).deeper());
        }
        for asked in &self.asked {
            let text = format!("{}, and not begun: {}", asked.reason, step(&asked.step));
            said.push(Said::new(Topic::Asked, name, text));
        }
        if let Some(since) = self.pending_since {
            said.push(Said::new(Topic::Pending, name, format!("wanted, and not there, since {since}")));
        }
        if let Some(recorded) = &self.recorded {
            let text = format!("last recorded: decision {} at {}", recorded.id, recorded.at);
            said.push(Said::new(Topic::Decision, recorded.id, text));
        }
        said
    }
}

impl NotClaimable {
    /// Nothing where the status of the action says it.
    fn text(self) -> Option<&'static str> {
        match self {
            Self::FeatureOff => Some("not carried out while enable_auto_scaling is false"),
            Self::SwitchedOff => Some("not carried out while auto_scaling_enabled is false"),
            Self::NotItsTurn => Some("after another one of its operation"),
            Self::Nowhere => Some("which nobody can carry out: the cluster has no backend"),
            Self::NotFree => None,
        }
    }
}

impl IdleState {
    /// What it has come to, in words; no line about what never happened.
    fn lines(&self) -> Vec<String> {
        let zero = self.scaled_to_zero_at.map(|at| format!("scaled to zero since {at}"));
        let wake = self.last_wake.map(|wake| {
            let ready = wake.ready_at.map_or_else(|| "not ready yet".to_owned(), |at| format!("ready at {at}"));
            format!("last woken at {} ({}), {ready}", wake.at, wake.reason.as_str())
        });
        zero.into_iter().chain(wake).collect()
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

impl Decision {
    /// Everything that went into it and came out, in words.
    pub fn lines(&self) -> Vec<String> {
        lines_of(&self.said())
    }

    /// The same, each line with what it is about.
    pub fn said(&self) -> Vec<Said> {
        let mut said = self.signals();
        let stage = |topic: Topic| move |stage: &Stage| Said::new(topic, stage.strategy, stage_line(stage));
        said.extend(self.stages.iter().map(stage(Topic::Strategy)));
        if self.stages.is_empty() {
            said.push(Said::new(Topic::Strategy, "", "none"));
        }
        said.push(Said::new(Topic::Wanted, "", format!("wanted: {}", specs(&self.desired))));
        let plan = |planned: &Planned| Said::new(Topic::Plan, planned.by, planned_line(planned)).deeper();
        said.extend(self.planned.iter().map(plan));
        if let Some(shadow) = &self.shadow {
            said.extend(shadow.stages.iter().map(stage(Topic::DryRun)));
            said.push(Said::new(Topic::DryRun, "", format!("wanted: {}", specs(&shadow.desired))));
            let would = |planned: &Planned| {
                Said::new(Topic::DryRun, planned.by, format!("would {}", planned_line(planned))).deeper()
            };
            said.extend(shadow.planned.iter().map(would));
        }
        said.extend(self.brakes.iter().map(|held| Said::new(Topic::Brake, held.brake.code(), held_line(held))));
        said.push(Said::new(Topic::Conclusion, self.conclusion.code(), self.conclusion_line()));
        said.push(Said::new(Topic::Change, "", changes_line(self.changes_at)));
        said
    }

    /// What was known, how long ago it was seen, and whether that is too long.
    fn signals(&self) -> Vec<Said> {
        let signals = &self.inputs;
        let mut said = Vec::new();
        let seen = |collector: &str, as_of| self.seen(signals, collector, as_of);
        let mut say = |name: &str, text: String| said.push(Said::new(Topic::Signal, name, text));
        match &signals.activity {
            None => say("activity", "activity: nothing reported".to_owned()),
            Some(activity) => {
                let value = match activity.last_at {
                    None => "none seen".to_owned(),
                    Some(last_at) => format!("last {}", ago(self.at, last_at)),
                };
                say("activity", format!("activity: {value} ({})", seen(&activity.collector, activity.as_of)));
            }
        }
        for replica in &signals.replicas {
            say(&format!("replica {}", replica.name), format!("replica {}", self.replica(replica)));
        }
        for metric in &signals.metrics {
            let value = format!("{}.{:03}", metric.value_milli / 1_000, (metric.value_milli % 1_000).unsigned_abs());
            say(&metric.name, format!("{}: {value} ({})", metric.name, seen(&metric.collector, metric.as_of)));
        }
        for heard in &signals.collectors {
            let name = format!("collector {}", heard.collector);
            say(&name, format!("{name}: heard {}", ago(self.at, heard.at)));
        }
        said
    }

    fn replica(&self, replica: &Replica) -> String {
        let mut line =
            format!("{} of size {}: {}", replica.name, replica.size, if replica.ready { "ready" } else { "not ready" });
        if replica.cordoned {
            line += ", cordoned";
        }
        match &replica.hydration {
            None => line += ", hydration not reported",
            Some(it) => {
                let seen = self.seen(&self.inputs, &it.collector, it.as_of);
                line += &format!(", {} of {} objects hydrated ({seen})", it.hydrated, it.total);
            }
        }
        if let Some(last) = replica.crashes.last() {
            let count: u64 = replica.crashes.iter().map(|crash| crash.count).sum();
            line += &format!(", {count} crashes, the last {}", ago(self.at, last.at));
            if !last.reason.is_empty() {
                line += &format!(" ({})", last.reason);
            }
        }
        if let Some(notice) = &replica.notice {
            let gone = notice.gone_at.map(|at| format!(", gone at {at}")).unwrap_or_default();
            line += &format!(", {} notice {}{gone}", notice.kind.as_str(), ago(self.at, notice.given_at));
        }
        line
    }

    fn seen(&self, signals: &Signals, collector: &str, as_of: Time) -> String {
        let stale = match signals.freshness(collector, as_of, self.at, self.stale_after) {
            Freshness::FreshUntil(_) => String::new(),
            Freshness::StaleSince(since) => format!(", STALE since {since}"),
        };
        format!("{collector}, {}{stale}", ago(self.at, as_of))
    }

    fn conclusion_line(&self) -> String {
        match self.conclusion {
            Conclusion::AsWanted => "AS_WANTED: what is wanted is there".to_owned(),
            Conclusion::Held => "HELD: nothing begins".to_owned(),
            Conclusion::Began(_) if self.id == Revision::default() => "an operation would begin".to_owned(),
            Conclusion::Began(id) => format!("BEGAN: operation {id}"),
            Conclusion::UnderWay(id) => format!("UNDER_WAY: operation {id} goes on"),
            Conclusion::Suppressed => "SUPPRESSED: auto-scaling is disabled, this would have been executed".to_owned(),
            Conclusion::Faulted => "FAULTED: a strategy failed, what is there stays".to_owned(),
        }
    }
}

impl Operation {
    pub fn lines(&self) -> Vec<String> {
        lines_of(&self.said())
    }

    /// The same, each line with what it is about.
    pub fn said(&self) -> Vec<Said> {
        let failing = self.failing.map(|it| format!(", failing: {} ({})", it.code(), it.text())).unwrap_or_default();
        let (kind, phase) = (self.kind.as_str(), self.phase().as_str());
        let text = format!("operation {} ({kind}), {phase} since {}{failing}", self.id, self.progress_at);
        let mut said = vec![Said::new(Topic::Operation, self.id, text)];
        for unit in &self.units {
            let drained = unit.drained.map(|it| format!(", {} moved, {} left", it.moved, it.left)).unwrap_or_default();
            let asked = match unit.planned.by {
                Origin::Strategy { .. } => String::new(),
                Origin::User => format!(", {}", unit.planned.reason),
            };
            let text = format!("{}{asked}: {}{drained}", step(&unit.planned.step), unit.progress.as_str());
            said.push(Said::new(Topic::Operation, self.id, text).deeper());
        }
        said
    }
}

impl Action {
    pub fn line(&self) -> String {
        let status = match self.status {
            ActionStatus::AwaitingApproval { expires_at } => format!("waits for an approval until {expires_at}"),
            ActionStatus::Pending { not_before: Some(at) } => format!("PENDING, not before {at}"),
            ActionStatus::Claimed { epoch, at } => format!("CLAIMED at {at} in epoch {epoch}"),
            other => other.code().to_owned(),
        };
        format!("action {} (number {}): {}, {status}", self.id, self.number, self.call)
    }

    /// What it is for and what became of it, in words.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            self.line(),
            format!("  for {}: {}, {}", self.by, self.reason.code(), self.reason),
            format!("  decided in {}, planned at {}", self.decision, self.created_at),
            format!("  key {}, {} attempts", self.key(), self.attempt),
        ];
        lines.extend(self.backend.iter().map(|backend| format!("  called on backend {backend}")));
        lines.extend(self.attempts.iter().map(|attempt| format!("  {}", attempt.line())));
        if let Some(error) = &self.error {
            lines.push(format!("  last said: {error}"));
        }
        if let Some(at) = self.settled_at {
            lines.push(format!("  settled at {at}"));
        }
        lines
    }
}

impl Attempt {
    fn line(&self) -> String {
        let ended = match self.ended {
            None => "nobody has said what came of it".to_owned(),
            Some(end) if end.node == self.node => format!("{} at {}", end.result.code(), end.at),
            Some(end) => format!("{} at {}, by node {}", end.result.code(), end.at, end.node),
        };
        format!("attempt {} by node {} at {}: {ended}", self.number, self.node, self.claimed_at)
    }
}

fn ago(now: Time, then: Time) -> String {
    match now.since(then) {
        span if span == Span::default() => "just now".to_owned(),
        span => format!("{span} ago"),
    }
}

fn stage_line(stage: &Stage) -> String {
    let changes = match stage.changes.as_slice() {
        [] => String::new(),
        changes => format!("; {}", changes.iter().map(change).collect::<Vec<_>>().join(", ")),
    };
    let held_back = match stage.held_back.as_slice() {
        [] => String::new(),
        held => format!("; not yet: {}", held.iter().map(change).collect::<Vec<_>>().join(", ")),
    };
    let tied = stage.tied_with.map(|other| format!("; as particular as {other}, but older")).unwrap_or_default();
    let until = stage.changes_at.map(|it| format!("; would change at {}", it.at)).unwrap_or_default();
    let profile = stage.profile.as_ref().map(|it| format!("; {it}")).unwrap_or_default();
    format!(
        "{} {}: {}, {}{changes}{held_back}{profile}{tied}{until}",
        stage.kind,
        stage.strategy,
        stage.reason.code(),
        stage.reason
    )
}

fn change(change: &Change) -> String {
    match &change.alteration {
        Alteration::Added(replica) => format!("adds {}", spec(replica)),
        Alteration::Removed(replica) => format!("removes {}", spec(replica)),
        Alteration::Resized { replica, from } => format!("wants {} instead of size {from}", spec(replica)),
    }
}

fn planned_line(planned: &Planned) -> String {
    format!("{}, because {} ({})", step(&planned.step), planned.reason, planned.by.code())
}

fn step(step: &Step) -> String {
    match step {
        Step::Create(replica) => format!("create {}", spec(replica)),
        Step::Drop { replica, .. } => format!("drop {}", spec(replica)),
        Step::Suspend { replica, .. } => format!("checkpoint and drop {}", spec(replica)),
        Step::Replace { old, new, .. } => format!("replace {} by {}", spec(old), spec(new)),
    }
}

fn held_line(held: &Held) -> String {
    let until = match (held.until, held.brake) {
        (Some(until), _) => format!(", until {until}"),
        (None, Brake::Paused) => ", until somebody resumes it".to_owned(),
        (None, _) => String::new(),
    };
    format!("held by {}: {}{until}", held.brake.code(), held.brake.text())
}

fn changes_line(changes_at: Option<ChangesAt>) -> String {
    match changes_at {
        None => "would not change by itself".to_owned(),
        Some(it) => format!("would change at {}: {}", it.at, it.why.text()),
    }
}

fn specs(all: &[ReplicaSpec]) -> String {
    match all {
        [] => "no replica".to_owned(),
        all => all.iter().map(spec).collect::<Vec<_>>().join(", "),
    }
}

fn spec(replica: &ReplicaSpec) -> String {
    format!("{} ({})", replica.name, replica.size)
}
