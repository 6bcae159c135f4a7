//! Manifests as SQL: what `apply -f file.sql` and `diff -f file.sql` read.
//!
//! The statements say what is to be there: a cluster or a strategy that is there already is compared, not refused, and an
//! option that is not named goes back to its default, as in every other file. `ALTER` says of something that is there only what is to be different:
//! what it does not name stays. What only makes sense once (`DROP`, `ALTER ... RENAME`) is for `loadline sql`.

use loadline_client::v1::strategy_target::Target;
use loadline_sql::statement::{CreateSignal, StrategyKind, StrategyOption, TargetName, Value as Written};
use loadline_sql::{Parsed, SqlError, Statement};
use serde_json::{Map, Value};

use super::{Manifest, SignalSpec, Spec, StrategySpec, Wrong, signal, strategy};
use crate::exit::Failed;

const WANTED: &str = "write CREATE CLUSTER, CREATE SIGNAL, CREATE SCALING STRATEGY, ALTER SCALING STRATEGY, ALTER CLUSTER ... SET or \
                      ALTER SYSTEM SET; other statements are run with loadline sql -f";

/// True if this is SQL and not YAML or JSON: it begins with the word of a statement. Also of one that no file may have: what is wrong with it
/// is said in terms of statements then.
pub(crate) fn is_sql(text: &str) -> bool {
    let words = [
        "alter", "begin", "clear", "commit", "create", "delete", "drop", "explain", "grant", "insert", "override",
        "reset", "revoke", "select", "set", "show", "start", "update", "wake",
    ];
    // A line of comment is neither here nor there: `#` would be YAML's.
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("--"));
    let word = first.and_then(|line| line.split_whitespace().next()).unwrap_or_default();
    // No document begins with the comment of the other kind.
    word.starts_with("/*") || words.iter().any(|it| it.eq_ignore_ascii_case(word.trim_end_matches(';')))
}

/// Reads all statements of a text.
pub(crate) fn parse(text: &str) -> Result<Vec<Manifest>, Failed> {
    let statements = loadline_sql::parse(text).map_err(|error| wrong(text, &error))?;
    let mut manifests: Vec<Manifest> = Vec::new();
    for parsed in &statements {
        let line = line_of(text, parsed.position);
        let failed = |message: String| Failed::usage(format!("line {line}: {message}"));
        let Some((name, spec)) = wanted(parsed).map_err(failed)? else { continue };
        let alters = matches!(parsed.statement, Statement::AlterStrategy(_) | Statement::PlaceCluster { .. });
        let mut manifest = Manifest { name, spec, alters, place: String::new() };
        if manifests.iter().any(|other| other.full_name() == manifest.full_name()) {
            return Err(failed(format!("{} is there twice", manifest.full_name())));
        }
        manifest.place = format!("line {line} ({})", manifest.full_name());
        manifests.push(manifest);
    }
    if manifests.is_empty() {
        return Err(Failed::usage(format!("there is nothing in it; {WANTED}")));
    }
    Ok(manifests)
}

fn line_of(text: &str, position: usize) -> usize {
    1 + text.chars().take(position.saturating_sub(1)).filter(|character| *character == '\n').count()
}

fn wrong(text: &str, error: &SqlError) -> Failed {
    let line = error.position.map(|position| format!("line {}: ", line_of(text, position))).unwrap_or_default();
    let failed = Failed::usage(format!("{line}{}", error.message));
    match &error.hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

/// The name and what is to be under it; nothing for what says nothing.
fn wanted(parsed: &Parsed) -> Result<Option<(String, Spec)>, String> {
    Ok(Some(match &parsed.statement {
        // All of a file is one transaction as it is.
        Statement::Begin(_) | Statement::Commit => return Ok(None),
        Statement::CreateCluster(create) => {
            if create.size.is_some() {
                return Err("a file says only that the cluster is there, and where: leave SIZE out, and add a strategy that keeps one".to_owned());
            }
            (create.name.clone(), Spec::Cluster { backend: create.backend.clone() })
        }
        Statement::SetSetting { name, value } => (name.clone(), Spec::Setting { value: value.as_text() }),
        Statement::CreateStrategy(create) => {
            (String::new(), Spec::Strategy(strategy(create.kind, target(&create.target), &create.options)?))
        }
        Statement::AlterStrategy(alter) => {
            let options =
                strategy::changed_options(alter.kind, &options(&alter.options)).map_err(|wrong| said(&wrong))?;
            let target = target(&alter.target);
            (String::new(), Spec::Strategy(StrategySpec { kind: alter.kind, target, options, rest_stays: true }))
        }
        Statement::PlaceCluster { name, backend } => {
            (name.clone(), Spec::Cluster { backend: Some(backend.clone().unwrap_or_default()) })
        }
        Statement::CreateSignal(create) => (create.name.clone(), Spec::Signal(signal(create)?)),
        Statement::Write(_)
        | Statement::CreateReplica(_)
        | Statement::DropReplica { .. }
        | Statement::Wake(_)
        | Statement::OverrideCluster(_)
        | Statement::ClearOverride { .. } => {
            let what = "a file says what is to be there, and this is done once: run it with loadline sql -f";
            return Err(what.to_owned());
        }
        _ => return Err(format!("this is not something that is there; {WANTED}")),
    }))
}

fn target(target: &TargetName) -> Target {
    match target {
        TargetName::Cluster(name) => Target::Cluster(name.clone()),
        TargetName::Pattern(pattern) => Target::Pattern(pattern.clone()),
        TargetName::All => Target::All(true),
    }
}

fn signal(create: &CreateSignal) -> Result<SignalSpec, String> {
    let value = |value: &Written| Value::String(value.as_text());
    let given: Map<String, Value> =
        create.options.iter().map(|option| (option.name.to_owned(), value(&option.value))).collect();
    let options = signal::options(create.kind, Some(&Value::Object(given))).map_err(|wrong| said(&wrong))?;
    Ok(SignalSpec { kind: create.kind, target: target(&create.target), every: create.every, options })
}

fn said(wrong: &Wrong) -> String {
    let field = wrong.field.trim_start_matches("spec.options").trim_start_matches('.');
    if field.is_empty() { wrong.message.clone() } else { format!("{field}: {}", wrong.message) }
}

fn strategy(kind: StrategyKind, target: Target, written: &[StrategyOption]) -> Result<StrategySpec, String> {
    let options = strategy::options(kind, Some(&options(written))).map_err(|wrong| said(&wrong))?;
    Ok(StrategySpec { kind, target, options, rest_stays: false })
}

fn options(written: &[StrategyOption]) -> Value {
    let value = |value: &Written| match value {
        Written::Bool(value) => Value::Bool(*value),
        other => Value::String(other.as_text()),
    };
    let given: Map<String, Value> =
        written.iter().map(|option| (option.name.to_owned(), value(&option.value))).collect();
    Value::Object(given)
}

#[cfg(test)]
mod tests {
    use loadline_client::v1;

    use super::*;

    #[test]
    fn statements_say_what_is_to_be_there() {
        let text = "-- for the demo\nBEGIN;\nALTER SYSTEM SET enable_auto_scaling = true;\nCREATE CLUSTER IF NOT EXISTS Demo;\n\
                    CREATE SCALING STRATEGY FOR CLUSTER demo\n  TYPE IDLE SUSPEND WITH (IDLE AFTER = '30m', DRY_RUN = true);\nCOMMIT;";
        assert!(is_sql(text));
        let manifests = parse(text).expect("manifests");
        let named: Vec<(String, &str)> = manifests.iter().map(|it| (it.full_name(), it.place.as_str())).collect();
        let strategy = "strategies/idle_suspend for demo";
        let expected = [
            ("settings/enable_auto_scaling", "line 3 (settings/enable_auto_scaling)"),
            ("clusters/demo", "line 4 (clusters/demo)"),
            (strategy, "line 5 (strategies/idle_suspend for demo)"),
        ];
        assert_eq!(named, expected.map(|(name, place)| (name.to_owned(), place)));
        let Spec::Strategy(strategy) = &manifests[2].spec else { panic!("{manifests:?}") };
        let options: Vec<(&str, &str)> =
            strategy.options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(options, [("dry_run", "true"), ("idle_after_s", "1800")]);
        assert_eq!(manifests[0].spec, Spec::Setting { value: "true".to_owned() });
    }

    #[test]
    fn what_is_altered_must_be_there_and_only_what_is_named_changes() {
        let text = "ALTER SCALING STRATEGY FOR ALL CLUSTERS TYPE IDLE SUSPEND UPDATE (IDLE AFTER = '10m');";
        assert!(is_sql(text));
        let manifests = parse(text).expect("a manifest");
        let Spec::Strategy(strategy) = &manifests[0].spec else { panic!("{manifests:?}") };
        assert!(manifests[0].alters && strategy.rest_stays);
        let there = v1::Strategy {
            options: [("idle_after_s", "1800"), ("cooldown_s", "60")]
                .map(|(key, value)| (key.into(), value.into()))
                .into(),
            ..v1::Strategy::default()
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(strategy.differences(Some(&there)), [("idle_after_s".to_owned(), text("1800"), text("600"))]);
        // Not even what every strategy of this type must have.
        let size = parse("ALTER SCALING STRATEGY FOR CLUSTER a TYPE TARGET SIZE UPDATE (COOLDOWN = '1m')")
            .expect("a manifest");
        assert!(matches!(&size[0].spec, Spec::Strategy(it) if it.options.len() == 1), "{size:?}");
        let moved = parse("ALTER CLUSTER a SET (BACKEND = 'other')").expect("a manifest");
        assert_eq!((moved[0].alters, &moved[0].spec), (true, &Spec::Cluster { backend: text("other") }));
    }

    #[track_caller]
    fn check(text: &str, message: &str) {
        assert_eq!(parse(text).expect_err(text).message, message);
    }

    #[test]
    fn a_mistake_names_its_line() {
        check("\nCREATE CLUSTER a;\nDROP CLUSTER b", &format!("line 3: this is not something that is there; {WANTED}"));
        let once = "a file says what is to be there, and this is done once: run it with loadline sql -f";
        check("CREATE CLUSTER a;\nDELETE FROM mz_scaling_strategies", &format!("line 2: {once}"));
        check("CREATE CLUSTER REPLICA a.r SIZE = '1'", &format!("line 1: {once}"));
        check("CREATE CLUSTER a; CREATE CLUSTER A;", "line 1: clusters/a is there twice");
        check(
            "CREATE\n  CLUSTR a",
            "line 2: syntax error at or near \"CLUSTR\": expected SCALING, CLUSTER, SIGNAL, ROLE or USER",
        );
        check("-- nothing", &format!("there is nothing in it; {WANTED}"));
        check(
            "CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE BURST WITH (BURST_SIZE = '1', COOLDOWN = 'soon')",
            "line 1: COOLDOWN: \"soon\" is not a value for option cooldown_s; write whole seconds, at least 0 and at most 315360000",
        );
    }

    #[test]
    fn a_file_that_begins_with_what_is_done_once_is_told_so_in_terms_of_statements() {
        let once = "line 1: a file says what is to be there, and this is done once: run it with loadline sql -f";
        for text in [
            "UPDATE mz_internal.mz_scaling_strategies SET config = config",
            "OVERRIDE CLUSTER a MIN 1 FOR '1h'",
            "CLEAR OVERRIDE FOR CLUSTER a",
            "wake cluster a;",
            "DELETE FROM mz_scaling_strategies",
        ] {
            assert_eq!(super::super::parse(text).expect_err(text).message, once, "{text}");
        }
    }

    #[test]
    fn yaml_and_json_are_not_taken_for_sql() {
        for text in ["kind: cluster\nname: create", "{\"kind\": \"cluster\"}", "---\ncreate: x", "# a\nkind: size", ""]
        {
            assert!(!is_sql(text), "{text}");
        }
        for text in ["kind: cluster", "set: x", "update:\n  a: b", "select:"] {
            assert!(!is_sql(text), "{text}");
        }
        assert!(is_sql("  create cluster a"));
        assert!(is_sql("/* for the demo */ CREATE CLUSTER a"));
    }
}
