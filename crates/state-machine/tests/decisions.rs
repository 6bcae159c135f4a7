//! 200 decisions of a peer tool, on random inputs: ours come out equal.

use std::collections::BTreeMap;

use loadline_state_machine::{
    OptionValue, Options, PlanActivity, PlanCrashes, PlanHydration, PlanInput, PlanReplica, PlanStrategy, Span, plan,
};
use serde_json::{Map, Value};

const CASES: &str = include_str!("data/decisions.jsonl");

#[test]
fn the_desired_replicas_equal_those_of_the_peer_in_every_case() {
    let mut count = 0;
    for (line, text) in (1..).zip(CASES.lines()) {
        let case: Value = serde_json::from_str(text).unwrap();
        let expected: BTreeMap<String, String> = serde_json::from_value(case["desired"].clone()).unwrap();
        let output = plan(&input(&case["input"])).unwrap_or_else(|error| panic!("line {line}: {error}"));
        assert_eq!(output.desired, expected, "line {line}: {text}\n{:#?}", output.decision.stages);
        count += 1;
    }
    assert_eq!(count, 200);
}

fn input(case: &Value) -> PlanInput {
    let signals = &case["signals"];
    PlanInput {
        sizes: list(&case["sizes"]).iter().map(|size| text(&size["name"])).collect(),
        cluster: text(&case["cluster"]["name"]),
        replicas: list(&case["cluster"]["replicas"])
            .iter()
            .map(|replica| PlanReplica { name: text(&replica["name"]), size: text(&replica["size"]) })
            .collect(),
        strategies: list(&case["strategies"])
            .iter()
            .map(|strategy| PlanStrategy {
                kind: text(&strategy["type"]),
                config: options(object(&strategy["config"])),
                last_decision_ago: strategy["last_decision_ago_s"].as_u64().map(Span::from_secs),
                state: None,
            })
            .collect(),
        activity: match &signals["seconds_since_activity"] {
            Value::Null => PlanActivity::NoneSeen,
            seconds => PlanActivity::Ago(Span::from_secs(number(seconds))),
        },
        hydration: object(&signals["hydration"])
            .iter()
            .map(|(replica, it)| {
                (replica.clone(), PlanHydration { total: number(&it["total"]), hydrated: number(&it["hydrated"]) })
            })
            .collect(),
        crashes: object(&signals["crashes"])
            .iter()
            .map(|(replica, it)| {
                (replica.clone(), PlanCrashes { total: number(&it["total"]), oom: number(&it["oom"]) })
            })
            .collect(),
        ..PlanInput::default()
    }
}

fn options(config: &Map<String, Value>) -> Options {
    let value = |value: &Value| match value {
        Value::String(text) => OptionValue::Text(text.clone()),
        Value::Bool(value) => OptionValue::Bool(*value),
        number => OptionValue::Number(number.as_i64().expect("a whole number")),
    };
    config.iter().map(|(key, it)| (key, value(it))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("an object")
}
