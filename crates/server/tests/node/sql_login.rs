//! Logging in over SQL: with a password at any node, and what somebody sees who has none.

use std::net::SocketAddr;

use loadline_server::config::{ServerConfig, Trust};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Node, Place, eventually};
use crate::sql_clients::{connect_as, content, psql_as};

async fn alone() -> Node {
    Node::alone_with_sql(|config| config.trust = Trust::Nobody).await
}

/// Three nodes that trust nobody, the leader last.
async fn three(change: impl Fn(&mut ServerConfig)) -> Vec<Node> {
    let places = [Place::with_sql().await, Place::with_sql().await, Place::with_sql().await];
    let peers: Vec<String> = places.iter().map(|place| place.grpc.clone()).collect();
    let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
    let mut nodes = Vec::new();
    for (number, place) in (1..).zip(places) {
        let mut config = place.config(&format!("n{number}"), &peers);
        config.trust = Trust::Nobody;
        change(&mut config);
        nodes.push(place.start(config));
    }
    let mut leads = None;
    eventually("somebody leads, and all know", async || {
        leads = None;
        for (number, node) in nodes.iter().enumerate() {
            node.until_ready().await;
            leads = leads.or((node.status().await.role == "leader").then_some(number));
        }
        leads.is_some()
    })
    .await;
    let leader = nodes.remove(leads.unwrap());
    nodes.push(leader);
    nodes
}

fn code(error: &tokio_postgres::Error) -> String {
    error.code().unwrap_or_else(|| panic!("no answer of the node: {error}")).code().to_owned()
}

async fn refused(address: SocketAddr, role: &str, password: &str) -> (String, String) {
    let error = connect_as(address, role, password).await.expect_err("it should have been refused");
    (code(&error), error.as_db_error().unwrap().message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_logs_in_with_its_password_at_every_node() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a secret of all three nodes\n").unwrap();
    let nodes = three(|config| config.peer_secret_file.clone_from(&secret)).await;
    let at: Vec<SocketAddr> = nodes.iter().map(|node| node.pg.unwrap()).collect();
    let (follower, leader) = (at[0], at[2]);

    // As long as nobody can log in, everybody may everything; the first password changes that.
    let first = connect_as(follower, "whoever", "").await.unwrap();
    first.batch_execute("CREATE CLUSTER shop; CREATE ROLE idle").await.unwrap();
    first.batch_execute("CREATE ROLE root SUPERUSER PASSWORD 'correct horse'").await.unwrap();
    let error = first.batch_execute("SELECT * FROM clusters").await.unwrap_err();
    assert_eq!(code(&error), "28000", "{error}");

    for address in &at {
        // At once, also where it has not arrived yet.
        let said = psql_as(
            *address,
            "root",
            Some("correct horse"),
            "SELECT current_user, name FROM clusters WHERE name = 'shop';",
        )
        .await;
        assert_eq!(content(said), "current_user|name\nroot|shop\n");
        let client = connect_as(*address, "root", "correct horse").await.unwrap();
        client.batch_execute(&format!("CREATE CLUSTER at_{}", address.port())).await.unwrap();
        let row = client.query_one("SHOW is_superuser", &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), "on");

        let (sqlstate, said) = refused(*address, "root", "Correct horse").await;
        assert_eq!((sqlstate.as_str(), said.as_str()), ("28P01", "password authentication failed for user \"root\""));
        let (sqlstate, said) = refused(*address, "nobody", "correct horse").await;
        assert_eq!((sqlstate.as_str(), said.as_str()), ("28P01", "password authentication failed for user \"nobody\""));
        let (sqlstate, said) = refused(*address, "idle", "correct horse").await;
        assert_eq!((sqlstate.as_str(), said.as_str()), ("28000", "role \"idle\" has no password to log in with"));
        let said = psql_as(*address, "root", Some("wrong"), "SELECT 1;").await;
        assert!(!said.ok && said.err.contains("password authentication failed for user \"root\""), "{}", said.err);
        let said = psql_as(*address, "root", None, "SELECT 1;").await;
        assert!(!said.ok && said.err.contains("no password supplied"), "{}", said.err);
    }

    // Who did it is in the log, and how that was known.
    let client = connect_as(leader, "root", "correct horse").await.unwrap();
    let mine = "SELECT count(*) FROM events WHERE actor = 'root' AND resource LIKE 'clusters/at_%'";
    assert_eq!(client.query_one(mine, &[]).await.unwrap().get::<_, i64>(0), 3);

    // A new password counts at once, everywhere, and the old one no longer.
    client.batch_execute("ALTER ROLE root PASSWORD 'battery staple'").await.unwrap();
    for address in &at {
        assert_eq!(refused(*address, "root", "correct horse").await.0, "28P01");
        connect_as(*address, "root", "battery staple").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_a_role_that_is_gone_is_over() {
    let node = alone().await;
    let sql = node.pg.unwrap();
    let anybody = connect_as(sql, "root", "").await.unwrap();
    anybody
        .batch_execute("CREATE ROLE guest; CREATE CLUSTER shop; CREATE ROLE root SUPERUSER PASSWORD 'r'")
        .await
        .unwrap();
    let root = connect_as(sql, "root", "r").await.unwrap();
    root.batch_execute("ALTER ROLE guest PASSWORD 'g'").await.unwrap();
    let guest = connect_as(sql, "guest", "g").await.unwrap();
    assert_eq!(guest.query_one("SHOW is_superuser", &[]).await.unwrap().get::<_, String>(0), "off");
    assert_eq!(guest.query("SELECT name FROM clusters", &[]).await.unwrap().len(), 1);
    assert_eq!(code(&guest.batch_execute("DROP CLUSTER shop").await.unwrap_err()), "42501");
    guest.batch_execute("BEGIN").await.unwrap();
    root.batch_execute("DROP ROLE guest").await.unwrap();
    assert_eq!(code(&guest.query("SELECT name FROM clusters", &[]).await.unwrap_err()), "28000");
    assert_eq!(refused(sql, "guest", "g").await.0, "28P01");
    // The password of the last superuser is not to be had.
    assert_eq!(code(&root.batch_execute("ALTER ROLE root PASSWORD NULL").await.unwrap_err()), "55000");
    let said = root.query_one("SELECT count(*) FROM events WHERE details::text LIKE '%SCRAM-SHA-256$%'", &[]).await;
    if let Ok(row) = said {
        assert_eq!(row.get::<_, i64>(0), 0, "no verifier is shown");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_prove_nothing_to_each_other_take_no_roles_over_sql_either() {
    let nodes = three(|_| ()).await;
    let client = connect_as(nodes[0].pg.unwrap(), "root", "").await.unwrap();
    let error = client.batch_execute("CREATE ROLE root SUPERUSER PASSWORD 'r'").await.unwrap_err();
    assert_eq!(code(&error), "55000");
    assert!(error.as_db_error().unwrap().message().contains("peer_secret_file"), "{error:?}");
}

/// What somebody sees who speaks the protocol by hand: the challenge, and the end.
struct Seen {
    salt: String,
    iterations: String,
    nonce_length: usize,
    refusal: Vec<u8>,
}

async fn message(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let kind = stream.read_u8().await.unwrap();
    let length = stream.read_u32().await.unwrap();
    let mut body = vec![0; usize::try_from(length).unwrap() - 4];
    stream.read_exact(&mut body).await.unwrap();
    (kind, body)
}

async fn say(stream: &mut TcpStream, body: &[u8]) {
    stream.write_u8(b'p').await.unwrap();
    stream.write_u32(u32::try_from(body.len()).unwrap() + 4).await.unwrap();
    stream.write_all(body).await.unwrap();
}

async fn start(address: SocketAddr, role: &str) -> (TcpStream, (u8, Vec<u8>)) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = format!("user\0{role}\0\0");
    stream.write_u32(u32::try_from(body.len()).unwrap() + 8).await.unwrap();
    stream.write_u32(196_608).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let answer = message(&mut stream).await;
    (stream, answer)
}

async fn guess(address: SocketAddr, role: &str) -> Seen {
    let (mut stream, (kind, offer)) = start(address, role).await;
    assert_eq!((kind, offer.as_slice()), (b'R', &b"\0\0\0\x0aSCRAM-SHA-256\0\0"[..]));
    let first = b"n,,n=,r=fyko+d2lbbFgONRv9qkxdawL";
    let mut initial = b"SCRAM-SHA-256\0".to_vec();
    initial.extend(u32::try_from(first.len()).unwrap().to_be_bytes());
    initial.extend(first);
    say(&mut stream, &initial).await;
    let (_, challenge) = message(&mut stream).await;
    let challenge = String::from_utf8(challenge[4..].to_vec()).unwrap();
    let parts: Vec<&str> = challenge.split(',').map(|part| &part[2..]).collect();
    let proof = "A".repeat(43) + "=";
    say(&mut stream, format!("c=biws,r={},p={proof}", parts[0]).as_bytes()).await;
    let (kind, mut refusal) = message(&mut stream).await;
    assert_eq!(kind, b'E');
    // And the connection ends.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    refusal.extend(rest);
    Seen { salt: parts[1].to_owned(), iterations: parts[2].to_owned(), nonce_length: parts[0].len(), refusal }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_is_there_cannot_be_told_from_one_that_is_not() {
    let node = alone().await;
    let sql = node.pg.unwrap();
    let anybody = connect_as(sql, "x", "").await.unwrap();
    anybody.batch_execute("CREATE ROLE alice SUPERUSER PASSWORD 'a'").await.unwrap();
    let (there, again) = (guess(sql, "alice").await, guess(sql, "alice").await);
    let (not_there, not_there_again) = (guess(sql, "malle").await, guess(sql, "malle").await);
    assert_eq!(there.salt, again.salt);
    assert_eq!(not_there.salt, not_there_again.salt, "a salt that changes gives away that nobody is there");
    assert_ne!(there.salt, not_there.salt);
    assert_eq!(there.salt.len(), not_there.salt.len());
    assert_eq!((there.iterations, there.nonce_length), (not_there.iterations, not_there.nonce_length));
    let without_name = |seen: Seen, name: &str| String::from_utf8(seen.refusal).unwrap().replace(name, "NAME");
    assert_eq!(without_name(again, "alice"), without_name(not_there_again, "malle"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_in_place_of_a_password_ends_the_connection_and_nothing_else() {
    let node = alone().await;
    let sql = node.pg.unwrap();
    let anybody = connect_as(sql, "x", "").await.unwrap();
    anybody.batch_execute("CREATE ROLE alice SUPERUSER PASSWORD 'a'").await.unwrap();
    let plus = [&b"SCRAM-SHA-256-PLUS\0\0\0\0\x07n,,n=,r"[..]].concat();
    for nonsense in
        [&b""[..], b"a\0", b"SCRAM-SHA-256\0\xff\xff\xff\xff", b"SCRAM-SHA-256\0\0\0\0\x02n,", &plus, &[0xff; 9]]
    {
        let (mut stream, _) = start(sql, "alice").await;
        say(&mut stream, nonsense).await;
        let (kind, refusal) = message(&mut stream).await;
        let said = String::from_utf8_lossy(&refusal).into_owned();
        assert!(kind == b'E' && said.contains("C08P01"), "{nonsense:?}: {said}");
    }
    // A statement before the login is no way around it.
    let (mut stream, _) = start(sql, "alice").await;
    stream.write_all(b"Q\0\0\0\x0dSELECT 1\0").await.unwrap();
    let (kind, _) = message(&mut stream).await;
    assert_eq!(kind, b'E');
    // Nor is a name that cannot be one.
    for role in ["", &"x".repeat(200), "a\nb"] {
        let (_, (kind, refusal)) = start(sql, role).await;
        assert!(kind == b'E' && String::from_utf8_lossy(&refusal).contains("C28000"), "{role:?}");
    }
    connect_as(sql, "alice", "a").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_machine_that_is_trusted_a_role_is_tried_out_by_its_name() {
    let node = Node::alone_with_sql(|_| ()).await;
    let sql = node.pg.unwrap();
    let root = connect_as(sql, "whoever", "").await.unwrap();
    root.batch_execute("CREATE ROLE admin SUPERUSER PASSWORD 'a'; CREATE ROLE guest").await.unwrap();
    root.batch_execute("CREATE CLUSTER shop").await.unwrap();
    let guest = connect_as(sql, "guest", "").await.unwrap();
    assert_eq!(guest.query_one("SHOW is_superuser", &[]).await.unwrap().get::<_, String>(0), "off");
    assert_eq!(code(&guest.batch_execute("DROP CLUSTER shop").await.unwrap_err()), "42501");
    guest.batch_execute("SELECT * FROM clusters").await.unwrap();
}
