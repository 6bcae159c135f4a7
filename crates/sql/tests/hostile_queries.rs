//! Any query, however odd, comes to an end with rows or with an error that has a state: no panic, and nothing that is written.
//!
//! Pieces of queries are put together at random. Most of what comes out is refused; what is not is carried out on an empty state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use loadline_sql::tables::{Budget, Limits, NoPast, SessionFacts, Source, query};
use loadline_sql::{Statement, parse};
use loadline_state_machine::State;
use proptest::prelude::*;

const LIMITS: Limits = Limits { rows_max: 1_000, bytes_max: 1 << 20 };
/// A query of this size that takes longer is not made to end by its time: it should have been refused.
const PATIENCE: Duration = Duration::from_secs(20);

fn source() -> Arc<Source> {
    let deadline = Some(Instant::now() + Duration::from_millis(500));
    Arc::new(Source {
        state: Arc::new(State::new()),
        past: Arc::new(NoPast),
        nodes: Vec::new(),
        session: SessionFacts::default(),
        budget: Budget { deadline, ..Budget::default() },
    })
}

fn word(words: &'static str) -> impl Strategy<Value = String> {
    prop::sample::select(words.split('\n').map(str::to_owned).collect::<Vec<_>>())
}

/// A value, of whatever kind.
fn atom() -> impl Strategy<Value = String> {
    word(
        "1\n-9223372036854775808\n9223372036854775807\n1.5e308\n''\n'x'\n'%'\nE'\\\\'\nNULL\ntrue\nname\nid\nslots\nc.name\n\
         config\ncreated_at\nnow()\nloadline_index()\n'{\"a\": [1, null]}'::jsonb\n'{a,b}'::text[]\nARRAY[1, 2]\nARRAY[]::text[]\n\
         interval '1 day'\n'2026-11-16'::timestamptz\n'infinity'::timestamptz\n'nonsense'::int8\ncurrent_user\n$1\n\
         current_setting('search_path')\n*\n(SELECT 1)\n(SELECT name FROM clusters)\nrow_number() OVER ()",
    )
}

fn expression() -> impl Strategy<Value = String> {
    atom().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), word("+\n-\n*\n/\n%\n||\n=\n<>\n<\nAND\nOR\nLIKE\nILIKE\n~\n!~\n->\n->>\n@>\n#>>\nIS DISTINCT FROM"), inner.clone())
                .prop_map(|(left, operator, right)| format!("({left} {operator} {right})")),
            (word("lower\nlength\nabs\ncoalesce\ncount\nsum\navg\nmin\narray_agg\njsonb_agg\nstring_agg\nto_timestamp\ndate_trunc\n\
                   left\nrepeat\nsplit_part\nformat\nregexp_replace\npg_get_viewdef\nformat_type\nto_jsonb\nnullif\ngreatest"),
             prop::collection::vec(inner.clone(), 0..4))
                .prop_map(|(function, arguments)| format!("{function}({})", arguments.join(", "))),
            (inner.clone(), word("int8\ntext\nbool\nfloat8\njsonb\ntimestamptz\ninterval\ntext[]\nregclass\nvarchar(3)\nnonsense"))
                .prop_map(|(inner, kind)| format!("{inner}::{kind}")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(when, then, otherwise)| format!("CASE WHEN {when} THEN {then} ELSE {otherwise} END")),
            // In parentheses: sqlparser prints "a = ANY ((SELECT 1)) + 1" as another expression, which has no meaning either.
            (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("({left} = ANY ({right}))")),
            inner.prop_map(|inner| format!("NOT ({inner}) IS NULL")),
        ]
    })
}

fn relation() -> impl Strategy<Value = String> {
    word(
        "clusters c\nloadline.sizes\nmz_internal.mz_scaling_actions c\nmz_scaling_strategies\nevents\nsettings c\nnodes\n\
         pg_catalog.pg_class c\ninformation_schema.columns\ngenerate_series(1, 3) AS name\ngenerate_series(1, 9223372036854775807) AS n\n\
         (VALUES (1, 'x'), (2, NULL)) AS c(id, name)\n(SELECT 1 AS name) AS c\nclusters c JOIN sizes s ON c.name = s.name\n\
         clusters c LEFT JOIN sizes s USING (name)\nclusters a, clusters c\nnowhere\n\"quo\"\"ted\"",
    )
}

fn select() -> impl Strategy<Value = String> {
    let tail = word(
        "\nWHERE false\nGROUP BY 1\nGROUP BY name HAVING count(*) > 0\nORDER BY 1 DESC NULLS FIRST\nLIMIT 1 OFFSET 1\nUNION SELECT 1\n\
                     EXCEPT SELECT 'x'\nORDER BY name LIMIT 0\nFOR UPDATE\n;",
    );
    let head = word("SELECT\nSELECT DISTINCT\nSELECT ALL\nWITH t AS (SELECT 1) SELECT\nSELECT DISTINCT ON (name)");
    (
        head,
        prop::collection::vec(expression(), 1..4),
        prop::option::of(relation()),
        prop::option::of(expression()),
        tail,
    )
        .prop_map(|(head, columns, from, condition, tail)| {
            let from = from.map(|from| format!(" FROM {from}")).unwrap_or_default();
            let condition = match tail.starts_with("WHERE") {
                true => String::new(),
                false => condition.map(|it| format!(" WHERE {it}")).unwrap_or_default(),
            };
            format!("{head} {}{from}{condition} {tail}", columns.join(", "))
        })
}

fn comes_to_an_end(text: &str) -> Result<(), TestCaseError> {
    let Ok(statements) = parse(text) else { return Ok(()) };
    let began = Instant::now();
    for parsed in statements {
        let Statement::Query(tree) = &parsed.statement else { continue };
        let source = source();
        let parameters = [loadline_sql::tables::Value::from("x")];
        let answered = query::prepare(tree, text, &source.session.search_path).and_then(|prepared| {
            let given = &parameters[..prepared.parameters.len().min(1)];
            prepared.run(&source, given, LIMITS)
        });
        match answered {
            Ok(answer) => prop_assert!(answer.rows.len() <= LIMITS.rows_max, "{text}"),
            Err(error) => prop_assert!(error.sqlstate.0.len() == 5 && !error.message.is_empty(), "{text}: {error:?}"),
        }
    }
    prop_assert!(began.elapsed() < PATIENCE, "{text} took {:?}", began.elapsed());
    Ok(())
}

/// Everything that reaches SQLite is printed first.
fn is_printed_as_itself(text: &str) -> Result<(), TestCaseError> {
    let Ok(statements) = parse(text) else { return Ok(()) };
    for parsed in statements {
        let printed = parsed.statement.to_string();
        match parse(&printed) {
            Ok(again) => prop_assert_eq!(again[0].statement.to_string(), printed, "{}", text),
            Err(error) => prop_assert!(false, "{text} is printed as {printed}, which is refused: {error:?}"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn any_query_is_printed_as_itself_and_ends_with_rows_or_with_an_error(text in select()) {
        is_printed_as_itself(&text)?;
        comes_to_an_end(&text)?;
    }

    /// One with a character gone, added or changed.
    #[test]
    fn a_query_with_a_slip_ends_with_rows_or_with_an_error(text in select(), place in 0_usize..120, slip in any::<Option<char>>()) {
        let mut characters: Vec<char> = text.chars().collect();
        let place = place.min(characters.len());
        match slip {
            Some(slip) => characters.insert(place, slip),
            None if place < characters.len() => { characters.remove(place); }
            None => {}
        }
        comes_to_an_end(&characters.into_iter().collect::<String>())?;
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        comes_to_an_end(&String::from_utf8_lossy(&bytes))?;
    }
}
