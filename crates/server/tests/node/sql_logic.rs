//! The files of `tests/sql/logic`, through a real connection, with the types of the columns.

use std::path::Path;

use async_trait::async_trait;
use sqllogictest::{AsyncDB, ColumnType, DBOutput, Runner};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::common::{Node, create_size, set};
use crate::sql_clients::connect;

/// What is written as one letter above the rows that are expected.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column(char);

impl ColumnType for Column {
    fn from_char(letter: char) -> Option<Column> {
        "TIRBJZ?".contains(letter).then_some(Column(letter))
    }

    fn to_char(&self) -> char {
        self.0
    }
}

impl Column {
    fn of(kind: &Type) -> Column {
        Column(match *kind {
            Type::TEXT | Type::NAME | Type::VARCHAR => 'T',
            Type::INT8 | Type::INT4 => 'I',
            Type::FLOAT8 | Type::NUMERIC => 'R',
            Type::BOOL => 'B',
            Type::JSONB => 'J',
            Type::TIMESTAMPTZ => 'Z',
            _ => '?',
        })
    }
}

struct Connected(Client);

/// An error as a person reads it: with its hint.
#[derive(Debug)]
struct Refused {
    code: Option<String>,
    text: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refused {}

impl From<tokio_postgres::Error> for Refused {
    fn from(error: tokio_postgres::Error) -> Refused {
        let code = error.code().map(|code| code.code().to_owned());
        let text = match error.as_db_error() {
            Some(said) => format!("{} ({})", said.message(), said.hint().unwrap_or_default()),
            None => error.to_string(),
        };
        Refused { code, text }
    }
}

#[async_trait]
impl AsyncDB for Connected {
    type Error = Refused;
    type ColumnType = Column;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<Column>, Refused> {
        let messages = self.0.simple_query(sql).await?;
        let (mut rows, mut affected, mut has_rows) = (Vec::new(), 0, false);
        for message in &messages {
            match message {
                SimpleQueryMessage::RowDescription(_) => has_rows = true,
                SimpleQueryMessage::Row(row) => rows.push(
                    (0..row.len())
                        .map(|place| match row.get(place) {
                            None => "NULL".to_owned(),
                            Some("") => "(empty)".to_owned(),
                            Some(text) => text.to_owned(),
                        })
                        .collect(),
                ),
                SimpleQueryMessage::CommandComplete(count) => affected = *count,
                _ => {}
            }
        }
        if !has_rows {
            return Ok(DBOutput::StatementComplete(affected));
        }
        // What is sent as text says nothing about types; what is prepared does.
        let prepared = self.0.prepare(sql).await?;
        Ok(DBOutput::Rows { types: prepared.columns().iter().map(|column| Column::of(column.type_())).collect(), rows })
    }

    async fn shutdown(&mut self) {}

    fn error_sql_state(error: &Refused) -> Option<String> {
        error.code.clone()
    }
}

async fn holds(name: &str) {
    let node = Node::alone_with_sql(|_| ()).await;
    node.admin().create_size(create_size("100cc", 1)).await.unwrap();
    node.admin().create_size(create_size("200cc", 2)).await.unwrap();
    node.admin().set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    let sql = node.pg.unwrap();
    let mut runner = Runner::new(move || async move { Ok(Connected(connect(sql).await)) });
    runner.with_column_validator(sqllogictest::strict_column_validator);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql/logic").join(name);
    if let Err(error) = runner.run_file_async(&path).await {
        panic!("{}", error.display(false));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statements_do_what_they_say() {
    holds("statements.slt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_can_be_asked() {
    holds("tables.slt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_are_answered_as_postgresql_would() {
    holds("queries.slt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told_apart() {
    holds("errors.slt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_are_whole() {
    holds("transactions.slt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_past_can_be_read() {
    holds("past.slt").await;
}
