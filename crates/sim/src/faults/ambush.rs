//! Whoever leads is killed or held at exactly the step of an action where it hurts most: after the claim, after the lease was
//! looked at, after the call; or overtaken by what forbids the claim that it is about to make.

use loadline_executor::Step;

use super::{By, Chances, Deed, Then};

pub(super) fn schedule(chances: &mut Chances<'_>) {
    let mut at = chances.start();
    // These wait for somebody who tries again, which is seldom: they are there from the beginning.
    for by in [By::KillSwitch, By::Drop] {
        if chances.dice.percent(60) {
            chances.at(at, Deed::Ambush { step: Step::BeforeClaim, skip: 0, then: Then::Overtaken(by) });
        }
    }
    while at < chances.end() {
        let skip = chances.dice.below(2);
        let (step, then) = match chances.dice.below(10) {
            // The one moment that only the lease and the fence guard: held between claim and call until another leader is
            // at work, or for longer than it takes to elect one.
            0..3 => {
                let steps = [Step::AfterClaim, Step::BeforeLeaseCheck, Step::BeforeCall, Step::BeforeCall];
                (*chances.dice.pick(&steps), Then::Outlast)
            }
            3..5 => {
                let step = *chances.dice.pick(&[Step::AfterClaim, Step::BeforeLeaseCheck, Step::BeforeCall]);
                (step, Then::Pause(chances.dice.millis(1_500, 4_000)))
            }
            // With an outcome in hand that the next leader has to find out for itself.
            5..7 => (Step::BeforeRecord, *chances.dice.pick(&[Then::Kill, Then::LosePower, Then::Outlast])),
            _ => {
                let then = match chances.dice.below(3) {
                    0 => Then::Kill,
                    1 => Then::LosePower,
                    _ => Then::Pause(chances.dice.millis(200, 3_500)),
                };
                (*chances.dice.pick(&Step::ALL), then)
            }
        };
        chances.at(at, Deed::Ambush { step, skip, then });
        at += chances.dice.millis(500, 3_000);
    }
}
