//! What must hold between values, and the one default that follows from another value.

use std::time::Duration;

use super::load::Origins;
use super::{Origin, Problem, ServerConfig};

/// Fills in `advertise`, then reports every relation that does not hold.
pub(super) fn check(config: &mut ServerConfig, origins: &Origins, problems: &mut Vec<Problem>) {
    let mut report = |key: &str, message: String| {
        let origin = origins.get(key).cloned().unwrap_or(Origin::Default);
        problems.push(Problem { key: key.to_owned(), origin, message });
    };

    if config.name.is_empty() {
        report("name", "is missing; give every node its own, such as name = \"n1\" or --name n1".to_owned());
    }

    if config.advertise.is_empty() {
        if is_wildcard(&config.grpc_listen) {
            report(
                "advertise",
                format!(
                    "is missing; nobody can connect to {}, so say at which host:port other nodes reach this one",
                    config.grpc_listen
                ),
            );
        }
        config.advertise = config.grpc_listen.clone();
    } else if is_wildcard(&config.advertise) {
        report("advertise", format!("nobody can connect to {}; write the host:port of this node", config.advertise));
    }

    if config.peers.is_empty() && config.join.is_empty() {
        report(
            "peers",
            format!(
                "is missing; name all nodes that found the group (for a group of one: peers = [{:?}]), or a node of a \
                 running group with join",
                config.advertise
            ),
        );
    }
    // Without this a typo in one address leaves a node that waits for itself.
    if !config.peers.is_empty() && config.join.is_empty() && !config.peers.contains(&config.advertise) {
        report(
            "peers",
            format!(
                "{:?}, the address of this node (advertise), is not among {}; add it, or use join to enter a running group",
                config.advertise,
                config.peers.join(", ")
            ),
        );
    }
    if config.join.contains(&config.advertise) && !config.peers.contains(&config.advertise) {
        report("join", format!("{:?} is this node itself; name others", config.advertise));
    }

    if config.grpc_listen == config.http_listen && !config.grpc_listen.ends_with(":0") {
        report("http_listen", format!("is the same as grpc_listen ({}); choose another port", config.grpc_listen));
    }

    for (key, other) in [("grpc_listen", &config.grpc_listen), ("http_listen", &config.http_listen)] {
        if config.pg_listen == *other && !other.ends_with(":0") {
            report("pg_listen", format!("is the same as {key} ({other}); choose another port"));
        }
    }

    // A node that stands for election between two heartbeats would depose healthy leaders.
    if config.election_timeout_min < config.heartbeat * 2 {
        report(
            "election_timeout_min",
            at_least("twice the heartbeat", config.heartbeat * 2, config.election_timeout_min),
        );
    }
    if config.election_timeout_max <= config.election_timeout_min {
        report(
            "election_timeout_max",
            format!(
                "must be above election_timeout_min ({:?}); is {:?}",
                config.election_timeout_min, config.election_timeout_max
            ),
        );
    }
    if config.limits.request_deadline_max < config.limits.request_deadline {
        report(
            "limits.request_deadline_max",
            at_least("limits.request_deadline", config.limits.request_deadline, config.limits.request_deadline_max),
        );
    }
    // A list page or a part of a watch holds at least one resource and must fit.
    if config.limits.message_out_max < config.limits.message_in_max {
        report(
            "limits.message_out_max",
            format!(
                "must be at least limits.message_in_max ({}), or a node takes what it cannot give back; is {}",
                config.limits.message_in_max, config.limits.message_out_max
            ),
        );
    }
}

fn at_least(what: &str, least: Duration, is: Duration) -> String {
    format!("must be at least {what} ({least:?}); is {is:?}")
}

fn is_wildcard(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    matches!(host, "0.0.0.0" | "[::]" | "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn good() -> ServerConfig {
        ServerConfig { name: "n1".to_owned(), peers: vec!["127.0.0.1:7700".to_owned()], ..ServerConfig::default() }
    }

    #[track_caller]
    fn fails(change: impl FnOnce(&mut ServerConfig), key: &str, part: &str) {
        let mut config = good();
        change(&mut config);
        let mut problems = Vec::new();
        check(&mut config, &BTreeMap::new(), &mut problems);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].key, key);
        assert!(problems[0].message.contains(part), "{}", problems[0].message);
    }

    fn passes(change: impl FnOnce(&mut ServerConfig)) -> ServerConfig {
        let mut config = good();
        change(&mut config);
        let mut problems = Vec::new();
        check(&mut config, &BTreeMap::new(), &mut problems);
        assert_eq!(problems, []);
        config
    }

    #[test]
    fn a_node_advertises_where_it_listens_unless_told_otherwise() {
        assert_eq!(passes(|_| ()).advertise, "127.0.0.1:7700");
        passes(|c| {
            c.grpc_listen = "0.0.0.0:7700".to_owned();
            c.advertise = "n1:7700".to_owned();
            c.peers = vec!["n1:7700".to_owned()];
        });
        fails(
            |c| {
                c.grpc_listen = "0.0.0.0:7700".to_owned();
                c.peers = vec!["0.0.0.0:7700".to_owned()];
            },
            "advertise",
            "nobody can connect",
        );
    }

    #[test]
    fn a_node_knows_how_it_comes_into_a_group() {
        fails(|c| c.peers.clear(), "peers", "peers = [\"127.0.0.1:7700\"]");
        fails(|c| c.peers = vec!["other:1".to_owned()], "peers", "is not among other:1");
        passes(|c| {
            c.peers.clear();
            c.join = vec!["other:1".to_owned()];
        });
        // The same list on every pod, and `join` for those that came later.
        passes(|c| {
            c.peers = vec!["other:1".to_owned()];
            c.join = vec!["other:1".to_owned()];
        });
        fails(
            |c| {
                c.peers.clear();
                c.join = vec!["127.0.0.1:7700".to_owned()];
            },
            "join",
            "this node itself",
        );
        fails(|c| c.name.clear(), "name", "--name n1");
    }

    #[test]
    fn times_and_sizes_fit_together() {
        fails(|c| c.heartbeat = Duration::from_millis(200), "election_timeout_min", "twice the heartbeat");
        fails(|c| c.election_timeout_max = Duration::from_millis(300), "election_timeout_max", "above");
        fails(|c| c.limits.request_deadline_max = Duration::from_secs(1), "limits.request_deadline_max", "at least");
        fails(|c| c.limits.message_out_max = 65_536, "limits.message_out_max", "cannot give back");
        fails(|c| c.http_listen = "127.0.0.1:7700".to_owned(), "http_listen", "another port");
        fails(|c| c.pg_listen = "127.0.0.1:8700".to_owned(), "pg_listen", "another port");
        passes(|c| c.pg_listen = "127.0.0.1:5432".to_owned());
    }
}
