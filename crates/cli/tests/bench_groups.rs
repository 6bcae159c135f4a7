//! The benchmarks that run whole groups, each for a moment: that they end, and that what they print has its shape. What the figures
//! are is not asked: this is a build for debugging on a busy machine.

use crate::support::Desk;
use serde_json::Value;

/// Runs one benchmark and checks what all have in common. Gives its rows.
fn rows(desk: &Desk, words: &[&str]) -> Vec<Value> {
    let mut all = vec!["bench"];
    all.extend(words);
    all.extend(["--for", "1s", "--rounds", "1", "-o", "json"]);
    let report = desk.json(&all);
    assert!(report["machine"]["cores"].as_u64() >= Some(1), "{report}");
    for figure in ["fdatasync_p50_ms", "round_trip_p50_ms"] {
        assert!(report["baseline"][figure].as_f64() > Some(0.0), "{report}");
    }
    // Where there is nothing to compare with it, etcd is not even started.
    let compared = ["write", "signals", "read", "failover"].contains(&words[0]);
    let beside = compared && etcd_is_installed() && !words.contains(&"--without-etcd");
    assert_eq!(report["baseline"]["etcd_version"].is_string(), beside, "{report}");
    let rows = report["rows"].as_array().expect("rows").clone();
    for row in &rows {
        let figure = row["ops_per_s"].as_f64().or(row["value"].as_f64());
        assert!(figure > Some(0.0), "{row}");
        if row["ops_per_s"].is_number() {
            assert!(row["p50_ms"].as_f64() > Some(0.0) && row["p99_ms"].as_f64() >= row["p50_ms"].as_f64(), "{row}");
        }
        for key in ["name", "clients", "etcd", "ratio", "goal", "met"] {
            assert!(row.get(key).is_some(), "{key} is missing in {row}");
        }
    }
    rows
}

fn etcd_is_installed() -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("etcd").is_file()))
}

/// Whether etcd's figures are beside ours, where it is installed.
fn is_beside_etcd(row: &Value) -> bool {
    row["etcd"]["ops_per_s"].as_f64() > Some(0.0) && row["ratio"].as_f64() > Some(0.0) || !etcd_is_installed()
}

#[test]
fn writes_are_measured_beside_etcd_and_drawn() {
    let desk = Desk::new();
    let plot = desk.file("plot.svg", "");
    let rows = rows(&desk, &["write", "--clients", "1,4", "--plot", &plot]);
    let clients: Vec<Option<u64>> = rows.iter().map(|row| row["clients"].as_u64()).collect();
    assert_eq!(clients, [Some(1), Some(4)]);
    assert!(rows[0]["met"].is_boolean() && rows[0]["ratio"].as_f64() > Some(0.0), "{}", rows[0]);
    assert!(rows.iter().all(is_beside_etcd), "{rows:?}");
    let drawn = std::fs::read_to_string(&plot).expect("a plot");
    assert!(drawn.starts_with("<svg") && drawn.contains("loadline p99"), "{drawn}");
}

#[test]
fn streamed_signals_are_measured_beside_single_and_batched_puts() {
    let desk = Desk::new();
    let rows = rows(&desk, &["signals", "--clusters", "50", "--per-report", "8", "--collectors", "2"]);
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(is_beside_etcd), "{rows:?}");
    assert!(rows.iter().all(|row| row["met"].is_boolean() == etcd_is_installed()), "{rows:?}");
    let mix = rows[0]["mix"].as_str().expect("the mix");
    assert!(mix.contains("50 clusters with four strategies") && mix.contains("2 collectors"), "{mix}");
}

#[test]
fn reads_are_measured_linearizable_and_stale() {
    let desk = Desk::new();
    let rows = rows(&desk, &["read", "--clients", "2"]);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["read linearizable", "read stale"]);
    assert!(rows.iter().all(is_beside_etcd), "{rows:?}");
}

#[test]
fn reactions_are_measured_up_to_the_call_of_a_backend() {
    let desk = Desk::new();
    let rows = rows(&desk, &["react", "--samples", "3"]);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["react idle", "react one after the other", "react under load"]);
    assert!(rows[0]["met"].is_boolean() && rows[2]["met"].is_boolean(), "{rows:?}");
    assert!(rows[0]["against_ms"].as_f64() > Some(0.0), "{rows:?}");
    assert!(rows[2]["mix"].as_str().is_some_and(|mix| mix.contains("16000 metrics a second")), "{rows:?}");
}

#[test]
fn a_killed_leader_is_followed_by_a_write_and_by_a_call() {
    let desk = Desk::new();
    let rows = rows(&desk, &["failover", "--kills", "1"]);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["failover to write", "failover to backend call"]);
    assert!(is_beside_etcd(&rows[0]), "{rows:?}");
}

#[test]
fn a_journal_is_replayed_and_compared_with_applying_alone() {
    let desk = Desk::new();
    let rows = rows(&desk, &["replay"]);
    assert_eq!(rows[0]["unit"], "entries/s");
    assert!(rows[0]["ratio"].as_f64() > Some(0.0), "{rows:?}");
}

#[test]
fn without_etcd_its_columns_are_empty_and_a_program_that_is_not_there_is_refused() {
    let desk = Desk::new();
    let report = desk.json(&[
        "bench",
        "write",
        "--clients",
        "2",
        "--for",
        "200ms",
        "--rounds",
        "1",
        "--without-etcd",
        "-o",
        "json",
    ]);
    assert!(report["rows"][0]["etcd"].is_null() && report["rows"][0]["ratio"].is_null(), "{report}");
    desk.fails(&["bench", "write", "--etcd", "/nowhere/etcd"], 2, "no such program");
}

#[test]
fn many_clusters_are_compared_with_few_and_every_figure_is_there() {
    let desk = Desk::new();
    let rows = rows(&desk, &["scale", "--sizes", "5,50", "--since", "100", "--without-etcd"]);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    let felt = [
        "scale write",
        "scale read linearizable",
        "scale read stale",
        "scale react",
        "scale failover to write",
        "scale failover to backend call",
        "scale replay",
    ];
    let needed = [
        "scale snapshot time",
        "scale snapshot size",
        "scale write without snapshots",
        "scale write during snapshots",
        "scale restart after reports",
        "scale restart after entries",
        "scale new node",
    ];
    let signals = ["scale signals"; 2];
    let expected =
        [&signals[..], &felt, &["scale memory per cluster", "scale memory per cluster after writes"], &felt, &needed]
            .concat();
    assert_eq!(names, expected);
    // Each in an entry of its own, and those with which time passes.
    let restart = rows.iter().find(|row| row["name"] == "scale restart after entries").expect("it is there");
    let against = restart["against"].as_str().expect("how many entries");
    let entries: u64 = against.split(' ').next().and_then(|count| count.parse().ok()).expect("a number");
    assert!(entries >= 100, "{against}");
}

#[test]
fn a_question_in_sql_is_measured_alone_and_beside_writes() {
    let desk = Desk::new();
    let rows = rows(&desk, &["sql", "--actions", "50", "--writes", "50", "--without-etcd"]);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    let expected = [
        "sql join and aggregate over 50 actions",
        "sql join and aggregate over 50 actions beside writes",
        "sql writes beside it",
    ];
    assert_eq!(names, expected);
    assert!(rows[1]["met"].is_boolean() && rows[1]["ratio"].as_f64() > Some(0.0), "{rows:?}");
}
