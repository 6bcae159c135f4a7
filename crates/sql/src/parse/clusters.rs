//! `CLUSTER` and `CLUSTER REPLICA`.

use sqlparser::tokenizer::Token as Kind;

use super::cursor::Cursor;
use crate::error::{ParseError, SqlError, SqlState};
use crate::statement::{CreateCluster, CreateReplica, Statement};

const CLUSTER: &str = "the name of a cluster";
const REPLICA: &str = "the name of a replica, as in my_cluster.r1";
const BACKEND: &str = "the name of a backend";

/// Behind `CREATE CLUSTER`.
pub(super) fn create(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    if at.take_word("REPLICA") {
        return create_replica(at);
    }
    let if_not_exists = at.if_not_exists();
    let name = at.identifier(CLUSTER)?;
    let Properties { size, backend } = properties(at, &["SIZE", "BACKEND"])?;
    Ok(Statement::CreateCluster(CreateCluster { name, if_not_exists, size, backend }))
}

fn create_replica(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let if_not_exists = at.if_not_exists();
    let (cluster, replica) = replica(at)?;
    let properties = properties(at, &["SIZE"])?;
    let size = properties.size.ok_or_else(|| at.expected("SIZE = and the name of a size"))?;
    Ok(Statement::CreateReplica(CreateReplica { cluster, replica, if_not_exists, size }))
}

/// Behind `ALTER CLUSTER`.
pub(super) fn alter(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let name = at.identifier(CLUSTER)?;
    match at.expect_one_of(&["RENAME", "SET", "RESET"])? {
        "RENAME" => {
            at.expect_word("TO")?;
            Ok(Statement::RenameCluster { name, to: at.identifier(CLUSTER)? })
        }
        "SET" => {
            let properties = properties(at, &["BACKEND"])?;
            let backend = properties.backend.ok_or_else(|| at.expected("BACKEND = and the name of a backend"))?;
            Ok(Statement::PlaceCluster { name, backend: Some(backend) })
        }
        _ => {
            let inside = at.take(&Kind::LParen);
            at.expect_word("BACKEND")?;
            if inside {
                at.expect(&Kind::RParen)?;
            }
            Ok(Statement::PlaceCluster { name, backend: None })
        }
    }
}

/// Behind `DROP CLUSTER`.
pub(super) fn drop(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    if at.take_word("REPLICA") {
        let if_exists = at.if_exists();
        let (cluster, replica) = replica(at)?;
        return Ok(Statement::DropReplica { cluster, replica, if_exists });
    }
    let if_exists = at.if_exists();
    let name = at.identifier(CLUSTER)?;
    let cascade = at.take_word("CASCADE");
    if !cascade {
        at.take_word("RESTRICT");
    }
    Ok(Statement::DropCluster { name, if_exists, cascade })
}

/// `cluster.replica`.
fn replica(at: &mut Cursor<'_>) -> Result<(String, String), ParseError> {
    let cluster = at.identifier(REPLICA)?;
    at.expect(&Kind::Period)?;
    Ok((cluster, at.identifier(REPLICA)?))
}

#[derive(Default)]
struct Properties {
    size: Option<String>,
    backend: Option<String>,
}

/// `SIZE = '100cc', BACKEND local`: with or without `=`, commas and parentheses around all of them.
fn properties(at: &mut Cursor<'_>, known: &[&'static str]) -> Result<Properties, ParseError> {
    let inside = at.take(&Kind::LParen);
    let mut properties = Properties::default();
    while inside || !at.is_at_end() {
        let place = at.place();
        let name = at.expect_one_of(known)?;
        at.take(&Kind::Eq);
        let (slot, value) = if name == "SIZE" {
            (&mut properties.size, at.text_literal("the name of a size")?)
        } else {
            (&mut properties.backend, at.name_or_text(BACKEND)?)
        };
        if slot.replace(value).is_some() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} is given twice")).at(place.0));
        }
        if !at.take(&Kind::Comma) && inside {
            break;
        }
    }
    if inside {
        at.expect(&Kind::RParen)?;
    }
    Ok(properties)
}
