//! What is really there, and what is on its way to it. Time is given; nothing here waits.

use std::collections::BTreeMap;
use std::time::Duration;

use loadline_mutants::Mutant;
use loadline_state_machine::{Call, ClusterId, DrainResult, Epoch, Hash, ReplicaLife, ReplicaSpec, Report};
use tokio::time::Instant;

use super::{LedgerEvent, LedgerLine, Script};
use crate::{CallError, Order};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    pub(super) arrives_after: Duration,
    pub(super) takes: Duration,
    pub(super) unanswered: bool,
    pub(super) lost: bool,
    pub(super) refused: bool,
}

pub(super) type Answer = Result<Report, CallError>;

/// What is really there.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) highest: Option<Epoch>,
    /// What is due, in order of time. The number keeps what is due at once in the order in which it was sent.
    pub(super) due: BTreeMap<(Instant, u64), Due>,
    pub(super) known: BTreeMap<String, Known>,
    /// By the number of the call. Nobody fetches what was sent by somebody who is gone.
    pub(super) answers: BTreeMap<u64, Answer>,
    pub(super) lives: BTreeMap<ClusterId, Vec<Life>>,
    pub(super) ledger: Vec<LedgerLine>,
    pub(super) numbers: u64,
    pub(super) reads: u64,
    pub(super) unreachable: bool,
    pub(super) behaves: bool,
    pub(super) mute: bool,
}

#[derive(Debug)]
pub(super) enum Due {
    Arrival { order: Order, fate: Fate },
    Completion { order: Order },
}

/// An order that was accepted.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) parameters: Hash,
    pub(super) arrived_at: Instant,
    pub(super) due: Instant,
    /// Who wants to know what comes of it.
    pub(super) waiting: Vec<u64>,
    pub(super) result: Option<Answer>,
}

#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) name: String,
    pub(super) size: String,
    pub(super) incarnation: String,
    pub(super) made_at: Instant,
    pub(super) gone_at: Option<Instant>,
    pub(super) crashes: u64,
    pub(super) oom: bool,
}

impl Place {
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn write(&mut self, at: Instant, order: &Order, event: LedgerEvent) {
        let Order { key, epoch, attempt, call, cluster, .. } = order.clone();
        self.ledger.push(LedgerLine { key, epoch, attempt, cluster: cluster.id, call, event, at });
    }

    pub(super) fn catch_up(&mut self, now: Instant, script: &Script) {
        while let Some(entry) = self.due.first_entry()
            && entry.key().0 <= now
        {
            let ((at, number), due) = entry.remove_entry();
            match due {
                Due::Arrival { order, fate } => self.arrive(at, number, order, fate, script),
                Due::Completion { order } => self.complete(at, &order, script),
            }
        }
    }

    pub(super) fn arrive(&mut self, at: Instant, number: u64, order: Order, fate: Fate, script: &Script) {
        let fences = script.capabilities.fences && !Mutant::BackendNotFenced.is_on();
        if let Some(highest) = self.highest.filter(|highest| fences && order.epoch < *highest) {
            self.write(at, &order, LedgerEvent::RefusedEpoch);
            self.answers.insert(number, Err(CallError::Fenced { highest }));
            return;
        }
        if let Some(known) = self.known.get_mut(&order.key).filter(|_| script.remembers_keys) {
            if known.parameters != order.parameters {
                let known = known.parameters.to_string();
                self.answers.insert(number, Err(CallError::OtherParameters { key: order.key.clone(), known }));
                self.write(at, &order, LedgerEvent::OtherParameters);
                return;
            }
            match known.result.clone() {
                Some(result) => drop(self.answers.insert(number, result)),
                None => known.waiting.push(number),
            }
            self.write(at, &order, LedgerEvent::Repeated);
            return;
        }
        if fate.refused {
            self.write(at, &order, LedgerEvent::RefusedForNow);
            let reason = "there is no room at the moment".to_owned();
            self.answers.insert(number, Err(CallError::Refused { retryable: true, reason }));
            return;
        }
        self.write(at, &order, LedgerEvent::Accepted);
        let due = at + fate.takes;
        let known = Known { parameters: order.parameters, arrived_at: at, due, waiting: vec![number], result: None };
        self.known.insert(order.key.clone(), known);
        self.due.insert((due, number), Due::Completion { order });
    }

    pub(super) fn complete(&mut self, at: Instant, order: &Order, script: &Script) {
        let result = self.carry_out(at, order, script);
        if let Some(known) = self.known.get_mut(&order.key) {
            known.result = Some(result.clone());
            for number in std::mem::take(&mut known.waiting) {
                self.answers.insert(number, result.clone());
            }
        }
    }

    pub(super) fn carry_out(&mut self, at: Instant, order: &Order, script: &Script) -> Answer {
        let cluster = order.cluster.id;
        let report = match &order.call {
            Call::CreateReplica(spec) => {
                if script.remembers_keys && self.life_mut(cluster, &spec.name, None).is_some() {
                    let reason = format!("there is a replica {} already", spec.name);
                    return Err(CallError::Refused { retryable: false, reason });
                }
                Report::Created { incarnation: Some(self.create(cluster, spec, at)) }
            }
            Call::DropReplica(life) => {
                if let Some(there) = self.meant_mut(cluster, life) {
                    there.gone_at = Some(at);
                }
                Report::Nothing
            }
            Call::DrainReplica(_) => Report::Drained(DrainResult { moved: 1, left: 0 }),
            Call::CheckpointReplica(life) => {
                let reason = match self.meant_mut(cluster, life) {
                    Some(_) if script.capabilities.checkpoints => None,
                    Some(_) => Some("no checkpoints are kept here".to_owned()),
                    None => Some(format!("the replica {} that is meant is gone", life.name)),
                };
                if let Some(reason) = reason {
                    return Err(CallError::Refused { retryable: false, reason });
                }
                Report::Nothing
            }
            Call::CordonReplica(_) | Call::UncordonReplica(_) => Report::Nothing,
        };
        self.write(at, order, LedgerEvent::Effect);
        Ok(report)
    }

    pub(super) fn create(&mut self, cluster: ClusterId, spec: &ReplicaSpec, at: Instant) -> String {
        let incarnation = format!("i-{}", self.number());
        self.lives.entry(cluster).or_default().push(Life {
            name: spec.name.to_string(),
            size: spec.size.to_string(),
            incarnation: incarnation.clone(),
            made_at: at,
            gone_at: None,
            crashes: 0,
            oom: false,
        });
        incarnation
    }

    pub(super) fn meant_mut(&mut self, cluster: ClusterId, life: &ReplicaLife) -> Option<&mut Life> {
        self.life_mut(cluster, &life.name, life.incarnation.as_deref())
    }

    pub(super) fn life_mut(&mut self, cluster: ClusterId, name: &str, incarnation: Option<&str>) -> Option<&mut Life> {
        let lives = self.lives.get_mut(&cluster)?;
        lives.iter_mut().find(|life| {
            let meant = incarnation.is_none_or(|incarnation| life.incarnation == incarnation);
            life.name == name && life.gone_at.is_none() && meant
        })
    }
}
