//! Every node's own view of itself, side by side.
//!
//! Each endpoint is asked, and each peer that any of them knows of: a list of endpoints in a context may be shorter
//! than the group. State hashes are taken at one index, because hashes at different indexes say nothing about
//! whether two nodes agree.

use std::time::Duration;

use futures::future::join_all;
use loadline_api::v1::{ListPeersRequest, NodeStatus, Peer, StatusRequest};

use crate::client::Client;
use crate::endpoint::{Endpoint, NotConnected};
use crate::error::Failure;
use crate::operator::operator;

/// One node, or one endpoint behind which no node was found.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeReport {
    /// Where it was asked.
    pub endpoint: String,
    /// What a peer said of it, for a node that does not answer itself.
    pub known_as: Option<Peer>,
    /// What it said of itself. Its hash is at the index that was agreed on for all nodes, or empty.
    pub status: Option<NodeStatus>,
    /// Why it did not answer.
    pub error: Option<String>,
}

impl NodeReport {
    pub fn id(&self) -> Option<u64> {
        let id = self.status.as_ref().map(|status| status.id).or(self.known_as.as_ref().map(|peer| peer.id));
        id.filter(|id| *id > 0)
    }
}

/// How long nodes that are behind may take to reach the index at which hashes are compared.
const CATCH_UP: Duration = Duration::from_secs(1);

impl Client {
    /// One report for every node, ordered by id; those without an id last. Never fails: a node that does not answer is
    /// a report with its error.
    pub async fn status_all(&self) -> Vec<NodeReport> {
        let mut reports: Vec<NodeReport> = Vec::new();
        let mut peers: Vec<Peer> = Vec::new();
        let mut asked: Vec<Endpoint> = self.pool.all().to_vec();
        let mut round = asked.clone();
        // Peers may know of further peers while membership changes; each is asked once.
        while !round.is_empty() {
            for (report, known) in join_all(round.iter().map(|endpoint| self.look_at(endpoint))).await {
                reports.push(report);
                peers.extend(known);
            }
            round = peers
                .iter()
                .filter(|peer| !reports.iter().any(|report| report.status.as_ref().is_some_and(|s| s.id == peer.id)))
                .filter_map(|peer| peer.address.parse().ok())
                .filter(|endpoint| !asked.contains(endpoint))
                .collect();
            round.sort();
            round.dedup();
            asked.extend(round.iter().cloned());
        }
        let mut reports = one_per_node(reports, &peers);
        add_unseen(&mut reports, &peers);
        self.take_hashes(&mut reports).await;
        reports
    }

    /// A node's status, and the peers it knows.
    async fn look_at(&self, endpoint: &Endpoint) -> (NodeReport, Vec<Peer>) {
        let mut report = NodeReport { endpoint: endpoint.to_string(), known_as: None, status: None, error: None };
        match self.status_of(endpoint, 0, Duration::ZERO).await {
            Ok(status) => report.status = Some(status),
            Err(why) => {
                report.error = Some(why);
                return (report, Vec::new());
            }
        }
        let Ok(channel) = self.pool.channel(endpoint).await else { return (report, Vec::new()) };
        let mut service = operator(channel);
        let listing = service.list_peers(self.request(ListPeersRequest {}, None));
        let known = match tokio::time::timeout(self.options.attempt_timeout, listing).await {
            Ok(Ok(answer)) => answer.into_inner().peers.into_iter().filter_map(|peer| peer.peer).collect(),
            // A node that cannot name its peers, such as one that is joining, still has a status of its own.
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        (report, known)
    }

    async fn status_of(&self, endpoint: &Endpoint, hash_index: u64, wait: Duration) -> Result<NodeStatus, String> {
        let channel = self.pool.channel(endpoint).await.map_err(|NotConnected(why)| why)?;
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let mut service = operator(channel);
        let asking = service.status(self.request(StatusRequest { hash_index, wait_ms }, None));
        match tokio::time::timeout(self.options.attempt_timeout.saturating_add(wait), asking).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => {
                self.pool.forget(endpoint);
                Err(match Failure::of(&status) {
                    Failure::Refused(refusal) | Failure::NotNow { refusal, .. } => refusal.to_string(),
                    Failure::NotSent(why) | Failure::NoAnswer { why, .. } => why,
                })
            }
            Err(_) => {
                self.pool.forget(endpoint);
                Err(format!("no answer within {:?}", self.options.attempt_timeout))
            }
        }
    }

    /// Asks every node for its hash at one index: the lowest that all have applied, which needs no waiting; and if one
    /// has forgotten the hash there, the highest, which the others have yet to reach.
    async fn take_hashes(&self, reports: &mut [NodeReport]) {
        // A node that is still joining has applied nothing that could be compared.
        let applied = |reports: &[NodeReport]| -> Vec<u64> {
            reports.iter().filter_map(|r| r.status.as_ref()).map(|s| s.applied_index).filter(|i| *i > 0).collect()
        };
        let Some(lowest) = applied(reports).into_iter().min() else { return };
        if self.hashes_at(reports, lowest, Duration::ZERO).await {
            return;
        }
        let Some(highest) = applied(reports).into_iter().max() else { return };
        self.hashes_at(reports, highest, CATCH_UP).await;
    }

    /// Says whether every node that has applied anything had it.
    async fn hashes_at(&self, reports: &mut [NodeReport], index: u64, wait: Duration) -> bool {
        let asking = reports.iter().map(async |report| {
            // A node that did not answer a moment ago is not asked again: that would only double the wait.
            report.status.as_ref()?;
            let endpoint: Endpoint = report.endpoint.parse().ok()?;
            Some(self.status_of(&endpoint, index, wait).await)
        });
        let answers = join_all(asking).await;
        let mut all = true;
        for (report, answer) in reports.iter_mut().zip(answers) {
            let Some(status) = report.status.as_mut() else { continue };
            match answer {
                Some(Ok(fresh)) => *status = fresh,
                Some(Err(why)) => report.error = Some(why),
                None => continue,
            }
            let told = status.hash_index == index && !status.state_hash.is_empty() && report.error.is_none();
            if !told {
                // The hash at any other index must not stand beside those of the others.
                status.hash_index = index;
                status.state_hash.clear();
                all &= status.applied_index == 0;
            }
        }
        all
    }
}

/// Drops reports of the same node, and gives those without an answer the name that their peers know.
fn one_per_node(reports: Vec<NodeReport>, peers: &[Peer]) -> Vec<NodeReport> {
    let mut kept: Vec<NodeReport> = Vec::new();
    for mut report in reports {
        if report.status.is_none() {
            report.known_as = peers.iter().find(|peer| same_address(&peer.address, &report.endpoint)).cloned();
        }
        let answered = report.status.is_some();
        let again = |other: &&mut NodeReport| report.id().is_some() && other.id() == report.id();
        match kept.iter_mut().find(again) {
            Some(other) if other.status.is_none() && answered => *other = report,
            Some(_) => {}
            None => kept.push(report),
        }
    }
    kept
}

/// A member that no report is about: its address is wrong, or another node has taken its place there.
fn add_unseen(reports: &mut Vec<NodeReport>, peers: &[Peer]) {
    for peer in peers {
        if reports.iter().any(|report| report.id() == Some(peer.id)) {
            continue;
        }
        let at = reports.iter().find(|report| same_address(&peer.address, &report.endpoint)).and_then(NodeReport::id);
        let error = match at {
            Some(other) => format!("node {other} answers at its address"),
            None => format!("'{}' is not an address", peer.address),
        };
        reports.push(NodeReport {
            endpoint: peer.address.clone(),
            known_as: Some(peer.clone()),
            status: None,
            error: Some(error),
        });
    }
    reports.sort_by_key(|report| (report.id().unwrap_or(u64::MAX), report.endpoint.clone()));
}

fn same_address(address: &str, endpoint: &str) -> bool {
    address.parse::<Endpoint>().is_ok_and(|parsed| parsed.as_str() == endpoint)
}
