//! A PostgreSQL server of our own, and tables and functions in it that stand for a catalog of replicas.

#![allow(clippy::unwrap_used, reason = "a fault here is a fault of the test, and ends it")]

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use loadline_executor::backends::sql::{Sql, SqlConfig};
use loadline_executor::{ClusterAddress, Order};
use loadline_state_machine::{Call, ClusterId, Epoch, Hash, LogIndex, ReplicaLife, ReplicaSpec};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// What the server needs to start on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the server when the process of the tests is gone, however it went: its end of the pipe closes with it.
const KEEPER: &str = r#"
binaries=$1 folder=$2
shift 2
"$binaries/postgres" -D "$folder/data" -k "$folder" -c fsync=off -c max_connections=200 "$@" >"$folder/log" 2>&1 </dev/null &
server=$!
cat >/dev/null
kill -INT "$server"
wait "$server"
rm -rf "$folder"
"#;

/// A server that runs until its keeper is told to end it.
struct Server {
    folder: PathBuf,
    _keeper: Child,
}

/// One server for all tests of this file, on a Unix socket only; each test has a database of its own.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = prepare();
        server.run(&["-c", "listen_addresses="], 5432)
    })
}

/// A server on a port of this machine that speaks TLS, with a certificate that only `ca_file` vouches for.
pub(crate) struct TlsServer {
    pub(crate) connect: String,
    pub(crate) ca_file: PathBuf,
    _server: Server,
}

pub(crate) fn tls_server() -> TlsServer {
    let prepared = prepare();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (prepared.folder.join("server.pem"), prepared.folder.join("server.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    if let Some((user, group)) = prepared.account {
        chown(&key, Some(user), Some(group)).unwrap();
        chown(&certificate, Some(user), Some(group)).unwrap();
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", certificate.display()),
        format!("ssl_key_file={}", key.display()),
    ];
    let options: Vec<&str> = options.iter().flat_map(|option| ["-c", option]).collect();
    let server = prepared.run(&options, port);
    let connect = format!("host=localhost hostaddr=127.0.0.1 port={port} user=loadline dbname=postgres");
    TlsServer { connect, ca_file: certificate, _server: server }
}

/// The newest version there is. A machine without one cannot run these tests, and must not pass them.
fn binaries() -> PathBuf {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = installed
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, path)| path.join("initdb").is_file())
        .collect();
    versions.sort();
    let newest = versions.pop().expect(
        "PostgreSQL is not installed: these tests need its server (apt-get install postgresql); there is no \
         /usr/lib/postgresql/*/bin/initdb",
    );
    newest.1
}

/// PostgreSQL does not run as root. The account that its package makes is the one to run it as.
fn account() -> Option<(u32, u32)> {
    let id = |arguments: &[&str]| -> Option<u32> {
        let output = Command::new("id").args(arguments).output().expect("`id` runs");
        String::from_utf8(output.stdout).expect("`id` prints numbers").trim().parse().ok()
    };
    if id(&["-u"]) != Some(0) {
        return None;
    }
    let user = id(&["-u", "postgres"]).expect("there is no account `postgres`, which the package of PostgreSQL makes");
    Some((user, id(&["-g", "postgres"]).expect("the account `postgres` has a group")))
}

/// A folder with an empty database in it.
struct Prepared {
    binaries: PathBuf,
    account: Option<(u32, u32)>,
    folder: PathBuf,
}

fn prepare() -> Prepared {
    let (binaries, account) = (binaries(), account());
    let folder = tempfile::Builder::new().prefix("loadline-pg-").tempdir().unwrap().keep();
    if let Some((user, group)) = account {
        chown(&folder, Some(user), Some(group)).unwrap();
    }
    let prepared = Prepared { binaries, account, folder };
    let made = prepared
        .command(&prepared.binaries.join("initdb"))
        .args(["--auth=trust", "--username=loadline", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"])
        .arg(prepared.folder.join("data"))
        .output()
        .expect("initdb starts");
    assert!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
    prepared
}

impl Prepared {
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder);
        if let Some((user, group)) = self.account {
            command.uid(user).gid(group);
        }
        command
    }

    fn run(self, options: &[&str], port: u16) -> Server {
        let keeper = self
            .command(Path::new("/bin/sh"))
            .args(["-c", KEEPER, "keeper"])
            .arg(&self.binaries)
            .arg(&self.folder)
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        let ready = || {
            let mut asking = self.command(&self.binaries.join("pg_isready"));
            asking.arg("-q").arg("-h").arg(&self.folder).arg("-p").arg(port.to_string()).status().unwrap().success()
        };
        let began = Instant::now();
        while !ready() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "PostgreSQL does not start: {}", log());
        }
        Server { folder: self.folder, _keeper: keeper }
    }
}

/// The catalog: every statement that was carried out leaves a line in `effects`, in its own transaction.
const CATALOG: &str = "
CREATE TABLE replicas (cluster text, name text, size text NOT NULL, life bigserial, key text,
    cordoned boolean NOT NULL DEFAULT false, PRIMARY KEY (cluster, name));
CREATE TABLE effects (number serial, what text NOT NULL);
CREATE TABLE checkpoints (cluster text, name text, life text NOT NULL, PRIMARY KEY (cluster, name));
CREATE FUNCTION make(cluster text, name text, size text, key text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF size = 'unknown' THEN RAISE 'there is no size %', size; END IF;
    IF size = 'nothing' THEN RETURN; END IF;
    INSERT INTO replicas VALUES (cluster, name, size, DEFAULT, key);
    INSERT INTO effects (what) VALUES ('create ' || name);
    IF size = 'slow' THEN PERFORM pg_sleep(600); END IF;
    IF size = 'gated' THEN PERFORM pg_advisory_xact_lock(1); END IF;
END $$;
CREATE FUNCTION unmake(the_cluster text, the_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM replicas WHERE cluster = the_cluster AND name = the_name;
    IF NOT FOUND THEN RAISE 'there is no replica %', the_name; END IF;
    INSERT INTO effects (what) VALUES ('drop ' || the_name);
END $$;
CREATE FUNCTION cordon(the_cluster text, the_name text, how boolean) RETURNS void LANGUAGE sql AS $$
    UPDATE replicas SET cordoned = how WHERE cluster = the_cluster AND name = the_name;
$$;
";

/// A database of its own, with a catalog in it.
pub(crate) struct Database {
    pub(crate) connect: String,
    pub(crate) admin: Client,
}

impl Database {
    pub(crate) async fn create() -> Database {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = server();
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let at = |database: &str| format!("host={} user=loadline dbname={database}", server.folder.display());
        let postgres = client(&at("postgres")).await;
        postgres.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        let admin = client(&at(&name)).await;
        admin.batch_execute(CATALOG).await.unwrap();
        Database { connect: at(&name), admin }
    }

    /// A backend with a ledger, as one node has it.
    pub(crate) fn backend(&self) -> Sql {
        self.backend_with(|config| config.ledger = Some("ledger".to_owned()))
    }

    pub(crate) fn backend_with(&self, change: impl FnOnce(&mut SqlConfig)) -> Sql {
        let mut config = SqlConfig {
            create: "SELECT make({cluster_name}, {replica_name}, {size}, {key})".to_owned(),
            drop: "SELECT unmake({cluster_name}, {replica_name})".to_owned(),
            cordon: Some("SELECT cordon({cluster_name}, {replica_name}, true)".to_owned()),
            uncordon: Some("SELECT cordon({cluster_name}, {replica_name}, false)".to_owned()),
            drain: Some("SELECT 2 AS moved, 1 AS left".to_owned()),
            observe: "SELECT name, size, life AS incarnation, NOT cordoned AS ready FROM replicas \
                      WHERE cluster = {cluster_name}"
                .to_owned(),
            call_deadline: Duration::from_secs(10),
            ..SqlConfig::to(&self.connect)
        };
        change(&mut config);
        Sql::new(config, None).unwrap()
    }

    /// What was really carried out, in order.
    pub(crate) async fn effects(&self) -> Vec<String> {
        self.column("SELECT what FROM effects ORDER BY number").await
    }

    pub(crate) async fn column(&self, query: &str) -> Vec<String> {
        let messages = self.admin.simple_query(query).await.unwrap();
        let values = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
            _ => None,
        });
        values.collect()
    }

    /// Waits until a query shows this, for as long as a slow machine may need.
    pub(crate) async fn wait_for(&self, query: &str, expected: &str) {
        let until = tokio::time::Instant::now() + PATIENCE;
        while self.column(query).await != [expected] {
            assert!(tokio::time::Instant::now() < until, "{query} does not become {expected}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn client(connect: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(connect, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

pub(crate) fn epoch(index: u64) -> Epoch {
    Epoch { incarnation: 7, index: LogIndex(index) }
}

pub(crate) fn create(name: &str, size: &str) -> Call {
    Call::CreateReplica(ReplicaSpec { name: name.into(), size: size.into() })
}

pub(crate) fn life(name: &str, incarnation: &str) -> ReplicaLife {
    ReplicaLife { name: name.into(), size: "25cc".into(), incarnation: Some(incarnation.into()) }
}

pub(crate) fn order(key: &str, index: u64, call: Call) -> Order {
    let cluster = ClusterAddress { id: ClusterId { index: LogIndex(3), ordinal: 0 }, name: "shop".to_owned() };
    let parameters = Hash::of(format!("{key} {cluster:?} {call:?}").as_bytes());
    Order { key: key.to_owned(), epoch: epoch(index), attempt: 1, parameters, cluster, call }
}
