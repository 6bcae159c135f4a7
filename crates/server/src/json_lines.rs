//! Log lines as JSON objects, one each: time, level, the fields of the event, and where it comes from.
//!
//! Like the subscriber's own, with one difference: a few fields are objects and lists, and stay what they are instead of
//! becoming text that a reader would have to parse once more.

use std::fmt;

use serde::ser::{SerializeMap as _, Serializer as _};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Fields whose text is JSON already.
const STRUCTURED: [&str; 3] = ["actions", "desired_replica_state", "old_replica_state"];

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = line(&time, event, &fields).map_err(|_| fmt::Error)?;
        writeln!(writer, "{line}")
    }
}

fn line(time: &str, event: &Event<'_>, fields: &Fields) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut bytes);
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("timestamp", time)?;
    map.serialize_entry("level", event.metadata().level().as_str())?;
    for (name, value) in &fields.0 {
        map.serialize_entry(name, value)?;
    }
    map.serialize_entry("target", event.metadata().target())?;
    map.end()?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[derive(Debug, Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, text: &str) {
        let parsed = STRUCTURED.contains(&field.name()).then(|| serde_json::from_str(text).ok()).flatten();
        self.0.push((field.name(), parsed.unwrap_or_else(|| Value::String(text.to_owned()))));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // What is shown with `%` arrives here, too.
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.push((field.name(), value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.push((field.name(), value.into()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.push((field.name(), value.into()));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::util::SubscriberInitExt as _;

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that are logged in the meantime, from `debug` on, without their time and target.
    pub(crate) fn logged(meanwhile: impl FnOnce()) -> Vec<Value> {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(JsonLines)
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone())
            .finish();
        let guard = subscriber.set_default();
        meanwhile();
        drop(guard);
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let parse = |line: &str| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            let fields = line.as_object_mut().unwrap();
            assert!(fields.remove("timestamp").unwrap().as_str().unwrap().ends_with('Z'));
            assert!(fields.remove("target").unwrap().as_str().unwrap().starts_with("loadline_server"));
            line
        };
        text.lines().map(parse).collect()
    }

    #[test]
    fn a_line_has_its_fields_as_they_are_and_structured_ones_as_structure() {
        let lines = logged(|| {
            tracing::warn!(count = 3u64, ok = true, who = %"n1", actions = r#"[{"a": 1}]"#, "it \"happened\"");
            tracing::info!(actions = "[not JSON");
        });
        let expected = serde_json::json!([
            { "level": "WARN", "message": "it \"happened\"", "count": 3, "ok": true, "who": "n1", "actions": [{ "a": 1 }] },
            { "level": "INFO", "actions": "[not JSON" },
        ]);
        assert_eq!(Value::Array(lines), expected);
    }
}
