//! What users do: they change sizes, clusters, strategies and settings, read them back, and report signals, some of them
//! far too many.

use std::sync::Arc;
use std::time::Duration;

use loadline_client::v1::change::Change;
use loadline_client::v1::observation::Seen as ObservedThing;
use loadline_client::v1::strategy_target::Target;
use loadline_client::v1::{self, ReportSignalsRequest, SetSettingRequest, cluster_signals};
use loadline_client::{Client, Endpoints, Error, Kind, Options, Reading, ScalingWrite, Writing};
use tokio::sync::{mpsc, watch};

use crate::calls::{Call, Sign, named};
use crate::dice::Dice;
use crate::faults::Family;
use crate::history::{Answered, Ask, Asked, Told};
use crate::plan::Plan;
use crate::profile::{Profile, READING};
use crate::record::{Record, Seen};
use crate::world::backend::NAME as BACKEND;
use crate::world::net::UserSurroundings;
use crate::world::node::address;

pub(crate) const SIZES: [(&str, u32); 4] = [("25cc", 1), ("50cc", 2), ("100cc", 4), ("200cc", 8)];

/// Brakes that run out while somebody is still looking.
const SETTINGS: [(&str, &str); 5] = [
    ("default_backend", BACKEND),
    ("enable_auto_scaling", "true"),
    ("auto_scaling_join_timeout", "5s"),
    ("auto_scaling_attempts_max", "5"),
    ("signal_stale_after", "10s"),
];

/// One user: a client, and what it may throw.
#[derive(Debug)]
pub struct User {
    name: String,
    client: Client,
    record: Record,
    dice: Dice,
    calls: u64,
    sequence: u64,
    clusters: usize,
    pause: Duration,
    floods: bool,
    profile: Profile,
    /// What it does and when, where that is not left to chance.
    given: Option<Vec<(Duration, Call)>>,
}

impl User {
    pub fn new(plan: &Plan, name: &str, record: Record) -> Option<User> {
        let dice = Dice::of(plan.seed, name);
        Some(User {
            client: client(plan, name, record.clone())?,
            name: name.to_owned(),
            record,
            dice,
            calls: 0,
            sequence: 0,
            clusters: plan.clusters,
            pause: plan.user_pause,
            floods: plan.has(Family::SignalFlood),
            profile: Profile::of(plan.seed),
            given: plan.calls.get(name).cloned(),
        })
    }

    /// Makes what the others work with. Everything is asked for until it is there.
    pub async fn set_up(mut self) {
        let mut steps: Vec<Change> = SIZES.iter().map(|(name, slots)| create_size(name, *slots)).collect();
        steps.extend(SETTINGS.iter().chain(&self.profile.settings()).map(|(name, value)| set(name, value)));
        while !self.transact("set up", steps.clone()).await {}
        for number in 0..self.clusters {
            let name = format!("c{number}");
            while !self.write(format!("create cluster {name}"), create_cluster(&name)).await {}
            let size = self.dice.pick(&SIZES).0;
            let kind = ScalingWrite::CreateStrategy(strategy("target_size", &name, &self.target_size(size)));
            while !self.scale(format!("create target_size {size} for {name}"), kind.clone()).await {}
        }
    }

    /// One call after the other until it is told to stop: those it was given, or what chance says.
    pub async fn live(mut self, mut stop: watch::Receiver<bool>) {
        if let Some(given) = self.given.take() {
            for (at, call) in given {
                tokio::time::sleep(at.saturating_sub(self.record.now())).await;
                if *stop.borrow_and_update() {
                    return;
                }
                self.call(&call).await;
            }
            return;
        }
        while !*stop.borrow_and_update() {
            let pause = self.dice.millis(10, u64::try_from(self.pause.as_millis()).unwrap_or(10));
            tokio::time::sleep(pause).await;
            self.act().await;
        }
    }

    /// Does what it is told, as it is told, for as long as the run lasts.
    pub async fn live_on(mut self, mut calls: mpsc::UnboundedReceiver<Call>) {
        while let Some(call) = calls.recv().await {
            self.call(&call).await;
        }
    }

    /// Once everything else has stopped: switches scaling on, so that what was held back is done, until it is recorded.
    pub async fn probe(mut self, mut stopped: watch::Receiver<bool>) {
        // The sender lives as long as the run.
        let _ = stopped.wait_for(|stopped| *stopped).await;
        // What somebody asked for at the last moment may come in after it. So it is said again when everybody has given up.
        for pause in [Duration::ZERO, Duration::from_secs(8)] {
            tokio::time::sleep(pause).await;
            while !self.write("kill switch: enabled is true".to_owned(), set("auto_scaling_enabled", "true")).await {}
        }
    }

    fn target_size(&mut self, size: &'static str) -> [(&'static str, &'static str); 3] {
        let managed = self.dice.percent(self.profile.managed_percent);
        let scope = if managed { "MANAGED_ONLY" } else { "ALL" };
        [("SIZE", size), ("COOLDOWN", "1s"), ("REPLICA_SCOPE", scope)]
    }

    fn cluster(&mut self) -> usize {
        self.dice.index(self.clusters + 2)
    }

    async fn act(&mut self) {
        for call in self.choose() {
            self.call(&call).await;
        }
    }

    /// What to do next, by chance: mostly one call, and a flood of reports is many.
    fn choose(&mut self) -> Vec<Call> {
        let cluster = self.cluster();
        let size = self.dice.pick(&SIZES).0;
        // Whoever writes through a node that is cut off waits there; somebody has to go on reading at it.
        let often = if self.profile.habit == Some(READING) && self.name == "u1" { 100 } else { 40 };
        let habit = self.profile.habit.filter(|_| self.dice.percent(often));
        match habit.unwrap_or_else(|| self.dice.below(100)) {
            0..16 => vec![Call::Resize { cluster, size }],
            16..26 => vec![Call::CreateCluster { cluster }, Call::CreateTargetSize { cluster, size }],
            26..34 => vec![Call::DropCluster { cluster, cascade: habit.is_some() || self.dice.coin() }],
            34..42 => vec![Call::Rename { cluster, to: self.cluster() }],
            42..50 => vec![Call::CreateIdleSuspend { cluster }],
            50..55 => {
                let kind = *self.dice.pick(&["target_size", "idle_suspend"]);
                vec![Call::DropStrategy { cluster, kind }]
            }
            55..61 => vec![Call::KillSwitch { enabled: self.dice.percent(60) }],
            61..75 => vec![Call::Read { cluster }],
            _ => {
                let reports = if self.floods { self.dice.between(5, 40) } else { 1 };
                (0..reports).map(|_| Call::Report { cluster: self.cluster(), seen: self.sign() }).collect()
            }
        }
    }

    fn sign(&mut self) -> Sign {
        let idle_for_ms = self.dice.percent(40).then(|| self.dice.between(0, 5_000));
        if self.dice.percent(80) { Sign::Activity { idle_for_ms } } else { Sign::Alive }
    }

    async fn call(&mut self, call: &Call) {
        let words = call.to_string();
        match call {
            Call::CreateCluster { cluster } => {
                self.write(words, create_cluster(&named(*cluster))).await;
            }
            Call::DropCluster { cluster, cascade } => {
                let delete =
                    v1::DeleteRequest { name: named(*cluster), cascade: *cascade, ..v1::DeleteRequest::default() };
                self.write(words, Change::DeleteCluster(delete)).await;
            }
            Call::Rename { cluster, to } => {
                let rename = v1::RenameClusterRequest {
                    name: named(*cluster),
                    new_name: named(*to),
                    ..v1::RenameClusterRequest::default()
                };
                self.write(words, Change::RenameCluster(rename)).await;
            }
            Call::CreateTargetSize { cluster, size } => {
                let create = strategy("target_size", &named(*cluster), &self.target_size(size));
                self.scale(words, ScalingWrite::CreateStrategy(create)).await;
            }
            Call::Resize { cluster, size } => {
                let update = v1::UpdateStrategyRequest {
                    target: on(&named(*cluster)),
                    r#type: "target_size".to_owned(),
                    set: [("SIZE".to_owned(), (*size).to_owned())].into(),
                    ..v1::UpdateStrategyRequest::default()
                };
                self.scale(words, ScalingWrite::UpdateStrategy(update)).await;
            }
            Call::CreateIdleSuspend { cluster } => {
                let options: &[(&str, &str)] = &[("IDLE_AFTER", "1s"), ("COOLDOWN", "1s")];
                let create = strategy("idle_suspend", &named(*cluster), options);
                self.scale(words, ScalingWrite::CreateStrategy(create)).await;
            }
            Call::DropStrategy { cluster, kind } => {
                let delete = v1::DeleteStrategyRequest {
                    target: on(&named(*cluster)),
                    r#type: (*kind).to_owned(),
                    ..v1::DeleteStrategyRequest::default()
                };
                self.scale(words, ScalingWrite::DeleteStrategy(delete)).await;
            }
            Call::KillSwitch { enabled } => {
                self.write(words, set("auto_scaling_enabled", &enabled.to_string())).await;
            }
            Call::Read { cluster } => self.read(&named(*cluster)).await,
            Call::Report { cluster, seen } => self.report(&named(*cluster), *seen).await,
        }
    }

    fn tag(&mut self, what: Ask) -> (Client, String) {
        self.calls += 1;
        let tag = format!("{}.{}", self.name, self.calls);
        self.record.see(Seen::Asked(Asked { tag: tag.clone(), what }));
        (self.client.on_behalf_of(&tag), tag)
    }

    /// Says whether it was recorded or refused for good: whether asking once more makes no sense.
    fn told(&self, tag: String, answer: Result<v1::WriteResponse, Error>) -> bool {
        let answer = match answer {
            Ok(done) => Told::Done { index: done.revision, repeated: done.repeated_request },
            Err(error) => Told::failed(error),
        };
        let over = match &answer {
            Told::Done { .. } => true,
            // A disk that is full now may have room the next time.
            Told::Refused(refusal) => refusal.reason != "DISK_RESERVE",
            _ => false,
        };
        self.record.see(Seen::Answered(Answered { tag, answer }));
        over
    }

    async fn write(&mut self, words: String, change: Change) -> bool {
        let (client, tag) = self.tag(Ask::Write(words));
        let answer = client.write(change, Writing::Record).await;
        self.told(tag, answer)
    }

    async fn transact(&mut self, words: &str, changes: Vec<Change>) -> bool {
        let (client, tag) = self.tag(Ask::Write(words.to_owned()));
        let answer = client.transact(changes, Writing::Record).await;
        self.told(tag, answer)
    }

    async fn scale(&mut self, words: String, write: ScalingWrite) -> bool {
        let (client, tag) = self.tag(Ask::Write(words));
        let answer = client.write_scaling(write, Writing::Record).await;
        self.told(tag, answer)
    }

    async fn read(&mut self, cluster: &str) {
        let (client, tag) = self.tag(Ask::Read(format!("clusters/{cluster}")));
        let answer = match client.get(Kind::Cluster, cluster, Reading::Linearizable).await {
            Ok(found) => Told::Found { index: found.revision, resource: Some(Box::new(found.resource)) },
            Err(Error::Refused(refusal)) if refusal.code == tonic::Code::NotFound => {
                let revision = refusal.metadata.get("revision").and_then(|it| it.parse().ok()).unwrap_or(0);
                Told::Found { index: revision, resource: None }
            }
            // A read changes nothing, so it is never unknown.
            Err(error) => Told::NotDone(error.to_string()),
        };
        self.record.see(Seen::Answered(Answered { tag, answer }));
    }

    async fn report(&mut self, cluster: &str, seen: Sign) {
        self.sequence += 1;
        let collector = self.name.clone();
        let (client, tag) = self.tag(Ask::Report(collector.clone(), self.sequence));
        let seen = match seen {
            Sign::Activity { idle_for_ms } => ObservedThing::Activity(v1::ActivitySeen { idle_for_ms }),
            Sign::Alive => ObservedThing::Alive(true),
        };
        let report = ReportSignalsRequest {
            collector,
            sequence: self.sequence,
            clusters: vec![v1::ClusterSignals {
                cluster: Some(cluster_signals::Cluster::Name(cluster.to_owned())),
                observations: vec![v1::Observation { age_ms: 0, seen: Some(seen) }],
            }],
        };
        let answer = match client.report_signals(report).await {
            Ok(done) => Told::Done { index: done.revision, repeated: done.repeated_report },
            Err(error) => Told::failed(error),
        };
        self.record.see(Seen::Answered(Answered { tag, answer }));
    }
}

/// A client of the group, as the product has it.
pub fn client(plan: &Plan, name: &str, record: Record) -> Option<Client> {
    let surroundings = UserSurroundings::new(record, Dice::of(plan.seed, &format!("client {name}")));
    let mut dice = Dice::of(plan.seed, &format!("endpoints {name}"));
    let mut endpoints: Vec<String> = (0..plan.machines).map(address).collect();
    let first = dice.index(endpoints.len());
    endpoints.rotate_left(first);
    let options = Options {
        timeout: Duration::from_secs(6),
        attempt_timeout: Duration::from_secs(2),
        actor: name.to_owned(),
        ..Options::default()
    };
    Some(Client::connect_in(Arc::new(surroundings), Endpoints::parse(endpoints).ok()?, options))
}

fn on(cluster: &str) -> Option<v1::StrategyTarget> {
    Some(v1::StrategyTarget { target: Some(Target::Cluster(cluster.to_owned())) })
}

fn strategy(kind: &str, cluster: &str, given: &[(&str, &str)]) -> v1::CreateStrategyRequest {
    let strategy = v1::Strategy {
        r#type: kind.to_owned(),
        target: on(cluster),
        options: given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..v1::Strategy::default()
    };
    v1::CreateStrategyRequest { options: None, strategy: Some(strategy), allow_existing: true }
}

fn create_size(name: &str, slots: u32) -> Change {
    let size = v1::Size {
        name: name.to_owned(),
        slots,
        price_micros_per_hour: u64::from(slots) * 100_000,
        ..v1::Size::default()
    };
    Change::CreateSize(v1::CreateSizeRequest { options: None, size: Some(size) })
}

fn create_cluster(name: &str) -> Change {
    let cluster = v1::Cluster { name: name.to_owned(), ..v1::Cluster::default() };
    Change::CreateCluster(v1::CreateClusterRequest { options: None, cluster: Some(cluster) })
}

pub(crate) fn set(name: &str, value: &str) -> Change {
    Change::SetSetting(SetSettingRequest {
        name: name.to_owned(),
        value: value.to_owned(),
        ..SetSettingRequest::default()
    })
}
