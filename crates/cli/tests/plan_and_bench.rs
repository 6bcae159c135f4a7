//! `plan` and `bench`, as somebody without a group runs them.

use crate::support::Desk;
use serde_json::{Value, json};

const CASES: &str = include_str!("../../state-machine/tests/data/decisions.jsonl");

#[test]
fn two_hundred_decisions_of_a_peer_are_planned_from_one_file() {
    let desk = Desk::new();
    let file = desk.file("cases.jsonl", CASES);
    let said = desk.said(&["plan", "--input", &file, "-o", "jsonl"]);
    let plans: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(plans.len(), 200);
    for (plan, case) in plans.iter().zip(CASES.lines()) {
        let case: Value = serde_json::from_str(case).expect("JSON");
        assert_eq!(plan["desired"], case["desired"], "{case}");
        assert!(plan["actions"].is_array() && plan["decision"].is_object(), "{plan}");
    }
}

#[test]
fn one_input_from_stdin_is_one_object_and_the_same_every_time() {
    let desk = Desk::new();
    let case: Value = serde_json::from_str(CASES.lines().next().expect("a case")).expect("JSON");
    let input = case["input"].to_string();
    let first = desk.run_with(&["plan", "--input", "-", "-o", "json"], &input);
    assert_eq!((first.code, first.err.as_str()), (0, ""));
    let plan: Value = serde_json::from_str(&first.out).expect("JSON");
    assert_eq!(plan["desired"], case["desired"]);
    assert_eq!(desk.run_with(&["plan", "--input", "-", "-o", "json"], &input), first);

    let story = desk.run_with(&["plan", "--input", "-"], &input);
    assert!(story.out.contains("strategies, in the order in which they run:"), "{}", story.out);
    let yaml = desk.run_with(&["plan", "--input", "-", "-o", "yaml"], &input);
    assert!(yaml.out.contains("desired:"), "{}", yaml.out);
}

#[test]
fn an_expectation_that_is_not_met_is_exit_code_1_and_the_plan_is_shown_all_the_same() {
    let desk = Desk::new();
    let mut case: Value = serde_json::from_str(CASES.lines().nth(2).expect("a case")).expect("JSON");
    case["desired"] = json!({ "old": "400cc" });
    let ended = desk.run_with(&["plan", "--input", "-", "-o", "json"], &case.to_string());
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("expected old (400cc), but the plan is old (25cc)"), "{}", ended.err);
    assert!(ended.out.contains("\"desired\""), "{}", ended.out);
}

#[test]
fn a_mistake_in_the_input_is_exit_code_2_and_names_the_field() {
    let desk = Desk::new();
    let wrong = CASES.lines().next().expect("a case").replace("idle_after_s", "idle_after");
    let file = desk.file("wrong.json", &wrong);
    desk.fails(
        &["plan", "--input", &file],
        2,
        "strategies[0].config.idle_after: idle_suspend has no such option; did you mean 'idle_after_s'?",
    );
    desk.fails(&["plan", "--input", "nowhere.json"], 2, "nowhere.json cannot be read");
    desk.fails(&["plan"], 2, "--input");
}

#[test]
fn a_tiny_bench_of_the_brain_prints_every_row() {
    let desk = Desk::new();
    let report = desk.json(&["bench", "brain", "--clusters", "10,300", "--for", "1ms", "-o", "json"]);
    let rows = report["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["signal", "idle_tick", "evaluation", "memory"]);
    for row in rows {
        for field in ["ratio", "goal", "met", "against"] {
            assert!(row.get(field).is_some(), "{field} is missing in {row}");
        }
    }
    assert!(report["machine"]["cores"].is_u64() && report["baseline"]["lookups"].is_array(), "{report}");
    let table = desk.said(&["bench", "brain", "--clusters", "10", "20", "30", "--for", "1ms"]);
    assert_eq!(table.lines().count(), 1 + 2 + 2 + 1 + 1, "two sizes are compared with the smallest: {table}");
}

#[test]
fn a_bench_that_has_nothing_to_compare_is_refused() {
    let desk = Desk::new();
    desk.fails(&["bench", "brain", "--clusters", "10"], 2, "two different numbers");
    desk.fails(&["bench", "brain", "--clusters", "0,10"], 2, "--clusters");
    desk.fails(&["bench", "brain", "--for", "soon"], 2, "such as 10s");
}
