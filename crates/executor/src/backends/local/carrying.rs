//! Carrying out an order: the intent on disk, then whatever gets it going, then what came of it.
//!
//! No lock is held between two steps, and every step may be the last one of this process; the head of this folder says why
//! that is all right.
//!
//! Not here: the steps of the replica (`replica`), and who may give an order (`book`).

use std::fs::OpenOptions;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use loadline_mutants::Mutant;
use loadline_state_machine::{Report, Span};
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::book::{Ending, Entry, Intent, Progress, Record, Ticket, Verb};
use super::ledger::Ledger;
use super::names::{self, Life};
use super::places::{self, Place};
use super::replica::{Carried, ReplicaOptions};
use super::{LocalBackend, LocalConfig, REACTION, VISIBILITY_DELAY, unreadable};
use crate::{CallError, Order};

/// How often the ledger is looked at while an order is under way. A glance costs microseconds.
const GLANCE: Duration = Duration::from_millis(20);

/// An order whose intent is on disk.
#[derive(Debug)]
struct Asked {
    key: String,
    ticket: Ticket,
    intent: Intent,
    /// Whether it was this call that wrote the intent that holds: then it has to get it going, and nobody else does.
    is_mine: bool,
}

/// How an order stands at the moment.
#[derive(Debug)]
struct Standing {
    entry: Entry,
    /// The replica that it is about, if that is there; of a create the one that was made.
    life: Option<Life>,
}

pub(super) fn gone(intent: &Intent) -> String {
    match &intent.incarnation {
        Some(incarnation) => format!("replica {} (incarnation {incarnation}) is not there any more", intent.name),
        None => format!("replica {} is not there", intent.name),
    }
}

impl LocalBackend {
    pub(super) async fn carry_out(&self, order: &Order) -> Result<Report, CallError> {
        let asking = order.clone();
        let asked = match self.with_ledger(move |ledger, config| ask(ledger, config, &asking)).await? {
            Ok(asked) => asked,
            Err(known) => return answer(known),
        };
        let answered = match asked.intent.verb {
            Verb::Create => self.create(&asked).await,
            Verb::Drop => self.end(&asked).await,
            Verb::Cordon | Verb::Uncordon | Verb::Drain | Verb::Checkpoint => self.tell(&asked).await,
        };
        // After the answer is known: whoever is late here delays nobody.
        let backend = self.clone();
        tokio::spawn(async move {
            if let Err(error) = backend.with_ledger(|ledger, _| Ok(ledger.tidy()?)).await {
                tracing::warn!(%error, "the ledger of local replicas was not tidied up");
            }
        });
        answered
    }

    async fn create(&self, asked: &Asked) -> Result<Report, CallError> {
        let by = Instant::now() + self.config().start_deadline;
        let mut ended = None;
        if asked.is_mine {
            match self.spawn(asked).await {
                Ok(ending) => ended = Some(ending),
                Err(error) => {
                    let reason = format!("the process of replica {} cannot be started: {error}", asked.intent.name);
                    self.withdraw(asked, true, reason).await?;
                }
            }
        }
        let made = loop {
            let standing = self.look(asked).await?;
            if let Progress::Settled { ending, .. } = standing.entry.progress {
                break ending;
            }
            // Looked at in this order, so that what an ended process wrote last was read.
            if let Some(status) = ended.as_mut().and_then(|ended: &mut oneshot::Receiver<_>| ended.try_recv().ok()) {
                let reason = format!("the process of replica {} ended at once ({status})", asked.intent.name);
                self.withdraw(asked, true, reason).await?;
            } else if Instant::now() >= by {
                let within = self.config().start_deadline;
                let reason = format!("replica {} did not come up within {within:?}", asked.intent.name);
                self.withdraw(asked, true, reason).await?;
            } else {
                sleep(GLANCE).await;
            }
        };
        if matches!(made, Ending::Created { .. }) {
            self.shows_itself(asked).await?;
        }
        answer(made)
    }

    /// Starts the process. What is sent is its exit, long after, or never if this node ends before.
    async fn spawn(&self, asked: &Asked) -> std::io::Result<oneshot::Receiver<ExitStatus>> {
        let options = self.options(asked);
        let place = names::Place::of(&self.config().folder, asked.intent.cluster, &asked.intent.name);
        let log = tokio::task::spawn_blocking(move || {
            place.make()?;
            OpenOptions::new().create(true).append(true).open(place.log())
        });
        let log = log.await.map_err(std::io::Error::other)??;
        let mut command = match &self.config().program {
            Some(program) => Command::new(program),
            // This very program, even if its file has been replaced by a newer one since.
            None => {
                let mut command = Command::new("/proc/self/exe");
                command.arg0("loadline");
                command
            }
        };
        command.args(options.words()).current_dir(&self.config().folder);
        // What this node was given, secrets among it, is none of a replica's business.
        command.env_clear().envs(std::env::var_os("RUST_BACKTRACE").map(|value| ("RUST_BACKTRACE", value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // A group of its own: a key press that ends this node is not meant for its replicas.
        command.process_group(0).kill_on_drop(false);
        let mut child = command.spawn()?;
        places::reached(Place::AfterSpawn);
        let (sender, ended) = oneshot::channel();
        // Somebody must take note of its end, or it would stay in the table of processes for as long as this node runs.
        tokio::spawn(async move {
            if let Ok(status) = child.wait().await {
                let _ = sender.send(status);
            }
        });
        Ok(ended)
    }

    fn options(&self, asked: &Asked) -> ReplicaOptions {
        let (config, intent) = (self.config(), &asked.intent);
        let own = config.sizes.get(&intent.size).cloned().unwrap_or_default();
        let span = |time: Duration| Span::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        ReplicaOptions {
            folder: config.folder.clone(),
            cluster: intent.cluster,
            name: intent.name.clone(),
            size: intent.size.clone(),
            carried: Carried {
                key: Some(asked.key.clone()),
                epoch: Some(asked.ticket.epoch),
                attempt: Some(asked.ticket.attempt),
            },
            startup_delay: span(own.startup_delay.unwrap_or(config.startup_delay)),
            hydration_time: span(own.hydration_time.unwrap_or(config.hydration_time)),
            objects: own.objects.unwrap_or(config.objects),
            hydrated: 0,
            drain_deadline: span(config.drain_deadline),
            terminate_grace: span(config.terminate_grace),
            restart_after: span(config.restart_after),
            port: 0,
            keeper: None,
        }
    }

    /// The replica is there; whoever looks next shall see it.
    async fn shows_itself(&self, asked: &Asked) -> Result<(), CallError> {
        let by = Instant::now() + VISIBILITY_DELAY;
        while Instant::now() < by {
            match self.look(asked).await?.life {
                Some(life) if !life.begun => sleep(GLANCE).await,
                _ => break,
            }
        }
        Ok(())
    }

    /// Cordon, uncordon, drain and checkpoint: the replica reads it in the ledger.
    async fn tell(&self, asked: &Asked) -> Result<Report, CallError> {
        let begins_by = Instant::now() + REACTION;
        let ends_by = begins_by + self.config().drain_deadline + REACTION;
        loop {
            let standing = self.look(asked).await?;
            let is_open = standing.entry.progress == Progress::Open;
            if let Progress::Settled { ending, .. } = standing.entry.progress {
                return answer(ending);
            }
            match (standing.life, is_open) {
                (None, true) => self.withdraw(asked, false, gone(&asked.intent)).await?,
                (None, false) => {
                    let ending = Ending::Failed { retryable: false, reason: gone(&asked.intent) };
                    self.settle(asked, ending).await?;
                }
                (Some(life), true) if Instant::now() >= begins_by => {
                    let (name, pid) = (&asked.intent.name, life.keeper.pid);
                    self.withdraw(asked, true, format!("replica {name} (process {pid}) does not react")).await?;
                }
                (Some(_), false) if Instant::now() >= ends_by => {
                    let reason = format!("it does not come to an end: {}", asked.intent);
                    return Err(CallError::Unknown { reason });
                }
                (Some(_), _) => sleep(GLANCE).await,
            }
        }
    }

    /// Drop: the replica reads it in the ledger and ends by itself, or is killed.
    async fn end(&self, asked: &Asked) -> Result<Report, CallError> {
        let killed_after = Instant::now() + self.config().terminate_grace + REACTION;
        let given_up_after = killed_after + REACTION;
        let mut is_killed = false;
        loop {
            let Standing { entry, life } = self.look(asked).await?;
            let is_settled = matches!(entry.progress, Progress::Settled { .. });
            match (entry.progress, life) {
                (Progress::Settled { ending, .. }, None) => return answer(ending),
                (Progress::Settled { ending: ending @ Ending::Failed { .. }, .. }, Some(_)) => return answer(ending),
                (Progress::Open, None) => self.begin(asked).await?,
                (Progress::Begun, None) => self.settle(asked, Ending::Done).await?,
                // It does not even read its orders, or hangs in the middle of one.
                (Progress::Open, Some(_)) if Instant::now() >= killed_after => self.begin(asked).await?,
                (_, Some(life)) if !is_killed && Instant::now() >= killed_after => {
                    is_killed = true;
                    kill(life).await?;
                }
                (_, Some(life)) if Instant::now() >= given_up_after => {
                    let (name, pid) = (&asked.intent.name, life.keeper.pid);
                    let reason = format!("replica {name} (process {pid}) does not end, not even killed");
                    return Err(CallError::Unknown { reason });
                }
                _ if is_settled => sleep(GLANCE / 4).await,
                _ => sleep(GLANCE).await,
            }
        }
    }

    async fn look(&self, asked: &Asked) -> Result<Standing, CallError> {
        let (key, ticket) = (asked.key.clone(), asked.ticket);
        self.with_ledger(move |ledger, config| {
            let book = ledger.book();
            let lost = || CallError::Unknown { reason: format!("the ledger does not know {key} any more") };
            let entry = book.entry(&key).ok_or_else(lost)?.clone();
            // What the next leader made of it is not this one's to report.
            let is_taken_over = entry.progress == Progress::Open || entry.ticket > ticket;
            if let Some(highest) = book.fenced(ticket.epoch).filter(|_| is_taken_over) {
                return Err(CallError::Fenced { highest });
            }
            let place = names::Place::of(&config.folder, entry.intent.cluster, &entry.intent.name);
            let made = match &entry.progress {
                Progress::Settled { ending: Ending::Created { incarnation }, .. } => Some(incarnation),
                _ => entry.intent.incarnation.as_ref(),
            };
            let life = made.map(|incarnation| place.life_of(incarnation)).transpose();
            let life = life.map_err(|error| unreadable(&error))?.flatten();
            Ok(Standing { entry, life })
        })
        .await
    }

    /// It is done here and now, by this node.
    async fn begin(&self, asked: &Asked) -> Result<(), CallError> {
        self.note(Record::Begun { key: asked.key.clone(), ticket: asked.ticket, incarnation: None }).await
    }

    async fn settle(&self, asked: &Asked, ending: Ending) -> Result<(), CallError> {
        self.note(Record::Settled { key: asked.key.clone(), ending }).await
    }

    /// It shall not begin any more. If it just has, the next look says so.
    async fn withdraw(&self, asked: &Asked, retryable: bool, reason: String) -> Result<(), CallError> {
        self.note(Record::Withdrawn { key: asked.key.clone(), ticket: asked.ticket, retryable, reason }).await
    }

    async fn note(&self, record: Record) -> Result<(), CallError> {
        self.with_ledger(move |ledger, _| Ok(ledger.append(record).map(|_| ())?)).await
    }
}

/// Writes the intent. `Err` in the inner result: the key is known, and this came of it.
fn ask(ledger: &mut Ledger, config: &LocalConfig, order: &Order) -> Result<Result<Asked, Ending>, CallError> {
    let refused = |retryable, reason| CallError::Refused { retryable, reason };
    places::reached(Place::BeforeIntent);
    ledger.catch_up()?;
    let mut ticket = Ticket { epoch: order.epoch, attempt: order.attempt };
    if Mutant::BackendNotFenced.is_on() {
        ticket.epoch = ledger.book().highest().map_or(order.epoch, |highest| highest.max(order.epoch));
    }
    let mut intent = Intent::of(order.cluster.id, &order.call);
    names::check(&intent.name).map_err(|problem| refused(false, problem))?;
    if intent.verb == Verb::Checkpoint && !config.checkpoints {
        return Err(refused(false, "this backend is told to keep no checkpoints".to_owned()));
    }
    // What can be seen without writing anything. It decides nothing, and spares the ledger what could only fail.
    if let Some(known) = stands(ledger, order, ticket)? {
        return Ok(Err(known));
    }
    let place = names::Place::of(&config.folder, intent.cluster, &intent.name);
    let life = place.life().map_err(|error| unreadable(&error))?;
    match (intent.verb, life) {
        (Verb::Create, Some(life)) if life.key.as_ref() == Some(&order.key) && life.begun => {
            return Ok(Err(Ending::Created { incarnation: life.incarnation }));
        }
        (Verb::Create, Some(life)) if life.begun => {
            let (name, incarnation) = (&intent.name, life.incarnation);
            return Err(refused(true, format!("replica {name} is there already (incarnation {incarnation})")));
        }
        (Verb::Create, _) => {}
        // Whoever has not been told the incarnation means the one that is there.
        (_, life) if intent.incarnation.is_none() => intent.incarnation = life.map(|life| life.incarnation),
        _ => {}
    }
    let is_about_one = matches!(intent.verb, Verb::Cordon | Verb::Uncordon | Verb::Drain | Verb::Checkpoint);
    if intent.incarnation.is_none() && is_about_one {
        return Err(refused(false, gone(&intent)));
    }
    let asking = Record::Asked {
        key: order.key.clone(),
        ticket,
        parameters: order.parameters.to_string(),
        intent: intent.clone(),
    };
    let id = ledger.append(asking)?;
    places::reached(Place::AfterIntent);
    // Now the ledger has decided.
    if let Some(known) = stands(ledger, order, ticket)? {
        return Ok(Err(known));
    }
    let lost = || CallError::Unknown { reason: "the ledger does not show what was just written".to_owned() };
    let entry = ledger.book().entry(&order.key).ok_or_else(lost)?;
    let asked = Asked {
        key: order.key.clone(),
        ticket: entry.ticket,
        intent: entry.intent.clone(),
        is_mine: entry.asked_by == id,
    };
    Ok(Ok(asked))
}

/// Whether the order may go on, or what came of it before.
fn stands(ledger: &Ledger, order: &Order, ticket: Ticket) -> Result<Option<Ending>, CallError> {
    if let Some(highest) = ledger.book().fenced(ticket.epoch) {
        return Err(CallError::Fenced { highest });
    }
    let Some(entry) = ledger.book().entry(&order.key) else { return Ok(None) };
    if entry.parameters != order.parameters.to_string() {
        let known = entry.intent.to_string();
        return Err(CallError::OtherParameters { key: order.key.clone(), known });
    }
    Ok(match &entry.progress {
        Progress::Settled { ending: Ending::Failed { retryable: true, .. }, .. } => None,
        Progress::Settled { ending, .. } => Some(ending.clone()),
        Progress::Open | Progress::Begun => None,
    })
}

fn answer(ending: Ending) -> Result<Report, CallError> {
    match ending {
        Ending::Failed { retryable, reason } => Err(CallError::Refused { retryable, reason }),
        done => Ok(done.report().unwrap_or(Report::Nothing)),
    }
}

/// Keeper first: a keeper whose server ends would start another one.
async fn kill(life: Life) -> Result<(), CallError> {
    let killing = tokio::task::spawn_blocking(move || {
        places::reached(Place::BeforeKill);
        life.keeper.kill()?;
        life.server.map_or(Ok(()), |server| server.kill())
    });
    let killed = killing.await.map_err(|error| CallError::Unknown { reason: error.to_string() })?;
    killed.map_err(|error| CallError::Unknown { reason: format!("a replica cannot be killed: {error}") })
}
