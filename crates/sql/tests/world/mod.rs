//! A state machine that is told everything in SQL.

use std::sync::Arc;

use loadline_sql::tables::source::default_search_path;
use loadline_sql::tables::{Budget, Limits, NoPast, SessionFacts, Source, Value, query};
use loadline_sql::{Change, SqlError, Transaction, Write, change_with, parse, to_query};
use loadline_state_machine::{
    Actor, Command, Done, Entry, LogIndex, NodeNumber, OptionValue, Receipt, Request, ScramVerifier, Sealed, State,
    StrategyKind, TargetName, Time, apply,
};

pub(crate) struct World {
    pub(crate) state: State,
    transaction: Option<Transaction>,
    /// How many entries the statements took.
    pub(crate) entries: u64,
    /// Of the next statements.
    pub(crate) parameters: Vec<Value>,
    pub(crate) notices: Vec<String>,
    /// What somebody else does between what the next write reads and its commit.
    pub(crate) meanwhile: Option<Vec<Command>>,
}

/// What came of one statement.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Done,
    /// The query that it stands for.
    Rows(String),
    /// How many rows were written, and what was returned of them.
    Written(usize, Vec<String>),
}

/// Each row as one text.
fn shown(rows: &[Vec<Value>]) -> Vec<String> {
    let value = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text(text) => text.clone(),
    };
    rows.iter().map(|row| row.iter().map(value).collect::<Vec<_>>().join("|")).collect()
}

/// As an edge would make one, but for the salt.
fn verifier(password: &str) -> ScramVerifier {
    let length = u8::try_from(password.len()).unwrap_or(u8::MAX);
    ScramVerifier { iterations: 4_096, salt: vec![7; 16].into(), stored_key: [length; 32], server_key: [length; 32] }
}

impl World {
    /// With the sizes of the examples, and the feature as it is by default: off.
    pub(crate) fn new() -> Self {
        let mut world = Self {
            state: State::new(),
            transaction: None,
            entries: 0,
            parameters: Vec::new(),
            notices: Vec::new(),
            meanwhile: None,
        };
        world.write(vec![Command::FoundGroup { nodes: 3 }]).result.expect("the world goes on");
        world.write(vec![Command::AnnounceLeader { node: NodeNumber(1), term: 1 }]).result.expect("the world goes on");
        for (name, slots) in [("1", 1), ("2", 2), ("100cc", 4), ("200cc", 8), ("400cc", 16)] {
            let create =
                Command::CreateSize { name: name.to_owned(), rank: None, slots, price_micros_per_hour: 1_000_000 };
            world.write(vec![create]).result.expect("the world goes on");
        }
        world.entries = 0;
        world
    }

    /// The same with the feature on and these clusters.
    pub(crate) fn with_clusters(names: &[&str]) -> Self {
        let mut world = Self::new();
        world.run("ALTER SYSTEM SET enable_auto_scaling = true");
        for name in names {
            world.write(vec![Command::CreateCluster { name: (*name).to_owned() }]).result.expect("the world goes on");
        }
        world.entries = 0;
        world
    }

    pub(crate) fn write(&mut self, commands: Vec<Command>) -> Receipt {
        let request = Request { actor: Actor::default(), request_id: None, commands };
        let stamped_at = Time::from_millis(self.state.now().as_millis() + 1_000);
        let entry = Sealed::seal(Entry { stamped_at, requests: vec![request] });
        self.entries += 1;
        let index = LogIndex(self.state.applied().0 + 1);
        apply(&mut self.state, index, &entry).receipts.remove(0)
    }

    #[track_caller]
    pub(crate) fn run(&mut self, text: &str) -> Vec<Answer> {
        self.try_run(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    /// As a session does.
    pub(crate) fn try_run(&mut self, text: &str) -> Result<Vec<Answer>, SqlError> {
        let mut answers = Vec::new();
        for parsed in parse(text)? {
            answers.push(self.one(&parsed.statement, text)?);
        }
        Ok(answers)
    }

    /// What a session in this world sees.
    fn source(&self) -> Arc<Source> {
        let seen = self.transaction.as_ref().map_or(&self.state, Transaction::state);
        Arc::new(Source {
            state: Arc::new(seen.clone()),
            past: Arc::new(NoPast),
            nodes: Vec::new(),
            session: SessionFacts::default(),
            budget: Budget::default(),
        })
    }

    /// The rows of a query, each as one text.
    #[track_caller]
    pub(crate) fn rows(&self, text: &str) -> Vec<String> {
        let statement = parse(text).expect("it is a query").remove(0).statement;
        let loadline_sql::Statement::Query(tree) = statement else { panic!("{text} is no query") };
        let prepared = query::prepare(&tree, text, &default_search_path()).expect("it is understood");
        let answer = prepared.run(&self.source(), &[], Limits::default()).expect("it is answered");
        shown(&answer.rows)
    }

    fn one(&mut self, statement: &loadline_sql::Statement, text: &str) -> Result<Answer, SqlError> {
        use loadline_sql::Statement;
        match statement {
            Statement::Begin(_) => {
                self.transaction = Some(Transaction::begin(Actor::default(), self.state.clone()));
                return Ok(Answer::Done);
            }
            Statement::Rollback => {
                self.transaction = None;
                return Ok(Answer::Done);
            }
            Statement::Commit => {
                let transaction = self.transaction.take().expect("the world goes on");
                let receipt = self.write(transaction.commands());
                return receipt.result.map(|_| Answer::Done).map_err(|refused| transaction.refused(&refused));
            }
            _ => {}
        }
        let seen = self.transaction.as_ref().map_or(&self.state, Transaction::state);
        if let Some(query) = to_query(statement, seen)? {
            return Ok(Answer::Rows(query));
        }
        if let Statement::Write(tree) = statement {
            let write = Write::prepare(tree, text, &default_search_path())?;
            let mut written = write.run(&self.source(), &self.parameters, Limits::default())?;
            self.notices.extend(written.change.notices.iter().cloned());
            let read = self.state.clone();
            if let Some(meanwhile) = self.meanwhile.take() {
                self.write(meanwhile).result.expect("somebody else may");
            }
            let done = match &mut self.transaction {
                Some(transaction) => transaction.add(written.change.clone(), self.state.now())?,
                None => self.perform(&written.change, &read)?,
            };
            written.told(&done);
            let returned = match written.returned.take() {
                Some(answer) => Some(answer),
                None => write.answer(&written, &self.source(), Limits::default())?,
            };
            return Ok(Answer::Written(written.rows, returned.map(|answer| shown(&answer.rows)).unwrap_or_default()));
        }
        let change =
            change_with(statement, seen, Some(&verifier))?.unwrap_or_else(|| panic!("{statement} does nothing"));
        match &mut self.transaction {
            Some(transaction) => transaction.add(change, self.state.now()).map(|_| Answer::Done),
            None => {
                let read = self.state.clone();
                self.perform(&change, &read).map(|_| Answer::Done)
            }
        }
    }

    fn perform(&mut self, change: &Change, read: &State) -> Result<Vec<Done>, SqlError> {
        if change.commands.is_empty() {
            return Ok(Vec::new());
        }
        let receipt = self.write(change.request(read));
        receipt.result.map_err(|refused| change.refused_request(read, &refused))
    }

    /// The options of a strategy as they are stored, without their version.
    pub(crate) fn options(&self, target: &TargetName, kind: StrategyKind) -> Option<Vec<(String, OptionValue)>> {
        let strategy = self.state.strategy_for(target, kind)?;
        let options = strategy.options.iter().filter(|(key, _)| *key != "config_version");
        Some(options.map(|(key, value)| (key.to_owned(), value.clone())).collect())
    }
}
