//! Replicas as the rows of a query show them. Values come as text, whatever their type is in the database.

use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};

use crate::{ObservedHydration, ObservedReplica};

/// A replica, and what only this backend wants to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub replica: ObservedReplica,
    /// The key under which it was made. Nothing if the query does not show keys.
    pub key: Option<String>,
}

/// The columns that a query may have. One that is not among them is an error: a misspelt `raedy` would otherwise go unnoticed.
const COLUMNS: [&str; 10] =
    ["name", "size", "incarnation", "ready", "objects", "hydrated", "crashes", "crash_reason", "oom", "key"];

/// Reads the rows of `observe`, or of `verify` if a name is given: that query is about one replica and need not repeat its name.
pub(super) fn replicas(messages: &[SimpleQueryMessage], name: Option<&str>) -> Result<Vec<Seen>, String> {
    let mut seen = Vec::new();
    let mut answered = false;
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(_) => answered = true,
            SimpleQueryMessage::Row(row) => {
                answered = true;
                seen.push(replica(&Columns(row), name)?);
            }
            _ => {}
        }
    }
    // A statement that is no query shows nothing, and that does not mean that there is nothing.
    if !answered {
        return Err("the query has no columns: it must be a SELECT".to_owned());
    }
    seen.sort_by(|a, b| a.replica.cmp(&b.replica));
    if let Some(pair) = seen.windows(2).find(|pair| pair[0].replica.name == pair[1].replica.name) {
        return Err(format!("the query shows two replicas that are called {}", pair[0].replica.name));
    }
    Ok(seen)
}

/// That the database manages the replicas of a cluster itself, and what it says it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Managed {
    pub size: Option<String>,
    pub replicas: Option<u64>,
}

/// Reads the row of `managed`. Nothing if single replicas can be made and dropped.
pub(super) fn managed(messages: &[SimpleQueryMessage]) -> Result<Option<Managed>, String> {
    for message in messages {
        if let SimpleQueryMessage::Row(row) = message {
            let columns = Columns(row);
            if !columns.has("managed") {
                return Err("the query managed has no column managed: expected a boolean".to_owned());
            }
            let it = Managed { size: columns.text("size").map(str::to_owned), replicas: columns.number("replicas")? };
            return Ok(columns.truth("managed")?.unwrap_or(false).then_some(it));
        }
    }
    Ok(None)
}

/// How much a drain moved and left, if its statement says so.
pub(super) fn drained(messages: &[SimpleQueryMessage]) -> Result<Option<(u64, u64)>, String> {
    for message in messages {
        if let SimpleQueryMessage::Row(row) = message {
            let columns = Columns(row);
            return match (columns.number("moved")?, columns.number("left")?) {
                (Some(moved), Some(left)) => Ok(Some((moved, left))),
                _ => Ok(None),
            };
        }
    }
    Ok(None)
}

fn replica(columns: &Columns<'_>, name: Option<&str>) -> Result<Seen, String> {
    columns.check()?;
    let needed = |column: &str| columns.text(column).ok_or_else(|| format!("the query has no value for {column}"));
    let name = match name {
        Some(name) => columns.text("name").unwrap_or(name),
        None => needed("name")?,
    };
    let hydration = match (columns.number("objects")?, columns.number("hydrated")?) {
        (Some(total), Some(hydrated)) => Some(ObservedHydration { total, hydrated }),
        _ => None,
    };
    Ok(Seen {
        replica: ObservedReplica {
            name: name.to_owned(),
            size: needed("size")?.to_owned(),
            incarnation: columns.text("incarnation").map(str::to_owned),
            // A catalog without such a column shows only what can be used.
            ready: columns.truth("ready")?.unwrap_or(!columns.has("ready")),
            hydration,
            crashes: columns.number("crashes")?.unwrap_or(0),
            crash_reason: columns.text("crash_reason").map(str::to_owned),
            oom: columns.truth("oom")?.unwrap_or(false),
        },
        key: columns.text("key").map(str::to_owned),
    })
}

struct Columns<'a>(&'a SimpleQueryRow);

impl Columns<'_> {
    fn check(&self) -> Result<(), String> {
        match self.0.columns().iter().find(|column| !COLUMNS.contains(&column.name())) {
            Some(column) => Err(format!(
                "the query has a column {}, which means nothing here: expected some of {}",
                column.name(),
                COLUMNS.join(", ")
            )),
            None => Ok(()),
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.0.columns().iter().position(|column| column.name() == name)
    }

    fn has(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(self.place(name)?)
    }

    fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let number =
            |text: &str| text.parse().map_err(|_| format!("{name} is {text:?}: expected a whole number, 0 or more"));
        self.text(name).map(number).transpose()
    }

    fn truth(&self, name: &str) -> Result<Option<bool>, String> {
        match self.text(name) {
            None => Ok(None),
            Some("t" | "true") => Ok(Some(true)),
            Some("f" | "false") => Ok(Some(false)),
            Some(other) => Err(format!("{name} is {other:?}: expected a boolean")),
        }
    }
}
