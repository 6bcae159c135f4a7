//! What is counted where not everything goes well: starts that never end, and signals that ask in vain.

use loadline_state_machine::{Outcome, Seen};

use super::scribe::Scribe;
use super::{reproduced, tried};

const STRATEGY: &str = "SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE";

fn no_room() -> Option<Outcome> {
    Some(Outcome::Failed { retryable: false, reason: "no room".to_owned() })
}

#[test]
fn a_start_that_never_comes_to_an_end_is_waited_for_to_the_end() {
    let mut scribe = Scribe::new();
    scribe.all_fail = no_room();
    scribe.until(600, |scribe, now| {
        if now == 100 {
            scribe.sql("CREATE CLUSTER web");
            scribe.sql(&format!("CREATE {STRATEGY} WITH (SIZE = '1')"));
        }
    });
    let tried = tried(&scribe, 50, "");
    assert_eq!((tried.recorded.cold_starts, tried.recorded.cold_start_wait_ms), (1, 500_000));
    assert!(tried.recorded.actions_total() > 1, "it was tried again: {:?}", tried.recorded);
    // In the model it succeeds: no call of the window came back, so it takes 100 ms, and 10 s to be ready.
    assert_eq!((tried.unchanged.cold_starts, tried.unchanged.cold_start_wait_ms), (1, 10_100));
}

#[test]
fn what_nobody_wants_any_more_is_not_waited_for_and_the_next_start_is_another() {
    let mut scribe = Scribe::new();
    scribe.all_fail = no_room();
    scribe.until(600, |scribe, now| match now {
        100 => {
            scribe.sql("CREATE CLUSTER web");
            scribe.sql(&format!("CREATE {STRATEGY} WITH (SIZE = '1')"));
        }
        400 => {
            scribe.sql(&format!("ALTER {STRATEGY} UPDATE (ENABLED = false)"));
            scribe.all_fail = None;
        }
        500 => scribe.sql(&format!("ALTER {STRATEGY} UPDATE (ENABLED = true)")),
        _ => {}
    });
    let recorded = tried(&scribe, 50, "").recorded;
    // Wanted in vain from 100 to 400; then from 500 on, there at 501, ready at 511.
    assert_eq!((recorded.cold_starts, recorded.cold_start_wait_ms), (2, 300_000 + 11_000));
}

#[test]
fn a_signal_that_asks_for_more_in_a_cooldown_is_over_its_target() {
    let mut scribe = Scribe::new();
    scribe.hydrates = false;
    scribe.sql("ALTER SYSTEM SET auto_scaling_cluster_cooldown = '0s'");
    scribe.sql("CREATE CLUSTER web");
    scribe.sql(
        "CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET TRACKING WITH (SIZE = '1', MAX_REPLICAS = 10, \
         SIGNALS = 'load average 10', COOLDOWN = '5m')",
    );
    scribe.until(900, |scribe, now| {
        let load = if now < 400 {
            10_000
        } else if now < 500 {
            20_000
        } else {
            30_000
        };
        if now.is_multiple_of(10) {
            scribe.seen("watch", "web", Seen::Metric { name: "load".to_owned(), value_milli: load });
        }
    });
    let tried = tried(&scribe, 300, "");
    reproduced(&tried);
    // Asked for at 400 and ready at 411. From then on the strategy waits for 5 minutes, though one more is asked for from 500 on: it
    // is wanted at 711, and ready at 722.
    assert_eq!(tried.recorded.short_ms, 11_000 + 11_000);
    assert_eq!(tried.recorded.over_target_ms, 11_000 + (722 - 500) * 1_000);
}
