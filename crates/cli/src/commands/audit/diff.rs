//! `audit diff`: what changed between two moments, field by field, and who did it.

use loadline_audit::diff::{Changed, Deed, DiffError, Difference, Field, Point, What, diff as compare};
use serde::Serialize;
use serde_json::{Value, json};

use crate::audit_args::DiffArgs;
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::history::History;
use crate::meter::Entries;
use crate::output::{Column, Format, View, json_line, list, pretty, yaml_documents};
use crate::text::show_time;

pub(crate) fn diff(args: &DiffArgs, history: &History, format: Format, console: &mut Console) -> Result<(), Failed> {
    let start = history.start(args.from, args.from_snapshot)?;
    history.say_if_from_the_beginning(args.from_snapshot, &start, console);
    let mut bar = Entries::start("comparing", history.expected(&start, args.to), console.watched);
    let difference = compare(&*history.source, start, args.from, args.to, || bar.one())?;
    drop(bar);
    let (from, to) = (&difference.from, &difference.to);
    console.say(&format!("from {} to {}", moment(from), moment(to)));
    history.say_if_later("B", args.to, (to.index, to.at), console);
    if difference.changes.is_empty() && matches!(format, Format::Table | Format::Wide) {
        console.say("nothing changed");
    }
    console.data(&shown(&difference, format)?)?;
    if difference.changes.is_empty() { Ok(()) } else { Err(Failed::quietly(Exit::Failure)) }
}

impl From<DiffError> for Failed {
    fn from(error: DiffError) -> Failed {
        match error {
            DiffError::Replay(error) => error.into(),
            other => Failed::usage(other.to_string()).hint("the earlier moment comes first"),
        }
    }
}

/// There is no time before the first leader stamps one.
fn moment(end: &Point) -> String {
    let time = time(end.at);
    if time.is_empty() { format!("index {}", end.index) } else { format!("index {} ({time})", end.index) }
}

fn time(at: loadline_state_machine::Time) -> String {
    show_time(i64::try_from(at.as_millis()).unwrap_or(i64::MAX))
}

/// One field of one thing, as a row.
#[derive(Debug, Serialize)]
struct Row {
    resource: String,
    what: &'static str,
    field: String,
    before: String,
    after: String,
    by: String,
    index: String,
    time: String,
    source: String,
    request_id: String,
    how: String,
}

impl View for Row {
    const COLUMNS: &'static [Column] = &[
        Column::always("RESOURCE"),
        Column::always("CHANGE"),
        Column::always("FIELD"),
        Column::always("BEFORE"),
        Column::always("AFTER"),
        Column::always("BY"),
        Column::always("INDEX"),
        Column::always("TIME"),
        Column::wide("SOURCE"),
        Column::wide("REQUEST"),
        Column::wide("HOW"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.resource.clone(),
            self.what.to_owned(),
            self.field.clone(),
            self.before.clone(),
            self.after.clone(),
            self.by.clone(),
            self.index.clone(),
            self.time.clone(),
            self.source.clone(),
            self.request_id.clone(),
            self.how.clone(),
        ]
    }

    fn name(&self) -> String {
        self.resource.clone()
    }
}

/// Who did it, in a few words: whoever asked, or what it followed from.
fn by(deed: &Deed) -> String {
    let followed = [
        deed.action.as_ref().map(|id| format!("actions/{id}")),
        deed.decision.as_ref().map(|id| format!("decisions/{id}")),
    ];
    match (&deed.who, followed.into_iter().flatten().next()) {
        (Some(who), Some(followed)) => format!("{} ({followed})", who.actor),
        (Some(who), None) => who.actor.clone(),
        (None, Some(followed)) => followed,
        (None, None) => "by itself".to_owned(),
    }
}

/// The rows of one thing: a row for each field with the last deed that can have changed it, and one for what was dropped.
fn rows(changed: &Changed) -> Vec<Row> {
    let row = |last: Option<&Deed>, field: String, before: String, after: String| Row {
        resource: changed.name.clone(),
        what: changed.what.as_str(),
        field,
        before,
        after,
        by: last.map(by).unwrap_or_default(),
        index: last.map(|deed| deed.index.to_string()).unwrap_or_default(),
        time: last.map(|deed| time(deed.at)).unwrap_or_default(),
        source: last.and_then(|deed| deed.who.as_ref()).map(|who| who.source.clone()).unwrap_or_default(),
        request_id: last.and_then(|deed| deed.who.as_ref()).and_then(|who| who.request_id.clone()).unwrap_or_default(),
        how: last.map(|deed| deed.what.clone()).unwrap_or_default(),
    };
    match changed.what {
        What::Dropped => vec![row(changed.deeds.last(), String::new(), String::new(), String::new())],
        What::Created | What::Altered if changed.fields.is_empty() => {
            vec![row(changed.deeds.last(), String::new(), String::new(), String::new())]
        }
        What::Created | What::Altered => {
            let one = |field: &Field| {
                let deed = field.deed.and_then(|place| changed.deeds.get(place));
                row(deed, field.name.clone(), text(&field.before), text(&field.after))
            };
            changed.fields.iter().map(one).collect()
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn shown(difference: &Difference, format: Format) -> Result<String, Failed> {
    let rows = || difference.changes.iter().flat_map(rows).collect::<Vec<_>>();
    Ok(match format {
        Format::Json => pretty(&whole(difference))?,
        Format::Yaml => yaml_documents(&[whole(difference)])?,
        Format::Jsonl => difference.changes.iter().map(|it| json_line(&changed(it))).collect::<Result<_, _>>()?,
        Format::Name => difference.changes.iter().map(|it| it.name.clone() + "\n").collect(),
        format => list(format, "changes", None, &rows())?,
    })
}

fn whole(difference: &Difference) -> Value {
    let point = |point: &Point| json!({ "index": point.index, "time": time(point.at), "state_hash": point.hash });
    json!({
        "from": point(&difference.from),
        "to": point(&difference.to),
        "changes": difference.changes.iter().map(changed).collect::<Vec<_>>(),
    })
}

fn changed(it: &Changed) -> Value {
    let fields =
        it.fields.iter().map(|it| json!({ "field": it.name, "before": it.before, "after": it.after, "deed": it.deed }));
    json!({
        "name": it.name,
        "change": it.what.as_str(),
        "fields": fields.collect::<Vec<_>>(),
        "deeds": it.deeds.iter().map(deed).collect::<Vec<_>>(),
    })
}

fn deed(it: &Deed) -> Value {
    let mut whole = json!({ "index": it.index, "time": time(it.at), "kind": it.kind, "what": it.what });
    let mut put = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            whole[key] = json!(value);
        }
    };
    put("actor", it.who.as_ref().map(|who| who.actor.as_str()));
    put("source", it.who.as_ref().map(|who| who.source.as_str()));
    put("proof", it.who.as_ref().map(|who| who.proof.as_str()));
    put("request_id", it.who.as_ref().and_then(|who| who.request_id.as_deref()));
    put("decision", it.decision.as_deref());
    put("action", it.action.as_deref());
    put("by", it.by.as_deref());
    whole
}
