//! `SCALING STRATEGY`, `SCALING STRATEGIES`, `SCALING ACTIONS`: the grammar of the reference.

use std::sync::LazyLock;

use loadline_state_machine::option_definitions;
use sqlparser::tokenizer::Token as Kind;

use super::cursor::Cursor;
use super::did_you_mean;
use crate::error::{ParseError, SqlError, SqlState};
use crate::statement::{
    AlterStrategy, CreateStrategy, DropStrategy, ShowActions, Statement, StrategyKind, StrategyOption, TargetName,
};

/// The options of all kinds of strategy, each once.
static OPTIONS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let all = StrategyKind::PRIORITY_ORDER.into_iter().flat_map(option_definitions).map(|option| option.sql_name);
    let mut names: Vec<&'static str> = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
});

const TYPES: [(&str, StrategyKind); 6] = [
    ("TARGET_SIZE", StrategyKind::TargetSize),
    ("SHRINK_TO_FIT", StrategyKind::ShrinkToFit),
    ("BURST", StrategyKind::Burst),
    ("IDLE_SUSPEND", StrategyKind::IdleSuspend),
    ("TARGET_TRACKING", StrategyKind::TargetTracking),
    ("QUEUE_DEPTH", StrategyKind::QueueDepth),
];

/// Behind `CREATE SCALING`.
pub(super) fn create(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.expect_word("STRATEGY")?;
    let if_not_exists = at.if_not_exists();
    at.expect_word("FOR")?;
    let target = target(at)?;
    at.expect_word("TYPE")?;
    let kind = kind(at)?;
    let options = if at.take_word("WITH") { options(at)? } else { Vec::new() };
    Ok(Statement::CreateStrategy(CreateStrategy { if_not_exists, target, kind, options }))
}

/// Behind `ALTER SCALING`.
pub(super) fn alter(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.expect_words(&["STRATEGY", "FOR"])?;
    let target = target(at)?;
    at.expect_word("TYPE")?;
    let kind = kind(at)?;
    at.expect_word("UPDATE")?;
    Ok(Statement::AlterStrategy(AlterStrategy { target, kind, options: options(at)? }))
}

/// Behind `DROP SCALING`.
pub(super) fn drop(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.expect_word("STRATEGY")?;
    let if_exists = at.if_exists();
    at.expect_word("FOR")?;
    let target = target(at)?;
    at.expect_word("TYPE")?;
    Ok(Statement::DropStrategy(DropStrategy { if_exists, target, kind: kind(at)? }))
}

/// Behind `DROP ALL`.
pub(super) fn drop_all(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.expect_words(&["SCALING", "STRATEGIES", "FOR"])?;
    Ok(Statement::DropStrategies { target: target(at)? })
}

/// Behind `SHOW SCALING`.
pub(super) fn show(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    if at.expect_one_of(&["STRATEGIES", "ACTIONS"])? == "STRATEGIES" {
        let target = if at.take_word("FOR") { Some(target(at)?) } else { None };
        return Ok(Statement::ShowStrategies { target });
    }
    let cluster = if at.take_words(&["FOR", "CLUSTER"]) { Some(at.identifier("the name of a cluster")?) } else { None };
    let limit = if at.take_word("LIMIT") { Some(at.whole_number("a whole number")?) } else { None };
    Ok(Statement::ShowActions(ShowActions { cluster, limit }))
}

/// At `EXPLAIN SCALING`.
pub(super) fn explain(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.expect_words(&["EXPLAIN", "SCALING"])?;
    if at.expect_one_of(&["FOR", "ACTION"])? == "FOR" {
        at.expect_word("CLUSTER")?;
        return Ok(Statement::ExplainCluster { cluster: at.identifier("the name of a cluster")? });
    }
    const WHAT: &str = "the number of an action, or its id in single quotes";
    let action = match at.whole_number(WHAT) {
        Ok(number) => number.to_string(),
        Err(error) => at.name_or_text(WHAT).map_err(|_| error)?,
    };
    Ok(Statement::ExplainAction { action })
}

fn target(at: &mut Cursor<'_>) -> Result<TargetName, ParseError> {
    if at.expect_one_of(&["CLUSTER", "ALL"])? == "CLUSTER" {
        return at.identifier("the name of a cluster").map(TargetName::Cluster);
    }
    at.expect_word("CLUSTERS")?;
    if at.take_word("LIKE") { at.text_literal("a pattern").map(TargetName::Pattern) } else { Ok(TargetName::All) }
}

fn kind(at: &mut Cursor<'_>) -> Result<StrategyKind, ParseError> {
    let place = at.place();
    let name = at.one_of_names(&TYPES.map(|(name, _)| name), "a type of scaling strategy")?;
    let kind = TYPES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    kind.ok_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "a type without a kind").at(place.0))
}

fn options(at: &mut Cursor<'_>) -> Result<Vec<StrategyOption>, ParseError> {
    at.expect(&Kind::LParen)?;
    let mut options: Vec<StrategyOption> = Vec::new();
    loop {
        let option = option(at)?;
        if options.iter().any(|other| other.name == option.name) {
            let message = format!("option {} is given twice", option.name);
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).at(option.name_place.0));
        }
        options.push(option);
        if !at.take(&Kind::Comma) {
            break;
        }
    }
    at.expect(&Kind::RParen)?;
    Ok(options)
}

fn option(at: &mut Cursor<'_>) -> Result<StrategyOption, ParseError> {
    let name_place = at.place();
    let written = at.words_before_equals();
    let name = at.one_of_names(&OPTIONS, "an option of scaling strategies").map_err(|error| {
        // What stands before the `=` is what was meant as the name, in however many words.
        match written.and_then(|written| did_you_mean(&written, OPTIONS.iter().copied())) {
            Some(close) => error.with_hint(format!("Did you mean {close}?")),
            None => error,
        }
    })?;
    at.expect(&Kind::Eq)?;
    let value_place = at.place();
    Ok(StrategyOption { name, value: at.value()?, name_place, value_place })
}
