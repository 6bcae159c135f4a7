//! Nodes that are killed or stopped in the middle of an order for local replicas, as real processes: whatever the next leader does,
//! and whenever the old one goes on, there is one replica, and what was found holds.

use crate::local_support::{
    Machine, Sender, create, create_of, epoch, found, incarnation, life, order, seen, sees_one, signal, state_of, until,
};
use loadline_executor::{Backend as _, CallError, Found};
use loadline_state_machine::{Call, Report};
use nix::sys::signal::Signal;

#[tokio::test]
async fn replicas_outlive_the_node_that_started_them() {
    let machine = Machine::new();
    let made = Sender::start(&machine, &order("k1", 5, 1, create("r1_auto")), &[]).ends().await;
    assert!(made.starts_with("Ok("), "{made}");
    let node = machine.node();
    let replica = sees_one(&node, "there and ready", |replica| replica.ready).await;
    // The node has ended, and another one finds what it did.
    let report = Report::Created { incarnation: replica.incarnation };
    assert_eq!(found(&node, &order("k1", 5, 1, create("r1_auto"))).await, Found::Done(report.clone()));
    assert_eq!(
        node.execute(&order("k2", 5, 1, Call::DropReplica(life("r1_auto", &report)))).await,
        Ok(Report::Nothing)
    );
}

/// The old leader dies at a place; the new one fences, looks, and sends again what was not done.
async fn check_death(place: &str, is_done_before: bool) {
    let machine = Machine::new();
    let first = order("k1", 5, 1, create("r1_auto"));
    let said = Sender::start(&machine, &first, &[&format!("--at=die:{place}")]).ends().await;
    assert_eq!(said, "", "{place}: it died");
    let node = machine.node();
    if is_done_before {
        sees_one(&node, place, |_| true).await;
    }
    node.fence(epoch(7)).await.expect("a fence");
    let second = order("k1", 7, 2, create("r1_auto"));
    let before = found(&node, &second).await;
    assert_eq!(matches!(before, Found::Done(_)), is_done_before, "{place}: {before:?}");
    if !is_done_before {
        assert_eq!(before, Found::NotSeen, "{place}");
    }
    let made = node.execute(&second).await.expect("a replica");
    assert_eq!(found(&node, &second).await, Found::Done(made.clone()), "{place}");
    let replica = sees_one(&node, place, |_| true).await;
    assert_eq!(replica.incarnation, Some(incarnation(&made)), "{place}");
    assert_eq!(machine.keepers().len(), 1, "{place}");
}

#[tokio::test]
async fn a_node_that_is_killed_anywhere_leaves_one_replica_or_none() {
    check_death("before-intent", false).await;
    check_death("after-intent", false).await;
    check_death("after-spawn", true).await;
}

/// The old leader is stopped at a place, a new one takes over completely, and then the old one goes on.
async fn check_stop(place: &str, is_done_before: bool) {
    let machine = Machine::new();
    let first = order("k1", 5, 1, create("r1_auto"));
    let old = Sender::start(&machine, &first, &[&format!("--at=stop:{place}")]);
    old.is_stopped().await;
    let node = machine.node();
    if is_done_before {
        sees_one(&node, place, |_| true).await;
    }
    // Nothing that a stopped process holds is in the way of any of this.
    node.fence(epoch(7)).await.expect("a fence");
    let second = order("k1", 7, 2, create("r1_auto"));
    let before = found(&node, &second).await;
    assert_eq!(matches!(before, Found::Done(_)), is_done_before, "{place}: {before:?}");
    let made = node.execute(&second).await.expect("a replica");

    old.goes_on();
    let said = old.ends().await;
    if is_done_before {
        assert_eq!(said, format!("Ok({made:?})"), "{place}: it hears what came of it");
    } else {
        assert!(said.starts_with("Err(Fenced"), "{place}: {said}");
    }
    until(place, async || (machine.keepers().len() == 1).then_some(())).await;
    let replica = sees_one(&node, place, |_| true).await;
    assert_eq!(replica.incarnation, Some(incarnation(&made)), "{place}");
    assert_eq!(found(&node, &second).await, Found::Done(made), "{place}");
}

#[tokio::test]
async fn a_node_that_is_stopped_anywhere_and_goes_on_makes_no_second_replica() {
    check_stop("before-intent", false).await;
    check_stop("after-intent", false).await;
    check_stop("after-spawn", true).await;
}

/// As above, but the new leader gives up on the order instead of sending it again: then it must not be carried out at all.
async fn check_stop_and_nothing_more(place: &str) {
    let machine = Machine::new();
    let first = order("k1", 5, 1, create("r1_auto"));
    let old = Sender::start(&machine, &first, &[&format!("--at=stop:{place}")]);
    old.is_stopped().await;
    let node = machine.node();
    node.fence(epoch(7)).await.expect("a fence");
    assert_eq!(found(&node, &order("k1", 7, 1, create("r1_auto"))).await, Found::NotSeen, "{place}");
    old.goes_on();
    let said = old.ends().await;
    assert!(said.starts_with("Err(Fenced"), "{place}: {said}");
    until(place, async || machine.keepers().is_empty().then_some(())).await;
    assert_eq!(seen(&node).await, [], "{place}");
    assert_eq!(found(&node, &order("k1", 7, 1, create("r1_auto"))).await, Found::NotSeen, "{place}: it stays so");
}

#[tokio::test]
async fn what_the_next_leader_did_not_see_is_never_carried_out() {
    check_stop_and_nothing_more("before-intent").await;
    check_stop_and_nothing_more("after-intent").await;
}

/// The control: with the fence taken away, the very same stop makes a replica that nobody knows of.
#[tokio::test]
async fn without_the_fence_a_node_that_was_stopped_acts_for_a_leadership_that_is_over() {
    let machine = Machine::new();
    let first = order("k1", 5, 1, create("r1_auto"));
    let old = Sender::start(&machine, &first, &["--at=stop:before-intent", "--mutant=backend-not-fenced"]);
    old.is_stopped().await;
    let node = machine.node();
    node.fence(epoch(7)).await.expect("a fence");
    assert_eq!(found(&node, &order("k1", 7, 1, create("r1_auto"))).await, Found::NotSeen);
    old.goes_on();
    let said = old.ends().await;
    assert!(said.starts_with("Ok("), "the mutant must be seen: {said}");
    sees_one(&node, "a replica that should not be", |_| true).await;
}

/// The process of the replica itself is slow: it was started under the old leader and comes to write in the ledger under the new one.
#[tokio::test]
async fn a_replica_that_starts_too_late_ends_before_anybody_sees_it() {
    let machine = Machine::new();
    let slow = order("k1", 5, 1, create_of("r1_auto", "stop:before-begun"));
    let old = Sender::start(&machine, &slow, &[]);
    let late = until("the replica stops while it starts", async || {
        machine.keepers().into_iter().find(|pid| state_of(*pid) == Some('T'))
    })
    .await;
    let node = machine.node();
    assert_eq!(found(&node, &slow).await, Found::UnderWay);
    node.fence(epoch(7)).await.expect("a fence");
    assert!(old.ends().await.starts_with("Err(Fenced"));
    assert_eq!(found(&node, &slow).await, Found::NotSeen);
    assert_eq!(seen(&node).await, [], "it has its name, and nothing else");
    // Another name is not concerned.
    let other = node.execute(&order("k2", 7, 1, create("r2_auto"))).await.unwrap();
    signal(late, Signal::SIGCONT);
    until("it ends", async || (machine.keepers().len() == 1).then_some(())).await;
    let replica = sees_one(&node, "only the other one is there", |_| true).await;
    assert_eq!(replica.incarnation, Some(incarnation(&other)));
    // And now the name is free again.
    node.execute(&order("k3", 7, 1, create("r1_auto"))).await.unwrap();
}

/// Between its record and its first sign of life, a replica is done and not to be seen; if it dies there, it was there and is gone.
#[tokio::test]
async fn a_replica_that_dies_while_it_starts_was_made_and_is_gone() {
    let machine = Machine::new();
    let node = machine.node();
    let order_1 = order("k1", 5, 1, create_of("r1_auto", "die:after-begun"));
    let made = node.execute(&order_1).await.unwrap();
    until("it is dead", async || machine.keepers().is_empty().then_some(())).await;
    assert_eq!(seen(&node).await, []);
    assert_eq!(found(&node, &order_1).await, Found::Done(made));

    let order_2 = order("k2", 5, 1, create_of("r2_auto", "die:before-begun"));
    let answer = node.execute(&order_2).await;
    assert!(matches!(answer, Err(CallError::Refused { retryable: true, .. })), "{answer:?}");
}

/// The sender of a drop dies or is stopped right before the kill of a replica that does not react.
#[tokio::test]
async fn a_drop_whose_sender_dies_before_the_kill_is_finished_by_the_next_one() {
    for halt in ["--at=die:before-kill", "--at=stop:before-kill"] {
        let machine = Machine::new();
        let node = machine.node();
        let report = node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
        let keeper = machine.pid("r1_auto", "keeper").unwrap();
        signal(keeper, Signal::SIGSTOP);
        let drop = order("k2", 5, 1, Call::DropReplica(life("r1_auto", &report)));
        let old = Sender::start(&machine, &drop, &[halt]);
        if halt.contains("stop") {
            old.is_stopped().await;
        } else {
            until("the sender is dead", async || (state_of(old.pid()) == Some('Z')).then_some(())).await;
        }
        node.fence(epoch(7)).await.expect("a fence");
        assert_eq!(found(&node, &drop).await, Found::UnderWay, "{halt}: it had begun before the fence");
        let again = order("k2", 7, 2, Call::DropReplica(life("r1_auto", &report)));
        assert_eq!(node.execute(&again).await, Ok(Report::Nothing), "{halt}");
        let next = node.execute(&order("k3", 7, 1, create("r1_auto"))).await.unwrap();
        // The old one goes on, with the number of a process that is not there any more.
        old.goes_on();
        old.ends().await;
        let replica = sees_one(&node, halt, |replica| replica.ready).await;
        assert_eq!(replica.incarnation, Some(incarnation(&next)), "{halt}: nobody else was hit");
        assert_eq!(found(&node, &again).await, Found::Done(Report::Nothing), "{halt}");
    }
}
