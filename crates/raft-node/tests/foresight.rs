//! What follows from an entry and goes into the log right behind it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Group, create_cluster, eventually, request};
use loadline_raft_node::Foresight;
use loadline_state_machine::{Command, LogIndex, Request, State};

/// Wants a shadow of every cluster that has none.
#[derive(Debug, Default)]
struct Shadows {
    asked: AtomicU64,
}

fn shadow(name: &str) -> String {
    format!("{name}-shadow")
}

impl Foresight for Shadows {
    fn may_follow(&self, command: &Command) -> bool {
        matches!(command, Command::CreateCluster { .. })
    }

    fn follow(&self, state: &State) -> Vec<Request> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let names = state.clusters_after(None).map(|cluster| cluster.name.clone());
        let alone = names.filter(|name| !name.ends_with("-shadow") && state.cluster(&shadow(name)).is_none());
        alone.map(|name| create_cluster(&shadow(&name))).collect()
    }
}

async fn foreseeing() -> (Group, Arc<Shadows>) {
    let group = Group::started(3).await;
    let shadows = Arc::new(Shadows::default());
    group.members.iter().for_each(|member| member.node().foresee(shadows.clone()));
    (group, shadows)
}

/// At which index a cluster was made, on the leader.
async fn made_at(group: &Group, name: &str) -> Option<LogIndex> {
    let leader = &group.members[group.leader().await];
    leader.node().latest().cluster(name).map(|cluster| cluster.id.index)
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_is_under_way_it_is_the_next_entry() {
    let (group, shadows) = foreseeing().await;
    // A tick may be under way just then: that shows in the state, and the next one finds both alone.
    let mut next = 0;
    let followed = eventually("an entry that nothing was before", async || {
        let name = format!("demo{next}");
        next += 1;
        let index = group.members[group.leader().await].create(&name).await;
        let leader = &group.members[group.leader().await];
        leader.hash_at(LogIndex(index.0 + 1)).await;
        made_at(&group, &shadow(&name)).await.filter(|made| made.0 == index.0 + 1)
    })
    .await;
    let agreed = group.agreed().await;
    assert!(agreed.0 >= followed && shadows.asked.load(Ordering::Relaxed) > 0);

    let asked = shadows.asked.load(Ordering::Relaxed);
    let leader = &group.members[group.leader().await];
    leader.propose(request(Command::Tick)).await.unwrap();
    assert_eq!(shadows.asked.load(Ordering::Relaxed), asked, "nothing follows from those");
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_everybody_is_answered_and_forecasts_that_fail_do_no_harm() {
    let (group, _) = foreseeing().await;
    let leader = &group.members[group.leader().await];
    for round in 0..20 {
        let names: Vec<String> = (0..20).map(|number| format!("demo{round}-{number}")).collect();
        // Somebody makes a shadow at the same time: one of the two comes first.
        let mine = shadow(&names[7]);
        let all = names.iter().chain([&mine]).map(|name| leader.propose(create_cluster(name)));
        let answers = futures::future::join_all(all).await;
        assert!(answers[..names.len()].iter().all(|answer| answer.as_ref().unwrap().result.is_ok()), "{answers:?}");
    }
    let clusters = leader.clusters().await;
    assert!((0..20).all(|round| clusters.contains(&shadow(&format!("demo{round}-7")))), "whoever made it");
    group.agreed().await;
}
