//! What came back from statements: rows in the format that was asked for, and errors as psql shows them.

use serde_json::{Map, Value};
use tokio_postgres::SimpleQueryMessage;

use crate::exit::{Exit, Failed};
use crate::output::{Format, Lines, csv_line, json_line, pretty, yaml_documents};

/// The rows of one statement; none at all for one that has no columns.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    columns: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
    affected: u64,
}

pub(super) fn of(messages: Vec<SimpleQueryMessage>) -> Vec<Answer> {
    let (mut answers, mut now) = (Vec::new(), Answer::default());
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                now.columns = columns.iter().map(|column| column.name().to_owned()).collect();
            }
            SimpleQueryMessage::Row(row) => {
                now.rows.push((0..row.len()).map(|place| row.get(place).map(str::to_owned)).collect());
            }
            SimpleQueryMessage::CommandComplete(affected) => {
                answers.push(Answer { affected, ..std::mem::take(&mut now) });
            }
            _ => {}
        }
    }
    answers
}

impl Answer {
    pub(super) fn shown(&self, format: Format) -> Result<String, Failed> {
        if self.columns.is_empty() {
            return Ok(match format {
                Format::Table | Format::Wide | Format::Sql if self.affected > 0 => {
                    format!("OK, {} rows\n", self.affected)
                }
                Format::Table | Format::Wide | Format::Sql => "OK\n".to_owned(),
                Format::Json => pretty(&self.objects())?,
                _ => String::new(),
            });
        }
        Ok(match format {
            Format::Table | Format::Wide | Format::Sql => self.table(),
            Format::Json => pretty(&self.objects())?,
            Format::Jsonl => self.objects().iter().map(json_line).collect::<Result<_, _>>()?,
            Format::Yaml => yaml_documents(&self.objects())?,
            Format::Name => self.rows.iter().map(|row| cell(row.first()) + "\n").collect(),
            Format::Csv => {
                let rows = self.rows.iter().map(|row| csv_line(&cells(row))).collect::<Result<String, _>>()?;
                csv_line(&self.columns)? + &rows
            }
        })
    }

    fn table(&self) -> String {
        let header: Vec<String> = self.columns.iter().map(|column| column.to_uppercase()).collect();
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| cells(row)).collect();
        let (lines, first) = Lines::new(&header, &rows);
        first + &rows.iter().map(|row| lines.line(row)).collect::<String>()
    }

    /// The protocol brings texts; what is none in JSON is said by the column, and that is not known here.
    fn objects(&self) -> Vec<Map<String, Value>> {
        let value = |cell: &Option<String>| cell.clone().map_or(Value::Null, Value::String);
        let object = |row: &Vec<Option<String>>| self.columns.iter().cloned().zip(row.iter().map(value)).collect();
        self.rows.iter().map(object).collect()
    }
}

fn cell(cell: Option<&Option<String>>) -> String {
    cell.cloned().flatten().unwrap_or_default()
}

fn cells(row: &[Option<String>]) -> Vec<String> {
    row.iter().map(|it| it.clone().unwrap_or_default()).collect()
}

/// An error of the node, with the line it is about.
pub(super) fn failed(text: &str, error: &tokio_postgres::Error) -> Failed {
    use tokio_postgres::error::ErrorPosition;
    let Some(said) = error.as_db_error() else {
        return Failed::new(Exit::Unavailable, format!("the connection broke: {error}"))
            .hint("what was asked may have been done: look before you repeat it");
    };
    let mut message = format!("{} ({})", said.message(), said.code().code());
    if let Some(ErrorPosition::Original(position)) = said.position() {
        message.push_str(&marked(text, usize::try_from(*position).unwrap_or(usize::MAX)));
    }
    let failed = Failed::new(exit(said.code().code()), message);
    match said.hint() {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

/// The line in which a character stands, and a caret under it.
fn marked(text: &str, position: usize) -> String {
    let before: Vec<char> = text.chars().take(position.saturating_sub(1)).collect();
    let number = before.iter().filter(|character| **character == '\n').count();
    let column = before.iter().rev().take_while(|character| **character != '\n').count();
    let head = format!("LINE {}: ", number + 1);
    let line = text.lines().nth(number).unwrap_or_default();
    format!("\n{head}{line}\n{:width$}^", "", width = head.len() + column)
}

/// What scripts tell apart, by the class of the error.
fn exit(code: &str) -> Exit {
    match code {
        "42704" | "42P01" | "23503" => Exit::NotFound,
        "42710" | "23505" | "40001" | "2BP01" | "55006" => Exit::Conflict,
        "42501" => Exit::Denied,
        "57014" => Exit::TimedOut,
        code if code.starts_with("28") => Exit::Denied,
        code if code.starts_with("57") || code.starts_with("53") || code.starts_with("08") => Exit::Unavailable,
        code if code.starts_with("42") || code.starts_with("22") => Exit::Usage,
        _ => Exit::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let rows = vec![vec![Some("a".to_owned()), None], vec![Some("b, c".to_owned()), Some("1".to_owned())]];
        Answer { columns: vec!["name".to_owned(), "size".to_owned()], rows, affected: 2 }
    }

    #[test]
    fn rows_are_shown_in_every_format() {
        for (format, expected) in [
            (Format::Table, "NAME   SIZE\na      -\nb, c   1\n"),
            (Format::Csv, "name,size\na,\n\"b, c\",1\n"),
            (Format::Jsonl, "{\"name\":\"a\",\"size\":null}\n{\"name\":\"b, c\",\"size\":\"1\"}\n"),
            (Format::Name, "a\nb, c\n"),
        ] {
            assert_eq!(answer().shown(format).as_deref(), Ok(expected), "{format:?}");
        }
        assert_eq!(Answer { affected: 2, ..Answer::default() }.shown(Format::Table).as_deref(), Ok("OK, 2 rows\n"));
    }

    #[test]
    fn a_mistake_is_marked_in_its_line() {
        assert_eq!(marked("SHOW x;\nDROP CLUSTR ä", 14), "\nLINE 2: DROP CLUSTR ä\n             ^");
        assert_eq!(marked("DROP", 5), "\nLINE 1: DROP\n            ^");
    }

    #[test]
    fn scripts_can_tell_errors_apart() {
        assert_eq!(exit("42704"), Exit::NotFound);
        assert_eq!(exit("40001"), Exit::Conflict);
        assert_eq!(exit("42601"), Exit::Usage);
        assert_eq!(exit("42501"), Exit::Denied);
        assert_eq!(exit("57P03"), Exit::Unavailable);
        assert_eq!(exit("XX000"), Exit::Failure);
    }
}
