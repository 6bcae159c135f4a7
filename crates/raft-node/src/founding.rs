//! How a node with an empty folder gets to be somebody: it founds a group with others, or joins one.
//!
//! Who a node is stands in its data folder and nowhere else. So an empty folder means a node that is nobody yet,
//! whatever its name and address; it never comes back under an old number, because what it may have promised under
//! that number is gone.
//!
//! - The first of the configured peers founds, once all of them answer that they are nobody. It writes down the
//!   group's name and everybody's number, tells each peer who it is, and only when all have written that down does it
//!   make the group. Whoever dies in the middle goes on where it was: telling a peer twice changes nothing.
//! - An empty node that finds a running group among those it knows asks its leader for a number and joins.
//! - Otherwise it waits, and says for whom.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use loadline_api::raft as wire;
use loadline_log::Identity;

use crate::errors::StartError;
use crate::node::{Inner, Running};
use crate::types::Member;

/// How often an empty node looks around.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a node answered to the question who it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Answered {
    pub(crate) name: String,
    /// Empty: nobody yet.
    pub(crate) group: String,
    pub(crate) initialised: bool,
    pub(crate) leader_address: String,
}

/// What an empty node does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Found,
    /// Ask the leader at this address.
    Join(String),
    /// Why not yet.
    Wait(String),
}

/// Decides from what the configured nodes answered, other than this one. None: it did not answer.
pub(crate) fn next_step(me: &str, founders: &[String], answers: &BTreeMap<String, Option<Answered>>) -> Step {
    let live: Vec<&Answered> = answers.values().flatten().filter(|answered| answered.initialised).collect();
    if let Some(first) = live.first() {
        if let Some(other) = live.iter().find(|other| other.group != first.group) {
            return Step::Wait(format!(
                "the configured nodes belong to two groups, {} and {}",
                first.group, other.group
            ));
        }
        return match live.iter().find(|answered| !answered.leader_address.is_empty()) {
            Some(answered) => Step::Join(answered.leader_address.clone()),
            None => Step::Wait(format!("group {} has no leader that could let this node in", first.group)),
        };
    }
    match founders.first() {
        Some(founder) if founder == me => {
            let missing: Vec<&str> = founders
                .iter()
                .filter(|founder| *founder != me && !answers.get(*founder).is_some_and(Option::is_some))
                .map(String::as_str)
                .collect();
            if missing.is_empty() { Step::Found } else { Step::Wait(format!("waiting for {}", missing.join(", "))) }
        }
        Some(founder) => Step::Wait(format!("waiting for {founder} to found the group")),
        None => Step::Wait("no running group was found to join".to_owned()),
    }
}

/// Goes on until this node is part of a group that exists.
pub(crate) async fn run(inner: Arc<Inner>) {
    loop {
        let waiting = match inner.running() {
            Some(running) if running.initialised(&inner) => {
                inner.set_waiting(None);
                return;
            }
            Some(running) => go_on(&inner, &running).await,
            None => look_around(&inner).await,
        };
        inner.set_waiting(waiting);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What a node does that knows who it is, but whose group does not exist yet as far as it knows.
async fn go_on(inner: &Inner, running: &Running) -> Option<String> {
    let identity = &running.identity;
    match &identity.founding {
        Some(members) if members.first().is_some_and(|(id, ..)| *id == identity.node_id) => {
            make_group(inner, running, members).await.err()
        }
        Some(members) => {
            let founder = members.first().map_or("the founder", |(_, _, address)| address);
            Some(format!("waiting for {founder} to found the group"))
        }
        None => Some("waiting for the leader's first entries".to_owned()),
    }
}

/// Tells every founding member who it is, then makes the group.
async fn make_group(inner: &Inner, running: &Running, members: &[(u64, String, String)]) -> Result<(), String> {
    let identity = &running.identity;
    let peers: Vec<wire::Peer> = members
        .iter()
        .map(|(id, name, address)| wire::Peer { id: *id, name: name.clone(), address: address.clone() })
        .collect();
    for (id, name, address) in members.iter().filter(|(id, ..)| *id != identity.node_id) {
        let request = wire::AdoptRequest { group: identity.group.clone(), node_id: *id, peers: peers.clone() };
        match inner.links.adopt(address, request).await {
            Ok(answer) if answer.adopted => {}
            Ok(answer) => return Err(format!("{name} at {address} does not take part: {}", answer.reason)),
            Err(status) => return Err(format!("waiting for {name} at {address}: {}", status.message())),
        }
    }
    let members: BTreeMap<u64, Member> = members
        .iter()
        .map(|(id, name, address)| (*id, Member { name: name.clone(), address: address.clone() }))
        .collect();
    tracing::info!(group = identity.group, members = members.len(), "every member knows who it is: making the group");
    running.raft.initialize(members).await.map_err(|error| format!("the group cannot be made: {error}"))
}

async fn look_around(inner: &Arc<Inner>) -> Option<String> {
    let founders = inner.config.founding_addresses();
    let me = &inner.config.address;
    let mut addresses: Vec<String> =
        founders.iter().chain(&inner.config.join).filter(|it| *it != me).cloned().collect();
    addresses.sort_unstable();
    addresses.dedup();
    let ask = |address: String| async move {
        let answer = inner.links.probe(&address, wire::ProbeRequest::default()).await.ok().map(|answer| Answered {
            name: answer.name,
            group: answer.group,
            initialised: answer.initialised,
            leader_address: answer.leader_address,
        });
        (address, answer)
    };
    let answers: BTreeMap<String, Option<Answered>> =
        join_all(addresses.into_iter().map(ask)).await.into_iter().collect();
    let outcome = match next_step(me, &founders, &answers) {
        Step::Wait(reason) => return Some(reason),
        Step::Found => found(inner, &founders, &answers).await,
        Step::Join(leader) => join(inner, &leader).await,
    };
    outcome.err()
}

/// Writes down a new group with everybody's number. From here on a crash goes on with the same group.
async fn found(
    inner: &Arc<Inner>,
    founders: &[String],
    answers: &BTreeMap<String, Option<Answered>>,
) -> Result<(), String> {
    let members: Vec<(u64, String, String)> = (1..)
        .zip(founders)
        .map(|(id, address)| {
            let name = if *address == inner.config.address {
                inner.config.name.clone()
            } else {
                answers.get(address).and_then(Option::as_ref).map(|answered| answered.name.clone()).unwrap_or_default()
            };
            (id, name, address.clone())
        })
        .collect();
    let mut names: Vec<&str> = members.iter().map(|(_, name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!(
            "two of the configured nodes are called {:?}: every node needs a name of its own",
            pair[0]
        ));
    }
    let group = group_name(inner.clock.random_u128());
    tracing::info!(group, "founding a group of {}", members.len());
    let identity = Identity { group, node_id: 1, name: inner.config.name.clone(), founding: Some(members) };
    become_somebody(inner, identity).await.map_err(|error| crate::storage::causes(&error))
}

/// A UUID of version 4, in its usual form.
fn group_name(random: u128) -> String {
    let version = (random & !(0xf << 76)) | (4 << 76);
    let bits = (version & !(0b11 << 62)) | (0b10 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

async fn join(inner: &Arc<Inner>, leader: &str) -> Result<(), String> {
    let request = wire::JoinRequest { name: inner.config.name.clone(), address: inner.config.address.clone() };
    let answer = inner
        .links
        .join(leader, request, inner.config.timing.propose)
        .await
        .map_err(|status| format!("the leader at {leader} did not let this node in: {}", status.message()))?;
    if answer.group.is_empty() || answer.node_id == 0 {
        return Err(format!("the answer of the leader at {leader} makes no sense"));
    }
    tracing::info!(group = answer.group, id = answer.node_id, "joining a running group");
    let name = inner.config.name.clone();
    let identity = Identity { group: answer.group, node_id: answer.node_id, name, founding: None };
    become_somebody(inner, identity).await.map_err(|error| crate::storage::causes(&error))
}

/// Writes down who this node is, and starts its Raft. Does nothing if it became somebody else meanwhile.
async fn become_somebody(inner: &Arc<Inner>, identity: Identity) -> Result<(), StartError> {
    let _one_at_a_time = inner.becoming.lock().await;
    if inner.running().is_some() {
        return Ok(());
    }
    identity.store(inner.storage.disk.as_ref()).map_err(StartError::Identity)?;
    inner.run_as(identity).await
}

/// The founder says who this node is. The reason, if this node does not take that on.
pub(crate) async fn adopt(inner: &Arc<Inner>, request: wire::AdoptRequest) -> Result<(), String> {
    let members: Vec<(u64, String, String)> =
        request.peers.into_iter().map(|peer| (peer.id, peer.name, peer.address)).collect();
    let (me, name) = (&inner.config.address, &inner.config.name);
    let meant = members.iter().find(|(id, ..)| *id == request.node_id);
    match meant {
        _ if request.group.is_empty() => return Err("the group has no name".to_owned()),
        None => return Err(format!("number {} is not among the members", request.node_id)),
        Some((_, _, address)) if address != me => return Err(format!("this node is at {me}, not at {address}")),
        Some((_, other, _)) if other != name => return Err(format!("this node is called {name}, not {other}")),
        Some(_) => {}
    }
    let _one_at_a_time = inner.becoming.lock().await;
    let identity =
        Identity { group: request.group, node_id: request.node_id, name: name.clone(), founding: Some(members) };
    if let Some(running) = inner.running() {
        let current = &running.identity;
        if current.group == identity.group && current.node_id == identity.node_id {
            return Ok(());
        }
        let belongs = || format!("this node belongs to group {} as number {}", current.group, current.node_id);
        if running.initialised(inner) || current.founding.is_none() {
            return Err(belongs());
        }
        // An earlier founding told this node who it is and then never made the group, because the founder lost its
        // folder. Nothing was promised under that number, so it can be given up. That is certain only once Raft stands
        // still: until then a vote may still come in.
        inner.stop_running(&running).await;
        if running.initialised(inner) {
            let current = running.identity.clone();
            inner.run_as(current).await.map_err(|error| crate::storage::causes(&error))?;
            return Err(belongs());
        }
        tracing::info!(group = identity.group, "taken up by another founding; the one before was never finished");
    }
    let store = identity.store(inner.storage.disk.as_ref()).map_err(StartError::Identity);
    match store {
        Ok(()) => inner.run_as(identity).await.map_err(|error| crate::storage::causes(&error)),
        Err(error) => Err(crate::storage::causes(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUNDERS: [&str; 3] = ["a:1", "b:1", "c:1"];

    fn empty() -> Option<Answered> {
        Some(Answered::default())
    }

    fn adopted() -> Option<Answered> {
        Some(Answered { group: "half-made".into(), ..Answered::default() })
    }

    fn live(group: &str, leader: &str) -> Option<Answered> {
        let (group, leader_address) = (group.to_owned(), leader.to_owned());
        Some(Answered { group, initialised: true, leader_address, ..Answered::default() })
    }

    fn check(me: &str, answers: &[(&str, Option<Answered>)], expected: &Step) {
        let founders = FOUNDERS.map(str::to_owned);
        let answers = answers.iter().map(|(address, answer)| ((*address).to_owned(), answer.clone())).collect();
        assert_eq!(next_step(me, &founders, &answers), *expected, "{me}, {answers:?}");
    }

    fn wait(reason: &str) -> Step {
        Step::Wait(reason.to_owned())
    }

    #[test]
    fn the_first_peer_founds_when_all_answer_that_they_are_nobody() {
        check("a:1", &[("b:1", empty()), ("c:1", empty())], &Step::Found);
        check("a:1", &[("b:1", adopted()), ("c:1", empty())], &Step::Found);
        check("a:1", &[("b:1", empty()), ("c:1", None)], &wait("waiting for c:1"));
        check("a:1", &[], &wait("waiting for b:1, c:1"));
    }

    #[test]
    fn nobody_but_the_first_peer_founds() {
        check("b:1", &[("a:1", empty()), ("c:1", empty())], &wait("waiting for a:1 to found the group"));
        check("b:1", &[("a:1", None), ("c:1", None)], &wait("waiting for a:1 to found the group"));
        assert_eq!(next_step("d:1", &[], &BTreeMap::new()), wait("no running group was found to join"));
    }

    #[test]
    fn an_empty_node_that_finds_a_running_group_joins_it_and_never_founds_another() {
        check("a:1", &[("b:1", live("g", "b:1")), ("c:1", empty())], &Step::Join("b:1".into()));
        check("a:1", &[("b:1", live("g", "")), ("c:1", live("g", "b:1"))], &Step::Join("b:1".into()));
        check(
            "a:1",
            &[("b:1", live("g", "")), ("c:1", empty())],
            &wait("group g has no leader that could let this node in"),
        );
        check(
            "a:1",
            &[("b:1", live("g", "b:1")), ("c:1", live("h", "c:1"))],
            &wait("the configured nodes belong to two groups, g and h"),
        );
    }

    #[test]
    fn a_single_node_founds_at_once() {
        assert_eq!(next_step("a:1", &["a:1".to_owned()], &BTreeMap::new()), Step::Found);
    }

    #[test]
    fn a_group_is_named_by_a_uuid_of_version_4() {
        assert_eq!(group_name(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(group_name(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
