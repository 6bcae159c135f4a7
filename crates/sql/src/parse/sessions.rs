//! Settings of the group, parameters of the session, and transactions.

use sqlparser::tokenizer::Token as Kind;

use super::cursor::Cursor;
use crate::error::{ParseError, SqlError, SqlState};
use crate::statement::{Isolation, Statement, TransactionModes};

const SETTING: &str = "the name of a setting";
const PARAMETER: &str = "the name of a parameter";

/// Behind `ALTER SYSTEM`.
pub(super) fn alter_system(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    if at.expect_one_of(&["SET", "RESET"])? == "RESET" {
        return Ok(Statement::ResetSetting { name: at.dotted(SETTING)? });
    }
    let name = at.dotted(SETTING)?;
    equals(at)?;
    Ok(Statement::SetSetting { name, value: at.value()? })
}

fn equals(at: &mut Cursor<'_>) -> Result<(), ParseError> {
    if at.take(&Kind::Eq) || at.take_word("TO") { Ok(()) } else { Err(at.expected("\"=\" or TO")) }
}

/// Behind `SHOW`.
pub(super) fn show(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    if at.take_word("ALL") {
        return Ok(Statement::Show { name: None });
    }
    let name = if at.take_words(&["TRANSACTION", "ISOLATION", "LEVEL"]) {
        "transaction_isolation".to_owned()
    } else if at.take_words(&["TIME", "ZONE"]) {
        "timezone".to_owned()
    } else {
        at.dotted("the name of a setting, ALL, SIGNALS, SCALING STRATEGIES or SCALING ACTIONS")?
    };
    Ok(Statement::Show { name: Some(name) })
}

/// At `SET`.
pub(super) fn set(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.next();
    if at.take_words(&["SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"]) {
        return Ok(Statement::SetTransaction { modes: said_modes(at)?, session: true });
    }
    if at.take_word("TRANSACTION") {
        return Ok(Statement::SetTransaction { modes: said_modes(at)?, session: false });
    }
    let local = at.take_word("LOCAL");
    if !local && at.word_is(0, "SESSION") {
        at.next();
    }
    if at.take_words(&["TIME", "ZONE"]) {
        let values = if at.take_word("LOCAL") || at.take_word("DEFAULT") { Vec::new() } else { vec![at.value()?] };
        return Ok(Statement::SetSession { name: "timezone".to_owned(), values, local });
    }
    if at.take_word("NAMES") {
        let values = if at.take_word("DEFAULT") { Vec::new() } else { vec![at.value()?] };
        return Ok(Statement::SetSession { name: "client_encoding".to_owned(), values, local });
    }
    let name = at.dotted(PARAMETER)?;
    equals(at)?;
    let mut values = Vec::new();
    if !at.take_word("DEFAULT") {
        values.push(at.value()?);
        while at.take(&Kind::Comma) {
            values.push(at.value()?);
        }
    }
    Ok(Statement::SetSession { name, values, local })
}

/// At `RESET`.
pub(super) fn reset(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.next();
    let name = if at.take_word("ALL") { None } else { Some(at.dotted(PARAMETER)?) };
    Ok(Statement::ResetSession { name })
}

/// At `DISCARD`.
pub(super) fn discard(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.next();
    at.expect_word("ALL")?;
    Ok(Statement::Discard)
}

/// At `DEALLOCATE`.
pub(super) fn deallocate(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.next();
    at.take_word("PREPARE");
    let name = if at.take_word("ALL") { None } else { Some(at.identifier("the name of a prepared statement")?) };
    Ok(Statement::Deallocate { name })
}

/// At the first word of a statement about transactions.
pub(super) fn transaction(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let word = at.expect_one_of(&["BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"])?;
    if word == "START" {
        at.expect_word("TRANSACTION")?;
    } else if at.word_is(0, "PREPARED") || at.word_is(0, "TO") {
        return Err(at.not_supported(&format!("{word} of anything but the whole transaction is")));
    } else if !at.take_word("TRANSACTION") {
        at.take_word("WORK");
    }
    match word {
        "BEGIN" | "START" => modes(at).map(Statement::Begin),
        _ => {
            if at.word_is(0, "TO") || at.take_words(&["AND", "CHAIN"]) {
                return Err(at.not_supported(&format!("{word} of anything but the whole transaction is")));
            }
            at.take_words(&["AND", "NO", "CHAIN"]);
            Ok(if matches!(word, "COMMIT" | "END") { Statement::Commit } else { Statement::Rollback })
        }
    }
}

fn said_modes(at: &mut Cursor<'_>) -> Result<TransactionModes, ParseError> {
    let modes = modes(at)?;
    if modes == TransactionModes::default() {
        return Err(at.expected("ISOLATION LEVEL, READ ONLY or READ WRITE"));
    }
    Ok(modes)
}

fn modes(at: &mut Cursor<'_>) -> Result<TransactionModes, ParseError> {
    let mut modes = TransactionModes::default();
    while !at.is_at_end() {
        let place = at.place();
        let word = at.expect_one_of(&["ISOLATION", "READ", "DEFERRABLE", "NOT"])?;
        let twice = match word {
            "ISOLATION" => {
                at.expect_word("LEVEL")?;
                let level = match at.expect_one_of(&["SERIALIZABLE", "REPEATABLE", "READ"])? {
                    "SERIALIZABLE" => Isolation::Serializable,
                    "REPEATABLE" => {
                        at.expect_word("READ")?;
                        Isolation::RepeatableRead
                    }
                    _ if at.expect_one_of(&["COMMITTED", "UNCOMMITTED"])? == "COMMITTED" => Isolation::ReadCommitted,
                    _ => Isolation::ReadUncommitted,
                };
                modes.isolation.replace(level).is_some()
            }
            "READ" => modes.read_only.replace(at.expect_one_of(&["ONLY", "WRITE"])? == "ONLY").is_some(),
            "NOT" => {
                at.expect_word("DEFERRABLE")?;
                false
            }
            _ => false,
        };
        if twice {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options").at(place.0));
        }
        at.take(&Kind::Comma);
    }
    Ok(modes)
}
