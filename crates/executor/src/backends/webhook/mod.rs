//! A backend that is somebody's own HTTP service.
//!
//! [`Webhook`] makes four kinds of calls below one address, each signed: `execute`, `find`, `fence` and `observe`. The contract is
//! `docs/backends/webhook.md`; [`receiver`] keeps it, as an example to read and as what the tests talk to.
//! Not here: any knowledge of what is behind the receiver.

mod answer;
mod client;
mod config;
pub mod message;
#[cfg(feature = "testing")]
pub mod receiver;
pub mod signature;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadline_state_machine::{Epoch, Report};
use tokio::time::Instant;

pub use self::config::WebhookConfig;
pub use self::signature::WebhookSecrets;

use self::answer::{Raw, Verdict, judge};
use self::client::{HttpClient, NoAnswer};
use self::message::{CapabilitiesBody, ClusterBody, FenceBody, ObserveBody, Observed, OrderBody, Request, epoch_text};
use super::settings::{CALLS_MAX, ConfigError};
use crate::{Answering, Backend, CallError, Capabilities, ClusterAddress, Found, ObservedReplica, Order};

/// How long to wait before an order that is under way is asked about again: at first, and at most.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

const CALLS_MAX_DEFAULT: usize = 8;

/// Replicas that live behind somebody's own HTTP service.
#[derive(Debug)]
pub struct Webhook {
    config: WebhookConfig,
    client: HttpClient,
    /// What the receiver said about itself, when it was last asked.
    told: Mutex<Option<CapabilitiesBody>>,
}

impl Webhook {
    /// Calls nobody yet: a receiver that is down must not keep a node from starting.
    pub fn new(config: WebhookConfig, secrets: WebhookSecrets) -> Result<Self, ConfigError> {
        config.check_values()?;
        let client = HttpClient::new(&config, secrets)?;
        Ok(Self { config, client, told: Mutex::new(None) })
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.call_deadline
    }

    fn told(&self) -> MutexGuard<'_, Option<CapabilitiesBody>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One request about an order, and what the answer means.
    async fn ask(&self, wrap: fn(OrderBody) -> Request, order: &Order, until: Instant) -> Result<Verdict, CallError> {
        let left = until.saturating_duration_since(Instant::now());
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let raw = self.client.post(&wrap(OrderBody::of(order, left_ms)), until).await?;
        Ok(judge(order, &raw))
    }

    async fn carry_out(&self, order: &Order) -> Result<Report, CallError> {
        let until = self.deadline();
        loop {
            // A process that was stopped while it waited goes on here before any timer is read.
            if until <= Instant::now() {
                let reason = "the receiver was busy until the deadline".to_owned();
                return Err(CallError::Refused { retryable: true, reason });
            }
            match self.ask(Request::Execute, order, until).await? {
                Verdict::Done(report) => return Ok(report),
                Verdict::UnderWay { ask_again } => return self.wait_for(order, ask_again, until).await,
                // Nothing has happened, and there is time left: the patience that the receiver asks for costs no attempt.
                Verdict::Busy { retry_after: Some(wait), .. } if Instant::now() + wait < until => {
                    tokio::time::sleep(wait).await;
                }
                Verdict::NotSeen => {
                    return Err(CallError::Refused {
                        retryable: true,
                        reason: "answered 404 Not Found to an order: is the address right?".to_owned(),
                    });
                }
                other => return Err(no_success(order, other)),
            }
        }
    }

    /// The receiver has accepted it and is not through: asks until it is, or until the deadline.
    async fn wait_for(&self, order: &Order, first: Option<Duration>, until: Instant) -> Result<Report, CallError> {
        let mut pause = ASK_AGAIN.0;
        let mut asked_for = first;
        loop {
            let wait = asked_for.take().unwrap_or(pause);
            if Instant::now() + wait >= until {
                let deadline = self.config.call_deadline;
                let reason = format!("the receiver accepted it and was not through within {deadline:?}");
                return Err(CallError::Unknown { reason });
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(ASK_AGAIN.1);
            match self.ask(Request::Find, order, until).await {
                Ok(Verdict::Done(report)) => return Ok(report),
                Ok(Verdict::UnderWay { ask_again }) => asked_for = ask_again,
                Ok(verdict @ (Verdict::Failed { .. } | Verdict::Fenced { .. } | Verdict::OtherParameters { .. })) => {
                    return Err(no_success(order, verdict));
                }
                // It was accepted: one question that went wrong does not make it undone.
                Ok(Verdict::NotSeen | Verdict::Refused { .. } | Verdict::Busy { .. } | Verdict::Unknown { .. })
                | Err(_) => {}
            }
        }
    }

    async fn look_up(&self, order: &Order) -> Result<Found, CallError> {
        match self.ask(Request::Find, order, self.deadline()).await? {
            Verdict::Done(report) => Ok(Found::Done(report)),
            Verdict::UnderWay { .. } => Ok(Found::UnderWay),
            Verdict::NotSeen => Ok(Found::NotSeen),
            Verdict::Failed { retryable, reason } => Ok(Found::Failed { retryable, reason }),
            Verdict::OtherParameters { known } => Ok(Found::OtherParameters { known }),
            other => Err(no_success(order, other)),
        }
    }

    async fn raise_fence(&self, epoch: Epoch) -> Result<(), CallError> {
        let until = self.deadline();
        if self.config.fences.is_none() {
            // Asked at the start of every leadership. One that said no is not fenced again, and so not asked again, until this node
            // restarts.
            let capabilities = self.ask_capabilities(until).await?;
            *self.told() = Some(capabilities);
        }
        if !self.capabilities().fences {
            // Whoever calls this was told that it fences, before it was asked, and must not go on as if it had.
            return match self.config.fences.is_none() {
                true => Err(CallError::Refused {
                    retryable: true,
                    reason: "the receiver says that it cannot fence".to_owned(),
                }),
                false => Ok(()),
            };
        }
        let raw = self.client.post(&Request::Fence(FenceBody { epoch: epoch_text(epoch) }), until).await?;
        let highest = raw.answer().highest;
        match raw.status.as_u16() {
            200 if highest.as_deref() == Some(&epoch_text(epoch)) => Ok(()),
            200 | 412 | 423 => match answer::fenced(epoch, highest.as_deref()) {
                Verdict::Fenced { highest } => Err(CallError::Fenced { highest }),
                _ => Err(CallError::Unknown {
                    reason: format!(
                        "the receiver answered {} to a fence, and not with {}",
                        raw.status,
                        epoch_text(epoch)
                    ),
                }),
            },
            _ => Err(unexpected("a fence", &raw)),
        }
    }

    async fn ask_capabilities(&self, until: Instant) -> Result<CapabilitiesBody, CallError> {
        let raw = self.client.get("capabilities", until).await?;
        match (raw.status.as_u16(), serde_json::from_slice(&raw.body)) {
            (200, Ok(capabilities)) => Ok(capabilities),
            (200, Err(error)) => Err(CallError::Unknown {
                reason: format!(
                    "the receiver's capabilities cannot be read ({error}); say `fences` in the configuration"
                ),
            }),
            _ => Err(unexpected("the question for its capabilities", &raw)),
        }
    }

    async fn look_at(&self, cluster: &ClusterAddress) -> Result<Vec<ObservedReplica>, CallError> {
        let request = Request::Observe(ObserveBody { cluster: ClusterBody::of(cluster) });
        let raw = self.client.post(&request, self.deadline()).await?;
        if raw.status.as_u16() != 200 {
            return Err(unexpected("the question for replicas", &raw));
        }
        let observed: Observed = serde_json::from_slice(&raw.body)
            .map_err(|error| CallError::Unknown { reason: format!("the list of replicas cannot be read: {error}") })?;
        if observed.cluster != cluster.id.to_string() {
            let reason = format!("the replicas are those of {}, and {} was asked for", observed.cluster, cluster.id);
            return Err(CallError::Unknown { reason });
        }
        let mut replicas: Vec<ObservedReplica> = observed.replicas.into_iter().map(Into::into).collect();
        replicas.sort();
        if let Some(pair) = replicas.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(CallError::Unknown { reason: format!("two replicas are called {}", pair[0].name) });
        }
        Ok(replicas)
    }
}

impl Backend for Webhook {
    fn capabilities(&self) -> Capabilities {
        let told = self.told();
        let told = told.as_ref();
        Capabilities {
            // Until it has been asked it is taken for one that fences: nothing is done on such a backend before its fence has
            // succeeded, and the fence asks first.
            fences: self.config.fences.or(told.map(|told| told.fences)).unwrap_or(true),
            visibility_delay: self
                .config
                .visibility_delay
                .or(told.and_then(|told| told.visibility_delay_ms).map(Duration::from_millis))
                .unwrap_or_default(),
            call_deadline: self.config.call_deadline,
            calls_max: self
                .config
                .calls_max
                .or(told.and_then(|told| told.calls_max))
                .unwrap_or(CALLS_MAX_DEFAULT)
                .clamp(1, CALLS_MAX),
            observe_every: self.config.observe_every,
            checkpoints: self.config.checkpoints.or(told.and_then(|told| told.checkpoints)).unwrap_or(false),
        }
    }

    fn fence(&self, epoch: Epoch) -> Answering<'_, ()> {
        Box::pin(self.raise_fence(epoch))
    }

    fn execute<'a>(&'a self, order: &'a Order) -> Answering<'a, Report> {
        Box::pin(self.carry_out(order))
    }

    fn find<'a>(&'a self, order: &'a Order) -> Answering<'a, Found> {
        Box::pin(self.look_up(order))
    }

    fn observe<'a>(&'a self, cluster: &'a ClusterAddress) -> Answering<'a, Vec<ObservedReplica>> {
        Box::pin(self.look_at(cluster))
    }
}

impl From<NoAnswer> for CallError {
    fn from(none: NoAnswer) -> Self {
        match none {
            NoAnswer::NotSent { .. } => Self::Refused { retryable: true, reason: none.to_string() },
            NoAnswer::Lost { reason } => Self::Unknown { reason },
        }
    }
}

/// The error for a verdict that is neither success nor something to wait for.
fn no_success(order: &Order, verdict: Verdict) -> CallError {
    match verdict {
        Verdict::Failed { retryable, reason } => CallError::Refused { retryable, reason },
        Verdict::Refused { reason } => CallError::Refused { retryable: true, reason },
        Verdict::Busy { retry_after: Some(wait), reason } => {
            CallError::Refused { retryable: true, reason: format!("{reason} (it asks for {} s)", wait.as_secs()) }
        }
        Verdict::Busy { retry_after: None, reason } => CallError::Refused { retryable: true, reason },
        Verdict::OtherParameters { known } => CallError::OtherParameters { key: order.key.clone(), known },
        Verdict::Fenced { highest } => CallError::Fenced { highest },
        Verdict::Unknown { reason } => CallError::Unknown { reason },
        Verdict::Done(_) | Verdict::UnderWay { .. } | Verdict::NotSeen => {
            CallError::Unknown { reason: "the receiver contradicts itself".to_owned() }
        }
    }
}

/// An answer to a question that changes nothing, and that is not the one that was hoped for.
fn unexpected(question: &str, raw: &Raw) -> CallError {
    let reason = match raw.answer().reason {
        Some(reason) => format!("the receiver answered {} to {question}: {reason}", raw.status),
        None => format!("the receiver answered {} to {question}", raw.status),
    };
    match raw.status.is_client_error() || matches!(raw.status.as_u16(), 501 | 503) {
        true => CallError::Refused { retryable: true, reason },
        false => CallError::Unknown { reason },
    }
}
