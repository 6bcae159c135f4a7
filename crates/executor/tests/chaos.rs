//! Ten thousand actions on a backend that lies, for a group that loses its leader all the time.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{Faults, Model, Node, audit, place};
use loadline_executor::backends::scripted::{LedgerEvent, Script};
use loadline_state_machine::{ActionStatus, Conclusion};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn ten_thousand_actions_on_a_lying_backend_under_changing_leaders_each_happen_once() {
    let model = run(7, 120, 10_000, false).await;
    assert_eq!(model.claims_ahead(), 0);
}

#[tokio::test(start_paused = true)]
async fn they_do_so_when_claims_go_ahead() {
    let model = run(8, 40, 3_000, true).await;
    assert!(model.claims_ahead() > 300, "{}", model.claims_ahead());
}

async fn run(seed: u64, clusters: usize, actions: usize, foresees: bool) -> Arc<Model> {
    let model = Model::new();
    let clusters = model.furnish(clusters);
    let script = Script { refused_percent: 2, unread_percent: 3, ..Script::lying(seed) };
    let (backend, backends) = place(script);
    let mut nodes: Vec<Node> = (1..=3).map(|id| Node::new(&model, id, backends.clone())).collect();
    nodes.iter().filter(|_| foresees).for_each(Node::foresees);
    model.set_faults(Faults { seed, lost_percent: 2, receipt_lost_percent: 2, late_percent: 2 });

    let mut leader = 0;
    nodes[leader].lead();
    let mut sizes: BTreeMap<usize, bool> = BTreeMap::new();
    let mut round = 0;
    while model.planned_count() < actions {
        round += 1;
        assert!(round < 20_000, "{} actions after {round} rounds", model.planned_count());
        for (number, cluster) in clusters.iter().enumerate() {
            let state = model.state();
            let standing = state.standing(*cluster);
            let idle = standing.is_none_or(|standing| {
                standing.operation().is_none() && !matches!(standing.conclusion(), Some(Conclusion::Held))
            });
            if idle {
                let large = sizes.entry(number).or_default();
                *large = !*large;
                model.want(&format!("demo{number}"), if *large { "50cc" } else { "25cc" });
            }
        }
        sleep(Duration::from_millis(700)).await;
        // Every few seconds somebody else leads, in one of the ways in which that happens.
        if round % 12 == 0 {
            let next = (leader + 1) % nodes.len();
            match round / 12 % 4 {
                0 => nodes[leader].step_down(),
                1 => nodes[leader].crash(),
                // It goes on as if nothing had happened, and is told of it only when it leads again.
                2 => nodes[leader].lose_lease(),
                _ => {
                    nodes[leader].lose_lease();
                    nodes[leader].speak_late(true);
                }
            }
            nodes[next].speak_late(false);
            sleep(Duration::from_millis(200)).await;
            nodes[next].lead();
            leader = next;
        }
    }
    model.until_settled(Duration::from_secs(3600)).await;
    // What was still on its way somewhere has arrived or never will.
    sleep(Duration::from_secs(60)).await;
    model.until_settled(Duration::from_secs(3600)).await;

    assert_eq!(audit(&model, &backend), Vec::<String>::new());
    let settled = model.settled();
    assert!(settled.len() >= actions);
    // The trouble was real: every kind of it has been.
    let ends = |status: ActionStatus| settled.values().flatten().filter(|action| action.status == status).count();
    let retried = settled.values().flatten().filter(|action| action.attempt > 1).count();
    let resumed = settled.values().flatten().filter(|action| action.worked_on_by().len() > 1).count();
    let refused = backend.count(LedgerEvent::RefusedEpoch);
    let figures = format!(
        "{} actions in {round} rounds: {} succeeded, {} failed, {} dead letters; {retried} tried again, {resumed} by several \
         nodes, {refused} orders of earlier leaders refused by the backend, {} repeats",
        settled.len(),
        ends(ActionStatus::Succeeded),
        ends(ActionStatus::Failed),
        ends(ActionStatus::DeadLettered),
        backend.count(LedgerEvent::Repeated),
    );
    assert!(ends(ActionStatus::Succeeded) > actions * 9 / 10, "{figures}");
    assert!(retried > 0 && resumed > 0 && refused > 0, "{figures}");
    // What the state believes is what is there.
    let state = model.state();
    for cluster in &clusters {
        let believed: Vec<String> =
            state.standing(*cluster).unwrap().signals().replicas.iter().map(|it| it.name.to_string()).collect();
        assert_eq!(believed, backend.replicas(*cluster), "{cluster}");
    }
    model
}
