//! Messages that make no sense, whoever sends them: a clear refusal, no panic, nothing written.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

use std::io::Write;
use std::net::TcpStream;

use crate::common::impostor::Impostor;
use crate::common::{DEADLINE, Group, Member, dial, eventually, expect_err, request_id, wall_ms};
use futures::stream;
use loadline_api::raft as wire;
use loadline_log::noted_program;
use loadline_raft_node::StopReason;
use loadline_state_machine::{Actor, Command, Entry, Request, Sealed, Time};
use tonic::{Code, Status};

/// A follower, how to reach it, and an envelope and vote that it would take from its leader.
struct Target {
    group: Group,
    place: usize,
    envelope: wire::Envelope,
    vote: wire::Vote,
}

impl Target {
    async fn find() -> Self {
        let group = Group::started(3).await;
        group.members[0].create("demo").await;
        group.agreed().await;
        let (leader, place) = (group.leader().await, group.follower().await);
        let (leads, follows) = (group.members[leader].node().status(), group.members[place].node().status());
        let (from, to) = (leads.id.unwrap(), follows.id.unwrap());
        let envelope = wire::Envelope { group: leads.group, from, to };
        let vote = wire::Vote { term: leads.term, node_id: from, committed: true };
        Self { group, place, envelope, vote }
    }

    fn member(&self) -> &Member {
        &self.group.members[self.place]
    }

    async fn client(&self) -> wire::raft_client::RaftClient<tonic::transport::Channel> {
        dial(&self.member().config.address).await
    }

    async fn append(&self, request: wire::AppendRequest) -> Result<wire::AppendResponse, Status> {
        let mut answers = self.client().await.append(stream::iter([request])).await?.into_inner();
        answers.message().await.map(|answer| answer.expect("an answer or an error"))
    }

    /// A message that the follower would take: an entry that comes next.
    fn next_entry(&self) -> wire::AppendRequest {
        let status = self.member().node().status();
        let asked =
            Request { actor: Actor::new("x", "x"), request_id: Some(request_id()), commands: vec![Command::Tick] };
        let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(1), requests: vec![asked] });
        let entry = wire::LogEntry {
            log_id: Some(wire::LogId { term: self.vote.term, index: status.last_index + 1 }),
            payload: Some(wire::log_entry::Payload::Normal(sealed.bytes().to_vec().into())),
        };
        wire::AppendRequest {
            envelope: Some(self.envelope.clone()),
            vote: Some(self.vote),
            prev_log_id: Some(wire::LogId { term: self.vote.term, index: status.last_index }),
            entries: vec![entry],
            leader_commit: None,
        }
    }

    /// Still the same group, and able to work.
    async fn unharmed(&self) {
        self.member().create(&format!("after-{}", self.member().node().status().last_index)).await;
        self.group.agreed().await;
        for member in &self.group.members {
            assert_eq!(member.node().status().term, self.vote.term, "nobody was elected meanwhile");
        }
    }
}

type Damage = fn(&mut wire::AppendRequest);

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_is_not_meant_for_this_node_or_makes_no_sense_is_refused() {
    let target = Target::find().await;
    let damages: Vec<(&str, Damage)> = vec![
        ("no envelope", |message| message.envelope = None),
        ("another group", |message| message.envelope.as_mut().unwrap().group = "another".into()),
        ("no group", |message| message.envelope.as_mut().unwrap().group.clear()),
        ("another node", |message| message.envelope.as_mut().unwrap().to += 1),
        ("from nobody", |message| message.envelope.as_mut().unwrap().from = 0),
        ("from itself", |message| message.envelope.as_mut().unwrap().from = message.envelope.as_ref().unwrap().to),
        ("no vote", |message| message.vote = None),
        ("a vote for another", |message| message.vote.as_mut().unwrap().node_id += 7),
        ("a vote that was not won", |message| message.vote.as_mut().unwrap().committed = false),
        ("a term beyond every count", |message| message.vote.as_mut().unwrap().term = u64::MAX),
        ("no payload", |message| message.entries[0].payload = None),
        ("no log id", |message| message.entries[0].log_id = None),
        ("a hole", |message| message.entries[0].log_id.as_mut().unwrap().index += 1),
        ("an entry of a later term", |message| message.entries[0].log_id.as_mut().unwrap().term += 1),
        ("garbage", |message| {
            message.entries[0].payload = Some(wire::log_entry::Payload::Normal(b"\x01\x00garbage".to_vec().into()));
        }),
        ("a cut entry", |message| {
            let Some(wire::log_entry::Payload::Normal(bytes)) = &mut message.entries[0].payload else { unreachable!() };
            *bytes = bytes.slice(..bytes.len() - 1);
        }),
        ("voters that are no members", |message| {
            let configs = vec![wire::VoterSet { ids: vec![1, 2, 99] }];
            message.entries[0].payload =
                Some(wire::log_entry::Payload::Membership(wire::Membership { configs, peers: Vec::new() }));
        }),
        ("no voters", |message| {
            let configs = vec![wire::VoterSet { ids: vec![] }];
            message.entries[0].payload =
                Some(wire::log_entry::Payload::Membership(wire::Membership { configs, peers: Vec::new() }));
        }),
    ];
    for (what, damage) in damages {
        let mut message = target.next_entry();
        damage(&mut message);
        let status = expect_err(target.append(message).await);
        assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status}");
    }
    target.unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_snapshots_and_hand_overs_are_checked_alike() {
    let target = Target::find().await;
    let mut client = target.client().await;
    let candidate = wire::Vote { committed: false, term: target.vote.term + 1, ..target.vote };
    let good = wire::VoteRequest {
        envelope: Some(target.envelope.clone()),
        vote: Some(candidate),
        last_log_id: Some(wire::LogId { term: target.vote.term, index: 1_000_000 }),
        leadership_transfer: false,
    };
    for damaged in [
        wire::VoteRequest { envelope: None, ..good.clone() },
        wire::VoteRequest { vote: None, ..good.clone() },
        wire::VoteRequest { vote: Some(wire::Vote { node_id: 9, ..candidate }), ..good.clone() },
        wire::VoteRequest { vote: Some(wire::Vote { committed: true, ..candidate }), ..good.clone() },
        wire::VoteRequest { vote: Some(wire::Vote { term: u64::MAX, ..candidate }), ..good.clone() },
    ] {
        assert_eq!(expect_err(client.vote(damaged.clone()).await).code(), Code::InvalidArgument);
        assert_eq!(expect_err(client.pre_vote(damaged).await).code(), Code::InvalidArgument);
    }
    // While the leader is well nobody else gets a vote, however far its log is.
    assert!(!client.pre_vote(good.clone()).await.unwrap().into_inner().granted);
    assert!(!client.vote(good).await.unwrap().into_inner().granted);

    let hand_over = wire::TransferLeaderRequest {
        envelope: Some(target.envelope.clone()),
        from: Some(wire::Vote { node_id: 9, ..target.vote }),
        to_node: target.envelope.to,
        last_log_id: None,
    };
    assert_eq!(expect_err(client.transfer_leader(hand_over).await).code(), Code::InvalidArgument);

    let head = wire::SnapshotHead {
        envelope: Some(target.envelope.clone()),
        vote: Some(target.vote),
        meta: Some(wire::SnapshotMeta {
            last_log_id: Some(wire::LogId { term: target.vote.term, index: 1_000_000 }),
            membership_log_id: None,
            membership: Some(wire::Membership::default()),
            id: String::new(),
        }),
        bytes_total: 7,
    };
    let head_chunk =
        |head: wire::SnapshotHead| wire::SnapshotChunk { part: Some(wire::snapshot_chunk::Part::Head(head)) };
    let data =
        |bytes: &[u8]| wire::SnapshotChunk { part: Some(wire::snapshot_chunk::Part::Data(bytes.to_vec().into())) };
    let stranger = wire::SnapshotHead { envelope: None, ..head.clone() };
    let pretender = wire::SnapshotHead { vote: Some(wire::Vote { node_id: 9, ..target.vote }), ..head.clone() };
    for chunks in [
        vec![],
        vec![data(b"garbage")],
        vec![head_chunk(stranger), data(b"garbage")],
        vec![head_chunk(pretender), data(b"garbage")],
        vec![head_chunk(head.clone()), data(b"garbage")],
        vec![head_chunk(head.clone()), data(b"short")],
        vec![head_chunk(head.clone()), data(b"much too long")],
        vec![head_chunk(head.clone()), head_chunk(head)],
    ] {
        let status = expect_err(client.install_snapshot(stream::iter(chunks.clone())).await);
        assert_eq!(status.code(), Code::InvalidArgument, "{chunks:?}: {status}");
    }
    let leftovers: Vec<String> =
        target.member().disk.files().into_iter().filter(|file| file.starts_with("snapshots/")).collect();
    assert_eq!(leftovers, [""; 0], "what was refused leaves nothing behind");

    let garbage = wire::ProposeRequest { envelope: Some(target.envelope.clone()), request: b"garbage".to_vec().into() };
    assert_eq!(expect_err(client.propose(garbage).await).code(), Code::InvalidArgument);
    let nobody = wire::JoinRequest { name: String::new(), address: "a:1".into() };
    assert_eq!(expect_err(client.join(nobody).await).code(), Code::InvalidArgument);
    let nowhere = wire::JoinRequest { name: "x".into(), address: "nowhere".into() };
    assert_eq!(expect_err(client.join(nowhere).await).code(), Code::InvalidArgument);
    target.unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_entry_of_a_newer_version_stops_the_node_which_says_who_can_read_it_and_is_never_skipped() {
    let mut target = Target::find().await;
    let place = target.place;
    let node = target.member().node();
    let leader = target.group.leader().await;
    let leads = target.group.members[leader].node().status();
    for other in (0..3).filter(|other| *other != place) {
        target.group.members[other].kill();
    }
    // A leader of a later version, as far as this node can tell.
    let probe = wire::ProbeResponse {
        group: leads.group,
        node_id: leads.id.unwrap(),
        name: leads.name,
        initialised: true,
        wall_clock_ms: i64::try_from(wall_ms()).unwrap(),
        version: "99.1.0".to_owned(),
        ..Default::default()
    };
    let _newer = Impostor::start(&target.group.members[leader].config.address, probe);
    let disk = target.member().disk.clone();
    eventually("the newer version to be noted", async || {
        (noted_program(&disk).as_deref() == Some("99.1.0")).then_some(())
    })
    .await;
    let mut message = target.next_entry();
    let vote = wire::Vote { term: target.vote.term + 1, ..target.vote };
    let log_id = wire::LogId { term: vote.term, index: node.status().last_index + 1 };
    message.vote = Some(vote);
    message.entries[0].log_id = Some(log_id);
    message.entries[0].payload =
        Some(wire::log_entry::Payload::Normal(b"\xff\xff what is yet to come".to_vec().into()));
    message.leader_commit = Some(log_id);
    let before = node.latest().applied();
    // Whether the answer still gets out before the node stops is a matter of luck.
    drop(target.append(message).await);
    let reason = {
        let node = node.clone();
        target.member().run(async move { node.stopped().await }).await
    };
    let said = format!("committed entry {} cannot be read", log_id.index);
    let ours = env!("CARGO_PKG_VERSION");
    let whose = format!("version 99.1.0 wrote to this group, and this is version {ours}");
    assert!(
        matches!(&reason, StopReason::TooOld { what } if what.contains(&said) && what.contains(&whose)),
        "{reason}"
    );
    assert!(node.latest().applied() >= before && node.latest().applied().0 < log_id.index);
    // It is kept, too: after a restart it is still there, and still nothing goes on past it.
    target.group.members[place].kill();
    let error = expect_err(target.group.members[place].try_start().await);
    assert!(error.contains(&said) && error.contains(&whose), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_message_at_all_end_a_connection_and_nothing_else() {
    let target = Target::find().await;
    let mut noise = Vec::new();
    for seed in 0_u32..2_000 {
        noise.extend(seed.wrapping_mul(2_654_435_761).to_le_bytes());
    }
    for _ in 0..20 {
        let mut stream = TcpStream::connect(&target.member().config.address).unwrap();
        // The node may hang up in the middle of it.
        let _ = stream.write_all(&noise);
        noise.rotate_left(13);
    }
    target.unharmed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_nobody_yet_says_so_and_takes_nothing() {
    let mut member = Member::new("n1", 1);
    member.config.join = vec!["127.0.0.1:1".into()];
    member.start().await;
    let mut client = dial(&member.config.address).await;
    let envelope = || Some(wire::Envelope { group: "g".into(), from: 2, to: 1 });
    let vote = wire::VoteRequest { envelope: envelope(), ..Default::default() };
    assert_eq!(expect_err(client.vote(vote).await).code(), Code::FailedPrecondition);
    let append = wire::AppendRequest { envelope: envelope(), ..Default::default() };
    assert_eq!(expect_err(client.append(stream::iter([append])).await).code(), Code::FailedPrecondition);
    let adopt = wire::AdoptRequest {
        group: "g".into(),
        node_id: 2,
        peers: vec![wire::Peer { id: 2, name: "n1".into(), address: "127.0.0.1:9".into() }],
    };
    let answer = client.adopt(adopt).await.unwrap().into_inner();
    assert!(!answer.adopted && answer.reason.contains("not at 127.0.0.1:9"), "{}", answer.reason);
    let probe = client.probe(wire::ProbeRequest::default()).await.unwrap().into_inner();
    assert_eq!((probe.group.as_str(), probe.node_id, probe.initialised), ("", 0, false));
    let node = member.node();
    eventually("it to say what it waits for", async || (!node.status().errors.is_empty()).then_some(())).await;
    tokio::time::timeout(DEADLINE, member.shut_down()).await.unwrap();
}
