//! Whoever leads is killed or held at exactly the step of an action where it hurts most: after the claim, after the lease was
//! looked at, after the call.

use loadline_executor::Step;

use super::{Chances, Deed, Then};

pub(super) fn schedule(chances: &mut Chances<'_>) {
    let mut at = chances.start();
    while at < chances.end() {
        let step = *chances.dice.pick(&Step::ALL);
        let skip = chances.dice.below(4);
        let then = match chances.dice.below(3) {
            0 => Then::Kill,
            1 => Then::LosePower,
            _ => Then::Pause(chances.dice.millis(200, 3_500)),
        };
        chances.at(at, Deed::Ambush { step, skip, then });
        at += chances.dice.millis(500, 4_000);
    }
}
