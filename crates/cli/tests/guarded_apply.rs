//! `apply --if-revision`: what somebody looked at decides, and nothing is written if it is not so any more.

use std::process::{Child, Stdio};

use crate::support::{Desk, eventually, nobody};

/// A node of its own with two clusters, of which one is ruled. It ends with the test.
struct Group {
    desk: Desk,
    child: Child,
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const FOUNDED: &str = "ALTER SYSTEM SET enable_auto_scaling = true; CREATE CLUSTER demo; CREATE CLUSTER other;
    CREATE SCALING STRATEGY FOR CLUSTER demo TYPE TARGET SIZE WITH (SIZE = '25cc', COOLDOWN = '1m');
    CREATE SCALING STRATEGY FOR ALL CLUSTERS LIKE 'o%' TYPE TARGET SIZE WITH (SIZE = '25cc');";

impl Group {
    fn start() -> Group {
        let desk = Desk::new();
        let (grpc, http, pg) = (nobody(), nobody(), nobody());
        let mut command = desk.command(&["serve", "--name", "n1", "--data-dir", "data"]);
        command.args(["--grpc-listen", &grpc, "--http-listen", &http, "--pg-listen", &pg, "--peers", &grpc]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs");
        let group = Group { desk, child };
        group.desk.said(&["config", "save", "mine", "--use", "--endpoint", &grpc, "--sql-endpoint", &pg]);
        eventually("it serves", || (group.desk.run(&["get", "clusters"]).code == 0).then_some(()));
        for size in ["25cc", "100cc"] {
            group.desk.said(&["create", "size", size, "--slots", "1", "--price", "0.25"]);
        }
        let file = group.desk.file("founded.sql", FOUNDED);
        group.desk.said(&["apply", "-f", &file]);
        group
    }

    fn revision(&self) -> String {
        self.desk.json(&["get", "clusters", "-o", "json"])["revision"].to_string()
    }

    fn strategies(&self) -> String {
        self.desk.said(&["get", "strategies", "-o", "csv"])
    }

    /// Applies statements.
    fn change(&self, statements: &str) {
        let file = self.desk.file("by-somebody-else.sql", statements);
        self.desk.said(&["apply", "-f", &file]);
    }
}

const BURST: &str = "CREATE SCALING STRATEGY FOR CLUSTER demo TYPE BURST WITH (BURST_SIZE = '100cc');";

#[test]
fn nothing_is_written_if_anything_that_decides_was_changed_since() {
    let group = Group::start();
    let file = group.desk.file("change.sql", BURST);
    let pause = ["pause", "demo", "--reason", "moving"];
    type Disturb<'a> = &'a dyn Fn();
    let cases: [(Disturb<'_>, &str); 8] = [
        (&|| drop(group.desk.said(&pause)), "clusters/demo was changed at revision "),
        (&|| drop(group.desk.said(&["resume", "demo"])), "demo resumed"),
        (&|| group.change("ALTER CLUSTER demo SET (BACKEND = 'elsewhere')"), "clusters/demo was changed at revision "),
        (
            &|| group.change("ALTER SCALING STRATEGY FOR CLUSTER demo TYPE TARGET SIZE UPDATE (COOLDOWN = '2m')"),
            " was changed at revision ",
        ),
        (
            &|| group.change("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE IDLE SUSPEND WITH (IDLE AFTER = '1h')"),
            " was changed at revision ",
        ),
        (&|| drop(group.desk.said(&["delete", "strategy", "idle_suspend", "--all-clusters"])), "idle_suspend"),
        (
            &|| drop(group.desk.said(&["set", "auto_scaling_cluster_cooldown", "45s"])),
            "settings/auto_scaling_cluster_cooldown was changed at revision ",
        ),
        (
            &|| drop(group.desk.said(&["create", "size", "400cc", "--slots", "4", "--price", "1"])),
            "sizes/400cc was changed at revision ",
        ),
    ];
    for (disturb, says) in cases {
        let seen = group.revision();
        disturb();
        let before = group.strategies();
        let said = group.desk.fails(&["apply", "-f", &file, "--if-revision", &seen], 4, says);
        assert!(said.contains("nothing was written") && said.contains(&format!("audit diff {seen} end")), "{said}");
        assert_eq!(group.strategies(), before, "after {says}");
    }
    let seen = group.revision();
    assert!(group.desk.said(&["apply", "-f", &file, "--if-revision", &seen]).contains("created"));
}

#[test]
fn what_happens_elsewhere_is_no_reason_to_refuse() {
    let group = Group::start();
    let file = group.desk.file("change.sql", BURST);
    let seen = group.revision();
    group.desk.said(&["pause", "other", "--reason", "moving"]);
    group.desk.said(&["resume", "other"]);
    group.change("ALTER SCALING STRATEGY FOR ALL CLUSTERS LIKE 'o%' TYPE TARGET SIZE UPDATE (SIZE = '100cc')");
    let said = group.desk.said(&["apply", "-f", &file, "--if-revision", &seen]);
    assert!(said.contains("created"), "{said}");
    // Said again, nothing has to be written, and yet the condition does not hold any more: this change itself came after it.
    group.desk.fails(&["apply", "-f", &file, "--if-revision", &seen], 4, "was changed at revision");
}

#[test]
fn a_cluster_that_is_to_be_made_is_guarded_by_what_would_rule_it() {
    let group = Group::start();
    let file = group.desk.file("new.sql", "CREATE CLUSTER onew;");
    let seen = group.revision();
    group.change("ALTER SCALING STRATEGY FOR ALL CLUSTERS LIKE 'o%' TYPE TARGET SIZE UPDATE (SIZE = '100cc')");
    group.desk.fails(&["apply", "-f", &file, "--if-revision", &seen], 4, " was changed at revision ");
    assert!(!group.desk.said(&["get", "clusters"]).contains("onew"));
    // As YAML it is the same.
    let yaml = group.desk.file("new.yaml", "kind: cluster\nname: onew\n");
    group.desk.fails(&["apply", "-f", &yaml, "--if-revision", &seen], 4, " was changed at revision ");
    let seen = group.revision();
    assert!(group.desk.said(&["apply", "-f", &yaml, "--if-revision", &seen]).contains("clusters/onew created"));
}

#[test]
fn a_revision_that_is_not_there_yet_is_a_mistake() {
    let group = Group::start();
    let file = group.desk.file("change.sql", BURST);
    group.desk.fails(
        &["apply", "-f", &file, "--if-revision", "999999"],
        2,
        "--if-revision 999999: the group is at revision",
    );
    assert!(!group.strategies().contains("burst"));
}

#[test]
fn a_file_that_alters_is_applied_and_only_what_it_names_changes() {
    let group = Group::start();
    let alter = "ALTER SCALING STRATEGY FOR CLUSTER demo TYPE TARGET SIZE UPDATE (SIZE = '100cc');";
    let file = group.desk.file("alter.sql", alter);
    let tried = group.desk.run(&["whatif", "-f", &file]);
    assert!(matches!(tried.code, 0 | 1), "{tried:?}");
    let seen = group.revision();
    let said = group.desk.said(&["apply", "-f", &file, "--if-revision", &seen]);
    assert!(said.contains("configured"), "{said}");
    let now = group.desk.json(&["get", "strategies", "-o", "json"]);
    let options = &now["strategies"][0]["spec"]["options"];
    assert!(options.to_string().contains("100cc") && options.to_string().contains("60"), "{now}");
    let nothing =
        group.desk.file("nothing.sql", "ALTER SCALING STRATEGY FOR CLUSTER other TYPE BURST UPDATE (COOLDOWN = '1m');");
    group.desk.fails(&["apply", "-f", &nothing], 3, "to alter");
}

#[test]
fn a_signal_that_the_file_names_and_that_was_dropped_since_is_not_made_anew() {
    let group = Group::start();
    let signal = "CREATE SIGNAL depth FOR CLUSTER demo FROM PUSH;";
    let file = group.desk.file("signal.sql", signal);
    group.change(&format!("{signal} CREATE SIGNAL other FOR CLUSTER demo FROM PUSH;"));
    let seen = group.revision();
    group.desk.said(&["delete", "signal", "other"]);
    group.desk.said(&["apply", "-f", &file, "--if-revision", &seen]);
    group.desk.said(&["delete", "signal", "depth"]);
    group.desk.fails(&["apply", "-f", &file, "--if-revision", &seen], 4, "signal depth");
    assert!(!group.desk.said(&["get", "signals"]).contains("depth"));
}
