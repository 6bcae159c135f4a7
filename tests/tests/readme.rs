//! The README keeps its promises: its commands are run as they stand there.

use std::process::{Command, Output};

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

    fn must(&self, words: &[&str]) -> Result<String> {
        let output = self.run(words)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "loadline {} ended with {}: {stderr}", words.join(" "), output.status);
        Ok(String::from_utf8(output.stdout)?)
    }
}

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
    let mut killed = None;
    let mut tried = None;
    for words in &commands {
        // A watch has no end, and the end of all nodes comes last.
        if words.contains(&"-w") || words.starts_with(&["dev", "stop"]) {
            continue;
        }
        if ["whatif", "backtest"].contains(&words[0]) {
            // That something would be different is an answer, too.
            let output = home.run(words)?;
            let stderr = String::from_utf8(output.stderr)?;
            ensure!(matches!(output.status.code(), Some(0 | 1)), "{words:?} ended with {}: {stderr}", output.status);
            ensure!(!output.stdout.is_empty() || !stderr.is_empty(), "{words:?} says nothing");
            if words[0] == "whatif" {
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
        if words.starts_with(&["dev", "kill"]) {
            killed = Some(said);
        } else if words.starts_with(&["get", "actions", "--cluster"]) {
            let all = ["create_replica", "drop_replica"].iter().all(|call| said.contains(call));
            ensure!(all && said.contains("SUCCEEDED"), "the demo was not suspended and woken: {said}");
        } else if words.starts_with(&["get", "clusters"]) {
            ensure!(said.contains("demo"), "after the kill the cluster is gone: {said}");
        }
    }
    ensure!(killed.is_some(), "the README no longer kills the leader");
    ensure!(tried.is_some(), "the README no longer tries a change first");
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
