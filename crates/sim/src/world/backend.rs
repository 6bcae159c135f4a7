//! The backend that all nodes share: `Scripted`, which lies, in a place of its own.
//!
//! Calls go there as messages. What was sent goes its way although the sender is gone, and a node that is paused or cut off
//! from the backend sends nothing. It has to be a place of its own because it keeps time: the clock of a node's runtime
//! means nothing to another node's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use loadline_executor::backends::scripted::{Script, Scripted};
use loadline_executor::{Answering, Backend, CallError, Capabilities, ClusterAddress, Found, ObservedReplica, Order};
use loadline_state_machine::{Epoch, Report};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::record::{Record, Seen};

/// The name of the backend, for the setting `default_backend`.
pub const NAME: &str = "sim";
/// How often the ledger is read. Each line carries its own time, so this only delays when it is judged.
const LEDGER_EVERY: Duration = Duration::from_millis(20);

enum Message {
    Fence(Epoch, oneshot::Sender<Result<(), CallError>>),
    Execute(Box<Order>, oneshot::Sender<Result<Report, CallError>>),
    Find(Box<Order>, oneshot::Sender<Result<Found, CallError>>),
    Observe(ClusterAddress, oneshot::Sender<Result<Vec<ObservedReplica>, CallError>>),
}

/// The place itself, as the run sees it.
#[derive(Debug, Clone)]
pub struct BackendPlace {
    scripted: Scripted,
    to: mpsc::UnboundedSender<Message>,
    mailbox: Arc<Mutex<Option<mpsc::UnboundedReceiver<Message>>>>,
    orders: mpsc::UnboundedSender<FromRun>,
    from_run: Arc<Mutex<Option<mpsc::UnboundedReceiver<FromRun>>>>,
    capabilities: Capabilities,
}

/// What the run tells the backend.
type FromRun = Box<dyn FnOnce(&Scripted) + Send>;

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Message::Fence(..) => "Fence",
            Message::Execute(..) => "Execute",
            Message::Find(..) => "Find",
            Message::Observe(..) => "Observe",
        })
    }
}

impl BackendPlace {
    pub fn new(script: Script) -> BackendPlace {
        let (to, mailbox) = mpsc::unbounded_channel();
        let (orders, from_run) = mpsc::unbounded_channel();
        BackendPlace {
            capabilities: script.capabilities,
            scripted: Scripted::new(script),
            to,
            mailbox: Arc::new(Mutex::new(Some(mailbox))),
            orders,
            from_run: Arc::new(Mutex::new(Some(from_run))),
        }
    }

    /// The backend as one node reaches it.
    pub fn door(&self, gate: Gate) -> Door {
        Door { to: self.to.clone(), gate, capabilities: self.capabilities }
    }

    /// Has something done at the place, in its own time.
    pub fn tell(&self, order: impl FnOnce(&Scripted) + Send + 'static) {
        // It lives as long as the run.
        let _ = self.orders.send(Box::new(order));
    }

    /// Serves calls and tells the ledger, for as long as the run lasts.
    pub async fn live(self, record: Record) {
        let take = |place: &Mutex<Option<_>>| place.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut mailbox) = take(&self.mailbox) else { return };
        let mut from_run = self.from_run.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (began, began_at) = (Instant::now(), record.now());
        let mut told = 0;
        let mut reading = tokio::time::interval(LEDGER_EVERY);
        loop {
            let order = async {
                match &mut from_run {
                    Some(from_run) => from_run.recv().await,
                    None => None,
                }
            };
            tokio::select! {
                biased;
                Some(order) = order => order(&self.scripted),
                message = mailbox.recv() => match message {
                    Some(message) => self.serve(message),
                    None => return,
                },
                _ = reading.tick() => {}
            }
            let lines = self.scripted.ledger_from(told);
            told += lines.len();
            for line in lines {
                let at = began_at + line.at.saturating_duration_since(began);
                record.see_at(at, Seen::Ledger(Box::new(line)));
            }
        }
    }

    /// Each call in a task of its own: nobody waits for anybody else's.
    fn serve(&self, message: Message) {
        let scripted = self.scripted.clone();
        tokio::spawn(async move {
            // Whoever asked may be gone by the time of the answer.
            match message {
                Message::Fence(epoch, answer) => drop(answer.send(scripted.fence(epoch).await)),
                Message::Execute(order, answer) => drop(answer.send(scripted.execute(&order).await)),
                Message::Find(order, answer) => drop(answer.send(scripted.find(&order).await)),
                Message::Observe(cluster, answer) => drop(answer.send(scripted.observe(&cluster).await)),
            }
        });
    }
}

/// Whether a node may do anything that is felt outside. While it is shut, calls wait: a paused process makes none.
#[derive(Debug, Clone)]
pub struct Gate(watch::Sender<bool>);

impl Default for Gate {
    fn default() -> Gate {
        Gate(watch::Sender::new(true))
    }
}

impl Gate {
    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        *self.0.borrow()
    }

    pub fn set_open(&self, open: bool) {
        self.0.send_replace(open);
    }

    pub async fn passed(&self) {
        // It cannot fail: the sender is in `self`.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

/// The backend as one node reaches it.
#[derive(Debug)]
pub struct Door {
    to: mpsc::UnboundedSender<Message>,
    gate: Gate,
    capabilities: Capabilities,
}

impl Door {
    fn ask<'a, T: Send + 'static>(
        &'a self,
        message: impl FnOnce(oneshot::Sender<Result<T, CallError>>) -> Message + Send + 'a,
    ) -> BoxFuture<'a, Result<T, CallError>> {
        Box::pin(async move {
            self.gate.passed().await;
            let gone = || CallError::Unknown { reason: "the connection was lost".to_owned() };
            let (tell, told) = oneshot::channel();
            self.to.send(message(tell)).map_err(|_| gone())?;
            let answer = told.await.unwrap_or_else(|_| Err(gone()));
            // An answer that arrives at a paused process is read when it goes on.
            self.gate.passed().await;
            answer
        })
    }
}

impl Backend for Door {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn fence(&self, epoch: Epoch) -> Answering<'_, ()> {
        self.ask(move |answer| Message::Fence(epoch, answer))
    }

    fn execute<'a>(&'a self, order: &'a Order) -> Answering<'a, Report> {
        self.ask(move |answer| Message::Execute(Box::new(order.clone()), answer))
    }

    fn find<'a>(&'a self, order: &'a Order) -> Answering<'a, Found> {
        self.ask(move |answer| Message::Find(Box::new(order.clone()), answer))
    }

    fn observe<'a>(&'a self, cluster: &'a ClusterAddress) -> Answering<'a, Vec<ObservedReplica>> {
        self.ask(move |answer| Message::Observe(cluster.clone(), answer))
    }
}
