//! `bench write`: durable commands, each answered by itself, beside etcd's puts. Callers of ours that share a connection share a stream
//! on it, as the client does for everybody who asks for that; a put is a call, which is all that etcd has.
//!
//! A command holds a cluster with a reason of [`VALUE_BYTES`](super::stage::VALUE_BYTES): it goes through the log of all three
//! nodes, is deduplicated by its request id, changes the state, is journalled and indexed. A put of etcd carries as many bytes.
//! Both are called at their leader.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use loadline_client::v1::PauseClusterRequest;
use loadline_client::{Client, ScalingWrite, Writing};

use super::drive::closed_loop;
use super::etcd::{Etcd, EtcdClient};
use super::figures::{Figures, Sample};
use super::group::Group;
use super::rows::Row;
use super::stage::{Beside, Stage, cluster_name, connections, create_clusters, shared, value};
use super::world::mix;
use crate::exit::Failed;

/// Things that are written to, one picked at random for each command.
pub(super) const KEYS: u32 = 1_000;

const P50_RATIO_MAX: f64 = 1.5;
const RATE_RATIO_MIN: f64 = 3.0;

pub(super) async fn measure(clients: &[usize], stage: &mut Stage<'_>) -> Result<Vec<Row>, Failed> {
    stage.begin("write", Beside::Etcd).await?;
    stage.tell("write: starting three nodes");
    let mut group = Group::start(stage.folder(), "write", &[]).await?;
    create_clusters(&group.client()?, KEYS).await?;
    let lasts = stage.args.lasts;
    // Both take memory in their first seconds that they keep from then on.
    if let Some(&most) = clients.iter().max() {
        stage.tell(&format!("write: {most} clients, not measured yet"));
        pauses(&mut group, most, lasts).await?;
        if let Some(them) = &mut stage.etcd {
            puts(them, most, lasts).await?;
        }
    }
    let mut ours: Vec<Vec<Sample>> = vec![Vec::new(); clients.len()];
    let mut etcd: Vec<Vec<Sample>> = vec![Vec::new(); clients.len()];
    for round in 1..=stage.args.rounds {
        for (place, &callers) in clients.iter().enumerate() {
            stage.tell(&format!("write: round {round} of {}, {callers} clients", stage.args.rounds));
            stage.yardstick().await?;
            // Whoever comes second finds a warmer machine, so they take turns.
            for mine in [round % 2 == 1, round % 2 == 0] {
                if mine {
                    ours[place].push(pauses(&mut group, callers, lasts).await?);
                } else if let Some(them) = &mut stage.etcd {
                    etcd[place].push(puts(them, callers, lasts).await?);
                }
            }
        }
    }
    let floor_ms = stage.yardstick.floor_ms(1.0, 2.0);
    let rows = clients.iter().zip(ours.iter().zip(&etcd)).map(|(&callers, (ours, etcd))| {
        let row = Row::new("write", Some(callers), Figures::of(ours)).beside(Figures::of(etcd));
        match callers {
            1 => row.p50_against("p50 to fdatasync + 2 round trips", floor_ms).ratio_at_most(P50_RATIO_MAX),
            256 => {
                let row = row.rate_against_etcd();
                let rate = row.ratio.map(|ratio| ratio >= RATE_RATIO_MIN);
                let tail = row.figures.zip(row.etcd).map(|(ours, etcd)| ours.p99_ms <= etcd.p99_ms);
                let met = rate.zip(tail).map(|(rate, tail)| rate && tail);
                row.goal(&format!("ratio >= {RATE_RATIO_MIN}, p99 <= etcd's"), met)
            }
            _ => row.rate_against_etcd(),
        }
    });
    Ok(rows.collect())
}

pub(super) async fn pauses(group: &mut Group, callers: usize, lasts: Duration) -> Result<Sample, Failed> {
    let endpoint = group.leader_endpoint().await?;
    let clients: Vec<Client> =
        (0..connections(callers)).map(|_| Group::connect([endpoint.as_str()])).collect::<Result<_, _>>()?;
    let clients = Arc::new(shared(&clients, callers));
    closed_loop(callers, lasts, move |caller, number| {
        let clients = Arc::clone(&clients);
        async move { pause(&clients[caller], picked(caller, number, KEYS), value(caller, number)).await }
    })
    .await
}

/// One durable command.
pub(super) async fn pause(client: &Client, cluster: u64, reason: String) -> Result<(), Failed> {
    let request = PauseClusterRequest { options: None, cluster: cluster_name(cluster), reason, expires_in_ms: 0 };
    client.write_scaling(ScalingWrite::PauseCluster(request), Writing::Record).await?;
    Ok(())
}

async fn puts(etcd: &mut Etcd, callers: usize, lasts: Duration) -> Result<Sample, Failed> {
    let url = etcd.leader_url().await?;
    let mut clients = Vec::new();
    for _ in 0..connections(callers) {
        clients.push(EtcdClient::connect(&url).await?);
    }
    let clients = Arc::new(shared(&clients, callers));
    closed_loop(callers, lasts, move |caller, number| {
        let clients = Arc::clone(&clients);
        async move {
            let key = Bytes::from(cluster_name(picked(caller, number, KEYS)));
            clients[caller].put(key, Bytes::from(value(caller, number))).await
        }
    })
    .await
}

/// The same sequence for both, another one for each caller.
pub(super) fn picked(caller: usize, number: u64, among: u32) -> u64 {
    mix(number.wrapping_mul(1_000_003).wrapping_add(caller as u64)) % u64::from(among)
}
