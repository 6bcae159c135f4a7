//! Statements with placeholders, as the configuration gives them, and how the values of an order get in.
//!
//! A placeholder is quoted by its kind: a name as an identifier, anything else as a literal. So no name can become a statement, and
//! the configuration writes no quotes of its own.

use std::fmt::Write;

use loadline_state_machine::Call;
use postgres_protocol::escape::{escape_identifier, escape_literal};

use crate::backends::epochs::epoch_text;
use crate::backends::settings::ConfigError;
use crate::{ClusterAddress, Order};

macro_rules! placeholders {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Placeholder { $($(#[$doc])* $name,)+ }

        impl Placeholder {
            const ALL: &'static [Placeholder] = &[$(Placeholder::$name,)+];

            fn name(self) -> &'static str {
                match self { $(Placeholder::$name => $text,)+ }
            }
        }
    };
}

placeholders! {
    /// The cluster's name, as an identifier.
    Cluster = "cluster",
    /// The cluster's name, as a literal.
    ClusterName = "cluster_name",
    ClusterId = "cluster_id",
    /// The replica's name, as an identifier.
    Replica = "replica",
    /// The replica's name, as a literal.
    ReplicaName = "replica_name",
    Size = "size",
    /// A literal, or NULL where nobody knows it.
    Incarnation = "incarnation",
    Key = "key",
    Epoch = "epoch",
}

/// What a template may speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Order,
    Cluster,
}

impl About {
    fn knows(self, placeholder: Placeholder) -> bool {
        use Placeholder::{Cluster, ClusterId, ClusterName};
        self == Self::Order || matches!(placeholder, Cluster | ClusterName | ClusterId)
    }
}

/// A statement that was read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(Placeholder),
}

/// A value that cannot be part of any statement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {what} {value:?} holds a zero byte, which no statement can")]
pub(super) struct Unspeakable {
    what: &'static str,
    value: String,
}

impl From<Unspeakable> for String {
    fn from(unspeakable: Unspeakable) -> Self {
        unspeakable.to_string()
    }
}

impl Template {
    /// Reads the value of a key of the configuration.
    pub(super) fn parse(key: &str, text: &str, about: About) -> Result<Self, ConfigError> {
        let wrong = |problem: String| ConfigError::new(key, problem);
        if text.trim().is_empty() {
            return Err(wrong("the statement is empty".to_owned()));
        }
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            // Twice means itself.
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = match rest.split_once('}') {
                Some(parts) if brace == "{" => parts,
                _ => {
                    return Err(wrong(format!(
                        "there is a lone {brace}: write {brace}{brace} if it is meant as it is"
                    )));
                }
            };
            let placeholder = Placeholder::ALL.iter().find(|placeholder| placeholder.name() == name);
            let Some(placeholder) = placeholder.copied().filter(|placeholder| about.knows(*placeholder)) else {
                let known: Vec<String> = Placeholder::ALL
                    .iter()
                    .filter(|placeholder| about.knows(**placeholder))
                    .map(|placeholder| format!("{{{}}}", placeholder.name()))
                    .collect();
                return Err(wrong(format!(
                    "there is no placeholder {{{name}}} here: expected one of {}",
                    known.join(", ")
                )));
            };
            if plain.ends_with(['\'', '"']) || after.starts_with(['\'', '"']) {
                return Err(wrong(format!("{{{name}}} is quoted already: take the quotes around it away")));
            }
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
            pieces.push(Piece::Value(placeholder));
            rest = after;
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        Ok(Self { pieces })
    }

    /// The statement for an order.
    pub(super) fn for_order(&self, order: &Order) -> Result<String, Unspeakable> {
        self.render(&order.cluster, Some(order))
    }

    /// The statement for a whole cluster.
    pub(super) fn for_cluster(&self, cluster: &ClusterAddress) -> Result<String, Unspeakable> {
        self.render(cluster, None)
    }

    fn render(&self, cluster: &ClusterAddress, order: Option<&Order>) -> Result<String, Unspeakable> {
        let mut statement = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => statement.push_str(text),
                Piece::Value(placeholder) => {
                    let quoted = quoted(*placeholder, cluster, order)?;
                    // Writing to a string does not fail.
                    let _ = statement.write_str(&quoted);
                }
            }
        }
        Ok(statement)
    }
}

fn quoted(placeholder: Placeholder, cluster: &ClusterAddress, order: Option<&Order>) -> Result<String, Unspeakable> {
    let what = placeholder.name();
    let value = match placeholder {
        Placeholder::Cluster | Placeholder::ClusterName => Some(cluster.name.clone()),
        Placeholder::ClusterId => Some(cluster.id.to_string()),
        Placeholder::Replica | Placeholder::ReplicaName => order.map(|order| order.call.replica().to_string()),
        Placeholder::Size => order.map(|order| order.call.size().to_string()),
        Placeholder::Incarnation => order.and_then(|order| incarnation(&order.call)).map(str::to_owned),
        Placeholder::Key => order.map(|order| order.key.clone()),
        Placeholder::Epoch => order.map(|order| epoch_text(order.epoch)),
    };
    let Some(value) = value else { return Ok("NULL".to_owned()) };
    if value.contains('\0') {
        return Err(Unspeakable { what, value });
    }
    Ok(match placeholder {
        Placeholder::Cluster | Placeholder::Replica => escape_identifier(&value),
        _ => escape_literal(&value),
    })
}

/// Which life a call is about, if it is about one that is there.
pub(super) fn incarnation(call: &Call) -> Option<&str> {
    match call {
        Call::CreateReplica(_) => None,
        Call::CordonReplica(life)
        | Call::DrainReplica(life)
        | Call::DropReplica(life)
        | Call::UncordonReplica(life)
        | Call::CheckpointReplica(life) => life.incarnation.as_deref(),
    }
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::{ClusterId, Epoch, Hash, LogIndex, ReplicaLife};

    use super::*;

    fn order(cluster: &str, replica: &str, size: &str, incarnation: Option<&str>) -> Order {
        Order {
            key: "7/a1.0".into(),
            epoch: Epoch { incarnation: 7, index: LogIndex(5) },
            attempt: 1,
            parameters: Hash::of(b""),
            cluster: ClusterAddress { id: ClusterId { index: LogIndex(3), ordinal: 0 }, name: cluster.into() },
            call: Call::DropReplica(ReplicaLife {
                name: replica.into(),
                size: size.into(),
                incarnation: incarnation.map(Into::into),
            }),
        }
    }

    #[track_caller]
    fn check(template: &str, order: &Order, expected: &str) {
        let template = Template::parse("drop", template, About::Order).unwrap();
        assert_eq!(template.for_order(order).unwrap(), expected);
    }

    #[test]
    fn names_become_identifiers_and_everything_else_literals() {
        let tame = order("shop", "r1_auto", "100cc", Some("u7"));
        check(
            "CREATE CLUSTER REPLICA {cluster}.{replica} SIZE = {size}",
            &tame,
            r#"CREATE CLUSTER REPLICA "shop"."r1_auto" SIZE = '100cc'"#,
        );
        check(
            "SELECT f({cluster_name}, {cluster_id}, {replica_name}, {incarnation}, {key}, {epoch}), '{{}}'",
            &tame,
            "SELECT f('shop', 'c3.0', 'r1_auto', 'u7', '7/a1.0', '00000000000000000007.00000000000000000005'), '{}'",
        );
        check("{incarnation}", &order("shop", "r1_auto", "100cc", None), "NULL");
    }

    #[test]
    fn no_name_can_become_a_statement() {
        let wild = order("a\"; DROP TABLE t; --", "r'1\"", "1'; DROP TABLE t; --\\", None);
        check(
            "{cluster}.{replica} {size} {cluster_name}",
            &wild,
            concat!(r#""a""; DROP TABLE t; --"."r'1""""#, r#"  E'1''; DROP TABLE t; --\\' 'a"; DROP TABLE t; --'"#),
        );
        let template = Template::parse("drop", "{cluster}", About::Order).unwrap();
        assert!(template.for_order(&order("a\0b", "r", "s", None)).is_err());
    }

    #[track_caller]
    fn refused(template: &str, about: About, expected: &str) {
        let error = Template::parse("observe", template, about).unwrap_err().to_string();
        assert_eq!(error, format!("observe: {expected}"));
    }

    #[test]
    fn a_template_that_cannot_be_filled_in_is_refused_with_what_would_be_right() {
        refused(
            "SELECT {clutser}",
            About::Order,
            "there is no placeholder {clutser} here: expected one of {cluster}, {cluster_name}, {cluster_id}, {replica}, \
             {replica_name}, {size}, {incarnation}, {key}, {epoch}",
        );
        refused(
            "SELECT {replica}",
            About::Cluster,
            "there is no placeholder {replica} here: expected one of {cluster}, {cluster_name}, {cluster_id}",
        );
        refused("SELECT '{size}'", About::Order, "{size} is quoted already: take the quotes around it away");
        refused("SELECT {size", About::Order, "there is a lone {: write {{ if it is meant as it is");
        refused("SELECT size}", About::Order, "there is a lone }: write }} if it is meant as it is");
        refused("  ", About::Order, "the statement is empty");
    }
}
