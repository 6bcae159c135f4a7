//! Who may what, at the edge: every kind of call times every kind of caller, and that nobody speaks as somebody else.

use loadline_api::raft::{Envelope, ProposeRequest, raft_client::RaftClient};
use loadline_api::v1::admin_client::AdminClient;
use loadline_api::v1::audit_client::AuditClient;
use loadline_api::v1::operator_client::OperatorClient;
use loadline_api::v1::scaling_client::ScalingClient;
use loadline_api::v1::signals_client::SignalsClient;
use loadline_api::v1::strategy_target::Target;
use loadline_api::v1::watch_client::WatchClient;
use loadline_api::v1::{self, cluster_signals};
use loadline_credentials::token::Token;
use loadline_server::config::{ServerConfig, Trust};
use loadline_state_machine::{Actor, Command, Request as Asked};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::common::{Node, Place, create_cluster, create_size, delete, eventually, named, options, refused, set};

/// Shows what it was given as a credential, if anything, and a name that is somebody else's.
#[derive(Clone)]
struct Shows(Option<String>);

impl Interceptor for Shows {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("loadline-actor", "root".parse().unwrap());
        if let Some(credential) = &self.0 {
            request.metadata_mut().insert("authorization", credential.parse().unwrap());
        }
        Ok(request)
    }
}

/// A node as one caller reaches it.
#[derive(Clone)]
struct Caller(InterceptedService<Channel, Shows>);

impl Caller {
    fn new(node: &Node, credential: Option<String>) -> Caller {
        Caller(InterceptedService::new(node.channel.clone(), Shows(credential)))
    }

    fn with(node: &Node, token: &Token) -> Caller {
        Caller::new(node, Some(format!("Bearer {}", token.reveal())))
    }

    fn admin(&self) -> AdminClient<InterceptedService<Channel, Shows>> {
        AdminClient::new(self.0.clone())
    }

    fn scaling(&self) -> ScalingClient<InterceptedService<Channel, Shows>> {
        ScalingClient::new(self.0.clone())
    }

    fn operator(&self) -> OperatorClient<InterceptedService<Channel, Shows>> {
        OperatorClient::new(self.0.clone())
    }
}

fn create_role(name: &str, superuser: bool) -> v1::CreateRoleRequest {
    v1::CreateRoleRequest { options: options(), name: name.to_owned(), superuser, ..v1::CreateRoleRequest::default() }
}

fn create_token(role: &str, token: &Token) -> v1::CreateTokenRequest {
    v1::CreateTokenRequest {
        options: options(),
        role: role.to_owned(),
        token_id: token.id().to_owned(),
        token_hash: token.hash().0.to_vec().into(),
        expires_in_ms: 0,
    }
}

fn usage(role: &str, cluster: &str) -> v1::UsageRequest {
    let (role, cluster) = (role.to_owned(), cluster.to_owned());
    v1::UsageRequest { options: options(), role, all_clusters: cluster.is_empty(), cluster }
}

fn strategy(target: Target) -> v1::CreateStrategyRequest {
    let strategy = v1::Strategy {
        r#type: "target_size".to_owned(),
        target: Some(v1::StrategyTarget { target: Some(target) }),
        options: [("size".to_owned(), "25cc".to_owned())].into(),
        ..v1::Strategy::default()
    };
    v1::CreateStrategyRequest { options: options(), strategy: Some(strategy), allow_existing: true }
}

fn pause(cluster: &str) -> v1::PauseClusterRequest {
    let (cluster, reason) = (cluster.to_owned(), "test".to_owned());
    v1::PauseClusterRequest { options: options(), cluster, reason, expires_in_ms: 0 }
}

fn report(cluster: &str) -> v1::ReportSignalsRequest {
    let cluster = Some(cluster_signals::Cluster::Name(cluster.to_owned()));
    let clusters = vec![v1::ClusterSignals { cluster, observations: vec![] }];
    v1::ReportSignalsRequest { collector: "test".to_owned(), sequence: 1, clusters }
}

/// A superuser's token, in a group that it has just closed.
async fn close(node: &Node) -> Token {
    let token = Token::mint();
    node.admin().create_role(create_role("root", true)).await.unwrap();
    node.admin().create_token(create_token("root", &token)).await.unwrap();
    token
}

fn seen<T>(answer: Result<T, Status>) -> char {
    match answer.map_err(|status| status.code()) {
        Err(Code::Unauthenticated) => '-',
        Err(Code::PermissionDenied) => 'x',
        _ => '+',
    }
}

/// What one caller may, in the order of the rows below.
async fn may(caller: &Caller, number: usize) -> String {
    let (mut admin, mut scaling, mut operator) = (caller.admin(), caller.scaling(), caller.operator());
    let mut signals = SignalsClient::new(caller.0.clone());
    let mut watch = WatchClient::new(caller.0.clone());
    let on = |name: &str| Target::Cluster(name.to_owned());
    let peer = "nobody".to_owned();
    [
        seen(admin.get_cluster(named("here")).await),
        seen(admin.list_roles(v1::ListRequest::default()).await),
        seen(operator.status(v1::StatusRequest::default()).await),
        seen(operator.list_peers(v1::ListPeersRequest {}).await),
        seen(watch.watch(v1::WatchRequest::default()).await),
        ' ',
        seen(scaling.create_strategy(strategy(on("here"))).await),
        seen(scaling.pause_cluster(pause("here")).await),
        seen(signals.report_signals(report("here")).await),
        ' ',
        seen(scaling.create_strategy(strategy(on("there"))).await),
        seen(scaling.create_strategy(strategy(Target::All(true))).await),
        seen(scaling.pause_cluster(pause("there")).await),
        seen(signals.report_signals(report("there")).await),
        ' ',
        seen(admin.create_size(create_size(&format!("s{number}"), 1)).await),
        seen(admin.set_setting(set("request_window", "20m")).await),
        seen(admin.create_cluster(create_cluster(&format!("c{number}"))).await),
        seen(admin.create_role(create_role(&format!("r{number}"), false)).await),
        seen(admin.grant_usage(usage("reader", "here-not")).await),
        seen(admin.create_token(create_token("root", &Token::mint())).await),
        seen(admin.delete_role(delete("nobody")).await),
        seen(operator.add_peer(v1::AddPeerRequest { peer: peer.clone(), replace: String::new() }).await),
        seen(operator.remove_peer(v1::RemovePeerRequest { peer }).await),
        seen(operator.save_snapshot(v1::SaveSnapshotRequest::default()).await),
        seen(AuditClient::new(caller.0.clone()).export_history(v1::ExportHistoryRequest::default()).await),
    ]
    .into_iter()
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_answered_to_exactly_those_who_may() {
    let node = Node::alone().await;
    node.admin().set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    node.admin().create_size(create_size("25cc", 1)).await.unwrap();
    for name in ["here", "there"] {
        node.admin().create_cluster(create_cluster(name)).await.unwrap();
    }
    let anybody = Caller::new(&node, None);
    assert!(!may(&anybody, 0).await.contains(['-', 'x']), "as long as nobody can log in, everybody may everything");

    let root = Caller::with(&node, &close(&node).await);
    let mut callers = vec![root.clone()];
    for name in ["reader", "here-user", "operator"] {
        root.admin().create_role(create_role(name, false)).await.unwrap();
        let token = Token::mint();
        root.admin().create_token(create_token(name, &token)).await.unwrap();
        callers.push(Caller::with(&node, &token));
    }
    root.admin().grant_usage(usage("here-user", "here")).await.unwrap();
    root.admin().grant_usage(usage("operator", "")).await.unwrap();

    let nobody = "----- --- ---- -----------";
    for (number, credential) in [
        None,
        Some("Bearer ".to_owned()),
        Some("Bearer root".to_owned()),
        Some(format!("Bearer {}", Token::mint().reveal())),
        Some("Basic cm9vdDpyb290".to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(may(&Caller::new(&node, credential), number).await, nobody, "credential {number}");
    }
    let expected = [
        ("root", "+++++ +++ ++++ +++++++++++"),
        ("reader", "+++++ xxx xxxx xxxxxxxxxxx"),
        ("here-user", "+++++ +++ xxxx xxxxxxxxxxx"),
        ("operator", "+++++ +++ ++++ xxxxxxxxxxx"),
    ];
    for (number, ((name, expected), caller)) in (10..).zip(expected.into_iter().zip(&callers)) {
        assert_eq!(may(caller, number).await, expected, "{name}");
    }

    // What is missing is said in a way that programs and people understand.
    let status =
        refused(callers[1].scaling().pause_cluster(pause("here")).await, Code::PermissionDenied, "USAGE_NEEDED", &[]);
    assert!(status.message().contains("GRANT USAGE ON CLUSTER here TO reader"), "{}", status.message());
    refused(anybody.admin().get_cluster(named("here")).await, Code::Unauthenticated, "LOGIN_REQUIRED", &[]);

    // Taken back, it counts at once, also in the middle of a connection.
    root.admin().revoke_usage(usage("here-user", "here")).await.unwrap();
    refused(callers[2].scaling().pause_cluster(pause("here")).await, Code::PermissionDenied, "USAGE_NEEDED", &[]);
    let mut watch = WatchClient::new(callers[2].0.clone());
    let mut watched = watch.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    assert!(watched.message().await.unwrap().is_some(), "it sees what is there");
    root.admin().delete_role(delete("here-user")).await.unwrap();
    // Nor does a watch go on that began when it still could.
    let ended = loop {
        match watched.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a watch that ends says why"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
    refused(callers[2].scaling().pause_cluster(pause("here")).await, Code::Unauthenticated, "INVALID_TOKEN", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_on_the_machine_of_a_node_that_trusts_it_needs_no_login() {
    let node = Node::alone_with(|config| config.trust = Trust::Loopback).await;
    close(&node).await;
    node.admin().create_cluster(create_cluster("demo")).await.unwrap();
    // Under the name of a role it is that role.
    node.admin().create_role(create_role("reader", false)).await.unwrap();
    let mut request = Request::new(create_cluster("other"));
    request.metadata_mut().insert("loadline-actor", "reader".parse().unwrap());
    refused(node.admin().create_cluster(request).await, Code::PermissionDenied, "SUPERUSER_NEEDED", &[]);
    let wrong = Caller::new(&node, Some("Bearer nonsense".to_owned()));
    refused(wrong.admin().get_cluster(named("demo")).await, Code::Unauthenticated, "INVALID_TOKEN", &[]);
}

async fn three(change: impl Fn(&mut ServerConfig)) -> Vec<Node> {
    let places = [Place::new().await, Place::new().await, Place::new().await];
    let peers: Vec<String> = places.iter().map(|place| place.grpc.clone()).collect();
    let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
    let mut nodes = Vec::new();
    for (number, place) in (1..).zip(places) {
        let mut config = place.config(&format!("n{number}"), &peers);
        change(&mut config);
        nodes.push(place.start(config));
    }
    for node in &nodes {
        node.until_ready().await;
    }
    nodes
}

/// Says to the leader, as one of its followers would, that a node of the group wants a superuser.
async fn forge(node: &Node, from: u64, to: u64, group: &str) -> Result<(), Status> {
    let command =
        Command::CreateRole { name: "mallory".to_owned(), superuser: true, verifier: None, if_not_exists: false };
    let asked = Asked { actor: Actor::node("n2", "forged"), request_id: None, commands: vec![command] };
    let envelope = Some(Envelope { group: group.to_owned(), from, to });
    let request = ProposeRequest { envelope, request: asked.encode().into() };
    RaftClient::new(node.channel.clone()).propose(request).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_counts_at_every_node_and_nobody_can_speak_as_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a secret of all three nodes\n").unwrap();
    let nodes = three(|config| config.peer_secret_file.clone_from(&secret)).await;
    let mut status = Vec::new();
    eventually("somebody leads", async || {
        status.clear();
        for node in &nodes {
            status.push(node.status().await);
        }
        status.iter().any(|status| status.role == "leader")
    })
    .await;
    let leads = status.iter().position(|status| status.role == "leader").unwrap();
    let follows = (leads + 1) % 3;
    let root = close(&nodes[follows]).await;
    for node in &nodes {
        // At once, also where it has not arrived yet.
        let caller = Caller::with(node, &root);
        caller.admin().create_cluster(create_cluster(&format!("at-{}", node.grpc.replace(':', "-")))).await.unwrap();
        // What only the leader can do is passed on with the token, and looked at there.
        let nobody = v1::RemovePeerRequest { peer: "nobody".to_owned() };
        refused(caller.operator().remove_peer(nobody.clone()).await, Code::NotFound, "NO_SUCH_PEER", &[]);
        let marked = Caller::new(node, None);
        let mut request = Request::new(nobody);
        request.metadata_mut().insert("loadline-forwarded-by", "n1".parse().unwrap());
        refused(marked.operator().remove_peer(request).await, Code::Unauthenticated, "LOGIN_REQUIRED", &[]);
    }
    let (from, to, group) = (status[follows].id, status[leads].id, &status[leads].group);
    let forged = forge(&nodes[leads], from, to, group).await.expect_err("no pass was shown");
    assert_eq!(forged.code(), Code::Unauthenticated, "{forged:?}");
    let reader = Caller::with(&nodes[leads], &root);
    refused(reader.admin().get_role(named("mallory")).await, Code::NotFound, "NOT_FOUND", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_nodes_prove_nothing_to_each_other_takes_no_roles() {
    let nodes = three(|_| ()).await;
    let node = &nodes[0];
    eventually("it answers", async || {
        node.admin().get_cluster(named("x")).await.is_err_and(|it| it.code() == Code::NotFound)
    })
    .await;
    let status = refused(
        node.admin().create_role(create_role("root", true)).await,
        Code::FailedPrecondition,
        "PEER_SECRET_MISSING",
        &[],
    );
    assert!(status.message().contains("peer_secret_file"), "{}", status.message());
}
