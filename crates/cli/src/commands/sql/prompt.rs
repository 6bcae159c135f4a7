//! A prompt: lines until a semicolon, history in a file, and words that complete themselves.
//!
//! rustyline and not reedline: the same editing and history for a quarter of the packages, and nothing here needs menus.

use std::path::PathBuf;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper};

use super::{Session, answers};
use crate::console::Console;
use crate::exit::Failed;
use crate::output::Format;

const HELP: &str = "Statements end with a semicolon. \\q or Ctrl-D ends, Ctrl-C gives a line up, Tab completes, \\? shows this.\n\
                    SHOW SCALING STRATEGIES; SHOW SCALING ACTIONS LIMIT 10; EXPLAIN SCALING FOR CLUSTER x; SELECT * FROM nodes;";

pub(super) async fn run(session: &mut Session, format: Format, console: &mut Console) -> Result<(), Failed> {
    let mut editor: Editor<Words, FileHistory> = Editor::new().map_err(unusable)?;
    editor.set_helper(Some(Words));
    let history = history_path();
    if let Some(path) = &history {
        // None yet is no mistake.
        let _ = editor.load_history(path);
    }
    console.say("Type \\? for help.");
    loop {
        let line = match editor.readline("loadline=> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(unusable(error)),
        };
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        // A password must not lie around in a file.
        if !text.to_ascii_lowercase().contains("password") {
            let _ = editor.add_history_entry(text);
        }
        match text {
            "\\q" | "quit" | "exit" => break,
            "\\?" | "help" => console.say(HELP),
            _ => {
                if let Err(error) = session.run(text, format, console).await {
                    let gone = error.is_closed() || error.as_db_error().is_none();
                    console.fail(&answers::failed(text, &error));
                    if gone {
                        break;
                    }
                }
            }
        }
    }
    if let Some(path) = &history {
        if let Some(folder) = path.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        let _ = editor.save_history(path);
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed over by map_err")]
fn unusable(error: ReadlineError) -> Failed {
    Failed::new(crate::exit::Exit::Failure, format!("the terminal cannot be used: {error}"))
}

/// `$XDG_STATE_HOME/loadline/sql_history`, or under `~/.local/state`.
fn history_path() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let folder = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
    Some(folder.join("loadline/sql_history"))
}

#[derive(Debug)]
struct Words;

impl Helper for Words {}

impl Highlighter for Words {}

impl Hinter for Words {
    type Hint = String;
}

/// What can stand in a statement of ours, and the tables.
const WORDS: &[&str] = &[
    "ACTION",
    "ACTIONS",
    "ALL",
    "ALTER",
    "APPROVAL",
    "BACKEND",
    "BEGIN",
    "BURST",
    "BURST_SIZE",
    "CASCADE",
    "CLUSTER",
    "CLUSTERS",
    "COMMIT",
    "COOLDOWN",
    "CRASH_WINDOW",
    "CREATE",
    "DELETE FROM",
    "DROP",
    "DRY_RUN",
    "ENABLED",
    "EXPLAIN",
    "FOR",
    "FROM",
    "GRANT",
    "GROUP BY",
    "IDLE_AFTER",
    "IDLE_SUSPEND",
    "IF EXISTS",
    "IF NOT EXISTS",
    "INSERT INTO",
    "JOIN",
    "LIKE",
    "LIMIT",
    "MAX_SIZE",
    "MIN_CRASH_COUNT",
    "MIN_OOM_COUNT",
    "ORDER BY",
    "RENAME TO",
    "REPLICA",
    "REPLICA_NAME",
    "REPLICA_SCOPE",
    "RESET",
    "REVOKE",
    "ROLE",
    "ROLLBACK",
    "SCALING",
    "SELECT",
    "SET",
    "SHOW",
    "SHRINK_TO_FIT",
    "SIZE",
    "STRATEGIES",
    "STRATEGY",
    "SYSTEM",
    "TARGET_SIZE",
    "TYPE",
    "UPDATE",
    "USAGE ON CLUSTER",
    "VALUES",
    "WHERE",
    "WITH",
    "loadline.actions",
    "loadline.attempts",
    "loadline.clusters",
    "loadline.decision_stages",
    "loadline.decisions",
    "loadline.events",
    "loadline.nodes",
    "loadline.operations",
    "loadline.replicas",
    "loadline.settings",
    "loadline.signals",
    "loadline.sizes",
    "mz_cluster_replicas",
    "mz_clusters",
    "mz_internal.mz_scaling_actions",
    "mz_internal.mz_scaling_strategies",
    "mz_internal.mz_scaling_strategies_effective",
    "mz_internal.mz_scaling_strategy_state",
];

/// Where the word begins that is being written, and what it can become.
fn completions(line: &str, place: usize) -> (usize, Vec<&'static str>) {
    let before = line.get(..place).unwrap_or(line);
    let start = before
        .rfind(|c: char| !(c.is_alphanumeric() || "_.".contains(c)))
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    let word = before[start..].to_lowercase();
    if word.is_empty() {
        return (start, Vec::new());
    }
    let matches = |known: &&&str| {
        let known = known.to_lowercase();
        known.starts_with(&word) || known.rsplit('.').next().is_some_and(|last| last.starts_with(&word))
    };
    (start, WORDS.iter().filter(matches).copied().collect())
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(&self, line: &str, place: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, words) = completions(line, place);
        let pair = |word: &str| Pair { display: word.to_owned(), replacement: format!("{word} ") };
        Ok((start, words.into_iter().map(pair).collect()))
    }
}

/// A statement goes on over lines until its semicolon, which may also stand in a text.
fn is_complete(text: &str) -> bool {
    let text = text.trim();
    if text.is_empty() || text.starts_with('\\') || ["quit", "exit", "help"].contains(&text) {
        return true;
    }
    match loadline_sql::parse(text) {
        Ok(_) => text.ends_with(';'),
        // A text or a comment that is still open; any other mistake is for the node to explain.
        Err(error) => text.ends_with(';') && !error.message.starts_with("Unterminated"),
    }
}

impl Validator for Words {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_complete(context.input()) { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_ends_with_its_semicolon_and_not_with_one_inside() {
        for (text, complete) in [
            ("SHOW x;", true),
            ("SHOW x", false),
            ("SELECT ';", false),
            ("SELECT 1; SELECT", false),
            ("SELCT;", true),
            ("\\q", true),
            ("", true),
        ] {
            assert_eq!(is_complete(text), complete, "{text}");
        }
    }

    #[test]
    fn words_and_tables_are_completed_where_they_begin() {
        assert_eq!(completions("SHOW sca", 8), (5, vec!["SCALING"]));
        assert_eq!(completions("SELECT * FROM mz_internal.mz_scaling_a", 38).1, ["mz_internal.mz_scaling_actions"]);
        assert_eq!(completions("SELECT * FROM ope", 17).1, ["loadline.operations"]);
        assert_eq!(completions("SHOW ", 5).1, Vec::<&str>::new());
    }
}
