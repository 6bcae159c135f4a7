//! The number that a query of a PostgreSQL database gives: one row, one column.
//!
//! The query runs in a session that may only read, and the server itself ends it at the time-out. A connection is made for
//! each question: nothing is left open when a leadership ends.

use std::path::Path;
use std::time::Duration;

use loadline_state_machine::Options;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::meaning::Sample;
use super::secret::Secrets;
use super::{number, required, text, with_causes};
use crate::backends::tls;

pub(super) async fn ask(options: &Options, secrets: &mut Secrets, limit: Duration) -> Result<Sample, String> {
    let mut config: Config = required(options, "connection")?.parse().map_err(|_| {
        // The parser's own words may repeat what it read.
        "connection: expected keywords and values, as in 'host=db.example.com user=loadline dbname=shop'".to_owned()
    })?;
    if config.get_hosts().is_empty() {
        return Err("connection: host is missing".to_owned());
    }
    if let Some(reference) = text(options, "password") {
        config.password(secrets.read(reference).await?.reveal());
    }
    let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    let encrypted = text(options, "tls") != Some("off") && !local;
    config.ssl_mode(if encrypted { SslMode::Require } else { SslMode::Disable });
    config.connect_timeout(limit / 2);
    if config.get_application_name().is_none() {
        config.application_name("loadline");
    }
    let client = connect(&config, encrypted, text(options, "ca_file")).await?;
    // The server gives up a little before we do, so that its reason reaches us.
    let ms = (limit.as_millis() * 9 / 10).max(1);
    let limits = format!("SET statement_timeout = '{ms}ms'; SET default_transaction_read_only = on");
    client.batch_execute(&limits).await.map_err(|error| said(&error))?;
    let answer = client.simple_query(required(options, "query")?).await.map_err(|error| said(&error))?;
    read(&answer)
}

async fn connect(config: &Config, encrypted: bool, ca_file: Option<&str>) -> Result<Client, String> {
    // The task ends when the client is dropped.
    if encrypted {
        let tls = tls::client(ca_file.map(Path::new)).map_err(|error| error.to_string())?;
        let (client, connection) = config.connect(MakeRustlsConnect::new(tls)).await.map_err(|error| said(&error))?;
        tokio::spawn(async move { drop(connection.await) });
        return Ok(client);
    }
    let (client, connection) = config.connect(NoTls).await.map_err(|error| said(&error))?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// "db error" says nothing; what the database itself says does.
fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => with_causes(error),
    }
}

fn read(answer: &[SimpleQueryMessage]) -> Result<Sample, String> {
    let rows: Vec<_> = answer
        .iter()
        .filter_map(|message| if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None })
        .collect();
    let [row] = rows.as_slice() else {
        return Err(match rows.len() {
            0 => "the query gave no row, where one number is needed".to_owned(),
            count => format!("the query gave {count} rows where one is needed: aggregate it, as in SELECT count(*)"),
        });
    };
    if row.len() != 1 {
        return Err(format!("the query gave {} columns where one is needed", row.len()));
    }
    match row.get(0) {
        Some(value) => number::milli(value).map(Sample::One),
        None => Err("the query gave NULL, which is no number".to_owned()),
    }
}
