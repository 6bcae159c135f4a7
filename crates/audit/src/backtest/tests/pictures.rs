//! What is drawn of many clusters, and of those that change all the time.

use loadline_state_machine::Seen;

use super::scribe::Scribe;
use super::tried;
use crate::backtest::CLUSTERS_WITH_LINES_MAX;

fn of_users(ready: bool) -> Seen {
    Seen::Replica { name: "mine".to_owned(), size: "1".to_owned(), incarnation: None, ready }
}

#[test]
fn a_cluster_of_which_one_run_has_no_line_is_drawn_of_none_and_that_is_said() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE CLUSTER first");
    let names: Vec<String> = (0..CLUSTERS_WITH_LINES_MAX).map(|number| format!("c{number}")).collect();
    let create: Vec<String> = names.iter().map(|name| format!("CREATE CLUSTER {name}")).collect();
    scribe.sql(&create.join(";\n"));
    scribe.until(100, |scribe, now| {
        if now == 80 {
            names.iter().for_each(|name| scribe.seen("watch", name, of_users(true)));
        }
    });
    // With it, the first cluster gets a replica before all the others, and there is no room for the last of them.
    let tried = tried(&scribe, 50, "CREATE SCALING STRATEGY FOR CLUSTER first TYPE TARGET SIZE WITH (SIZE = '1')");
    let lines = tried.lines;
    assert_eq!((lines.clusters_compared, lines.clusters_left_out), (1_000, 1));
    let [first, others @ ..] = lines.clusters.as_slice() else { panic!("nothing is drawn") };
    assert_eq!((first.cluster.as_str(), first.step_ms), ("first", None));
    assert!(first.replicas.unchanged.is_empty() && !first.replicas.changed.is_empty(), "{first:?}");
    assert_eq!(others.len(), 5);
    for other in others {
        assert!(!other.replicas.recorded.is_empty(), "{other:?}");
        assert_eq!(other.replicas.unchanged, other.replicas.changed, "the change does nothing to {}", other.cluster);
    }
}

#[test]
fn a_cluster_that_changes_every_second_is_drawn_in_averages_to_the_end() {
    let mut scribe = Scribe::new();
    scribe.sql("CREATE CLUSTER web");
    scribe.until(1_500, |scribe, now| {
        let gone = Seen::ReplicaGone { name: "mine".to_owned(), incarnation: None };
        scribe.seen("watch", "web", if now.is_multiple_of(2) { of_users(true) } else { gone });
    });
    let lines = tried(&scribe, 100, "").lines;
    let [web] = lines.clusters.as_slice() else { panic!("{:?}", lines.clusters) };
    // 1,400 s in 480 steps.
    assert_eq!((web.cluster.as_str(), web.step_ms), ("web", Some(2_917)));
    assert_eq!((web.replicas.recorded.len(), &web.replicas.unchanged), (480, &web.replicas.recorded));
    for point in &web.replicas.recorded {
        // In about three seconds it is there for one or for two.
        assert!((300..750).contains(&point.value_milli), "{point:?}");
    }
}
