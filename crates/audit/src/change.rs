//! A change that somebody wants to try: statements, taken as one transaction on any state.
//!
//! Not here: what comes of it (`whatif`, `backtest`). Nothing here reaches a log: the state is a fork that is thrown away.

use std::sync::Arc;

use loadline_sql::tables::source::default_search_path;
use loadline_sql::tables::{Budget, Limits, NoPast, SessionFacts, Source};
use loadline_sql::{Parsed, SqlError, Statement, Transaction, Write, change, refused};
use loadline_state_machine::{Actor, Command, Rejection, State};

/// Why a change cannot be tried, at the place in the text that is to blame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", self.place())]
pub struct ChangeError {
    /// From 1; nothing if it is about the whole.
    pub line: Option<usize>,
    /// The statement as it was written, if one was understood.
    pub statement: Option<String>,
    pub message: String,
    /// What would be right, if that is more than the message says.
    pub hint: Option<String>,
    /// The text itself is wrong, whatever the state: not a statement, or not one that can be tried.
    pub unreadable: bool,
}

impl ChangeError {
    fn of(text: &str, parsed: Option<&Parsed>, error: &SqlError) -> ChangeError {
        let position = error.position.or(parsed.map(|parsed| parsed.position));
        ChangeError {
            line: position.map(|position| line_of(text, position)),
            statement: parsed.map(|parsed| parsed.text.clone()),
            message: error.message.clone(),
            hint: error.hint.clone(),
            unreadable: parsed.is_none(),
        }
    }

    /// Of the transaction as a whole.
    pub(crate) fn whole(rejection: &Rejection) -> ChangeError {
        let error = refused(rejection);
        ChangeError { line: None, statement: None, message: error.message, hint: error.hint, unreadable: false }
    }

    fn place(&self) -> String {
        match (self.line, &self.statement) {
            (Some(line), Some(statement)) => format!("line {line}, {}: ", shortened(statement)),
            (Some(line), None) => format!("line {line}: "),
            (None, _) => String::new(),
        }
    }
}

/// Enough of a statement to recognise it, on one line.
pub(crate) fn shortened(statement: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    let words = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.chars().count() <= CHARACTERS_MAX {
        return words;
    }
    words.chars().take(CHARACTERS_MAX).chain(std::iter::once('…')).collect()
}

/// Statements that were read, and not yet tried on anything.
#[derive(Debug, Clone)]
pub struct Change {
    text: String,
    statements: Vec<Parsed>,
}

impl Change {
    /// A change that changes nothing.
    pub fn none() -> Change {
        Change { text: String::new(), statements: Vec::new() }
    }

    /// Reads a text of statements. `BEGIN` and `COMMIT` may be there: the whole is one transaction as it is.
    pub fn parse(text: &str) -> Result<Change, ChangeError> {
        let statements = loadline_sql::parse(text).map_err(|error| ChangeError::of(text, None, &error))?;
        for parsed in &statements {
            let message = match &parsed.statement {
                // A password becomes a verifier with salt at the edge, and no decision depends on it. It is not repeated here either.
                Statement::CreateRole(_) | Statement::AlterRole(_) => {
                    "who may log in changes no decision: leave it out"
                }
                statement if !changes_something(statement) => "only statements that change something can be tried",
                _ => continue,
            };
            return Err(ChangeError {
                line: Some(line_of(text, parsed.position)),
                statement: None,
                message: message.to_owned(),
                hint: Some("write CREATE, ALTER, DROP, WAKE, OVERRIDE, INSERT, UPDATE or DELETE".to_owned()),
                unreadable: true,
            });
        }
        let statements = statements.into_iter().filter(|parsed| !is_bracket(&parsed.statement)).collect();
        Ok(Change { text: text.to_owned(), statements })
    }

    /// True: there is no statement in it.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// As they were written, for whoever reads the answer.
    pub fn statements(&self) -> impl Iterator<Item = &str> {
        self.statements.iter().map(|parsed| parsed.text.as_str())
    }

    /// What the statements ask for, computed from this state: the commands of one request. None if all is as asked already.
    pub fn commands(&self, state: &State, actor: &Actor) -> Result<Vec<Command>, ChangeError> {
        Ok(self.asks(state, actor)?.commands)
    }

    /// The same, with what they have found nothing to do to.
    pub(crate) fn asks(&self, state: &State, actor: &Actor) -> Result<Asked, ChangeError> {
        let mut transaction = Transaction::begin(actor.clone(), state.clone());
        let mut unmet = Vec::new();
        for parsed in &self.statements {
            let wrong = |error: SqlError| ChangeError::of(&self.text, Some(parsed), &error);
            let wanted = match &parsed.statement {
                Statement::Write(tree) => {
                    let write = Write::prepare(tree, &self.text, &default_search_path()).map_err(wrong)?;
                    let written = write.run(&source(transaction.state()), &[], Limits::default()).map_err(wrong)?;
                    if written.rows == 0 && !inserts(parsed) {
                        unmet.push(parsed.clone());
                    }
                    written.change
                }
                statement => change(statement, transaction.state()).map_err(wrong)?.unwrap_or_default(),
            };
            transaction.add(wanted, state.now()).map_err(wrong)?;
        }
        let commands = if transaction.is_empty() { Vec::new() } else { transaction.commands() };
        Ok(Asked { commands, unmet: Change { text: self.text.clone(), statements: unmet } })
    }
}

/// What a change asks for on one state.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) commands: Vec<Command>,
    /// Those `UPDATE`s and `DELETE`s that are about no row of this state. On another one they may be about some.
    pub(crate) unmet: Change,
}

/// An `INSERT` that writes no row has found it there: that is as asked.
fn inserts(parsed: &Parsed) -> bool {
    let verb = parsed.text.split_whitespace().next();
    verb.is_some_and(|verb| verb.eq_ignore_ascii_case("INSERT"))
}

fn is_bracket(statement: &Statement) -> bool {
    matches!(statement, Statement::Begin(_) | Statement::Commit)
}

fn changes_something(statement: &Statement) -> bool {
    match statement {
        Statement::Write(_) => true,
        statement if is_bracket(statement) => true,
        // Which statements write is known where they are made into commands; an empty state is enough to ask.
        statement => !matches!(change(statement, &State::new()), Ok(None)),
    }
}

fn line_of(text: &str, position: usize) -> usize {
    1 + text.chars().take(position.saturating_sub(1)).filter(|character| *character == '\n').count()
}

/// What `WHERE` and the new values of a write are read from: the state, and no past.
fn source(state: &State) -> Arc<Source> {
    Arc::new(Source {
        state: Arc::new(state.clone()),
        past: Arc::new(NoPast),
        nodes: Vec::new(),
        session: SessionFacts::default(),
        budget: Budget::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Result<Vec<Command>, ChangeError> {
        let change = Change::parse(text)?;
        change.commands(&State::new(), &Actor::new("somebody", "test"))
    }

    #[test]
    fn statements_are_one_transaction_and_each_sees_those_before() {
        let text = "BEGIN;\nALTER SYSTEM SET enable_auto_scaling = true;\nCREATE CLUSTER demo;\n\
                    CREATE SCALING STRATEGY FOR CLUSTER demo TYPE IDLE SUSPEND WITH (IDLE AFTER = '30m');\nCOMMIT;";
        let names: Vec<&str> = commands(text).unwrap().iter().map(Command::kind_name).collect();
        assert_eq!(names, ["SetSetting", "CreateCluster", "CreateStrategy"]);
        assert!(Change::parse("-- nothing at all\n").unwrap().is_empty());
    }

    #[test]
    fn a_write_that_is_about_no_row_is_told_from_one_that_finds_all_as_it_asks() {
        let on = "ALTER SYSTEM SET enable_auto_scaling = true; CREATE CLUSTER demo";
        let strategy =
            format!("{on}; CREATE SCALING STRATEGY FOR CLUSTER demo TYPE IDLE SUSPEND WITH (IDLE AFTER = '1h')");
        let update =
            "UPDATE mz_internal.mz_scaling_strategies SET enabled = false WHERE strategy_type = 'idle_suspend'";
        for (before, unmet) in [(on, vec![update]), (strategy.as_str(), vec![])] {
            let change = Change::parse(&format!("{before}; {update}")).unwrap();
            let asked = change.asks(&State::new(), &Actor::new("somebody", "test")).unwrap();
            assert_eq!(asked.unmet.statements().collect::<Vec<_>>(), unmet, "{before}");
        }
    }

    #[track_caller]
    fn check(text: &str, message: &str) {
        assert_eq!(commands(text).expect_err(text).to_string(), message);
    }

    #[test]
    fn a_mistake_names_its_line_and_a_refusal_its_statement() {
        check(
            "CREATE CLUSTER a;\nCREATE\n  CLUSTR b",
            "line 3: syntax error at or near \"CLUSTR\": expected SCALING, CLUSTER, SIGNAL, ROLE or USER",
        );
        let refused = commands("CREATE CLUSTER a;\nCREATE CLUSTER a").unwrap_err();
        assert_eq!((refused.line, refused.statement.as_deref()), (Some(2), Some("CREATE CLUSTER a")));
        assert!(!refused.unreadable);
        check("CREATE CLUSTER a;\n\nSELECT 1", "line 3: only statements that change something can be tried");
        check("CREATE ROLE ops PASSWORD 'x'", "line 1: who may log in changes no decision: leave it out");
    }
}
