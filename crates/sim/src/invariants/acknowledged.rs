//! What was acknowledged is there once, what failed is not there, and what nobody knows is there at most once.
//!
//! A call is known in the log by its actor, which no other call has. A receipt that says "repeated" is no execution.

use std::collections::BTreeMap;

use loadline_state_machine::{Answer, Done, JournalEntry, Receipt};

use super::{Agreed, Invariant};
use crate::history::Told;
use crate::record::{Seen, Sighting};

#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    log: Agreed,
    /// By tag: the index of each execution that was accepted.
    executed: BTreeMap<String, Vec<u64>>,
    answers: BTreeMap<String, Told>,
}

impl Acknowledged {
    fn check(&self, tag: &str) -> Result<(), String> {
        let executed = self.executed.get(tag).map(Vec::as_slice).unwrap_or_default();
        if executed.len() > 1 {
            return Err(format!("{tag} was executed more than once, at {executed:?}"));
        }
        match self.answers.get(tag) {
            // A repeated report has the index of the repeat, which did nothing.
            Some(Told::Done { repeated: true, .. }) if executed.len() == 1 => Ok(()),
            Some(Told::Done { index, .. }) if executed != [*index] => {
                Err(format!("{tag} was told that it is recorded at {index}, and was executed at {executed:?}"))
            }
            Some(Told::Refused(refusal)) if !executed.is_empty() => {
                Err(format!("{tag} was refused ({}), and executed at {executed:?}", refusal.reason))
            }
            Some(Told::NotDone(why)) if !executed.is_empty() => {
                Err(format!("{tag} was told that nothing was recorded ({why}), and was executed at {executed:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether anything was done. A repeated report has no request id; its own answer says that it was heard before.
fn executes(receipt: &Receipt) -> bool {
    let heard_before = |done: &Done| matches!(&done.answer, Answer::Reported(report) if report.repeated);
    let Ok(done) = &receipt.result else { return false };
    !receipt.repeated && !done.iter().any(heard_before)
}

impl Invariant for Acknowledged {
    fn name(&self) -> &'static str {
        "acknowledged"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        if let Some(applied) = self.log.first(sighting) {
            let entry = JournalEntry::decode(&applied.entry)
                .map_err(|error| format!("the entry at {} cannot be read: {error}", applied.index))?;
            let JournalEntry::Requests(sealed) = entry else { return Ok(()) };
            for (request, receipt) in sealed.entry().requests.iter().zip(&applied.receipts) {
                let tag = request.actor.name.to_string();
                // Nodes have names that are no tags: they may do as much as they like.
                if !tag.contains('.') || !executes(receipt) {
                    continue;
                }
                self.executed.entry(tag.clone()).or_default().push(applied.index.0);
                self.check(&tag)?;
            }
            return Ok(());
        }
        if let Seen::Answered(answered) = &sighting.what {
            // A read leaves nothing to be found.
            if matches!(answered.answer, Told::Found { .. }) {
                return Ok(());
            }
            self.answers.insert(answered.tag.clone(), answered.answer.clone());
            return self.check(&answered.tag);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        self.answers.keys().try_for_each(|tag| self.check(tag))
    }
}
