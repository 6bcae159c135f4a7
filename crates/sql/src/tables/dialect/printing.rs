//! From the rewritten tree to the text for SQLite.

use std::ops::ControlFlow;

use sqlparser::ast::{Query, Value as Literal, ValueWithSpan, VisitMut as _, VisitorMut};
use sqlparser::tokenizer::{Token, Tokenizer};

use crate::tables::error::{QueryError, not_supported};

/// Stands around the number of a string while the tree is printed.
const MARK: char = '\u{E000}';

/// The printer of the tree takes a quote after a backslash, and two quotes in a row, for escaped already. In SQLite the name
/// would end there, and what follows would be read as a statement.
pub(super) fn check_printable(text: &str) -> Result<(), QueryError> {
    if text.contains(MARK) {
        return Err(not_supported("the character U+E000 in a statement"));
    }
    let dialect = sqlparser::dialect::PostgreSqlDialect {};
    let Ok(tokens) = Tokenizer::new(&dialect, text).tokenize() else { return Ok(()) };
    let misread = |token: &Token| match token {
        Token::Word(word) => word.quote_style.is_some() && (word.value.contains("\\\"") || word.value.contains("\"\"")),
        _ => false,
    };
    match tokens.iter().any(misread) {
        true => Err(not_supported("a name with two quotes in a row, or with a backslash before a quote")),
        false => Ok(()),
    }
}

/// The text for SQLite, in which every string is quoted by ourselves: see [`check_printable`].
pub(super) fn printed(mut query: Query) -> String {
    struct Strings(Vec<String>);

    impl VisitorMut for Strings {
        type Break = ();

        fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
            if let Literal::SingleQuotedString(text) = &mut value.value {
                let marked = format!("{MARK}{}{MARK}", self.0.len());
                self.0.push(std::mem::replace(text, marked));
            }
            ControlFlow::Continue(())
        }
    }

    let mut strings = Strings(Vec::new());
    let _ = query.visit(&mut strings);
    let mut sql = String::new();
    for (part, is_number) in query.to_string().split(MARK).zip([false, true].into_iter().cycle()) {
        match part.parse::<usize>().ok().filter(|_| is_number).and_then(|number| strings.0.get(number)) {
            Some(text) => sql.push_str(&text.replace('\'', "''")),
            None => sql.push_str(part),
        }
    }
    sql
}
