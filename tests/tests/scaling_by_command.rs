//! Scaling from the command line: files, history, watches and streams of signals, while leaders die.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use loadline_tests::ask::{PATIENCE, leader, run, said};
use loadline_tests::{Group, Options, alone, eventually};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

/// Two clusters whose changes wait for an approval, so that nobody carries them out meanwhile.
const FILE: &str = "
kind: strategy
spec: {type: target_size, target: {cluster: care}, options: {SIZE: 100cc, APPROVAL: manual}}
---
kind: strategy
spec: {type: target_size, target: {cluster: calm}, options: {SIZE: 25cc, APPROVAL: manual, COOLDOWN: 5m}}
---
kind: cluster
name: care
---
kind: cluster
name: calm
---
kind: setting
name: enable_auto_scaling
spec: {value: true}
---
kind: size
name: 25cc
spec: {slots: 1, price: 0.1}
---
kind: size
name: 100cc
spec: {slots: 4, price: 0.4}
";

fn json(group: &Group, words: &[&str]) -> Result<Value> {
    let text = said(group, &[words, &["-o", "json"]].concat())?;
    serde_json::from_str(&text).with_context(|| format!("{words:?} printed {text}"))
}

/// Writes a file and gives its path.
fn file(group: &Group, name: &str, text: &str) -> Result<String> {
    let path = group.folder().join(name);
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// One field of each row, beside the cluster it is about.
fn rows(listed: &Value, kind: &str, field: &str) -> Result<Vec<(String, String)>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = listed[kind].as_array().with_context(|| format!("no list of {kind} in {listed}"))?;
    Ok(rows.iter().map(|row| (text(&row["cluster"]), text(row.pointer(field).unwrap_or(&Value::Null)))).collect())
}

/// The id of the action of a cluster that waits, once it does.
async fn waiting(group: &Group, cluster: &str) -> Result<String> {
    eventually("an action that waits for an approval", PATIENCE, async || {
        let listed = json(group, &["get", "actions", "--cluster", cluster]).ok()?;
        let row = listed["actions"].as_array()?.first()?.clone();
        (row["status"]["code"] == "AWAITING_APPROVAL").then(|| row["name"].as_str().map(str::to_owned))?
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_applied_at_once_and_what_came_of_it_is_history_on_every_node() -> Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::default())?;
    leader(&group).await?;
    let all = file(&group, "all.yaml", FILE)?;

    // One step that cannot be, and nothing of the rest is there.
    let wrong = file(&group, "wrong.yaml", &FILE.replace("SIZE: 25cc", "SIZE: 7cc"))?;
    let refused = run(&group, &["apply", "-f", &wrong])?;
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(2), "{stderr}");
    ensure!(stderr.contains("wrong.yaml: document 2 (target_size for calm)") && stderr.contains("\"7cc\""), "{stderr}");
    ensure!(json(&group, &["get", "clusters"])?["clusters"].as_array().is_some_and(Vec::is_empty));

    let applied = json(&group, &["apply", "-f", &all])?;
    let results = applied["results"].as_array().context("no results")?;
    let revisions: Vec<&Value> = results.iter().map(|result| &result["revision"]).collect();
    ensure!(results.len() == 7 && revisions.windows(2).all(|pair| pair[0] == pair[1]), "{applied}");
    let again = said(&group, &["apply", "-f", &all])?;
    ensure!(again.lines().count() == 7 && again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    ensure!(run(&group, &["diff", "-f", &all])?.status.code() == Some(0));
    let less = file(&group, "less.yaml", &FILE.replace(", COOLDOWN: 5m", ""))?;
    let diff = run(&group, &["diff", "-f", &less])?;
    let text = String::from_utf8_lossy(&diff.stdout).into_owned();
    ensure!(diff.status.code() == Some(1) && text.contains("-   cooldown_s: 300"), "{text}");
    said(&group, &["apply", "-f", &less])?;
    ensure!(!said(&group, &["get", "strategies"])?.contains("cooldown_s"));

    // One change is rejected, one given up with its strategy, and one only recorded because of the kill switch.
    let (care, calm) = (waiting(&group, "care").await?, waiting(&group, "calm").await?);
    said(&group, &["reject", &care, "--reason", "not during the sale"])?;
    said(&group, &["delete", "strategies", "--cluster", "calm"])?;
    said(&group, &["delete", "strategies", "--cluster", "care"])?;
    said(&group, &["set", "auto_scaling_enabled", "false"])?;
    said(&group, &["create", "cluster", "off"])?;
    said(&group, &["create", "strategy", "target_size", "--cluster", "off", "--option", "SIZE=25cc"])?;
    let expected = [("off", "SUPPRESSED"), ("calm", "OBSOLETE"), ("care", "REJECTED")];
    let expected: Vec<(String, String)> = expected.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec();
    let past = |group: &Group| rows(&json(group, &["get", "actions", "--history"])?, "actions", "/status/code");
    eventually("three settled actions, the newest first", PATIENCE, async || {
        (past(&group).ok()? == expected).then_some(())
    })
    .await
    .with_context(|| format!("the history is {:?}", past(&group)))?;
    ensure!(json(&group, &["get", "actions"])?["actions"].as_array().is_some_and(Vec::is_empty), "one is unsettled");
    ensure!(json(&group, &["get", "operations"])?["operations"].as_array().is_some_and(Vec::is_empty));
    let ended = rows(&json(&group, &["get", "operations", "--history"])?, "operations", "/end")?;
    let cancelled = |cluster: &str| ended.contains(&(cluster.to_owned(), "CANCELLED".to_owned()));
    ensure!(cancelled("care") && cancelled("calm"), "{ended:?}");
    let one = json(&group, &["get", "actions", "--history", "--cluster", "care"])?;
    ensure!(one["actions"].as_array().is_some_and(|rows| rows.len() == 1), "{one}");
    ensure!(one["actions"][0]["error"] == "not during the sale" && one["actions"][0]["name"] == care.as_str(), "{one}");
    ensure!(said(&group, &["explain", &format!("action/{calm}")])?.contains("OBSOLETE"));
    let csv = said(&group, &["get", "actions", "--history", "--limit", "1", "-o", "csv"])?;
    ensure!(csv.lines().count() == 2 && csv.starts_with("id,cluster,call,"), "{csv}");
    ensure!(said(&group, &["get", "decisions", "--history", "--cluster", "care", "-o", "name"])?.lines().count() >= 2);

    let first = leader(&group).await?;
    group.kill(first)?;
    leader(&group).await?;
    ensure!(past(&group)? == expected, "another node tells another history: {:?}", past(&group)?);
    ensure!(rows(&json(&group, &["get", "operations", "--history"])?, "operations", "/end")? == ended);
    Ok(())
}

/// A command that runs on, and the lines it has printed so far. Dropping it ends it.
struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(group: &Group, words: &[&str]) -> Result<Running> {
        let mut command = Command::new(group.binary());
        command.args(words).env("LOADLINE_ENDPOINT", group.endpoints().join(","));
        command.env("XDG_CONFIG_HOME", group.folder().join("config"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("running loadline {words:?}"))?;
        let output = child.stdout.take().context("no stdout")?;
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let into = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                into.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(Running { child, lines })
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_actions_goes_on_after_the_leader_died() -> Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::default())?;
    let first = leader(&group).await?;
    said(&group, &["apply", "-f", &file(&group, "all.yaml", FILE)?])?;
    let (care, calm) = (waiting(&group, "care").await?, waiting(&group, "calm").await?);
    let watch = Running::start(&group, &["get", "actions", "-w", "-o", "jsonl", "--timeout", "60s"])?;
    let of_care =
        Running::start(&group, &["get", "actions", "-w", "--cluster", "care", "-o", "name", "--timeout", "60s"])?;
    let events = |watch: &Running, action: &str| -> Vec<String> {
        let name = format!("actions/{action}");
        let parsed = watch.lines().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        let of = parsed.filter(|seen| seen["name"] == name.as_str());
        of.map(|seen| seen["event"].as_str().unwrap_or_default().to_owned()).collect()
    };
    eventually("both are shown", PATIENCE, async || {
        let both = [&care, &calm].iter().all(|action| events(&watch, action) == ["existing"]);
        (both && !of_care.lines().is_empty()).then_some(())
    })
    .await?;

    group.kill(first)?;
    leader(&group).await?;
    said(&group, &["reject", &care])?;
    said(&group, &["create", "cluster", "late"])?;
    let words = [
        "create",
        "strategy",
        "target_size",
        "--cluster",
        "late",
        "--option",
        "SIZE=25cc",
        "--option",
        "APPROVAL=manual",
    ];
    said(&group, &words)?;
    let late = waiting(&group, "late").await?;
    eventually("what happened since is shown", PATIENCE, async || {
        let shown = events(&watch, &late) == ["put"] && events(&watch, &care).contains(&"deleted".to_owned());
        (shown && of_care.lines().len() >= 2).then_some(())
    })
    .await
    .with_context(|| format!("the watch showed {:#?}", watch.lines()))?;
    ensure!(events(&watch, &care).iter().filter(|event| *event == "deleted").count() == 1, "it went twice");
    ensure!(events(&watch, &calm) == ["existing"], "nothing happened to it: {:?}", events(&watch, &calm));
    let care = format!("actions/{care}");
    ensure!(of_care.lines().iter().all(|line| *line == care), "another cluster's: {:?}", of_care.lines());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_report_of_a_stream_counts_once_though_the_leader_dies() -> Result<()> {
    const HALF: usize = 150;
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::default())?;
    let first = leader(&group).await?;
    for words in [
        &["create", "size", "25cc", "--slots", "1", "--price", "0.1"][..],
        &["create", "cluster", "demo"],
        &["signal", "demo", "replica", "main", "--size", "25cc", "--ready"],
    ] {
        said(&group, words)?;
    }
    let crashes = |group: &Group| -> Option<u64> {
        json(group, &["explain", "cluster/demo"]).ok()?["decision"]["signals"]["replicas"][0]["crashes"].as_u64()
    };
    let words = ["signal", "--collector", "probe", "--file", "-", "-o", "json", "--timeout", "60s"];
    let mut stream = Running::start(&group, &words)?;
    let mut input = stream.child.stdin.take().context("no stdin")?;
    let line = "{\"cluster\": \"demo\", \"crash\": {\"replica\": \"main\", \"reason\": \"killed\"}}\n";
    input.write_all(line.repeat(HALF).as_bytes())?;
    input.flush()?;
    eventually("some are recorded", PATIENCE, async || crashes(&group).filter(|count| *count > 0)).await?;
    group.kill(first)?;
    input.write_all(line.repeat(HALF).as_bytes())?;
    drop(input);
    let status = eventually("the stream ends", PATIENCE, async || stream.child.try_wait().ok().flatten()).await?;
    let said: Value =
        eventually("its tally", PATIENCE, async || serde_json::from_str(stream.lines().first()?).ok()).await?;
    ensure!(status.success(), "{status}: {said}");
    let count = |field: &str| said[field].as_u64().unwrap_or_default();
    ensure!(count("recorded") + count("repeated") == 2 * HALF as u64, "{said}");
    let counted = crashes(&group).context("no crashes")?;
    ensure!(counted == 2 * HALF as u64, "{counted} crashes of {}: {said}", 2 * HALF);
    Ok(())
}
