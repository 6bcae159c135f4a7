//! Networks that part, in one way or both, slow down and lose.
//!
//! Connections are TCP: what is lost on one is not sent again by the simulated network, so a loss breaks the connection, and
//! whoever is on it notices by silence. Messages on different connections overtake each other; on one they do not.

use std::time::Duration;

use super::{Chances, Deed, Family};

pub(super) fn schedule(chances: &mut Chances<'_>, family: Family) {
    let mut at = chances.start();
    while at < chances.end() {
        let nodes: Vec<usize> = (0..chances.nodes()).collect();
        match family {
            Family::Latency => {
                let max = chances.dice.millis(20, 250);
                let usual = chances.plan.latency.1;
                chances.span(&mut at, (300, 4_000), |_| (Deed::Latency { max }, Deed::Latency { max: usual }));
            }
            Family::Loss => {
                let rate = u32::try_from(chances.dice.between(1, 100)).unwrap_or(1);
                let (begin, end) = (Deed::Loss { per_ten_thousand: rate }, Deed::Loss { per_ten_thousand: 0 });
                chances.span(&mut at, (300, 4_000), |_| (begin, end));
            }
            Family::Ring => {
                // With three nodes a ring is everybody; one link less makes it a chain.
                let len = nodes.len();
                let far = |a: usize, b: usize| len > 3 && (a + 1) % len != b && (b + 1) % len != a;
                let broken = chances.dice.index(len);
                let parted = |a: usize, b: usize| far(a, b) || (len == 3 && a == broken && b == (broken + 1) % len);
                let pairs: Vec<(usize, usize)> = nodes
                    .iter()
                    .flat_map(|a| nodes.iter().map(move |b| (*a, *b)))
                    .filter(|(a, b)| parted(*a, *b))
                    .collect();
                let begin = at;
                at += chances.dice.millis(500, 4_000);
                for (a, b) in pairs {
                    chances.at(begin, Deed::Cut { from: vec![a], to: vec![b], both_ways: true });
                    chances.at(at, Deed::Mend { from: vec![a], to: vec![b] });
                }
                at += chances.dice.millis(200, 4_000);
            }
            Family::Flap => {
                let (a, b) = (chances.node(), chances.node());
                let until = at + chances.dice.millis(1_000, 4_000);
                while a != b && at < until {
                    let both_ways = chances.dice.coin();
                    chances.at(at, Deed::Cut { from: vec![a], to: vec![b], both_ways });
                    at += chances.dice.millis(20, 400);
                    chances.at(at, Deed::Mend { from: vec![a], to: vec![b] });
                    at += chances.dice.millis(20, 400);
                }
                at += chances.dice.millis(200, 4_000);
            }
            _ => {
                let (mut one, mut other) = (Vec::new(), Vec::new());
                for node in nodes {
                    if chances.dice.coin() { one.push(node) } else { other.push(node) }
                }
                if one.is_empty() || other.is_empty() {
                    at += Duration::from_millis(100);
                    continue;
                }
                let both_ways = family == Family::Partition;
                chances.span(&mut at, (200, 4_000), |_| {
                    let cut = Deed::Cut { from: one.clone(), to: other.clone(), both_ways };
                    (cut, Deed::Mend { from: one, to: other })
                });
            }
        }
    }
}
