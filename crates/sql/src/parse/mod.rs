//! From text to statements.
//!
//! The whole text is cut into tokens by `sqlparser`, and the tokens into statements at each semicolon. The first words of a
//! statement say whether it is ours, and then it is read here, or one about tables, which `sqlparser` reads. Either way a
//! mistake has its place in the whole text, counted in characters from 1, so that psql draws its caret there.
//!
//! Not here: whether names, options and values make sense. The state machine decides that, for every way in alike.

mod clusters;
mod cursor;
mod roles;
mod scaling;
mod sessions;
mod signals;
mod sleepers;
mod suggest;
mod tree;

use crate::error::{ParseError, SqlError, SqlState};
use crate::statement::Statement;
use cursor::Cursor;
pub(crate) use suggest::did_you_mean;

/// Longer than any file of statements that somebody wrote; a client that sends more is not one.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// One statement, and where it stood.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    pub statement: Statement,
    /// As it was written, without the semicolon and the comments around it.
    pub text: String,
    /// Its first character in the whole text, counted from 1.
    pub position: usize,
}

/// Every statement of a text; none if it holds nothing but blanks and comments.
pub fn parse(text: &str) -> Result<Vec<Parsed>, ParseError> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the text has {} bytes: at most {TEXT_BYTES_MAX} are read at once", text.len());
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    let tokens = cursor::tokens(text)?;
    let mut statements = Vec::new();
    for tokens in tokens.split(|token| token.is_semicolon()) {
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { continue };
        let statement = statement(text, tokens)?;
        let text = text.get(first.bytes.start..last.bytes.end).unwrap_or_default().trim_end().to_owned();
        statements.push(Parsed { statement, text, position: first.position });
    }
    Ok(statements)
}

const FIRST_WORDS: &[&str] = &[
    "ABORT",
    "ALTER",
    "BEGIN",
    "CLEAR",
    "COMMIT",
    "CREATE",
    "DEALLOCATE",
    "DELETE",
    "DISCARD",
    "DROP",
    "END",
    "EXPLAIN",
    "GRANT",
    "INSERT",
    "OVERRIDE",
    "RESET",
    "REVOKE",
    "ROLLBACK",
    "SELECT",
    "SET",
    "SHOW",
    "START",
    "TABLE",
    "UPDATE",
    "VALUES",
    "WAKE",
    "WITH",
];

/// Statements of PostgreSQL that mean something, but nothing here.
const NOT_SUPPORTED: &[&str] = &[
    "ANALYZE",
    "CALL",
    "CHECKPOINT",
    "CLOSE",
    "CLUSTER",
    "COMMENT",
    "COPY",
    "DECLARE",
    "DO",
    "EXECUTE",
    "FETCH",
    "IMPORT",
    "LISTEN",
    "LOAD",
    "LOCK",
    "MERGE",
    "MOVE",
    "NOTIFY",
    "PREPARE",
    "REASSIGN",
    "REFRESH",
    "REINDEX",
    "RELEASE",
    "SAVEPOINT",
    "SECURITY",
    "TRUNCATE",
    "UNLISTEN",
    "VACUUM",
];

fn statement(text: &str, tokens: &[cursor::Token]) -> Result<Statement, ParseError> {
    let mut at = Cursor::new(text, tokens);
    let statement = match at.upper_word().as_deref() {
        Some("CREATE") => create(&mut at)?,
        Some("ALTER") => alter(&mut at)?,
        Some("DROP") => drop(&mut at)?,
        Some("SHOW") => show(&mut at)?,
        Some("EXPLAIN") if at.word_is(1, "SCALING") => scaling::explain(&mut at)?,
        Some("BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT") => sessions::transaction(&mut at)?,
        Some("SET") => sessions::set(&mut at)?,
        Some("RESET") => sessions::reset(&mut at)?,
        Some("DISCARD") => sessions::discard(&mut at)?,
        Some("DEALLOCATE") => sessions::deallocate(&mut at)?,
        Some("CLOSE") if at.word_is(1, "ALL") => at.past(2, Statement::CloseAll),
        Some("UNLISTEN") if at.star_is(1) => at.past(2, Statement::UnlistenAll),
        Some("WAKE") => sleepers::wake(&mut at)?,
        Some("OVERRIDE") => sleepers::overrides(&mut at)?,
        Some("CLEAR") => sleepers::clear(&mut at)?,
        Some("GRANT") => roles::grant(&mut at)?,
        Some("REVOKE") => roles::revoke(&mut at)?,
        Some("SELECT" | "WITH" | "VALUES" | "TABLE" | "INSERT" | "UPDATE" | "DELETE" | "EXPLAIN") => tree::read(&at)?,
        None if at.is_left_paren() => tree::read(&at)?,
        Some(word) if NOT_SUPPORTED.contains(&word) => return Err(at.not_supported(&format!("{word} is"))),
        _ => return Err(at.expected_one_of(FIRST_WORDS)),
    };
    if !matches!(statement, Statement::Query(_) | Statement::Write(_)) {
        at.end()?;
    }
    Ok(statement)
}

fn create(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.next();
    match at.expect_one_of(&["SCALING", "CLUSTER", "SIGNAL", "ROLE", "USER"])? {
        "SCALING" => scaling::create(at),
        "CLUSTER" => clusters::create(at),
        "SIGNAL" => signals::create(at),
        word => roles::create(at, word == "USER"),
    }
}

fn alter(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.next();
    match at.expect_one_of(&["SCALING", "SYSTEM", "CLUSTER", "SIGNAL", "ROLE", "USER"])? {
        "SCALING" => scaling::alter(at),
        "SYSTEM" => sessions::alter_system(at),
        "CLUSTER" => clusters::alter(at),
        "SIGNAL" => signals::alter(at),
        _ => roles::alter(at),
    }
}

fn drop(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.next();
    match at.expect_one_of(&["SCALING", "ALL", "CLUSTER", "SIGNAL", "ROLE", "USER"])? {
        "SCALING" => scaling::drop(at),
        "ALL" => scaling::drop_all(at),
        "CLUSTER" => clusters::drop(at),
        "SIGNAL" => signals::drop(at),
        _ => roles::drop(at),
    }
}

fn show(at: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    at.next();
    if at.take_word("SIGNALS") {
        return Ok(Statement::ShowSignals);
    }
    if at.take_word("SCALING") { scaling::show(at) } else { sessions::show(at) }
}
