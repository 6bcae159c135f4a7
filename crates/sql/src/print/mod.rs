//! From statements back to text, in one spelling: keywords in capitals, `TARGET_SIZE` in one word, names in double quotes
//! only where they must be. What is printed is read back as the same statement.
//!
//! A password is printed as it is, since what is printed must mean the same: whoever logs statements logs their `Debug`.

use std::fmt;

use loadline_state_machine::WakeReason;

use crate::statement::{
    AlterSignal, CreateCluster, CreateReplica, CreateSignal, Isolation, OverrideCluster, Password, Privileges,
    PrivilegesOn, RoleOptions, ShowActions, SignalSaying, Statement, StrategyOption, TargetName, TransactionModes,
    Value, Wake,
};

/// Words that are no names unless they are quoted: where a name may stand, one of them begins something else.
const RESERVED: &[&str] = &[
    "all",
    "alter",
    "and",
    "any",
    "as",
    "asc",
    "backend",
    "cascade",
    "case",
    "cast",
    "cluster",
    "clusters",
    "collate",
    "create",
    "cross",
    "default",
    "delete",
    "desc",
    "distinct",
    "drop",
    "else",
    "end",
    "except",
    "exists",
    "false",
    "for",
    "from",
    "full",
    "grant",
    "group",
    "having",
    "if",
    "in",
    "inner",
    "insert",
    "intersect",
    "interval",
    "into",
    "is",
    "join",
    "left",
    "like",
    "limit",
    "natural",
    "not",
    "null",
    "offset",
    "on",
    "or",
    "order",
    "outer",
    "replica",
    "restrict",
    "right",
    "select",
    "set",
    "size",
    "some",
    "table",
    "then",
    "to",
    "true",
    "type",
    "union",
    "unique",
    "update",
    "using",
    "values",
    "when",
    "where",
    "window",
    "with",
];

pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED.binary_search(&word).is_ok()
}

/// A name as it must be written to be read as this name.
pub fn quote_identifier(name: &str) -> String {
    let plain = name.starts_with(|it: char| it.is_ascii_lowercase() || it == '_')
        && name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_')
        && !is_reserved(name);
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A text as a literal.
pub fn quote_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn names(names: &[String]) -> String {
    names.iter().map(|name| quote_identifier(name)).collect::<Vec<_>>().join(", ")
}

/// Each part on its own, since a dot may also be within one. Where it came from is not known here: the parts are.
fn dotted(name: &str) -> String {
    if name.split('.').any(str::is_empty) {
        return quote_identifier(name);
    }
    name.split('.').map(quote_identifier).collect::<Vec<_>>().join(".")
}

struct Target<'a>(&'a TargetName);

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            TargetName::Cluster(name) => write!(f, "CLUSTER {}", quote_identifier(name)),
            TargetName::Pattern(pattern) => write!(f, "ALL CLUSTERS LIKE {}", quote_literal(pattern)),
            TargetName::All => f.write_str("ALL CLUSTERS"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&quote_literal(text)),
            Self::Number(number) => f.write_str(number),
            Self::Bool(value) => value.fmt(f),
            Self::Word(word) => f.write_str(&quote_identifier(word)),
            Self::Interval(text) => write!(f, "INTERVAL {}", quote_literal(text)),
        }
    }
}

struct Options<'a>(&'a [StrategyOption]);

impl fmt::Display for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options: Vec<String> = self.0.iter().map(|option| format!("{} = {}", option.name, option.value)).collect();
        write!(f, "({})", options.join(", "))
    }
}

struct Sayings<'a>(&'a [SignalSaying]);

impl fmt::Display for Sayings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options: Vec<String> = self.0.iter().map(|option| format!("{} = {}", option.name, option.value)).collect();
        write!(f, "({})", options.join(", "))
    }
}

impl fmt::Display for TransactionModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(isolation) = self.isolation {
            let level = match isolation {
                Isolation::ReadUncommitted => "READ UNCOMMITTED",
                Isolation::ReadCommitted => "READ COMMITTED",
                Isolation::RepeatableRead => "REPEATABLE READ",
                Isolation::Serializable => "SERIALIZABLE",
            };
            write!(f, " ISOLATION LEVEL {level}")?;
        }
        match self.read_only {
            Some(true) => f.write_str(" READ ONLY"),
            Some(false) => f.write_str(" READ WRITE"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for RoleOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |said: Option<bool>, word: &str| {
            said.map_or_else(String::new, |yes| format!(" {}{word}", if yes { "" } else { "NO" }))
        };
        f.write_str(&word(self.superuser, "SUPERUSER"))?;
        f.write_str(&word(self.login, "LOGIN"))?;
        match &self.password {
            Some(Password::Is(password)) => write!(f, " PASSWORD {}", quote_literal(password)),
            Some(Password::None) => f.write_str(" PASSWORD NULL"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.on {
            PrivilegesOn::Clusters(clusters) => write!(f, "USAGE ON CLUSTER {}", names(clusters)),
            PrivilegesOn::AllClusters => f.write_str("USAGE ON ALL CLUSTERS"),
        }
    }
}

fn when(said: bool, words: &'static str) -> &'static str {
    if said { words } else { "" }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const IF_EXISTS: &str = " IF EXISTS";
        const IF_NOT_EXISTS: &str = " IF NOT EXISTS";
        match self {
            Self::CreateStrategy(it) => {
                let unless = when(it.if_not_exists, IF_NOT_EXISTS);
                write!(f, "CREATE SCALING STRATEGY{unless} FOR {} TYPE {}", Target(&it.target), upper(it.kind))?;
                if it.options.is_empty() { Ok(()) } else { write!(f, " WITH {}", Options(&it.options)) }
            }
            Self::AlterStrategy(it) => {
                let (target, kind) = (Target(&it.target), upper(it.kind));
                write!(f, "ALTER SCALING STRATEGY FOR {target} TYPE {kind} UPDATE {}", Options(&it.options))
            }
            Self::DropStrategy(it) => {
                let unless = when(it.if_exists, IF_EXISTS);
                write!(f, "DROP SCALING STRATEGY{unless} FOR {} TYPE {}", Target(&it.target), upper(it.kind))
            }
            Self::DropStrategies { target } => write!(f, "DROP ALL SCALING STRATEGIES FOR {}", Target(target)),
            Self::ShowStrategies { target: None } => f.write_str("SHOW SCALING STRATEGIES"),
            Self::ShowStrategies { target: Some(target) } => {
                write!(f, "SHOW SCALING STRATEGIES FOR {}", Target(target))
            }
            Self::ShowActions(ShowActions { cluster, limit }) => {
                f.write_str("SHOW SCALING ACTIONS")?;
                if let Some(cluster) = cluster {
                    write!(f, " FOR CLUSTER {}", quote_identifier(cluster))?;
                }
                limit.map_or(Ok(()), |limit| write!(f, " LIMIT {limit}"))
            }
            Self::CreateSignal(CreateSignal { name, if_not_exists, kind, target, every, options }) => {
                let (unless, name) = (when(*if_not_exists, IF_NOT_EXISTS), quote_identifier(name));
                let kind = kind.as_str().to_ascii_uppercase();
                write!(f, "CREATE SIGNAL{unless} {name} FOR {} FROM {kind}", Target(target))?;
                if !options.is_empty() {
                    write!(f, " {}", Sayings(options))?;
                }
                every.map_or(Ok(()), |every| write!(f, " EVERY '{every}'"))
            }
            Self::AlterSignal(AlterSignal { name, target, every, options, reset }) => {
                write!(f, "ALTER SIGNAL {}", quote_identifier(name))?;
                if !options.is_empty() {
                    write!(f, " UPDATE {}", Sayings(options))?;
                }
                if !reset.is_empty() {
                    write!(f, " RESET ({})", reset.join(", "))?;
                }
                if let Some(every) = every {
                    write!(f, " EVERY '{every}'")?;
                }
                target.as_ref().map_or(Ok(()), |target| write!(f, " FOR {}", Target(target)))
            }
            Self::DropSignal { name, if_exists } => {
                write!(f, "DROP SIGNAL{} {}", when(*if_exists, IF_EXISTS), quote_identifier(name))
            }
            Self::ShowSignals => f.write_str("SHOW SIGNALS"),
            Self::SetSetting { name, value } => write!(f, "ALTER SYSTEM SET {} = {value}", dotted(name)),
            Self::ResetSetting { name } => write!(f, "ALTER SYSTEM RESET {}", dotted(name)),
            Self::Show { name: None } => f.write_str("SHOW ALL"),
            Self::Show { name: Some(name) } => write!(f, "SHOW {}", dotted(name)),
            Self::CreateCluster(CreateCluster { name, if_not_exists, size, backend }) => {
                write!(f, "CREATE CLUSTER{} {}", when(*if_not_exists, IF_NOT_EXISTS), quote_identifier(name))?;
                if let Some(size) = size {
                    write!(f, " SIZE = {}", quote_literal(size))?;
                }
                backend.as_ref().map_or(Ok(()), |backend| write!(f, " BACKEND = {}", quote_identifier(backend)))
            }
            Self::RenameCluster { name, to } => {
                write!(f, "ALTER CLUSTER {} RENAME TO {}", quote_identifier(name), quote_identifier(to))
            }
            Self::PlaceCluster { name, backend: Some(backend) } => {
                write!(f, "ALTER CLUSTER {} SET BACKEND = {}", quote_identifier(name), quote_identifier(backend))
            }
            Self::PlaceCluster { name, backend: None } => {
                write!(f, "ALTER CLUSTER {} RESET BACKEND", quote_identifier(name))
            }
            Self::DropCluster { name, if_exists, cascade } => {
                let unless = when(*if_exists, IF_EXISTS);
                write!(f, "DROP CLUSTER{unless} {}{}", quote_identifier(name), when(*cascade, " CASCADE"))
            }
            Self::CreateReplica(CreateReplica { cluster, replica, if_not_exists, size }) => {
                let unless = when(*if_not_exists, IF_NOT_EXISTS);
                let (cluster, replica) = (quote_identifier(cluster), quote_identifier(replica));
                write!(f, "CREATE CLUSTER REPLICA{unless} {cluster}.{replica} SIZE = {}", quote_literal(size))
            }
            Self::DropReplica { cluster, replica, if_exists } => {
                let unless = when(*if_exists, IF_EXISTS);
                write!(f, "DROP CLUSTER REPLICA{unless} {}.{}", quote_identifier(cluster), quote_identifier(replica))
            }
            Self::Wake(Wake { clusters, reason }) => {
                match clusters {
                    None => f.write_str("WAKE ALL CLUSTERS")?,
                    Some(clusters) => write!(f, "WAKE CLUSTER {}", names(clusters))?,
                }
                match reason {
                    WakeReason::Manual => Ok(()),
                    reason => write!(f, " REASON {}", quote_literal(reason.as_str())),
                }
            }
            Self::OverrideCluster(OverrideCluster { cluster, replicas_min, size, expires_in, reason }) => {
                write!(f, "OVERRIDE CLUSTER {} MIN {replicas_min}", quote_identifier(cluster))?;
                if let Some(size) = size {
                    write!(f, " SIZE = {}", quote_literal(size))?;
                }
                write!(f, " FOR {}", quote_literal(&expires_in.to_string()))?;
                if reason.is_empty() { Ok(()) } else { write!(f, " REASON {}", quote_literal(reason)) }
            }
            Self::ClearOverride { cluster } => {
                write!(f, "CLEAR OVERRIDE FOR CLUSTER {}", quote_identifier(cluster))
            }
            Self::ExplainCluster { cluster } => write!(f, "EXPLAIN SCALING FOR CLUSTER {}", quote_identifier(cluster)),
            Self::ExplainAction { action } => match action.parse::<u64>() {
                Ok(number) if number.to_string() == *action => write!(f, "EXPLAIN SCALING ACTION {action}"),
                _ => write!(f, "EXPLAIN SCALING ACTION {}", quote_literal(action)),
            },
            Self::Begin(modes) => write!(f, "BEGIN{modes}"),
            Self::Commit => f.write_str("COMMIT"),
            Self::Rollback => f.write_str("ROLLBACK"),
            Self::SetTransaction { modes, session: true } => {
                write!(f, "SET SESSION CHARACTERISTICS AS TRANSACTION{modes}")
            }
            Self::SetTransaction { modes, session: false } => write!(f, "SET TRANSACTION{modes}"),
            Self::CreateRole(it) => {
                let unless = when(it.if_not_exists, IF_NOT_EXISTS);
                write!(f, "CREATE ROLE{unless} {}{}", quote_identifier(&it.name), it.options)
            }
            Self::AlterRole(it) => write!(f, "ALTER ROLE {}{}", quote_identifier(&it.name), it.options),
            Self::DropRole { name, if_exists } => {
                write!(f, "DROP ROLE{} {}", when(*if_exists, IF_EXISTS), quote_identifier(name))
            }
            Self::Grant(it) => write!(f, "GRANT {it} TO {}", names(&it.roles)),
            Self::Revoke(it) => write!(f, "REVOKE {it} FROM {}", names(&it.roles)),
            Self::SetSession { name, values, local } => {
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                let values = if values.is_empty() { "DEFAULT".to_owned() } else { values.join(", ") };
                write!(f, "SET {}{} = {values}", when(*local, "LOCAL "), dotted(name))
            }
            Self::ResetSession { name: None } => f.write_str("RESET ALL"),
            Self::ResetSession { name: Some(name) } => write!(f, "RESET {}", dotted(name)),
            Self::Discard => f.write_str("DISCARD ALL"),
            Self::CloseAll => f.write_str("CLOSE ALL"),
            Self::UnlistenAll => f.write_str("UNLISTEN *"),
            Self::Deallocate { name: None } => f.write_str("DEALLOCATE ALL"),
            Self::Deallocate { name: Some(name) } => write!(f, "DEALLOCATE {}", quote_identifier(name)),
            Self::Query(tree) | Self::Write(tree) => tree.fmt(f),
        }
    }
}

fn upper(kind: crate::statement::StrategyKind) -> String {
    kind.as_str().to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_words_are_in_order() {
        assert!(RESERVED.is_sorted());
    }

    #[test]
    fn a_name_is_quoted_only_where_it_must_be() {
        for (name, written) in [
            ("prod_1", "prod_1"),
            ("_", "_"),
            ("Prod", "\"Prod\""),
            ("1a", "\"1a\""),
            ("a-b", "\"a-b\""),
            ("all", "\"all\""),
            ("a\"b", "\"a\"\"b\""),
            ("x; DROP CLUSTER y", "\"x; DROP CLUSTER y\""),
        ] {
            assert_eq!(quote_identifier(name), written);
        }
    }
}
