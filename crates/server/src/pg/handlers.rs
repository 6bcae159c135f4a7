//! What pgwire asks of us, for each message of a client.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::{Sink, SinkExt as _, stream};
use loadline_credentials::scram;
use loadline_sql::tables::{Kind, OutputColumn, Value};
use loadline_sql::{SqlError, SqlState, Statement};
use loadline_state_machine::{Actor, Proof};
use pgwire::api::auth::{
    DefaultServerParameterProvider, StartupHandler, finish_authentication, protocol_negotiation,
    save_startup_parameters_to_metadata,
};
use pgwire::api::cancel::CancelHandler;
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::results::{
    DescribePortalResponse, DescribeStatementResponse, FieldInfo, QueryResponse, Response, Tag,
};
use pgwire::api::stmt::{QueryParser, StoredStatement};
use pgwire::api::store::PortalStore;
use pgwire::api::{
    ClientInfo, ClientPortalStore, METADATA_DATABASE, METADATA_USER, PgWireConnectionState, PgWireServerHandlers,
    PidSecretKeyGenerator, RandomPidSecretKeyGenerator, Type,
};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::response::{NoticeResponse, TransactionStatus};
use pgwire::messages::startup::{Authentication, PasswordMessageFamily};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use tokio_util::sync::CancellationToken;

use super::login::{self, Entry, Grantee, Proving};
use super::session::Session;
use super::statements::{Asked, Outcome, Said};
use super::{Sql, wire};

/// Longer names are nobody's.
const ROLE_BYTES_MAX: usize = 128;

/// Numbers connections, for all of them.
static NUMBERS: std::sync::LazyLock<RandomPidSecretKeyGenerator> =
    std::sync::LazyLock::new(RandomPidSecretKeyGenerator::default);

/// One connection's view of what all share.
#[derive(Debug)]
pub(super) struct Handlers {
    handler: Arc<Handler>,
}

#[derive(Debug)]
pub(super) struct Handler {
    sql: Arc<Sql>,
    /// Whether the house has room for it.
    has_place: bool,
    stop: CancellationToken,
    /// Between knocking and being let in.
    proving: Mutex<Option<Proving>>,
}

impl Handlers {
    pub(super) fn new(sql: Arc<Sql>, has_place: bool, stop: CancellationToken) -> Handlers {
        Handlers { handler: Arc::new(Handler { sql, has_place, stop, proving: Mutex::default() }) }
    }
}

impl PgWireServerHandlers for Handlers {
    fn simple_query_handler(&self) -> Arc<impl SimpleQueryHandler> {
        Arc::clone(&self.handler)
    }

    fn extended_query_handler(&self) -> Arc<impl ExtendedQueryHandler> {
        Arc::clone(&self.handler)
    }

    fn startup_handler(&self) -> Arc<impl StartupHandler> {
        Arc::clone(&self.handler)
    }

    fn cancel_handler(&self) -> Arc<impl CancelHandler> {
        Arc::clone(&self.handler.sql.cancelling)
    }
}

#[async_trait]
impl StartupHandler for Handler {
    async fn on_startup<C>(&self, client: &mut C, message: PgWireFrontendMessage) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        match message {
            PgWireFrontendMessage::Startup(startup) => {
                protocol_negotiation(client, &startup).await?;
                save_startup_parameters_to_metadata(client, &startup);
                self.knock(client).await
            }
            PgWireFrontendMessage::PasswordMessageFamily(message) => self.prove(client, message).await,
            // Anything else before a login is nothing that is waited for.
            _ => Err(wire::fatal("08P01", "a password is expected".to_owned(), None)),
        }
    }
}

impl Handler {
    /// Somebody has said who they want to be.
    async fn knock<C>(&self, client: &mut C) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if self.stop.is_cancelled() {
            return Err(wire::fatal("57P03", "this node is shutting down".to_owned(), None));
        }
        if !self.has_place {
            let hint = Some("limits.pg_connections_max says how many there may be; ask another node.".to_owned());
            return Err(wire::fatal("53300", "too many connections to this node".to_owned(), hint));
        }
        let role = client.metadata().get(METADATA_USER).cloned().unwrap_or_default();
        if role.is_empty() || role.len() > ROLE_BYTES_MAX || role.chars().any(char::is_control) {
            return Err(wire::fatal("28000", "no role, or one with an impossible name".to_owned(), None));
        }
        let from = client.socket_addr().ip();
        let state = self.sql.who_is_who(from).await;
        let group = self.sql.node.status().group;
        match login::entry(&self.sql.guard, &role, from, &state, &group)? {
            Entry::Free(grantee, proof) => self.let_in(client, grantee, proof).await,
            Entry::Prove(verifier) => {
                *self.proving() = Some(Proving::Offered { role, verifier });
                let offer = Authentication::SASL(vec![scram::MECHANISM.to_owned()]);
                client.send(PgWireBackendMessage::Authentication(offer)).await?;
                client.set_state(PgWireConnectionState::AuthenticationInProgress);
                Ok(())
            }
        }
    }

    /// Somebody shows, in two steps, that they know the password.
    async fn prove<C>(&self, client: &mut C, message: PasswordMessageFamily) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let unexpected = |what: &str| wire::fatal("08P01", what.to_owned(), None);
        let proving = self.proving().take();
        match proving {
            None => Err(unexpected("no password was asked for")),
            Some(Proving::Offered { role, verifier }) => {
                let PasswordMessageFamily::Raw(said) = message else {
                    return Err(unexpected("this is no SASL message"));
                };
                let first = login::first_message(&said).ok_or_else(|| unexpected("this is no SASL message"))?;
                let (proving, challenge) = Proving::challenge(role, verifier, first)?;
                *self.proving() = Some(proving);
                let challenge = Authentication::SASLContinue(challenge.into());
                client.send(PgWireBackendMessage::Authentication(challenge)).await?;
                Ok(())
            }
            Some(Proving::Challenged { role, login }) => {
                let said = message.into_sasl_response().map_err(|_| unexpected("this is no SASL message"))?;
                let answer = Proving::finish(&role, *login, &said.data)?;
                let answer = Authentication::SASLFinal(answer.into());
                client.feed(PgWireBackendMessage::Authentication(answer)).await?;
                let superuser = self.sql.node.latest().role(&role).is_some_and(|role| role.superuser);
                self.let_in(client, Grantee { role, superuser }, Proof::Password).await
            }
        }
    }

    fn proving(&self) -> MutexGuard<'_, Option<Proving>> {
        self.proving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn let_in<C>(&self, client: &mut C, grantee: Grantee, proof: Proof) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let from = client.socket_addr().ip();
        let (process, secret) = NUMBERS.generate(&*client);
        client.set_pid_and_secret_key(process, secret.clone());
        let database = client.metadata().get(METADATA_DATABASE).cloned().unwrap_or_else(|| grantee.role.clone());
        let actor = Actor::new(&grantee.role, format!("sql {from}")).proven(proof);
        let is_superuser = grantee.superuser;
        let session = Session::new(grantee, actor, database, process, secret);
        for (name, value) in client.metadata() {
            let known = !matches!(name.as_str(), "user" | "database" | "options" | "replication");
            // What a client wants to have set and nobody knows is no reason to turn it away.
            if known {
                let _ = session.set(name, std::slice::from_ref(value), false);
            }
        }
        client.session_extensions().insert(session);
        let mut facts = DefaultServerParameterProvider::default();
        facts.server_version = loadline_sql::tables::SERVER_VERSION.to_owned();
        facts.search_path = "loadline, mz_internal, mz_catalog".to_owned();
        facts.date_style = "ISO, MDY".to_owned();
        facts.time_zone = "UTC".to_owned();
        facts.is_superuser = is_superuser;
        finish_authentication(client, &facts).await
    }

    /// Carries a statement out for somebody who may still ask.
    async fn ask(
        &self,
        session: &Session,
        asked: &Asked,
        parameters: &[Value],
        said: &mut Said,
    ) -> Result<Outcome, SqlError> {
        let still_in = || login::still_in(&session.actor, &self.sql.node.latest());
        let admitted = still_in().and_then(|()| self.sql.closing_is_safe(&asked.statement));
        if let Err(error) = admitted {
            session.fail();
            return Err(error);
        }
        let outcome = self.sql.execute(session, asked, parameters, said).await;
        // What was read may be newer than what this node knew before it asked the leader.
        match (&outcome, still_in()) {
            (Ok(Outcome::Rows { .. }), Err(error)) => {
                session.fail();
                Err(error)
            }
            _ => outcome,
        }
    }
}

fn session_of<C: ClientInfo>(client: &C) -> PgWireResult<Arc<Session>> {
    client
        .session_extensions()
        .get::<Session>()
        .ok_or_else(|| wire::fatal("08P01", "nobody has logged in".to_owned(), None))
}

async fn tell<C>(client: &mut C, said: Said) -> PgWireResult<()>
where
    C: Sink<PgWireBackendMessage> + Unpin + Send,
    C::Error: Debug,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    for notice in said.notices {
        let mut info = ErrorInfo::new("NOTICE".to_owned(), "00000".to_owned(), notice);
        info.severity_nonlocalized = Some("NOTICE".to_owned());
        client.feed(PgWireBackendMessage::NoticeResponse(NoticeResponse::from(info))).await?;
    }
    Ok(())
}

/// An answer in the formats that the client asked for.
fn response(outcome: Outcome, format: &Format) -> Result<Response, SqlError> {
    Ok(match outcome {
        Outcome::Rows { answer, tag } => {
            let fields = Arc::new(wire::fields(&answer.columns, format)?);
            let (own, columns) = (Arc::clone(&fields), answer.columns);
            let rows = answer.rows.into_iter().map(move |row| Ok(wire::row(&row, &own, &columns)));
            let mut response = QueryResponse::new(fields, stream::iter(rows));
            response.set_command_tag(tag);
            Response::Query(response)
        }
        Outcome::Done { tag } => Response::Execution(Tag::new(&tag)),
        Outcome::Began => Response::TransactionStart(Tag::new("BEGIN")),
        Outcome::Ended { tag } => Response::TransactionEnd(Tag::new(tag)),
    })
}

#[async_trait]
impl SimpleQueryHandler for Handler {
    async fn do_query<C>(&self, client: &mut C, query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let session = session_of(client)?;
        let text: Arc<str> = Arc::from(query);
        let parsed = loadline_sql::parse(query).map_err(|error| {
            self.fail(&session);
            wire::error(error)
        })?;
        let asked: Vec<Asked> = parsed.into_iter().map(|parsed| Asked::of(parsed, &text)).collect();
        let mut responses = Vec::new();
        let mut said = Said::default();
        let explicit =
            |asked: &Asked| matches!(asked.statement, Statement::Begin(_) | Statement::Commit | Statement::Rollback);
        // Several statements in one text are one transaction, unless they begin and end their own.
        let implicit = asked.len() > 1 && session.lock().open.is_none() && !asked.iter().any(explicit);
        let mut failed = None;
        if implicit {
            self.sql.begin_implicitly(&session).await.map_err(wire::error)?;
        }
        for one in &asked {
            let done = self.ask(&session, one, &[], &mut said).await;
            match done.and_then(|outcome| response(outcome, &Format::UnifiedText)) {
                Ok(response) => responses.push(response),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if implicit {
            match failed {
                None => failed = self.sql.commit(&session, &mut said).await.err(),
                Some(_) => self.sql.abandon(&session),
            }
        }
        tell(client, said).await?;
        // A COMMIT that was refused has ended the transaction all the same.
        if session.lock().open.is_none() {
            client.set_transaction_status(TransactionStatus::Idle);
        }
        match failed {
            None if responses.is_empty() => Ok(vec![Response::EmptyQuery]),
            None => Ok(responses),
            Some(error) if responses.is_empty() => Err(wire::error(error)),
            Some(error) => {
                // What was answered before is answered; the error comes last.
                if let PgWireError::UserError(info) = wire::error(error) {
                    responses.push(Response::Error(info));
                }
                Ok(responses)
            }
        }
    }
}

impl Handler {
    /// A text that is no statement ends a transaction as any other mistake does.
    fn fail(&self, session: &Session) {
        session.fail();
    }
}

/// A statement that a client has prepared.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    asked: Asked,
    columns: Arc<Vec<OutputColumn>>,
    parameters: Arc<Vec<Kind>>,
}

/// Reads statements for a client. It needs the session for its search path, which comes with the client.
#[derive(Debug)]
pub(super) struct Reader {
    sql: Arc<Sql>,
}

#[async_trait]
impl QueryParser for Reader {
    type Statement = Ready;

    async fn parse_sql<C>(&self, client: &C, sql: &str, types: &[Option<Type>]) -> PgWireResult<Option<Ready>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let session = session_of(client)?;
        let text: Arc<str> = Arc::from(sql);
        let fail = |error| {
            session.fail();
            wire::error(error)
        };
        let mut parsed = loadline_sql::parse(sql).map_err(fail)?;
        let asked = match (parsed.pop(), parsed.is_empty()) {
            (None, _) => return Ok(None),
            (Some(one), true) => Asked::of(one, &text),
            (Some(_), false) => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(fail(SqlError::new(SqlState::SYNTAX_ERROR, message)));
            }
        };
        let (columns, mut parameters) = self.sql.describe(&session, &asked).map_err(fail)?;
        for (kind, given) in parameters.iter_mut().zip(types) {
            if let Some(given) = given {
                *kind = kind_of(given);
            }
        }
        Ok(Some(Ready { asked, columns: Arc::new(columns), parameters: Arc::new(parameters) }))
    }

    fn get_parameter_types(&self, ready: &Ready) -> PgWireResult<Vec<Type>> {
        Ok(ready.parameters.iter().map(|kind| wire::type_of(*kind)).collect())
    }

    fn get_result_schema(&self, ready: &Ready, format: Option<&Format>) -> PgWireResult<Vec<FieldInfo>> {
        wire::fields(&ready.columns, format.unwrap_or(&Format::UnifiedText)).map_err(wire::error)
    }
}

/// What we read a parameter as whose type the client has said.
fn kind_of(given: &Type) -> Kind {
    match given.oid() {
        // timestamp: the same bytes, and every zone here is UTC.
        1114 => Kind::Timestamptz,
        700 => Kind::Float8,
        oid => Kind::ALL.iter().copied().find(|kind| kind.oid() == oid).unwrap_or(Kind::Text),
    }
}

#[async_trait]
impl ExtendedQueryHandler for Handler {
    type Statement = Ready;
    type QueryParser = Reader;

    fn query_parser(&self) -> Arc<Reader> {
        Arc::new(Reader { sql: Arc::clone(&self.sql) })
    }

    async fn do_query<C>(&self, client: &mut C, portal: &Portal<Ready>, _max_rows: usize) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Ready>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let session = session_of(client)?;
        let ready = &portal.statement.statement;
        let parameters = parameters(portal).map_err(|error| {
            session.fail();
            wire::error(error)
        })?;
        let mut said = Said::default();
        let done = self.ask(&session, &ready.asked, &parameters, &mut said).await;
        tell(client, said).await?;
        if session.lock().open.is_none() {
            client.set_transaction_status(TransactionStatus::Idle);
        }
        done.and_then(|outcome| response(outcome, &portal.result_column_format)).map_err(wire::error)
    }

    async fn do_describe_statement<C>(
        &self,
        _client: &mut C,
        target: &StoredStatement<Ready>,
    ) -> PgWireResult<DescribeStatementResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Ready>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let ready = &target.statement;
        let fields = wire::fields(&ready.columns, &Format::UnifiedText).map_err(wire::error)?;
        let types = ready.parameters.iter().map(|kind| wire::type_of(*kind)).collect();
        Ok(DescribeStatementResponse::new(types, fields))
    }

    async fn do_describe_portal<C>(
        &self,
        _client: &mut C,
        target: &Portal<Ready>,
    ) -> PgWireResult<DescribePortalResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Ready>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let columns = &target.statement.statement.columns;
        let fields = wire::fields(columns, &target.result_column_format).map_err(wire::error)?;
        Ok(DescribePortalResponse::new(fields))
    }
}

fn parameters(portal: &Portal<Ready>) -> Result<Vec<Value>, SqlError> {
    let kinds = &portal.statement.statement.parameters;
    let given = &portal.parameters;
    if given.len() != kinds.len() {
        let message = format!("{} parameters were given, and the statement has {}", given.len(), kinds.len());
        return Err(SqlError::new(SqlState("08P01"), message));
    }
    let read = |(place, (bytes, kind)): (usize, (&Option<bytes::Bytes>, &Kind))| {
        let format = wire::format_of(&portal.parameter_format, place, given.len())?;
        wire::parameter(bytes.as_deref(), *kind, format, place + 1)
    };
    given.iter().zip(kinds.iter()).enumerate().map(read).collect()
}
