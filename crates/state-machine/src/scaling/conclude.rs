//! What comes of an assessment: nothing, a brake, an operation. And its record, if it is news.

use super::ClusterRecord;
use super::actions::{Action, ActionStatus, Call, Report};
use super::advance;
use super::asked;
use super::assess::Assessment;
use super::brakes::{self, choose, is_waking, somebody_waits};
use super::decisions::{Brake, Conclusion, Decision, Held, Shadow};
use super::essence::Essence;
use super::evaluate::Writer;
use super::idle::WakeReason;
use super::knobs::Knobs;
use super::operations::{Operation, OperationKind, Unit};
use super::plan::{Planned, difference};
use super::wake;
use crate::configuration::StrategyKind;
use crate::decide::event_count;
use crate::strategies::chain::Stage;
use crate::strategies::reason::{ChangeCause, ChangesAt, Reason, earlier};
use crate::{ActionId, ClusterId, Event, OperationId, Revision, State, Time};

/// What is to be concluded, before it is written down.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) conclusion: Conclusion,
    pub(crate) brakes: Vec<Held>,
    /// What begins, or would begin if the kill switch were on.
    begins: Vec<Planned>,
}

/// Decides what comes of the assessment and records it if it is news. Answers when it would come out differently by itself.
pub(crate) fn conclude(
    writer: &mut Writer<'_>,
    id: ClusterId,
    knobs: &Knobs,
    assessment: Assessment,
) -> Option<ChangesAt> {
    let state = &*writer.state;
    let nothing = ClusterRecord::default();
    let record = state.scaling.record(id).unwrap_or(&nothing);
    let operation = OperationId::from(writer.revision_of(1));
    let draft = draft(record, knobs, state.now, &assessment, operation);
    let changes_at = changes_at(state, record, knobs, &assessment, &draft);
    let last = record.decision.as_ref();
    if !draft.is_news(record, &assessment) {
        return changes_at;
    }
    let suppressed_before = last.is_some_and(|last| {
        last.conclusion == Conclusion::Suppressed && last.plan == Essence::of_plan(&assessment.planned)
    });

    let inputs = record.signals.clone();
    let replicas = inputs.replicas.clone();
    let Assessment { said, planned, approval, .. } = assessment;
    let shadow = said.shadow.map(|shadow| {
        Box::new(Shadow {
            planned: difference(&replicas, &shadow, &state.sizes, state.keeps_checkpoints_of(id)),
            desired: shadow.desired.specs(),
            stages: shadow.stages,
        })
    });
    let decision = Decision {
        id: writer.revision_of(0),
        cluster: id,
        at: state.now,
        inputs,
        stale_after: knobs.stale_after,
        desired: said.desired.specs(),
        stages: said.stages,
        planned,
        shadow,
        brakes: draft.brakes,
        conclusion: draft.conclusion,
        changes_at,
    };
    let was_faulted = last.is_some_and(|last| last.conclusion == Conclusion::Faulted);
    let fault = decision.stages.iter().find(|stage| stage.reason.is_fault()).cloned();
    let decided = decision.id;
    writer.emit(Event::DecisionMade { decision: Box::new(decision) });
    match draft.conclusion {
        Conclusion::Began(operation) => begin(writer, id, operation, decided, draft.begins, approval, knobs),
        Conclusion::Suppressed if !suppressed_before => suppress(writer, id, decided, &draft.begins),
        Conclusion::Faulted => {
            if let Some(stage) = fault.filter(|_| !was_faulted) {
                let Stage { strategy, reason, .. } = stage;
                writer.emit(Event::StrategyFaulted { cluster: id, strategy, reason });
            }
        }
        _ => {}
    }
    changes_at
}

impl Draft {
    /// Whether it says or does anything else than the decision before. That a cluster that nobody ever decided about has no
    /// strategy is no news either.
    pub(crate) fn is_news(&self, record: &ClusterRecord, assessment: &Assessment) -> bool {
        let begins = matches!(self.conclusion, Conclusion::Began(_));
        let Some(last) = &record.decision else { return assessment.has_strategies || begins };
        last.essence != Essence::of_draft(&assessment.said, &assessment.planned, self.conclusion, &self.brakes)
    }
}

pub(crate) fn draft(
    record: &ClusterRecord,
    knobs: &Knobs,
    now: Time,
    assessment: &Assessment,
    operation: OperationId,
) -> Draft {
    let draft = |conclusion, brakes| Draft { conclusion, brakes, begins: vec![] };
    let held = |brake| vec![Held { brake, until: None }];
    let cooldown = assessment.said.cooldown_until();
    let waits = cooldown.map(|until| Held { brake: Brake::StrategyCooldown, until: Some(until) });
    if let Some(live) = &record.operation {
        let other = assessment.planned.iter().any(|it| !live.units.iter().any(|unit| unit.planned.step == it.step));
        let under_way = other.then_some(Held { brake: Brake::OperationUnderWay, until: None });
        return draft(Conclusion::UnderWay(live.id), under_way.into_iter().chain(waits).collect());
    }
    // Neither a cooldown nor a pause holds what somebody asks for by hand: both are there to hold the strategies.
    let asked: Vec<Planned> = record.asked.iter().filter(|it| asked::makes_sense(record, it)).cloned().collect();
    if let Some(first) = choose(&asked, u64::MAX).into_iter().next().filter(|_| knobs.acting) {
        let (needed, room) = (first.step.counted_actions().min(knobs.rate_limit), brakes::room(record, knobs, now));
        if room < needed {
            let until = brakes::room_at(record, knobs, now, needed);
            return draft(Conclusion::Held, vec![Held { brake: Brake::RateLimit, until }]);
        }
        let begins = choose(&asked, room);
        return Draft { conclusion: Conclusion::Began(operation), brakes: waits.into_iter().collect(), begins };
    }
    if assessment.said.fault().is_some() {
        return draft(Conclusion::Faulted, held(Brake::StrategyFaulted));
    }
    if assessment.planned.is_empty() {
        let conclusion = if waits.is_some() { Conclusion::Held } else { Conclusion::AsWanted };
        return draft(conclusion, waits.into_iter().collect());
    }
    let allowed: Vec<Planned> =
        assessment.planned.iter().filter(|it| !record.rejected.contains(&it.step)).cloned().collect();
    let Some(first) = choose(&allowed, u64::MAX).into_iter().next() else {
        return draft(Conclusion::Held, held(Brake::Rejected));
    };
    // After what was rejected: that would not have been executed with the switch on, either.
    if !knobs.acting {
        return Draft { conclusion: Conclusion::Suppressed, brakes: held(Brake::KillSwitch), begins: allowed };
    }
    let waking = somebody_waits(record, &allowed);
    let brakes = brakes::check(record, knobs, now, first.step.counted_actions(), waking);
    if !brakes.held.is_empty() {
        return draft(Conclusion::Held, brakes.held.into_iter().chain(waits).collect());
    }
    let begins = choose(&allowed, brakes.room);
    Draft { conclusion: Conclusion::Began(operation), brakes: waits.into_iter().collect(), begins }
}

/// Who asked for something by hand has approved it thereby.
fn needs_approval(approval: &[bool; StrategyKind::COUNT], planned: &Planned) -> bool {
    planned.by.kind().is_some_and(|kind| approval[kind.slot()])
}

fn begin(
    writer: &mut Writer<'_>,
    cluster: ClusterId,
    id: OperationId,
    decision: Revision,
    steps: Vec<Planned>,
    approval: [bool; StrategyKind::COUNT],
    knobs: &Knobs,
) {
    let now = writer.at.now;
    let waking = writer.state.scaling.record(cluster).is_some_and(|record| is_waking(record, &steps));
    let woken_by = match steps.first().map(|it| &it.reason) {
        Some(Reason::Overridden { .. }) => WakeReason::Override,
        Some(Reason::WokenBySchedule) => WakeReason::Scheduled,
        _ => WakeReason::Activity,
    };
    let kind = match steps.first().map(|it| (it.step.creates().is_some(), it.step.drops().is_some())) {
        Some((true, _)) if steps.iter().any(|it| it.step.drops().is_some()) => OperationKind::Replace,
        Some((true, _)) => OperationKind::ScaleUp,
        _ => OperationKind::ScaleDown,
    };
    let mut units: Vec<Unit> = steps.into_iter().map(Unit::new).collect();
    let mut actions = Vec::with_capacity(units.len());
    for unit in &mut units {
        let Some(call) = unit.next_call() else { continue };
        let action_id = ActionId::from(writer.revision_of(1 + actions.len()));
        unit.action = Some(action_id);
        let status = match needs_approval(&approval, &unit.planned) {
            true => ActionStatus::AwaitingApproval { expires_at: now + knobs.approval_expiry },
            false => ActionStatus::Pending { not_before: None },
        };
        actions.push(new_action(
            writer.state,
            action_id,
            actions.len(),
            cluster,
            Some(id),
            decision,
            unit,
            call,
            status,
        ));
    }
    let operation = Operation { id, cluster, kind, units, begun_at: now, progress_at: now, decision, failing: None };
    writer.emit(Event::OperationBegun { operation });
    for action in actions {
        writer.emit(Event::ActionPlanned { action: Box::new(action) });
    }
    if waking && wake::is_news(writer.state, cluster) {
        let wake = wake::new_wake(writer.state, cluster, writer.at, woken_by);
        writer.emit(Event::ClusterWoken { cluster, wake });
    }
}

/// Records what would have been executed.
fn suppress(writer: &mut Writer<'_>, cluster: ClusterId, decision: Revision, planned: &[Planned]) {
    for planned in planned {
        let unit = Unit::new(planned.clone());
        let calls = [planned.step.creates().cloned().map(Call::CreateReplica), unit.drop_call()];
        for call in calls.into_iter().flatten() {
            let id = ActionId::from(writer.revision_of(0));
            let status = ActionStatus::Suppressed;
            let mut action = new_action(writer.state, id, 0, cluster, None, decision, &unit, call, status);
            action.settled_at = Some(writer.at.now);
            writer.emit(Event::ActionSettled { action: Box::new(action), report: Report::Nothing });
        }
    }
}

/// `before` is how many actions were made since the state was last written.
#[allow(clippy::too_many_arguments)] // Every one of them is a part of the row.
pub(crate) fn new_action(
    state: &State,
    id: ActionId,
    before: usize,
    cluster: ClusterId,
    operation: Option<OperationId>,
    decision: Revision,
    unit: &Unit,
    call: Call,
    status: ActionStatus,
) -> Action {
    Action {
        id,
        number: state.scaling.actions.numbers.saturating_add(u64::from(event_count(before)) + 1),
        incarnation: state.incarnation,
        cluster,
        cluster_name: state.clusters.name(cluster).unwrap_or_default().into(),
        operation,
        by: unit.planned.by,
        reason: unit.planned.reason.clone(),
        decision,
        call,
        status,
        attempt: 0,
        backend: None,
        intent: None,
        attempts: vec![],
        hurried: 0,
        created_at: state.now,
        settled_at: None,
        error: None,
    }
}

pub(crate) fn changes_at(
    state: &State,
    record: &ClusterRecord,
    knobs: &Knobs,
    assessment: &Assessment,
    draft: &Draft,
) -> Option<ChangesAt> {
    let mut earliest = assessment.said.changes_at();
    if let Some(shadow) = &assessment.said.shadow {
        earliest = earlier(earliest, shadow.changes_at());
    }
    for held in &draft.brakes {
        let why = match held.brake {
            Brake::Paused => ChangeCause::PauseOver,
            Brake::ClusterCooldown | Brake::StrategyCooldown => ChangeCause::CooldownOver,
            Brake::RateLimit => ChangeCause::RateLimitOver,
            Brake::FailureBackoff => ChangeCause::BackoffOver,
            Brake::KillSwitch | Brake::OperationUnderWay | Brake::Rejected | Brake::StrategyFaulted => continue,
        };
        earliest = earlier(earliest, held.until.map(|at| ChangesAt { at, why }));
    }
    if let Some(at) = record.pause.as_ref().and_then(|pause| pause.expires_at) {
        earliest = earlier(earliest, Some(ChangesAt { at, why: ChangeCause::PauseOver }));
    }
    if let Some(floor) = &record.floor {
        earliest = earlier(earliest, Some(ChangesAt { at: floor.expires_at, why: ChangeCause::OverrideOver }));
    }
    if let Some(operation) = &record.operation {
        earliest = earlier(earliest, advance::changes_at(state, operation, knobs));
    } else if let Conclusion::Began(_) = draft.conclusion {
        let waits = |it: &Planned| needs_approval(&assessment.approval, it);
        let approval = ChangesAt { at: state.now + knobs.approval_expiry, why: ChangeCause::ApprovalExpires };
        earliest = earlier(earliest, draft.begins.iter().any(waits).then_some(approval));
        // What only waits for a person does not get stuck.
        let stuck = ChangesAt { at: state.now + knobs.stuck_after, why: ChangeCause::Stuck };
        earliest = earlier(earliest, (!draft.begins.iter().all(waits)).then_some(stuck));
    }
    earliest
}
