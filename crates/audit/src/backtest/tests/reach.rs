//! How far a window can reach: histories of which entries are missing, or of which only a part can be replayed.

use loadline_state_machine::Span;

use super::scribe::{History, Scribe, second};
use super::{idle, reproduced, tried, tried_on};
use crate::backtest::{Backtest, BacktestError, Bound};
use crate::replay::ReplayError;

const DAY: Span = Span::from_hours(24);
const SOONER: &str = "ALTER SCALING STRATEGY FOR CLUSTER web TYPE IDLE SUSPEND UPDATE (IDLE AFTER = '10m')";

/// An hour, of which a node has missed the time from second 600 to 2,400 and was given a snapshot instead.
fn with_a_gap(whole: &History) -> History {
    let (first, behind) = (whole.first_at(600), whole.first_at(2_400));
    whole.without(first..=behind - 1).with_snapshots(&[behind - 1, whole.first_at(3_200)])
}

/// The same hour, of which a node has let everything go before second 600 and has no state from before second 1,000.
fn trimmed(whole: &History) -> History {
    let kept = [whole.first_at(1_000) - 1, whole.first_at(2_000) - 1];
    whole.without(1..=whole.first_at(600) - 1).with_snapshots(&kept)
}

fn at(seconds: u64) -> Bound {
    Bound::At(second(seconds))
}

fn says_that_it_is_shorter(tried: &Backtest) -> bool {
    let said = format!(
        "The window begins with entry {}, later than was asked for: this history has no state from before it.",
        tried.window.first_index
    );
    tried.assumptions.contains(&said)
}

#[test]
fn a_window_beside_a_gap_gives_what_it_gives_on_the_whole_history() {
    let whole = idle().history;
    let gap = with_a_gap(&whole);
    for (since, until) in [(at(2_800), Bound::Open), (at(2_400), at(3_500)), (at(100), at(500))] {
        let expected = tried_on(&whole, since, until, SOONER).unwrap();
        assert_eq!(tried_on(&gap, since, until, SOONER).unwrap(), expected, "{since:?} {until:?}");
    }
    let last = Bound::Before(Span::from_secs(1_000));
    assert_eq!(
        tried_on(&gap, last, Bound::Open, SOONER).unwrap(),
        tried_on(&whole, last, Bound::Open, SOONER).unwrap()
    );
}

#[test]
fn a_window_across_a_gap_is_refused_with_the_entries_that_are_missing() {
    let whole = idle().history;
    let gap = with_a_gap(&whole);
    let (lost, found) = (whole.first_at(600), whole.first_at(2_400) - 1);
    for (since, until) in [
        // It begins before them, or among them.
        (at(100), Bound::Open),
        (at(1_000), Bound::Open),
        (Bound::Before(DAY), Bound::Open),
        // It ends among them.
        (at(100), at(1_000)),
        (Bound::Open, Bound::Before(Span::from_secs(2_000))),
        (Bound::UpTo(DAY), at(1_000)),
    ] {
        let refused = tried_on(&gap, since, until, SOONER).unwrap_err();
        let BacktestError::Missing { first, last, before, behind } = &refused else { panic!("{since:?}: {refused}") };
        assert_eq!((*first, *last, *before, *behind), (lost, found, second(599), second(2_400)), "{since:?} {until:?}");
        assert!(refused.to_string().starts_with(&format!("entries {lost} to {found} are missing in this history")));
    }
}

#[test]
fn a_length_that_nobody_asked_for_is_shortened_to_what_is_behind_the_gap() {
    let whole = idle().history;
    let behind = whole.first_at(2_400);
    for (since, said) in [(Bound::UpTo(DAY), true), (Bound::Open, false)] {
        let tried = tried_on(&with_a_gap(&whole), since, Bound::Open, SOONER).unwrap();
        assert_eq!((tried.window.first_index, tried.window.from_ms), (behind, second(2_400).as_millis()));
        assert_eq!(says_that_it_is_shorter(&tried), said, "{:?}", tried.assumptions);
    }
}

#[test]
fn a_window_longer_than_what_can_be_replayed_begins_with_the_first_state_that_is_kept() {
    let whole = idle().history;
    let trimmed = trimmed(&whole);
    let expected = tried_on(&whole, at(1_000), Bound::Open, SOONER).unwrap();
    for since in [Bound::Before(DAY), Bound::UpTo(DAY), at(0), at(800)] {
        let tried = tried_on(&trimmed, since, Bound::Open, SOONER).unwrap();
        assert_eq!(tried.window, expected.window, "{since:?}");
        assert_eq!((&tried.recorded, &tried.changed), (&expected.recorded, &expected.changed), "{since:?}");
        assert!(says_that_it_is_shorter(&tried), "{since:?}: {:?}", tried.assumptions);
    }
    for since in [Bound::Open, at(1_000)] {
        assert_eq!(tried_on(&trimmed, since, Bound::Open, SOONER).unwrap(), expected, "nothing is left out: {since:?}");
    }
    let early = tried_on(&trimmed, Bound::Before(DAY), at(900), SOONER).unwrap_err();
    assert!(matches!(early, BacktestError::NoWindow { .. }), "{early}");
}

#[test]
fn a_history_that_no_kept_state_leads_into_is_refused() {
    let rest = idle().history.without(1..=500);
    for history in [rest.clone(), rest.with_snapshots(&[300])] {
        let refused = tried_on(&history, Bound::UpTo(DAY), Bound::Open, SOONER).unwrap_err();
        let begins = matches!(refused, BacktestError::Replay(ReplayError::Begins { first: 501, kept: None }));
        assert!(begins, "{refused}");
    }
}

#[test]
fn a_window_in_which_a_backup_was_restored_begins_behind_it_or_is_refused_with_its_time() {
    let mut scribe = Scribe::new();
    let mut restored = 0;
    scribe.until(900, |scribe, now| match now {
        200 | 300 => {
            scribe.restore();
            restored = scribe.state.applied().0;
        }
        500 => {
            scribe.sql("CREATE CLUSTER web");
            scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE WITH (SIZE = '1')");
        }
        _ => {}
    });
    let history = &scribe.history;
    for since in [Bound::UpTo(DAY), Bound::Open] {
        let tried = tried_on(history, since, Bound::Open, "").unwrap();
        assert_eq!((tried.window.first_index, tried.window.from_ms), (restored + 1, second(301).as_millis()));
        let said = format!(
            "The window begins with entry {}, behind the backup that was restored at entry {restored} and replaced everything.",
            restored + 1
        );
        assert!(tried.assumptions.contains(&said), "{:#?}", tried.assumptions);
        reproduced(&tried);
    }
    for (since, at, until) in [(at(250), 300, Bound::Open), (Bound::Before(DAY), 200, Bound::Open)] {
        let refused = tried_on(history, since, until, "").unwrap_err();
        let is_restored = matches!(refused, BacktestError::Restored { at: time, .. } if time == second(at));
        assert!(is_restored && refused.to_string().contains(&second(at).to_string()), "{refused}");
    }
}

#[test]
fn nothing_happens_in_the_model_before_the_window_begins() {
    let mut scribe = Scribe::new();
    scribe.until(100, |_, _| {});
    // Planned, and not taken up for ten minutes in which nobody says anything.
    scribe.away = true;
    scribe.sql("CREATE CLUSTER web");
    scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.now = 700;
    scribe.until(900, |_, _| {});
    let tried = tried(&scribe, 400, "");
    assert_eq!(tried.window.from_ms, second(400).as_millis());
    let first = tried.fidelity.first_difference.unwrap();
    assert_eq!(first.at_ms, second(400).as_millis(), "{first:#?}");
}
