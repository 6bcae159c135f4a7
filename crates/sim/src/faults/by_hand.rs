//! People who make and end replicas at the backend themselves, past Loadline.

use super::{Chances, Deed};

pub(super) fn schedule(chances: &mut Chances<'_>) {
    let mut at = chances.start();
    while at < chances.end() {
        let (cluster, number) = (chances.dice.index(8), chances.dice.between(1, 2));
        let ended = chances.dice.percent(30);
        chances.at(at, Deed::ByHand { cluster, replica: format!("hand{number}"), ended });
        at += chances.dice.millis(300, 3_000);
    }
}
