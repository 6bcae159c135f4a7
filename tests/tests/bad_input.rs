//! Nonsense at every edge of a running node: a clear error, nothing written, nobody dies.

use std::io::{Read, Write};
use std::process::Command;
use std::time::Duration;

use loadline_tests::{Group, Options, alone, ask, eventually};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

/// Runs the command line without a group, and compares the exit code and a part of what it says.
fn check(words: &[&str], code: i32, says: &str) {
    let output = Command::new(BINARY).args(words).output().expect("starting the binary");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "loadline {words:?} said {stderr}");
    assert!(stderr.contains(says), "loadline {words:?} said {stderr}, and not {says:?}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn a_bad_configuration_is_named_with_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join("node.toml");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    check(&["config", "check", "--config", &file("nmae = \"n1\"\n")], 2, "name");
    check(&["config", "check", "--config", &file("name = \"n1\"\nheartbeat = \"soon\"\n")], 2, "heartbeat");
    check(&["config", "check", "--config", &file("name = [\n")], 2, "node.toml");
    check(&["config", "check", "--config", "no-such-file.toml"], 2, "no-such-file.toml");
    check(&["serve", "--name", "n1", "--grpc-listen", "nowhere"], 2, "grpc");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_wire_hurts_nobody() -> anyhow::Result<()> {
    let _alone = alone();
    let group = Group::start(BINARY, 3, Options::default())?;
    ask::leader(&group).await?;
    let before = ask::agreement(&group, 3).await?;
    let mut noise = vec![0u8; 64 * 1024];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut noise);
    for member in &group.members {
        for address in [&member.grpc, &member.http] {
            for greeting in [&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /\xff\xfe HTTP/1.1\r\n\r\n"] {
                let mut stream = std::net::TcpStream::connect(address)?;
                stream.set_read_timeout(Some(Duration::from_millis(200)))?;
                // The node may hang up at any point: that is an answer.
                let _ = stream.write_all(greeting).and_then(|()| stream.write_all(&noise));
                let _ = stream.read(&mut [0; 1024]);
            }
        }
    }
    let after = ask::agreement(&group, 3).await?;
    anyhow::ensure!(!before.is_empty() && !after.is_empty());
    for number in 0..3 {
        anyhow::ensure!(!group.log_of(number).contains("panicked"), "{}", group.log_of(number));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_file_or_a_second_process_in_the_data_folder_is_refused() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::default())?;
    ask::leader(&group).await?;
    let folder = group.members[0].data.clone();

    let again = ["serve", "--name", "n1", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--data-dir"];
    let output = Command::new(BINARY).args(again).arg(&folder).args(["--join", "127.0.0.1:1"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    anyhow::ensure!(!output.status.success(), "a second process was let into {}", folder.display());
    let holder = group.members[0].pid().unwrap_or_default().to_string();
    anyhow::ensure!(said.contains(&holder), "it does not say that process {holder} has the folder: {said}");

    group.stop(0)?;
    std::fs::write(folder.join("wal").join("shopping-list.txt"), "milk")?;
    group.start_member(0)?;
    let code = eventually("the node refuses to start", ask::PATIENCE, async || group.ended(0).ok()?).await?;
    anyhow::ensure!(code != 0);
    anyhow::ensure!(group.log_of(0).contains("shopping-list.txt"), "{}", group.log_of(0));
    std::fs::remove_file(folder.join("wal").join("shopping-list.txt"))?;
    group.start_member(0)?;
    ask::agreement(&group, 3).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_below_the_synced_offset_stops_the_node_and_says_how_to_recover() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::default())?;
    let leader = ask::leader(&group).await?;
    let victim = (leader + 1) % 3;
    ask::said(&group, &["create", "cluster", "written-before-the-damage"])?;
    ask::agreement(&group, 3).await?;
    group.stop(victim)?;
    let wal = group.members[victim].data.join("wal");
    let mut files: Vec<_> =
        std::fs::read_dir(&wal)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.sort();
    let name = b"written-before-the-damage";
    let damaged = files.iter().any(|file| {
        let mut bytes = std::fs::read(file).unwrap_or_default();
        let Some(at) = bytes.windows(name.len()).position(|window| window == name) else { return false };
        bytes[at] ^= 0x20;
        std::fs::write(file, bytes).is_ok()
    });
    anyhow::ensure!(damaged, "the write is in none of {files:?}");
    group.start_member(victim)?;
    let code = eventually("the node refuses to start", ask::PATIENCE, async || group.ended(victim).ok()?).await?;
    anyhow::ensure!(code != 0);
    let said = group.log_of(victim);
    anyhow::ensure!(said.contains("remove-peer") && said.contains("wal"), "it does not say how to recover: {said}");
    // The others go on without it.
    ask::said(&group, &["create", "cluster", "written-after-the-damage"])?;
    Ok(())
}
