//! `local`: replicas are processes on this machine.
//!
//! How it holds together, from the outside in:
//!
//! - `carrying` gets an order going and waits for what comes of it. It never *does* anything itself, with one exception: it kills
//!   a replica that is to be dropped and does not react.
//! - `ledger` and `book` are what all nodes of a machine and all replicas share. Orders are written there before anything is
//!   started, and take effect by a record that the replica itself writes.
//! - `replica` is the other end, `loadline replica`: it holds the lock on its name (`names`), reads its orders from the ledger, and
//!   keeps a server running.
//!
//! Why nothing happens twice, whoever dies or is stopped where:
//!
//! | the sender is killed or stopped | what is there | what the next leader finds under its fence |
//! |---|---|---|
//! | before the intent | nothing | not seen. If the sender goes on, its intent stands behind the fence and does not count |
//! | after the intent, before the spawn | an open order | not seen, for good: if the sender goes on and starts a process, that one's `Begun` stands behind the fence, does not count, and the process ends before anybody can see it |
//! | after the spawn | a process on its way | done, if its `Begun` stands before the fence; otherwise not seen, and the process ends |
//!
//! A replica that starts holds the lock on its name before it writes `Begun`, so that two orders cannot make two replicas of one
//! name, either. A stopped *node* holds no lock at all. A replica that is itself stopped while it starts holds its own name and
//! nothing else; the order fails with the name of the process that is in the way.
//!
//! Not here: when an order is given, and what follows from its outcome (`acting`).

mod book;
mod carrying;
mod config;
mod ledger;
mod names;
mod places;
mod process;
pub mod replica;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loadline_state_machine::{Epoch, Report};

use self::book::{Ending, Progress, Record, Verb};
pub use self::config::{LocalConfig, LocalSize};
use self::ledger::{Ledger, LedgerError, now_millis};
pub use self::places::Place;
#[cfg(feature = "testing")]
pub use self::places::watch;
use crate::backends::settings::ConfigError;
use crate::{
    Answering, Backend, CallError, Capabilities, ClusterAddress, Found, ObservedHydration, ObservedReplica, Order,
};

/// A replica looks at the ledger ten times a second. One that has not reacted after this long is stopped, or stuck.
const REACTION: Duration = Duration::from_secs(5);

/// Between the record that a replica is there and the file that shows it.
const VISIBILITY_DELAY: Duration = Duration::from_millis(500);

/// Starting a process is cheap; more at once only makes each of them slower.
const CALLS_MAX: usize = 8;

/// Replicas that are processes on this machine.
#[derive(Clone, Debug)]
pub struct LocalBackend {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: LocalConfig,
    /// Opened when it is first needed, on a thread where that may take a while.
    ledger: Mutex<Option<Ledger>>,
}

impl LocalBackend {
    pub fn new(mut config: LocalConfig) -> Result<LocalBackend, ConfigError> {
        config.check()?;
        // Replicas run in a folder of their own, where a relative path means something else.
        let absolute = |key: &str, path: PathBuf| {
            std::path::absolute(&path)
                .map_err(|error| ConfigError::new(key, format!("{} cannot be used: {error}", path.display())))
        };
        config.folder = absolute("folder", config.folder)?;
        config.program = config.program.map(|program| absolute("program", program)).transpose()?;
        Ok(LocalBackend { shared: Arc::new(Shared { config, ledger: Mutex::new(None) }) })
    }

    fn config(&self) -> &LocalConfig {
        &self.shared.config
    }

    /// Does something that touches files, on a thread where that may take a while, with the ledger read to its end.
    async fn with_ledger<T: Send + 'static>(
        &self,
        doing: impl FnOnce(&mut Ledger, &LocalConfig) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let shared = Arc::clone(&self.shared);
        let done = tokio::task::spawn_blocking(move || {
            let mut kept = shared.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            // A folder that was removed took its ledger and its replicas along. Who goes on begins with a new one.
            let mut ledger = match kept.take().filter(|ledger| !ledger.is_removed()) {
                Some(ledger) => ledger,
                None => Ledger::open(&shared.config.folder)?,
            };
            ledger.catch_up()?;
            let done = doing(&mut ledger, &shared.config);
            *kept = Some(ledger);
            done
        });
        done.await.map_err(|error| CallError::Unknown { reason: format!("the ledger was not reached: {error}") })?
    }
}

impl From<LedgerError> for CallError {
    fn from(error: LedgerError) -> Self {
        CallError::Unknown { reason: error.to_string() }
    }
}

fn unreadable(error: &std::io::Error) -> CallError {
    CallError::Unknown { reason: format!("the replicas of this machine cannot be looked at: {error}") }
}

impl Backend for LocalBackend {
    fn capabilities(&self) -> Capabilities {
        let config = self.config();
        let slowest = [
            config.start_deadline,
            config.drain_deadline + REACTION,
            config.terminate_grace + REACTION + REACTION,
            REACTION,
        ];
        Capabilities {
            fences: true,
            visibility_delay: VISIBILITY_DELAY,
            call_deadline: slowest.into_iter().max().unwrap_or_default() + REACTION,
            calls_max: config.calls_max.unwrap_or(CALLS_MAX),
            observe_every: config.observe_every,
            checkpoints: config.checkpoints,
        }
    }

    fn fence(&self, epoch: Epoch) -> Answering<'_, ()> {
        Box::pin(self.with_ledger(move |ledger, _| {
            // Written even if it stands there already: that it is durable is known only of what was synced from here.
            if ledger.book().fenced(epoch).is_none() {
                ledger.append(Record::Fenced { epoch })?;
            }
            match ledger.book().fenced(epoch) {
                Some(highest) => Err(CallError::Fenced { highest }),
                None => Ok(()),
            }
        }))
    }

    fn execute<'a>(&'a self, order: &'a Order) -> Answering<'a, Report> {
        Box::pin(async move {
            let (backend, order) = (self.clone(), order.clone());
            // In a task of its own: whoever asked may go away, and an intent that is written must come to an end all the same,
            // within the deadline that the capabilities promise.
            let carrying = tokio::spawn(async move { backend.carry_out(&order).await });
            carrying.await.unwrap_or_else(|error| Err(CallError::Unknown { reason: error.to_string() }))
        })
    }

    fn find<'a>(&'a self, order: &'a Order) -> Answering<'a, Found> {
        let (order, deadline) = (order.clone(), self.capabilities().call_deadline);
        Box::pin(self.with_ledger(move |ledger, config| find(ledger, config, &order, deadline)))
    }

    fn observe<'a>(&'a self, cluster: &'a ClusterAddress) -> Answering<'a, Vec<ObservedReplica>> {
        let (folder, cluster) = (self.config().folder.clone(), cluster.id);
        Box::pin(async move {
            let looking = tokio::task::spawn_blocking(move || {
                let mut seen = Vec::new();
                for name in names::known(&folder, cluster)? {
                    let life = names::Place::of(&folder, cluster, &name).life()?;
                    seen.extend(life.filter(|life| life.begun).map(|life| observed(name, life)));
                }
                Ok::<_, std::io::Error>(seen)
            });
            let seen = looking.await.map_err(|error| CallError::Unknown { reason: error.to_string() })?;
            seen.map_err(|error| unreadable(&error))
        })
    }
}

fn observed(name: String, life: names::Life) -> ObservedReplica {
    ObservedReplica {
        name,
        size: life.size,
        incarnation: Some(life.incarnation),
        ready: life.ready,
        hydration: Some(ObservedHydration { total: life.objects_total, hydrated: life.objects_hydrated }),
        crashes: life.crashes,
        crash_reason: life.crash_reason,
        oom: life.oom,
    }
}

fn find(ledger: &Ledger, config: &LocalConfig, order: &Order, deadline: Duration) -> Result<Found, CallError> {
    let place = names::Place::of(&config.folder, order.cluster.id, order.call.replica());
    let life = || place.life().map_err(|error| unreadable(&error));
    let Some(entry) = ledger.book().entry(&order.key) else {
        // The replica carries its key itself, and so is found even if the ledger has forgotten it.
        let made = life()?.filter(|life| life.begun && life.key.as_ref() == Some(&order.key));
        return Ok(
            made.map_or(Found::NotSeen, |life| Found::Done(Report::Created { incarnation: Some(life.incarnation) }))
        );
    };
    if entry.parameters != order.parameters.to_string() {
        return Ok(Found::OtherParameters { known: entry.intent.to_string() });
    }
    let is_there = || -> Result<bool, CallError> {
        Ok(life()?.is_some_and(|life| Some(&life.incarnation) == entry.intent.incarnation.as_ref()))
    };
    Ok(match &entry.progress {
        Progress::Settled { ending: Ending::Failed { retryable, reason }, .. } => {
            Found::Failed { retryable: *retryable, reason: reason.clone() }
        }
        Progress::Settled { ending, .. } => Found::Done(ending.report().unwrap_or(Report::Nothing)),
        // Rule 2 of the book: it does not begin any more.
        Progress::Open if ledger.book().fenced(entry.ticket.epoch).is_some() => Found::NotSeen,
        Progress::Open => Found::UnderWay,
        Progress::Begun if !is_there()? => match entry.intent.verb {
            Verb::Drop => Found::Done(Report::Nothing),
            _ => Found::Failed { retryable: false, reason: carrying::gone(&entry.intent) },
        },
        // Whoever was about to kill it may be dead. To be told to end the same life once more does no harm.
        Progress::Begun
            if entry.intent.verb == Verb::Drop
                && u128::from(now_millis().saturating_sub(entry.asked_at_millis)) > deadline.as_millis() =>
        {
            Found::NotSeen
        }
        Progress::Begun => Found::UnderWay,
    })
}
