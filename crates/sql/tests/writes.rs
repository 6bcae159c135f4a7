//! `INSERT`, `UPDATE` and `DELETE` on the tables, against the state machine itself.

use crate::world::{Answer, World};
use loadline_sql::tables::Value;
use loadline_state_machine::{Command, Options, StrategyKind, TargetName};

const STRATEGIES: &str = "SELECT strategy_type, cluster_id IS NULL, cluster_pattern, config, enabled \
                          FROM mz_internal.mz_scaling_strategies ORDER BY id";

fn world() -> World {
    let mut world = World::with_clusters(&["shop", "prod_a", "prod_b"]);
    world.run("CREATE SCALING STRATEGY FOR CLUSTER shop TYPE TARGET_SIZE WITH (SIZE = '200cc', COOLDOWN = '5m')");
    world
}

fn id(world: &World, cluster: &str) -> String {
    world.state.cluster(cluster).expect("it was created").id.to_string()
}

fn somebody_alters(cooldown: i64) -> Vec<Command> {
    vec![Command::ChangeStrategy {
        target: TargetName::Cluster("shop".to_owned()),
        kind: StrategyKind::TargetSize,
        options: Options::default().with("cooldown_s", cooldown),
        reset: vec![],
        etag: None,
        unchecked: false,
    }]
}

#[track_caller]
fn refused(world: &mut World, text: &str, sqlstate: &str, said: &str) {
    let before = world.state.clone();
    let error = world.try_run(text).expect_err(text);
    assert_eq!(error.sqlstate.0, sqlstate, "{text}: {error:?}");
    assert!(error.message.contains(said), "{text}: {error:?}");
    assert_eq!(world.state.strategies().collect::<Vec<_>>(), before.strategies().collect::<Vec<_>>(), "{text}");
}

/// The text from the place that an error names.
#[track_caller]
fn blamed<'a>(world: &mut World, text: &'a str) -> &'a str {
    let place = world.try_run(text).expect_err(text).position.expect("it says where");
    let start = text.char_indices().nth(place - 1).expect("it is in the text").0;
    &text[start..]
}

#[test]
fn a_row_is_inserted_for_a_cluster_a_pattern_or_all_and_is_a_strategy() {
    let mut world = world();
    world.run(
        "INSERT INTO mz_internal.mz_scaling_strategies (id, cluster_id, strategy_type, config)
         VALUES (DEFAULT, (SELECT id FROM mz_clusters WHERE name = 'shop'), 'burst', '{\"burst_size\": \"400cc\"}');
         INSERT INTO mz_scaling_strategies (cluster_pattern, strategy_type, config, enabled)
         VALUES ('prod_%', 'target_size', '{\"size\": \"1\"}', false), (NULL, 'idle_suspend', '{\"idle_after_s\": 60}', true)",
    );
    let expected = [
        "target_size|false|-|{\"size\": \"200cc\", \"cooldown_s\": 300, \"config_version\": 1}|true",
        "burst|false|-|{\"burst_size\": \"400cc\", \"config_version\": 1}|true",
        "target_size|true|prod_%|{\"size\": \"1\", \"config_version\": 1}|false",
        "idle_suspend|true|-|{\"idle_after_s\": 60, \"config_version\": 1}|true",
    ];
    assert_eq!(world.rows(STRATEGIES), expected);
}

#[test]
fn rows_can_be_made_from_a_query() {
    let mut world = world();
    let answer = world.run(
        "WITH prod AS (SELECT id FROM mz_clusters WHERE name LIKE 'prod_%')
         INSERT INTO mz_scaling_strategies (cluster_id, strategy_type, config)
         SELECT id, 'target_size', jsonb_build_object('size', '100cc') FROM prod",
    );
    assert_eq!(answer, [Answer::Written(2, vec![])]);
    assert_eq!(world.entries, 2, "all rows are one request");
    assert_eq!(world.rows("SELECT count(*) FROM mz_scaling_strategies WHERE config->>'size' = '100cc'"), ["2"]);
}

#[test]
fn an_update_lays_over_replaces_and_takes_away() {
    let mut world = world();
    let config = "SELECT config FROM mz_scaling_strategies";
    let update = |what: &str| format!("UPDATE mz_scaling_strategies SET {what} WHERE strategy_type = 'target_size'");
    assert_eq!(world.run(&update("config = config || '{\"size\": \"400cc\"}'::jsonb")), [Answer::Written(1, vec![])]);
    assert_eq!(world.rows(config), ["{\"size\": \"400cc\", \"cooldown_s\": 300, \"config_version\": 1}"]);
    world.run(&update("config = config - 'cooldown_s'"));
    assert_eq!(world.rows(config), ["{\"size\": \"400cc\", \"config_version\": 1}"]);
    world.run(&update("config = '{\"size\": \"1\", \"cooldown_s\": null}', enabled = NOT enabled"));
    assert_eq!(world.rows(config), ["{\"size\": \"1\", \"config_version\": 1}"]);
    assert_eq!(world.rows("SELECT enabled FROM mz_scaling_strategies"), ["false"]);
    assert_eq!(
        world.run("UPDATE mz_scaling_strategies SET enabled = true WHERE id = 'strategy-123'"),
        [Answer::Written(0, vec![])]
    );
}

#[test]
fn an_update_and_a_delete_may_look_at_other_tables() {
    let mut world = world();
    world.run("CREATE SCALING STRATEGY FOR CLUSTER prod_a TYPE TARGET_SIZE WITH (SIZE = '1')");
    world.run(
        "UPDATE mz_scaling_strategies AS s SET config = s.config || jsonb_build_object('size', '2')
         FROM mz_clusters c WHERE c.id = s.cluster_id AND c.name LIKE 'prod%'",
    );
    let sizes = "SELECT c.name, s.config->>'size' FROM mz_scaling_strategies s JOIN mz_clusters c ON c.id = s.cluster_id ORDER BY 1";
    assert_eq!(world.rows(sizes), ["prod_a|2", "shop|200cc"]);
    world.run("DELETE FROM mz_scaling_strategies s USING mz_clusters c WHERE c.id = s.cluster_id AND c.name = 'shop'");
    assert_eq!(world.rows(sizes), ["prod_a|2"]);
    assert_eq!(world.run("DELETE FROM mz_scaling_strategies"), [Answer::Written(1, vec![])]);
    assert_eq!(world.state.strategy_count(), 0);
}

#[test]
fn parameters_are_values_of_the_columns_they_are_for() {
    let mut world = world();
    let shop = id(&world, "shop");
    world.parameters =
        vec![Value::Text(shop.clone()), Value::Text("{\"burst_size\": \"1\"}".to_owned()), Value::Bool(false)];
    world.run(
        "INSERT INTO mz_scaling_strategies (cluster_id, strategy_type, config, enabled) VALUES ($1, 'burst', $2, $3)",
    );
    world.parameters = vec![Value::Text("{\"size\": \"1\"}".to_owned()), Value::Text(shop)];
    world.run("UPDATE mz_scaling_strategies SET config = config || $1 WHERE cluster_id = $2 AND strategy_type = 'target_size'");
    world.parameters.clear();
    assert_eq!(
        world.rows(
            "SELECT coalesce(config->>'size', config->>'burst_size'), enabled FROM mz_scaling_strategies ORDER BY id"
        ),
        ["1|true", "1|false"]
    );
}

#[test]
fn what_was_written_can_be_returned() {
    let mut world = world();
    let insert = "INSERT INTO mz_scaling_strategies (strategy_type, config) VALUES ('burst', '{\"burst_size\": \"1\"}') RETURNING id, strategy_type";
    let Answer::Written(1, returned) = &world.run(insert)[0] else { panic!("a row") };
    let made = world.state.strategy_for(&TargetName::All, StrategyKind::Burst).unwrap().id;
    assert_eq!(*returned, [format!("{made}|burst")]);
    let update = "UPDATE mz_scaling_strategies SET enabled = false WHERE strategy_type = 'burst' RETURNING enabled, config->>'burst_size' AS size";
    assert_eq!(world.run(update), [Answer::Written(1, vec!["false|1".to_owned()])]);
    let delete = "DELETE FROM mz_scaling_strategies WHERE NOT enabled RETURNING *";
    let Answer::Written(1, returned) = &world.run(delete)[0] else { panic!("a row") };
    assert!(returned[0].starts_with(&format!("{made}|-|-|burst|")), "{returned:?}");
}

#[test]
fn rows_are_checked_as_the_statements_are_and_the_place_is_shown() {
    let mut world = world();
    let insert = |kind: &str, config: &str| {
        format!("INSERT INTO mz_scaling_strategies (strategy_type, config) VALUES ('{kind}', '{config}')")
    };
    refused(&mut world, &insert("target_size", "{\"size\": \"75cc\"}"), "42704", "size '75cc'");
    refused(&mut world, &insert("target_size", "{\"sise\": \"1\"}"), "42601", "no option SISE");
    refused(&mut world, &insert("target_size", "{}"), "22023", "option SIZE is required");
    refused(&mut world, &insert("target_size", "{\"size\": [1]}"), "22023", "[1] is not a value for option size");
    refused(&mut world, &insert("target_size", "[1]"), "22023", "must hold a JSON object");
    refused(&mut world, &insert("target_size", "{"), "22P02", "invalid input syntax for type json");
    refused(&mut world, &insert("resize", "{}"), "22023", "no type of strategy 'resize'");
    refused(&mut world, "INSERT INTO mz_scaling_strategies (strategy_type) VALUES ('burst')", "23502", "config");
    refused(&mut world, "INSERT INTO mz_scaling_strategies DEFAULT VALUES", "23502", "strategy_type");
    let one = |columns: &str, values: &str| {
        format!(
            "INSERT INTO mz_scaling_strategies (strategy_type, config, {columns}) VALUES ('burst', '{{\"burst_size\": \"1\"}}', {values})"
        )
    };
    refused(&mut world, &one("id", "'strategy-123'"), "428C9", "non-DEFAULT value into column \"id\"");
    refused(&mut world, &one("cluster_id", "'u1'"), "42704", "no cluster with the id 'u1'");
    let shop = id(&world, "shop");
    refused(
        &mut world,
        &one("cluster_id, cluster_pattern", &format!("'{shop}', 'a%'")),
        "22023",
        "for a cluster, for a pattern",
    );
    refused(&mut world, &one("cluster_pattern", "'a\\'"), "22023", "is not a pattern");
    refused(&mut world, &one("enabled", "'maybe'"), "22P02", "boolean");
    refused(&mut world, &one("enabled", "NULL"), "23502", "enabled");
    refused(&mut world, &one("colour", "1"), "42703", "column \"colour\"");
    refused(&mut world, "UPDATE mz_scaling_strategies SET strategy_type = 'burst'", "0A000", "cannot be changed");
    refused(&mut world, "UPDATE mz_scaling_strategies SET id = 's1.0'", "0A000", "cannot be changed");
    refused(
        &mut world,
        "UPDATE mz_scaling_strategies SET config = config || '{\"size\": 7}'",
        "22023",
        "'7' is not a value",
    );
    refused(&mut world, "UPDATE mz_scaling_strategies SET config = 5 / 0", "22012", "division by zero");
    let again = format!(
        "INSERT INTO mz_scaling_strategies (cluster_id, strategy_type, config) VALUES ('{shop}', 'target_size', '{{\"size\": \"1\"}}')"
    );
    refused(&mut world, &again, "42710", "already exists");
    assert_eq!(world.run(&format!("{again} ON CONFLICT DO NOTHING")), [Answer::Written(0, vec![])]);

    assert_eq!(
        blamed(&mut world, "UPDATE mz_scaling_strategies SET enabled = true, config = '{\"size\": \"75cc\"}'"),
        "'{\"size\": \"75cc\"}'"
    );
    let two = "INSERT INTO mz_scaling_strategies (cluster_pattern, strategy_type, config) VALUES ('x%', 'burst', '{\"burst_size\": \"1\"}'), ('y%', 'burst', '{}')";
    assert_eq!(blamed(&mut world, two), "'{}')");
    assert_eq!(world.state.strategy_count(), 1, "a row that is refused takes the others with it");
    assert_eq!(blamed(&mut world, "DELETE FROM mz_scaling_strategies WHERE nmae = 'x'"), "nmae = 'x'");
    assert_eq!(blamed(&mut world, "UPDATE mz_scaling_strategies SET cofnig = '{}'"), "cofnig = '{}'");
}

#[test]
fn only_three_tables_can_be_written_to() {
    let mut world = world();
    refused(&mut world, "DELETE FROM mz_clusters", "42809", "cannot be written to");
    refused(&mut world, "UPDATE loadline.settings SET value = '1'", "42809", "cannot be written to");
    refused(&mut world, "DELETE FROM nowhere", "42P01", "does not exist");
    refused(
        &mut world,
        "INSERT INTO mz_scaling_actions (action_id) VALUES (1)",
        "42809",
        "settled ones can be deleted",
    );
    refused(&mut world, "UPDATE mz_scaling_actions SET executed = true", "42809", "settled ones can be deleted");
    refused(&mut world, "DELETE FROM mz_scaling_strategies_effective", "42809", "cannot be written to");
}

#[test]
fn a_change_by_somebody_else_between_the_reading_and_the_commit_is_detected() {
    let mut world = world();
    let update = "UPDATE mz_scaling_strategies SET config = config || '{\"size\": \"1\"}'";
    world.meanwhile = Some(somebody_alters(60));
    refused_with_40001(&mut world, update);
    assert_eq!(world.rows("SELECT config->>'size', config->>'cooldown_s' FROM mz_scaling_strategies"), ["200cc|60"]);
    world.meanwhile = Some(somebody_alters(70));
    refused_with_40001(&mut world, "DELETE FROM mz_scaling_strategies");
    world.run(update);
    assert_eq!(world.rows("SELECT config->>'size', config->>'cooldown_s' FROM mz_scaling_strategies"), ["1|70"]);
    // Another cluster has taken the name: its strategy is not meant.
    world.meanwhile = Some(vec![
        Command::RenameCluster { name: "shop".to_owned(), to: "old".to_owned(), etag: None },
        Command::CreateCluster { name: "shop".to_owned() },
        Command::CreateStrategy {
            target: TargetName::Cluster("shop".to_owned()),
            kind: StrategyKind::TargetSize,
            options: Options::default().with("size", "2"),
            if_not_exists: false,
            unchecked: false,
        },
    ]);
    refused_with_40001(&mut world, "DELETE FROM mz_scaling_strategies");
    assert_eq!(world.state.strategy_count(), 2);
}

#[track_caller]
fn refused_with_40001(world: &mut World, text: &str) {
    let error = world.try_run(text).expect_err(text);
    assert_eq!(error.sqlstate.0, "40001", "{text}: {error:?}");
}

#[test]
fn a_transaction_writes_rows_and_statements_as_one() {
    let mut world = world();
    world.run("BEGIN");
    world.run("CREATE CLUSTER fresh");
    world.run("ALTER SCALING STRATEGY FOR CLUSTER shop TYPE TARGET_SIZE UPDATE (COOLDOWN = '1m')");
    world.run("UPDATE mz_scaling_strategies SET config = config || '{\"size\": \"1\"}'");
    world.run("INSERT INTO mz_scaling_strategies (cluster_id, strategy_type, config) SELECT id, 'target_size', '{\"size\": \"2\"}' FROM mz_clusters WHERE name = 'fresh'");
    world.run("UPDATE mz_scaling_strategies SET enabled = false WHERE config->>'size' = '2'");
    let seen = "SELECT config->>'size', config->>'cooldown_s', enabled FROM mz_scaling_strategies ORDER BY id";
    assert_eq!(world.rows(seen), ["1|60|true", "2|-|false"], "the session sees what it did");
    let before = world.entries;
    world.run("COMMIT");
    assert_eq!(world.entries, before + 1);
    assert_eq!(world.rows(seen), ["1|60|true", "2|-|false"]);
}

#[test]
fn a_transaction_is_refused_at_the_commit_if_what_it_read_has_changed() {
    let mut world = world();
    world.run("BEGIN");
    world.run("ALTER SCALING STRATEGY FOR CLUSTER shop TYPE TARGET_SIZE UPDATE (COOLDOWN = '1m')");
    world.run("UPDATE mz_scaling_strategies SET config = config || '{\"size\": \"1\"}'");
    world.write(somebody_alters(99)).result.unwrap();
    refused_with_40001(&mut world, "COMMIT");
    assert_eq!(world.rows("SELECT config->>'size', config->>'cooldown_s' FROM mz_scaling_strategies"), ["200cc|99"]);
}

#[test]
fn what_is_given_for_the_times_of_a_row_is_not_used_and_a_notice_says_so() {
    let mut world = world();
    world.run(
        "INSERT INTO mz_scaling_strategies (strategy_type, config, created_at, updated_at)
         VALUES ('burst', '{\"burst_size\": \"1\"}', now() - interval '1 day', now())",
    );
    assert_eq!(world.notices.len(), 1, "{:?}", world.notices);
    assert_eq!(
        world.rows("SELECT created_at = now() FROM mz_scaling_strategies WHERE strategy_type = 'burst'"),
        ["true"]
    );
}

#[test]
fn what_a_strategy_remembers_is_forgotten_or_set() {
    let mut world = world();
    world.run("CREATE SCALING STRATEGY FOR CLUSTER shop TYPE IDLE_SUSPEND WITH (IDLE_AFTER = '1h')");
    world.run("CREATE SCALING STRATEGY FOR CLUSTER shop TYPE SHRINK_TO_FIT WITH (MAX_SIZE = '200cc')");
    let of = |kind: &str| {
        format!(
            "SELECT st.payload FROM mz_scaling_strategy_state st JOIN mz_scaling_strategies s ON s.id = st.strategy_id \
             WHERE s.strategy_type = '{kind}'"
        )
    };
    let set = |kind: &str, payload: &str| {
        format!(
            "UPDATE mz_scaling_strategy_state SET payload = {payload} FROM mz_scaling_strategies s \
             WHERE s.id = strategy_id AND s.strategy_type = '{kind}'"
        )
    };
    let suspended = "'{\"suspended\": [{\"name\": \"r2\", \"size\": \"2\"}, {\"name\": \"r1\", \"size\": \"1\"}]}'";
    assert_eq!(world.run(&set("idle_suspend", suspended)), [Answer::Written(1, vec![])]);
    let stored = "{\"suspended\": [{\"name\": \"r1\", \"size\": \"1\"}, {\"name\": \"r2\", \"size\": \"2\"}], \"last_change_at\": null}";
    assert_eq!(world.rows(&of("idle_suspend")), [stored]);
    let failed = "jsonb_build_object('failed_sizes', jsonb_build_array(jsonb_build_object('size', '1', 'at', now())), 'last_change_at', now())";
    world.run(&set("shrink_to_fit", failed));
    assert!(
        world.rows(&of("shrink_to_fit"))[0].contains("\"failed_sizes\": [{\"at\": "),
        "{:?}",
        world.rows(&of("shrink_to_fit"))
    );
    world.run(&set("shrink_to_fit", "payload - 'last_change_at'"));
    assert!(world.rows(&of("shrink_to_fit"))[0].contains("\"last_change_at\": null"));
    // A row that is deleted comes back empty: there is one for whatever it rules.
    assert_eq!(world.run("DELETE FROM mz_scaling_strategy_state"), [Answer::Written(3, vec![])]);
    assert_eq!(world.rows("SELECT DISTINCT payload FROM mz_scaling_strategy_state"), ["{\"last_change_at\": null}"]);
    let insert = "INSERT INTO mz_scaling_strategy_state (strategy_id, cluster_id, state_version, payload, updated_at)
         SELECT strategy_id, cluster_id, 1, jsonb_build_object('last_change_at', now()), now() FROM mz_scaling_strategy_state LIMIT 1";
    world.run(insert);
    assert_eq!(
        world.rows("SELECT count(*) FROM mz_scaling_strategy_state WHERE payload->>'last_change_at' IS NOT NULL"),
        ["1"]
    );
    refused(&mut world, insert, "23505", "remembers something");

    refused(&mut world, &set("target_size", suspended), "22023", "suspended is what idle_suspend remembers");
    refused(
        &mut world,
        &set("idle_suspend", "'{\"suspended\": [{\"name\": \"r1\", \"size\": \"75cc\"}]}'"),
        "22023",
        "75cc",
    );
    refused(&mut world, &set("idle_suspend", "'{\"mood\": 1}'"), "22023", "nothing called \"mood\"");
    refused(&mut world, &set("idle_suspend", "'{\"last_change_at\": \"soon\"}'"), "22023", "not a time");
    refused(&mut world, &set("idle_suspend", "'{\"last_change_at\": \"2999-01-01 00:00:00+00\"}'"), "22023", "future");
    refused(&mut world, "UPDATE mz_scaling_strategy_state SET state_version = 2", "22023", "state_version is 1");
    refused(&mut world, "UPDATE mz_scaling_strategy_state SET cluster_id = 'c1.0'", "0A000", "cannot be changed");
}

#[test]
fn what_a_strategy_remembers_is_not_overwritten_unseen() {
    let mut world = world();
    let update = "UPDATE mz_scaling_strategy_state SET payload = jsonb_build_object('last_change_at', now())";
    world.run(update);
    let strategy = world.state.strategies().next().unwrap().id;
    let cluster = world.state.cluster("shop").unwrap().id;
    let expected = world.state.standing(cluster).unwrap().strategy_state(StrategyKind::TargetSize).cloned();
    world.meanwhile = Some(vec![Command::SetStrategyState { strategy, cluster, expected, state: None }]);
    refused_with_40001(
        &mut world,
        "UPDATE mz_scaling_strategy_state SET payload = payload || '{\"failed_sizes\": null}'::jsonb || jsonb_build_object('last_change_at', now() - interval '5 seconds')",
    );
}
