//! Every entry says who asked, from where and under which id; and no secret, whatever way it came to a node, is in its history or in any file
//! of its folder.

use std::path::Path;

use loadline_api::v1;
use loadline_api::v1::ExportHistoryRequest;
use loadline_api::v1::admin_client::AdminClient;
use loadline_api::v1::audit_client::AuditClient;
use loadline_audit::{ExportFile, Kept, Source};
use loadline_credentials::token::Token;
use loadline_log::JournalRecord;
use loadline_state_machine::{Command, JournalEntry, Proof};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;

use crate::common::{Node, create_cluster, eventually, named, options};
use crate::sql_clients::connect_as;

/// Shows a token.
#[derive(Clone)]
struct Bearer(String);

impl tonic::service::Interceptor for Bearer {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.parse().unwrap());
        Ok(request)
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Whether any part of a record holds it.
fn record_holds(record: &JournalRecord, text: &str) -> bool {
    holds(&record.entry, text) || holds(&record.events, text) || record.keys.iter().any(|key| holds(key, text))
}

/// Everything below a folder, file by file.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    all
}

/// A Prometheus that tells everybody what it was shown.
async fn chatty() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = vec![0; 4096];
            let length = stream.read(&mut asked).await.unwrap_or(0);
            let asked = String::from_utf8_lossy(&asked[..length]).into_owned();
            let shown = asked.lines().find(|line| line.to_lowercase().starts_with("authorization:"));
            let error = format!("nobody is known by {}", shown.unwrap_or("nothing"));
            let body = format!(r#"{{"status": "error", "errorType": "unauthorized", "error": "{error}"}}"#);
            let head = "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\n";
            let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{address}")
}

/// The error that was recorded for a signal.
async fn error_of(
    admin: &mut AdminClient<InterceptedService<tonic::transport::Channel, Bearer>>,
    name: &str,
) -> String {
    let found = admin.get_signal(named(name)).await.unwrap().into_inner();
    match found.resource.unwrap().resource {
        Some(v1::resource::Resource::Signal(signal)) => signal.error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_the_history_or_in_any_file_whatever_way_it_came() {
    let node = Node::alone_with_sql(|_| ()).await;
    // Each is used once and nowhere else, so that whichever is found tells the way that it went.
    let mut secrets: Vec<String> = Vec::new();
    let mut secret = |what: &str| {
        let text = format!("hush-{what}-{:016x}", 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(secrets.len() as u64 + 1));
        secrets.push(text.clone());
        text
    };

    // Passwords: as roles get them, and as somebody tries them.
    let sql = connect_as(node.pg.unwrap(), "whoever", "").await.unwrap();
    let password = secret("first-password");
    sql.batch_execute(&format!("CREATE ROLE root SUPERUSER PASSWORD '{password}'")).await.unwrap();
    let password = secret("second-password");
    sql.batch_execute(&format!("ALTER ROLE root PASSWORD '{password}'")).await.unwrap();
    sql.batch_execute(&format!("CREATE ROLE root PASSWORD '{}'", secret("refused-password"))).await.unwrap_err();
    sql.batch_execute(&format!("CREATE ROLE half PASSWORD '{}' NONSENSE", secret("mistyped"))).await.unwrap_err();
    let _ = connect_as(node.pg.unwrap(), "root", &secret("guessed-password")).await;

    // Tokens: one that is good, one that nobody knows.
    let token = Token::mint();
    let minted = v1::CreateTokenRequest {
        options: options(),
        role: "root".to_owned(),
        token_id: token.id().to_owned(),
        token_hash: token.hash().0.to_vec().into(),
        expires_in_ms: 0,
    };
    node.admin().create_token(minted).await.unwrap();
    let channel = InterceptedService::new(node.channel.clone(), Bearer(format!("Bearer {}", token.reveal())));
    let unknown = Token::mint();
    let stranger = InterceptedService::new(node.channel.clone(), Bearer(format!("Bearer {}", unknown.reveal())));
    AdminClient::new(stranger).create_cluster(create_cluster("theirs")).await.unwrap_err();
    let asked = create_cluster("shop");
    let request_id = asked.options.clone().unwrap().request_id;
    let mut admin = AdminClient::new(channel.clone());
    admin.create_cluster(asked).await.unwrap();

    // Signals: what is said instead of named is refused, over SQL and over gRPC, when it is made and when it is changed.
    let url = chatty().await;
    for options in [
        format!("PROMETHEUS (URL = 'http://ops:{}@127.0.0.1:1', QUERY = 'up')", secret("prometheus-url")),
        format!("PROMETHEUS (URL = '{url}?key={}', QUERY = 'up')", secret("prometheus-query")),
        format!("PROMETHEUS (URL = '{url}', QUERY = 'up', BEARER_TOKEN = '{}')", secret("prometheus-bearer")),
        format!(
            "PROMETHEUS (URL = '{url}', QUERY = 'up', USERNAME = 'u', PASSWORD = '{}')",
            secret("prometheus-password")
        ),
        format!("NATS (URL = 'nats://u:{}@127.0.0.1:1', STREAM = 's', CONSUMER = 'c')", secret("nats-url")),
        format!("NATS (URL = 'nats://127.0.0.1:1', STREAM = 's', CONSUMER = 'c', TOKEN = '{}')", secret("nats-token")),
        format!("POSTGRES (CONNECTION = 'host=127.0.0.1 password={}', QUERY = 'SELECT 1')", secret("connection")),
        format!("POSTGRES (URL = 'postgres://u:{}@127.0.0.1:1/db', QUERY = 'SELECT 1')", secret("postgres-url")),
        format!(
            "POSTGRES (CONNECTION = 'host=127.0.0.1', QUERY = 'SELECT 1', PASSWORD = '{}')",
            secret("postgres-password")
        ),
    ] {
        let refused = sql.batch_execute(&format!("CREATE SIGNAL leak FROM {options}")).await.unwrap_err();
        let text = format!("{refused:?}");
        assert!(!text.contains("hush-"), "the refusal repeats it: {text}");
    }
    let bearer = secret("prometheus-bearer-by-grpc");
    let fields = [("url", url.as_str()), ("query", "up"), ("bearer_token", &bearer)];
    let signal = v1::Signal {
        name: "leak".to_owned(),
        r#type: "prometheus".to_owned(),
        options: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..v1::Signal::default()
    };
    let create = v1::CreateSignalRequest { options: options(), signal: Some(signal), allow_existing: false };
    let refused = admin.create_signal(create).await.unwrap_err();
    assert!(!format!("{refused:?}").contains("hush-"), "{refused:?}");

    // One that is named, and that the other side repeats in its answer, which is recorded.
    let file = tempfile::NamedTempFile::new().unwrap();
    let repeated = secret("repeated-by-a-peer");
    std::fs::write(file.path(), &repeated).unwrap();
    let from = format!("PROMETHEUS (URL = '{url}', QUERY = 'up', BEARER_TOKEN = 'file:{}')", file.path().display());
    sql.batch_execute(&format!("CREATE SIGNAL chatty FROM {from} EVERY '1s'")).await.unwrap();
    eventually("its answer is recorded", async || error_of(&mut admin, "chatty").await.contains("nobody is known by"))
        .await;
    let update = format!("ALTER SIGNAL chatty UPDATE (BEARER_TOKEN = '{}')", secret("changed-bearer"));
    sql.batch_execute(&update).await.unwrap_err();

    let mut stream =
        AuditClient::new(channel).export_history(ExportHistoryRequest::default()).await.unwrap().into_inner();
    let mut bytes = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        bytes.extend_from_slice(&message.data);
    }
    let export = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(export.path(), &bytes).unwrap();
    let records = ExportFile::open(export.path()).unwrap().read(1, usize::MAX).unwrap();

    let mut found = None;
    let mut with_secrets = 0;
    for record in &records {
        let JournalEntry::Requests(sealed) = JournalEntry::decode(&record.entry).unwrap() else { continue };
        for request in &sealed.entry().requests {
            assert!(!request.actor.name.is_empty() && !request.actor.source.is_empty(), "entry {}", record.index);
            let asked_by_a_node = request.actor.proof == Proof::Node;
            assert!(asked_by_a_node || request.request_id.is_some(), "entry {}: {request:?}", record.index);
            for command in &request.commands {
                match command {
                    Command::CreateCluster { name } if name == "shop" => found = Some(request.clone()),
                    Command::CreateRole { .. } | Command::AlterRole { .. } | Command::CreateToken { .. } => {
                        with_secrets += 1;
                    }
                    _ => {}
                }
            }
        }
    }
    let found = found.expect("the request is in the history");
    assert_eq!((found.actor.name.as_str(), found.actor.source.as_str()), ("root", "grpc 127.0.0.1"));
    assert_eq!(found.request_id.unwrap().to_string(), request_id);
    assert!(with_secrets >= 3, "the commands that came with secrets are there");

    // The random part of a token is enough to find it by, too.
    for token in [&token, &unknown] {
        let revealed = token.reveal();
        secrets.push(revealed.rsplit('_').next().unwrap_or_default().to_owned());
        secrets.push(revealed.to_owned());
    }
    let (ended, folder) = node.stop().await;
    ended.unwrap();
    let data = folder.path().join("data");
    let files = files(folder.path());
    let kept = Kept::open(&data).unwrap();
    let journal = kept.read(1, usize::MAX).unwrap();
    // What is no secret is found in each of the places, so a secret would be.
    assert!(records.iter().any(|record| record_holds(record, "shop")));
    assert!(journal.iter().any(|record| record_holds(record, "shop")));
    assert!(files.iter().any(|(_, bytes)| holds(bytes, "shop")), "the log itself is not compressed");
    for secret in &secrets {
        assert!(secret.len() > 16, "{}", secret.len());
        assert!(!holds(&bytes, secret), "the export holds {secret}");
        for record in records.iter().chain(&journal) {
            assert!(!record_holds(record, secret), "entry {} holds {secret}", record.index);
        }
        for (file, bytes) in &files {
            assert!(!holds(bytes, secret), "{file} holds {secret}");
        }
    }
}
