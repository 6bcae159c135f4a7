use serde_json::{Value, json};

use super::*;

const CASES: &str = include_str!("../../../state-machine/tests/data/decisions.jsonl");

/// A document without a mistake.
fn right() -> Value {
    json!({
        "sizes": [{ "name": "25cc" }, { "name": "50cc" }],
        "cluster": { "name": "c", "replicas": [{ "name": "main", "size": "50cc" }] },
        "strategies": [
            { "type": "idle_suspend", "config": { "idle_after_s": 60 } },
            { "type": "target_size", "config": { "size": "50cc" }, "last_decision_ago_s": 5 }
        ],
        "signals": {
            "seconds_since_activity": 5,
            "hydration": { "main": { "total": 1, "hydrated": 1 } },
            "crashes": { "main": { "total": 2, "oom": 1 } }
        }
    })
}

/// What is said when the value at `pointer` is another one. A last part that is not there is added.
#[track_caller]
fn mistake(pointer: &str, value: Value) -> String {
    let mut document = right();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    match document.pointer_mut(parent).expect("a parent") {
        Value::Object(fields) => drop(fields.insert(key.to_owned(), value)),
        Value::Array(items) => items[key.parse::<usize>().expect("a place")] = value,
        other => panic!("{other} holds nothing"),
    }
    let failed = answer_all(&document.to_string()).expect_err("a mistake");
    assert_eq!(failed.exit, Exit::Usage);
    failed.message
}

#[track_caller]
fn without(pointer: &str) -> String {
    let mut document = right();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let fields = document.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
    assert!(fields.remove(key).is_some(), "{pointer} is not there");
    answer_all(&document.to_string()).expect_err("a mistake").message
}

fn view(document: &Value) -> Value {
    view_of(&document.to_string())
}

fn view_of(text: &str) -> Value {
    let answers = answer_all(text).expect("no mistake");
    let Answer { question, output, .. } = &answers[0];
    serde_json::to_value(PlanView::of(&question.input.cluster, output)).expect("JSON")
}

#[test]
fn all_200_decisions_come_out_as_expected() {
    let answers = answer_all(CASES).expect("no mistake");
    let wrong: Vec<String> = answers.iter().filter(|it| !it.as_expected()).map(Answer::difference).collect();
    assert_eq!((answers.len(), wrong), (200, vec![]));
    assert!(answers.iter().all(|answer| answer.question.expected.is_some()), "each says what to expect");
}

#[test]
fn the_changes_of_every_stage_lead_to_its_desired_state_and_the_last_is_what_is_desired() {
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).expect("JSON");
        let plan = view(&case);
        let replicas = case["input"]["cluster"]["replicas"].as_array().expect("replicas");
        let mut so_far: Value =
            replicas.iter().map(|it| (it["name"].as_str().unwrap_or_default(), it["size"].clone())).collect();
        let none = vec![];
        for stage in plan["decision"]["stages"].as_array().unwrap_or(&none) {
            for change in stage["changes"].as_array().unwrap_or(&none) {
                let name = change["replica"].as_str().expect("a name");
                match change["what"].as_str() {
                    Some("removed") => drop(so_far.as_object_mut().expect("replicas").remove(name)),
                    Some("added" | "resized") => so_far[name] = change["size"].clone(),
                    other => panic!("{other:?} in {line}"),
                }
            }
            assert_eq!(stage["desired"], so_far, "{line}");
        }
        assert_eq!((&plan["desired"], &plan["decision"]["desired"]), (&so_far, &so_far), "{line}");
    }
}

/// Every key with the keys below it, ids and values left out.
fn keys(value: &Value, path: &str, into: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            // Replicas are keys of their own.
            let key = if path.ends_with("desired") { "NAME" } else { key.as_str() };
            let path = format!("{path}.{key}");
            into.insert(path.clone());
            keys(value, &path, into);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys(item, &format!("{path}[]"), into)),
        _ => {}
    }
}

#[test]
fn a_planned_decision_has_the_form_of_a_recorded_one() {
    use loadline_state_machine::{Revision, State};
    let mut document = right();
    document["strategies"][0]["config"]["dry_run"] = json!(true);
    document["signals"]["seconds_since_activity"] = json!(3_600);
    let answers = answer_all(&document.to_string()).expect("no mistake");
    let mut recorded = answers[0].output.decision.clone();
    recorded.id = Revision { index: loadline_state_machine::LogIndex(412), ordinal: 3 };
    let shown = crate::output::scaling::DecisionView::from(loadline_api::scaling::decision(&recorded, &State::new()));
    let shown = serde_json::to_value(&shown).expect("JSON");
    let (mut planned, mut listed) = Default::default();
    keys(&view(&document)["decision"], "", &mut planned);
    keys(&shown, "", &mut listed);
    // What only a group gives, and the name, which this state does not know.
    let added: Vec<&String> = listed.difference(&planned).collect();
    let ids = [".cluster_id", ".name", ".shadow.planned[].strategy", ".shadow.stages[].strategy", ".stages[].strategy"];
    assert_eq!(added, ids);
    assert_eq!(planned.difference(&listed).collect::<Vec<_>>(), [".cluster"]);
    assert_eq!(view(&document)["decision"]["cluster"], "c");
}

#[test]
fn a_wrong_value_is_named_with_what_would_be_right() {
    for (pointer, value, said) in [
        ("/sizes", json!("25cc"), "sizes: \"25cc\" is not a list of sizes, the smallest first"),
        ("/sizes/1", json!("50cc"), "sizes[1]: \"50cc\" is not an object with name"),
        ("/sizes/1", json!({ "name": "25cc" }), "sizes[1].name: '25cc' is there twice"),
        ("/sizes/0/name", json!("a b"), "sizes[0].name: \"a b\" has white space"),
        ("/sizes/0/nmae", json!("25cc"), "sizes[0].nmae: there is no such field; did you mean 'name'?"),
        ("/cluster/name", json!(7), "cluster.name: 7 is not a name"),
        ("/cluster/name", json!(""), "cluster.name: it is empty"),
        ("/cluster/replicas/0/size", json!(null), "cluster.replicas[0].size: null is not a name"),
        ("/strategy", json!([]), "strategy: there is no such field; did you mean 'strategies'?"),
        ("/nwo", json!(1), "nwo: there is no such field"),
        ("/now", json!("yesterday"), "now: write a time such as"),
        ("/now", json!(-5), "now: write a time such as"),
        ("/now", json!(1_800_000_000_000_u64), "now: that is after the year 9999; write seconds"),
        ("/strategies/0/type", json!("idle_suspnd"), "strategies[0].type: there is no strategy 'idle_suspnd'; did you"),
        ("/strategies/0/type", json!("cron"), "strategies[0].type: there is no strategy 'cron'; write target_size"),
        ("/strategies/1/type", json!("idle_suspend"), "strategies[1].type: there is a idle_suspend already"),
        ("/strategies/0/config", json!([]), "strategies[0].config: a list is not an object of options"),
        ("/strategies/0/config/idle_after_s", json!(0), "strategies[0].config.idle_after_s: '0' is not right; write"),
        ("/strategies/0/config/idle_after_s", json!("60"), "idle_after_s: '60' is not right; write whole seconds"),
        ("/strategies/0/config/idle_after_s", json!(1.5), "strategies[0].config.idle_after_s: write whole seconds"),
        ("/strategies/0/config/idle_after_s", json!(null), "idle_after_s: write whole seconds"),
        (
            "/strategies/0/config/idle_after",
            json!(5),
            "strategies[0].config.idle_after: idle_suspend has no such option;",
        ),
        ("/strategies/0/config/burst_size", json!("25cc"), "burst_size: idle_suspend has no such option, burst does"),
        (
            "/strategies/0/config/enabled",
            json!("yes"),
            "strategies[0].config.enabled: 'yes' is not right; write true or",
        ),
        ("/strategies/0/config/config_version", json!(9), "strategies[0].config.config_version: "),
        ("/strategies/1/config/size", json!("55cc"), "strategies[1].config.size: there is no size '55cc' among sizes"),
        (
            "/strategies/1/config/replica_scope",
            json!("SOME"),
            "replica_scope: 'SOME' is not right; write ALL or MANAGED",
        ),
        ("/strategies/1/last_decision_ago_s", json!(-1), "strategies[1].last_decision_ago_s: -1 is not a number of"),
        ("/strategies/1/last_decision_ago_s", json!(1e300), "strategies[1].last_decision_ago_s: 1e+300 seconds ago is"),
        ("/strategies/1/last_decison_ago_s", json!(1), "did you mean 'last_decision_ago_s'?"),
        ("/strategies/1/state", json!({ "failed_sizes": [] }), "strategies[1].state.failed_sizes: only shrink_to_fit"),
        ("/strategies/1/state", json!({ "last_decision_ago_s": 1 }), "last_decision_ago_s: the state says it as well"),
        (
            "/strategies/0/state",
            json!({ "suspended": [{ "name": "a" }] }),
            "strategies[0].state.suspended[0].size: it is",
        ),
        ("/strategies/0/state", json!({ "version": -1 }), "strategies[0].state.version: -1 is not a whole number"),
        ("/signals/seconds_since_activity", json!("5"), "signals.seconds_since_activity: \"5\" is not a number of sec"),
        (
            "/signals/hydration/mian",
            json!({}),
            "signals.hydration.mian: the cluster has no replica 'mian'; did you mean",
        ),
        ("/signals/hydration/main/hydrated", json!(2), "signals.hydration.main.hydrated: 2 of 1 objects"),
        ("/signals/hydration/main/total", json!(-1), "signals.hydration.main.total: -1 is not a whole number"),
        ("/signals/crashes/main/oom", json!(3), "signals.crashes.main.oom: 3 crashes for want of memory are more than"),
        ("/signals/crash", json!({}), "signals.crash: there is no such field; did you mean 'crashes'?"),
        ("/settings", json!({ "signal_stale_aftr": "5m" }), "settings.signal_stale_aftr: "),
        ("/settings", json!({ "signal_stale_after": 5 }), "settings.signal_stale_after: "),
        ("/settings", json!({ "signal_stale_after": [] }), "settings.signal_stale_after: write the value as in"),
    ] {
        let message = mistake(pointer, value.clone());
        assert!(message.contains(said), "{pointer} = {value}: {message:?} does not say {said:?}");
    }
}

#[test]
fn what_is_missing_is_named() {
    for (pointer, said) in [
        ("/sizes", "sizes: it is missing; write the ladder"),
        ("/cluster", "cluster: it is missing; write an object with name and replicas"),
        ("/cluster/name", "cluster.name: it is missing"),
        ("/strategies", "strategies: it is missing; write a list"),
        ("/strategies/0/type", "strategies[0].type: it is missing; write target_size"),
        ("/strategies/1/config", "strategies[1].config: it is missing"),
        ("/strategies/1/config/size", "strategies[1].config.size: it is missing; write the name of a size"),
        ("/signals/hydration/main/total", "signals.hydration.main.total: it is missing"),
    ] {
        let message = without(pointer);
        assert!(message.contains(said), "{pointer}: {message:?} does not say {said:?}");
    }
}

#[test]
fn a_mistake_in_one_of_many_documents_names_the_document() {
    let wrong = right().to_string().replace("\"size\":\"50cc\"}]", "\"sice\":\"50cc\"}]");
    let failed = answer_all(&format!("{}\n{wrong}\n", right())).expect_err("a mistake");
    assert_eq!(failed.message, "document 2, cluster.replicas[0].sice: there is no such field; did you mean 'size'?");
    for (text, said) in [
        ("", "there is nothing in it"),
        ("{", "not JSON: EOF"),
        ("[1]", "document: a list is not an object with sizes"),
        ("7", "document: 7 is not an object with sizes"),
        ("a: [", "neither JSON nor YAML"),
    ] {
        let failed = answer_all(text).expect_err("a mistake");
        assert!(failed.message.contains(said), "{text:?}: {}", failed.message);
    }
}

#[test]
fn yaml_says_the_same_as_json() {
    let yaml = serde_saphyr::to_string(&right()).expect("YAML");
    assert_eq!(view(&right()), view_of(&yaml));
}

#[test]
fn silence_is_not_the_same_as_no_activity() {
    let mut document = right();
    document["strategies"] = json!([{ "type": "idle_suspend", "config": { "idle_after_s": 60 } }]);
    document["signals"] = json!({ "seconds_since_activity": null });
    assert_eq!(view(&document)["desired"], json!({}), "a live collector has seen none");
    document["signals"] = json!({});
    let plan = view(&document);
    assert_eq!(plan["desired"], json!({ "main": "50cc" }), "nobody has said anything");
    assert_eq!(plan["decision"]["stages"][0]["reason"]["code"], "SIGNAL_MISSING");
}

#[test]
fn actions_say_who_wants_them_and_why() {
    let mut document = right();
    document["signals"]["seconds_since_activity"] = json!(3_600.5);
    let plan = view(&document);
    assert_eq!(plan["desired"], json!({}));
    let action = &plan["actions"][0];
    assert_eq!(
        (&action["action"], &action["replica"], &action["strategy"], &action["reason"]["code"]),
        (&json!("drop_replica"), &json!("main"), &json!("idle_suspend"), &json!("IDLE"))
    );
    assert_eq!(plan["decision"]["conclusion"]["code"], "BEGAN");
    let activity = &plan["decision"]["signals"]["activity"];
    assert_eq!(
        (&activity["last_time"], &activity["freshness"]["stale"]),
        (&json!("2027-01-15T06:59:59Z"), &json!(false))
    );
    document["settings"] = json!({ "auto_scaling_enabled": false });
    let plan = view(&document);
    assert_eq!(plan["decision"]["conclusion"]["code"], "SUPPRESSED");
    assert_eq!(plan["decision"]["brakes"][0]["brake"]["code"], "KILL_SWITCH");
}

#[test]
fn what_a_strategy_remembers_counts_and_a_cooldown_says_when_it_ends() {
    let mut document = right();
    document["now"] = json!("2026-11-16T02:50:53Z");
    document["strategies"] = json!([{
        "type": "idle_suspend",
        "config": { "idle_after_s": 60, "cooldown_s": 300 },
        "state": { "version": 1, "last_decision_ago_s": 200 }
    }]);
    document["signals"]["seconds_since_activity"] = json!(1_000);
    let plan = view(&document);
    assert_eq!(plan["actions"], json!([]));
    let stage = &plan["decision"]["stages"][0];
    assert_eq!(stage["reason"]["code"], "IN_COOLDOWN");
    assert_eq!(plan["decision"]["time"], "2026-11-16T02:50:53Z");
    assert_eq!(stage["would_change"]["time"], "2026-11-16T02:52:33Z");
    assert_eq!(stage["would_change"]["cause"]["code"], "COOLDOWN_OVER");

    document["cluster"]["replicas"] = json!([]);
    document["strategies"] = json!([{
        "type": "shrink_to_fit",
        "config": { "max_size": "50cc" },
        "state": { "failed_sizes": [{ "size": "25cc", "ago_s": 60 }] }
    }]);
    document["signals"] = json!({ "seconds_since_activity": 1 });
    assert_eq!(view(&document)["desired"], json!({ "50cc_auto": "50cc" }), "25cc failed a minute ago");
}

#[test]
fn an_expectation_that_is_not_met_says_both_sides() {
    let line = json!({ "input": right(), "desired": { "main": "25cc" } });
    let answers = answer_all(&line.to_string()).expect("no mistake");
    assert!(!answers[0].as_expected());
    assert_eq!(answers[0].difference(), "expected main (25cc), but the plan is main (50cc)");
    let nothing = json!({ "input": right(), "desired": { "main": "50cc" }, "note": "" });
    let failed = answer_all(&nothing.to_string()).expect_err("a mistake");
    assert!(failed.message.starts_with("note: there is no such field"), "{}", failed.message);
}

/// Every place in a document.
fn pointers(value: &Value, path: &str, into: &mut Vec<String>) {
    into.push(path.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| pointers(value, &format!("{path}/{key}"), into)),
        Value::Array(items) => (0..).zip(items).for_each(|(at, item)| pointers(item, &format!("{path}/{at}"), into)),
        _ => {}
    }
}

#[test]
fn whatever_stands_wherever_it_is_planned_or_refused_by_the_name_of_a_field() {
    let mut document = right();
    document["now"] = json!("2026-11-16T02:50:53Z");
    document["settings"] =
        json!({ "auto_scaling_enabled": true, "signal_stale_after": "5m", "auto_scaling_cluster_cooldown": "30s" });
    document["strategies"][0]["state"] = json!({
        "version": 1,
        "suspended": [{ "name": "main", "size": "50cc" }],
        "last_decision_ago_s": 7
    });
    document["strategies"].as_array_mut().expect("a list").push(json!({
        "type": "shrink_to_fit",
        "config": { "max_size": "50cc" },
        "state": { "failed_sizes": [{ "size": "25cc", "ago_s": 60 }] }
    }));
    answer_all(&document.to_string()).expect("no mistake");
    let mut places = Vec::new();
    pointers(&document, "", &mut places);
    let junk = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e308),
        json!(""),
        json!("x"),
        json!("\u{0}"),
        json!("%"),
        json!("\u{1f980}".repeat(300)),
        json!([]),
        json!([[]]),
        json!([null]),
        json!({}),
        json!({ "": 0 }),
        json!({ "name": "x", "size": "x" }),
    ];
    let fields = ["document", "sizes", "cluster", "strategies", "signals", "settings", "now"];
    let mut refused = 0;
    for place in &places {
        for value in &junk {
            let mut wrong = document.clone();
            *wrong.pointer_mut(place).expect("a place") = value.clone();
            let Err(failed) = answer_all(&wrong.to_string()) else { continue };
            refused += 1;
            assert_eq!(failed.exit, Exit::Usage, "{place} = {value}");
            // Another document altogether has fields of its own, or none.
            let named = place.is_empty() || fields.iter().any(|field| failed.message.starts_with(field));
            assert!(named, "{place} = {value}: {}", failed.message);
        }
    }
    assert!(refused > places.len() * 5, "only {refused} of {} were refused", places.len() * junk.len());
}
