//! Nodes and peers as they are shown.

use loadline_client::NodeReport;
use loadline_client::v1::PeerStatus;
use serde::Serialize;

use super::{Column, View};
use crate::text::{show_bytes, show_time};

/// One node. The first nine keys are an interface; more may follow them. What is not known is null.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NodeView {
    pub(crate) id: Option<u64>,
    pub(crate) endpoint: String,
    pub(crate) role: Option<String>,
    pub(crate) term: Option<u64>,
    last_index: Option<u64>,
    applied_index: Option<u64>,
    pub(crate) hash_index: Option<u64>,
    /// Hexadecimal; empty if the node does not have it at `hash_index`.
    pub(crate) state_hash: Option<String>,
    pub(crate) errors: Vec<String>,
    pub(crate) name: Option<String>,
    version: Option<String>,
    db_size: Option<u64>,
    /// The id of the leader as this node knows it.
    leader: Option<u64>,
    http_endpoint: Option<String>,
    group: Option<String>,
    incarnation: Option<u64>,
    epoch: Option<u64>,
    rules_version: Option<u32>,
    snapshot_index: Option<u64>,
    purged_index: Option<u64>,
    time: Option<String>,
    /// Of the key that signs its exports, hexadecimal.
    pub(crate) public_key: Option<String>,
}

impl From<NodeReport> for NodeView {
    fn from(report: NodeReport) -> NodeView {
        let id = report.id();
        let known_name = report.known_as.map(|peer| peer.name);
        let status = report.status;
        let has = |text: String| Some(text).filter(|text| !text.is_empty());
        let of = |number: fn(&loadline_client::v1::NodeStatus) -> u64| status.as_ref().map(number);
        let mut view = NodeView {
            id,
            endpoint: report.endpoint,
            role: None,
            term: of(|s| s.term),
            last_index: of(|s| s.last_index),
            applied_index: of(|s| s.applied_index),
            hash_index: of(|s| s.hash_index),
            state_hash: None,
            errors: report.error.into_iter().collect(),
            name: known_name,
            version: None,
            db_size: of(|s| s.db_size_bytes),
            leader: of(|s| s.leader_id).filter(|id| *id > 0),
            http_endpoint: None,
            group: None,
            incarnation: of(|s| s.incarnation),
            epoch: of(|s| s.epoch),
            rules_version: status.as_ref().map(|s| s.rules_version),
            snapshot_index: of(|s| s.snapshot_index),
            purged_index: of(|s| s.purged_index),
            time: status.as_ref().map(|s| show_time(s.time_ms)).and_then(has),
            public_key: None,
        };
        if let Some(status) = status {
            view.role = has(status.role);
            view.state_hash = Some(status.state_hash);
            view.name = has(status.name);
            view.version = has(status.version);
            view.http_endpoint = has(status.http_endpoint);
            view.group = has(status.group);
            view.public_key = has(status.public_key);
            view.errors.extend(status.errors);
            // Where other nodes reach it says more than the way in which it was found.
            view.endpoint = has(status.endpoint).unwrap_or(view.endpoint);
        }
        view
    }
}

fn show<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
}

impl NodeView {
    /// Everything that is known, for `describe`.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![
            ("Id", show(&self.id)),
            ("Name", show(&self.name)),
            ("Endpoint", self.endpoint.clone()),
            ("HTTP", show(&self.http_endpoint)),
            ("Version", show(&self.version)),
            ("Role", show(&self.role)),
            ("Leader", show(&self.leader)),
            ("Term", show(&self.term)),
            ("Last index", show(&self.last_index)),
            ("Applied index", show(&self.applied_index)),
            ("Snapshot index", show(&self.snapshot_index)),
            ("Purged index", show(&self.purged_index)),
            ("Hash index", show(&self.hash_index)),
            ("State hash", show(&self.state_hash)),
            ("Database size", self.db_size.map(show_bytes).unwrap_or_default()),
            ("Group", show(&self.group)),
            ("Incarnation", show(&self.incarnation)),
            ("Epoch", show(&self.epoch)),
            ("Rules version", show(&self.rules_version)),
            ("Time", show(&self.time)),
            ("Public key", show(&self.public_key)),
        ];
        pairs.extend(self.errors.iter().map(|error| ("Error", error.clone())));
        pairs
    }
}

impl View for NodeView {
    const COLUMNS: &'static [Column] = &[
        Column::always("ID"),
        Column::always("NAME"),
        Column::always("ENDPOINT"),
        Column::always("VERSION"),
        Column::always("DB-SIZE"),
        Column::always("ROLE"),
        Column::always("LEADER"),
        Column::always("TERM"),
        Column::always("INDEX"),
        Column::always("APPLIED"),
        Column::always("HASH-INDEX"),
        Column::always("HASH"),
        Column::wide("STATE-HASH"),
        Column::wide("SNAPSHOT"),
        Column::wide("PURGED"),
        Column::wide("INCARNATION"),
        Column::wide("EPOCH"),
        Column::wide("RULES"),
        Column::wide("HTTP"),
        Column::wide("GROUP"),
        Column::wide("PUBLIC-KEY"),
        Column::always("ERRORS"),
    ];

    fn cells(&self) -> Vec<String> {
        let hash = show(&self.state_hash);
        vec![
            show(&self.id),
            show(&self.name),
            self.endpoint.clone(),
            show(&self.version),
            self.db_size.map(show_bytes).unwrap_or_default(),
            show(&self.role),
            show(&self.leader),
            show(&self.term),
            show(&self.last_index),
            show(&self.applied_index),
            show(&self.hash_index),
            // Enough to see that two differ; the whole is in -o wide.
            hash.get(..12).unwrap_or(&hash).to_owned(),
            hash,
            show(&self.snapshot_index),
            show(&self.purged_index),
            show(&self.incarnation),
            show(&self.epoch),
            show(&self.rules_version),
            show(&self.http_endpoint),
            show(&self.group),
            show(&self.public_key),
            self.errors.join("; "),
        ]
    }

    fn name(&self) -> String {
        format!("nodes/{}", self.name.clone().unwrap_or_else(|| self.endpoint.clone()))
    }
}

/// One member of the group, as the node that answered knows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PeerView {
    id: u64,
    name: String,
    address: String,
    voter: bool,
    leader: bool,
    /// Null where the leader does not say.
    matched_index: Option<u64>,
    last_heard_ms: Option<u64>,
}

impl From<PeerStatus> for PeerView {
    fn from(status: PeerStatus) -> PeerView {
        let peer = status.peer.unwrap_or_default();
        PeerView {
            id: peer.id,
            name: peer.name,
            address: peer.address,
            voter: status.voter,
            leader: status.leader,
            matched_index: Some(status.matched_index).filter(|index| *index > 0),
            last_heard_ms: u64::try_from(status.last_heard_ms).ok(),
        }
    }
}

impl View for PeerView {
    const COLUMNS: &'static [Column] = &[
        Column::always("ID"),
        Column::always("NAME"),
        Column::always("ADDRESS"),
        Column::always("VOTER"),
        Column::always("LEADER"),
        Column::always("MATCHED"),
        Column::always("HEARD"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.address.clone(),
            self.voter.to_string(),
            self.leader.to_string(),
            show(&self.matched_index),
            self.last_heard_ms.map(|ms| format!("{ms}ms")).unwrap_or_default(),
        ]
    }

    fn name(&self) -> String {
        format!("nodes/{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use loadline_client::v1::NodeStatus;

    use super::super::{Format, list};
    use super::*;

    fn reports() -> [NodeView; 2] {
        let status = NodeStatus {
            id: 1,
            name: "n1".to_owned(),
            endpoint: "127.0.0.1:7701".to_owned(),
            version: "0.1.0".to_owned(),
            role: "leader".to_owned(),
            term: 2,
            leader_id: 1,
            last_index: 12,
            applied_index: 11,
            hash_index: 10,
            state_hash: "ab".repeat(32),
            db_size_bytes: 16 << 20,
            ..NodeStatus::default()
        };
        let alive = NodeReport { endpoint: "localhost:7701".into(), known_as: None, status: Some(status), error: None };
        let dead = NodeReport {
            endpoint: "127.0.0.1:7702".into(),
            known_as: None,
            status: None,
            error: Some("connection refused".into()),
        };
        [alive.into(), dead.into()]
    }

    #[test]
    fn the_keys_of_a_node_begin_with_those_that_others_rely_on() {
        let json = list(Format::Json, "nodes", None, &reports()).expect("JSON");
        let expected = [
            "{",
            "\"nodes\"",
            "{",
            "\"id\": 1",
            "\"endpoint\": \"127.0.0.1:7701\"",
            "\"role\": \"leader\"",
            "\"term\": 2",
            "\"last_index\": 12",
            "\"applied_index\": 11",
            "\"hash_index\": 10",
            "\"state_hash\": \"abab",
            "\"errors\": []",
        ];
        for (line, start) in json.lines().map(str::trim).zip(expected) {
            assert!(line.starts_with(start), "{line} instead of {start}");
        }
        let parsed: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let dead = &parsed["nodes"][1];
        assert_eq!((&dead["id"], &dead["state_hash"]), (&serde_json::Value::Null, &serde_json::Value::Null));
        assert_eq!(dead["errors"], serde_json::json!(["connection refused"]));
    }

    #[test]
    fn a_node_that_does_not_answer_is_a_row_with_its_error() {
        let table = list(Format::Table, "nodes", None, &reports()).expect("a table");
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..6], ["1", "n1", "127.0.0.1:7701", "0.1.0", "16MiB", "leader"]);
        assert_eq!(lines[2][..4], ["-", "-", "127.0.0.1:7702", "-"]);
        assert_eq!(lines[2][lines[2].len() - 2..], ["connection", "refused"]);
    }
}
