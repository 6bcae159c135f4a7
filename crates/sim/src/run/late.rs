//! What an executor had recorded arrives late, or once more: when another leads, or when the next attempt is out.
//!
//! Only what was really said: a claim or an outcome that an executor has made, under the epoch and for the attempt it had then.
//! A node hands a request on when it no longer leads, and what it has handed on arrives whatever becomes of the node.

use std::time::Duration;

use loadline_state_machine::{Command, Event};
use tokio::sync::mpsc;

use crate::dice::Dice;
use crate::faults::Family;
use crate::invariants::Agreed;
use crate::plan::Plan;
use crate::record::{Applied, Place};
use crate::stragglers::{Letter, Order};

/// Of what was said, so much is kept; the oldest is forgotten first.
const KEPT_MAX: usize = 48;
/// Of what is said, so much can arrive late.
const KEPT_PERCENT: u64 = 70;
/// And of that so much arrives once more soon, for no reason.
const REPEATED_PERCENT: u64 = 15;

#[derive(Debug)]
pub(super) struct Late {
    on: bool,
    log: Agreed,
    kept: Vec<Letter>,
    due: Vec<(Duration, Letter)>,
    /// Who was elected last.
    leader: Option<Place>,
    handed_on: mpsc::UnboundedSender<Order>,
    dice: Dice,
}

impl Late {
    pub(super) fn new(plan: &Plan, handed_on: mpsc::UnboundedSender<Order>) -> Late {
        Late {
            on: plan.has(Family::Straggler),
            log: Agreed::default(),
            kept: Vec::new(),
            due: Vec::new(),
            leader: None,
            handed_on,
            dice: Dice::of(plan.seed, "late"),
        }
    }

    pub(super) fn stop(&mut self) {
        self.on = false;
        self.due.clear();
    }

    pub(super) fn said(&mut self, at: Duration, node: Place, command: Command) {
        if !self.on || !self.dice.percent(KEPT_PERCENT) {
            return;
        }
        let letter = Letter { from: node, command };
        if self.dice.percent(REPEATED_PERCENT) {
            self.due.push((at + self.dice.millis(5, 300), letter.clone()));
        }
        if self.kept.len() >= KEPT_MAX {
            self.kept.remove(0);
        }
        self.kept.push(letter);
    }

    pub(super) fn elected(&mut self, node: Place) {
        self.leader = Some(node);
        if self.on {
            // Whoever delivers lives as long as the run.
            let _ = self.handed_on.send(Order::Meet(node));
        }
    }

    pub(super) fn applied(&mut self, at: Duration, applied: &Applied) {
        if !self.on || !self.log.is_first(applied) {
            return;
        }
        for event in &applied.events {
            match event {
                Event::LeaderAnnounced { epoch, .. } => {
                    self.let_arrive(at, 10, |command| match command {
                        Command::ClaimAction { epoch: said, .. } | Command::RecordOutcome { epoch: said, .. } => {
                            said < epoch
                        }
                        _ => false,
                    });
                }
                Event::ActionClaimed { action: claimed } => {
                    self.let_arrive(at, 3, |command| match command {
                        Command::RecordOutcome { action, attempt, .. } => {
                            *action == claimed.id && *attempt < claimed.attempt
                        }
                        _ => false,
                    });
                }
                _ => {}
            }
        }
    }

    /// What is kept and such arrives within so many milliseconds.
    fn let_arrive(&mut self, at: Duration, within_ms: u64, such: impl Fn(&Command) -> bool) {
        let (chosen, kept) = std::mem::take(&mut self.kept).into_iter().partition(|letter| such(&letter.command));
        self.kept = kept;
        let chosen: Vec<Letter> = chosen;
        for letter in chosen {
            self.due.push((at + self.dice.millis(0, within_ms), letter));
        }
    }

    pub(super) fn deliver_what_is_due(&mut self, now: Duration) {
        let Some(to) = self.leader else { return };
        for (_, letter) in self.due.extract_if(.., |(at, _)| *at <= now) {
            let _ = self.handed_on.send(Order::Deliver(to, Box::new(letter)));
        }
    }
}
