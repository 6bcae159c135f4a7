//! A real etcd of three members, to measure beside: its processes, and the few calls that are compared.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

use self::wire::kv_client::KvClient;
use self::wire::maintenance_client::MaintenanceClient;
use super::processes::{Running, bound_to_this, free_ports, make_folder, on_path};
use crate::exit::{Exit, Failed};

#[allow(missing_debug_implementations, unreachable_pub, unused_qualifications)]
#[allow(clippy::all, clippy::pedantic)]
pub(super) mod wire {
    tonic::include_proto!("etcdserverpb");
}

const PATIENCE: Duration = Duration::from_secs(30);
/// No call takes as long as this; one that does is a failed benchmark, not one that never ends.
const CALL_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Etcd {
    binary: PathBuf,
    pub(super) version: String,
    members: Vec<Member>,
    folder: PathBuf,
    cluster: String,
}

#[derive(Debug)]
struct Member {
    name: String,
    client_url: String,
    peer_url: String,
    /// Nothing while it is down.
    running: Option<Running>,
}

/// Where etcd is, if it is anywhere.
pub(super) fn find(wanted: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = wanted {
        return path.is_file().then(|| path.to_owned());
    }
    on_path("etcd")
}

impl Etcd {
    /// With its own defaults: heartbeats, elections, and an fdatasync before every answer.
    pub(super) async fn start(binary: &Path, parent: &Path, name: &str) -> Result<Etcd, Failed> {
        let folder = make_folder(parent, name)?;
        let ports = free_ports(6)?;
        let members: Vec<Member> = (0..3)
            .map(|number| Member {
                name: format!("e{}", number + 1),
                client_url: format!("http://127.0.0.1:{}", ports[number]),
                peer_url: format!("http://127.0.0.1:{}", ports[number + 3]),
                running: None,
            })
            .collect();
        let each = members.iter().map(|member| format!("{}={}", member.name, member.peer_url));
        let cluster = each.collect::<Vec<_>>().join(",");
        let mut etcd = Etcd { binary: binary.to_owned(), version: String::new(), members, folder, cluster };
        for place in 0..etcd.members.len() {
            etcd.start_member(place)?;
        }
        etcd.leader().await?;
        etcd.version = etcd.status(0).await.map(|status| status.version).unwrap_or_default();
        Ok(etcd)
    }

    pub(super) fn start_member(&mut self, place: usize) -> Result<(), Failed> {
        let member = &mut self.members[place];
        let mut command = bound_to_this(&self.binary);
        command
            .args(["--name", &member.name, "--logger", "zap", "--log-level", "error"])
            .arg("--data-dir")
            .arg(self.folder.join(&member.name))
            .args(["--listen-client-urls", &member.client_url, "--advertise-client-urls", &member.client_url])
            .args(["--listen-peer-urls", &member.peer_url, "--initial-advertise-peer-urls", &member.peer_url])
            .args(["--initial-cluster", &self.cluster, "--initial-cluster-state", "new"])
            // The default of 2 GiB would end a long run with an alarm instead of a figure.
            .args(["--quota-backend-bytes", "8589934592"]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(name);
            }
        }
        member.running = Some(Running::start(&member.name, command, &self.folder)?);
        Ok(())
    }

    /// `kill -9`.
    pub(super) async fn kill(&mut self, place: usize) -> Result<(), Failed> {
        match self.members[place].running.take() {
            Some(mut running) => running.kill().await,
            None => Ok(()),
        }
    }

    async fn status(&self, place: usize) -> Option<wire::StatusResponse> {
        let channel = connect(&self.members[place].client_url).await.ok()?;
        let call = async { MaintenanceClient::new(channel).status(wire::StatusRequest {}).await };
        Some(tokio::time::timeout(Duration::from_secs(1), call).await.ok()?.ok()?.into_inner())
    }

    pub(super) async fn leader(&mut self) -> Result<usize, Failed> {
        let until = Instant::now() + PATIENCE;
        loop {
            for member in &mut self.members {
                if let Some(running) = &mut member.running {
                    running.check()?;
                }
            }
            if let Some(place) = self.leader_now().await {
                return Ok(place);
            }
            if Instant::now() > until {
                return Err(Failed::new(Exit::Unavailable, format!("etcd elected no leader within {PATIENCE:?}")));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn leader_now(&self) -> Option<usize> {
        let mut found = None;
        for (place, _) in self.members.iter().enumerate().filter(|(_, member)| member.running.is_some()) {
            let status = self.status(place).await?;
            let me = status.header.as_ref().map(|header| header.member_id)?;
            if status.leader == 0 {
                return None;
            }
            if status.leader == me {
                found = Some(place);
            }
        }
        found
    }

    pub(super) async fn leader_url(&mut self) -> Result<String, Failed> {
        let place = self.leader().await?;
        Ok(self.members[place].client_url.clone())
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client_url.clone()).collect()
    }
}

async fn connect(url: &str) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(url.to_owned())?.tcp_nodelay(true).timeout(CALL_MAX);
    endpoint.connect_timeout(Duration::from_secs(1)).connect().await
}

/// One connection to one member, for as many callers as share it.
#[derive(Debug, Clone)]
pub(super) struct EtcdClient {
    kv: KvClient<Channel>,
}

impl EtcdClient {
    pub(super) async fn connect(url: &str) -> Result<EtcdClient, Failed> {
        let cannot = |error| Failed::new(Exit::Unavailable, format!("etcd at {url} cannot be reached: {error}"));
        Ok(EtcdClient { kv: KvClient::new(connect(url).await.map_err(cannot)?) })
    }

    pub(super) async fn put(&self, key: Bytes, value: Bytes) -> Result<(), Failed> {
        self.kv.clone().put(wire::PutRequest { key, value }).await.map_err(|status| failed(&status))?;
        Ok(())
    }

    /// All of them in one transaction.
    pub(super) async fn put_all(&self, puts: Vec<(Bytes, Bytes)>) -> Result<(), Failed> {
        let operation = |(key, value)| wire::RequestOp {
            request: Some(wire::request_op::Request::RequestPut(wire::PutRequest { key, value })),
        };
        let transaction = wire::TxnRequest { success: puts.into_iter().map(operation).collect() };
        self.kv.clone().txn(transaction).await.map_err(|status| failed(&status))?;
        Ok(())
    }

    /// Linearizable unless it may be stale.
    pub(super) async fn get(&self, key: Bytes, stale: bool) -> Result<(), Failed> {
        let request = wire::RangeRequest { key, serializable: stale };
        let found = self.kv.clone().range(request).await.map_err(|status| failed(&status))?.into_inner();
        if found.kvs.is_empty() {
            return Err(Failed::new(Exit::NotFound, "etcd does not have what was put there"));
        }
        Ok(())
    }
}

fn failed(status: &tonic::Status) -> Failed {
    Failed::new(Exit::Failure, format!("etcd: {}", status.message()))
}
