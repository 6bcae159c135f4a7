//! `SIGNAL` and `SIGNALS`: what the leader collects, from where, how often and for which clusters.

use std::sync::LazyLock;

use loadline_state_machine::{Span, signal_options};
use sqlparser::tokenizer::Token as Kind;

use super::cursor::Cursor;
use super::did_you_mean;
use crate::error::{ParseError, SqlError, SqlState};
use crate::statement::{AlterSignal, CreateSignal, SignalKind, SignalSaying, Statement, TargetName};

const SIGNAL: &str = "the name of a signal";

const KINDS: [(&str, SignalKind); 5] = [
    ("PROMETHEUS", SignalKind::Prometheus),
    ("NATS", SignalKind::Nats),
    ("POSTGRES", SignalKind::Postgres),
    ("POSTGRESQL", SignalKind::Postgres),
    ("PUSH", SignalKind::Push),
];

/// The options of all kinds of signal, each once.
static OPTIONS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let all = SignalKind::ALL.into_iter().flat_map(signal_options).map(|option| option.sql_name);
    let mut names: Vec<&'static str> = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
});

/// Behind `CREATE SIGNAL`. The clauses may come in any order.
pub(super) fn create(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let if_not_exists = at.if_not_exists();
    let name = at.identifier(SIGNAL)?;
    let (mut from, mut target, mut every) = (None, None, None);
    while !at.is_at_end() {
        let place = at.place();
        let twice = match at.expect_one_of(&["FROM", "EVERY", "FOR"])? {
            "FROM" => {
                let kind = kind(at)?;
                let options = if at.is_left_paren() { options(at)? } else { Vec::new() };
                from.replace((kind, options)).is_some()
            }
            "EVERY" => every.replace(span(at)?).is_some(),
            _ => target.replace(self::target(at)?).is_some(),
        };
        once(twice, place.0)?;
    }
    let Some((kind, options)) = from else { return Err(at.expected_one_of(&["FROM"])) };
    let target = target.unwrap_or(TargetName::All);
    Ok(Statement::CreateSignal(CreateSignal { name, if_not_exists, kind, target, every, options }))
}

/// Behind `ALTER SIGNAL`.
pub(super) fn alter(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    const CLAUSES: &[&str] = &["UPDATE", "RESET", "EVERY", "FOR"];
    let mut alter = AlterSignal { name: at.identifier(SIGNAL)?, ..AlterSignal::default() };
    if at.is_at_end() {
        return Err(at.expected_one_of(CLAUSES));
    }
    while !at.is_at_end() {
        let place = at.place();
        let twice = match at.expect_one_of(CLAUSES)? {
            "UPDATE" => {
                let before = std::mem::replace(&mut alter.options, options(at)?);
                !before.is_empty()
            }
            "RESET" => {
                at.expect(&Kind::LParen)?;
                let mut reset = vec![option_name(at)?];
                while at.take(&Kind::Comma) {
                    reset.push(option_name(at)?);
                }
                at.expect(&Kind::RParen)?;
                !std::mem::replace(&mut alter.reset, reset).is_empty()
            }
            "EVERY" => alter.every.replace(span(at)?).is_some(),
            _ => alter.target.replace(target(at)?).is_some(),
        };
        once(twice, place.0)?;
    }
    Ok(Statement::AlterSignal(alter))
}

/// Behind `DROP SIGNAL`.
pub(super) fn drop(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let if_exists = at.if_exists();
    Ok(Statement::DropSignal { name: at.identifier(SIGNAL)?, if_exists })
}

fn once(twice: bool, place: usize) -> Result<(), ParseError> {
    if twice { Err(SqlError::new(SqlState::SYNTAX_ERROR, "this is said twice").at(place)) } else { Ok(()) }
}

fn target(at: &mut Cursor<'_>) -> Result<TargetName, ParseError> {
    match at.expect_one_of(&["CLUSTER", "CLUSTERS", "ALL"])? {
        "CLUSTER" => return at.identifier("the name of a cluster").map(TargetName::Cluster),
        "CLUSTERS" => at.expect_word("LIKE")?,
        _ => {
            at.expect_word("CLUSTERS")?;
            if !at.take_word("LIKE") {
                return Ok(TargetName::All);
            }
        }
    }
    at.text_literal("a pattern").map(TargetName::Pattern)
}

fn kind(at: &mut Cursor<'_>) -> Result<SignalKind, ParseError> {
    let place = at.place();
    let name = at.one_of_names(&KINDS.map(|(name, _)| name), "where a signal can come from")?;
    let kind = KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    kind.ok_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "a name without a kind").at(place.0))
}

fn span(at: &mut Cursor<'_>) -> Result<Span, ParseError> {
    let place = at.place();
    let text = at.value()?.as_text();
    text.parse().map_err(|error: loadline_state_machine::ParseSpanError| {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, error.to_string()).at(place.0)
    })
}

fn option_name(at: &mut Cursor<'_>) -> Result<&'static str, ParseError> {
    at.one_of_names(&OPTIONS, "an option of signals")
}

fn options(at: &mut Cursor<'_>) -> Result<Vec<SignalSaying>, ParseError> {
    at.expect(&Kind::LParen)?;
    let mut options: Vec<SignalSaying> = Vec::new();
    loop {
        let name_place = at.place();
        let written = at.words_before_equals();
        let name = option_name(at).map_err(|error| {
            match written.and_then(|written| did_you_mean(&written, OPTIONS.iter().copied())) {
                Some(close) => error.with_hint(format!("Did you mean {close}?")),
                None => error,
            }
        })?;
        at.expect(&Kind::Eq)?;
        let value_place = at.place();
        let option = SignalSaying { name, value: at.value()?, name_place, value_place };
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
