//! `bench failover`: `kill -9` of the leader, until the next write is acknowledged and until the next backend call.
//!
//! From the moment of the kill, attempts begin at the members that are left, every few milliseconds and in turn; the first that is
//! acknowledged ends the time, for us and for etcd alike. At the same moment a cluster is reported as used, and the time until the
//! backend is called for it is taken. Then the killed one is started again. etcd runs with its defaults, as we do.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use loadline_client::Client;
use tokio::time::Instant;

use super::etcd::{Etcd, EtcdClient};
use super::figures::{Figures, Sample};
use super::group::Group;
use super::react::{asleep, backend, react};
use super::receiver::Receiver;
use super::rows::Row;
use super::stage::{Beside, Stage, value};
use super::write::pause;
use crate::exit::{Exit, Failed};

/// An attempt begins so often. It bounds how exactly the time is taken.
const ATTEMPT_EVERY: Duration = Duration::from_millis(10);
/// An attempt that was not answered by then is given up; others are under way.
const ATTEMPT_FOR: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(30);
/// After a member is back, before the next kill: heartbeats, and its log.
const REST: Duration = Duration::from_millis(1_500);

const WRITE_MS_MAX: f64 = 1_500.0;
const CALL_LATER_MS_MAX: f64 = 500.0;

pub(super) async fn measure(kills: u32, stage: &mut Stage<'_>) -> Result<Vec<Row>, Failed> {
    stage.begin("failover", Beside::Etcd).await?;
    stage.tell("failover: starting three nodes and a receiver");
    let receiver = Receiver::start().await?;
    let arguments = backend(stage.folder(), &receiver)?;
    let mut group = Group::start(stage.folder(), "failover", &arguments).await?;
    // One more than are woken, to write to: whoever is held is not woken.
    asleep(&group.client()?, kills + 1).await?;
    let (mut writes, mut calls, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..kills {
        stage.tell(&format!("failover: kill {} of {kills}", number + 1));
        let (write, call) = ours(&mut group, &receiver, number, kills).await?;
        writes.push(write);
        calls.push(call);
        if let Some(etcd) = &mut stage.etcd {
            theirs.push(etcds(etcd, number).await?);
        }
    }
    stage.yardstick().await?;
    let figures = |took: Vec<Duration>| {
        let elapsed = took.iter().sum();
        Figures::of(&[Sample::new(took, elapsed)])
    };
    let row = Row::new("failover to write", None, figures(writes)).beside(figures(theirs));
    let ratio = row.figures.zip(row.etcd).map(|(ours, etcd)| ours.p50_ms / etcd.p50_ms);
    let in_time = row.figures.map(|it| it.p50_ms <= WRITE_MS_MAX);
    let met = in_time.zip(ratio).map(|(in_time, ratio)| in_time && ratio <= 1.0);
    let write = row.against("etcd's p50", ratio).goal(&format!("ratio <= 1, p50 <= {WRITE_MS_MAX} ms"), met);
    let call = Row::new("failover to backend call", None, figures(calls));
    let later = call.figures.zip(write.figures).map(|(call, write)| call.p50_ms - write.p50_ms);
    let met = later.map(|later| later <= CALL_LATER_MS_MAX);
    let call = call.goal(&format!("p50 at most {CALL_LATER_MS_MAX} ms after the write"), met);
    Ok(vec![write, call])
}

/// From the death of the leader to the next write, and to the backend being called.
pub(super) async fn ours(
    group: &mut Group,
    receiver: &Receiver,
    number: u32,
    written_to: u32,
) -> Result<(Duration, Duration), Failed> {
    let leader = group.leader().await?;
    let left: Vec<String> = others(group.nodes().iter().map(|node| node.endpoint.clone()), leader);
    let clients: Vec<Client> =
        left.iter().map(|endpoint| Group::connect([endpoint.as_str()])).collect::<Result<_, _>>()?;
    for client in &clients {
        // Connected before it counts.
        client.status().await?;
    }
    let both = Group::connect(left.iter().map(String::as_str))?;
    group.kill(leader).await?;
    let began = Instant::now();
    let attempt = |turn: usize| {
        let client = clients[turn % clients.len()].clone();
        async move { pause(&client, u64::from(written_to), value(number as usize, turn as u64)).await }
    };
    let (written, called) = tokio::join!(first_success(attempt), react(&both, receiver, number));
    let written = written? - began;
    let called = called?;
    group.start_node(leader)?;
    group.leader().await?;
    tokio::time::sleep(REST).await;
    Ok((written, called))
}

async fn etcds(etcd: &mut Etcd, number: u32) -> Result<Duration, Failed> {
    let leader = etcd.leader().await?;
    let mut clients = Vec::new();
    for url in others(etcd.urls().into_iter(), leader) {
        clients.push(EtcdClient::connect(&url).await?);
    }
    etcd.kill(leader).await?;
    let began = Instant::now();
    let attempt = |turn: usize| {
        let client = clients[turn % clients.len()].clone();
        async move { client.put(Bytes::from("failover"), Bytes::from(value(number as usize, turn as u64))).await }
    };
    let written = first_success(attempt).await? - began;
    etcd.start_member(leader)?;
    etcd.leader().await?;
    tokio::time::sleep(REST).await;
    Ok(written)
}

fn others(all: impl Iterator<Item = String>, but: usize) -> Vec<String> {
    all.enumerate().filter(|(place, _)| *place != but).map(|(_, one)| one).collect()
}

/// When the first of many attempts succeeded.
async fn first_success<F>(attempt: impl Fn(usize) -> F) -> Result<Instant, Failed>
where
    F: Future<Output = Result<(), Failed>>,
{
    let began = Instant::now();
    let mut every = tokio::time::interval(ATTEMPT_EVERY);
    let mut under_way = FuturesUnordered::new();
    let mut turn = 0;
    loop {
        tokio::select! {
            Some(ended) = under_way.next() => {
                if let Ok(Ok(())) = ended {
                    return Ok(Instant::now());
                }
            }
            _ = every.tick() => {
                under_way.push(tokio::time::timeout(ATTEMPT_FOR, attempt(turn)).boxed_local());
                turn += 1;
            }
        }
        if began.elapsed() > PATIENCE {
            let message = format!("no write was acknowledged within {PATIENCE:?} after the leader was killed");
            return Err(Failed::new(Exit::TimedOut, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_attempt_that_succeeds_counts_whatever_became_of_those_before() {
        let attempt = |turn| async move {
            match turn {
                0 => std::future::pending().await,
                1 => Err(Failed::new(Exit::Unavailable, "no leader")),
                _ => Ok(()),
            }
        };
        let began = Instant::now();
        let at = first_success(attempt).await.expect("a success");
        assert!(at - began >= ATTEMPT_EVERY * 2 - Duration::from_millis(5), "{:?}", at - began);
    }

    #[test]
    fn the_killed_one_is_not_asked() {
        assert_eq!(others(["a", "b", "c"].map(str::to_owned).into_iter(), 1), ["a", "c"]);
    }
}
