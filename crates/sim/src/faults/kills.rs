//! Processes that die, with or without the power of their machine, at any moment; one or several at once.

use super::{Chances, Deed, Family};

pub(super) fn schedule(chances: &mut Chances<'_>, family: Family) {
    let lose_power = family == Family::PowerCut;
    let mut at = chances.start();
    while at < chances.end() {
        let nodes = chances.nodes();
        // Mostly one; sometimes everybody at the same time, which is what durability is for.
        let victims: Vec<usize> = if chances.dice.percent(15) {
            (0..nodes).collect()
        } else if chances.dice.percent(20) {
            vec![chances.node(), chances.node()]
        } else {
            vec![chances.node()]
        };
        for node in victims {
            let again = at + chances.dice.millis(1, 2_500);
            chances.at(at, Deed::Kill { node, lose_power });
            chances.at(again, Deed::Restart { node });
        }
        at += chances.dice.millis(500, 5_000);
    }
}
