//! What is learned of how long things took, and what is not: what a person took to answer, and what was there sooner than was known.

use loadline_state_machine::Span;

use super::scribe::{Scribe, second};
use super::{reproduced, tried};
use crate::backtest::LearnedSize;

const STRATEGY: &str = "SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE";

#[test]
fn what_a_person_took_to_approve_is_not_waited_for_twice() {
    let mut scribe = Scribe::new();
    scribe.until(900, |scribe, now| match now {
        100 => {
            scribe.sql("CREATE CLUSTER web");
            scribe.sql(&format!("CREATE {STRATEGY} WITH (SIZE = '1', APPROVAL = 'manual')"));
        }
        400 => scribe.approve(),
        _ => {}
    });
    let tried = tried(&scribe, 50, "");
    // Wanted at 100, approved and taken up at 400, there at 401, ready at 411.
    assert_eq!(tried.recorded.short_ms, 311_000);
    reproduced(&tried);
    let nothing = format!("An action is taken up {} after its turn", Span::default());
    assert!(tried.assumptions.iter().any(|it| it.contains(&nothing)), "{:#?}", tried.assumptions);
}

#[test]
fn a_replica_that_is_seen_ready_before_its_call_comes_back_took_no_time() {
    let mut scribe = Scribe::new();
    scribe.early = true;
    scribe.until(600, |scribe, now| {
        if now == 100 {
            scribe.sql("CREATE CLUSTER web");
            scribe.sql(&format!("CREATE {STRATEGY} WITH (SIZE = '1')"));
        }
    });
    // The window may also begin while the call is under way.
    for since in [50, 101] {
        let learned = LearnedSize {
            size: "1".to_owned(),
            start_up_ms: Some(0),
            start_ups: 1,
            hydration_ms: Some(0),
            hydrations: 1,
        };
        assert_eq!(tried(&scribe, since, "").learned, [learned], "from {} on", second(since));
    }
}

#[test]
fn an_approval_does_not_answer_what_is_asked_after_it_would_have_expired() {
    for (expiry, made) in [("10m", false), ("1h", true)] {
        let mut scribe = Scribe::new();
        scribe.sql(&format!("ALTER SYSTEM SET auto_scaling_approval_expiry = '{expiry}'"));
        scribe.until(2_000, |scribe, now| match now {
            200 => {
                scribe.sql("CREATE CLUSTER web");
                scribe.sql(&format!("CREATE {STRATEGY} WITH (SIZE = '1', APPROVAL = 'manual')"));
            }
            210 => scribe.approve(),
            // With the change, nothing has been asked for up to here.
            1_500 => scribe.sql("ALTER SYSTEM SET auto_scaling_enabled = true"),
            _ => {}
        });
        let tried = tried(&scribe, 100, "ALTER SYSTEM SET auto_scaling_enabled = false");
        reproduced(&tried);
        let changed = tried.changed.unwrap();
        assert_eq!(changed.actions.contains_key("create_replica"), made, "{expiry}: {changed:?}");
    }
}
