//! Members that come and go: a node that joins a group that is at work, leadership that is handed on, a disk that is lost
//! for good, or rots.
//!
//! At most one disk is lost in a run, and only where two more nodes have theirs: a group of which a majority has lost its
//! disks is gone, and no protocol brings it back.

use super::{Chances, Deed, Family};

pub(super) fn schedule(chances: &mut Chances<'_>, family: Family) {
    let begin = chances.start();
    match family {
        Family::Membership => {
            let mut at = begin;
            while at < chances.end() {
                chances.at(at, Deed::Transfer);
                at += chances.dice.millis(500, 5_000);
            }
            if chances.dice.coin() {
                let (node, at) = (chances.node(), begin + chances.dice.millis(1_000, 6_000));
                chances.at(at, Deed::LoseDisk { node });
            }
        }
        _ => {
            let (node, roll) = (chances.node(), chances.dice.throw());
            let at = begin + chances.dice.millis(2_000, 8_000);
            chances.at(at, Deed::FlipBit { node, roll });
        }
    }
}
