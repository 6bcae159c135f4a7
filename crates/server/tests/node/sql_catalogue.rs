//! What psql sends for its own commands, and what other tools ask of a catalogue: all of it is answered.
//!
//! The questions are data, in `tests/sql/`. That the answers are right is for `sql`, `sql_logic`, and the tests of the tables.

use crate::common::{Node, create_cluster, create_size, set};
use crate::sql_clients::connect;

const PSQL_15: &str = include_str!("../sql/psql_15.txt");
const TOOLS: &str = include_str!("../sql/tools.txt");

/// The questions of a file, each with what it is asked for.
fn questions(text: &str) -> Vec<(&str, String)> {
    let (mut found, mut purpose, mut lines) = (Vec::new(), "", Vec::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("== ") {
            Some(next) => purpose = next,
            None if line == ";" => found.push((purpose, std::mem::take(&mut lines).join("\n"))),
            None if line.is_empty() && lines.is_empty() => {}
            None => lines.push(line),
        }
    }
    assert!(lines.is_empty(), "a question has no end: {lines:?}");
    found
}

async fn all_are_answered(text: &str, at_least: usize) {
    let node = Node::alone_with_sql(|_| ()).await;
    node.admin().create_size(create_size("100cc", 1)).await.unwrap();
    node.admin().create_cluster(create_cluster("demo")).await.unwrap();
    node.admin().set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    let client = connect(node.pg.unwrap()).await;
    let table = "SELECT 'mz_internal.mz_scaling_strategies'::regclass::oid";
    let oid: u32 = client.query_one(table, &[]).await.unwrap().get(0);
    let questions = questions(text);
    assert!(questions.len() >= at_least, "{} questions", questions.len());
    let mut wrong = Vec::new();
    for (purpose, question) in questions {
        let question = question.replace("{oid}", &oid.to_string());
        if let Err(error) = client.simple_query(&question).await {
            wrong.push(format!("{purpose}: {error:?}\n{question}"));
        }
        // Drivers prepare what psql just sends; a statement that has rows says so before it is carried out.
        if let Err(error) = client.prepare(&question).await {
            wrong.push(format!("{purpose}, prepared: {error:?}\n{question}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_psql_sends_for_its_commands_is_answered() {
    all_are_answered(PSQL_15, 90).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_tools_ask_of_the_catalogue_is_answered() {
    all_are_answered(TOOLS, 40).await;
}
