//! One statement, carried out: a query over one state, a change through the log (`writing`), or something of the session alone.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use loadline_raft_node::{Consistency, ReadError};
use loadline_sql::statement::Tree;
use loadline_sql::tables::{Answer, Budget, Kind, NodeRow, OutputColumn, Prepared, Source, Value, query};
use loadline_sql::{Parsed, SqlError, SqlState, Statement, Transaction, Write, to_query};
use loadline_state_machine::{Fact, State};

use super::Sql;
use super::session::Session;
use crate::travel::{TravelError, read_moment};

/// A transaction that a session is in.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) transaction: Transaction,
    /// Something in it went wrong: nothing but its end is accepted.
    pub(super) failed: bool,
    pub(super) read_only: bool,
}

/// What came of a statement.
#[derive(Debug)]
pub(super) enum Outcome {
    /// With how many rows there are behind the tag, as in `SELECT 3`.
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
                    read_moment(&values.concat()).ok_or_else(|| not_a_moment(&values.concat()))?;
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
            Statement::ExplainCluster { cluster } => self.explain_cluster(session, cluster).await,
            Statement::ExplainAction { action } => self.explain_action(session, action).await,
            Statement::ShowStrategies { .. } | Statement::ShowActions(_) | Statement::ShowSignals => {
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
            Statement::Show { .. }
            | Statement::ShowStrategies { .. }
            | Statement::ShowActions(_)
            | Statement::ShowSignals => {
                let prepared = self.prepare_short_for(session, asked, &self.node.latest())?;
                Ok((prepared.columns, Vec::new()))
            }
            Statement::Write(tree) => {
                let write = Write::prepare(tree, &asked.text, &session.search_path())?;
                Ok((write.columns()?, write.parameters()))
            }
            _ => Ok((Vec::new(), Vec::new())),
        }
    }

    pub(super) fn budget(&self, session: &Session, cancelled: Option<&Arc<std::sync::atomic::AtomicBool>>) -> Budget {
        let deadline = Some(Instant::now() + session.statement_timeout(self.statement_timeout));
        Budget { deadline, cancelled: cancelled.cloned().unwrap_or_default() }
    }

    /// What the session sees: its own transaction, an earlier time, or now.
    pub(super) async fn state(&self, session: &Session, budget: &Budget) -> Result<Arc<State>, SqlError> {
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

    pub(super) async fn source(&self, session: &Session, budget: Budget) -> Result<Arc<Source>, SqlError> {
        let as_of = session.parameter("loadline.as_of").filter(|text| !text.is_empty());
        let state = match as_of {
            None => self.state(session, &budget).await?,
            Some(text) => {
                let moment = read_moment(&text).ok_or_else(|| not_a_moment(&text))?;
                let (travel, own) = (Arc::clone(&self.travel), budget.clone());
                off_thread(move || travel.to(moment, || !own.is_over()).map_err(|error| travelled(&error, &own)))
                    .await?
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

    /// One of the statements that are under way at once.
    pub(super) fn statement_place(&self) -> Result<tokio::sync::OwnedSemaphorePermit, SqlError> {
        Arc::clone(&self.statements).try_acquire_owned().map_err(|_| {
            SqlError::new(SqlState("53300"), "too many statements are under way on this node").with_hint("Ask again.")
        })
    }

    async fn query(
        &self,
        session: &Session,
        tree: Tree,
        text: &Arc<str>,
        parameters: &[Value],
    ) -> Result<Answer, SqlError> {
        let under_way = self.cancelling.begin(session.process, &session.secret);
        let _place = self.statement_place()?;
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

    async fn explain_cluster(&self, session: &Session, cluster: &str) -> Result<Outcome, SqlError> {
        use loadline_sql::tables::Past as _;
        let source = self.source(session, self.budget(session, None)).await?;
        let past = Arc::clone(&self.past);
        let cluster = cluster.to_owned();
        off_thread(move || {
            let facts = past.explain(&source.state, &format!("clusters/{cluster}"), &source.budget)?;
            if facts.is_empty() {
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unknown cluster '{cluster}'")));
            }
            Ok(lines(Fact::lines(&facts)))
        })
        .await
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
            let facts = past.explain(&source.state, &format!("actions/{}", action.id), &source.budget)?;
            Ok(lines(Fact::lines(&facts)))
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
}

/// One line per row.
fn lines(lines: Vec<String>) -> Outcome {
    let columns = vec![OutputColumn { name: "explanation".to_owned(), kind: Kind::Text }];
    let rows = lines.into_iter().map(|line| vec![Value::Text(line)]).collect();
    Outcome::Rows { answer: Answer { columns, rows }, tag: "EXPLAIN" }
}

fn not_a_moment(text: &str) -> SqlError {
    let message = format!("invalid value for parameter \"loadline.as_of\": \"{text}\"");
    let hint = "An index of the log, such as 412, or a time, such as '2026-11-16 10:00:00'.";
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(hint)
}

fn travelled(error: &TravelError, budget: &Budget) -> SqlError {
    let code = match error {
        TravelError::NotYet { .. } => SqlState::INVALID_PARAMETER_VALUE,
        TravelError::Begins { .. } => {
            return SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, error.to_string())
                .with_hint("A node that has been there from the start knows more.");
        }
        TravelError::Differs { .. } => SqlState("XX001"),
        TravelError::Replay(_) => SqlState("58030"),
        // It says whether time was up or somebody took it back.
        TravelError::Stopped => {
            return budget.check().err().unwrap_or_else(|| SqlError::new(SqlState("57014"), error.to_string()));
        }
    };
    SqlError::new(code, error.to_string())
}

fn nothing_to_show() -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, "there is nothing of this name to show")
}

/// Files are read and SQLite runs where nobody else has to wait for it.
pub(super) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SqlError> + Send + 'static,
) -> Result<T, SqlError> {
    let failed = |error: tokio::task::JoinError| {
        SqlError::new(SqlState::INTERNAL_ERROR, format!("the statement broke down: {error}"))
    };
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}
