//! What a newcomer sees: a cluster that scales on this machine, while its leader is killed.

use std::process::Stdio;
use std::sync::MutexGuard;

use crate::support::{Desk, alone, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A group with its demo, which is stopped when the test ends, however it ends.
struct Demo {
    desk: Desk,
    _alone: MutexGuard<'static, ()>,
}

impl Demo {
    fn start() -> Demo {
        let demo = Demo { _alone: alone(), desk: Desk::new() };
        let ended = demo.desk.run(&["dev", "--detach", "--grpc-port", "0", "--http-port", "0"]);
        assert_eq!(ended.code, 0, "{ended:?}\n{}", demo.logs());
        assert!(ended.err.contains("load demo --shape idle"), "{}", ended.err);
        demo
    }

    fn logs(&self) -> String {
        ["dev.log", "n1/node.log", "n2/node.log", "n3/node.log"]
            .map(|name| std::fs::read_to_string(self.desk.path(".loadline").join(name)).unwrap_or_default())
            .join("\n--\n")
    }

    /// Settled actions of the demo, the newest first: call and status.
    fn done(&self) -> Vec<(String, String)> {
        let listed = self.desk.json(&["get", "actions", "--history", "--cluster", "demo", "-o", "json"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rows = listed["actions"].as_array().expect("actions").clone();
        rows.iter().map(|row| (text(&row["call"]), text(&row["status"]["code"]))).collect()
    }

    fn until_done(&self, call: &str) {
        let wanted = (call.to_owned(), "SUCCEEDED".to_owned());
        eventually(&format!("{call} has succeeded"), || self.done().contains(&wanted).then_some(()));
    }

    /// The processes of its replicas that keep them.
    fn replicas(&self) -> Vec<i32> {
        let folder = self.desk.path(".loadline").canonicalize().unwrap_or_default().join("replicas");
        let flag = format!("--folder={}", folder.display());
        let is_keeper = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.contains(&flag.as_bytes()) && !words.iter().any(|word| word.starts_with(b"--keeper="))
        };
        let entries = std::fs::read_dir("/proc").expect("/proc");
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(is_keeper).collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let ended = self.desk.run(&["dev", "stop"]);
        #[expect(clippy::print_stderr, reason = "a failed test shows what its nodes said")]
        if std::thread::panicking() {
            eprintln!("{ended:?}\n{}", self.logs());
        }
    }
}

#[test]
fn the_demo_makes_a_replica_that_outlives_leaders_and_ends_with_the_group() {
    let demo = Demo::start();
    let desk = &demo.desk;
    demo.until_done("create_replica");
    let before = demo.replicas();
    assert_eq!(before.len(), 1, "{before:?}");
    let row = desk.said(&["get", "actions", "--history", "--cluster", "demo"]);
    assert!(row.lines().next().is_some_and(|header| header.contains("ATTEMPTS") && header.contains("BY")), "{row}");
    assert!(desk.said(&["explain", "cluster/demo"]).contains("r1_auto"));
    let listed = desk.json(&["get", "actions", "--history", "--cluster", "demo", "-o", "json"]);
    let action = &listed["actions"].as_array().expect("actions")[0];
    assert_eq!(action["attempts"][0]["result"], "SUCCEEDED", "{action:#}");
    let explained = desk.said(&["explain", &format!("action/{}", action["name"].as_str().expect("an id"))]);
    assert!(explained.contains("attempt 1: claimed by n"), "{explained}");

    for _ in 0..2 {
        desk.said(&["dev", "kill", "leader"]);
        desk.said(&["set", "signal_stale_after", "2m"]);
        assert_eq!(demo.replicas(), before, "the replica went with a leader");
    }

    // What the user changes stays, also when everything is started again.
    desk.said(&["delete", "strategy", "idle_suspend", "--cluster", "demo"]);
    desk.said(&["set", "default_backend", ""]);
    desk.said(&["dev", "stop"]);
    assert_eq!(demo.replicas(), [] as [i32; 0], "replicas are left behind");
    desk.said(&["dev", "--detach"]);
    let kinds: Vec<Value> = desk.json(&["get", "strategies", "-o", "json"])["strategies"]
        .as_array()
        .expect("strategies")
        .iter()
        .map(|strategy| strategy["spec"]["type"].clone())
        .collect();
    assert_eq!(kinds, ["target_size"]);
    assert_eq!(desk.json(&["get", "setting", "default_backend", "-o", "json"])["spec"]["value"], "");
}

/// Replicas outlive their nodes, so somebody must be able to end those of a group that is no more.
#[test]
fn what_a_killed_supervisor_left_is_ended_by_a_stop() {
    let demo = Demo::start();
    demo.until_done("create_replica");
    let state = std::fs::read(demo.desk.path(".loadline").join("dev.json")).expect("the state of the group");
    let state: Value = serde_json::from_slice(&state).expect("JSON");
    let supervisor = i32::try_from(state["supervisor"].as_i64().expect("a pid")).expect("a pid");
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).expect("killed");
    let gone = || demo.desk.run(&["dev", "status"]).code == 3;
    eventually("the group is gone", || gone().then_some(()));
    assert_eq!(demo.replicas().len(), 1, "it outlives its nodes");
    let ended = demo.desk.run(&["dev", "stop"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.err.contains("ended 1 replica"), "{ended:?}");
    assert_eq!(demo.replicas(), Vec::<i32>::new());
    demo.desk.fails(&["dev", "stop"], 3, "no group runs");
}

#[test]
fn load_goes_on_under_the_same_numbers_when_the_leader_is_killed() {
    let demo = Demo::start();
    let desk = &demo.desk;
    let mut command = desk.command(&["load", "demo", "--for", "8s", "--every", "100ms", "-o", "json"]);
    let loading = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let heard = |desk: &Desk| {
        let explained = desk.json(&["explain", "cluster/demo", "-o", "json"]);
        let collectors = explained["decision"]["signals"]["collectors"].as_array().cloned().unwrap_or_default();
        collectors.iter().any(|collector| collector["name"] == "load")
    };
    eventually("the group hears the load", || heard(desk).then_some(()));
    desk.said(&["dev", "kill", "leader"]);
    let ended = loading.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(report["acknowledged"], report["sent"], "{report:#}");
    let numbers = report["last_sequence"].as_u64().unwrap_or(0) - report["first_sequence"].as_u64().unwrap_or(0) + 1;
    assert_eq!(Some(numbers), report["sent"].as_u64(), "{report:#}");
    assert!(report["duplicated"].as_u64() <= report["resent"].as_u64(), "{report:#}");
    desk.fails(&["load", "nobody", "--for", "1s"], 3, "clusters/nobody does not exist");
    desk.fails(&["load", "demo", "--for", "1s", "--every", "2s"], 2, "--every");
}
