//! The keeper: holds the name, takes orders from the ledger, and keeps a server running.
//!
//! It becomes visible in three steps, and the order of them is what keeps two replicas from being there for one order or under one name:
//!
//! 1. The lock on the name. From here on nobody else runs under it.
//! 2. `Begun` in the ledger, and a look whether it counts. If it does not, this process ends, and nobody has seen it.
//! 3. Only then its life says that it has begun, and only then a server is started.
//!
//! An order is carried out in the same way: `Begun`, a look whether that counts, and then the deed. So whatever is fenced or withdrawn before
//! its `Begun` is never done, and whatever has `Begun` in the ledger was done, is being done, or died with the keeper.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::server::EXIT_OUT_OF_MEMORY;
use super::wire::{ToKeeper, ToServer};
use super::{Carried, ReplicaError, ReplicaOptions, duration};
use crate::backends::local::book::{Ending, Entry, Progress, Record, Ticket, Verb};
use crate::backends::local::ledger::{Ledger, LedgerError};
use crate::backends::local::names::{self, Checkpoint, Life, NameLock};
use crate::backends::local::places::{self, Place};
use crate::backends::local::process::Process;

/// How often the ledger is looked at. A glance is one system call while nothing happens.
const GLANCE: Duration = Duration::from_millis(100);

/// The former holder of a name may need a moment to go, and so does a second process for the same order.
const NAME_PATIENCE: Duration = Duration::from_secs(2);

/// A server that crashes does not stay down longer than this, however often it has.
const RESTART_AFTER_MAX: Duration = Duration::from_secs(60);
/// One that ran for this long has recovered: the next crash is taken for a first one.
const RECOVERED_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Keeper {
    options: ReplicaOptions,
    place: names::Place,
    lock: NameLock,
    ledger: Arc<Mutex<Ledger>>,
    life: Life,
    server: Serving,
    crashes_in_a_row: u32,
    /// The drain that is under way.
    draining: Option<String>,
}

#[derive(Debug)]
enum Serving {
    Running(Box<Running>),
    /// Crashed, and started again at this time.
    Down(Instant),
}

#[derive(Debug)]
struct Running {
    child: Child,
    words: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    since: Instant,
}

/// What happened to the server.
#[derive(Debug)]
enum News {
    Said(ToKeeper),
    Ended(io::Result<ExitStatus>),
    RestartDue,
}

impl From<LedgerError> for ReplicaError {
    fn from(error: LedgerError) -> Self {
        ReplicaError::Folder { problem: error.to_string() }
    }
}

/// Files may take a while; the timers of this process shall not wait for them.
async fn with_ledger<T: Send + 'static>(
    ledger: &Arc<Mutex<Ledger>>,
    doing: impl FnOnce(&mut Ledger) -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, ReplicaError> {
    let ledger = Arc::clone(ledger);
    let done = tokio::task::spawn_blocking(move || doing(&mut ledger.lock().unwrap_or_else(PoisonError::into_inner)));
    Ok(done.await.map_err(io::Error::other)??)
}

/// Runs until it is dropped, told to end by a signal, or its folder is removed.
pub(super) async fn keep(options: &ReplicaOptions) -> Result<(), ReplicaError> {
    names::check(&options.name).map_err(|problem| ReplicaError::BadName { problem })?;
    let mut ending = Signals::new(options.carried.key.is_some())?;
    let opening = options.folder.clone();
    let ledger = tokio::task::spawn_blocking(move || Ledger::open(&opening)).await.map_err(io::Error::other)??;
    let ledger = Arc::new(Mutex::new(ledger));
    let order = match options.carried.clone() {
        Carried { key: Some(key), epoch: Some(epoch), attempt: Some(attempt) } => {
            Some((key, Ticket { epoch, attempt }))
        }
        _ => None,
    };
    let place = names::Place::of(&options.folder, options.cluster, &options.name);
    place.make()?;
    let lock = match take_name(&place, &options.name, &ledger, order.as_ref()).await {
        Ok(lock) => lock,
        Err(taken) => {
            if let Some((key, ticket)) = order {
                let reason = taken.to_string();
                let withdrawing = Record::Withdrawn { key, ticket, retryable: true, reason };
                with_ledger(&ledger, move |ledger| ledger.append(withdrawing)).await?;
            }
            return Err(taken);
        }
    };
    let kept = place.kept(&options.size)?;
    let mut life = new_life(options, kept.as_ref())?;
    place.write(&life, &lock)?;
    if let Some((key, ticket)) = order {
        places::reached(Place::BeforeBegun);
        if !begins(&ledger, key.clone(), ticket, life.incarnation.clone()).await? {
            return Err(ReplicaError::OrderNotHeld { key });
        }
        places::reached(Place::AfterBegun);
    }
    life.begun = true;
    place.write(&life, &lock)?;
    // From here on the server holds the name, too: if this process is killed, nobody gets the name before the server is gone.
    lock.share_with_children()?;
    info!(name = options.name, incarnation = life.incarnation, pid = life.keeper.pid, "the replica begins");
    let mut keeper = Keeper {
        options: ReplicaOptions { hydrated: kept.map_or(0, |kept| kept.objects_hydrated), ..options.clone() },
        place,
        lock,
        ledger,
        life,
        server: Serving::Down(Instant::now()),
        crashes_in_a_row: 0,
        draining: None,
    };
    let ended = keeper.run(&mut ending).await;
    keeper.stop_server().await;
    info!(name = keeper.options.name, "the replica has ended");
    // A drop that has begun is done when the name is free, which it is in a moment. Said here so that nobody has to find out.
    if let Ok(Some(key)) = &ended {
        let settled = Record::Settled { key: key.clone(), ending: Ending::Done };
        with_ledger(&keeper.ledger, move |ledger| ledger.append(settled)).await?;
    }
    ended.map(|_| ())
}

/// Nobody waits for a name on behalf of an order that does not hold any more.
async fn take_name(
    place: &names::Place,
    name: &str,
    ledger: &Arc<Mutex<Ledger>>,
    order: Option<&(String, Ticket)>,
) -> Result<NameLock, ReplicaError> {
    let until = Instant::now() + NAME_PATIENCE;
    loop {
        if let Some(lock) = place.try_lock()? {
            return Ok(lock);
        }
        if let Some((key, ticket)) = order.cloned() {
            let order = key.clone();
            let holds = with_ledger(ledger, move |ledger| {
                ledger.catch_up()?;
                let entry = ledger.book().entry(&key).filter(|entry| entry.ticket == ticket);
                let is_open = entry.is_some_and(|entry| entry.progress == Progress::Open);
                Ok(is_open && ledger.book().fenced(ticket.epoch).is_none())
            });
            if !holds.await? {
                return Err(ReplicaError::OrderNotHeld { key: order });
            }
        }
        if Instant::now() >= until {
            let holder = match place.life()? {
                Some(life) => format!("process {}, incarnation {}", life.keeper.pid, life.incarnation),
                None => "a process that has not said who it is".to_owned(),
            };
            return Err(ReplicaError::NameTaken { name: name.to_owned(), holder });
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn new_life(options: &ReplicaOptions, kept: Option<&Checkpoint>) -> Result<Life, ReplicaError> {
    let keeper = Process::me().ok_or_else(|| ReplicaError::Folder {
        problem: "/proc is not there, so that processes cannot be told apart".to_owned(),
    })?;
    Ok(Life {
        incarnation: uuid::Uuid::new_v4().to_string(),
        size: options.size.clone(),
        key: options.carried.key.clone(),
        begun: false,
        keeper,
        server: None,
        address: None,
        ready: false,
        cordoned: false,
        objects_total: options.objects,
        objects_hydrated: 0,
        crashes: 0,
        crash_reason: None,
        oom: false,
        restored_from: kept.map(|kept| kept.incarnation.clone()),
    })
}

/// Writes that the create begins with this life, and says whether that counts.
async fn begins(
    ledger: &Arc<Mutex<Ledger>>,
    key: String,
    ticket: Ticket,
    incarnation: String,
) -> Result<bool, ReplicaError> {
    with_ledger(ledger, move |ledger| {
        let begun = Record::Begun { key: key.clone(), ticket, incarnation: Some(incarnation.clone()) };
        ledger.append(begun)?;
        let progress = ledger.book().entry(&key).map(|entry| &entry.progress);
        let mine = Ending::Created { incarnation };
        Ok(matches!(progress, Some(Progress::Settled { ending, .. }) if *ending == mine))
    })
    .await
}

impl Keeper {
    /// Answers the key of the drop, if it was one.
    async fn run(&mut self, ending: &mut Signals) -> Result<Option<String>, ReplicaError> {
        let mut glances = interval(GLANCE);
        glances.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_blind = false;
        loop {
            tokio::select! {
                biased;
                () = ending.received() => return Ok(None),
                news = self.server.news() => self.take_note(news).await?,
                _ = glances.tick() => {
                    let open = match self.glance().await {
                        Ok(Some(open)) => open,
                        Ok(None) => return Ok(None),
                        // It serves on without orders: nodes of a newer version may write what this one does not know, and that
                        // must not end every replica of the machine. A node that wants it gone kills it.
                        Err(error) => {
                            if !std::mem::replace(&mut is_blind, true) {
                                warn!(%error, "orders cannot be read");
                            }
                            continue;
                        }
                    };
                    is_blind = false;
                    for (key, entry) in open {
                        if self.obey(&key, &entry).await? {
                            return Ok(Some(key));
                        }
                    }
                }
            }
        }
    }

    /// The orders that have come for this replica; nothing at all if its folder is gone, and it has no business here any more.
    async fn glance(&self) -> Result<Option<Vec<(String, Entry)>>, ReplicaError> {
        let incarnation = self.life.incarnation.clone();
        with_ledger(&self.ledger, move |ledger| {
            if ledger.is_removed() {
                return Ok(None);
            }
            if ledger.has_grown() {
                ledger.catch_up()?;
            }
            Ok(Some(ledger.book().open_for(&incarnation)))
        })
        .await
    }

    /// Says whether this was a drop.
    async fn obey(&mut self, key: &str, entry: &Entry) -> Result<bool, ReplicaError> {
        if !self.order_begins(key, entry.ticket).await? {
            return Ok(false);
        }
        info!(key, order = %entry.intent, "carried out");
        match entry.intent.verb {
            Verb::Create => {}
            Verb::Cordon => self.cordon(true).await?,
            Verb::Uncordon => {
                // It goes on after all.
                self.forget_checkpoint();
                self.cordon(false).await?;
            }
            Verb::Drain => {
                self.life.cordoned = true;
                self.write();
                if let Some(former) = self.draining.replace(key.to_owned()) {
                    self.settle_drain(former, 0, 0).await?;
                }
                if !self.tell(&ToServer::Drain).await {
                    // There is no server, so nothing is in flight.
                    self.drained(0, 0).await?;
                }
            }
            Verb::Checkpoint => self.checkpoint(key).await?,
            Verb::Drop => return Ok(true),
        }
        Ok(false)
    }

    async fn order_begins(&self, key: &str, ticket: Ticket) -> Result<bool, ReplicaError> {
        let key = key.to_owned();
        with_ledger(&self.ledger, move |ledger| {
            ledger.append(Record::Begun { key: key.clone(), ticket, incarnation: None })?;
            let entry = ledger.book().entry(&key).filter(|entry| entry.ticket == ticket);
            let failed = |ending: &Ending| matches!(ending, Ending::Failed { .. });
            Ok(match entry.map(|entry| &entry.progress) {
                Some(Progress::Begun) => true,
                Some(Progress::Settled { ending, .. }) => !failed(ending),
                Some(Progress::Open) | None => false,
            })
        })
        .await
    }

    async fn cordon(&mut self, cordoned: bool) -> Result<(), ReplicaError> {
        self.life.cordoned = cordoned;
        self.tell(if cordoned { &ToServer::Cordon } else { &ToServer::Uncordon }).await;
        self.write();
        Ok(())
    }

    /// Keeps what the next replica of this name and size can go on from.
    async fn checkpoint(&mut self, key: &str) -> Result<(), ReplicaError> {
        let Life { incarnation, size, objects_hydrated, .. } = self.life.clone();
        let ending = match self.place.keep(&Checkpoint { incarnation, size, objects_hydrated }, &self.lock) {
            Ok(()) => Ending::Done,
            Err(error) => Ending::Failed { retryable: true, reason: format!("the checkpoint was not kept: {error}") },
        };
        let settled = Record::Settled { key: key.to_owned(), ending };
        with_ledger(&self.ledger, move |ledger| ledger.append(settled).map(|_| ())).await
    }

    /// A replica that has moved on must not be taken back to it later.
    fn forget_checkpoint(&self) {
        if let Err(error) = self.place.forget_checkpoint(&self.lock) {
            warn!(%error, "a checkpoint that is no longer needed cannot be removed");
        }
    }

    async fn drained(&mut self, moved: u64, left: u64) -> Result<(), ReplicaError> {
        match self.draining.take() {
            Some(key) => self.settle_drain(key, moved, left).await,
            None => Ok(()),
        }
    }

    async fn settle_drain(&self, key: String, moved: u64, left: u64) -> Result<(), ReplicaError> {
        let settled = Record::Settled { key, ending: Ending::Drained { moved, left } };
        with_ledger(&self.ledger, move |ledger| ledger.append(settled).map(|_| ())).await
    }

    /// Says whether there was anybody to tell.
    async fn tell(&mut self, message: &ToServer) -> bool {
        let Serving::Running(running) = &mut self.server else { return false };
        let Ok(line) = serde_json::to_string(message) else { return false };
        // One that does not take it is about to end, and its end is news.
        running.words.write_all(format!("{line}\n").as_bytes()).await.is_ok()
    }

    async fn take_note(&mut self, news: News) -> Result<(), ReplicaError> {
        match news {
            News::Said(ToKeeper::Listening { address }) => {
                // The next server tries to be found at the same place.
                self.options.port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
                self.life.address = Some(address);
            }
            News::Said(ToKeeper::Status { ready, hydrated }) => {
                (self.life.ready, self.life.objects_hydrated) = (ready, hydrated);
                if self.options.hydrated > 0 && hydrated >= self.life.objects_total {
                    self.options.hydrated = 0;
                    self.forget_checkpoint();
                }
            }
            News::Said(ToKeeper::Drained { moved, left }) => self.drained(moved, left).await?,
            News::Ended(status) => {
                let (reason, oom) = match status {
                    Ok(status) if status.code() == Some(EXIT_OUT_OF_MEMORY) => ("out of memory".to_owned(), true),
                    Ok(status) => (format!("the server ended with {status}"), false),
                    Err(error) => (format!("the server was lost: {error}"), false),
                };
                self.crashed(reason, oom).await?;
            }
            News::RestartDue => match self.start_server().await {
                Ok(()) => {}
                Err(error) => self.crashed(format!("the server cannot be started: {error}"), false).await?,
            },
        }
        self.write();
        Ok(())
    }

    async fn crashed(&mut self, reason: String, oom: bool) -> Result<(), ReplicaError> {
        if matches!(&self.server, Serving::Running(running) if running.since.elapsed() >= RECOVERED_AFTER) {
            self.crashes_in_a_row = 0;
        }
        let after = restart_after(duration(self.options.restart_after), self.crashes_in_a_row);
        self.crashes_in_a_row += 1;
        warn!(reason, oom, "the server has crashed and is started again in {after:?}");
        self.server = Serving::Down(Instant::now() + after);
        self.life.crashes += 1;
        self.life.crash_reason = Some(reason);
        self.life.oom = oom;
        self.life.ready = false;
        self.life.objects_hydrated = 0;
        self.life.server = None;
        // What was in flight is lost, and so is the count of it.
        self.drained(0, 0).await
    }

    async fn start_server(&mut self) -> io::Result<()> {
        let me = self.life.keeper.pid;
        let options = ReplicaOptions { keeper: Some(me), carried: Carried::default(), ..self.options.clone() };
        let mut command = Command::new("/proc/self/exe");
        command.arg0("loadline").args(options.words());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let missing = || io::Error::other("it has no standard streams");
        let words = child.stdin.take().ok_or_else(missing)?;
        let lines = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
        self.life.server = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Process::find);
        self.server = Serving::Running(Box::new(Running { child, words, lines, since: Instant::now() }));
        if self.life.cordoned {
            self.tell(&ToServer::Cordon).await;
        }
        Ok(())
    }

    /// SIGTERM, then SIGKILL after a grace.
    async fn stop_server(&mut self) {
        let Serving::Running(running) = &mut self.server else { return };
        // The number is that of a child whose end nobody has taken note of, so it is nobody else's.
        if let Some(pid) = running.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
        }
        if timeout(duration(self.options.terminate_grace), running.child.wait()).await.is_err() {
            warn!("the server did not end in time and is killed");
            if let Err(error) = running.child.kill().await {
                warn!(%error, "the server cannot be killed");
            }
        }
    }

    /// A replica that cannot say how it is still is. If its folder is gone, the next glance finds out.
    fn write(&self) {
        if let Err(error) = self.place.write(&self.life, &self.lock) {
            warn!(%error, "what this replica says of itself cannot be written");
        }
    }
}

impl Serving {
    async fn news(&mut self) -> News {
        match self {
            Serving::Down(until) => {
                sleep_until(*until).await;
                News::RestartDue
            }
            Serving::Running(running) => loop {
                match running.lines.next_line().await {
                    Ok(Some(line)) => match serde_json::from_str(&line) {
                        Ok(message) => return News::Said(message),
                        Err(error) => warn!(%error, line, "the server said something that is not understood"),
                    },
                    // Its output ends with it.
                    Ok(None) | Err(_) => return News::Ended(running.child.wait().await),
                }
            },
        }
    }
}

/// Twice as long each time, up to the longest.
fn restart_after(first: Duration, crashes_before: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(crashes_before)).min(RESTART_AFTER_MAX.max(first))
}

/// The signals that end a replica in order.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    ends_with_terminal: bool,
}

impl Signals {
    fn new(is_ordered: bool) -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            // One that a node started outlives the terminal that the node was started from.
            ends_with_terminal: !is_ordered,
        })
    }

    async fn received(&mut self) {
        loop {
            tokio::select! {
                biased;
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => if self.ends_with_terminal { return },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_keeps_crashing_waits_longer_up_to_a_minute() {
        let first = Duration::from_secs(1);
        let waits: Vec<u64> = (0..9).map(|crashes| restart_after(first, crashes).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(restart_after(first, u32::MAX), RESTART_AFTER_MAX);
    }
}
