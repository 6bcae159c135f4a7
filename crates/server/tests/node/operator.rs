//! Service `Operator`.

use loadline_api::v1::{
    self, AddPeerRequest, ListPeersRequest, RemovePeerRequest, RestoreSnapshotRequest, RestoreSnapshotResponse,
    SaveSnapshotRequest, StatusRequest, TransferLeadershipRequest,
};
use tonic::{Code, Response, Status};

use crate::common::{Node, create_cluster, create_size, eventually, named, options, refused, set};

async fn save(node: &Node) -> Vec<u8> {
    let mut stream = node.operator().save_snapshot(SaveSnapshotRequest {}).await.unwrap().into_inner();
    let (mut file, mut announced) = (Vec::new(), 0);
    while let Some(part) = stream.message().await.unwrap() {
        announced += part.bytes_total;
        file.extend_from_slice(&part.data);
    }
    assert_eq!(file.len() as u64, announced);
    file
}

async fn restore(node: &Node, id: &str, file: &[u8]) -> Result<Response<RestoreSnapshotResponse>, Status> {
    let mut parts: Vec<RestoreSnapshotRequest> = file
        .chunks(1000)
        .map(|data| RestoreSnapshotRequest { request_id: String::new(), data: data.to_vec().into() })
        .collect();
    if parts.is_empty() {
        parts.push(RestoreSnapshotRequest::default());
    }
    id.clone_into(&mut parts[0].request_id);
    node.operator().restore_snapshot(tokio_stream::iter(parts)).await
}

fn id() -> String {
    options().unwrap().request_id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_tells_how_it_is_and_what_its_hash_was() {
    let node = Node::alone().await;
    let status = node.status().await;
    assert_eq!((status.id, status.name.as_str(), status.role.as_str()), (1, "n1", "leader"));
    assert_eq!((status.leader_id, status.endpoint.as_str()), (1, node.grpc.as_str()));
    assert_eq!((status.http_endpoint.as_str(), status.errors.len()), (node.http.as_str(), 0));
    assert_eq!(status.hash_index, status.applied_index);
    assert_eq!(status.state_hash.len(), 64);
    assert_eq!(status.public_key.len(), 64);
    assert!(status.epoch > 0 && status.incarnation > 0 && status.term > 0 && status.time_ms > 0);
    assert!(status.db_size_bytes > 0 && !status.group.is_empty() && status.rules_version > 0);

    let ask = |hash_index, wait_ms| StatusRequest { hash_index, wait_ms };
    let mut operator = node.operator();
    node.admin().create_cluster(create_cluster("demo")).await.unwrap();
    let then = operator.status(ask(status.applied_index, 0)).await.unwrap().into_inner();
    assert_eq!((then.hash_index, &then.state_hash), (status.applied_index, &status.state_hash));
    let ahead = operator.status(ask(then.applied_index + 1, 50)).await.unwrap().into_inner();
    assert_eq!((ahead.hash_index, ahead.state_hash.as_str()), (then.applied_index + 1, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_are_listed_and_senseless_changes_refused() {
    let node = Node::alone().await;
    let mut operator = node.operator();
    let peers = operator.list_peers(ListPeersRequest {}).await.unwrap().into_inner().peers;
    assert_eq!(peers.len(), 1);
    let peer = peers[0].peer.clone().unwrap();
    assert_eq!((peer.id, peer.name.as_str(), peer.address.as_str()), (1, "n1", node.grpc.as_str()));
    assert!(peers[0].voter && peers[0].leader && peers[0].matched_index > 0);

    let add = |peer: &str, replace: &str| AddPeerRequest { peer: peer.to_owned(), replace: replace.to_owned() };
    let remove = |peer: &str| RemovePeerRequest { peer: peer.to_owned() };
    refused(operator.add_peer(add("", "")).await, Code::InvalidArgument, "INVALID_REQUEST", &["peer"]);
    refused(operator.remove_peer(remove("")).await, Code::InvalidArgument, "INVALID_REQUEST", &["peer"]);
    let status = refused(operator.add_peer(add("n9", "")).await, Code::NotFound, "NO_SUCH_PEER", &[]);
    assert!(status.message().contains("n1"), "{}", status.message());
    refused(operator.add_peer(add("n1", "")).await, Code::AlreadyExists, "ALREADY_VOTER", &[]);
    refused(operator.remove_peer(remove("n9")).await, Code::NotFound, "NO_SUCH_PEER", &[]);
    refused(operator.remove_peer(remove("1")).await, Code::FailedPrecondition, "ONLY_VOTER", &[]);
    let transfer = |to: &str, from: &str| TransferLeadershipRequest { to: to.to_owned(), from: from.to_owned() };
    refused(operator.transfer_leadership(transfer("", "")).await, Code::FailedPrecondition, "ONLY_VOTER", &[]);
    refused(operator.transfer_leadership(transfer("n9", "n1")).await, Code::NotFound, "NO_SUCH_PEER", &[]);
    // Another one was to step down, and it does not lead: nothing to do.
    let answer = operator.transfer_leadership(transfer("", "n2")).await.unwrap().into_inner();
    assert_eq!((answer.leader_id, answer.leader_name.as_str()), (1, "n1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_restored_once_and_starts_a_new_incarnation() {
    let node = Node::alone().await;
    let mut admin = node.admin();
    admin.create_cluster(create_cluster("kept")).await.unwrap();
    admin.create_size(create_size("small", 2)).await.unwrap();
    admin.set_setting(set("request_window", "20m")).await.unwrap();
    let before = node.status().await;
    let file = save(&node).await;
    admin.create_cluster(create_cluster("later")).await.unwrap();

    let id = id();
    let restored = restore(&node, &id, &file).await.unwrap().into_inner();
    assert_eq!(restored.backup_incarnation, before.incarnation);
    assert_eq!(restored.backup_revision, before.applied_index);
    assert!(restored.incarnation > before.incarnation);
    admin.get_cluster(named("kept")).await.unwrap();
    refused(admin.get_cluster(named("later")).await, Code::NotFound, "NOT_FOUND", &[]);
    assert_eq!(node.status().await.incarnation, restored.incarnation);

    // What came after the restore survives a retry of it.
    admin.create_cluster(create_cluster("after")).await.unwrap();
    let index = node.status().await.last_index;
    let again = restore(&node, &id, &file).await.unwrap().into_inner();
    assert_eq!(again, restored);
    admin.get_cluster(named("after")).await.unwrap();
    assert!(node.status().await.last_index > index, "the repeat is in the log, and changed nothing");
    assert_eq!(node.status().await.incarnation, restored.incarnation);
    // A new intent is another restore.
    let anew = restore(&node, &crate::operator::id(), &file).await.unwrap().into_inner();
    assert!(anew.incarnation > restored.incarnation);
    refused(admin.get_cluster(named("after")).await, Code::NotFound, "NOT_FOUND", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_moves_to_another_group() {
    let old = Node::alone().await;
    old.admin().create_cluster(create_cluster("moved")).await.unwrap();
    let file = save(&old).await;
    let new = Node::alone().await;
    let group = new.status().await.group;
    restore(&new, &id(), &file).await.unwrap();
    new.admin().get_cluster(named("moved")).await.unwrap();
    assert_eq!(new.status().await.group, group);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_a_snapshot_leaves_nothing_behind() {
    let node = Node::alone_with(|config| config.limits.restore_max = 1 << 20).await;
    node.admin().create_cluster(create_cluster("kept")).await.unwrap();
    let file = save(&node).await;
    let before = node.status().await.last_index;
    let not_a_snapshot = (Code::InvalidArgument, "NOT_A_SNAPSHOT");
    let mut flipped = file.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for wrong in [&b""[..], b"garbage", &file[..file.len() - 1], &flipped, &[file.as_slice(), b"more"].concat()] {
        refused(restore(&node, &id(), wrong).await, not_a_snapshot.0, not_a_snapshot.1, &[]);
    }
    let too_large = vec![0; (1 << 20) + 1];
    refused(restore(&node, &id(), &too_large).await, Code::InvalidArgument, "TOO_LARGE", &[]);
    for wrong in ["", "nonsense"] {
        refused(restore(&node, wrong, &file).await, Code::InvalidArgument, "INVALID_REQUEST", &["request_id"]);
    }
    let nothing = node.operator().restore_snapshot(tokio_stream::iter(Vec::<RestoreSnapshotRequest>::new())).await;
    refused(nothing, Code::InvalidArgument, "INVALID_REQUEST", &["request_id"]);
    assert_eq!(node.status().await.last_index, before);
    node.admin().get_cluster(named("kept")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_a_node_still_tells_how_it_is() {
    let node = Node::leaderless_with(|_| ()).await;
    assert_eq!(node.status().await.leader_id, 0);
    eventually("it says what it waits for", async || !node.status().await.errors.is_empty()).await;
    let mut operator = node.operator();
    operator.list_peers(ListPeersRequest {}).await.unwrap();
    let remove = RemovePeerRequest { peer: "n1".to_owned() };
    refused(operator.remove_peer(remove).await, Code::Unavailable, "NO_LEADER", &[]);
    refused(node.admin().create_cluster(create_cluster("x")).await, Code::Unavailable, "NO_LEADER", &[]);
    refused(node.admin().get_cluster(named("x")).await, Code::Unavailable, "NO_LEADER", &[]);
    let stale = v1::GetRequest { consistency: v1::Consistency::Stale.into(), ..named("x") };
    refused(node.admin().get_cluster(stale).await, Code::NotFound, "NOT_FOUND", &[]);
    eventually("health says no", async || !crate::http::serving(&node, "").await).await;
}
