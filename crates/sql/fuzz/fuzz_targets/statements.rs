//! Any bytes: they are read or refused, what is a statement of ours is printed as itself, and a query is prepared and carried out on an empty
//! state, or refused. A panic, an endless loop or a printed text that is another statement is a find.

#![no_main]

use std::sync::Arc;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use loadline_sql::tables::{Budget, Limits, NoPast, SessionFacts, Source, query};
use loadline_sql::{Statement, parse};
use loadline_state_machine::State;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let Ok(statements) = parse(&text) else { return };
    for parsed in statements {
        let printed = parsed.statement.to_string();
        if !matches!(parsed.statement, Statement::Query(_) | Statement::Write(_)) {
            let again = parse(&printed).unwrap_or_else(|error| panic!("{printed} is refused: {error:?}"));
            assert_eq!(again.len(), 1, "{printed}");
            assert_eq!(again[0].statement, parsed.statement, "{printed}");
        }
        if let Statement::Query(tree) = &parsed.statement {
            let deadline = Some(Instant::now() + Duration::from_millis(500));
            let source = Arc::new(Source {
                state: Arc::new(State::new()),
                past: Arc::new(NoPast),
                nodes: Vec::new(),
                session: SessionFacts::default(),
                budget: Budget { deadline, ..Budget::default() },
            });
            let limits = Limits { rows_max: 1_000, bytes_max: 1 << 20 };
            let _ = query::prepare(tree, &text, &source.session.search_path)
                .and_then(|prepared| prepared.run(&source, &[], limits));
        }
    }
});
