//! Three nodes: any of them answers, and what only the leader can do finds its way there.

use std::time::{Duration, Instant};

use loadline_api::v1::{self, ListPeersRequest, RemovePeerRequest, TransferLeadershipRequest, WatchRequest};
use loadline_server::ServerConfig;
use tonic::Code;

use crate::common::{Node, Place, create_cluster, create_size, eventually, named, options, refused, set};
use crate::scaling::{on, scaling, strategy};

async fn three() -> Vec<Node> {
    three_with(|_| ()).await
}

async fn three_with(change: impl Fn(&mut ServerConfig)) -> Vec<Node> {
    let places = [Place::new().await, Place::new().await, Place::new().await];
    let peers: Vec<String> = places.iter().map(|place| place.grpc.clone()).collect();
    let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
    let mut nodes = Vec::new();
    for (number, place) in (1..).zip(places) {
        let mut config = place.config(&format!("n{number}"), &peers);
        // On a machine that does a lot of other things at once, nobody should be elected but by a test.
        config.election_timeout_min = Duration::from_secs(1);
        config.election_timeout_max = Duration::from_secs(2);
        change(&mut config);
        nodes.push(place.start(config));
    }
    for node in &nodes {
        node.until_ready().await;
    }
    nodes
}

/// Where the leader is among the nodes, as all of them see it.
async fn leader(nodes: &[Node]) -> usize {
    let mut found = None;
    eventually("the nodes agree on a leader", async || {
        let mut seen = Vec::new();
        for node in nodes {
            seen.push(node.status().await);
        }
        found = seen.iter().position(|status| status.role == "leader");
        found.is_some_and(|at| seen.iter().all(|status| status.leader_id == seen[at].id))
    })
    .await;
    found.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_answers_and_operator_calls_find_the_leader() {
    let nodes = three().await;
    let at = leader(&nodes).await;
    let follower = &nodes[(at + 1) % 3];
    follower.admin().create_cluster(create_cluster("demo")).await.unwrap();
    for node in &nodes {
        node.admin().get_cluster(named("demo")).await.unwrap();
    }
    // Only the leader knows how far the others are, and a follower asks it.
    let peers = follower.operator().list_peers(ListPeersRequest {}).await.unwrap().into_inner().peers;
    assert_eq!(peers.len(), 3);
    assert!(peers.iter().all(|peer| peer.matched_index > 0), "{peers:?}");
    // The leader's refusal comes back as it is.
    let nobody = RemovePeerRequest { peer: "n9".to_owned() };
    refused(follower.operator().remove_peer(nobody).await, Code::NotFound, "NO_SUCH_PEER", &[]);

    // A node that does not lead gives nothing away.
    let name = |at: usize| format!("n{}", at % 3 + 1);
    let give_up = |from: String| TransferLeadershipRequest { to: String::new(), from };
    let answer = follower.operator().transfer_leadership(give_up(name(at + 1))).await.unwrap().into_inner();
    assert_eq!(answer.leader_name, name(at));
    assert_eq!(leader(&nodes).await, at);
    let to = TransferLeadershipRequest { to: name(at + 2), from: name(at) };
    let answer = follower.operator().transfer_leadership(to).await.unwrap().into_inner();
    assert_eq!(answer.leader_name, name(at + 2));
    assert_eq!(leader(&nodes).await, (at + 2) % 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_refuses_nothing_for_what_it_has_not_heard_of_yet() {
    let nodes = three().await;
    let follower = &nodes[(leader(&nodes).await + 1) % 3];
    let (mut admin, mut scaling) = (follower.admin(), scaling(follower));
    admin.set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    admin.create_cluster(create_cluster("demo")).await.unwrap();
    for size in (0..10).map(|number| format!("size-{number}")) {
        // The leader answers that it is there, and this one hears of that with the next message.
        admin.create_size(create_size(&size, 1)).await.unwrap();
        scaling.create_strategy(strategy("target_size", "demo", &[("SIZE", &size)])).await.unwrap();
        let delete = v1::DeleteStrategiesRequest { options: options(), target: on("demo") };
        scaling.delete_strategies(delete).await.unwrap();
    }
    let unknown = scaling.create_strategy(strategy("target_size", "demo", &[("SIZE", "huge")])).await;
    refused(unknown, Code::InvalidArgument, "UNKNOWN_SIZE", &["strategy.options[size]"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_asked_to_end_hands_on_and_watchers_resume_elsewhere() {
    // By himself nobody stands for election while this test lasts: whoever leads afterwards was handed leadership.
    let mut nodes = three_with(|config| {
        config.election_timeout_min = Duration::from_secs(300);
        config.election_timeout_max = Duration::from_secs(600);
    })
    .await;
    let at = leader(&nodes).await;
    let old = nodes.remove(at);
    let mut stream = old.watch().watch(WatchRequest::default()).await.unwrap().into_inner();
    let seen = stream.message().await.unwrap().unwrap().revision;
    let (ended, _folder) = old.stop().await;
    ended.unwrap();
    let now = leader(&nodes).await;
    nodes[now].admin().create_cluster(create_cluster("after")).await.unwrap();
    let resume =
        WatchRequest { from_revision: seen + 1, kinds: vec!["clusters".to_owned()], ..WatchRequest::default() };
    let mut stream = nodes[1 - now].watch().watch(resume).await.unwrap().into_inner();
    let message = stream.message().await.unwrap().unwrap();
    assert!(message.revision > seen, "{message:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_grow_old_are_renewed_and_nobody_loses_a_leader_or_a_write() {
    let nodes = three_with(|config| config.limits.connection_age_max = Duration::from_secs(1)).await;
    let at = leader(&nodes).await;
    let before = nodes[at].status().await.term;
    let began = Instant::now();
    let mut written = 0;
    // Long enough for every connection to be renewed twice, those between the nodes too.
    while began.elapsed() < Duration::from_secs(4) {
        for node in &nodes {
            // A call that meets the end of its connection fails once, and is asked again as every client does.
            let request = create_cluster(&format!("c{written}"));
            eventually("it is recorded", async || node.admin().create_cluster(request.clone()).await.is_ok()).await;
            written += 1;
        }
    }
    assert_eq!((leader(&nodes).await, nodes[at].status().await.term), (at, before));
}
