//! Starts duties when this node becomes leader, and stops them before anything of the next leadership begins.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::task::{Id, JoinSet};
use tracing::{error, info};

use crate::{Leadership, Tenure};

/// How long a duty that panicked stays down. Long enough not to fill the log, short enough that a cluster waits for it.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Something that only a leader does.
///
/// The future is dropped at an await point when the leadership ends, so it must not leave anything half done that state
/// does not know of. When it returns, it is done for this leadership.
pub trait Duty: Send + Sync + 'static {
    fn name(&self) -> &'static str;
    fn perform(&self, tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The duties of a leader.
#[derive(Default)]
pub struct Duties {
    duties: Vec<Arc<dyn Duty>>,
}

impl fmt::Debug for Duties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.duties.iter().map(|duty| duty.name())).finish()
    }
}

impl Duties {
    pub fn new() -> Duties {
        Duties::default()
    }

    #[must_use]
    pub fn with(mut self, duty: impl Duty) -> Duties {
        self.duties.push(Arc::new(duty));
        self
    }

    /// Follows the leadership until the stream ends. Each item is the leadership from then on: `None`, or one whose
    /// epoch says whether it is a new one.
    ///
    /// Every duty of one epoch has ended before any duty of the next one begins, even where leadership was lost and won
    /// back faster than a duty stops: two epochs never act side by side on one node.
    pub async fn run(self, leadership: impl Stream<Item = Option<Leadership>>) {
        let mut leadership = std::pin::pin!(leadership);
        let mut now = leadership.next().await;
        loop {
            now = match now {
                None => return,
                Some(None) => leadership.next().await,
                Some(Some(won)) => {
                    info!(epoch = %won.epoch, duties = ?self, "the duties of the leader begin");
                    let epoch = won.epoch;
                    let mut serving = Serving::start(&self.duties, won);
                    let next = loop {
                        tokio::select! {
                            biased;
                            next = leadership.next() => match next {
                                // The same leadership, said again.
                                Some(Some(same)) if same.epoch == epoch => {}
                                next => break next,
                            },
                            () = serving.tend() => {}
                        }
                    };
                    serving.stop().await;
                    info!(%epoch, "the duties of the leader have ended");
                    next
                }
            };
        }
    }
}

/// The duties of one epoch, at work.
struct Serving {
    tenure: Tenure,
    running: JoinSet<()>,
    /// Which duty a task belongs to; a task that panicked has nothing else left to tell.
    by_task: BTreeMap<Id, Arc<dyn Duty>>,
}

impl Serving {
    fn start(duties: &[Arc<dyn Duty>], leadership: Leadership) -> Serving {
        let mut serving =
            Serving { tenure: Tenure::new(leadership), running: JoinSet::new(), by_task: BTreeMap::new() };
        for duty in duties {
            serving.begin(Arc::clone(duty), Duration::ZERO);
        }
        serving
    }

    fn begin(&mut self, duty: Arc<dyn Duty>, after: Duration) {
        let tenure = self.tenure.clone();
        let working = Arc::clone(&duty);
        let task = self.running.spawn(async move {
            if !after.is_zero() {
                tokio::time::sleep(after).await;
            }
            working.perform(tenure).await;
        });
        self.by_task.insert(task.id(), duty);
    }

    /// Sees to one duty that ended. One that panicked begins again: a bug in one duty must not leave the group without it
    /// until the next election.
    async fn tend(&mut self) {
        match self.running.join_next_with_id().await {
            // Nothing runs; only the leadership can bring news.
            None => std::future::pending().await,
            Some(Ok((id, ()))) => {
                self.by_task.remove(&id);
            }
            Some(Err(failure)) => {
                if let Some(duty) = self.by_task.remove(&failure.id()) {
                    error!(duty = duty.name(), %failure, "a duty failed and begins again in {RESTART_AFTER:?}");
                    self.begin(duty, RESTART_AFTER);
                }
            }
        }
    }

    /// Returns only when nothing runs any more, however long a duty blocks.
    async fn stop(mut self) {
        self.tenure.end();
        self.running.shutdown().await;
    }
}

impl Drop for Serving {
    /// `run` itself may be dropped in the middle; whoever holds a tenure must learn of it.
    fn drop(&mut self) {
        self.tenure.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use loadline_state_machine::{Epoch, LogIndex};
    use tokio::sync::mpsc;

    use super::*;

    fn epoch(index: u64) -> Epoch {
        Epoch { incarnation: 1, index: LogIndex(index) }
    }

    fn leads(index: u64) -> Option<Leadership> {
        Some(Leadership::new(epoch(index), || true))
    }

    /// Writes down when it begins and ends, and works until it is stopped.
    #[derive(Clone, Default)]
    struct Diary {
        lines: Arc<Mutex<Vec<String>>>,
        written: Arc<tokio::sync::Notify>,
    }

    impl Diary {
        fn write(&self, line: String) {
            self.lines.lock().unwrap().push(line);
            self.written.notify_waiters();
        }

        async fn shows(&self, expected: &[&str]) {
            let waiting = async {
                loop {
                    let written = self.written.notified();
                    if *self.lines.lock().unwrap() == expected {
                        return;
                    }
                    written.await;
                }
            };
            let in_time = tokio::time::timeout(Duration::from_secs(60), waiting).await;
            assert!(in_time.is_ok(), "expected {expected:?}, saw {:?}", self.lines.lock().unwrap());
        }
    }

    struct Keep(Diary);

    impl Duty for Keep {
        fn name(&self) -> &'static str {
            "keep"
        }

        fn perform(&self, tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            struct Farewell(Diary, Epoch);
            impl Drop for Farewell {
                fn drop(&mut self) {
                    self.0.write(format!("end {}", self.1));
                }
            }
            Box::pin(async move {
                self.0.write(format!("begin {}", tenure.epoch()));
                let _farewell = Farewell(self.0.clone(), tenure.epoch());
                std::future::pending::<()>().await;
            })
        }
    }

    fn run(duties: Duties) -> (mpsc::UnboundedSender<Option<Leadership>>, tokio::task::JoinHandle<()>) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let stream = futures::stream::poll_fn(move |cx| receiver.poll_recv(cx));
        (sender, tokio::spawn(duties.run(stream)))
    }

    #[tokio::test(start_paused = true)]
    async fn duties_run_only_while_a_leadership_lasts_and_epochs_never_overlap() {
        let diary = Diary::default();
        let (leadership, running) = run(Duties::new().with(Keep(diary.clone())));
        leadership.send(None).unwrap();
        leadership.send(leads(5)).unwrap();
        diary.shows(&["begin 1/5"]).await;
        leadership.send(None).unwrap();
        diary.shows(&["begin 1/5", "end 1/5"]).await;
        leadership.send(leads(9)).unwrap();
        diary.shows(&["begin 1/5", "end 1/5", "begin 1/9"]).await;
        // Lost and won back with nothing seen in between.
        leadership.send(leads(12)).unwrap();
        diary.shows(&["begin 1/5", "end 1/5", "begin 1/9", "end 1/9", "begin 1/12"]).await;
        drop(leadership);
        running.await.unwrap();
        diary.shows(&["begin 1/5", "end 1/5", "begin 1/9", "end 1/9", "begin 1/12", "end 1/12"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_leadership_said_twice_does_not_restart_its_duties() {
        let diary = Diary::default();
        let (leadership, _running) = run(Duties::new().with(Keep(diary.clone())));
        leadership.send(leads(5)).unwrap();
        diary.shows(&["begin 1/5"]).await;
        leadership.send(leads(5)).unwrap();
        leadership.send(leads(6)).unwrap();
        diary.shows(&["begin 1/5", "end 1/5", "begin 1/6"]).await;
    }

    struct Stumble(Arc<AtomicUsize>, Diary);

    impl Duty for Stumble {
        fn name(&self) -> &'static str {
            "stumble"
        }

        fn perform(&self, _tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(async move {
                let before = self.0.fetch_add(1, Ordering::SeqCst);
                assert!(before > 0, "the first time goes wrong");
                self.1.write("done".to_owned());
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_duty_that_panics_begins_again_and_leaves_the_others_alone() {
        let (diary, calls) = (Diary::default(), Arc::new(AtomicUsize::new(0)));
        let (leadership, _running) =
            run(Duties::new().with(Keep(diary.clone())).with(Stumble(Arc::clone(&calls), diary.clone())));
        leadership.send(leads(5)).unwrap();
        diary.shows(&["begin 1/5", "done"]).await;
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }

    struct Handing(mpsc::UnboundedSender<Tenure>);

    impl Duty for Handing {
        fn name(&self) -> &'static str {
            "handing"
        }

        fn perform(&self, tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(async move { self.0.send(tenure).unwrap() })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_may_act_without_a_lease_or_after_the_end() {
        let (sender, mut tenures) = mpsc::unbounded_channel();
        let (leadership, running) = run(Duties::new().with(Handing(sender)));
        let lease = Arc::new(AtomicBool::new(true));
        let seen = Arc::clone(&lease);
        leadership.send(Some(Leadership::new(epoch(5), move || seen.load(Ordering::SeqCst)))).unwrap();
        let tenure = tenures.recv().await.unwrap();
        assert!(tenure.may_act());
        lease.store(false, Ordering::SeqCst);
        assert!(!tenure.may_act());
        lease.store(true, Ordering::SeqCst);
        assert!(tenure.may_act());
        leadership.send(None).unwrap();
        tenure.ended().await;
        assert!(!tenure.may_act());

        // The runner itself goes away in the middle of an epoch.
        leadership.send(leads(8)).unwrap();
        let tenure = tenures.recv().await.unwrap();
        assert!(tenure.may_act());
        running.abort();
        tenure.ended().await;
        assert!(!tenure.may_act());
    }
}
