//! `loadline sql`: statements over the SQL port of a node, from the command line, a file or a prompt.
//!
//! - [`answers`]: what came back, in the format that was asked for.
//! - [`prompt`]: lines with history and completion, on a terminal.
//!
//! Not here: what statements mean, which the node says, and `apply -f file.sql`, which compares before it writes.

mod answers;
mod prompt;

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use futures::{StreamExt as _, stream};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Socket, tls::NoTlsStream};

use loadline_client::Secret;

use crate::args::Global;
use crate::console::Console;
use crate::context::{self, SqlChoice};
use crate::exit::{Exit, Failed};
use crate::output::Format;

/// Where the first node of `loadline dev` listens for SQL.
const ENDPOINT_DEFAULT: &str = "127.0.0.1:5701";
const ROLE_DEFAULT: &str = "loadline";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// Run these statements, and end
    #[arg(short = 'c', long = "command", value_name = "STATEMENTS", conflicts_with = "file")]
    command: Option<String>,
    /// Run the statements of this file, and end; - reads stdin
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: Option<PathBuf>,
    /// SQL port of a node, instead of those of the context
    #[arg(long, env = "LOADLINE_SQL_ENDPOINT", hide_env_values = true, value_name = "HOST:PORT")]
    sql_endpoint: Option<String>,
    /// Role to log in as, instead of that of the context; its password is read from LOADLINE_PASSWORD
    #[arg(long, env = "LOADLINE_ROLE", hide_env_values = true, value_name = "NAME")]
    role: Option<String>,
}

pub(crate) fn run(args: &SqlArgs, global: &Global, console: &mut Console) -> Result<(), Failed> {
    let (choice, written) = match &args.sql_endpoint {
        // Another place: nothing that was written for the nodes of a context is shown there.
        Some(endpoint) => (SqlChoice { endpoints: vec![endpoint.clone()], ..SqlChoice::default() }, Format::default()),
        None if global.endpoints.iter().any(|endpoint| !endpoint.is_empty()) => {
            // Those of the context may be nodes of another group.
            return Err(Failed::usage("where do these nodes speak SQL? Say so with --sql-endpoint HOST:PORT"));
        }
        None => {
            let file = context::File::read(&context::path()?)?;
            (file.sql(global.context.as_ref().filter(|name| !name.is_empty()))?, super::resolve(global)?.output)
        }
    };
    let login = Login::new(args, choice, std::env::var("LOADLINE_PASSWORD").ok());
    super::block_on(sql(args, &login, global.format().unwrap_or(written), console))?
}

/// Where to, and as whom.
#[derive(Debug, PartialEq, Eq)]
struct Login {
    /// Asked in turn until one answers.
    endpoints: Vec<String>,
    role: String,
    password: Option<Secret>,
}

impl Login {
    fn new(args: &SqlArgs, choice: SqlChoice, password: Option<String>) -> Login {
        let endpoints = if choice.endpoints.is_empty() { vec![ENDPOINT_DEFAULT.to_owned()] } else { choice.endpoints };
        // The password of the context is that of its role, and of no other.
        let kept = choice.password.filter(|_| args.role.is_none() || args.role == choice.role);
        let role = args.role.clone().or(choice.role).unwrap_or_else(|| ROLE_DEFAULT.to_owned());
        Login { endpoints, role, password: password.map(Secret::new).or(kept) }
    }
}

/// Takes an address apart.
pub(super) fn host_and_port(endpoint: &str) -> Result<(&str, u16), Failed> {
    let wrong = || Failed::usage(format!("'{endpoint}' is not HOST:PORT, such as {ENDPOINT_DEFAULT}"));
    let (host, port) = endpoint.rsplit_once(':').ok_or_else(wrong)?;
    Ok((host.trim_matches(['[', ']']), port.parse().map_err(|_| wrong())?))
}

async fn sql(args: &SqlArgs, login: &Login, format: Format, console: &mut Console) -> Result<(), Failed> {
    let text = match (&args.command, &args.file) {
        (Some(command), _) => Some(command.clone()),
        (None, Some(path)) => Some(read(path)?),
        // Whoever pipes statements in wants them run, and no prompt.
        (None, None) if !std::io::stdin().is_terminal() => Some(read(Path::new("-"))?),
        (None, None) => None,
    };
    let mut session = Session::connect(login).await?;
    match text {
        Some(text) => {
            let ended = session.run(&text, format, console).await;
            ended.map_err(|error| answers::failed(&text, &error))
        }
        None => prompt::run(&mut session, format, console).await,
    }
}

fn read(path: &Path) -> Result<String, Failed> {
    let mut text = String::new();
    let stdin = path == Path::new("-");
    let reading = if stdin {
        std::io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    let shown = if stdin { "stdin".to_owned() } else { path.display().to_string() };
    reading.map_err(|error| Failed::usage(format!("{shown} cannot be read: {error}")))?;
    Ok(text)
}

/// A connection, and what is said on it beside the answers.
pub(super) struct Session {
    client: Client,
    connection: Connection<Socket, NoTlsStream>,
}

impl Session {
    async fn connect(login: &Login) -> Result<Session, Failed> {
        let mut config = Config::new();
        for endpoint in &login.endpoints {
            let (host, port) = host_and_port(endpoint)?;
            config.host(host).port(port);
        }
        config.user(&login.role).dbname("loadline");
        config.application_name("loadline sql").connect_timeout(CONNECT_TIMEOUT);
        if let Some(password) = &login.password {
            config.password(password.reveal());
        }
        let endpoints = login.endpoints.join(", ");
        let (client, connection) = config.connect(NoTls).await.map_err(|error| match error.as_db_error() {
            Some(_) => answers::failed("", &error),
            None if login.password.is_none() && reasons(&error).contains("password missing") => Failed::new(
                Exit::Denied,
                format!("a login is needed: role {} has to give its password", login.role),
            )
            .hint("put it into LOADLINE_PASSWORD, or as role and password beside the sql_endpoints of the context"),
            None => Failed::new(Exit::Unavailable, format!("no SQL at {endpoints}: {}", reasons(&error)))
                .hint("start a group with loadline dev, or name a node with --sql-endpoint"),
        })?;
        Ok(Session { client, connection })
    }

    /// Runs statements, and shows each answer as it comes.
    pub(super) async fn run(
        &mut self,
        text: &str,
        format: Format,
        console: &mut Console,
    ) -> Result<(), tokio_postgres::Error> {
        let Session { client, connection } = self;
        let mut said = Vec::new();
        let asking = client.simple_query(text);
        tokio::pin!(asking);
        // The connection is driven only while somebody waits for an answer: nobody else uses it.
        let mut messages = stream::poll_fn(|context| connection.poll_message(context));
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut asking => break answered,
                message = messages.next() => match message {
                    Some(Ok(AsyncMessage::Notice(notice))) => said.push(format!("{}: {}", notice.severity(), notice.message())),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error),
                    // It has ended, and so has the question.
                    None => break asking.await,
                },
            }
        };
        for line in said {
            console.say(&line);
        }
        for answer in answers::of(answered?) {
            match answer.shown(format) {
                Ok(shown) => {
                    if let Err(failed) = console.data(&shown) {
                        console.fail(&failed);
                    }
                }
                Err(failed) => console.fail(&failed),
            }
        }
        Ok(())
    }
}

fn reasons(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text = format!("{text}: {next}");
        source = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(role: Option<&str>) -> SqlArgs {
        SqlArgs { command: None, file: None, sql_endpoint: None, role: role.map(str::to_owned) }
    }

    fn choice() -> SqlChoice {
        SqlChoice {
            endpoints: vec!["a:1".to_owned(), "b:2".to_owned()],
            role: Some("ops".to_owned()),
            password: Some(Secret::new("kept")),
        }
    }

    #[test]
    fn a_flag_wins_over_the_context_that_over_the_default() {
        let login = |args: SqlArgs, choice, password: Option<&str>| {
            let login = Login::new(&args, choice, password.map(str::to_owned));
            (login.endpoints, login.role, login.password.map(|it| it.reveal().to_owned()))
        };
        let at = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let nothing = login(args(None), SqlChoice::default(), None);
        assert_eq!(nothing, (at(&[ENDPOINT_DEFAULT]), ROLE_DEFAULT.to_owned(), None));
        let kept = login(args(None), choice(), None);
        assert_eq!(kept, (at(&["a:1", "b:2"]), "ops".to_owned(), Some("kept".to_owned())));
        assert_eq!(login(args(Some("ops")), choice(), None).2.as_deref(), Some("kept"));
        assert_eq!(login(args(None), choice(), Some("said")).2.as_deref(), Some("said"));
        assert_eq!(login(args(Some("ada")), choice(), None).2, None, "it is the password of ops");
    }

    #[test]
    fn an_address_is_taken_apart_or_refused() {
        assert_eq!(host_and_port("[::1]:5701"), Ok(("::1", 5701)));
        for wrong in ["5701", "localhost", "a:b", "a:99999"] {
            assert_eq!(host_and_port(wrong).expect_err(wrong).exit, Exit::Usage, "{wrong}");
        }
    }
}
