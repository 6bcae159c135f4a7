//! `WAKE`, `OVERRIDE` and `CLEAR OVERRIDE`: what an operator wants of clusters beside their strategies.

use loadline_state_machine::{Span, WakeReason};
use sqlparser::tokenizer::Token as Kind;

use super::cursor::Cursor;
use crate::error::{ParseError, SqlError, SqlState};
use crate::statement::{OverrideCluster, Statement, Wake};

const CLUSTER: &str = "the name of a cluster";

/// At `WAKE`.
pub(super) fn wake(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.next();
    let clusters = if at.expect_one_of(&["CLUSTER", "ALL"])? == "ALL" {
        at.expect_word("CLUSTERS")?;
        None
    } else {
        let mut clusters = vec![at.identifier(CLUSTER)?];
        while at.take(&Kind::Comma) {
            clusters.push(at.identifier(CLUSTER)?);
        }
        Some(clusters)
    };
    let mut reason = WakeReason::Manual;
    if at.take_word("REASON") {
        let place = at.place();
        let text = at.text_literal("a reason in single quotes")?;
        let known = WakeReason::ASKED.map(WakeReason::as_str).join(", ");
        reason = WakeReason::asked(&text).ok_or_else(|| {
            let message = format!("{text:?} is no reason to wake a cluster: expected one of {known}");
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).at(place.0)
        })?;
    }
    Ok(Statement::Wake(Wake { clusters, reason }))
}

/// At `OVERRIDE`.
pub(super) fn overrides(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.next();
    at.expect_word("CLUSTER")?;
    let cluster = at.identifier(CLUSTER)?;
    at.expect_word("MIN")?;
    let place = at.place();
    let number = at.whole_number("how many replicas it has at least")?;
    let replicas_min = u32::try_from(number).map_err(|_| {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("{number} replicas are too many")).at(place.0)
    })?;
    let size = if at.take_word("SIZE") {
        at.take(&Kind::Eq);
        Some(at.name_or_text("the name of a size")?)
    } else {
        None
    };
    at.expect_word("FOR")?;
    let place = at.place();
    let text = at.text_literal("how long, as in '2h'")?;
    let expires_in: Span = text.parse().map_err(|error: loadline_state_machine::ParseSpanError| {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, error.to_string()).at(place.0)
    })?;
    let reason = if at.take_word("REASON") { at.text_literal("a reason in single quotes")? } else { String::new() };
    Ok(Statement::OverrideCluster(OverrideCluster { cluster, replicas_min, size, expires_in, reason }))
}

/// At `CLEAR`.
pub(super) fn clear(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.next();
    at.expect_words(&["OVERRIDE", "FOR", "CLUSTER"])?;
    Ok(Statement::ClearOverride { cluster: at.identifier(CLUSTER)? })
}
