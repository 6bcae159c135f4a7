//! `BEGIN` to `COMMIT`: one request of the log.
//!
//! Every statement is tried on a fork of the state as it is given, so that what is wrong is said at once, and whoever looks in
//! the middle sees what they have done so far. At the end all commands go into the log as one request, where they are decided
//! again, all of them at one index or none. What others did meanwhile is so never overwritten unseen: a command that no longer
//! fits is refused, and with it the whole; so is one that was computed from rows which somebody else has changed.

use loadline_state_machine::{Actor, Command, Done, Refused, Request, State, StrategyId, Time, rehearse_fork};

use super::Change;
use crate::error::{SqlError, SqlState};

#[derive(Clone, Debug)]
pub struct Transaction {
    actor: Actor,
    begun: State,
    /// As if everything so far had been done.
    seen: State,
    changes: Vec<Change>,
}

impl Transaction {
    /// `state` is what the transaction sees for as long as it lasts, beside its own changes.
    pub fn begin(actor: Actor, state: State) -> Self {
        Self { actor, begun: state.clone(), seen: state, changes: Vec::new() }
    }

    /// What a query sees that is asked now.
    pub fn state(&self) -> &State {
        &self.seen
    }

    pub fn is_empty(&self) -> bool {
        self.changes.iter().all(|change| change.commands.is_empty())
    }

    /// Takes a change up, or says why it is refused; then it is as if it had not been asked for.
    pub fn add(&mut self, change: Change, now: Time) -> Result<Vec<Done>, SqlError> {
        if change.commands.is_empty() {
            return Ok(Vec::new());
        }
        self.check_known(&change)?;
        // From the beginning, as it will be decided in the end: what is created gets its id by its place in the whole.
        let mut commands: Vec<Command> = self.plain().cloned().collect();
        let before = commands.len();
        commands.extend(change.commands.iter().cloned());
        let request = Request { actor: self.actor.clone(), request_id: None, commands };
        let (seen, mut done) = rehearse_fork(&self.begun, &request, now).map_err(|refused| {
            let place = usize::try_from(refused.ordinal).ok().and_then(|ordinal| ordinal.checked_sub(before));
            change.refused(place, &refused.rejection)
        })?;
        self.seen = seen;
        self.changes.push(change);
        Ok(done.split_off(before))
    }

    /// What is made here gets its id at the commit, so nothing can be written yet that names it by that.
    fn check_known(&self, change: &Change) -> Result<(), SqlError> {
        let is_known = |command: &Command| match command {
            Command::SetStrategyState { strategy, cluster, .. } => {
                self.begun.strategy(*strategy).is_some() && self.begun.cluster_by_id(*cluster).is_some()
            }
            _ => true,
        };
        if change.commands.iter().all(is_known) {
            return Ok(());
        }
        let message = "what a strategy remembers cannot be written in the transaction that makes it";
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint("COMMIT first."))
    }

    fn plain(&self) -> impl Iterator<Item = &Command> {
        self.changes.iter().flat_map(|change| &change.commands)
    }

    /// What was there when it began and something in it was computed from: it must still be so at the commit.
    fn expectations(&self) -> Vec<Command> {
        let read: Vec<StrategyId> = self.changes.iter().flat_map(|change| change.read.iter().copied()).collect();
        super::expectations(&self.begun, &read)
    }

    /// What is to be recorded.
    pub fn commands(&self) -> Vec<Command> {
        let mut commands = self.expectations();
        commands.extend(self.plain().cloned());
        commands
    }

    /// Why the whole was refused in the end.
    pub fn refused(&self, refused: &Refused) -> SqlError {
        let ordinal = usize::try_from(refused.ordinal).unwrap_or(usize::MAX);
        let Some(mut before) = ordinal.checked_sub(self.expectations().len()) else {
            return super::refused(&refused.rejection);
        };
        for change in &self.changes {
            if before < change.commands.len() {
                // The place is in another text by now, that of the statement.
                return SqlError { position: None, ..change.refused(None, &refused.rejection) };
            }
            before -= change.commands.len();
        }
        super::refused(&refused.rejection)
    }
}
