//! Values and errors as PostgreSQL's clients read them, in text and in binary.

use bytes::{BufMut as _, BytesMut};
use loadline_sql::tables::{Kind, OutputColumn, Value};
use loadline_sql::{SqlError, SqlState};
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldFormat, FieldInfo};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::data::DataRow;

/// Microseconds from 1970, which we count from, to 2000, which PostgreSQL does.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// What a client is told about the columns of an answer.
pub(super) fn fields(columns: &[OutputColumn], format: &Format) -> Result<Vec<FieldInfo>, SqlError> {
    let field = |(place, column): (usize, &OutputColumn)| {
        let format = format_of(format, place, columns.len())?;
        let field = FieldInfo::new(column.name.clone(), None, None, type_of(column.kind), format);
        Ok(field.with_type_size(i16::try_from(column.kind.length()).unwrap_or(-1)))
    };
    columns.iter().enumerate().map(field).collect()
}

pub(super) fn type_of(kind: Kind) -> Type {
    Type::from_oid(kind.oid()).unwrap_or(Type::TEXT)
}

/// The format of one of so many; an error if the client named formats for another number of them.
pub(super) fn format_of(format: &Format, place: usize, count: usize) -> Result<FieldFormat, SqlError> {
    match format {
        Format::UnifiedText => Ok(FieldFormat::Text),
        Format::UnifiedBinary => Ok(FieldFormat::Binary),
        Format::Individual(codes) => match codes.get(place) {
            Some(code) if codes.len() == count => Ok(FieldFormat::from(*code)),
            _ => {
                let message = format!("{} formats were given for {count} values", codes.len());
                Err(SqlError::new(SqlState("08P01"), message))
            }
        },
    }
}

pub(super) fn row(values: &[Value], fields: &[FieldInfo], columns: &[OutputColumn]) -> DataRow {
    let mut data = BytesMut::with_capacity(values.len() * 16);
    for ((value, field), column) in values.iter().zip(fields).zip(columns) {
        let start = data.len();
        data.put_i32(-1);
        let is_null = match field.format() {
            FieldFormat::Text => text(value, &mut data),
            FieldFormat::Binary => binary(value, column.kind, &mut data),
        };
        if !is_null {
            let length = i32::try_from(data.len() - start - 4).unwrap_or(i32::MAX);
            data[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    DataRow::new(data, i16::try_from(values.len()).unwrap_or(i16::MAX))
}

/// True for a null.
fn text(value: &Value, out: &mut BytesMut) -> bool {
    match value {
        Value::Null => return true,
        Value::Bool(value) => out.put_slice(if *value { b"t" } else { b"f" }),
        Value::Int(value) => out.put_slice(value.to_string().as_bytes()),
        Value::Float(value) => out.put_slice(value.to_string().as_bytes()),
        Value::Text(value) => out.put_slice(value.as_bytes()),
    }
    false
}

/// True for a null, and for what cannot be written in this kind.
#[allow(clippy::cast_possible_truncation)] // A value beyond its kind's range is cut, as SQLite has no ranges.
fn binary(value: &Value, kind: Kind, out: &mut BytesMut) -> bool {
    match (kind, value) {
        (_, Value::Null) => return true,
        (Kind::Bool, Value::Bool(value)) => out.put_u8((*value).into()),
        (Kind::Int2, Value::Int(value)) => out.put_i16(*value as i16),
        (Kind::Int4, Value::Int(value)) => out.put_i32(*value as i32),
        (Kind::Oid, Value::Int(value)) => out.put_u32(u32::try_from(*value).unwrap_or(0)),
        (Kind::Int8, Value::Int(value)) => out.put_i64(*value),
        (Kind::Float8, Value::Float(value)) => out.put_f64(*value),
        (Kind::Timestamptz, Value::Text(value)) => match loadline_sql::tables::value::timestamp_of(value) {
            Some(micros) => out.put_i64(micros - EPOCH_MICROS),
            None => return true,
        },
        (Kind::Interval, Value::Text(value)) => match loadline_sql::tables::value::interval_of(value) {
            Some(micros) => {
                out.put_i64(micros);
                out.put_i32(0);
                out.put_i32(0);
            }
            None => return true,
        },
        (Kind::Jsonb, Value::Text(value)) => {
            out.put_u8(1);
            out.put_slice(value.as_bytes());
        }
        (Kind::TextArray | Kind::OidArray | Kind::Int2Array, Value::Text(value)) => array(value, kind, out),
        (_, other) => return text(other, out),
    }
    false
}

fn array(value: &str, kind: Kind, out: &mut BytesMut) {
    let items = loadline_sql::tables::value::items_of(value);
    let element = match kind {
        Kind::OidArray => Kind::Oid,
        Kind::Int2Array => Kind::Int2,
        _ => Kind::Text,
    };
    let nulls = items.iter().any(Option::is_none);
    out.put_i32(i32::from(!items.is_empty()));
    out.put_i32(nulls.into());
    out.put_u32(element.oid());
    if !items.is_empty() {
        out.put_i32(i32::try_from(items.len()).unwrap_or(i32::MAX));
        out.put_i32(1);
    }
    for item in items {
        let value = match (item, element) {
            (None, _) => Value::Null,
            (Some(item), Kind::Text) => Value::Text(item),
            (Some(item), _) => item.parse().map_or(Value::Null, Value::Int),
        };
        let start = out.len();
        out.put_i32(-1);
        if !binary(&value, element, out) {
            let length = i32::try_from(out.len() - start - 4).unwrap_or(i32::MAX);
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
}

/// A parameter as the client sent it.
pub(super) fn parameter(
    bytes: Option<&[u8]>,
    kind: Kind,
    format: FieldFormat,
    number: usize,
) -> Result<Value, SqlError> {
    let Some(bytes) = bytes else { return Ok(Value::Null) };
    let wrong = || {
        let message = format!("parameter ${number} is no value of type {}", kind.sql_name());
        SqlError::new(SqlState("22P03"), message)
    };
    let utf8 = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| SqlError::new(SqlState("22021"), format!("parameter ${number} is not valid UTF-8")))?;
        if text.contains('\0') {
            let message = format!("parameter ${number} holds a NUL, which no text can");
            return Err(SqlError::new(SqlState("22021"), message));
        }
        Ok(text.to_owned())
    };
    if format == FieldFormat::Text {
        let text = utf8(bytes)?;
        return Ok(match kind {
            Kind::Bool => match text.to_ascii_lowercase().as_str() {
                "t" | "true" | "1" | "yes" | "on" => Value::Bool(true),
                "f" | "false" | "0" | "no" | "off" => Value::Bool(false),
                _ => return Err(wrong()),
            },
            Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Oid => Value::Int(text.trim().parse().map_err(|_| wrong())?),
            Kind::Float8 => Value::Float(text.trim().parse().map_err(|_| wrong())?),
            Kind::Timestamptz => moment(&text).ok_or_else(wrong)?,
            _ => Value::Text(text),
        });
    }
    Ok(match (kind, bytes) {
        (Kind::Bool, [byte]) => Value::Bool(*byte != 0),
        (Kind::Int2 | Kind::Int4 | Kind::Int8, _) => Value::Int(integer(bytes).ok_or_else(wrong)?),
        (Kind::Oid, _) => Value::Int(u32::from_be_bytes(bytes.try_into().map_err(|_| wrong())?).into()),
        (Kind::Float8, _) => match bytes.len() {
            8 => Value::Float(f64::from_be_bytes(bytes.try_into().map_err(|_| wrong())?)),
            4 => Value::Float(f32::from_be_bytes(bytes.try_into().map_err(|_| wrong())?).into()),
            _ => return Err(wrong()),
        },
        (Kind::Timestamptz, _) => {
            let micros = i64::from_be_bytes(bytes.try_into().map_err(|_| wrong())?);
            let micros = micros.checked_add(EPOCH_MICROS).ok_or_else(wrong)?;
            Value::Text(loadline_sql::tables::value::timestamp_text(micros))
        }
        (Kind::Interval, _) => {
            let (micros, rest) = bytes.split_at_checked(8).ok_or_else(wrong)?;
            let micros = i64::from_be_bytes(micros.try_into().map_err(|_| wrong())?);
            let days =
                rest.get(..4).and_then(integer).unwrap_or(0) + 30 * rest.get(4..8).and_then(integer).unwrap_or(0);
            let whole = days.checked_mul(86_400_000_000).and_then(|it| it.checked_add(micros)).ok_or_else(wrong)?;
            Value::Text(format!("{whole} us"))
        }
        (Kind::Jsonb, [1, rest @ ..]) => Value::Text(utf8(rest)?),
        (Kind::TextArray | Kind::OidArray | Kind::Int2Array, _) => {
            Value::Text(array_parameter(bytes).ok_or_else(wrong)?)
        }
        _ => Value::Text(utf8(bytes)?),
    })
}

fn moment(text: &str) -> Option<Value> {
    let micros = loadline_sql::tables::value::timestamp_of(text)?;
    Some(Value::Text(loadline_sql::tables::value::timestamp_text(micros)))
}

fn integer(bytes: &[u8]) -> Option<i64> {
    match bytes.len() {
        2 => Some(i16::from_be_bytes(bytes.try_into().ok()?).into()),
        4 => Some(i32::from_be_bytes(bytes.try_into().ok()?).into()),
        8 => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// One dimension, of texts or whole numbers.
fn array_parameter(bytes: &[u8]) -> Option<String> {
    let word = |at: usize| integer(bytes.get(at..at + 4)?);
    let (dimensions, element) = (word(0)?, word(8)?);
    if dimensions == 0 {
        return Some("{}".to_owned());
    }
    if dimensions != 1 {
        return None;
    }
    let count = usize::try_from(word(12)?).ok()?;
    let mut at = 20;
    let mut items = Vec::new();
    for _ in 0..count {
        let length = word(at)?;
        at += 4;
        if length < 0 {
            items.push(None);
            continue;
        }
        let item = bytes.get(at..at + usize::try_from(length).ok()?)?;
        at += item.len();
        items.push(Some(match element {
            20 | 21 | 23 | 26 => integer(item)?.to_string(),
            _ => std::str::from_utf8(item).ok()?.to_owned(),
        }));
    }
    Some(loadline_sql::tables::value::array_of(items))
}

/// What psql shows of an error, the caret included.
pub(super) fn error(error: SqlError) -> PgWireError {
    let mut info = ErrorInfo::new("ERROR".to_owned(), error.sqlstate.0.to_owned(), error.message);
    info.hint = error.hint;
    info.position = error.position.map(|position| position.to_string());
    info.severity_nonlocalized = Some("ERROR".to_owned());
    PgWireError::UserError(Box::new(info))
}

/// One after which the connection ends.
pub(super) fn fatal(code: &str, message: String, hint: Option<String>) -> PgWireError {
    let mut info = ErrorInfo::new("FATAL".to_owned(), code.to_owned(), message);
    info.hint = hint;
    info.severity_nonlocalized = Some("FATAL".to_owned());
    PgWireError::UserError(Box::new(info))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(value: &Value, kind: Kind, format: FieldFormat) -> Vec<u8> {
        let column = OutputColumn { name: "x".to_owned(), kind };
        let format = if format == FieldFormat::Binary { Format::UnifiedBinary } else { Format::UnifiedText };
        let fields = fields(std::slice::from_ref(&column), &format).unwrap();
        row(std::slice::from_ref(value), &fields, std::slice::from_ref(&column)).data.to_vec()
    }

    #[test]
    fn what_is_sent_in_binary_is_read_back() {
        let values = [
            (Kind::Bool, Value::Bool(true)),
            (Kind::Int8, Value::Int(-7)),
            (Kind::Int4, Value::Int(7)),
            (Kind::Float8, Value::Float(1.5)),
            (Kind::Text, Value::from("é")),
            (Kind::Jsonb, Value::from("{\"a\": 1}")),
            (Kind::Timestamptz, Value::from("2026-11-16 10:00:00.5+00")),
            (Kind::TextArray, Value::from("{a,NULL,\"b c\"}")),
            (Kind::OidArray, Value::from("{1,2}")),
        ];
        for (kind, value) in values {
            for format in [FieldFormat::Binary, FieldFormat::Text] {
                let bytes = sent(&value, kind, format);
                assert_eq!(i32::from_be_bytes(bytes[..4].try_into().unwrap()), i32::try_from(bytes.len() - 4).unwrap());
                assert_eq!(parameter(Some(&bytes[4..]), kind, format, 1), Ok(value.clone()), "{kind:?} {format:?}");
            }
        }
        assert_eq!(sent(&Value::Null, Kind::Int8, FieldFormat::Binary), (-1_i32).to_be_bytes());
    }

    #[test]
    fn nonsense_from_a_client_is_an_error_and_no_panic() {
        for kind in Kind::ALL {
            for bytes in
                [&b""[..], b"\x00", b"\xff\xfe", b"\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x19\x7f\xff\xff\xff"]
            {
                for format in [FieldFormat::Binary, FieldFormat::Text] {
                    let _ = parameter(Some(bytes), *kind, format, 1);
                }
            }
        }
        let code = |bytes: &[u8]| parameter(Some(bytes), Kind::Text, FieldFormat::Text, 1).unwrap_err().sqlstate.0;
        assert_eq!((code(b"a\0b"), code(b"\xff")), ("22021", "22021"));
        let format = Format::Individual(vec![0, 1]);
        assert_eq!(format_of(&format, 0, 3).unwrap_err().sqlstate.0, "08P01");
    }
}
