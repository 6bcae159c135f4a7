//! What every backend must do, as one suite that each of them runs. The promises themselves are on [`Backend`].
//!
//! Not here: how an executor uses them, and what only one kind of backend promises.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use loadline_state_machine::{Call, ClusterId, Epoch, Hash, LogIndex, ReplicaLife, ReplicaSpec, Report};
use tokio::time::{Instant, sleep};

use crate::{Backend, CallError, ClusterAddress, Found, ObservedReplica, Order};

/// Slow machines are slow: what takes longer is taken for something that does not happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A backend on a place of its own, where nothing has been done yet.
pub struct Subject {
    backend: Arc<dyn Backend>,
    other_node: Arc<dyn Backend>,
    size: String,
    other_size: String,
    _keep: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("backend", &self.backend).finish_non_exhaustive()
    }
}

impl Subject {
    pub fn new(backend: Arc<dyn Backend>) -> Subject {
        let other_node = Arc::clone(&backend);
        Subject { backend, other_node, size: "25cc".to_owned(), other_size: "50cc".to_owned(), _keep: None }
    }

    /// The same place, as another node reaches it. Without it the suite cannot show that a fence holds for all nodes.
    #[must_use]
    pub fn with_other_node(mut self, other_node: Arc<dyn Backend>) -> Subject {
        self.other_node = other_node;
        self
    }

    /// Two sizes that it knows.
    #[must_use]
    pub fn with_sizes(mut self, size: impl Into<String>, other_size: impl Into<String>) -> Subject {
        self.size = size.into();
        self.other_size = other_size.into();
        self
    }

    /// Something that must live as long as the backend, as the folder that it is in. Dropped after each check.
    #[must_use]
    pub fn keeping(mut self, keep: impl Any + Send + Sync) -> Subject {
        self._keep = Some(Box::new(keep));
        self
    }
}

/// Runs every check, each on a fresh subject. Panics at the first promise that is not kept.
pub async fn suite<Make, Making>(make: Make)
where
    Make: Fn() -> Making,
    Making: Future<Output = Subject>,
{
    what_was_made_is_found_and_seen(&make().await).await;
    a_key_is_carried_out_once(&make().await).await;
    the_same_key_from_many_at_once_is_carried_out_once(&make().await).await;
    a_key_that_was_never_sent_is_not_seen(&make().await).await;
    other_parameters_under_a_known_key_are_refused(&make().await).await;
    a_lower_epoch_is_refused_after_a_fence(&make().await).await;
    a_fence_leaves_what_was_done_before(&make().await).await;
    a_fence_can_be_set_again(&make().await).await;
    a_drop_ends_the_replica_it_names_and_no_newer_one(&make().await).await;
    a_replica_that_is_gone_can_be_dropped_again(&make().await).await;
    a_replica_is_cordoned_drained_and_uncordoned(&make().await).await;
    a_checkpoint_is_kept_by_those_who_say_so(&make().await).await;
    clusters_do_not_see_each_other(&make().await).await;
    a_call_that_is_given_up_is_carried_out_once_or_never(&make().await).await;
}

pub async fn what_was_made_is_found_and_seen(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    let order = talk.order(1, 5, talk.create("r1_auto"));
    let report = talk.must(&order).await;
    let incarnation = incarnation(&report);
    talk.finds(&order, &Found::Done(report)).await;
    let seen = talk.sees(&["r1_auto"]).await;
    assert_eq!(seen[0].size, subject.size, "a replica has the size that it was made with");
    if incarnation.is_some() {
        assert_eq!(seen[0].incarnation, incarnation, "the life that was reported is the one that is seen");
    }
    assert_eq!(seen[0].crashes, 0, "a replica that was just made has not crashed");
}

pub async fn a_key_is_carried_out_once(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    let order = talk.order(1, 5, talk.create("r1_auto"));
    let first = talk.must(&order).await;
    let seen = talk.sees(&["r1_auto"]).await;
    let again = Order { attempt: 2, ..order.clone() };
    for backend in [&subject.backend, &subject.other_node] {
        assert_eq!(backend.execute(&again).await, Ok(first.clone()), "a known key is answered with what came of it");
    }
    talk.settle().await;
    let now: Vec<_> = lives(&talk.sees(&["r1_auto"]).await);
    assert_eq!(now, lives(&seen), "a repeat changes nothing");
}

pub async fn the_same_key_from_many_at_once_is_carried_out_once(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    let order = talk.order(1, 5, talk.create("r1_auto"));
    let backends = [&subject.backend, &subject.other_node, &subject.backend, &subject.other_node];
    let answers = join_all(backends.map(|backend| backend.execute(&order))).await;
    // Those that come while the first is under way may be told to come back; nobody may be told something else.
    let reports: Vec<&Report> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    assert!(!reports.is_empty(), "one of many must get through: {answers:?}");
    assert!(reports.iter().all(|report| *report == reports[0]), "everybody is told the same: {answers:?}");
    for answer in &answers {
        let told_to_come_back =
            matches!(answer, Err(CallError::Unknown { .. } | CallError::Refused { retryable: true, .. }));
        assert!(answer.is_ok() || told_to_come_back, "a repeat is no error for good: {answer:?}");
    }
    let report = talk.must(&order).await;
    assert_eq!(&report, reports[0], "and so is who asks later");
    talk.settle().await;
    let seen = talk.sees(&["r1_auto"]).await;
    if let Some(made) = incarnation(&report) {
        assert_eq!(seen[0].incarnation, Some(made), "the one that is there is the one that was reported");
    }
}

pub async fn a_key_that_was_never_sent_is_not_seen(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    let order = talk.order(1, 5, talk.create("r1_auto"));
    assert_eq!(subject.backend.find(&order).await, Ok(Found::NotSeen), "nothing was sent under this key");
    talk.sees(&[]).await;
}

pub async fn other_parameters_under_a_known_key_are_refused(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    let order = talk.order(1, 5, talk.create("r1_auto"));
    let report = talk.must(&order).await;
    talk.finds(&order, &Found::Done(report.clone())).await;
    let other = talk.order(1, 5, talk.create("r2_auto"));
    assert_ne!(other.parameters, order.parameters, "the suite itself must ask for something else");
    let answer = subject.backend.execute(&other).await;
    assert!(
        matches!(&answer, Err(CallError::OtherParameters { key, .. }) if *key == order.key),
        "the same key for something else is refused as such: {answer:?}"
    );
    talk.settle().await;
    let found = subject.backend.find(&other).await;
    assert!(matches!(found, Ok(Found::OtherParameters { .. })), "and is found as such: {found:?}");
    talk.sees(&["r1_auto"]).await;
    assert_eq!(subject.backend.execute(&order).await, Ok(report), "and the first order stands");
}

pub async fn a_lower_epoch_is_refused_after_a_fence(subject: &Subject) {
    if !subject.backend.capabilities().fences {
        return;
    }
    let talk = Talk::begin(subject, 5).await;
    let made = talk.order(1, 5, talk.create("r1_auto"));
    let report = talk.must(&made).await;
    subject.other_node.fence(epoch(7)).await.expect("a later leader can fence");

    let late = talk.order(2, 5, talk.create("r2_auto"));
    let drop = talk.order(3, 5, Call::DropReplica(talk.life("r1_auto", &report)));
    for order in [&late, &drop] {
        for backend in [&subject.backend, &subject.other_node] {
            let answer = backend.execute(order).await;
            assert_eq!(answer, Err(CallError::Fenced { highest: epoch(7) }), "an earlier leader's order is refused");
        }
    }
    let answer = subject.backend.fence(epoch(6)).await;
    assert_eq!(answer, Err(CallError::Fenced { highest: epoch(7) }), "an earlier leader cannot fence");
    talk.settle().await;
    talk.sees(&["r1_auto"]).await;
    let found = subject.other_node.find(&Order { epoch: epoch(7), ..late }).await;
    assert_eq!(found, Ok(Found::NotSeen), "what was refused for its epoch was never carried out");
    talk.must_via(&subject.other_node, &talk.order(4, 7, talk.create("r2_auto"))).await;
    talk.sees(&["r1_auto", "r2_auto"]).await;
}

pub async fn a_fence_leaves_what_was_done_before(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    let order = talk.order(1, 5, talk.create("r1_auto"));
    let report = talk.must(&order).await;
    subject.other_node.fence(epoch(7)).await.expect("a later leader can fence");
    let resumed = Order { epoch: epoch(7), attempt: 2, ..order };
    let found = talk.finds_via(&subject.other_node, &resumed, &Found::Done(report.clone())).await;
    assert!(found, "the next leader finds what the last one did");
    let answer = subject.other_node.execute(&resumed).await;
    assert_eq!(answer, Ok(report), "and a repeat under its epoch is a repeat");
    talk.settle().await;
    talk.sees(&["r1_auto"]).await;
}

pub async fn a_fence_can_be_set_again(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    subject.backend.fence(epoch(5)).await.expect("the same leader may fence twice");
    talk.must(&talk.order(1, 5, talk.create("r1_auto"))).await;
    // A restored group has another incarnation, and that counts more than the index.
    let restored = Epoch { incarnation: EPOCH_INCARNATION + 1, index: LogIndex(2) };
    subject.backend.fence(restored).await.expect("a later incarnation can fence");
    if subject.backend.capabilities().fences {
        let answer = subject.backend.execute(&talk.order(2, 900, talk.create("r2_auto"))).await;
        assert_eq!(answer, Err(CallError::Fenced { highest: restored }), "an earlier incarnation is an earlier leader");
    }
}

pub async fn a_drop_ends_the_replica_it_names_and_no_newer_one(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    let first = talk.must(&talk.order(1, 5, talk.create("r1_auto"))).await;
    let old = talk.life("r1_auto", &first);
    talk.must(&talk.order(2, 5, Call::DropReplica(old.clone()))).await;
    talk.settle().await;
    talk.sees(&[]).await;
    let second = talk.must(&talk.order(3, 5, talk.create("r1_auto"))).await;
    let (Some(before), Some(now)) = (incarnation(&first), incarnation(&second)) else {
        // A backend that cannot tell lives apart has nothing more to show here.
        return;
    };
    assert_ne!(before, now, "another life under the same name has another incarnation");
    talk.settle().await;
    // That the old one is gone is all that was asked for, so both answers are right; dropping the new one is not.
    let answer = subject.backend.execute(&talk.order(4, 5, Call::DropReplica(old))).await;
    let harmless = matches!(answer, Ok(_) | Err(CallError::Refused { retryable: false, .. }));
    assert!(harmless, "a drop of a life that is over is answered: {answer:?}");
    talk.settle().await;
    let seen = talk.sees(&["r1_auto"]).await;
    assert_eq!(seen[0].incarnation, Some(now), "the newer replica is still there");
    talk.must(&talk.order(5, 5, Call::DropReplica(talk.life("r1_auto", &second)))).await;
    talk.sees(&[]).await;
}

pub async fn a_replica_that_is_gone_can_be_dropped_again(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    let report = talk.must(&talk.order(1, 5, talk.create("r1_auto"))).await;
    let life = talk.life("r1_auto", &report);
    let drop = talk.order(2, 5, Call::DropReplica(life.clone()));
    let dropped = talk.must(&drop).await;
    assert_eq!(subject.backend.execute(&drop).await, Ok(dropped), "the same drop again is a repeat");
    let answer = subject.backend.execute(&talk.order(3, 5, Call::DropReplica(life))).await;
    let harmless = matches!(answer, Ok(_) | Err(CallError::Refused { retryable: false, .. }));
    assert!(harmless, "another drop of it has nothing to do: {answer:?}");
    talk.sees(&[]).await;
}

pub async fn a_replica_is_cordoned_drained_and_uncordoned(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    let report = talk.must(&talk.order(1, 5, talk.create("r1_auto"))).await;
    let life = talk.life("r1_auto", &report);
    talk.sees(&["r1_auto"]).await;
    let calls = [
        Call::CordonReplica(life.clone()),
        Call::DrainReplica(life.clone()),
        Call::UncordonReplica(life.clone()),
        Call::CordonReplica(life.clone()),
        Call::DrainReplica(life),
    ];
    for (number, call) in (2..).zip(calls) {
        let order = talk.order(number, 5, call);
        let first = talk.must(&order).await;
        assert_eq!(subject.backend.execute(&order).await, Ok(first.clone()), "a repeat of {} is a repeat", order.call);
        talk.finds(&order, &Found::Done(first)).await;
    }
    talk.sees(&["r1_auto"]).await;
}

/// Whoever says that it keeps none is never asked to, and must not claim that it did: what was to be kept would be dropped next.
pub async fn a_checkpoint_is_kept_by_those_who_say_so(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    let report = talk.must(&talk.order(1, 5, talk.create("r1_auto"))).await;
    let life = talk.life("r1_auto", &report);
    talk.sees(&["r1_auto"]).await;
    let order = talk.order(2, 5, Call::CheckpointReplica(life.clone()));
    if !subject.backend.capabilities().checkpoints {
        let answer = subject.backend.execute(&order).await;
        assert!(matches!(answer, Err(CallError::Refused { .. })), "it says that it keeps none: {answer:?}");
        return;
    }
    let first = talk.must(&order).await;
    assert_eq!(subject.backend.execute(&order).await, Ok(first.clone()), "a repeat of it is a repeat");
    talk.finds(&order, &Found::Done(first)).await;
    talk.sees(&["r1_auto"]).await;
    // What is kept is for the next one of that name.
    talk.must(&talk.order(3, 5, Call::DropReplica(life.clone()))).await;
    talk.sees(&[]).await;
    talk.must(&talk.order(4, 5, talk.create("r1_auto"))).await;
    talk.sees(&["r1_auto"]).await;
    // Of a life that is over nothing can be kept, and of the one that has the name by now nothing was asked.
    if life.incarnation.is_some() {
        let answer = subject.backend.execute(&talk.order(5, 5, Call::CheckpointReplica(life))).await;
        assert!(matches!(answer, Err(CallError::Refused { retryable: false, .. })), "that life is over: {answer:?}");
    }
}

pub async fn clusters_do_not_see_each_other(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    talk.must(&talk.order(1, 5, talk.create("r1_auto"))).await;
    let other = ClusterAddress { id: cluster(2), name: "suite_other".to_owned() };
    let elsewhere = Order { cluster: other.clone(), ..talk.order(2, 5, talk.create("r1_auto")) };
    let made = talk.must(&elsewhere).await;
    talk.sees(&["r1_auto"]).await;
    let life = talk.life("r1_auto", &made);
    talk.must(&Order { cluster: other.clone(), ..talk.order(3, 5, Call::DropReplica(life)) }).await;
    talk.settle().await;
    talk.sees(&["r1_auto"]).await;
    let left = subject.backend.observe(&other).await;
    assert_eq!(left, Ok(vec![]), "only the replica of the other cluster has gone");
}

pub async fn a_call_that_is_given_up_is_carried_out_once_or_never(subject: &Subject) {
    let talk = Talk::begin(subject, 5).await;
    let order = talk.order(1, 5, talk.create("r1_auto"));
    // It goes out, and whoever sent it is gone before the answer: as far as it gets in one step.
    let mut given_up = subject.backend.execute(&order);
    let answered = futures::poll!(&mut given_up).is_ready();
    drop(given_up);
    let capabilities = subject.backend.capabilities();
    let by = Instant::now() + capabilities.call_deadline + capabilities.visibility_delay;
    let found = loop {
        let found = subject.other_node.find(&order).await.expect("an order can be looked up");
        match found {
            Found::UnderWay => assert!(Instant::now() < by + PATIENCE, "an order does not stay under way for ever"),
            // Only the whole wait makes sure that it will not come any more.
            Found::NotSeen if Instant::now() < by && !answered => {}
            found => break found,
        }
        sleep(Duration::from_millis(20)).await;
    };
    assert!(matches!(found, Found::Done(_) | Found::NotSeen), "given up is no failure: {found:?}");
    let report = talk.must_via(&subject.other_node, &Order { attempt: 2, ..order.clone() }).await;
    if let Found::Done(before) = found {
        assert_eq!(report, before, "what was carried out is not carried out again");
    }
    talk.settle().await;
    talk.sees(&["r1_auto"]).await;
}

const EPOCH_INCARNATION: u64 = 1_794_830_400_000;

fn epoch(index: u64) -> Epoch {
    Epoch { incarnation: EPOCH_INCARNATION, index: LogIndex(index) }
}

fn cluster(index: u64) -> ClusterId {
    ClusterId { index: LogIndex(index), ordinal: 0 }
}

fn incarnation(report: &Report) -> Option<String> {
    match report {
        Report::Created { incarnation } => incarnation.clone(),
        other => panic!("a create is answered by the life that was made, not by {other:?}"),
    }
}

/// What makes a replica the one it is; how far it has come may change while one looks.
fn lives(seen: &[ObservedReplica]) -> Vec<(String, String, Option<String>)> {
    seen.iter().map(|it| (it.name.clone(), it.size.clone(), it.incarnation.clone())).collect()
}

/// One conversation with a subject.
struct Talk<'a> {
    subject: &'a Subject,
    cluster: ClusterAddress,
}

impl<'a> Talk<'a> {
    async fn begin(subject: &'a Subject, index: u64) -> Talk<'a> {
        subject.backend.fence(epoch(index)).await.expect("a fresh backend can be fenced");
        Talk { subject, cluster: ClusterAddress { id: cluster(1), name: "suite".to_owned() } }
    }

    fn create(&self, name: &str) -> Call {
        Call::CreateReplica(ReplicaSpec { name: name.into(), size: self.subject.size.as_str().into() })
    }

    fn life(&self, name: &str, report: &Report) -> ReplicaLife {
        let incarnation = incarnation(report).map(|it| it.as_str().into());
        ReplicaLife { name: name.into(), size: self.subject.size.as_str().into(), incarnation }
    }

    fn order(&self, key: u64, index: u64, call: Call) -> Order {
        let parameters = Hash::of(format!("{} {call:?}", self.cluster.id).as_bytes());
        Order {
            key: format!("{EPOCH_INCARNATION}/a{key}.0"),
            epoch: epoch(index),
            attempt: 1,
            parameters,
            cluster: self.cluster.clone(),
            call,
        }
    }

    async fn must(&self, order: &Order) -> Report {
        self.must_via(&self.subject.backend, order).await
    }

    /// As the executor does: no answer is looked up and sent again under the same key.
    async fn must_via(&self, backend: &Arc<dyn Backend>, order: &Order) -> Report {
        let until = Instant::now() + PATIENCE;
        loop {
            match backend.execute(order).await {
                Ok(report) => return report,
                Err(CallError::Unknown { .. } | CallError::Refused { retryable: true, .. })
                    if Instant::now() < until =>
                {
                    sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{} was not carried out: {error:?}", order.call),
            }
        }
    }

    /// Until what was done can be seen.
    async fn settle(&self) {
        sleep(self.subject.backend.capabilities().visibility_delay).await;
    }

    async fn finds(&self, order: &Order, expected: &Found) {
        let found = self.finds_via(&self.subject.backend, order, expected).await;
        assert!(found, "{} is never found as {expected:?}", order.call);
    }

    async fn finds_via(&self, backend: &Arc<dyn Backend>, order: &Order, expected: &Found) -> bool {
        let until = Instant::now() + self.subject.backend.capabilities().visibility_delay + PATIENCE;
        while Instant::now() < until {
            match backend.find(order).await {
                Ok(found) if found == *expected => return true,
                Ok(Found::NotSeen | Found::UnderWay) | Err(CallError::Unknown { .. }) => {
                    sleep(Duration::from_millis(20)).await;
                }
                other => panic!("{} should be found as {expected:?}, and is as {other:?}", order.call),
            }
        }
        false
    }

    /// Both nodes see these replicas, and no others, before the patience is over.
    async fn sees(&self, names: &[&str]) -> Vec<ObservedReplica> {
        let until = Instant::now() + self.subject.backend.capabilities().visibility_delay + PATIENCE;
        let mut last = None;
        while Instant::now() < until {
            let here = self.subject.backend.observe(&self.cluster).await;
            let there = self.subject.other_node.observe(&self.cluster).await;
            match (here, there) {
                (Ok(here), Ok(there)) => {
                    let named = |seen: &[ObservedReplica]| {
                        let mut seen: Vec<String> = seen.iter().map(|replica| replica.name.clone()).collect();
                        seen.sort();
                        seen
                    };
                    if named(&here) == names && named(&there) == names {
                        let mut here = here;
                        here.sort();
                        return here;
                    }
                    last = Some(format!("{here:?}, on the other node {there:?}"));
                }
                (here, there) => last = Some(format!("{here:?}, on the other node {there:?}")),
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("expected to see {names:?}, saw {last:?}");
    }
}
