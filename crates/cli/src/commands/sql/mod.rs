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

use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::output::Format;

/// Where the first node of `loadline dev` listens for SQL.
const ENDPOINT_DEFAULT: &str = "127.0.0.1:5701";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// Run these statements, and end
    #[arg(short = 'c', long = "command", value_name = "STATEMENTS", conflicts_with = "file")]
    command: Option<String>,
    /// Run the statements of this file, and end; - reads stdin
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: Option<PathBuf>,
    /// SQL port of a node
    #[arg(long, env = "LOADLINE_SQL_ENDPOINT", hide_env_values = true, value_name = "HOST:PORT", default_value = ENDPOINT_DEFAULT)]
    sql_endpoint: String,
    /// Role to log in as; its password is read from LOADLINE_PASSWORD
    #[arg(long, env = "LOADLINE_ROLE", hide_env_values = true, value_name = "NAME", default_value = "loadline")]
    role: String,
}

pub(crate) async fn sql(args: &SqlArgs, format: Format, console: &mut Console) -> Result<(), Failed> {
    let text = match (&args.command, &args.file) {
        (Some(command), _) => Some(command.clone()),
        (None, Some(path)) => Some(read(path)?),
        // Whoever pipes statements in wants them run, and no prompt.
        (None, None) if !std::io::stdin().is_terminal() => Some(read(Path::new("-"))?),
        (None, None) => None,
    };
    let mut session = Session::connect(args).await?;
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
    async fn connect(args: &SqlArgs) -> Result<Session, Failed> {
        let endpoint = &args.sql_endpoint;
        let wrong = || Failed::usage(format!("'{endpoint}' is not HOST:PORT, such as {ENDPOINT_DEFAULT}"));
        let (host, port) = endpoint.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let mut config = Config::new();
        config.host(host.trim_matches(['[', ']'])).port(port).user(&args.role).dbname("loadline");
        config.application_name("loadline sql").connect_timeout(CONNECT_TIMEOUT);
        if let Ok(password) = std::env::var("LOADLINE_PASSWORD") {
            config.password(password);
        }
        let (client, connection) = config.connect(NoTls).await.map_err(|error| match error.as_db_error() {
            Some(_) => answers::failed("", &error),
            None => Failed::new(Exit::Unavailable, format!("no SQL at {endpoint}: {}", reasons(&error)))
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
