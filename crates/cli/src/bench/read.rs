//! `bench read`: one cluster by its name, linearizable and stale, beside a range of etcd over one key.
//!
//! Both are asked at their leader. Ours answers with a cluster, etcd with a value of [`VALUE_BYTES`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use loadline_client::{Client, Kind, Reading};

use super::drive::closed_loop;
use super::etcd::{Etcd, EtcdClient};
use super::figures::{Figures, Sample};
use super::group::Group;
use super::rows::Row;
use super::stage::{Beside, Stage, VALUE_BYTES, cluster_name, connections, create_clusters, shared};
use super::write::{KEYS, picked};
use crate::exit::Failed;

const RATIO_MIN: f64 = 1.0;
/// The number of clients at which the goal is.
const GOAL_CLIENTS: usize = 64;

pub(super) async fn measure(clients: &[usize], stage: &mut Stage<'_>) -> Result<Vec<Row>, Failed> {
    stage.begin("read", Beside::Etcd).await?;
    stage.tell("read: starting three nodes");
    let mut group = Group::start(stage.folder(), "read", &[]).await?;
    create_clusters(&group.client()?, KEYS).await?;
    if let Some(etcd) = &mut stage.etcd {
        fill(etcd).await?;
    }
    let kinds = [("read linearizable", false), ("read stale", true)];
    let cases: Vec<(&str, bool, usize)> =
        kinds.iter().flat_map(|(name, stale)| clients.iter().map(move |&callers| (*name, *stale, callers))).collect();
    let mut ours: Vec<Vec<Sample>> = vec![Vec::new(); cases.len()];
    let mut etcd: Vec<Vec<Sample>> = vec![Vec::new(); cases.len()];
    for round in 1..=stage.args.rounds {
        for (place, &(name, stale, callers)) in cases.iter().enumerate() {
            stage.tell(&format!("{name}: round {round} of {}, {callers} clients", stage.args.rounds));
            stage.yardstick().await?;
            for mine in [round % 2 == 1, round % 2 == 0] {
                if mine {
                    ours[place].push(gets(&mut group, callers, stale, KEYS, stage.args.lasts).await?);
                } else if let Some(them) = &mut stage.etcd {
                    etcd[place].push(ranges(them, callers, stale, stage.args.lasts).await?);
                }
            }
        }
    }
    let rows = cases.iter().zip(ours.iter().zip(&etcd)).map(|(&(name, stale, callers), (ours, etcd))| {
        let row = Row::new(name, Some(callers), Figures::of(ours)).beside(Figures::of(etcd)).rate_against_etcd();
        if callers == GOAL_CLIENTS && !stale { row.ratio_at_least(RATIO_MIN) } else { row }
    });
    Ok(rows.collect())
}

/// Each of `among` clusters is asked for as often.
pub(super) async fn gets(
    group: &mut Group,
    callers: usize,
    stale: bool,
    among: u32,
    lasts: Duration,
) -> Result<Sample, Failed> {
    let endpoint = group.leader_endpoint().await?;
    let clients: Vec<Client> =
        (0..connections(callers)).map(|_| Group::connect([endpoint.as_str()])).collect::<Result<_, _>>()?;
    let clients = Arc::new(shared(&clients, callers));
    let reading = if stale { Reading::Stale } else { Reading::Linearizable };
    closed_loop(callers, lasts, move |caller, number| {
        let clients = Arc::clone(&clients);
        async move {
            clients[caller].get(Kind::Cluster, &cluster_name(picked(caller, number, among)), reading).await?;
            Ok(())
        }
    })
    .await
}

async fn ranges(etcd: &mut Etcd, callers: usize, stale: bool, lasts: Duration) -> Result<Sample, Failed> {
    let url = etcd.leader_url().await?;
    let mut clients = Vec::new();
    for _ in 0..connections(callers) {
        clients.push(EtcdClient::connect(&url).await?);
    }
    let clients = Arc::new(shared(&clients, callers));
    closed_loop(callers, lasts, move |caller, number| {
        let clients = Arc::clone(&clients);
        async move { clients[caller].get(Bytes::from(cluster_name(picked(caller, number, KEYS))), stale).await }
    })
    .await
}

/// Every key is there before anybody reads it.
async fn fill(etcd: &mut Etcd) -> Result<(), Failed> {
    let client = EtcdClient::connect(&etcd.leader_url().await?).await?;
    let keys: Vec<u64> = (0..u64::from(KEYS)).collect();
    for some in keys.chunks(100) {
        let put = |number: &u64| (Bytes::from(cluster_name(*number)), Bytes::from(vec![b'v'; VALUE_BYTES]));
        client.put_all(some.iter().map(put).collect()).await?;
    }
    Ok(())
}
