//! A claim or an outcome is accepted only from the leadership that was announced last, and an outcome only for the attempt
//! that is out.

use std::collections::BTreeMap;

use loadline_state_machine::{ActionId, Command, Epoch, Event, JournalEntry};

use super::{Agreed, Invariant};
use crate::record::Sighting;

#[derive(Debug, Default)]
pub(super) struct Epochs {
    log: Agreed,
    current: Option<Epoch>,
    /// The attempt of each action that was claimed last.
    attempts: BTreeMap<ActionId, u32>,
}

impl Invariant for Epochs {
    fn name(&self) -> &'static str {
        "epochs"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        let Some(applied) = self.log.first(sighting) else { return Ok(()) };
        if let Ok(JournalEntry::Requests(sealed)) = JournalEntry::decode(&applied.entry) {
            for (request, receipt) in sealed.entry().requests.iter().zip(&applied.receipts) {
                if receipt.result.is_err() || receipt.repeated {
                    continue;
                }
                for command in &request.commands {
                    let (what, id, epoch) = match command {
                        Command::ClaimAction { action, epoch, attempt, .. } => {
                            self.attempts.insert(*action, *attempt);
                            ("claim", action, epoch)
                        }
                        Command::RecordOutcome { action, epoch, attempt, .. } => {
                            let out = self.attempts.get(action).copied().unwrap_or(0);
                            if *attempt != out {
                                return Err(format!(
                                    "at {} an outcome of attempt {attempt} was accepted for action {action}, and attempt {out} is out",
                                    applied.index
                                ));
                            }
                            ("outcome", action, epoch)
                        }
                        _ => continue,
                    };
                    if Some(*epoch) != self.current {
                        let current = self.current.map_or_else(|| "none".to_owned(), |current| current.to_string());
                        return Err(format!(
                            "at {} a {what} of epoch {epoch} was accepted for action {id}, and the epoch is {current}",
                            applied.index
                        ));
                    }
                }
            }
        }
        for event in &applied.events {
            if let Event::LeaderAnnounced { epoch, .. } = event {
                self.current = Some(*epoch);
            }
        }
        Ok(())
    }
}
