//! The real psql and a real driver, as tests use them.

use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio_postgres::{Client, NoTls};

/// What psql says to a script, and whether it was content.
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) ok: bool,
}

/// Runs psql as people do: with its own settings, from a file of lines.
pub(crate) async fn psql(address: SocketAddr, script: &str) -> Said {
    psql_as(address, "ops", None, script).await
}

pub(crate) async fn psql_as(address: SocketAddr, role: &str, password: Option<&str>, script: &str) -> Said {
    let mut command = tokio::process::Command::new("psql");
    command
        .args(["-X", "-A", "-w", "-P", "footer=off", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-d", "loadline"])
        .args(["-U", role, "-p", &address.port().to_string()])
        .env("PGCONNECT_TIMEOUT", "20")
        .env_remove("PGPASSWORD")
        .envs(password.map(|password| ("PGPASSWORD", password)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("psql is there: it comes with the package postgresql-client");
    let mut stdin = child.stdin.take().unwrap();
    // One that was not let in does not read.
    let _ = stdin.write_all(script.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { out: text(output.stdout), err: text(output.stderr), ok: output.status.success() }
}

/// A script that psql must be content with, and what it says to it.
#[track_caller]
pub(crate) fn content(said: Said) -> String {
    assert!(said.ok && said.err.is_empty(), "psql said {}\n{}", said.out, said.err);
    said.out
}

pub(crate) async fn connect(address: SocketAddr) -> Client {
    connect_as(address, "ops", "").await.unwrap()
}

pub(crate) async fn connect_as(
    address: SocketAddr,
    role: &str,
    password: &str,
) -> Result<Client, tokio_postgres::Error> {
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(address.port()).user(role).dbname("loadline").password(password);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
