//! What a session asks to be written: into the transaction that it is in, or through the log at once.
//!
//! Not here: what a statement asks for, and what it is refused for (`loadline_sql`, and the state machine behind it).

use std::sync::Arc;
use std::time::Duration;

use loadline_raft_node::ProposeError;
use loadline_sql::statement::{SetExpr, Tree};
use loadline_sql::tables::{Answer, Value};
use loadline_sql::{Change, SqlError, SqlState, Statement, Write, change_with};
use loadline_state_machine::{Actor, Command, Done, Refused, Request, RequestId, State};

use super::Sql;
use super::session::Session;
use super::statements::{Asked, Outcome, Said, off_thread};

impl Sql {
    pub(super) async fn commit(&self, session: &Session, said: &mut Said) -> Result<Outcome, SqlError> {
        let open = session.lock().open.take();
        session.uncover();
        let Some(open) = open else {
            said.notices.push("there is no transaction in progress".to_owned());
            return Ok(Outcome::Ended { tag: "COMMIT" });
        };
        if open.failed {
            return Ok(Outcome::Ended { tag: "ROLLBACK" });
        }
        if !open.transaction.is_empty() {
            let receipt = self.propose(&session.actor, open.transaction.commands()).await?;
            receipt.map_err(|refused| open.transaction.refused(&refused))?;
        }
        Ok(Outcome::Ended { tag: "COMMIT" })
    }

    pub(super) async fn write(
        &self,
        session: &Session,
        asked: &Asked,
        parameters: &[Value],
        said: &mut Said,
    ) -> Result<Outcome, SqlError> {
        if session.parameter("loadline.as_of").is_some_and(|text| !text.is_empty()) {
            let message = "the past cannot be changed: loadline.as_of is set";
            return Err(SqlError::new(SqlState::READ_ONLY_TRANSACTION, message).with_hint("RESET loadline.as_of;"));
        }
        let read_only = session.lock().open.as_ref().is_some_and(|open| open.read_only);
        let always = session.parameter("default_transaction_read_only").is_some_and(|it| it == "on");
        if read_only || (always && session.lock().open.is_none()) {
            let message = format!("cannot execute {} in a read-only transaction", tag(&asked.statement));
            return Err(SqlError::new(SqlState::READ_ONLY_TRANSACTION, message));
        }
        if let Statement::Write(tree) = &asked.statement {
            return self.write_rows(session, tree, asked, parameters, said).await;
        }
        let state = self.state(session, &self.budget(session, None)).await?;
        let verifier = Some(&loadline_credentials::scram::verifier as _);
        let Some(change) = change_with(&asked.statement, &state, verifier)? else {
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "this statement is not supported here"));
        };
        self.take_up(session, &state, &change, said).await?;
        Ok(Outcome::Done { tag: tag(&asked.statement).to_owned() })
    }

    /// `INSERT`, `UPDATE` or `DELETE`: what they are about is read first, as a query is.
    async fn write_rows(
        &self,
        session: &Session,
        tree: &Tree,
        asked: &Asked,
        parameters: &[Value],
        said: &mut Said,
    ) -> Result<Outcome, SqlError> {
        let write = Write::prepare(tree, &asked.text, &session.search_path())?;
        if write.returns_new_ids() && session.lock().open.is_some() {
            let message =
                "RETURNING of an INSERT is not supported in a transaction: the log gives the id at the commit";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let under_way = self.cancelling.begin(session.process, &session.secret);
        let _place = self.statement_place()?;
        let budget = self.budget(session, Some(&under_way.cancelled));
        let source = self.source(session, budget.clone()).await?;
        let state = Arc::clone(&source.state);
        let (reading, parameters, limits) = (write.clone(), parameters.to_vec(), self.answer);
        let mut written = off_thread(move || reading.run(&source, &parameters, limits)).await?;
        let done = self.take_up(session, &state, &written.change, said).await?;
        let verb = tag(&asked.statement);
        if !write.is_returning() {
            return Ok(Outcome::Done { tag: format!("{verb} {}", written.rows) });
        }
        written.told(&done);
        let answer = match written.returned.take() {
            Some(answer) => Some(answer),
            None => {
                let source = self.source(session, budget).await?;
                off_thread(move || write.answer(&written, &source, limits)).await?
            }
        };
        Ok(Outcome::Rows { answer: answer.unwrap_or(Answer { columns: Vec::new(), rows: Vec::new() }), tag: verb })
    }

    /// Takes a change up into the transaction that is open, or has it recorded. `state` is what it was computed from.
    async fn take_up(
        &self,
        session: &Session,
        state: &State,
        change: &Change,
        said: &mut Said,
    ) -> Result<Vec<Done>, SqlError> {
        said.notices.extend(change.notices.iter().cloned());
        if let Some(open) = &mut session.lock().open {
            let now = open.transaction.state().now();
            return open.transaction.add(change.clone(), now);
        }
        if change.commands.is_empty() {
            return Ok(Vec::new());
        }
        let receipt = self.propose(&session.actor, change.request(state)).await?;
        receipt.map_err(|refused| change.refused_request(state, &refused))
    }

    async fn propose(&self, actor: &Actor, commands: Vec<Command>) -> Result<Result<Vec<Done>, Refused>, SqlError> {
        // One id for all tries: whether an answer was lost or never made, it happens once.
        let request_id = Some(RequestId(uuid::Uuid::now_v7().as_u128()));
        let mut tries_left = TRIES;
        loop {
            let request = Request { actor: actor.clone(), request_id, commands: commands.clone() };
            match Box::pin(self.proposals.propose(request)).await {
                Ok(receipt) => return Ok(receipt.result),
                Err(ProposeError::Unknown { .. } | ProposeError::NoLeader) if tries_left > 0 => {
                    tries_left -= 1;
                    tokio::time::sleep(BETWEEN_TRIES).await;
                }
                Err(error) => return Err(unrecorded(&error)),
            }
        }
    }
}

/// Together somewhat longer than an election takes.
const TRIES: u32 = 8;
const BETWEEN_TRIES: Duration = Duration::from_millis(250);

/// What a client is told was done, in PostgreSQL's words as far as it has any.
fn tag(statement: &Statement) -> &'static str {
    match statement {
        Statement::CreateStrategy(_) => "CREATE SCALING STRATEGY",
        Statement::AlterStrategy(_) => "ALTER SCALING STRATEGY",
        Statement::DropStrategy(_) => "DROP SCALING STRATEGY",
        Statement::DropStrategies { .. } => "DROP ALL SCALING STRATEGIES",
        Statement::SetSetting { .. } | Statement::ResetSetting { .. } => "ALTER SYSTEM",
        Statement::CreateCluster(_) => "CREATE CLUSTER",
        Statement::RenameCluster { .. } | Statement::PlaceCluster { .. } => "ALTER CLUSTER",
        Statement::DropCluster { .. } => "DROP CLUSTER",
        Statement::CreateReplica(_) => "CREATE CLUSTER REPLICA",
        Statement::DropReplica { .. } => "DROP CLUSTER REPLICA",
        Statement::Wake(_) => "WAKE",
        Statement::OverrideCluster(_) => "OVERRIDE CLUSTER",
        Statement::ClearOverride { .. } => "CLEAR OVERRIDE",
        Statement::CreateRole(_) => "CREATE ROLE",
        Statement::AlterRole(_) => "ALTER ROLE",
        Statement::DropRole { .. } => "DROP ROLE",
        Statement::CreateSignal(_) => "CREATE SIGNAL",
        Statement::AlterSignal(_) => "ALTER SIGNAL",
        Statement::DropSignal { .. } => "DROP SIGNAL",
        Statement::Grant(_) => "GRANT",
        Statement::Revoke(_) => "REVOKE",
        Statement::Write(tree) => match writes(tree) {
            // Behind it stand the number of a row, which is long out of use, and how many there are.
            Tree::Insert(_) => "INSERT 0",
            Tree::Update(_) => "UPDATE",
            Tree::Delete(_) => "DELETE",
            _ => "OK",
        },
        _ => "OK",
    }
}

/// What `WITH ... INSERT` writes.
fn writes(tree: &Tree) -> &Tree {
    match tree {
        Tree::Query(query) => match &*query.body {
            SetExpr::Insert(tree) | SetExpr::Update(tree) | SetExpr::Delete(tree) => tree,
            _ => tree,
        },
        _ => tree,
    }
}

fn unrecorded(error: &ProposeError) -> SqlError {
    let code = match error {
        ProposeError::NoLeader | ProposeError::Suspended => "57P03",
        ProposeError::Overloaded => "53300",
        ProposeError::DiskReserve { .. } => "53100",
        ProposeError::TooLarge { .. } => "54000",
        // It may have happened: only looking tells.
        ProposeError::Unknown { .. } => "08007",
        ProposeError::ShuttingDown | ProposeError::Stopped => "57P01",
    };
    SqlError::new(SqlState(code), error.to_string())
}
