//! Changes that change nothing, at first or at all.

use loadline_state_machine::{Outcome, Seen};

use super::scribe::{Scribe, second};
use super::{idle, tried};
use crate::backtest::Backtest;

const BIGGER: &str = "UPDATE mz_internal.mz_scaling_strategies SET config = config || '{\"size\": \"2\"}'::jsonb \
                      WHERE config->>'size' = '1'";

fn says(tried: &Backtest, text: &str) -> bool {
    tried.assumptions.iter().any(|it| it.contains(text))
}

#[test]
fn a_change_that_changes_nothing_is_no_difference_however_good_the_model_is() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.until(600, |scribe, now| {
        if now == 200 {
            scribe.next_fails = Some(Outcome::Failed { retryable: false, reason: "no room".to_owned() });
            scribe.sql("CREATE CLUSTER web");
        }
    });
    let alone = tried(&scribe, 50, "");
    assert!(alone.is_different() && alone.effect.is_none(), "a call failed, which no model knows");
    let nowhere = BIGGER.replace("'1'", "'17'");
    let there = "CREATE SCALING STRATEGY IF NOT EXISTS FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')";
    for (change, said) in [
        (nowhere.as_str(), "Up to the end of the window there is no row that this is about: UPDATE mz_internal."),
        (there, "The change asks for nothing that was not so already"),
    ] {
        let tried = tried(&scribe, 50, change);
        assert!(!tried.is_different(), "{change}: {:#?}", tried.effect);
        assert_eq!((tried.changed.as_ref(), tried.fidelity.reproduced), (Some(&tried.unchanged), false), "{change}");
        assert!(says(&tried, said), "{change}: {:#?}", tried.assumptions);
    }
}

#[test]
fn an_update_that_is_about_no_row_yet_is_made_as_soon_as_there_is_one() {
    let mut scribe = Scribe::new();
    scribe.until(600, |scribe, now| match now {
        200 => scribe.sql("CREATE CLUSTER web"),
        300 => scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE WITH (SIZE = '1')"),
        _ => {}
    });
    // Alone, and beside a statement that asks for something from the beginning on.
    for change in [BIGGER.to_owned(), format!("CREATE CLUSTER extra; {BIGGER}")] {
        let tried = tried(&scribe, 100, &change);
        assert!(tried.fidelity.reproduced, "{:#?}", tried.fidelity);
        let made = format!("at {}.", second(300));
        assert!(says(&tried, "What met no row before is made after entry") && says(&tried, &made), "{change}");
        assert!(!says(&tried, "there is no row") && !says(&tried, "not so already"), "{:#?}", tried.assumptions);
        assert!(tried.is_different(), "{change}");
        assert_eq!(tried.recorded.cost_micros, (600 - 301) * 1_000_000 / 3_600);
        assert!(tried.changed.unwrap().cost_micros > 250 * 2_000_000 / 3_600, "{change}");
    }
}

#[test]
fn a_cluster_that_is_dropped_with_its_replicas_is_a_difference_and_one_that_had_nothing_is_none() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE CLUSTER web; CREATE CLUSTER idle");
    scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.until(600, |_, _| {});
    let lost = tried(&scribe, 300, "DROP CLUSTER web CASCADE");
    let effect = lost.effect.clone().unwrap();
    assert_eq!((effect.different, effect.clusters_different), (true, 1));
    let first = effect.first_difference.unwrap();
    assert_eq!((first.at_ms, first.cluster.as_str(), first.one), (second(300).as_millis(), "web", None));
    let told = "the cluster is dropped, and nobody drops the replicas it leaves behind: r1_auto of size 1";
    assert_eq!(first.other.as_deref(), Some(told));
    let not_counted = "Replicas that a dropped cluster leaves behind are not counted";
    assert!(says(&lost, not_counted), "{:#?}", lost.assumptions);
    let nothing = tried(&scribe, 300, "DROP CLUSTER idle");
    assert!(!nothing.is_different() && !says(&nothing, not_counted), "{:#?}", nothing.effect);
}

#[test]
fn a_first_decision_that_wants_nothing_else_than_there_is_is_no_difference() {
    let mut scribe = Scribe::new();
    let of_users = Seen::Replica { name: "mine".to_owned(), size: "2".to_owned(), incarnation: None, ready: true };
    scribe.until(600, |scribe, now| match now {
        100 => scribe.sql("CREATE CLUSTER web; CREATE CLUSTER users"),
        200 => scribe.seen("watch", "users", of_users.clone()),
        400 => scribe.seen("watch", "users", Seen::ReplicaGone { name: "mine".to_owned(), incarnation: None }),
        _ => {}
    });
    for cluster in ["web", "users"] {
        let disabled = format!(
            "CREATE SCALING STRATEGY FOR CLUSTER {cluster} TYPE BURST WITH (BURST_SIZE = '2', ENABLED = false)"
        );
        for since in [50, 300] {
            let tried = tried(&scribe, since, &disabled);
            assert!(!tried.is_different(), "{cluster} from {since} on: {:#?}", tried.effect);
        }
    }
}

#[test]
fn a_strategy_beside_one_that_comes_later_is_no_difference_before_it_does_anything() {
    let mut scribe = Scribe::new();
    scribe.until(600, |scribe, now| match now {
        100 => scribe.sql("CREATE CLUSTER web"),
        200 => scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE WITH (SIZE = '1')"),
        _ => {}
    });
    let tried = tried(&scribe, 50, "CREATE SCALING STRATEGY FOR CLUSTER web TYPE BURST WITH (BURST_SIZE = '2')");
    let first = tried.effect.unwrap().first_difference.unwrap();
    assert!(first.at_ms >= second(200).as_millis(), "{first:#?}");
}

#[test]
fn a_replica_that_somebody_asks_for_is_made_because_of_that() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE CLUSTER web");
    scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.until(600, |_, _| {});
    let tried = tried(&scribe, 300, "CREATE CLUSTER REPLICA web.zz SIZE = '2'");
    let first = tried.effect.unwrap().first_difference.unwrap();
    assert!(first.other.as_ref().unwrap().ends_with(": BEGAN"), "{first:#?}");
    assert_eq!(first.other_why.as_deref(), Some("user: asked for by somebody"));
}

#[test]
fn a_dry_run_is_a_difference_where_it_would_come_to_something_else_though_nothing_is_done() {
    let scribe = idle();
    let target = "CREATE SCALING STRATEGY FOR CLUSTER web TYPE";
    let tried_with = |since: u64, change: &str| {
        let tried = tried(&scribe, since, change);
        (tried.changed.as_ref() == Some(&tried.unchanged), tried.effect.unwrap().first_difference)
    };
    // Idle since second 600, and suspended at 1,801.
    let (same_figures, first) = tried_with(
        300,
        "ALTER SCALING STRATEGY FOR CLUSTER web TYPE IDLE SUSPEND UPDATE (IDLE AFTER = '20m', DRY_RUN = true)",
    );
    let first = first.unwrap();
    assert!(!same_figures, "it is not suspended any more");
    assert!(first.other.unwrap().ends_with(": AS_WANTED, in dry run no replica"));
    // It would make a second replica only while the first is not hydrated.
    let (same_figures, first) = tried_with(300, &format!("{target} BURST WITH (BURST_SIZE = '2', DRY_RUN = true)"));
    assert!(same_figures);
    let first = first.unwrap();
    assert!(first.at_ms >= second(3_000).as_millis(), "{first:#?}");
    assert!(first.other.as_ref().unwrap().contains(", in dry run "), "{first:#?}");
    assert!(first.other_why.as_ref().unwrap().contains("in dry run burst: "), "{first:#?}");
}

#[test]
fn a_cluster_that_was_made_and_dropped_in_the_window_is_called_by_its_name() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.until(600, |scribe, now| match now {
        100 => scribe.sql("CREATE CLUSTER passing"),
        400 => scribe.sql("DROP CLUSTER passing CASCADE"),
        _ => {}
    });
    let tried = tried(&scribe, 50, "ALTER SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE UPDATE (SIZE = '2')");
    let drawn: Vec<&str> = tried.lines.clusters.iter().map(|it| it.cluster.as_str()).collect();
    assert_eq!(drawn, ["passing"]);
}

#[test]
fn one_change_of_configuration_is_spoken_of_as_one() {
    let mut scribe = Scribe::new();
    scribe.until(300, |scribe, now| {
        if now == 100 {
            scribe.sql("ALTER SYSTEM SET auto_scaling_cluster_cooldown = '0s'");
        }
    });
    let tried = tried(&scribe, 50, "ALTER SYSTEM SET auto_scaling_cluster_cooldown = '9s'");
    assert!(says(&tried, "1 change of configuration in the record is repeated"), "{:#?}", tried.assumptions);
}
