//! A state machine that is told everything in SQL.

use loadline_sql::{Change, SqlError, Transaction, change_with, parse, to_query};
use loadline_state_machine::{
    Actor, Command, Entry, LogIndex, NodeNumber, OptionValue, Receipt, Request, ScramVerifier, Sealed, State,
    StrategyKind, TargetName, Time, apply,
};

pub(crate) struct World {
    pub(crate) state: State,
    transaction: Option<Transaction>,
    /// How many entries the statements took.
    pub(crate) entries: u64,
}

/// What came of one statement.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Done,
    /// The query that it stands for.
    Rows(String),
}

/// As an edge would make one, but for the salt.
fn verifier(password: &str) -> ScramVerifier {
    let length = u8::try_from(password.len()).unwrap_or(u8::MAX);
    ScramVerifier { iterations: 4_096, salt: vec![7; 16].into(), stored_key: [length; 32], server_key: [length; 32] }
}

impl World {
    /// With the sizes of the examples, and the feature as it is by default: off.
    pub(crate) fn new() -> Self {
        let mut world = Self { state: State::new(), transaction: None, entries: 0 };
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
            answers.push(self.one(&parsed.statement)?);
        }
        Ok(answers)
    }

    fn one(&mut self, statement: &loadline_sql::Statement) -> Result<Answer, SqlError> {
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
        let change =
            change_with(statement, seen, Some(&verifier))?.unwrap_or_else(|| panic!("{statement} does nothing"));
        match &mut self.transaction {
            Some(transaction) => transaction.add(change, self.state.now()).map(|_| Answer::Done),
            None => self.perform(&change),
        }
    }

    fn perform(&mut self, change: &Change) -> Result<Answer, SqlError> {
        if change.commands.is_empty() {
            return Ok(Answer::Done);
        }
        let receipt = self.write(change.commands.clone());
        receipt.result.map(|_| Answer::Done).map_err(|refused| change.refused(&refused.rejection))
    }

    #[allow(dead_code, reason = "not every test looks")]
    /// The options of a strategy as they are stored, without their version.
    pub(crate) fn options(&self, target: &TargetName, kind: StrategyKind) -> Option<Vec<(String, OptionValue)>> {
        let strategy = self.state.strategy_for(target, kind)?;
        let options = strategy.options.iter().filter(|(key, _)| *key != "config_version");
        Some(options.map(|(key, value)| (key.to_owned(), value.clone())).collect())
    }
}
