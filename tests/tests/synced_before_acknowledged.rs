//! What the kernel was asked: an acknowledged write is on the disks of a majority before its answer leaves.

use loadline_client::Writing;
use loadline_client::v1::change::Change;
use loadline_client::v1::{Cluster, CreateClusterRequest};
use loadline_tests::load::Load;
use loadline_tests::strace::{Call, Strace};
use loadline_tests::{Group, Options, alone, ask};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");
const CALLS: &str = "pwrite64,fdatasync,fsync,write,writev,sendto,sendmsg";

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_has_synced_a_write_before_its_acknowledgement_is_sent() -> anyhow::Result<()> {
    let _alone = alone();
    let group = Group::start(BINARY, 3, Options::default())?;
    let leader = ask::leader(&group).await?;
    let load = Load::start(&group.endpoints(), 2)?;
    load.goes_on(20).await?;
    let mut traces = Vec::new();
    for member in &group.members {
        let pid = member.pid().expect("every node was started");
        traces.push(Strace::attach(pid, CALLS, &group.folder().join(format!("{}.strace", member.name))).await?);
    }
    let name = "traced-from-edge-to-disk";
    let cluster = Cluster { name: name.to_owned(), ..Cluster::default() };
    let step = Change::CreateCluster(CreateClusterRequest { cluster: Some(cluster), options: None });
    let at_the_leader = ask::client(&[group.members[leader].endpoint()])?;
    at_the_leader.write(step, Writing::Record).await?;
    let calls: Vec<Vec<Call>> = traces.into_iter().map(Strace::finish).collect::<anyhow::Result<_>>()?;
    load.stop().await?;

    // The answer goes out of a socket that the leader accepted: the near end has the leader's own port.
    let accepted = format!("TCP:[{}->", group.members[leader].grpc);
    let sends = |call: &&Call| matches!(call.name.as_str(), "write" | "writev" | "sendto" | "sendmsg");
    let answer = calls[leader]
        .iter()
        .filter(sends)
        .find(|call| call.arguments.contains(&accepted) && call.arguments.contains(name))
        .expect("the answer names the new cluster, and left through a socket of the leader");
    let synced_in_time = calls.iter().filter(|calls| synced(calls, name).is_some_and(|at| at <= answer.began)).count();
    assert!(synced_in_time >= 2, "only {synced_in_time} of 3 nodes had synced the write when it was acknowledged");
    Ok(())
}

/// When a sync of the log returned that began after the bytes of `name` were written.
fn synced(calls: &[Call], name: &str) -> Option<f64> {
    let in_wal = |call: &&Call| call.arguments.contains("/wal/");
    let written = calls.iter().filter(in_wal).find(|call| call.name == "pwrite64" && call.arguments.contains(name))?;
    calls
        .iter()
        .filter(in_wal)
        .filter(|call| matches!(call.name.as_str(), "fdatasync" | "fsync") && call.result.starts_with('0'))
        .filter(|call| call.began >= written.ended)
        .map(|call| call.ended)
        .reduce(f64::min)
}
