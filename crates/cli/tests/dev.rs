//! A newcomer's way: three real nodes on this machine, everything the command line can do with them, and their end.

use crate::support;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::MutexGuard;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::{Desk, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A group that is stopped when the test ends, however it ends.
struct Group {
    desk: Desk,
    _alone: MutexGuard<'static, ()>,
}

const FREE_PORTS: [&str; 4] = ["--grpc-port", "0", "--http-port", "0"];

impl Group {
    fn start() -> Group {
        let group = Group { _alone: support::alone(), desk: Desk::new() };
        let words: Vec<&str> = ["dev", "--detach", "--no-demo"].into_iter().chain(FREE_PORTS).collect();
        let ended = group.desk.run(&words);
        assert_eq!(ended.code, 0, "{ended:?}\n{}", group.logs());
        group
    }

    /// The rows of `dev status`.
    fn nodes(&self) -> Vec<Value> {
        self.desk.json(&["dev", "status", "-o", "json"])["nodes"].as_array().expect("nodes").clone()
    }

    /// Waits until one node leads and the others follow.
    fn settled(&self) -> String {
        eventually("one node leads, the others follow", || {
            let nodes = self.nodes();
            let with = |role: &str| nodes.iter().filter(|node| node["role"] == role).cloned().collect::<Vec<_>>();
            let leaders = with("leader");
            let settled = leaders.len() == 1 && with("follower").len() == nodes.len() - 1;
            settled.then(|| leaders[0]["node"].as_str().unwrap_or_default().to_owned())
        })
    }

    fn logs(&self) -> String {
        ["dev.log", "n1/node.log", "n2/node.log", "n3/node.log"]
            .map(|name| std::fs::read_to_string(self.desk.path(".loadline").join(name)).unwrap_or_default())
            .join("\n--\n")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let ended = self.desk.run(&["dev", "stop"]);
        #[expect(clippy::print_stderr, reason = "a failed test shows what its nodes said")]
        if std::thread::panicking() {
            eprintln!("{ended:?}\n{}", self.logs());
        }
    }
}

/// A command that runs on while the test does other things.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(desk: &Desk, words: &[&str]) -> Running {
        let mut command = desk.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Running { child, lines }
    }

    #[track_caller]
    fn line(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(60)).expect("another line")
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_alive(pid: &Value) -> bool {
    let pid = i32::try_from(pid.as_i64().expect("a pid")).expect("a pid");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    // A zombie that nobody has waited for yet does not run any more, unless some of its threads are still on their way out:
    // until the last of them is gone, its ports are taken.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    !status.is_empty() && (!status.contains("State:\tZ") || threads > 1)
}

#[test]
fn resources_are_written_shown_and_deleted() {
    let group = Group::start();
    let desk = &group.desk;

    // The context is there, so no endpoint is needed.
    assert_eq!(desk.said(&["config", "contexts", "-o", "name"]), "dev\n");
    assert_eq!(desk.said(&["create", "size", "100cc", "--slots", "1", "--price", "0.25"]), "sizes/100cc created\n");
    assert_eq!(
        desk.said(&["create", "size", "200cc", "--slots", "2", "--price", "0.5", "-o", "name"]),
        "sizes/200cc\n"
    );
    assert_eq!(desk.said(&["create", "cluster", "demo"]), "clusters/demo created\n");
    assert_eq!(
        desk.said(&["get", "sizes"]),
        "NAME    RANK   SLOTS   PRICE\n100cc   10     1       0.25\n200cc   20     2       0.5\n"
    );

    // Every format, of a list and of one.
    assert!(desk.said(&["get", "size", "100cc", "-o", "wide"]).starts_with("NAME    RANK   SLOTS   PRICE   ETAG"));
    assert_eq!(desk.said(&["get", "sizes", "-o", "name"]), "sizes/100cc\nsizes/200cc\n");
    let csv = desk.said(&["get", "sizes", "-o", "csv"]);
    assert_eq!(csv.lines().next(), Some("name,rank,slots,price,etag,created,changed"));
    let listed = desk.json(&["get", "sizes", "-o", "json"]);
    assert_eq!(listed["sizes"][1]["spec"], json!({"rank": 20, "slots": 2, "price": "0.5"}));
    let one = desk.json(&["get", "sizes/200cc", "-o", "json"]);
    assert_eq!(one, listed["sizes"][1]);
    let lines = desk.said(&["get", "sizes", "-o", "jsonl"]);
    let parsed: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(Some(&parsed), listed["sizes"].as_array());
    assert!(desk.said(&["describe", "cluster", "demo"]).contains("Name:                 demo\n"));
    assert_eq!(desk.said(&["get", "cluster", "demo", "--stale", "-o", "name"]), "clusters/demo\n");

    // What is refused, and with which code.
    desk.fails(&["create", "cluster", "demo"], 4, "clusters/demo already exists");
    desk.fails(&["create", "cluster", "a/b"], 2, "letters, digits");
    desk.fails(&["create", "size", "big", "--slots", "1", "--price", "1", "--rank", "20"], 4, "rank 20 is taken");
    desk.fails(&["get", "cluster", "none"], 3, "clusters/none does not exist");
    desk.fails(&["delete", "cluster", "none"], 3, "clusters/none does not exist");
    desk.fails(&["delete", "cluster", "demo", "--etag", "1.0"], 4, "etag");
    assert_eq!(desk.said(&["delete", "cluster", "none", "--ignore-not-found"]), "clusters/none not found\n");

    // A dry run says what would happen, and nothing does.
    assert_eq!(desk.said(&["create", "cluster", "other", "--dry-run"]), "clusters/other created (dry run)\n");
    assert_eq!(desk.said(&["delete", "sizes/100cc", "clusters/demo", "--dry-run"]).lines().count(), 2);
    assert_eq!(desk.said(&["get", "clusters", "-o", "name"]), "clusters/demo\n");

    // Settings.
    assert_eq!(desk.said(&["set", "enable_auto_scaling", "true"]), "settings/enable_auto_scaling set\n");
    assert_eq!(desk.said(&["set", "enable_auto_scaling", "true"]), "settings/enable_auto_scaling unchanged\n");
    assert_eq!(desk.json(&["get", "setting", "enable_auto_scaling", "-o", "json"])["spec"]["value"], "true");
    desk.said(&["wait", "setting/enable_auto_scaling", "--for", "value=true"]);
    desk.fails(
        &["wait", "setting/enable_auto_scaling", "--for", "value=false", "--timeout", "500ms"],
        6,
        "not value=false",
    );
    assert_eq!(desk.said(&["reset", "enable_auto_scaling"]), "settings/enable_auto_scaling reset\n");
    desk.fails(&["set", "enable_auto_scalin", "true"], 3, "enable_auto_scaling");
    desk.fails(&["set", "enable_auto_scaling", "maybe"], 2, "enable_auto_scaling");

    // A rename keeps the id; several deletions are one.
    let id = |name: &str| desk.json(&["get", "cluster", name, "-o", "json"])["metadata"]["id"].clone();
    let before = id("demo");
    assert_eq!(desk.said(&["rename", "cluster", "demo", "shop"]), "clusters/shop renamed\n");
    assert_eq!(id("shop"), before);
    desk.fails(&["delete", "clusters/shop", "sizes/none"], 3, "sizes/none");
    assert_eq!(id("shop"), before, "half of a deletion was done");
    assert_eq!(desk.said(&["delete", "clusters/shop", "sizes/200cc"]), "clusters/shop deleted\nsizes/200cc deleted\n");
    let none = desk.run(&["get", "clusters"]);
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (0, "", "there are no clusters\n"));
    desk.said(&["wait", "clusters/shop", "--for", "deleted"]);
}

#[test]
fn a_file_is_applied_all_of_it_or_nothing() {
    let group = Group::start();
    let desk = &group.desk;
    let text = "kind: size\nname: 100cc\nspec: {slots: 1, price: 0.25}\n---\nkind: cluster\nname: demo\n---\n\
                kind: setting\nname: auto_scaling_action_retention\nspec: {value: 14 days}\n";
    let file = desk.file("all.yaml", text);

    let differences = desk.run(&["diff", "-f", &file]);
    assert_eq!(differences.code, 1, "{differences:?}");
    assert!(
        differences.out.contains("+ sizes/100cc\n") && differences.out.contains("-   value: 7d\n+   value: 14d\n"),
        "{}",
        differences.out
    );
    let dry = "sizes/100cc created (dry run)\nclusters/demo created (dry run)\nsettings/auto_scaling_action_retention configured (dry run)\n";
    assert_eq!(desk.said(&["apply", "-f", &file, "--dry-run"]), dry);
    assert_eq!(desk.run(&["diff", "-f", &file]).code, 1, "the dry run has changed something");

    assert_eq!(desk.said(&["apply", "-f", &file]), dry.replace(" (dry run)", ""));
    let listed = desk.json(&["get", "sizes", "-o", "json"]);
    let revision = &listed["sizes"][0]["metadata"]["update_revision"];
    assert_eq!(
        &desk.json(&["get", "cluster", "demo", "-o", "json"])["metadata"]["update_revision"],
        revision,
        "two revisions"
    );
    // 14 days is kept as 14d: only the group knows that they are the same.
    assert_eq!(desk.run(&["diff", "-f", &file]), support::Ended { code: 0, out: String::new(), err: String::new() });
    let unchanged = desk.said(&["apply", "-f", &file]);
    assert_eq!(unchanged.lines().filter(|line| line.ends_with(" unchanged")).count(), 3, "{unchanged}");

    // What get prints can be edited and applied, and one bad item keeps the good ones out.
    let edited = desk.said(&["get", "sizes", "-o", "yaml"]).replace("slots: 1", "slots: 3");
    let ended = desk.run_with(&["apply", "-f", "-"], &edited);
    assert_eq!((ended.code, ended.out.as_str()), (0, "sizes/100cc configured\n"), "{ended:?}");
    // Guarded by a revision, it is written only if what the file names has not changed since.
    let seen = revision.to_string();
    let again = desk.file("again.yaml", &edited.replace("slots: 3", "slots: 4"));
    desk.fails(&["apply", "-f", &again, "--if-revision", &seen], 4, "sizes/100cc was changed at revision");
    assert!(desk.said(&["get", "sizes", "-o", "yaml"]).contains("slots: 3"), "a guarded apply has written");
    let now = desk.json(&["get", "size", "100cc", "-o", "json"])["metadata"]["update_revision"].to_string();
    assert_eq!(desk.said(&["apply", "-f", &again, "--if-revision", &now]), "sizes/100cc configured\n");
    let half = "kind: cluster\nname: fine\n---\nkind: cluster\nname: -bad\n";
    let ended = desk.run_with(&["apply", "-f", "-"], half);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert_eq!(desk.said(&["get", "clusters", "-o", "name"]), "clusters/demo\n");
}

#[test]
fn a_watch_misses_nothing_while_leaders_are_killed_and_the_nodes_agree_in_the_end() {
    let group = Group::start();
    let desk = &group.desk;
    desk.said(&["create", "cluster", "c0"]);
    let watch = Running::start(desk, &["get", "clusters", "-w", "-o", "jsonl", "--timeout", "60s"]);
    let first: Value = serde_json::from_str(&watch.line()).expect("JSON");
    assert_eq!((first["event"].as_str(), first["name"].as_str()), (Some("existing"), Some("clusters/c0")), "{first}");
    let mut expected = Vec::new();
    for round in 1..=3 {
        let leader = group.settled();
        let before = group.nodes();
        let said = desk.said(&["dev", "kill", "leader"]);
        assert!(said.starts_with(&format!("{leader}, the leader, was killed")), "{said}");
        // Written while nobody leads: it is recorded once, by the next leader.
        let name = format!("c{round}");
        desk.said(&["create", "cluster", &name]);
        expected.push(("put", format!("clusters/{name}")));
        if round == 2 {
            desk.said(&["delete", "cluster", "c1"]);
            expected.push(("deleted", "clusters/c1".to_owned()));
        }
        let old = before.iter().find(|node| node["node"] == leader.as_str()).expect("the leader")["pid"].clone();
        eventually("the killed node runs again", || {
            let now = group.nodes();
            let node = now.iter().find(|node| node["node"] == leader.as_str())?;
            (node["pid"].is_i64() && node["pid"] != old && !node["role"].is_null()).then_some(())
        });
        assert!(!is_alive(&old), "process {old} was not killed");
    }
    let mut last = first["revision"].as_u64().expect("a revision");
    for (event, name) in &expected {
        let seen: Value = serde_json::from_str(&watch.line()).expect("JSON");
        assert_eq!((seen["event"].as_str(), seen["name"].as_str()), (Some(*event), Some(name.as_str())), "{seen}");
        let revision = seen["revision"].as_u64().expect("a revision");
        assert!(revision > last, "revision {revision} after {last}");
        last = revision;
    }
    assert!(watch.lines.try_recv().is_err(), "the watch said more than happened");

    // From the first revision on: everything that ever happened.
    let again =
        Running::start(desk, &["get", "clusters", "-w", "-o", "name", "--from-revision", "1", "--timeout", "60s"]);
    for name in ["clusters/c0"].into_iter().chain(expected.iter().map(|(_, name)| name.as_str())) {
        assert_eq!(again.line(), name);
    }

    group.settled();
    let status = desk.json(&["status", "-o", "json"]);
    let nodes = status["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 3);
    let hashes: BTreeSet<String> =
        nodes.iter().map(|node| format!("{} {}", node["hash_index"], node["state_hash"])).collect();
    assert_eq!(hashes.len(), 1, "{status:#}");
    assert_eq!(nodes[0]["state_hash"].as_str().map(str::len), Some(64));
    assert!(nodes.iter().all(|node| node["errors"] == json!([])), "{status:#}");
}

#[test]
fn one_node_of_three_may_be_down_and_is_shown_as_such() {
    let group = Group::start();
    let desk = &group.desk;
    group.settled();
    let follower = group.nodes().into_iter().find(|node| node["role"] == "follower").expect("a follower");
    let name = follower["node"].as_str().expect("a name");
    // It is down for a second before the supervisor starts it again, which a busy machine may miss.
    let row = eventually("a node that was killed is seen to be down", || {
        desk.run(&["dev", "kill", name]);
        let status = desk.json(&["status", "-o", "json"]);
        let rows = status["nodes"].as_array().expect("nodes");
        let row = rows.iter().find(|node| node["endpoint"] == follower["grpc"]);
        let row = row.unwrap_or_else(|| panic!("{name} is not in {status:#}"));
        row["role"].is_null().then(|| row.clone())
    });
    assert_eq!((&row["state_hash"], &row["name"]), (&Value::Null, &follower["node"]), "{row:#}");
    assert!(row["errors"][0].as_str().is_some_and(|error| error.contains("refused")), "{row:#}");
    desk.said(&["create", "cluster", "while-one-is-down"]);
    desk.fails(&["dev", "kill", "n4"], 3, "there is no node 'n4'");
    group.settled();
}

#[test]
fn leadership_moves_and_only_from_where_it_is() {
    let group = Group::start();
    let desk = &group.desk;
    let leader = group.settled();
    let nodes = group.nodes();
    let of = |name: &str| {
        nodes.iter().find(|node| node["node"] == name).expect("a node")["grpc"].as_str().expect("text").to_owned()
    };
    let other = nodes.iter().filter_map(|node| node["node"].as_str()).find(|name| *name != leader).expect("another");
    let transfer = ["operator", "raft", "transfer-leadership"];
    let at = |endpoint: &str| desk.run(&[&transfer[..], &["--if-leader", "--endpoint", endpoint]].concat());
    let follower = at(&of(other));
    assert_eq!((follower.code, follower.out.as_str()), (0, ""), "{follower:?}");
    assert_eq!(group.settled(), leader, "a follower gave away what it did not have");
    assert_eq!(desk.said(&[&transfer[..], &["--to", other]].concat()), format!("{other} leads\n"));
    assert_eq!(group.settled(), other);
    assert_eq!(at(&of(other)).code, 0);
    eventually("somebody else leads", || (group.settled() != other).then_some(()));
    let peers = desk.json(&["operator", "raft", "list-peers", "-o", "json"]);
    assert_eq!(
        peers["peers"].as_array().map(|peers| peers.iter().filter(|peer| peer["voter"] == true).count()),
        Some(3)
    );
    desk.fails(&["operator", "raft", "remove-peer", "n9"], 3, "n9");
}

#[test]
fn a_snapshot_is_saved_inspected_and_restored_into_a_new_incarnation() {
    let group = Group::start();
    let desk = &group.desk;
    desk.said(&["create", "cluster", "kept"]);
    let saved = desk.json(&["operator", "snapshot", "save", "backup", "-o", "json"]);
    let inspected = desk.json(&["operator", "snapshot", "inspect", "backup", "-o", "json"]);
    assert_eq!(saved, inspected);
    assert_eq!((&inspected["clusters"], &inspected["sizes"]), (&json!(1), &json!(0)));
    desk.fails(&["operator", "snapshot", "save", "backup"], 4, "--overwrite");
    desk.said(&["operator", "snapshot", "save", "backup", "--overwrite"]);
    desk.said(&["create", "cluster", "lost"]);
    desk.fails(&["operator", "snapshot", "restore", "backup"], 2, "--yes");
    assert_eq!(desk.said(&["get", "clusters", "-o", "name"]), "clusters/kept\nclusters/lost\n");
    let restored = desk.json(&["operator", "snapshot", "restore", "backup", "--yes", "-o", "json"]);
    assert_eq!(restored["backup_incarnation"], inspected["incarnation"]);
    assert!(restored["incarnation"].as_u64() > inspected["incarnation"].as_u64(), "{restored}");
    assert_eq!(desk.said(&["get", "clusters", "-o", "name"]), "clusters/kept\n");
    let left: Vec<_> = std::fs::read_dir(desk.path("")).expect("a folder").filter_map(Result::ok).collect();
    assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().starts_with(".snapshot-")), "{left:?}");
}

#[test]
fn a_group_that_was_stopped_comes_back_with_its_data_and_only_once_per_folder() {
    let group = Group::start();
    let desk = &group.desk;
    desk.said(&["create", "cluster", "demo"]);
    let before: Vec<Value> = group.nodes().iter().map(|node| node["grpc"].clone()).collect();
    desk.fails(&["dev"], 4, "already runs");
    desk.fails(&["dev", "--detach"], 4, "already runs");
    let pids: Vec<Value> = group.nodes().iter().map(|node| node["pid"].clone()).collect();
    assert!(desk.said(&["dev", "stop"]).starts_with("stopped n1, n2, n3"));
    assert!(!pids.iter().any(is_alive), "{pids:?}");
    desk.fails(&["dev", "stop"], 3, "no group runs");
    desk.fails(&["dev", "--nodes", "5"], 2, "has 3 nodes");
    let foreign = desk.path(".loadline/n2/data/wal/shopping-list");
    std::fs::write(&foreign, "milk").expect("written");
    let said = desk.fails(&["dev", "--detach"], 1, "n2 does not start");
    assert!(said.contains("shopping-list"), "it does not say why: {said}");
    std::fs::remove_file(foreign).expect("removed");
    desk.said(&["dev", "start", "--detach", "--no-demo"]);
    let after: Vec<Value> = group.nodes().iter().map(|node| node["grpc"].clone()).collect();
    assert_eq!(before, after, "the nodes have moved, and their group does not know");
    assert_eq!(desk.said(&["get", "clusters", "-o", "name"]), "clusters/demo\n");
}

#[test]
fn nodes_die_with_a_supervisor_that_had_no_time_to_stop_them() {
    let group = Group::start();
    let pids: Vec<Value> = group.nodes().iter().map(|node| node["pid"].clone()).collect();
    let state = std::fs::read_to_string(group.desk.path(".loadline/dev.json")).expect("dev.json");
    let state: Value = serde_json::from_str(&state).expect("JSON");
    let supervisor = i32::try_from(state["supervisor"].as_i64().expect("a pid")).expect("a pid");
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).expect("killed");
    eventually("the nodes are gone", || (!pids.iter().any(is_alive)).then_some(()));
    // The file it left behind fools nobody.
    group.desk.fails(&["dev", "status"], 3, "no group runs");
    group.desk.said(&["dev", "--detach", "--no-demo"]);
}

#[test]
fn a_group_in_the_foreground_ends_with_ctrl_c_and_an_ephemeral_one_leaves_nothing() {
    let _alone = support::alone();
    let desk = Desk::new().with("TMPDIR", &std::env::temp_dir().display().to_string());
    let words: Vec<&str> =
        ["dev", "--ephemeral", "--no-demo", "--nodes", "1", "-o", "jsonl"].into_iter().chain(FREE_PORTS).collect();
    let mut running = Running::start(&desk, &words);
    let row: Value = serde_json::from_str(&running.line()).expect("JSON");
    assert_eq!((row["node"].as_str(), row["role"].as_str()), (Some("n1"), Some("leader")));
    desk.said(&["create", "cluster", "demo"]);
    let home = std::path::PathBuf::from(row["log"].as_str().expect("a path"));
    assert!(home.exists() && !home.starts_with(desk.path("")), "{}", home.display());
    kill(running.pid(), Signal::SIGINT).expect("interrupted");
    let status = running.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
    assert!(!is_alive(&row["pid"]));
    assert!(!home.exists(), "{} is still there", home.display());
    assert!(!desk.path(".loadline").exists(), "the folder is still there");
}
