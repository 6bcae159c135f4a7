//! Claims that go into the log right behind the entry that makes them possible, instead of a whole way through the log later.
//!
//! What an entry brings about is certain as soon as it is known that nothing comes before it: the leader applies it to a fork and
//! asks here which actions would be claimed then. The claims are ordinary commands: they are applied, and refused, as any other, so a
//! forecast that was wrong is a claim of nothing. Nothing is called before the state itself shows the claim.
//!
//! - [`Turns`]: who is at which cluster, a course of the duty or a claim that went ahead. Never both.
//! - Not here: what is done with a claim that the state shows (`mod`), and the log (`loadline-raft-node` asks, the server joins the two).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use loadline_state_machine::{
    Action, ActionId, ActionStatus, Actor, Answer, ClusterId, Command, LogIndex, Request, State, rehearse,
};

use super::lane::{Lane, Slot};
use crate::{Tenure, Witness};

/// With more actions than that a reaction waits for others anyway, and looking at all of them would hold up the log.
const LOOKED_AT_MAX: usize = 64;

/// What an executor would claim, for whoever leads and is about to put an entry into the log. It holds nothing of the group, which may
/// hold it.
#[derive(Clone, Debug)]
pub struct ClaimsAhead {
    ahead: Ahead,
    witness: Arc<dyn Witness>,
}

/// Where the duty says that it is at work. Between leaderships nobody is, and nothing is forecast.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ahead(Arc<Mutex<Weak<AtWork>>>);

/// The duty that acts, at work under one leadership.
pub(super) struct AtWork {
    pub(super) tenure: Tenure,
    pub(super) lanes: BTreeMap<String, Arc<Lane>>,
    turns: Mutex<Turns>,
}

/// One call per cluster: a second one before the first has settled could act on a replica that is about to go.
#[derive(Default)]
pub(super) struct Turns {
    courses: BTreeSet<ClusterId>,
    claims: BTreeMap<ClusterId, ClaimAhead>,
}

/// A claim that is on its way into the log.
pub(super) struct ClaimAhead {
    action: ActionId,
    attempt: u32,
    /// When the state is so far and does not show it, it was refused.
    expected_at: LogIndex,
    /// For the call.
    slot: Slot,
}

impl fmt::Debug for AtWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtWork").field("tenure", &self.tenure).finish_non_exhaustive()
    }
}

impl AtWork {
    pub(super) fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    pub(super) fn is_taken(&self, cluster: ClusterId) -> bool {
        self.courses.contains(&cluster) || self.claims.contains_key(&cluster)
    }

    /// False: somebody else is there.
    pub(super) fn begin(&mut self, cluster: ClusterId) -> bool {
        !self.is_taken(cluster) && self.courses.insert(cluster)
    }

    pub(super) fn end(&mut self, cluster: ClusterId) {
        self.courses.remove(&cluster);
    }

    /// The claims that this state shows, with the right to call for each; courses begin with them. Those that it should show and
    /// does not are forgotten: the state says what there is to do instead.
    pub(super) fn take_claimed(&mut self, state: &State, tenure: &Tenure) -> Vec<(Action, Slot)> {
        let shown = |ahead: &ClaimAhead| {
            let action = state.action(ahead.action).filter(|action| action.attempt == ahead.attempt)?;
            let ours = matches!(action.status, ActionStatus::Claimed { epoch, .. } if epoch == tenure.epoch());
            ours.then(|| action.clone())
        };
        let mut claimed = Vec::new();
        for (cluster, ahead) in std::mem::take(&mut self.claims) {
            if let Some(action) = shown(&ahead) {
                self.courses.insert(cluster);
                claimed.push((action, ahead.slot));
            } else if state.applied() < ahead.expected_at {
                self.claims.insert(cluster, ahead);
            }
        }
        claimed
    }
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, Weak<AtWork>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on claims of this leadership may go ahead, for as long as somebody keeps what is answered. Those that are on their
    /// way then stay in the log, and are read back by whoever finds them there.
    pub(super) fn begin(&self, tenure: Tenure, lanes: BTreeMap<String, Arc<Lane>>) -> Arc<AtWork> {
        let at_work = Arc::new(AtWork { tenure, lanes, turns: Mutex::default() });
        *self.lock() = Arc::downgrade(&at_work);
        at_work
    }
}

impl ClaimsAhead {
    pub(crate) fn new(ahead: Ahead, witness: Arc<dyn Witness>) -> ClaimsAhead {
        ClaimsAhead { ahead, witness }
    }

    /// Whether an action may have to be carried out after this command, so that it is worth to ask.
    pub fn may_follow(command: &Command) -> bool {
        matches!(
            command,
            Command::ReportSignals { .. }
                | Command::RecordSignals { .. }
                | Command::PushSignals { .. }
                | Command::RecordOutcome { .. }
                | Command::WakeCluster { .. }
                | Command::OverrideCluster { .. }
                | Command::ApproveAction { .. }
                | Command::CreateReplica { .. }
                | Command::DropReplica { .. }
        )
    }

    /// The claims that are to go into the log right behind the entry that leaves this state. Whether they get there shows in the state,
    /// and only then is anything called.
    pub fn after(&self, state: &State, actor: &Actor) -> Vec<Request> {
        if state.action_count() == 0 || state.action_count() > LOOKED_AT_MAX {
            return Vec::new();
        }
        let Some(at_work) = self.ahead.lock().upgrade() else { return Vec::new() };
        let AtWork { tenure, lanes, .. } = &*at_work;
        if state.epoch() != Some(tenure.epoch()) || !tenure.may_act() {
            return Vec::new();
        }
        let mut turns = at_work.turns();
        let expected_at = LogIndex(state.applied().0 + 1);
        let mut claims = Vec::new();
        // A second try is in nobody's hurry, and what may have been called is read back first.
        let first = state.claimable_actions().filter(|action| action.attempt == 0 && !action.status.is_in_flight());
        for action in first {
            let Some(lane) = state.backend_for(action).and_then(|backend| lanes.get(backend)) else { continue };
            if turns.is_taken(action.cluster) || lane.quiet_since().is_none() {
                continue;
            }
            let claim = claim(action, tenure, &lane.name);
            let request = Request { actor: actor.clone(), request_id: None, commands: vec![claim] };
            if !is_accepted(state, &request) {
                continue;
            }
            let Some(slot) = lane.try_slot() else { continue };
            request.commands.iter().for_each(|claim| self.witness.says(claim));
            let ahead = ClaimAhead { action: action.id, attempt: action.attempt + 1, expected_at, slot };
            turns.claims.insert(action.cluster, ahead);
            claims.push(request);
        }
        claims
    }
}

/// The next claim of this action.
pub(super) fn claim(action: &Action, tenure: &Tenure, backend: &str) -> Command {
    Command::ClaimAction {
        action: action.id,
        epoch: tenure.epoch(),
        attempt: action.attempt.saturating_add(1),
        backend: backend.to_owned(),
        parameters: action.parameters(backend),
    }
}

/// A claim that would be refused, or would find that nobody wants the action any more, is not worth an entry.
fn is_accepted(state: &State, claim: &Request) -> bool {
    let claimed = |answer: &Answer| match answer {
        Answer::Action(action) => matches!(action.status, ActionStatus::Claimed { .. }),
        _ => false,
    };
    rehearse(state, claim, state.now()).is_ok_and(|done| done.iter().any(|done| claimed(&done.answer)))
}
