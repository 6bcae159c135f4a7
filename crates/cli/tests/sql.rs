//! `loadline sql` and the roles, from the first command to the last refusal, with the real binary.

use std::process::{Child, Stdio};

use crate::support::{Desk, Ended, eventually, nobody};

#[test]
fn sql_finds_the_nodes_of_dev_through_the_context() {
    let desk = Desk::new();
    let started = desk.run(&[
        "dev",
        "--detach",
        "--no-demo",
        "--nodes",
        "1",
        "--grpc-port",
        "0",
        "--http-port",
        "0",
        "--pg-port",
        "0",
    ]);
    assert_eq!(started.code, 0, "{started:?}");
    assert!(started.err.contains("superuser without a password, over SQL, too"), "{}", started.err);
    let asked = desk.run(&["sql", "-c", "SELECT name, voter FROM loadline.nodes", "-o", "csv"]);
    let elsewhere = desk.run(&["sql", "--context", "none", "-c", "SELECT 1"]);
    let other = desk.run(&["--endpoint", "127.0.0.1:1", "sql", "-c", "SELECT 1"]);
    let nowhere = desk.run(&["sql", "--sql-endpoint", &nobody(), "-c", "SELECT 1"]);
    desk.said(&["dev", "stop"]);
    assert_eq!((asked.code, asked.out.as_str()), (0, "name,voter\nn1,t\n"), "{asked:?}");
    assert_eq!(elsewhere.code, 3, "{elsewhere:?}");
    assert!(other.code == 2 && other.err.contains("--sql-endpoint"), "{other:?}");
    assert_eq!(nowhere.code, 5, "{nowhere:?}");
}

/// A node of its own that trusts nobody. It ends with the test.
struct Alone {
    desk: Desk,
    child: Child,
}

impl Alone {
    fn start() -> Alone {
        let desk = Desk::new();
        let (grpc, http, pg) = (nobody(), nobody(), nobody());
        let mut command = desk.command(&["serve", "--name", "n1", "--data-dir", "data"]);
        command.args(["--grpc-listen", &grpc, "--http-listen", &http, "--pg-listen", &pg, "--peers", &grpc]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs");
        let alone = Alone { desk, child };
        alone.desk.said(&["config", "save", "mine", "--use", "--endpoint", &grpc, "--sql-endpoint", &pg]);
        eventually("it serves", || (alone.desk.run(&["get", "clusters"]).code == 0).then_some(()));
        alone
    }

    /// As somebody with this token, or this role and password.
    fn run(&self, variables: &[(&str, &str)], words: &[&str], input: &str) -> Ended {
        self.desk.run_as(variables, words, input)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn fine(ended: Ended) -> String {
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.out
}

#[track_caller]
fn denied(ended: &Ended, says: &str) {
    assert!(ended.code == 7 && ended.err.contains(says), "not denied with {says:?}: {ended:?}");
    assert!(!ended.err.contains("llt_") && !ended.err.contains("hunter2"), "a secret is shown: {ended:?}");
}

#[test]
fn roles_passwords_and_tokens_from_the_first_to_the_last() {
    let alone = Alone::start();
    let open: &[(&str, &str)] = &[];
    fine(alone.run(open, &["sql", "-c", "CREATE CLUSTER shop; CREATE CLUSTER bank"], ""));
    fine(alone.run(open, &["set", "enable_auto_scaling", "true"], ""));
    fine(alone.run(open, &["create", "role", "root", "--superuser"], ""));
    let root = fine(alone.run(open, &["create", "token", "root"], "")).trim().to_owned();

    // Closed from here on, over both.
    denied(&alone.run(open, &["get", "clusters"], ""), "a login is needed");
    denied(&alone.run(open, &["sql", "-c", "SELECT 1"], ""), "password");
    let root: &[(&str, &str)] = &[("LOADLINE_TOKEN", &root)];
    fine(alone.run(root, &["update", "role", "root", "--password-stdin"], "hunter2\n"));
    let sql_root = &[("LOADLINE_ROLE", "root"), ("LOADLINE_PASSWORD", "hunter2")];
    let who = fine(alone.run(sql_root, &["sql", "-c", "SELECT current_user AS who", "-o", "name"], ""));
    assert_eq!(who, "root\n");
    let wrong = &[("LOADLINE_ROLE", "root"), ("LOADLINE_PASSWORD", "hunter3")];
    denied(&alone.run(wrong, &["sql", "-c", "SELECT 1"], ""), "28P01");

    // One role, made over SQL, uses both ways in.
    let made = "CREATE ROLE deploy PASSWORD 'd3ploy'; GRANT USAGE ON CLUSTER shop TO deploy";
    fine(alone.run(sql_root, &["sql", "-f", "-"], made));
    let token = fine(alone.run(root, &["create", "token", "deploy"], "")).trim().to_owned();
    let deploy: &[(&str, &str)] = &[("LOADLINE_TOKEN", &token)];
    let sql_deploy = &[("LOADLINE_ROLE", "deploy"), ("LOADLINE_PASSWORD", "d3ploy")];
    assert_eq!(fine(alone.run(deploy, &["get", "clusters", "-o", "name"], "")), "clusters/bank\nclusters/shop\n");
    fine(alone.run(deploy, &["pause", "shop", "--reason", "test"], ""));
    denied(&alone.run(deploy, &["pause", "bank", "--reason", "test"], ""), "USAGE ON CLUSTER bank TO deploy");
    denied(&alone.run(deploy, &["create", "cluster", "x"], ""), "superuser");
    denied(&alone.run(sql_deploy, &["sql", "-c", "CREATE CLUSTER x"], ""), "42501");
    denied(&alone.run(sql_deploy, &["sql", "-c", "GRANT USAGE ON ALL CLUSTERS TO deploy"], ""), "42501");
    denied(&alone.run(deploy, &["create", "token", "root"], ""), "superuser");
    // Who it was is in the log.
    let ask = "SELECT DISTINCT actor FROM events WHERE actor IS NOT NULL ORDER BY 1";
    let actors = fine(alone.run(sql_root, &["sql", "-c", ask, "-o", "name"], ""));
    assert!(actors.lines().any(|actor| actor == "deploy"), "{actors}");

    // Taken back, it counts at once.
    let id = token.split('_').nth(1).expect("llt_ID_SECRET").to_owned();
    fine(alone.run(root, &["revoke", "token", "deploy", &id], ""));
    denied(&alone.run(deploy, &["get", "clusters"], ""), "token");
    fine(alone.run(sql_root, &["sql", "-c", "DROP ROLE deploy"], ""));
    denied(&alone.run(sql_deploy, &["sql", "-c", "SELECT 1"], ""), "28P01");
    // The last one who can get in stays.
    let last = alone.run(root, &["delete", "role", "root"], "");
    assert!(last.code != 0 && last.err.contains("superuser"), "{last:?}");

    // A context can carry who one is.
    let path = alone.desk.path("config/loadline/config.toml");
    let text = std::fs::read_to_string(&path).expect("the contexts");
    let text = text.replace("[contexts.mine]\n", "[contexts.mine]\nrole = \"root\"\npassword = \"hunter2\"\n");
    std::fs::write(&path, text).expect("written");
    assert_eq!(fine(alone.run(open, &["sql", "-c", "SELECT current_user AS who", "-o", "name"], "")), "root\n");
}
