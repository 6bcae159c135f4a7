//! The README keeps its promises: its commands are run as they stand there.

use std::fs::File;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use loadline_tests::alone;

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");
const README: &str = include_str!("../../README.md");

/// The words of each `$ loadline ...` line, without its comment.
fn commands() -> Vec<Vec<&'static str>> {
    let line = |line: &'static str| line.strip_prefix("$ loadline ")?.split('#').next();
    README.lines().filter_map(line).map(|words| words.split_whitespace().collect()).collect()
}

/// The statements that the README has its reader write into `change.sql`.
fn change() -> &'static str {
    README.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default()
}

struct Home(tempfile::TempDir);

impl Home {
    fn run(&self, words: &[&str]) -> Result<Output> {
        let mut command = Command::new(BINARY);
        command.args(words).current_dir(self.0.path()).env("XDG_CONFIG_HOME", self.0.path().join("config"));
        command.output().with_context(|| format!("running loadline {words:?}"))
    }

    /// Begins one that has no end. What it says is kept beside.
    fn watch(&self, words: &[&str]) -> Result<Watch> {
        let file = self.0.path().join(words.join("-"));
        let mut command = Command::new(BINARY);
        command.args(words).current_dir(self.0.path()).env("XDG_CONFIG_HOME", self.0.path().join("config"));
        let child = command.stdin(Stdio::null()).stdout(File::create(&file)?).spawn()?;
        Ok(Watch { words: words.join(" "), file, child })
    }

    /// All three nodes are up and have the same hash of the same entry.
    fn agreed(&self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let status: serde_json::Value = serde_json::from_str(&self.must(&["status", "-o", "json"])?)?;
            let nodes = status["nodes"].as_array().context("status has no nodes")?;
            let hash = |node: &serde_json::Value| {
                Some((node["hash_index"].as_u64()?, node["state_hash"].as_str()?.to_owned()))
            };
            let hashes: Vec<_> = nodes.iter().filter_map(hash).collect();
            if hashes.len() == 3 && !hashes[0].1.is_empty() && hashes.iter().all(|hash| *hash == hashes[0]) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "the nodes do not agree: {status}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn must(&self, words: &[&str]) -> Result<String> {
        let output = self.run(words)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "loadline {} ended with {}: {stderr}", words.join(" "), output.status);
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// A command that goes on until somebody ends it.
struct Watch {
    words: String,
    file: std::path::PathBuf,
    child: Child,
}

impl Watch {
    /// It is still at work, and has said this.
    fn has_seen(&mut self, wanted: &[&str]) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "loadline {} ended by itself: {ended:?}", self.words);
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let said = std::fs::read_to_string(&self.file)?;
            if wanted.iter().all(|wanted| said.contains(wanted)) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "loadline {} has not told of {wanted:?}: {said}", self.words);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command of the README has to say, beside ending well.
const SAYS: [(&str, &[&str]); 8] = [
    ("explain cluster/demo", &["idle_suspend", "target_size", "r1_auto"]),
    ("get actions --cluster demo", &["create_replica", "drop_replica", "SUCCEEDED"]),
    ("get clusters", &["demo"]),
    ("get decisions --cluster demo", &["BEGAN", "r1_auto=100cc"]),
    ("audit export", &["exported: entries 1 to", "signed by"]),
    ("audit verify", &["history.export is valid"]),
    ("audit replay clusters", &["demo"]),
    ("apply -f change.sql", &["created"]),
];

impl Drop for Home {
    fn drop(&mut self) {
        // Whatever the test found, its nodes must not outlive it.
        let _ = self.run(&["dev", "stop"]);
    }
}

#[test]
fn the_commands_of_the_readme_do_what_it_says() -> Result<()> {
    let _alone = alone();
    let home = Home(tempfile::tempdir()?);
    // As in the README but for ports, which may be taken here, and for the terminal that it would hold.
    let started = home.must(&["dev", "--detach", "--grpc-port", "0", "--http-port", "0", "--pg-port", "0"])?;
    let header: Vec<&str> = started.lines().next().context("dev printed nothing")?.split_whitespace().collect();
    ensure!(header == ["NODE", "PID", "ROLE", "GRPC", "HTTP", "SQL"], "{started}");
    ensure!(started.lines().count() == 4 && started.matches("leader").count() == 1, "{started}");

    std::fs::write(home.0.path().join("change.sql"), change())?;
    let commands = commands();
    ensure!(commands.len() >= 12, "the README has lost its commands: {commands:?}");
    let mut killed = false;
    let mut tried = None;
    let mut watches = Vec::new();
    for words in &commands {
        // The end of all nodes comes last.
        if words.starts_with(&["dev", "stop"]) {
            continue;
        }
        if words.contains(&"-w") {
            watches.push(home.watch(words)?);
            continue;
        }
        if ["whatif", "backtest"].contains(&words[0]) {
            // That something would be different is an answer, too.
            let output = home.run(words)?;
            let stderr = String::from_utf8(output.stderr)?;
            ensure!(matches!(output.status.code(), Some(0 | 1)), "{words:?} ended with {}: {stderr}", output.status);
            ensure!(!output.stdout.is_empty() || !stderr.is_empty(), "{words:?} says nothing");
            if words[0] == "whatif" {
                // A replica more while it wakes up is nothing now, when it is awake.
                ensure!(stderr.contains("0 of 1 cluster ") && output.status.code() == Some(0), "{stderr}");
                let revision = stderr.split("at revision ").nth(1).and_then(|rest| rest.split([' ', '\n']).next());
                tried = Some(revision.with_context(|| format!("no revision: {stderr}"))?.to_owned());
            } else {
                let said = String::from_utf8(output.stdout)?;
                ensure!(said.contains("replica-hours") && said.contains("cost"), "{said}");
            }
            continue;
        }
        let given = |word: &&'static str| match (*word, &tried) {
            ("REVISION", Some(revision)) => revision.clone(),
            (word, _) => word.to_owned(),
        };
        let given: Vec<String> = words.iter().map(given).collect();
        let said = home.must(&given.iter().map(String::as_str).collect::<Vec<_>>())?;
        killed |= words.starts_with(&["dev", "kill"]);
        if *words == ["status"] {
            home.agreed()?;
        }
        let line = words.join(" ");
        for (_, wanted) in SAYS.iter().filter(|(begins, _)| line.starts_with(begins)) {
            ensure!(wanted.iter().all(|wanted| said.contains(wanted)), "{line} does not tell of {wanted:?}: {said}");
        }
        if let Some(revision) = tried.as_ref().filter(|_| words[0] == "apply") {
            ensure!(home.must(&["get", "strategies"])?.contains("burst"), "what was applied is not there");
            // Now somebody has changed something since.
            std::fs::write(home.0.path().join("other.sql"), change().replace("200cc", "400cc"))?;
            let late = home.run(&["apply", "-f", "other.sql", "--if-revision", revision])?;
            ensure!(late.status.code() == Some(4), "an outdated revision ends with {}", late.status);
        }
    }
    ensure!(killed, "the README no longer kills the leader");
    ensure!(tried.is_some(), "the README no longer tries a change first");
    for (begins, _) in SAYS {
        ensure!(commands.iter().any(|words| words.join(" ").starts_with(begins)), "the README has lost: {begins}");
    }
    let watched = |of: &str| watches.iter().position(|watch| watch.words.contains(of)).context(of.to_owned());
    let (decisions, actions) = (watched("get decisions")?, watched("get actions")?);
    // Across a killed leader, too.
    watches[decisions].has_seen(&["BEGAN", "AS_WANTED", "nothing", "r1_auto=100cc"])?;
    // It began after all that happened, so this has to happen now.
    home.must(&["dev", "kill", "leader"])?;
    home.must(&["sql", "-c", "CREATE CLUSTER REPLICA demo.byhand SIZE = '25cc'"])?;
    watches[actions].has_seen(&["create_replica", "byhand"])?;
    home.agreed()?;
    drop(watches);
    home.must(&["dev", "stop"])?;
    Ok(())
}

#[test]
fn every_page_that_the_readme_names_is_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let links = README.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let pages: Vec<&str> = links.filter(|link| !link.contains("://")).collect();
    assert!(pages.len() >= 4, "{pages:?}");
    for page in pages {
        assert!(root.join(page).exists(), "{page} is not there");
    }
}
