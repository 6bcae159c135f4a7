//! Everything that the command line does, or refuses, without a node to speak to.

use std::process::Stdio;

use crate::support::{Desk, nobody};

#[test]
fn a_mistake_on_the_command_line_is_exit_code_2_with_a_suggestion() {
    let desk = Desk::new();
    desk.fails(&["stauts"], 2, "status");
    desk.fails(&["get", "clutsers"], 2, "did you mean 'clusters'?");
    desk.fails(&["get", "clusters", "--ouput", "json"], 2, "--output");
    desk.fails(&["get", "clusters", "-o", "xml"], 2, "table");
    desk.fails(&["get"], 2, "TYPE");
    desk.fails(&["get", "clusters/a", "sizes/b"], 2, "one type at a time");
    desk.fails(&["delete", "clusters"], 2, "Name what to delete");
    desk.fails(&["delete", "node", "n1"], 2, "remove-peer");
    desk.fails(&["create", "size", "a", "--slots", "1", "--price", "cheap"], 2, "such as 0.25");
    desk.fails(&["create", "size", "a", "--slots", "-1", "--price", "1"], 2, "--slots");
    desk.fails(&["get", "clusters", "--timeout", "10"], 2, "has no unit");
    desk.fails(&["get", "clusters", "--endpoint", "localhost"], 2, "host:port");
    desk.fails(&["get", "nodes", "-w"], 2, "nodes cannot be watched");
    desk.fails(&["get", "clusters", "--from-revision", "3"], 2, "--watch");
    desk.fails(&["wait", "clusters/a", "--for", "exist"], 2, "did you mean 'exists'?");
    desk.fails(&["dev", "--nodes", "0"], 2, "--nodes");
    desk.fails(&["dev", "--grpc-port", "65535"], 2, "choose a lower one");
    desk.fails(&[], 2, "Usage");
}

#[test]
fn a_mistake_about_scaling_is_found_before_anybody_is_asked() {
    let desk = Desk::new();
    desk.fails(&["create", "strategy", "burst"], 2, "--cluster");
    desk.fails(&["create", "strategy", "burst", "--cluster", "a", "--all-clusters"], 2, "--all-clusters");
    desk.fails(&["create", "strategy", "burst", "--like", "a%"], 2, "--all-clusters");
    desk.fails(&["create", "strategy", "burst", "--cluster", "a", "--option", "SIZE"], 2, "KEY=VALUE");
    desk.fails(&["update", "strategy", "s1.0"], 2, "nothing to change");
    desk.fails(&["enable", "strategy", "burst"], 2, "--cluster");
    desk.fails(&["explain", "clusters"], 2, "cluster/NAME");
    desk.fails(&["explain", "size/a"], 2, "cluster/NAME");
    desk.fails(&["pause", "demo"], 2, "--reason");
    desk.fails(&["signal", "demo"], 2, "alive");
    desk.fails(&["signal", "demo", "hydration", "r1", "--total", "2"], 2, "--hydrated");
    desk.fails(&["get", "clusters", "--history"], 2, "--history");
    desk.fails(&["get", "actions", "--history", "-w"], 2, "--watch");
    desk.fails(&["delete", "action", "a1.0"], 2, "a record");
    desk.fails(&["get", "actoins"], 2, "did you mean 'actions'?");
}

#[test]
fn help_is_data_and_no_failure() {
    let desk = Desk::new();
    assert!(desk.said(&["--help"]).contains("Exit codes"));
    assert!(desk.said(&["operator", "raft", "--help"]).contains("transfer-leadership"));
    assert!(desk.said(&["serve", "--help"]).contains("--limits-streams-max"));
}

#[test]
fn the_version_is_for_people_and_for_programs() {
    let desk = Desk::new();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(desk.said(&["version"]), format!("loadline {version}\n"));
    assert_eq!(desk.said(&["--version"]), format!("loadline {version}\n"));
    assert_eq!(desk.json(&["version", "-o", "json"])["version"], version);
}

#[test]
fn every_shell_gets_a_completion_that_knows_the_verbs() {
    let desk = Desk::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = desk.said(&["completion", shell]);
        assert!(script.contains("transfer-leadership"), "{shell}");
    }
    desk.fails(&["completion", "tcsh"], 2, "bash");
}

#[test]
fn a_configuration_is_checked_without_starting_anything() {
    let desk = Desk::new();
    let good = desk.file("good.toml", "name = \"n1\"\npeers = [\"127.0.0.1:7700\"]\n[limits]\nstreams_max = 7\n");
    let shown = desk.json(&["config", "check", "--config", &good, "--log-level", "debug", "-o", "json"]);
    let value = |key: &str| {
        let keys = shown["keys"].as_array().expect("keys");
        keys.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{key} in {shown}"))["value"].clone()
    };
    assert_eq!(
        (value("name"), value("limits.streams_max"), value("log_level")),
        ("n1".into(), "7".into(), "debug".into())
    );

    let bad = desk.file("bad.toml", "name = \"n1\"\npears = []\n");
    desk.fails(
        &["config", "check", "--config", &bad],
        2,
        "bad.toml:2: pears: there is no such key; did you mean \"peers\"?",
    );
    desk.fails(&["serve", "--config", &bad], 2, "did you mean \"peers\"?");
    desk.fails(&["serve", "--name", "n1", "--grpc-listen", "nowhere"], 2, "--grpc-listen");
    assert!(!desk.path("loadline-data").exists(), "a node that did not start has made its folder");
}

#[test]
fn variables_of_the_client_do_not_disturb_a_node_and_unknown_ones_are_named() {
    let words = ["config", "check", "--name", "n1", "--peers", "127.0.0.1:7700"];
    let client =
        Desk::new().with("LOADLINE_ENDPOINT", "a:1").with("LOADLINE_CONTEXT", "dev").with("LOADLINE_TIMEOUT", "1s");
    client.said(&words);
    Desk::new().with("LOADLINE_HEARTBAET", "1s").fails(&words, 2, "LOADLINE_HEARTBEAT");
}

#[test]
fn contexts_are_saved_listed_and_selected() {
    let desk = Desk::new();
    assert_eq!(desk.said(&["config", "contexts"]), "");
    desk.fails(&["config", "use", "dev"], 3, "there is no context 'dev'");
    desk.fails(&["config", "save", "prod"], 2, "--endpoint");
    desk.said(&["config", "save", "prod", "--endpoint", "a:1,b:2", "--use"]);
    desk.said(&["config", "save", "test", "--endpoint", "c:3"]);
    let table = "CURRENT   NAME   ENDPOINTS\n*         prod   a:1,b:2\n-         test   c:3\n";
    assert_eq!(desk.said(&["config", "contexts"]), table);
    desk.said(&["config", "use", "test"]);
    let listed = desk.json(&["config", "contexts", "-o", "json"]);
    assert_eq!(listed["contexts"][1]["current"], true);
    desk.fails(&["get", "clusters", "--context", "tets"], 3, "did you mean 'test'?");
}

#[test]
fn the_flag_wins_over_the_variable_and_that_over_the_context() {
    let (flag, variable, context) = (nobody(), nobody(), nobody());
    let desk = Desk::new().with("LOADLINE_ENDPOINT", &variable);
    desk.said(&["config", "save", "here", "--endpoint", &context, "--use"]);
    desk.fails(&["get", "clusters", "--endpoint", &flag, "--timeout", "300ms"], 5, &flag);
    desk.fails(&["get", "clusters", "--timeout", "300ms"], 5, &variable);
    let plain = Desk::new().with("LOADLINE_ENDPOINT", "").with("LOADLINE_CONTEXT", "");
    plain.said(&["config", "save", "here", "--endpoint", &context, "--use"]);
    let said = plain.fails(&["get", "clusters", "--timeout", "300ms"], 5, &context);
    assert!(said.contains("context 'here'"), "{said}");
}

#[test]
fn a_group_that_is_not_there_is_exit_code_5() {
    let (a, b) = (nobody(), nobody());
    let desk = Desk::new().with("LOADLINE_ENDPOINT", &format!("{a},{b}"));
    let said = desk.fails(&["create", "cluster", "demo"], 5, &a);
    assert!(said.contains(&b) && said.contains("refused"), "{said}");
    desk.fails(&["get", "clusters", "-w", "--timeout", "500ms"], 5, &a);
    desk.fails(&["operator", "raft", "list-peers"], 5, &a);
    desk.fails(&["operator", "snapshot", "save", "backup"], 5, &a);
    assert!(!desk.path("backup").exists());

    let status = desk.run(&["status", "-o", "json"]);
    assert_eq!(status.code, 5);
    let parsed: serde_json::Value = serde_json::from_str(&status.out).expect("JSON");
    let nodes = parsed["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.iter().map(|node| node["endpoint"].as_str()).collect::<Vec<_>>(), sorted([&a, &b]));
    assert!(
        nodes.iter().all(|node| node["errors"][0].as_str().is_some_and(|error| error.contains("refused"))),
        "{parsed}"
    );
}

fn sorted(mut endpoints: [&String; 2]) -> Vec<Option<&str>> {
    endpoints.sort();
    endpoints.iter().map(|endpoint| Some(endpoint.as_str())).collect()
}

#[test]
fn a_reader_that_goes_away_is_not_complained_about() {
    let desk = Desk::new();
    let mut command = desk.command(&["completion", "bash"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn what_is_not_a_terminal_gets_no_colours() {
    let desk = Desk::new();
    for words in [&["stauts"][..], &["--no-color", "get", "pods"], &["get", "pods"]] {
        let ended = desk.run(words);
        assert!(!ended.err.contains('\u{1b}') && ended.err.starts_with("error: "), "{:?}", ended.err);
    }
}

#[test]
fn a_manifest_is_checked_before_anything_is_sent() {
    let desk = Desk::new().with("LOADLINE_ENDPOINT", &nobody());
    let bad = desk.file("bad.yaml", "kind: cluster\nname: a\n---\nkind: size\nname: b\nspec: {slot: 1}\n");
    let wrong = "document 2 (size 'b'), line 6: spec.slot: there is no such field; did you mean 'slots'?";
    desk.fails(&["apply", "-f", &bad], 2, wrong);
    desk.fails(&["apply", "-f", "none.yaml"], 2, "none.yaml cannot be read");
    desk.fails(&["diff", "-f", &bad], 2, "bad.yaml");
    let ended = desk.run_with(&["apply", "-f", "-"], "kind: pod\nname: a\n");
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("stdin: document 1, line 1: kind: there is no kind 'pod'"), "{}", ended.err);
}

#[test]
fn a_file_that_is_no_snapshot_is_neither_inspected_nor_restored() {
    let desk = Desk::new().with("LOADLINE_ENDPOINT", &nobody());
    let garbage = desk.file("garbage", "not a snapshot at all");
    desk.fails(&["operator", "snapshot", "inspect", &garbage], 1, "garbage is not a snapshot");
    desk.fails(&["operator", "snapshot", "inspect", "none"], 3, "none cannot be read");
    desk.fails(&["operator", "snapshot", "restore", &garbage, "--yes"], 1, "garbage is not a snapshot");
}

#[test]
fn a_group_on_this_machine_is_not_started_on_a_taken_port() {
    let desk = Desk::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    for detach in [&[][..], &["--detach"]] {
        let words: Vec<&str> = ["dev", "--nodes", "1", "--http-port", "0", "--grpc-port", &port]
            .into_iter()
            .chain(detach.iter().copied())
            .collect();
        let said = desk.fails(&words, 1, &format!("port {port} (gRPC of n1) is taken"));
        assert!(said.contains("--grpc-port"), "{said}");
        assert!(!desk.path(".loadline/n1").exists(), "something was started");
    }
}

#[test]
fn there_is_nothing_to_stop_or_kill_where_no_group_runs() {
    let desk = Desk::new();
    desk.fails(&["dev", "stop"], 3, "no group runs");
    desk.fails(&["dev", "kill", "leader"], 3, "no group runs");
    desk.fails(&["dev", "status"], 3, "no group runs");
    assert!(!desk.path(".loadline").exists(), "asking has made a folder");
}
