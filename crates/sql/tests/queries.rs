//! Queries over a state that was made by its own commands.

use std::sync::Arc;

use loadline_sql::tables::{Answer, Budget, Limits, NoPast, NodeRow, SessionFacts, Source, Value, query};
use loadline_sql::{SqlError, Statement};
use loadline_state_machine::{
    Actor, Command, Entry, LogIndex, Options, Request, Sealed, State, StrategyKind, TargetName, Time, apply,
};

fn state() -> State {
    let cluster = |name: &str| Command::CreateCluster { name: name.to_owned() };
    let size =
        |name: &str, slots| Command::CreateSize { name: name.to_owned(), rank: None, slots, price_micros_per_hour: 5 };
    let strategy = |target, kind, options| Command::CreateStrategy {
        target,
        kind,
        options,
        if_not_exists: false,
        unchecked: false,
    };
    let on = Command::SetSetting { name: "enable_auto_scaling".to_owned(), value: "true".to_owned(), etag: None };
    let commands = vec![
        on,
        size("100cc", 1),
        size("200cc", 2),
        cluster("analytics"),
        cluster("its-DROP"),
        cluster("prod_a"),
        strategy(
            TargetName::Cluster("analytics".to_owned()),
            StrategyKind::TargetSize,
            Options::default().with("size", "200cc").with("cooldown_s", 60),
        ),
        strategy(
            TargetName::Pattern("prod_%".to_owned()),
            StrategyKind::IdleSuspend,
            Options::default().with("idle_after_s", 1800),
        ),
    ];
    let mut state = State::new();
    for (index, command) in (1..).zip(commands) {
        let request = Request { actor: Actor::new("test", "test"), request_id: None, commands: vec![command] };
        let stamped_at = Time::from_millis(1_793_318_400_000 + index * 1_000);
        let applied = apply(&mut state, LogIndex(index), &Sealed::seal(Entry { stamped_at, requests: vec![request] }));
        assert!(applied.receipts.iter().all(|receipt| receipt.result.is_ok()), "{:?}", applied.receipts);
    }
    state
}

fn source() -> Arc<Source> {
    let node = NodeRow { id: 1, name: "n1".to_owned(), address: "127.0.0.1:7700".to_owned(), ..NodeRow::default() };
    Arc::new(Source {
        state: Arc::new(state()),
        past: Arc::new(NoPast),
        nodes: vec![node],
        session: SessionFacts::default(),
        budget: Budget::default(),
    })
}

fn ask_with(sql: &str, parameters: &[Value], limits: Limits) -> Result<Answer, SqlError> {
    let source = source();
    let parsed = loadline_sql::parse(sql)?;
    let [parsed] = parsed.as_slice() else { panic!("one statement in {sql}") };
    let Statement::Query(tree) = &parsed.statement else { panic!("a query in {sql}") };
    let prepared = query::prepare(tree, sql, &source.session.search_path)?;
    prepared.run(&source, parameters, limits)
}

fn ask(sql: &str) -> Result<Answer, SqlError> {
    ask_with(sql, &[], Limits::default())
}

fn shown(answer: &Answer) -> String {
    let header =
        answer.columns.iter().map(|it| format!("{}:{}", it.name, it.kind.name())).collect::<Vec<_>>().join(" ");
    let value = |value: &Value| match value {
        Value::Null => "∅".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Text(text) => text.clone(),
    };
    let rows = answer.rows.iter().map(|row| row.iter().map(value).collect::<Vec<_>>().join("|"));
    std::iter::once(header).chain(rows).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check(sql: &str, expected: &str) {
    match ask(sql) {
        Ok(answer) => assert_eq!(shown(&answer), expected.trim(), "{sql}"),
        Err(error) => panic!("{sql}: {error:?}"),
    }
}

#[track_caller]
fn refused(sql: &str, code: &str, message: &str, position: Option<usize>) {
    let error = ask(sql).expect_err(sql);
    assert_eq!((error.sqlstate.0, error.message.as_str(), error.position), (code, message, position), "{sql}");
}

#[test]
fn tables_are_found_by_schema_and_by_search_path() {
    check("SELECT name FROM loadline.clusters ORDER BY name", "name:text\nanalytics\nits-DROP\nprod_a");
    check("SELECT c.name FROM clusters AS c WHERE name LIKE 'prod%'", "name:text\nprod_a");
    check("SELECT loadline.clusters.name FROM loadline.clusters LIMIT 1", "name:text\nanalytics");
    check(
        "TABLE sizes",
        "name:text rank:int8 slots:int8 price_micros_per_hour:int8 etag:text\n100cc|10|1|5|2.0\n200cc|20|2|5|3.0",
    );
    check(
        "SELECT strategy_type, config, enabled FROM mz_internal.mz_scaling_strategies ORDER BY created_at",
        "strategy_type:text config:jsonb enabled:bool\n\
         target_size|{\"size\": \"200cc\", \"cooldown_s\": 60, \"config_version\": 1}|true\n\
         idle_suspend|{\"idle_after_s\": 1800, \"config_version\": 1}|true",
    );
    check(
        "SELECT name, size FROM mz_cluster_replicas WHERE cluster_id = (SELECT id FROM mz_clusters WHERE name = 'analytics')",
        "name:text size:text",
    );
}

#[test]
fn a_pattern_strategy_is_effective_for_the_clusters_it_rules() {
    check(
        "SELECT c.name, e.strategy_type, e.state->>'last_change_at' AS changed
         FROM mz_internal.mz_scaling_strategies_effective e JOIN clusters c ON c.id = e.effective_cluster_id ORDER BY 1",
        "name:text strategy_type:text changed:text\nanalytics|target_size|∅\nprod_a|idle_suspend|∅",
    );
}

#[test]
fn select_has_joins_aggregates_windows_ctes_and_json() {
    check(
        "SELECT count(*), count(*) FILTER (WHERE enabled) AS on, max(created_at) FROM mz_internal.mz_scaling_strategies",
        "count:int8 on:int8 max:timestamptz\n2|2|2026-10-30 00:00:08+00",
    );
    check(
        "WITH s AS (SELECT cluster_id, config->>'size' AS size FROM mz_internal.mz_scaling_strategies)
         SELECT c.name, s.size, s.size IS NULL AS none FROM clusters c LEFT JOIN s ON s.cluster_id = c.id ORDER BY c.name",
        "name:text size:text none:bool\nanalytics|200cc|false\nits-DROP|∅|true\nprod_a|∅|true",
    );
    check(
        "SELECT name, row_number() OVER (ORDER BY name DESC) AS n FROM clusters ORDER BY n LIMIT 2",
        "name:text n:int8\nprod_a|1\nits-DROP|2",
    );
    check(
        "SELECT array_agg(name ORDER BY name), jsonb_agg(slots), string_agg(name, ',') FROM sizes",
        "array_agg:_text jsonb_agg:jsonb string_agg:text\n{100cc,200cc}|[1, 2]|100cc,200cc",
    );
    check(
        "SELECT config || '{\"size\": \"400cc\"}'::jsonb, config->'cooldown_s', config ? 'size', config @> '{\"size\": \"200cc\"}'
         FROM mz_internal.mz_scaling_strategies WHERE cluster_id IS NOT NULL",
        "?column?:jsonb ?column?:jsonb ?column?:bool ?column?:bool\n\
         {\"size\": \"400cc\", \"cooldown_s\": 60, \"config_version\": 1}|60|true|true",
    );
    check("SELECT n FROM generate_series(1, 3) AS n", "n:int8\n1\n2\n3");
    check("SELECT x FROM unnest(ARRAY['a','b']) AS t(x)", "x:text\na\nb");
    check("SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t(id, name) ORDER BY id DESC", "id:int4 name:text\n2|b\n1|a");
    check("(SELECT 1 AS a) UNION ALL (SELECT 2) ORDER BY a DESC", "a:int4\n2\n1");
    check("SELECT ARRAY(SELECT name FROM sizes ORDER BY rank)", "array:_text\n{100cc,200cc}");
    check(
        "SELECT 'b' = ANY(ARRAY['a','b']), 'c' = ANY('{a,b}'), 1 <> ALL('{2,3}')",
        "?column?:bool ?column?:bool ?column?:bool\ntrue|false|true",
    );
    check("SELECT name FROM clusters OFFSET 2", "name:text\nprod_a");
    check(
        "SELECT name FROM clusters ORDER BY backend NULLS FIRST, name FETCH FIRST 1 ROWS ONLY",
        "name:text\nanalytics",
    );
}

#[test]
fn values_are_those_of_postgresql() {
    check(
        "SELECT 7 / 2 AS i, 7 / 2.0 AS f, 'a' || 'b' AS t, NOT true AS b",
        "i:int4 f:float8 t:text b:bool\n3|3.5|ab|false",
    );
    check(
        "SELECT true::text, '5'::int + 1, 't'::bool, 3.7::int",
        "text:text ?column?:int4 bool:bool int4:int4\ntrue|6|true|4",
    );
    check(
        "SELECT 'ABC' LIKE 'abc', 'ABC' ILIKE 'abc', 'abc' ~ '^a.c$', 'abc' !~* 'B'",
        "?column?:bool ?column?:bool ?column?:bool ?column?:bool\nfalse|true|true|false",
    );
    check(
        "SELECT now() - interval '1 hour' AS before, extract(epoch from interval '1 day') AS s, date_trunc('day', now()) AS d",
        "before:timestamptz s:float8 d:timestamptz\n2026-10-29 23:00:08+00|86400.0|2026-10-30 00:00:00+00",
    );
    check(
        "SELECT coalesce(NULL, 5), nullif(1, 1), greatest(1, NULL, 3)",
        "coalesce:int4 nullif:int4 greatest:int4\n5|∅|3",
    );
    check("SELECT CASE WHEN 1 = 1 THEN 'x' END, E'a\\nb' AS e", "case:text e:text\nx|a\nb");
    check("SELECT created_at > '2026-10-30' AS later FROM clusters LIMIT 1", "later:bool\ntrue");
    check(
        "SELECT split_part('a.b.c', '.', 2), left('hello', 2), position('l' in 'hello')",
        "split_part:text left:text position:int4\nb|he|3",
    );
}

#[test]
fn a_null_is_the_largest_as_in_postgresql() {
    check("SELECT x FROM (VALUES (1), (NULL), (2)) AS t(x) ORDER BY x", "x:int4\n1\n2\n∅");
    check("SELECT x FROM (VALUES (1), (NULL), (2)) AS t(x) ORDER BY x DESC", "x:int4\n∅\n2\n1");
}

#[test]
fn a_mistake_has_a_code_and_a_place() {
    refused("SELECT 1 FROM nowhere", "42P01", "relation \"nowhere\" does not exist", Some(15));
    refused("SELECT name,\n nmae FROM clusters", "42703", "column \"nmae\" does not exist", Some(15));
    refused("SELECT frobnicate(1)", "42883", "function frobnicate() does not exist", Some(8));
    refused("SELECT id FROM clusters a, clusters b", "42702", "column reference \"id\" is ambiguous", Some(8));
    refused("SELECT 'x'::int", "22P02", "invalid input syntax for type integer: \"x\"", None);
    refused("SELECT 1 / 0", "22012", "division by zero", None);
    refused(
        "SELECT '{'::jsonb",
        "22P02",
        "invalid input syntax for type json: EOF while parsing an object at line 1 column 1",
        None,
    );
    refused("SELECT 1::nonsense", "42704", "type \"nonsense\" does not exist", None);
    refused("SELECT \"analytics\"", "42703", "column \"analytics\" does not exist", Some(9));
    assert_eq!(ask("SELECT * FROM clustrs").unwrap_err().hint.as_deref(), Some("Perhaps you meant loadline.clusters."));
}

/// The text is never pasted: it is a value or a name, whatever it holds.
#[test]
fn quotes_and_semicolons_in_names_and_values_do_nothing() {
    check("SELECT name FROM clusters WHERE name = 'its-DROP'", "name:text\nits-DROP");
    let evil = [
        "'; DROP TABLE clusters; --",
        "\" OR 1=1 --",
        "x' UNION SELECT name FROM clusters --",
        "\\'; --",
        "''; --",
        "a''b\\''c",
        "%",
        "$1",
        "?1",
    ];
    // Names that the printer of the tree would end too early.
    for name in ["SELECT 1 AS \"a\\\"\", 2 AS b --\"", "SELECT 1 AS \"a\"\"\"\"b\""] {
        assert_eq!(ask(name).unwrap_err().sqlstate.0, "0A000", "{name}");
    }
    for text in evil {
        let answer = ask_with("SELECT count(*) FROM clusters WHERE name = $1", &[Value::from(text)], Limits::default());
        assert_eq!(answer.unwrap().rows, [[Value::Int(0)]], "{text}");
        let literal = format!("SELECT {} AS v", loadline_sql::quote_literal(text));
        assert_eq!(ask(&literal).unwrap().rows, [[Value::from(text)]], "{text}");
        let name = format!("SELECT 1 AS \"{}\"", text.replace('"', "\"\""));
        assert_eq!(ask(&name).unwrap().columns[0].name, text);
        let table = format!("SELECT 1 FROM \"{}\"", text.replace('"', "\"\""));
        assert_eq!(ask(&table).unwrap_err().sqlstate.0, "42P01", "{text}");
    }
    // What SQLite has and we do not.
    for table in
        ["sqlite_master", "sqlite_schema", "pragma_table_info", "\"main\".sqlite_master", "dbstat", "json_each"]
    {
        assert_eq!(ask(&format!("SELECT * FROM {table}")).unwrap_err().sqlstate.0, "42P01", "{table}");
    }
    assert!(ask("SELECT load_extension('x')").is_err());
}

#[test]
fn an_answer_is_bounded_in_rows_and_in_time() {
    let few = Limits { rows_max: 10, ..Limits::default() };
    let error = ask_with("SELECT n FROM generate_series(1, 11) AS n", &[], few).unwrap_err();
    assert_eq!(error.sqlstate.0, "54000");
    assert_eq!(ask_with("SELECT n FROM generate_series(1, 10) AS n", &[], few).unwrap().rows.len(), 10);

    let sql = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t";
    let parsed = loadline_sql::parse(sql).unwrap();
    let Statement::Query(tree) = &parsed[0].statement else { panic!("a query") };
    let base = source();
    let deadline = Some(std::time::Instant::now() + std::time::Duration::from_millis(50));
    let budget = Budget { deadline, ..Budget::default() };
    let source = Arc::new(Source {
        state: Arc::clone(&base.state),
        past: Arc::new(NoPast),
        nodes: vec![],
        session: base.session.clone(),
        budget,
    });
    let prepared = query::prepare(tree, sql, &source.session.search_path).unwrap();
    let error = prepared.run(&source, &[], Limits::default()).unwrap_err();
    assert_eq!((error.sqlstate.0, error.message.as_str()), ("57014", "canceling statement due to statement timeout"));
}

#[test]
fn parameters_take_the_kind_of_what_they_meet() {
    let kinds = |sql: &str| {
        let parsed = loadline_sql::parse(sql).unwrap();
        let Statement::Query(tree) = &parsed[0].statement else { panic!("a query") };
        let prepared = query::prepare(tree, sql, &loadline_sql::tables::source::default_search_path()).unwrap();
        prepared.parameters.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(kinds("SELECT 1 FROM sizes WHERE rank > $1 AND name = $2 LIMIT $3"), "int8 text int8");
    assert_eq!(kinds("SELECT $2::bool, $1::timestamptz"), "timestamptz bool");
    assert_eq!(
        kinds("SELECT 1 FROM mz_internal.mz_scaling_strategies WHERE enabled = $1 AND created_at < $2"),
        "bool timestamptz"
    );
    assert_eq!(kinds("SELECT 1 FROM clusters WHERE id = ANY($1)"), "_text");
    assert_eq!(kinds("SELECT $1"), "text");
}
