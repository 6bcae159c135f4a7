//! One statement, carried out: a query over one state, a change through the log, or something of the session alone.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadline_raft_node::{Consistency, ProposeError, ReadError};
use loadline_sql::statement::Tree;
use loadline_sql::tables::{Answer, Budget, Kind, NodeRow, OutputColumn, Prepared, Source, Value, query};
use loadline_sql::{Change, Parsed, SqlError, SqlState, Statement, Transaction, change_with, to_query};
use loadline_state_machine::{Actor, Request, RequestId, State};

use super::Sql;
use super::session::Session;
use super::travel::Moment;

/// A transaction that a session is in.
#[derive(Debug)]
pub(super) struct Open {
    transaction: Transaction,
    /// Something in it went wrong: nothing but its end is accepted.
    failed: bool,
    read_only: bool,
}

/// What came of a statement.
#[derive(Debug)]
pub(super) enum Outcome {
    Rows {
        answer: Answer,
        tag: &'static str,
    },
    Done {
        tag: String,
    },
    Began,
    /// Committed, or rolled back.
    Ended {
        tag: &'static str,
    },
}

/// What is said beside it.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) notices: Vec<String>,
}

/// A statement with what its text was: places in it are counted there.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) statement: Statement,
    pub(super) text: Arc<str>,
}

impl Asked {
    pub(super) fn of(parsed: Parsed, text: &Arc<str>) -> Asked {
        Asked { statement: parsed.statement, text: Arc::clone(text) }
    }
}

impl Open {
    pub(super) fn fail(&mut self) {
        self.failed = true;
    }
}

impl Sql {
    pub(super) async fn execute(
        &self,
        session: &Session,
        asked: &Asked,
        parameters: &[Value],
        said: &mut Said,
    ) -> Result<Outcome, SqlError> {
        let ends = matches!(asked.statement, Statement::Commit | Statement::Rollback);
        if !ends && session.lock().open.as_ref().is_some_and(|open| open.failed) {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(SqlError::new(SqlState::FAILED_TRANSACTION, message));
        }
        // In a box of a type of its own: the futures of all statements inside each other are more than the compiler follows.
        let working: Pin<Box<dyn Future<Output = Result<Outcome, SqlError>> + Send + '_>> =
            Box::pin(self.carry_out(session, asked, parameters, said));
        let outcome = working.await;
        if outcome.is_err()
            && let Some(open) = &mut session.lock().open
        {
            open.failed = true;
        }
        outcome
    }

    async fn carry_out(
        &self,
        session: &Session,
        asked: &Asked,
        parameters: &[Value],
        said: &mut Said,
    ) -> Result<Outcome, SqlError> {
        let done = |tag: &str| Ok(Outcome::Done { tag: tag.to_owned() });
        match &asked.statement {
            Statement::Query(tree) => {
                let answer = self.query(session, (**tree).clone(), &asked.text, parameters).await?;
                Ok(Outcome::Rows { answer, tag: "SELECT" })
            }
            Statement::Begin(modes) => {
                if session.lock().open.is_some() {
                    said.notices.push("there is already a transaction in progress".to_owned());
                    return Ok(Outcome::Began);
                }
                let read_only = modes.read_only == Some(true);
                self.begin(session, read_only).await?;
                Ok(Outcome::Began)
            }
            Statement::Commit => self.commit(session, said).await,
            Statement::Rollback => {
                let was_open = session.lock().open.take().is_some();
                session.uncover();
                if !was_open {
                    said.notices.push("there is no transaction in progress".to_owned());
                }
                Ok(Outcome::Ended { tag: "ROLLBACK" })
            }
            Statement::SetTransaction { modes, .. } => {
                if let (Some(read_only), Some(open)) = (modes.read_only, &mut session.lock().open) {
                    open.read_only = read_only;
                }
                done("SET")
            }
            Statement::SetSession { name, values, local } => {
                let values: Vec<String> = values.iter().map(loadline_sql::statement::Value::as_text).collect();
                if name == "loadline.as_of" && !values.is_empty() && !values.concat().is_empty() {
                    Moment::read(&values.concat())?;
                }
                session.set(name, &values, *local)?;
                done("SET")
            }
            Statement::ResetSession { name } => {
                session.reset(name.as_deref())?;
                done("RESET")
            }
            Statement::Discard => {
                session.reset(None)?;
                done("DISCARD ALL")
            }
            Statement::Deallocate { .. } => done("DEALLOCATE"),
            Statement::CloseAll => done("CLOSE CURSOR ALL"),
            Statement::UnlistenAll => done("UNLISTEN"),
            Statement::Show { name } => self.show(session, name.as_deref(), asked).await,
            Statement::ExplainCluster { cluster } => {
                let state = self.state(session, &self.budget(session, None)).await?;
                let found = state
                    .explain(cluster)
                    .ok_or_else(|| SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unknown cluster '{cluster}'")))?;
                Ok(lines(found.lines()))
            }
            Statement::ExplainAction { action } => self.explain_action(session, action).await,
            Statement::ShowStrategies { .. } | Statement::ShowActions(_) => {
                let answer = self.short_for(session, asked).await?;
                Ok(Outcome::Rows { answer, tag: "SELECT" })
            }
            _ => self.write(session, asked, parameters, said).await,
        }
    }

    /// The columns and parameters of a statement, without carrying it out.
    pub(super) fn describe(
        &self,
        session: &Session,
        asked: &Asked,
    ) -> Result<(Vec<OutputColumn>, Vec<Kind>), SqlError> {
        let one = |name: &str| vec![OutputColumn { name: name.to_owned(), kind: Kind::Text }];
        match &asked.statement {
            Statement::Query(tree) => {
                let prepared = query::prepare(tree, &asked.text, &session.search_path())?;
                Ok((prepared.columns, prepared.parameters))
            }
            Statement::ExplainCluster { .. } | Statement::ExplainAction { .. } => Ok((one("explanation"), Vec::new())),
            Statement::Show { name: Some(name) } if session.parameter(name).is_some() => Ok((one(name), Vec::new())),
            Statement::Show { .. } | Statement::ShowStrategies { .. } | Statement::ShowActions(_) => {
                let prepared = self.prepare_short_for(session, asked, &self.node.latest())?;
                Ok((prepared.columns, Vec::new()))
            }
            Statement::Write(tree) => Ok((Vec::new(), query::parameters_of(tree, &session.search_path()))),
            _ => Ok((Vec::new(), Vec::new())),
        }
    }

    fn budget(&self, session: &Session, cancelled: Option<&Arc<std::sync::atomic::AtomicBool>>) -> Budget {
        let deadline = Some(Instant::now() + session.statement_timeout(self.statement_timeout));
        Budget { deadline, cancelled: cancelled.cloned().unwrap_or_default() }
    }

    /// What the session sees: its own transaction, an earlier time, or now.
    async fn state(&self, session: &Session, budget: &Budget) -> Result<Arc<State>, SqlError> {
        if let Some(open) = &session.lock().open {
            return Ok(Arc::new(open.transaction.state().clone()));
        }
        self.latest(session, budget).await
    }

    async fn latest(&self, session: &Session, budget: &Budget) -> Result<Arc<State>, SqlError> {
        let stale = session.parameter("loadline.consistency").is_some_and(|it| it == "stale");
        let consistency = if stale { Consistency::Stale } else { Consistency::Linearizable };
        let reading = Box::pin(self.node.read(consistency));
        let read = match budget.deadline {
            Some(deadline) => {
                tokio::time::timeout_at(deadline.into(), reading).await.unwrap_or(Err(ReadError::NoLeader))
            }
            None => reading.await,
        };
        read.map_err(|error| {
            let hint = "SET loadline.consistency = 'stale' reads what this node knows, as of whenever it heard it.";
            SqlError::new(SqlState("57P03"), error.to_string()).with_hint(hint)
        })
    }

    async fn source(&self, session: &Session, budget: Budget) -> Result<Arc<Source>, SqlError> {
        let as_of = session.parameter("loadline.as_of").filter(|text| !text.is_empty());
        let state = match as_of {
            None => self.state(session, &budget).await?,
            Some(text) => {
                let moment = Moment::read(&text)?;
                let (travel, own) = (Arc::clone(&self.travel), budget.clone());
                off_thread(move || travel.to(moment, &own)).await?
            }
        };
        let this = self.node.status().id;
        let nodes = self.node.peers().into_iter().map(|peer| NodeRow {
            is_self: Some(peer.id) == this,
            id: peer.id,
            name: peer.name,
            address: peer.address,
            voter: peer.voter,
            leader: peer.leader,
            matched_index: peer.matched_index,
        });
        let past = Arc::clone(&self.past);
        Ok(Arc::new(Source { state, past, nodes: nodes.collect(), session: session.facts(self.address), budget }))
    }

    async fn query(
        &self,
        session: &Session,
        tree: Tree,
        text: &Arc<str>,
        parameters: &[Value],
    ) -> Result<Answer, SqlError> {
        let under_way = self.cancelling.begin(session.process, &session.secret);
        let _place = Arc::clone(&self.statements).try_acquire_owned().map_err(|_| {
            SqlError::new(SqlState("53300"), "too many statements are under way on this node").with_hint("Ask again.")
        })?;
        let source = self.source(session, self.budget(session, Some(&under_way.cancelled))).await?;
        let (text, parameters, limits) = (Arc::clone(text), parameters.to_vec(), self.answer);
        off_thread(move || {
            let prepared = query::prepare(&tree, &text, &source.session.search_path)?;
            prepared.run(&source, &parameters, limits)
        })
        .await
    }

    /// A statement that is short for a query.
    async fn short_for(&self, session: &Session, asked: &Asked) -> Result<Answer, SqlError> {
        let state = self.state(session, &self.budget(session, None)).await?;
        let Some(sql) = to_query(&asked.statement, &state)? else { return Err(nothing_to_show()) };
        let parsed = loadline_sql::parse(&sql)?;
        let Some(Parsed { statement: Statement::Query(tree), .. }) = parsed.into_iter().next() else {
            return Err(nothing_to_show());
        };
        self.query(session, *tree, &Arc::from(sql), &[]).await
    }

    fn prepare_short_for(&self, session: &Session, asked: &Asked, state: &State) -> Result<Prepared, SqlError> {
        let Some(sql) = to_query(&asked.statement, state)? else { return Err(nothing_to_show()) };
        match loadline_sql::parse(&sql)?.into_iter().next() {
            Some(Parsed { statement: Statement::Query(tree), .. }) => {
                query::prepare(&tree, &sql, &session.search_path())
            }
            _ => Err(nothing_to_show()),
        }
    }

    async fn show(&self, session: &Session, name: Option<&str>, asked: &Asked) -> Result<Outcome, SqlError> {
        if let Some((name, value)) = name.and_then(|name| Some((name, session.parameter(name)?))) {
            let columns = vec![OutputColumn { name: name.to_owned(), kind: Kind::Text }];
            let answer = Answer { columns, rows: vec![vec![Value::Text(value)]] };
            return Ok(Outcome::Rows { answer, tag: "SHOW" });
        }
        match self.short_for(session, asked).await {
            Ok(answer) => Ok(Outcome::Rows { answer, tag: "SHOW" }),
            Err(error) if error == nothing_to_show() => {
                let name = name.unwrap_or_default();
                let message = format!("unrecognized configuration parameter \"{name}\"");
                Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
            }
            Err(error) => Err(error),
        }
    }

    async fn explain_action(&self, session: &Session, wanted: &str) -> Result<Outcome, SqlError> {
        use loadline_sql::tables::Past as _;
        let source = self.source(session, self.budget(session, None)).await?;
        let past = Arc::clone(&self.past);
        let wanted = wanted.to_owned();
        off_thread(move || {
            let is_it = |action: &loadline_state_machine::Action| {
                action.number.to_string() == wanted || action.id.to_string() == wanted
            };
            let live = source.state.actions().chain(source.state.dead_letters()).find(|action| is_it(action)).cloned();
            let action =
                match live {
                    Some(action) => Arc::new(action),
                    None => past.actions(&source.state, &source.budget)?.into_iter().find(|it| is_it(it)).ok_or_else(
                        || SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unknown action '{wanted}'")),
                    )?,
                };
            let mut text = action.lines();
            let decisions = past.decisions(&source.state, &source.budget)?;
            match decisions.iter().find(|decision| decision.id == action.decision) {
                Some(decision) => text.extend(decision.lines()),
                None => text.push(format!("decision {} is no longer kept on this node", action.decision)),
            }
            Ok(lines(text))
        })
        .await
    }

    async fn begin(&self, session: &Session, read_only: bool) -> Result<(), SqlError> {
        let state = self.latest(session, &self.budget(session, None)).await?;
        let transaction = Transaction::begin(session.actor.clone(), State::clone(&state));
        session.lock().open = Some(Open { transaction, failed: false, read_only });
        Ok(())
    }

    /// For several statements in one text, which are one transaction unless they say otherwise.
    pub(super) async fn begin_implicitly(&self, session: &Session) -> Result<(), SqlError> {
        self.begin(session, false).await
    }

    pub(super) fn abandon(&self, session: &Session) {
        session.lock().open = None;
        session.uncover();
    }

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

    async fn write(
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
            let message = format!("cannot execute {} in a read-only transaction", tag(&asked.statement, 0));
            return Err(SqlError::new(SqlState::READ_ONLY_TRANSACTION, message));
        }
        let state = self.state(session, &self.budget(session, None)).await?;
        let statement = query::bound(asked.statement.clone(), parameters);
        let Some(change) = change_with(&statement, &state, Some(&loadline_credentials::scram::verifier))? else {
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "this statement is not supported here"));
        };
        said.notices.extend(change.notices.iter().cloned());
        let tag = tag(&asked.statement, change.commands.len());
        let in_transaction = {
            let mut inner = session.lock();
            match &mut inner.open {
                Some(open) => {
                    let now = open.transaction.state().now();
                    open.transaction.add(change.clone(), now)?;
                    true
                }
                None => false,
            }
        };
        if !in_transaction && !change.commands.is_empty() {
            self.propose_change(&session.actor, &change).await?;
        }
        Ok(Outcome::Done { tag })
    }

    async fn propose_change(&self, actor: &Actor, change: &Change) -> Result<(), SqlError> {
        let receipt = self.propose(actor, change.commands.clone()).await?;
        receipt.map(|_| ()).map_err(|refused| change.refused(&refused.rejection))
    }

    async fn propose(
        &self,
        actor: &Actor,
        commands: Vec<loadline_state_machine::Command>,
    ) -> Result<Result<Vec<loadline_state_machine::Done>, loadline_state_machine::Refused>, SqlError> {
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

/// One line per row.
fn lines(lines: Vec<String>) -> Outcome {
    let columns = vec![OutputColumn { name: "explanation".to_owned(), kind: Kind::Text }];
    let rows = lines.into_iter().map(|line| vec![Value::Text(line)]).collect();
    Outcome::Rows { answer: Answer { columns, rows }, tag: "EXPLAIN" }
}

fn nothing_to_show() -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, "there is nothing of this name to show")
}

/// What a client is told was done, in PostgreSQL's words as far as it has any.
fn tag(statement: &Statement, commands: usize) -> String {
    let plain = match statement {
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
        Statement::CreateRole(_) => "CREATE ROLE",
        Statement::AlterRole(_) => "ALTER ROLE",
        Statement::DropRole { .. } => "DROP ROLE",
        Statement::Grant(_) => "GRANT",
        Statement::Revoke(_) => "REVOKE",
        Statement::Write(tree) => {
            return match &**tree {
                Tree::Insert(_) => format!("INSERT 0 {commands}"),
                Tree::Update(_) => format!("UPDATE {commands}"),
                Tree::Delete(_) => format!("DELETE {commands}"),
                _ => "OK".to_owned(),
            };
        }
        _ => "OK",
    };
    plain.to_owned()
}

/// Files are read and SQLite runs where nobody else has to wait for it.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SqlError> + Send + 'static,
) -> Result<T, SqlError> {
    let failed = |error: tokio::task::JoinError| {
        SqlError::new(SqlState::INTERNAL_ERROR, format!("the statement broke down: {error}"))
    };
    tokio::task::spawn_blocking(work).await.map_err(failed)?
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
