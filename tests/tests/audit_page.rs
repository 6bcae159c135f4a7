//! The audit page keeps its promises: its commands are run as they stand there, on a group that has lived a little. And whatever way
//! somebody asks why, the answer is the same.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use loadline_tests::alone;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");
const PAGE: &str = include_str!("../../docs/audit.md");

/// The words of a line as a shell would see them.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') => words.push(std::mem::take(&mut word)),
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// The lines of the page that begin with `$`.
fn lines() -> Vec<Vec<String>> {
    PAGE.lines().filter_map(|line| line.strip_prefix("$ ")).map(words).collect()
}

struct Home(tempfile::TempDir);

impl Home {
    /// A group with its demo, of which a replica was made.
    fn with_a_past() -> Result<Home> {
        let home = Home(tempfile::tempdir()?);
        home.must(&["dev", "--detach", "--grpc-port", "0", "--http-port", "0", "--pg-port", "0"])?;
        home.must(&["--timeout", "60s", "wait", "cluster/demo", "--for", "exists"])?;
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while home.settled()?.is_none() {
            ensure!(std::time::Instant::now() < until, "the demo gets no replica");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        home.must(&["--actor", "ada", "pause", "demo", "--reason", "audit"])?;
        home.must(&["--actor", "ada", "resume", "demo"])?;
        ensure!(
            !home.run(&["--actor", "ada", "create", "cluster", "demo"])?.status.success(),
            "there are two of one name"
        );
        // The page looks back, and what it looks for has to be there by then.
        while !home.run(&["explain", "cluster/demo", "--at", "1s ago"])?.status.success() {
            ensure!(std::time::Instant::now() < until, "the demo was never there a second ago");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        Ok(home)
    }

    fn run(&self, words: &[impl AsRef<str>]) -> Result<Output> {
        let mut command = Command::new(BINARY);
        command.args(words.iter().map(AsRef::as_ref)).current_dir(self.0.path());
        command.env("XDG_CONFIG_HOME", self.0.path().join("config"));
        command.output().context("running loadline")
    }

    fn must(&self, words: &[&str]) -> Result<String> {
        let output = self.run(words)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "loadline {} ended with {}: {stderr}", words.join(" "), output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    fn json(&self, words: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.must(words)?)?)
    }

    /// The newest settled action that succeeded.
    fn settled(&self) -> Result<Option<String>> {
        let listed = self.json(&["get", "actions", "--history", "--cluster", "demo", "-o", "json"])?;
        let rows = listed["actions"].as_array().cloned().unwrap_or_default();
        let done = rows.iter().find(|row| row["status"]["code"] == "SUCCEEDED");
        Ok(done.and_then(|row| row["name"].as_str()).map(str::to_owned))
    }

    /// What `sqlite3 FILE SQL` would print: as many rows.
    fn rows(&self, file: &str, sql: &str) -> Result<usize> {
        let file = rusqlite::Connection::open(self.0.path().join(file))?;
        let mut statement = file.prepare(sql)?;
        let mut rows = statement.query([])?;
        let mut count = 0;
        while rows.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Whatever the test found, its nodes must not outlive it.
        let _ = self.run(&["dev", "stop"]);
    }
}

#[test]
fn the_commands_of_the_audit_page_do_what_it_says() -> Result<()> {
    let _alone = alone();
    let home = Home::with_a_past()?;
    let action = home.settled()?.context("an action")?;
    let lines = lines();
    ensure!(lines.len() >= 15, "the page has lost its commands: {lines:?}");
    for words in lines {
        // Ids are given by the log: the one of the page stands for one that is there. And this group is younger than a minute.
        let here = |word: String| word.replace("a42.0", &action).replace("1m ago", "1s ago");
        let words: Vec<String> = words.into_iter().map(here).collect();
        match words.split_first().map(|(program, rest)| (program.as_str(), rest)) {
            Some(("loadline", rest)) => {
                let ended = home.run(rest)?;
                let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
                let expected = if rest.starts_with(&["audit".to_owned(), "diff".to_owned()]) { 1 } else { 0 };
                ensure!(ended.status.code() == Some(expected), "{rest:?} ended with {}: {err}{out}", ended.status);
                ensure!(!out.is_empty(), "{rest:?} said nothing: {err}");
                check(rest, &out)?;
            }
            Some(("sqlite3", [file, sql])) => {
                ensure!(home.rows(file, sql)? > 0, "{sql} finds nothing");
            }
            other => ensure!(false, "who runs {other:?}?"),
        }
    }
    Ok(())
}

/// What must be in some of the answers.
fn check(words: &[String], out: &str) -> Result<()> {
    let line = words.join(" ");
    let wanted: &[&str] = match line.as_str() {
        it if it.starts_with("audit verify") => &["is valid"],
        it if it.starts_with("audit replay --file history.export --to end") => {
            &["clusters (1)\n", "demo", "strategies (", "settings ("]
        }
        it if it.starts_with("audit diff 1 end") && !it.contains("json") => {
            &["clusters/demo", "created", "replicas/demo/"]
        }
        it if it.starts_with("audit log --cluster demo") => {
            &["ClusterResumed", "ada", "ActionSettled", "demo paused: audit"]
        }
        it if it.starts_with("audit log --kind Strategy") => &["StrategyCreated"],
        it if it.starts_with("explain action") => {
            &["strategies, in the order", "attempt 1: claimed by", "SUCCEEDED", "[index "]
        }
        it if it.starts_with("explain cluster") => &["cluster demo"],
        _ => &[],
    };
    for text in wanted {
        ensure!(out.contains(text), "loadline {line} does not say {text:?}: {out}");
    }
    Ok(())
}

#[test]
fn text_json_and_sql_tell_the_same_facts() -> Result<()> {
    let _alone = alone();
    let home = Home::with_a_past()?;
    let action = home.settled()?.context("an action")?;
    home.must(&["audit", "export", "-o", "history.export"])?;
    // Before there was such a cluster: a time of its own, not a cluster that is missing now.
    let before = home.run(&["explain", "cluster/demo", "--at", "1"])?;
    ensure!(before.status.code() == Some(3), "{before:?}");
    ensure!(String::from_utf8_lossy(&before.stderr).contains("at index 1;"), "{before:?}");
    for (subject, name) in [
        (format!("action/{action}"), format!("actions/{action}")),
        ("cluster/demo".to_owned(), "clusters/demo".to_owned()),
    ] {
        // At one moment of the past: what is under way goes on between two questions.
        let at =
            home.json(&["audit", "replay", "sizes", "--file", "history.export", "-o", "json"])?["index"].to_string();
        let words = ["explain", &subject, "--at", &at];
        let json = home.json(&[&words[..], &["-o", "json"]].concat())?;
        let facts = json["facts"].as_array().cloned().unwrap_or_default();
        ensure!(facts.len() > 5, "{json:#}");
        let text = home.must(&words)?;
        for fact in &facts {
            let line = fact["text"].as_str().context("a text")?;
            ensure!(text.contains(line), "the text lacks {line:?}: {text}");
        }
        let offline = home.json(&["explain", &subject, "--at", &at, "--file", "history.export", "-o", "json"])?;
        let plain = |facts: &Value| -> Vec<(Value, Value)> {
            let all = facts["facts"].as_array().cloned().unwrap_or_default();
            all.iter().map(|fact| (fact["topic"].clone(), fact["log_index"].clone())).collect()
        };
        ensure!(plain(&offline) == plain(&json), "without a group: {offline:#}\nwith one: {json:#}");

        let sql = format!(
            "SET loadline.as_of = {at}; SELECT topic, name, text, log_index, actor, source, proof, request_id, resource \
             FROM loadline.explanations WHERE subject = '{name}' ORDER BY ordinal"
        );
        let rows = home.must(&["sql", "-c", &sql, "-o", "jsonl"])?;
        let rows: Vec<Value> = rows.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let rows: Vec<&Value> = rows.iter().filter(|row| row.get("topic").is_some()).collect();
        ensure!(rows.len() == facts.len(), "SQL has {} rows, JSON {} facts: {rows:#?}", rows.len(), facts.len());
        for (row, fact) in rows.iter().zip(&facts) {
            for key in ["topic", "name", "text", "actor", "source", "proof", "request_id", "resource"] {
                let said = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                ensure!(said(&row[key]) == said(&fact[key]), "{key}: SQL has {row}, JSON {fact}");
            }
            let number = |value: &Value| value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
            ensure!(number(&row["log_index"]) == number(&fact["log_index"]), "SQL has {row}, JSON {fact}");
        }
    }
    Ok(())
}
