//! What was tried as often as allowed and did not come about: an alarm, until somebody deals with it. It holds up neither its
//! operation, which has failed, nor its cluster, which goes on.
//!
//! A letter goes when an operator retries, resolves or abandons it (`by_hand`), when the same call on the same replica succeeds
//! later, when its cluster goes, and when a backup is restored. Its row in the history stays.

use std::sync::Arc;

use super::actions::{Action, ActionStatus};
use crate::table::Table;
use crate::{ActionId, ClusterId};

/// Far more than anybody deals with by hand. The oldest go first: what has been an alarm for longest was seen.
pub(crate) const DEAD_LETTERS_MAX: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadLetters {
    by_id: Table<ActionId, Arc<Action>>,
}

impl DeadLetters {
    pub(crate) fn get(&self, id: ActionId) -> Option<&Arc<Action>> {
        self.by_id.get(&id)
    }

    /// The oldest action first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Action>> {
        self.by_id.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn remove(&mut self, id: ActionId) {
        self.by_id.remove(&id);
    }

    /// Takes in what an action that was settled means. `kept`: its cluster is still there.
    pub(crate) fn settled(&mut self, action: &Action, kept: bool) {
        self.remove(action.id);
        match action.status {
            ActionStatus::Succeeded => self.forget(|letter| is_same_wish(letter, action)),
            ActionStatus::DeadLettered if kept => {
                self.by_id.insert(action.id, Arc::new(action.clone()));
                while self.by_id.len() > DEAD_LETTERS_MAX
                    && let Some(oldest) = self.oldest()
                {
                    self.remove(oldest);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn forget_cluster(&mut self, cluster: ClusterId) {
        self.forget(|letter| letter.cluster == cluster);
    }

    fn forget(&mut self, over: impl Fn(&Action) -> bool) {
        let over: Vec<ActionId> = self.iter().filter(|letter| over(letter)).map(|letter| letter.id).collect();
        for id in over {
            self.remove(id);
        }
    }

    fn oldest(&self) -> Option<ActionId> {
        self.iter().min_by_key(|letter| (letter.settled_at, letter.id)).map(|letter| letter.id)
    }
}

/// What one did not do, the other has done.
fn is_same_wish(letter: &Action, done: &Action) -> bool {
    letter.cluster == done.cluster
        && letter.call.code() == done.call.code()
        && letter.call.replica() == done.call.replica()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::actions::tests::action;
    use crate::{LogIndex, Time};

    fn letter(number: u64, at: u64) -> Action {
        let id = ActionId { index: LogIndex(number), ordinal: 0 };
        Action { id, settled_at: Some(Time::from_millis(at)), ..action().with(ActionStatus::DeadLettered) }
    }

    #[test]
    fn no_more_are_kept_than_anybody_deals_with_and_the_oldest_alarm_goes_first() {
        let mut letters = DeadLetters::default();
        for number in 1..=DEAD_LETTERS_MAX as u64 {
            letters.settled(&letter(number, number), true);
        }
        // An old action that was given up only now is a new alarm.
        letters.settled(&letter(0, 5_000), true);
        assert_eq!(letters.len(), DEAD_LETTERS_MAX);
        let kept = |number| letters.get(letter(number, 0).id).is_some();
        assert_eq!((kept(0), kept(1), kept(2)), (true, false, true));
    }

    #[test]
    fn only_the_same_call_on_the_same_replica_of_the_same_cluster_clears_an_alarm() {
        let done = action().with(ActionStatus::Succeeded);
        let other = ClusterId { index: LogIndex(9), ordinal: 0 };
        let elsewhere = Action { cluster: other, ..done.clone() };
        let mut letters = DeadLetters::default();
        letters.settled(&letter(7, 1), true);
        letters.settled(&letter(8, 1), false);
        assert_eq!(letters.len(), 1, "nobody is alarmed about a cluster that is gone");
        letters.settled(&elsewhere, true);
        letters.settled(&done.with(ActionStatus::Failed), true);
        assert_eq!(letters.len(), 1);
        letters.settled(&done, true);
        assert_eq!(letters.len(), 0);
    }
}
