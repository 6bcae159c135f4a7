//! Whoever leads is killed or held at exactly the step of an action where it hurts most: after the claim, after the lease was
//! looked at, after the call.

use loadline_executor::Step;

use super::{Chances, Deed, Then};

pub(super) fn schedule(chances: &mut Chances<'_>) {
    let mut at = chances.start();
    while at < chances.end() {
        let skip = chances.dice.below(3);
        // Half of them go for the one moment that only the lease and the fence guard: held between claim and call for longer
        // than it takes to elect another leader.
        let (step, then) = if chances.dice.coin() {
            let step = *chances.dice.pick(&[Step::AfterClaim, Step::BeforeLeaseCheck, Step::BeforeCall]);
            (step, Then::Pause(chances.dice.millis(1_500, 4_000)))
        } else {
            let then = match chances.dice.below(3) {
                0 => Then::Kill,
                1 => Then::LosePower,
                _ => Then::Pause(chances.dice.millis(200, 3_500)),
            };
            (*chances.dice.pick(&Step::ALL), then)
        };
        chances.at(at, Deed::Ambush { step, skip, then });
        at += chances.dice.millis(500, 4_000);
    }
}
