//! Where the model does something else than the record, and what is said to be the reason; and that whoever is asked says the same.

use loadline_state_machine::Outcome;

use super::scribe::{Scribe, second};
use super::{tried, tried_on};
use crate::backtest::{Bound, LearnedSize};

const MEDIANS: &str = "the model goes by medians, and something of the record took a different time";

fn no_room(retryable: bool) -> Option<Outcome> {
    Some(Outcome::Failed { retryable, reason: "no room".to_owned() })
}

#[test]
fn a_call_that_failed_in_the_record_is_where_the_model_differs_and_the_reason_why() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.until(600, |scribe, now| match now {
        100 => scribe.sql("CREATE CLUSTER earlier"),
        200 => {
            scribe.next_fails = no_room(false);
            scribe.sql("CREATE CLUSTER web");
        }
        300 => scribe.elect(2, 2),
        _ => {}
    });
    let tried = tried(&scribe, 50, "");
    assert!(tried.is_different());
    let fidelity = tried.fidelity;
    assert!(!fidelity.reproduced);
    // Both make one for each cluster; the record makes that of web twice.
    let counts = (fidelity.recorded_actions, fidelity.modelled_actions, fidelity.matched_actions);
    assert_eq!((counts, fidelity.clusters_different), ((3, 2, 2), 1));
    // The call of second 200 failed at 201, and the cluster was left alone for half a minute.
    let first = fidelity.first_difference.unwrap();
    assert_eq!((first.at_ms, first.cluster.as_str()), (second(231).as_millis(), "web"));
    assert_eq!(first.one.as_deref(), Some("create_replica r1_auto of size 1"));
    assert_eq!(first.one_why.as_deref(), Some("target_size: target size 1 not present"));
    assert_eq!((first.other, first.other_why), (None, None));
    let failed =
        "1 call of the record on the clusters that differ failed or ended in doubt; those of the model succeed";
    // The leader that changed at 300 has nothing to do with it, nor has how long anything took: all was as long as its median.
    assert_eq!(fidelity.reasons, [failed]);
}

#[test]
fn what_the_record_left_waiting_for_long_is_a_difference_and_what_it_was_about_to_do_is_none() {
    for (asked_at, different) in [(599, false), (300, true)] {
        let mut scribe = Scribe::new();
        scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')");
        scribe.until(600, |scribe, now| {
            if now == 100 {
                scribe.sql("CREATE CLUSTER earlier");
            }
            if now == asked_at {
                // Nobody takes up anything from here on.
                scribe.away = true;
                scribe.sql("CREATE CLUSTER web");
            }
        });
        let fidelity = tried(&scribe, 50, "").fidelity;
        assert_eq!((fidelity.recorded_actions, fidelity.modelled_actions), (1, 2), "{asked_at}");
        assert_eq!(fidelity.reproduced, !different, "asked for at {asked_at}: {fidelity:#?}");
        let first = fidelity.first_difference.map(|it| (it.at_ms, it.one, it.other));
        let made = "create_replica r1_auto of size 1".to_owned();
        let expected = different.then(|| (second(asked_at).as_millis(), None, Some(made)));
        assert_eq!(first, expected);
        let unclaimed = format!(
            "create_replica r1_auto of size 1 on web was planned in the record at {}, and claimed by nobody",
            second(asked_at)
        );
        assert_eq!(fidelity.reasons, Vec::from_iter(different.then_some(unclaimed)), "{asked_at}");
    }
}

#[test]
fn an_action_that_was_given_up_because_nobody_took_it_up_is_the_reason() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE CLUSTER web");
    scribe.until(900, |scribe, now| match now {
        100 => {
            scribe.away = true;
            scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE WITH (SIZE = '1')");
        }
        300 => scribe.sql("DROP SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE"),
        700 => scribe.elect(2, 2),
        _ => {}
    });
    let fidelity = tried(&scribe, 50, "").fidelity;
    let unclaimed = format!(
        "create_replica r1_auto of size 1 on web was planned in the record at {}, and claimed by nobody",
        second(100)
    );
    assert_eq!(fidelity.reasons, [unclaimed]);
}

#[test]
fn a_change_of_leader_near_where_they_part_and_what_took_longer_are_reasons() {
    let mut scribe = Scribe::new();
    scribe.hydrates = false;
    scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.until(900, |scribe, now| match now {
        100 => scribe.sql("CREATE CLUSTER web"),
        600 => {
            // It is not ready at the end, and so the old one stays; the model's is dropped at once when the new one is ready, at 611.
            scribe.start_up = 500;
            scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE WITH (SIZE = '2')");
        }
        640 => scribe.elect(2, 2),
        _ => {}
    });
    let fidelity = tried(&scribe, 50, "").fidelity;
    let leader = "the leader changed once near where they part; the model loses no time over that";
    assert_eq!(fidelity.reasons, [leader, MEDIANS], "{fidelity:#?}");
}

#[test]
fn a_call_that_failed_and_was_made_again_is_named_though_the_model_does_the_same() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.until(600, |scribe, now| {
        if now == 200 {
            scribe.next_fails = no_room(true);
            scribe.sql("CREATE CLUSTER web");
        }
    });
    let tried = tried(&scribe, 50, "");
    let fidelity = tried.fidelity;
    assert!(fidelity.reproduced && tried.recorded.short_ms > tried.unchanged.short_ms, "{fidelity:#?}");
    assert_eq!((fidelity.failed_calls, fidelity.failed_clusters, fidelity.failed_on), (1, 1, vec!["web".to_owned()]));
}

#[test]
fn only_calls_in_the_window_on_clusters_that_differ_are_a_reason() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.until(900, |scribe, now| match now {
        // Before the window, on the cluster that differs in it.
        100 => {
            scribe.next_fails = no_room(false);
            scribe.sql("CREATE CLUSTER web");
        }
        // In the window, and tried again under the same action: nothing else is done for it.
        400 => {
            scribe.next_fails = no_room(true);
            scribe.sql("CREATE CLUSTER other");
        }
        600 => {
            scribe.next_fails = no_room(false);
            scribe.sql("CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET SIZE WITH (SIZE = '2')");
        }
        _ => {}
    });
    let fidelity = tried(&scribe, 300, "").fidelity;
    assert_eq!(fidelity.clusters_different, 1, "{fidelity:#?}");
    // The model's new replica is there at 601 and hydrated at 621, and takes over; the record makes another at 631.
    let first = fidelity.first_difference.unwrap();
    assert_eq!((first.at_ms, first.cluster.as_str()), (second(621).as_millis(), "web"));
    let made = first.one.unwrap();
    assert!(made.starts_with("create_replica ") && made.ends_with(" of size 2"), "{made}");
    assert_eq!(first.other.as_deref(), Some("cordon_replica r1_auto of size 1"));
    let failed =
        "1 call of the record on the clusters that differ failed or ended in doubt; those of the model succeed";
    assert_eq!(fidelity.reasons, [failed], "all took as long as the median");
}

#[test]
fn a_history_gives_the_same_answer_wherever_its_snapshots_are() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')");
    // What was started before the window took longer.
    scribe.start_up = 15;
    scribe.until(900, |scribe, now| match now {
        50 | 100 | 150 => {
            scribe.next_fails = no_room(false);
            scribe.sql(&format!("CREATE CLUSTER slow{now}"));
        }
        500 => {
            scribe.start_up = 10;
            scribe.sql("CREATE CLUSTER quick");
        }
        _ => {}
    });
    let bigger = "ALTER SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE UPDATE (SIZE = '2')";
    let (history, since) = (&scribe.history, Bound::At(second(400)));
    let expected = tried_on(history, since, Bound::Open, bigger).unwrap();
    let learned = LearnedSize {
        size: "1".to_owned(),
        start_up_ms: Some(10_000),
        start_ups: 1,
        hydration_ms: Some(20_000),
        hydrations: 1,
    };
    assert_eq!(expected.learned, [learned], "from the window alone");
    let before = history.first_at(400) - 1;
    for snapshots in [&[before][..], &[before - 1], &[history.first_at(130)], &[1, before - 200, before], &[before + 9]]
    {
        let kept = history.with_snapshots(snapshots);
        assert_eq!(tried_on(&kept, since, Bound::Open, bigger).unwrap(), expected, "{snapshots:?}");
        // Nor does it matter what is left of the time before.
        let rest = kept.without(1..=snapshots[0].min(before));
        if snapshots[0] <= before {
            assert_eq!(tried_on(&rest, since, Bound::Open, bigger).unwrap(), expected, "{snapshots:?}");
        }
    }
}

#[test]
fn a_cluster_that_only_the_change_makes_is_not_taken_for_one_of_the_record() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')");
    scribe.until(199, |_, _| {});
    scribe.now = 200;
    scribe.sql("CREATE CLUSTER late");
    scribe.until(600, |_, _| {});
    // The entry that makes it in the record is the one at which the change makes the other.
    let late = scribe.state.cluster("late").unwrap().id;
    assert_eq!(late.index.0, scribe.history.first_at(200));
    let tried = tried(&scribe, 200, "CREATE CLUSTER extra");
    assert!(tried.fidelity.reproduced, "{:#?}", tried.fidelity);
    let effect = tried.effect.unwrap();
    assert_eq!(effect.clusters_different, 1);
    let first = effect.first_difference.unwrap();
    assert_eq!((first.at_ms, first.cluster.as_str(), first.one), (second(200).as_millis(), "extra", None));
    let drawn: Vec<(&str, usize, usize)> = tried
        .lines
        .clusters
        .iter()
        .map(|it| (it.cluster.as_str(), it.replicas.unchanged.len(), it.replicas.changed.len()))
        .collect();
    assert_eq!(drawn, [("extra", 0, 1), ("late", 1, 1)]);
}
