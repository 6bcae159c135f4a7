//! Statements about tables, which `sqlparser` reads.

use sqlparser::ast::{SetExpr, Statement as Tree};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token as Kind, TokenWithSpan};

use super::cursor::{Cursor, Places, Token};
use crate::error::{ParseError, SqlError, SqlState};
use crate::statement::Statement;

/// How deep parentheses, subqueries and the like may be nested in each other.
const NESTING_MAX: usize = 50;
/// How many operators one statement may have. A chain of them is a tree as deep as the chain is long, and whoever walks it,
/// even to free it, needs that much of the stack. psql's own longest query has some sixty.
const OPERATORS_MAX: usize = 1_000;

pub(super) fn read(at: &Cursor<'_>) -> Result<Statement, ParseError> {
    let tokens = at.all();
    check_operators(tokens)?;
    let dialect = PostgreSqlDialect {};
    let own: Vec<TokenWithSpan> = tokens.iter().map(|token| token.spanned.clone()).collect();
    let mut parser = Parser::new(&dialect).with_recursion_limit(NESTING_MAX).with_tokens_with_locations(own);
    // sqlparser knows `TABLE t` as part of a query only.
    let read = if at.word_is(0, "TABLE") { parser.parse_query().map(Tree::Query) } else { parser.parse_statement() };
    let tree = read.map_err(|error| explain(at, error))?;
    let rest = parser.peek_token();
    if rest.token != Kind::EOF {
        let (character, _) = Places::new(at.text()).find(rest.span.start.line, rest.span.start.column);
        let message = format!("syntax error at or near \"{}\"", rest.token);
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).at(character + 1));
    }
    classify(at, tree)
}

fn classify(at: &Cursor<'_>, tree: Tree) -> Result<Statement, ParseError> {
    let writes = match &tree {
        Tree::Insert(_) | Tree::Update(_) | Tree::Delete(_) => true,
        // `WITH ... INSERT`.
        Tree::Query(query) => {
            matches!(*query.body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_))
        }
        Tree::Explain { .. } => false,
        _ => return Err(at.not_supported("this statement is")),
    };
    let tree = Box::new(tree);
    Ok(if writes { Statement::Write(tree) } else { Statement::Query(tree) })
}

fn check_operators(tokens: &[Token]) -> Result<(), ParseError> {
    let joins = |kind: &Kind| match kind {
        Kind::Comma | Kind::LParen | Kind::RParen | Kind::Period => false,
        Kind::Number(..) | Kind::SingleQuotedString(_) | Kind::Placeholder(_) => false,
        Kind::Word(word) => {
            const JOINING: &[&str] = &[
                "AND",
                "OR",
                "XOR",
                "NOT",
                "IS",
                "ISNULL",
                "NOTNULL",
                "IN",
                "BETWEEN",
                "LIKE",
                "ILIKE",
                "RLIKE",
                "REGEXP",
                "SIMILAR",
                "OVERLAPS",
                "COLLATE",
                "AT",
                "UNION",
                "EXCEPT",
                "INTERSECT",
                "MINUS",
                "OPERATOR",
                "DIV",
            ];
            word.quote_style.is_none() && JOINING.contains(&word.value.to_ascii_uppercase().as_str())
        }
        _ => true,
    };
    match tokens.iter().filter(|token| joins(&token.spanned.token)).nth(OPERATORS_MAX) {
        None => Ok(()),
        Some(one_too_many) => {
            let message = format!("the statement has more than {OPERATORS_MAX} operators");
            Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message).at(one_too_many.position))
        }
    }
}

/// `sqlparser` says where only at the end of its message: "Expected: an expression, found: FROM at Line: 1, Column: 8".
fn explain(at: &Cursor<'_>, error: ParserError) -> ParseError {
    let message = match error {
        ParserError::RecursionLimitExceeded => {
            let message = format!("the statement is nested more than {NESTING_MAX} levels deep");
            return SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message);
        }
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
    };
    let place = message.rsplit_once(" at Line: ").and_then(|(said, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        Some((said.to_owned(), line.trim().parse().ok()?, column.trim().parse().ok()?))
    });
    match place {
        // Past the last token the parser has no place of its own.
        Some((said, 0, _)) => syntax(&said).at(end(at)),
        Some((said, line, column)) => syntax(&said).at(Places::new(at.text()).find(line, column).0 + 1),
        None => syntax(&message).at(end(at)),
    }
}

fn syntax(said: &str) -> ParseError {
    let said = match said.strip_prefix("Expected: ") {
        Some(said) => format!("expected {said}"),
        None => said.to_owned(),
    };
    SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error: {}", said.replace("found: EOF", "found the end")))
}

fn end(at: &Cursor<'_>) -> usize {
    at.all().last().map_or(1, |last| last.position + at.text()[last.bytes.clone()].chars().count())
}
