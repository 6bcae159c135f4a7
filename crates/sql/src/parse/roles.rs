//! `ROLE`, `GRANT` and `REVOKE`.

use super::cursor::Cursor;
use crate::error::{ParseError, SqlError, SqlState};
use crate::statement::{AlterRole, CreateRole, Password, Privileges, PrivilegesOn, RoleOptions, Statement};

const ROLE: &str = "the name of a role";
const CLUSTER: &str = "the name of a cluster";

/// Behind `CREATE ROLE` or `CREATE USER`, which may log in if nothing else is said.
pub(super) fn create(at: &mut Cursor<'_>, user: bool) -> Result<Statement, ParseError> {
    let if_not_exists = at.if_not_exists();
    let name = at.identifier(ROLE)?;
    let mut options = options(at)?;
    if user && options.login.is_none() {
        options.login = Some(true);
    }
    Ok(Statement::CreateRole(CreateRole { name, if_not_exists, options }))
}

/// Behind `ALTER ROLE`.
pub(super) fn alter(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let name = at.identifier(ROLE)?;
    let options = options(at)?;
    if options == RoleOptions::default() {
        return Err(at.expected_one_of(OPTIONS));
    }
    Ok(Statement::AlterRole(AlterRole { name, options }))
}

/// Behind `DROP ROLE`.
pub(super) fn drop(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let if_exists = at.if_exists();
    Ok(Statement::DropRole { name: at.identifier(ROLE)?, if_exists })
}

const OPTIONS: &[&str] = &["SUPERUSER", "NOSUPERUSER", "LOGIN", "NOLOGIN", "PASSWORD", "ENCRYPTED"];

fn options(at: &mut Cursor<'_>) -> Result<RoleOptions, ParseError> {
    at.take_word("WITH");
    let mut options = RoleOptions::default();
    while !at.is_at_end() {
        let place = at.place();
        let word = at.expect_one_of(OPTIONS)?;
        let twice = match word {
            "SUPERUSER" | "NOSUPERUSER" => options.superuser.replace(word == "SUPERUSER").is_some(),
            "LOGIN" | "NOLOGIN" => options.login.replace(word == "LOGIN").is_some(),
            _ => {
                if word == "ENCRYPTED" {
                    at.expect_word("PASSWORD")?;
                }
                let null = at.take_word("NULL");
                let password = if null { Password::None } else { Password::Is(at.text_literal("a password")?) };
                options.password.replace(password).is_some()
            }
        };
        if twice {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options").at(place.0));
        }
    }
    Ok(options)
}

pub(super) fn grant(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    privileges(at, "TO").map(Statement::Grant)
}

pub(super) fn revoke(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    privileges(at, "FROM").map(Statement::Revoke)
}

fn privileges(at: &mut Cursor<'_>, to: &'static str) -> Result<Privileges, ParseError> {
    at.next();
    at.expect_words(&["USAGE", "ON"])?;
    let on = if at.expect_one_of(&["CLUSTER", "ALL"])? == "CLUSTER" {
        PrivilegesOn::Clusters(at.names(CLUSTER)?)
    } else {
        at.expect_word("CLUSTERS")?;
        PrivilegesOn::AllClusters
    };
    at.expect_word(to)?;
    Ok(Privileges { on, roles: at.names(ROLE)? })
}
