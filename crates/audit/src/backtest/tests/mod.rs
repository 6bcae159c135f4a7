//! Backtests of histories that were written by hand, so that every expected figure can be added up by a reader.

mod changes;
mod differences;
mod figures;
mod learning;
mod pictures;
mod reach;
pub(crate) mod scribe;

use std::collections::BTreeMap;

use loadline_state_machine::{Actor, Seen, Span};

use super::{Backtest, BacktestError, Bound, Figures, Trial, backtest};
use crate::change::Change;
use crate::source::Source;
use scribe::{Scribe, second};

fn tried(scribe: &Scribe, since: u64, change: &str) -> Backtest {
    tried_on(&scribe.history, Bound::At(second(since)), Bound::Open, change).unwrap()
}

fn tried_on(history: &dyn Source, since: Bound, until: Bound, change: &str) -> Result<Backtest, BacktestError> {
    let change = Change::parse(change).unwrap();
    let trial = Trial { since, until, change, actor: Actor::new("somebody", "test") };
    backtest(history, &trial, |_| {})
}

fn actions(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
    all.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

/// What so many seconds of one replica of size 1 amount to.
fn of_size_1(seconds: u64) -> Figures {
    Figures {
        replica_hours_milli: seconds * 1_000 / 3_600,
        cost_micros: seconds * 1_000_000 / 3_600,
        ..Figures::default()
    }
}

#[track_caller]
fn reproduced(tried: &Backtest) {
    assert!(tried.fidelity.reproduced, "{:#?}", tried.fidelity);
    assert_eq!(tried.fidelity.apart_max_ms, 0, "all medians are exact here");
    assert_eq!(tried.recorded, tried.unchanged);
    assert_eq!(tried.fidelity.matched_actions, tried.recorded.actions_total());
}

/// Used until second 600 and from second 3,000 on, suspended after 20 minutes.
fn idle() -> Scribe {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE CLUSTER web");
    scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE IDLE SUSPEND WITH (IDLE AFTER = '20m')");
    scribe.until(3_600, |scribe, now| {
        if now.is_multiple_of(30) {
            let idle_for = if now < 3_000 { now.saturating_sub(600) } else { 0 };
            scribe.seen("watch", "web", Seen::Activity { idle_for: Some(Span::from_secs(idle_for)) });
        }
    });
    scribe
}

#[test]
fn a_shorter_idle_time_saves_what_it_should_and_no_more() {
    let scribe = idle();
    let tried =
        tried(&scribe, 300, "ALTER SCALING STRATEGY FOR CLUSTER web TYPE IDLE SUSPEND UPDATE (IDLE AFTER = '10m')");
    reproduced(&tried);
    // Idle for more than 1,200 s at 1,801; cordoned, drained and dropped by 1,804. Woken at 3,000, there at 3,001, ready at 3,011.
    let expected = Figures {
        actions: actions(&[("cordon_replica", 1), ("create_replica", 1), ("drain_replica", 1), ("drop_replica", 1)]),
        short_ms: 11_000,
        cold_starts: 1,
        cold_start_wait_ms: 11_000,
        direction_changes: 1,
        ..of_size_1(1_804 - 300 + 3_600 - 3_001)
    };
    assert_eq!(tried.recorded, expected);
    // The same at 1,201, and so 600 s less.
    let changed = Figures { ..of_size_1(1_204 - 300 + 3_600 - 3_001) };
    let changed =
        Figures { replica_hours_milli: changed.replica_hours_milli, cost_micros: changed.cost_micros, ..expected };
    assert_eq!(tried.changed, Some(changed));
    assert!(tried.is_different());
    let effect = tried.effect.unwrap();
    let first = effect.first_difference.unwrap();
    assert_eq!((first.at_ms, first.cluster.as_str()), (second(1_201).as_millis(), "web"));
    assert_eq!(first.one, None, "the model without the change goes on: {first:?}");
    assert!(first.other.unwrap().starts_with("wants no replica: BEGAN"));
    assert!(first.other_why.unwrap().starts_with("idle_suspend: "));
}

#[test]
fn a_change_of_what_is_so_already_is_none_and_a_second_try_comes_out_the_same() {
    let scribe = idle();
    let same = "ALTER SCALING STRATEGY FOR CLUSTER web TYPE IDLE SUSPEND UPDATE (IDLE AFTER = '20m')";
    let first = tried(&scribe, 300, same);
    assert!(!first.is_different(), "{first:#?}");
    assert_eq!(first.changed.as_ref(), Some(&first.recorded));
    assert_eq!(tried(&scribe, 300, same), first);
    let nothing = tried(&scribe, 300, "");
    assert_eq!((nothing.is_different(), nothing.changed, nothing.effect), (false, None, None));
}

#[test]
fn another_target_size_is_made_before_the_old_one_goes() {
    let mut scribe = Scribe::new();
    for (cluster, at) in [("web", 100), ("other", 500)] {
        scribe.until(at, |_, _| {});
        scribe.sql(&format!("CREATE CLUSTER {cluster}"));
        scribe.sql(&format!("CREATE SCALING STRATEGY FOR CLUSTER {cluster} TYPE TARGET SIZE WITH (SIZE = '1')"));
    }
    scribe.until(1_000, |_, _| {});
    let tried = tried(&scribe, 400, "ALTER SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE UPDATE (SIZE = '2')");
    reproduced(&tried);
    // Of the other one: wanted at 500, there at 501, ready at 511. From it the model knows how long things take.
    let expected = Figures {
        actions: actions(&[("create_replica", 1)]),
        short_ms: 11_000,
        cold_starts: 1,
        cold_start_wait_ms: 11_000,
        ..of_size_1(600 + 1_000 - 501)
    };
    assert_eq!(tried.recorded, expected);
    // The window has started no replica of size 2, so it takes as long as one of size 1: there at 401, ready at 411, hydrated at
    // 421. Then it can take over: the old one is cordoned at 421 and gone at 424.
    let micros = |size_1: u64, size_2: u64| (size_1 * 1_000_000 + size_2 * 2_000_000) / 3_600;
    let changed = tried.changed.clone().unwrap();
    assert_eq!(changed.cost_micros, micros(424 - 400 + 1_000 - 501, 1_000 - 401));
    assert_eq!(changed.replica_hours_milli, (24 + 499 + 599) * 1_000 / 3_600);
    let each = [("cordon_replica", 1), ("create_replica", 2), ("drain_replica", 1), ("drop_replica", 1)];
    assert_eq!(changed.actions, actions(&each));
    assert_eq!((changed.short_ms, changed.cold_starts, changed.direction_changes), (21_000 + 11_000, 1, 0));
    let first = tried.effect.unwrap().first_difference.unwrap();
    assert_eq!(first.at_ms, second(400).as_millis());
}

#[test]
fn a_longer_cooldown_keeps_the_burst_replica_of_a_cluster_that_was_made_in_the_window() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE BURST WITH (BURST_SIZE = '2', COOLDOWN = '0s')");
    scribe.sql("ALTER SYSTEM SET auto_scaling_cluster_cooldown = '0s'");
    scribe.sql("CREATE CLUSTER earlier");
    scribe.until(500, |scribe, now| {
        if now == 200 {
            scribe.sql("CREATE CLUSTER later");
        }
        if now.is_multiple_of(20) {
            scribe.seen("watch", "earlier", Seen::Alive);
        }
        if now >= 200 && now.is_multiple_of(20) {
            scribe.seen("watch", "later", Seen::Alive);
        }
    });
    let tried = tried(&scribe, 150, "ALTER SCALING STRATEGY FOR ALL CLUSTERS TYPE BURST UPDATE (COOLDOWN = '2m')");
    reproduced(&tried);
    let changed = tried.changed.clone().unwrap();
    assert_eq!(changed.actions, tried.recorded.actions, "the same is done, later");
    // The first replica of the new cluster is there at 201 and ready at 211, but not hydrated before 221: so there is a burst replica
    // from 212 on. It is ready at 222, and no longer needed: cordoned at once, and gone at 225. Its operation ended at 222, so with the
    // cooldown burst would keep it until 342; but target_size, which made the first replica at 211 and rests for a minute, wants
    // nothing beside that one: it is cordoned at 271, and gone at 274.
    let micros = |burst: u64| (350 + (500 - 201) + 2 * burst) * 1_000_000 / 3_600;
    assert_eq!(tried.recorded.cost_micros, micros(225 - 212));
    assert_eq!(changed.cost_micros, micros(274 - 212));
    let effect = tried.effect.unwrap();
    assert_eq!((effect.clusters_different, effect.first_difference.unwrap().cluster.as_str()), (1, "later"));
}

#[test]
fn a_higher_target_needs_fewer_replicas_for_the_recorded_metric() {
    let mut scribe = Scribe::new();
    scribe.hydrates = false;
    scribe.sql("CREATE CLUSTER web");
    scribe.sql(
        "CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET TRACKING WITH (SIZE = '1', MAX_REPLICAS = 10, \
         SIGNALS = 'load average 10', STABILIZATION_DOWN = '0s')",
    );
    scribe.until(2_000, |scribe, now| {
        let load = if (1_000..1_500).contains(&now) { 30_000 } else { 10_000 };
        if now.is_multiple_of(10) {
            scribe.seen("watch", "web", Seen::Metric { name: "load".to_owned(), value_milli: load });
        }
    });
    let tried = tried(
        &scribe,
        900,
        "ALTER SCALING STRATEGY FOR CLUSTER web TYPE TARGET TRACKING UPDATE (SIGNALS = 'load average 15')",
    );
    reproduced(&tried);
    // Three from 1,000 to 1,500, one before and after. Two are made one after the other: there at 1,001 and 1,002, ready at 1,012; they
    // go one after the other: 1,503 and 1,506.
    let expected = Figures {
        actions: actions(&[("cordon_replica", 2), ("create_replica", 2), ("drain_replica", 2), ("drop_replica", 2)]),
        short_ms: 12_000,
        // For as long as one is missing: what is there and ready brings the average down to what is asked for.
        over_target_ms: 12_000,
        direction_changes: 1,
        ..of_size_1(1_100 + (1_503 - 1_001) + (1_506 - 1_002))
    };
    assert_eq!(tried.recorded, expected);
    // 30 of 15 each are two: one more, there at 1,001 and gone at 1,503.
    let changed = tried.changed.unwrap();
    let expected = of_size_1(1_100 + (1_503 - 1_001));
    assert_eq!(
        (changed.replica_hours_milli, changed.cost_micros),
        (expected.replica_hours_milli, expected.cost_micros)
    );
    assert_eq!(changed.actions_total(), 4);
    assert_eq!((changed.short_ms, changed.over_target_ms), (11_000, 11_000));
}

#[test]
fn replicas_that_somebody_else_made_come_and_go_as_recorded() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE CLUSTER web");
    let of_users = |ready| Seen::Replica { name: "mine".to_owned(), size: "2".to_owned(), incarnation: None, ready };
    scribe.until(600, |scribe, now| match now {
        100 => scribe.seen("watch", "web", of_users(false)),
        110 => scribe.seen("watch", "web", of_users(true)),
        400 => scribe.seen("watch", "web", Seen::ReplicaGone { name: "mine".to_owned(), incarnation: None }),
        _ => {}
    });
    let tried = tried(&scribe, 50, "");
    reproduced(&tried);
    assert_eq!(tried.recorded.cost_micros, 300 * 2_000_000 / 3_600);
}

#[test]
fn a_change_of_what_is_not_there_yet_is_made_as_soon_as_it_is() {
    let mut scribe = Scribe::new();
    scribe.until(600, |scribe, now| match now {
        200 => scribe.sql("CREATE CLUSTER web"),
        300 => scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE WITH (SIZE = '1')"),
        _ => {}
    });
    let tried = tried(&scribe, 100, "ALTER SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE UPDATE (SIZE = '2')");
    reproduced(&tried);
    // Both begin to make one of size 1 at 300, which is there at 301; the change comes in the same second, so that one of size 2 is
    // wanted instead. What was claimed is made all the same.
    let said = tried.assumptions.iter().find(|it| it.contains("The change is made after entry")).unwrap();
    assert!(said.contains(&second(300).to_string()), "{said}");
    assert!(tried.is_different());
    assert_eq!(tried.effect.unwrap().first_difference.unwrap().at_ms, second(300).as_millis());
    assert_eq!(tried.recorded.cost_micros, (600 - 301) * 1_000_000 / 3_600);
    assert!(tried.changed.unwrap().cost_micros > 250 * 2_000_000 / 3_600);
}

#[test]
fn a_crash_of_a_recorded_replica_hits_its_counterpart() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE SHRINK TO FIT WITH (MAX_SIZE = '2', MIN_OOM_COUNT = 1)");
    scribe.until(900, |scribe, now| {
        let oom = |replica: &str| Seen::Crash {
            replica: replica.to_owned(),
            oom: true,
            reason: "out of memory".to_owned(),
            count: 1,
        };
        match now {
            100 => scribe.sql("CREATE CLUSTER web"),
            115 | 116 => scribe.seen("watch", "web", oom("1_auto")),
            _ => {}
        }
    });
    let tried = tried(&scribe, 50, "");
    assert!(tried.recorded.actions.contains_key("drop_replica"), "it was dropped for it: {:?}", tried.recorded);
    reproduced(&tried);
}

#[test]
fn a_window_without_anything_and_a_history_without_anything_are_refused() {
    let scribe = idle();
    let trial = |since, until| Trial { since, until, change: Change::none(), actor: Actor::default() };
    let failed = |trial: &Trial| backtest(&scribe.history, trial, |_| {}).unwrap_err();
    let later = Bound::At(second(10_000));
    assert!(matches!(failed(&trial(later, Bound::Open)), BacktestError::NoWindow { .. }));
    assert!(matches!(failed(&trial(Bound::Open, Bound::At(second(0)))), BacktestError::NoWindow { .. }));
    let nothing = scribe::History::default();
    let empty = backtest(&nothing, &trial(Bound::Open, Bound::Open), |_| {});
    assert!(matches!(empty, Err(BacktestError::Empty)));
    // As long before the end as there is, and longer.
    let whole = backtest(&scribe.history, &trial(Bound::Before(Span::from_days(9)), Bound::Open), |_| {}).unwrap();
    assert_eq!((whole.window.first_index, whole.window.to_ms), (1, second(3_600).as_millis()));
    let refused = Trial { change: Change::parse("DROP CLUSTER nobody").unwrap(), ..trial(Bound::Open, Bound::Open) };
    let refused = failed(&refused);
    assert!(matches!(&refused, BacktestError::Change(error) if error.line == Some(1)), "{refused}");
}
