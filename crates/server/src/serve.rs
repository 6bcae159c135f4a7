//! Starts a node and everything around it, and ends it in the right order.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use loadline_executor::{Executor, Noting};
use loadline_log::OpenError;
use loadline_raft_node::{Node, NodeConfig, NodeObserver, Observers, StartError, StopReason, Timing};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::LayerExt as _;
use tonic::service::interceptor::InterceptedService;
use tonic_health::ServingStatus;
use tracing::{info, warn};

use crate::acting::{Claiming, NodeGroup};
use crate::config::{BackendProblem, ServerConfig, Trust};
use crate::grpc::admin::AdminService;
use crate::grpc::audit::AuditService;
use crate::grpc::exchange::Exchange;
use crate::grpc::forward::Forwarding;
use crate::grpc::guard::Guard;
use crate::grpc::operator::OperatorService;
use crate::grpc::restore::Restores;
use crate::grpc::scale_to_zero::ScaleToZeroService;
use crate::grpc::scaling::ScalingService;
use crate::grpc::services::{Doors, Services, reflection, size, transport};
use crate::grpc::signals::SignalsService;
use crate::grpc::watch::WatchService;
use crate::grpc::writes::WritesService;
use crate::http::Pages;
use crate::http_scaling::{Remembering, ScalingPages};
use crate::http_signals::SignalPages;
use crate::incoming::{Incoming, dated_by};
use crate::leading;
use crate::logging::init_logging;
use crate::metrics::Metrics;
use crate::peers;
use crate::pg::Sql;
use crate::proposals::Proposals;
use crate::readiness::Readiness;
use crate::scaling_figures;
use crate::shutdown::{self, Remains};
use crate::travel::Travel;
use crate::waking::Waking;
use crate::world::World;

/// How often health, which clients ask by gRPC, follows readiness.
const HEALTH_EVERY: Duration = Duration::from_millis(250);

/// Why a node does not run, or no longer does.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address} ({key}); is another process there? Choose another address with {key}")]
    Listen { key: &'static str, address: String, source: io::Error },
    #[error("cannot open the data folder")]
    DataDir(#[source] OpenError),
    #[error("peer_secret_file {path} {wrong}", path = path.display())]
    PeerSecret { path: PathBuf, wrong: String },
    #[error("a backend cannot be used")]
    Backend(#[source] BackendProblem),
    #[error("cannot start the node")]
    Start(#[source] StartError),
    #[error("cannot describe the services")]
    Reflection(#[source] tonic_reflection::server::Error),
    #[error("the gRPC server failed")]
    Grpc(#[source] tonic::transport::Error),
    #[error("the HTTP server failed")]
    Http(#[source] io::Error),
    #[error("the SQL server failed")]
    Pg(#[source] io::Error),
    #[error("{reason}{}", how_to_recover(.reason))]
    Stopped { reason: StopReason },
}

/// Nothing that a node stopped for goes away by starting it again in the same folder without looking.
fn how_to_recover(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::ShutDown | StopReason::Diverged { .. } | StopReason::TooOld { .. } => "",
        StopReason::Storage { .. } => {
            ". What it had promised may not be on its disk: look at the disk first. If it is sound (it was only full, say), \
             start the node again; if it is not, remove the node with `loadline operator raft remove-peer`, give it an empty \
             folder on another disk and start it: it joins under a new id"
        }
        StopReason::Raft { .. } => {
            ". Start it again; if it stops again, keep its data folder for a report, remove the node with `loadline operator \
             raft remove-peer` and start it with an empty folder: it joins under a new id"
        }
    }
}

/// The sockets of a node. Bound before anything else, so that a taken port is found before the data folder is touched.
/// A simulator brings sockets of its own.
#[derive(Debug)]
pub struct Listeners<G = TcpListener, H = TcpListener> {
    pub grpc: G,
    pub http: H,
    /// For SQL, where it is wanted.
    pub pg: Option<TcpListener>,
}

impl Listeners {
    pub async fn bind(config: &ServerConfig) -> Result<Listeners, ServeError> {
        async fn listen(key: &'static str, address: &str) -> Result<TcpListener, ServeError> {
            let failed = |source| ServeError::Listen { key, address: address.to_owned(), source };
            TcpListener::bind(address).await.map_err(failed)
        }
        let grpc = listen("grpc_listen", &config.grpc_listen).await?;
        let http = listen("http_listen", &config.http_listen).await?;
        let pg = match config.pg_listen.as_str() {
            "" => None,
            address => Some(listen("pg_listen", address).await?),
        };
        Ok(Listeners { grpc, http, pg })
    }
}

/// Runs one node until `shutdown` resolves, or until it stops by itself, which is an error.
pub async fn serve(config: ServerConfig, shutdown: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
    init_logging(&config);
    let listeners = Listeners::bind(&config).await?;
    serve_on(listeners, config, shutdown).await
}

/// The same on sockets that are there already, and without touching the log of the process.
pub async fn serve_on(
    listeners: Listeners,
    config: ServerConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let world = World::real(&config)?;
    serve_in(world, listeners, config, shutdown).await
}

/// Runs one node in a given world until `shutdown` resolves, or until it stops by itself, which is an error.
pub async fn serve_in<G, H>(
    world: World,
    listeners: Listeners<G, H>,
    config: ServerConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError>
where
    G: Incoming,
    H: axum::serve::Listener<Addr = SocketAddr>,
{
    let metrics = Arc::new(Metrics::new());
    let pass = peers::pass(&config)?;
    let dial = peers::showing(world.dial, pass.clone());
    let node_config = NodeConfig {
        audit_index: world.audit_index,
        threading: world.threading,
        pace: world.pace,
        wal_segment_bytes: world.wal_segment_bytes,
        signing_seed: world.signing_seed,
        replay_starts: world.replay_starts,
        fetch_history: world.fetch_history,
        ..node_config(&config)
    };
    let observer = Observers(Arc::clone(&metrics) as Arc<dyn NodeObserver>, world.onlooker);
    let clock = Arc::clone(&world.clock);
    let node = Node::start(node_config, world.disk, Arc::clone(&dial), world.clock, Arc::new(observer))
        .await
        .map_err(ServeError::Start)?;

    let closing = CancellationToken::new();
    let readiness = Readiness::new(node.clone(), closing.clone());
    let proposals = Proposals::new(node.clone(), Arc::clone(&metrics));
    metrics.backends.know(&world.backends);
    let group = NodeGroup::new(&config.name, node.clone(), proposals.clone());
    let executor = Executor::new(Arc::new(group), world.backends)
        .witnessed_by(world.witness)
        .noted_by(Arc::clone(&metrics.backends) as Arc<dyn Noting>);
    node.foresee(Arc::new(Claiming::new(&config.name, executor.claims_ahead())));
    let http_endpoint = http_endpoint(&config, listeners.http.local_addr().ok());
    info!(
        name = config.name,
        grpc = config.advertise,
        http = http_endpoint,
        data = %config.data_dir.display(),
        version = env!("CARGO_PKG_VERSION"),
        "this node is up"
    );

    let doors = Doors::new(&config, &metrics);
    let (health, health_service) = tonic_health::server::health_reporter();
    let guard = Guard::new(node.clone(), config.trust == Trust::Loopback, pass);
    warn_if_open(&config);
    let exchange = Exchange { node: node.clone(), proposals: proposals.clone() };
    let travel = Arc::new(Travel::new(node.clone()));
    let waking = Waking { exchange: exchange.clone(), closing: closing.clone() };
    let services = Services {
        admin: AdminService { exchange: exchange.clone(), guard: guard.clone() },
        scaling: ScalingService { exchange: exchange.clone(), travel: Arc::clone(&travel) },
        scale_to_zero: ScaleToZeroService { waking: waking.clone() },
        signals: SignalsService { proposals: proposals.clone(), closing: closing.clone() },
        audit: AuditService { exchange: exchange.clone() },
        writes: WritesService { exchange, closing: closing.clone() },
        watch: WatchService {
            node: node.clone(),
            metrics: Arc::clone(&metrics),
            message_out_max: size(config.limits.message_out_max),
            closing: closing.clone(),
        },
        operator: OperatorService {
            node: node.clone(),
            forwarding: Forwarding::new(node.clone(), &config, dial),
            restores: Restores::new(proposals.clone(), config.limits.restore_max),
            http_endpoint,
        },
    };
    let peers = guard.clone();
    let routes = services
        .behind(&doors, &guard, &config.limits)
        // No door here: votes and heartbeats that wait behind clients would turn load into elections.
        .add_service(InterceptedService::new(node.raft_service(), move |call: tonic::Request<()>| {
            peers.admit_peer(call.metadata()).map(|()| call)
        }))
        .add_service(doors.helpers.named_layer(health_service))
        .add_service(doors.helpers.named_layer(reflection()?));

    let stop_accepting = CancellationToken::new();
    let grpc = transport(&config.limits)
        .layer(dated_by(clock))
        .add_routes(routes)
        .serve_with_incoming_shutdown(listeners.grpc.connections(), stop_accepting.clone().cancelled_owned());
    let pages = Pages {
        signals: SignalPages {
            exchange: Exchange { node: node.clone(), proposals: proposals.clone() },
            guard: guard.clone(),
        },
        node: node.clone(),
        readiness: readiness.clone(),
        metrics: Arc::clone(&metrics),
        disk_reserve: config.disk_reserve,
    };
    let scaling_pages = ScalingPages { waking, guard: guard.clone() };
    let router = pages.router().merge(scaling_pages.router());
    let http = axum::serve(listeners.http, Remembering(router));

    let stop_sql = CancellationToken::new();
    let pg = listeners.pg.map(|listener| {
        let address = listener.local_addr().ok();
        let sql = Sql::new(node.clone(), proposals.clone(), &config, guard.clone(), address, Arc::clone(&travel));
        AbortOnDropHandle::new(tokio::spawn(sql.serve(listener, stop_sql.clone())))
    });

    let _background = [
        AbortOnDropHandle::new(tokio::spawn(readiness.clone().keep_trying())),
        AbortOnDropHandle::new(tokio::spawn(follow_readiness(readiness, health))),
        AbortOnDropHandle::new(tokio::spawn(scaling_figures::count(node.clone(), Arc::clone(&metrics)))),
        AbortOnDropHandle::new(tokio::spawn(count_leaders(node.clone(), metrics))),
    ];
    let mut remains = Remains {
        node: node.clone(),
        leading: AbortOnDropHandle::new(tokio::spawn(leading::lead(
            node.clone(),
            proposals,
            executor,
            world.collecting,
            config.suggestions(),
            closing.clone(),
        ))),
        closing,
        stop_accepting,
        doors: doors.all(),
        grpc: AbortOnDropHandle::new(tokio::spawn(grpc)),
        http: AbortOnDropHandle::new(tokio::spawn(http.into_future())),
        stop_sql,
        pg,
    };
    tokio::select! {
        biased;
        reason = node.stopped() => Err(ServeError::Stopped { reason }),
        ended = &mut remains.grpc => Err(grpc_ended(ended)),
        ended = &mut remains.http => Err(http_ended(ended)),
        ended = ended_sql(&mut remains.pg) => Err(ended),
        () = shutdown => {
            shutdown::gracefully(remains, config.shutdown_grace).await;
            Ok(())
        }
    }
}

/// What an operator should know who believes that everything is locked.
fn warn_if_open(config: &ServerConfig) {
    if config.trust == Trust::Loopback {
        warn!("trust = loopback: whoever is on this machine needs no login; for development only");
    }
    let has_peers = config.peers.len() > 1 || !config.join.is_empty();
    if has_peers && config.peer_secret_file.as_os_str().is_empty() {
        warn!("no peer_secret_file: whoever reaches {} can speak as a node of this group", config.grpc_listen);
    }
}

fn grpc_ended(ended: Result<Result<(), tonic::transport::Error>, tokio::task::JoinError>) -> ServeError {
    match ended {
        Ok(Err(error)) => ServeError::Grpc(error),
        Ok(Ok(())) => ServeError::Stopped { reason: StopReason::Raft { what: "the gRPC server ended".to_owned() } },
        Err(error) => ServeError::Stopped { reason: StopReason::Raft { what: error.to_string() } },
    }
}

fn http_ended(ended: Result<io::Result<()>, tokio::task::JoinError>) -> ServeError {
    match ended {
        Ok(Err(error)) => ServeError::Http(error),
        Ok(Ok(())) => ServeError::Http(io::Error::other("it ended by itself")),
        Err(error) => ServeError::Http(io::Error::other(error)),
    }
}

/// Never, if there is no SQL.
async fn ended_sql(pg: &mut Option<AbortOnDropHandle<io::Result<()>>>) -> ServeError {
    match pg {
        None => std::future::pending().await,
        Some(pg) => match pg.await {
            Ok(Err(error)) => ServeError::Pg(error),
            Ok(Ok(())) => ServeError::Pg(io::Error::other("it ended by itself")),
            Err(error) => ServeError::Pg(io::Error::other(error)),
        },
    }
}

fn node_config(config: &ServerConfig) -> NodeConfig {
    // A node that is not among the founders can only join; the founders are as good as any to ask.
    let founds = config.peers.contains(&config.advertise);
    let others =
        |addresses: &[String]| addresses.iter().filter(|address| **address != config.advertise).cloned().collect();
    let mut join: Vec<String> = others(&config.join);
    if !founds {
        let peers: Vec<String> = others(&config.peers);
        join.extend(peers.into_iter().filter(|peer| !config.join.contains(peer)));
    }
    NodeConfig {
        peers: if founds { config.peers.clone() } else { Vec::new() },
        join,
        timing: Timing {
            heartbeat: config.heartbeat,
            election_min: config.election_timeout_min,
            election_max: config.election_timeout_max,
            install_snapshot: config.install_snapshot_timeout,
            ..Timing::default()
        },
        snapshot_every: config.snapshot_every,
        keep_entries: config.keep_entries,
        entry_requests_max: usize::try_from(config.entry_requests_max).unwrap_or(usize::MAX),
        disk_reserve_bytes: config.disk_reserve,
        tick_every: config.tick_every,
        ..NodeConfig::new(&config.name, &config.advertise)
    }
}

/// Where HTTP is reached from elsewhere: the port that is listened on, at the host that is advertised unless HTTP has an
/// address of its own.
fn http_endpoint(config: &ServerConfig, bound: Option<SocketAddr>) -> String {
    let Some(bound) = bound else { return config.http_listen.clone() };
    if !bound.ip().is_unspecified() {
        return bound.to_string();
    }
    let host = config.advertise.rsplit_once(':').map_or(config.advertise.as_str(), |(host, _)| host);
    format!("{host}:{}", bound.port())
}

/// Health says of every service what readiness says of the node.
async fn follow_readiness(readiness: Readiness, health: tonic_health::server::HealthReporter) {
    let services = ["", "loadline.v1.Admin", "loadline.v1.Watch", "loadline.v1.Operator"];
    let mut said = None;
    loop {
        let ready = readiness.reasons_against().is_empty();
        if said != Some(ready) {
            let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            for service in services {
                health.set_service_status(service, status).await;
            }
            said = Some(ready);
        }
        tokio::time::sleep(HEALTH_EVERY).await;
    }
}

/// Every leadership is announced in the log, so whoever applies the log has seen them all.
async fn count_leaders(node: Node, metrics: Arc<Metrics>) {
    let mut work = node.watch_work();
    let mut last = work.borrow_and_update().epoch;
    while work.changed().await.is_ok() {
        let epoch = work.borrow_and_update().epoch;
        if epoch != last {
            last = epoch;
            metrics.leader_changes.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(advertise: &str, peers: &[&str], join: &[&str]) -> NodeConfig {
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        node_config(&ServerConfig {
            name: "n1".to_owned(),
            advertise: advertise.to_owned(),
            peers: owned(peers),
            join: owned(join),
            ..ServerConfig::default()
        })
    }

    #[test]
    fn a_node_among_the_peers_founds_and_another_only_joins() {
        let founder = config("a:1", &["a:1", "b:1"], &["a:1", "b:1"]);
        assert_eq!((founder.peers, founder.join), (vec!["a:1".to_owned(), "b:1".to_owned()], vec!["b:1".to_owned()]));
        let late = config("c:1", &["a:1", "b:1"], &["b:1"]);
        assert_eq!((late.peers, late.join), (vec![], vec!["b:1".to_owned(), "a:1".to_owned()]));
    }

    #[test]
    fn http_is_shown_where_it_can_be_reached() {
        let config = ServerConfig { advertise: "n1.example:7700".to_owned(), ..ServerConfig::default() };
        let shown = |bound: &str| http_endpoint(&config, Some(bound.parse().unwrap()));
        assert_eq!(shown("127.0.0.1:8700"), "127.0.0.1:8700");
        assert_eq!(shown("0.0.0.0:8700"), "n1.example:8700");
        assert_eq!(shown("[::]:8700"), "n1.example:8700");
    }

    #[test]
    fn a_node_that_stopped_says_why_and_what_to_do() {
        let stopped = ServeError::Stopped { reason: StopReason::Storage { what: "fsync of wal/7: EIO".to_owned() } };
        let text = stopped.to_string();
        assert!(text.starts_with("storage failed: fsync of wal/7: EIO. "), "{text}");
        assert!(text.contains("remove-peer") && text.contains("empty folder"), "{text}");
    }
}
