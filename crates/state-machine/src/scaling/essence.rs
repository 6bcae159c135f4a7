//! What makes a decision the same as another one: what was said and done, not the numbers behind it. Nobody needs to be told
//! again that a cluster is idle one second longer.
//!
//! It is a fingerprint of 128 bits, kept beside the latest decision, so that the next evaluation can tell whether it is
//! news without reading the decision itself. It is part of the state: how it is made is pinned like everything else that
//! `apply` derives.

use serde::{Deserialize, Serialize};

use super::decisions::{Conclusion, Decision, Held};
use super::plan::{Planned, Step};
use crate::StrategyId;
use crate::strategies::chain::{Said, Stage};
use crate::strategies::desired::{Alteration, Change, ReplicaSpec};

/// Equal for decisions that say and do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Essence(u64, u64);

impl Essence {
    /// Of a decision that would be made.
    pub(crate) fn of_draft(said: &Said, planned: &[Planned], conclusion: Conclusion, brakes: &[Held]) -> Self {
        let mut mixer = Mixer::new();
        mixer.conclusion(conclusion, brakes);
        mixer.said(&said.stages, said.desired.replicas());
        mixer.list(planned, Mixer::planned);
        match &said.shadow {
            None => mixer.number(0),
            Some(shadow) => mixer.said(&shadow.stages, shadow.desired.replicas()),
        }
        mixer.finish()
    }

    /// Of one that was made: the same as of its draft.
    pub(crate) fn of_decision(decision: &Decision) -> Self {
        let mut mixer = Mixer::new();
        mixer.conclusion(decision.conclusion, &decision.brakes);
        mixer.said(&decision.stages, decision.desired.iter());
        mixer.list(&decision.planned, Mixer::planned);
        match &decision.shadow {
            None => mixer.number(0),
            Some(shadow) => mixer.said(&shadow.stages, shadow.desired.iter()),
        }
        mixer.finish()
    }

    /// Of the steps alone.
    pub(crate) fn of_plan(planned: &[Planned]) -> Self {
        let mut mixer = Mixer::new();
        mixer.list(planned, Mixer::planned);
        mixer.finish()
    }
}

/// Two lanes of 64 bits, each stirred by the finishing steps of a well-known hash at every word.
struct Mixer {
    lanes: [u64; 2],
}

impl Mixer {
    fn new() -> Self {
        Self { lanes: [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03] }
    }

    fn number(&mut self, number: u64) {
        let [one, other] = &mut self.lanes;
        *one = stirred(*one ^ number);
        *other = stirred(other.rotate_left(29) ^ number);
    }

    fn text(&mut self, text: &str) {
        // With its length, so that one text after another is not taken for one long one.
        self.number(text.len() as u64);
        for chunk in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    fn list<T>(&mut self, all: &[T], mut one: impl FnMut(&mut Self, &T)) {
        self.number(all.len() as u64);
        for it in all {
            one(self, it);
        }
    }

    fn strategy(&mut self, id: StrategyId) {
        self.number(id.index.0);
        self.number(id.ordinal.into());
    }

    fn spec(&mut self, replica: &ReplicaSpec) {
        self.text(&replica.name);
        self.text(&replica.size);
    }

    fn conclusion(&mut self, conclusion: Conclusion, brakes: &[Held]) {
        match conclusion {
            // Beginning an operation and then seeing it under way is one story.
            Conclusion::Began(id) | Conclusion::UnderWay(id) => {
                self.number(1);
                self.number(id.index.0);
                self.number(id.ordinal.into());
            }
            Conclusion::AsWanted => self.number(2),
            Conclusion::Held => self.number(3),
            Conclusion::Suppressed => self.number(4),
            Conclusion::Faulted => self.number(5),
        }
        self.list(brakes, |mixer, held| mixer.number(held.brake.number()));
    }

    fn said<'a>(&mut self, stages: &[Stage], desired: impl Iterator<Item = &'a ReplicaSpec>) {
        self.list(stages, |mixer, stage| {
            mixer.strategy(stage.strategy);
            mixer.number(stage.reason.number());
            mixer.number(stage.tied_with.map_or(0, |id| id.index.0.wrapping_add(1)));
            mixer.number(stage.tied_with.map_or(0, |id| id.ordinal.into()));
            mixer.text(stage.profile.as_ref().and_then(|profile| profile.row.as_deref()).unwrap_or_default());
            mixer.list(&stage.changes, Self::change);
            mixer.list(&stage.held_back, Self::change);
        });
        let mut count = 0;
        for replica in desired {
            self.spec(replica);
            count += 1;
        }
        self.number(count);
    }

    fn change(&mut self, change: &Change) {
        self.number(change.reason.number());
        match &change.alteration {
            Alteration::Added(replica) => {
                self.number(1);
                self.spec(replica);
            }
            Alteration::Resized { replica, from } => {
                self.number(2);
                self.spec(replica);
                self.text(from);
            }
            Alteration::Removed(replica) => {
                self.number(3);
                self.spec(replica);
            }
        }
    }

    fn planned(&mut self, planned: &Planned) {
        if let Some(id) = planned.by.strategy() {
            self.strategy(id);
        }
        self.number(planned.reason.number());
        self.text(planned.step.dropped_incarnation().map_or("", |it| it));
        match &planned.step {
            Step::Create(replica) => {
                self.number(1);
                self.spec(replica);
            }
            Step::Replace { old, new, .. } => {
                self.number(2);
                self.spec(old);
                self.spec(new);
            }
            Step::Drop { replica, .. } => {
                self.number(3);
                self.spec(replica);
            }
            Step::Suspend { replica, .. } => {
                self.number(4);
                self.spec(replica);
            }
        }
    }

    fn finish(self) -> Essence {
        let [one, other] = self.lanes;
        Essence(stirred(one), stirred(other))
    }
}

/// Every bit of the number decides about every bit of the result.
fn stirred(mut number: u64) -> u64 {
    number ^= number >> 33;
    number = number.wrapping_mul(0xff51_afd7_ed55_8ccd);
    number ^= number >> 33;
    number = number.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn texts_that_differ_in_any_byte_or_in_where_they_end_differ() {
        let of = |texts: &[&str]| {
            let mut mixer = Mixer::new();
            for text in texts {
                mixer.text(text);
            }
            let Essence(one, other) = mixer.finish();
            (one, other)
        };
        let long: Vec<String> = (0..40).map(|length| "x".repeat(length)).collect();
        let mut all: Vec<Vec<&str>> = long.iter().map(|text| vec![text.as_str()]).collect();
        all.extend([vec!["ab", "c"], vec!["a", "bc"], vec!["abc"], vec!["abc", ""], vec!["", "abc"], vec!["abd"]]);
        let distinct: BTreeSet<(u64, u64)> = all.iter().map(|texts| of(texts)).collect();
        assert_eq!(distinct.len(), all.len());
        let lanes: BTreeSet<u64> = distinct.iter().flat_map(|(one, other)| [*one, *other]).collect();
        assert_eq!(lanes.len(), 2 * all.len(), "the lanes do not repeat each other");
    }
}
