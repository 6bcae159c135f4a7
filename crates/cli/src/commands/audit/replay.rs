//! `audit replay`: the state as it was at a moment, made again entry by entry, and every hash compared.

use std::path::Path;

use loadline_api::listing;
use loadline_audit::sqlite::{self, About, SqliteError};
use loadline_audit::{Moment, Start, replay as replay_history, with_causes};
use loadline_client::Kind;
use loadline_state_machine::{ResourceKind, State};
use serde_json::{Map, Value, json};

use crate::audit_args::ReplayArgs;
use crate::commands::get::show;
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::history::History;
use crate::meter::Entries;
use crate::noun::Noun;
use crate::output::resources::ResourceView;
use crate::output::seen::{ReplicaView, ReportView};
use crate::output::{Format, json_line, list, pretty, yaml_documents};
use crate::text::show_time;

pub(crate) fn replay(
    args: &ReplayArgs,
    history: &History,
    format: Format,
    console: &mut Console,
) -> Result<(), Failed> {
    let kinds = check_for(args, format)?;
    let start = history.start(args.to, args.from_snapshot)?;
    history.say_if_from_the_beginning(args.from_snapshot, &start, console);
    if let Some(file) = &args.to_db {
        return to_db(history, start, args.to, file, format, console);
    }
    let mut bar = Entries::start("replaying", history.expected(&start, args.to), console.watched);
    let replayed = replay_history(&*history.source, start, args.to, |_| bar.one())?;
    let sum = bar.sum();
    drop(bar);
    history.check_has_begun(args.to, &replayed.state)?;
    head(&replayed.state, history, console);
    history.say_if_later("--to", args.to, (replayed.state.applied().0, replayed.state.now()), console);
    console.say(&format!("{sum}; every hash is the one that the history has"));
    console.data(&shown(&replayed.state, history, &kinds, format)?)
}

/// What is wrong with what is asked for, before anything is read.
pub(super) fn check_for(args: &ReplayArgs, format: Format) -> Result<Vec<Shown>, Failed> {
    let kinds = kinds(&args.kinds)?;
    if format == Format::Csv && kinds.len() != 1 {
        return Err(Failed::usage(
            "one table fits into -o csv: name one type, such as loadline audit replay clusters -o csv",
        ));
    }
    if let Some(file) = &args.to_db
        && file.exists()
        && !args.overwrite
    {
        let message = format!("{} is there already", file.display());
        return Err(Failed::new(Exit::Conflict, message).hint("choose another name, or add --overwrite"));
    }
    Ok(kinds)
}

/// What it is the state of. On stderr: what is shown is data, and the same for the same moment.
fn head(state: &State, history: &History, console: &mut Console) {
    let time = show_time(i64::try_from(state.now().as_millis()).unwrap_or(i64::MAX));
    // There is no time before the first leader stamps one.
    let time = if time.is_empty() { time } else { format!(", time {time}") };
    console.say(&format!("{}: index {}{time}, hash {}", history.called, state.applied(), state.hash()));
}

/// A type of thing that a state has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Resource(Kind),
    /// What was seen of clusters. A running group has it in its tables, and no verb.
    Replicas,
    Reports,
}

impl Shown {
    fn plural(self) -> &'static str {
        match self {
            Shown::Resource(kind) => kind.plural(),
            Shown::Replicas => "replicas",
            Shown::Reports => "reports",
        }
    }
}

const TYPES: &str = "the types of a history are sizes, clusters, settings, strategies, decisions, operations, actions, roles, signals, \
                     replicas and reports";

fn kinds(words: &[String]) -> Result<Vec<Shown>, Failed> {
    let all = ResourceKind::ALL.iter().map(|kind| kind.plural()).chain(["replicas", "reports"]);
    let wanted: Vec<&str> = match words {
        [] => all.collect(),
        words => words.iter().map(String::as_str).collect(),
    };
    let kind = |word: &str| match word {
        "replica" | "replicas" => Ok(Shown::Replicas),
        "report" | "reports" => Ok(Shown::Reports),
        word => match word.parse::<Noun>().map_err(|unknown| unknown.hint(TYPES))? {
            Noun::Resource(kind) => Ok(Shown::Resource(kind)),
            Noun::Node => Err(Failed::usage("nodes are no part of a history: see loadline get nodes")),
        },
    };
    wanted.into_iter().map(kind).collect()
}

fn value<V: serde::Serialize>(views: &[V]) -> Result<Value, Failed> {
    serde_json::to_value(views).map_err(|error| Failed::new(Exit::Failure, error.to_string()))
}

fn values(state: &State, shown: Shown) -> Result<Value, Failed> {
    match shown {
        Shown::Resource(kind) => value(&views(state, kind)),
        Shown::Replicas => value(&ReplicaView::all(state)),
        Shown::Reports => value(&ReportView::all(state)),
    }
}

/// In a format that takes one type after the other.
fn listed(state: &State, shown: Shown, format: Format) -> Result<String, Failed> {
    let revision = state.applied().0;
    match shown {
        Shown::Resource(kind) => show(kind, views(state, kind), revision, false, format),
        Shown::Replicas => list(format, shown.plural(), Some(revision), &ReplicaView::all(state)),
        Shown::Reports => list(format, shown.plural(), Some(revision), &ReportView::all(state)),
    }
}

/// Every resource of a kind, as `get` shows it.
fn views(state: &State, kind: Kind) -> Vec<ResourceView> {
    let Ok(kind) = kind.plural().parse::<ResourceKind>() else { return Vec::new() };
    let rows = listing::rows(state, kind, None, usize::MAX).unwrap_or_default();
    rows.into_iter().filter_map(|(_, resource)| ResourceView::of(resource)).collect()
}

fn shown(state: &State, history: &History, kinds: &[Shown], format: Format) -> Result<String, Failed> {
    match format {
        Format::Json | Format::Yaml => {
            let mut whole = facts(state, history);
            for kind in kinds {
                whole.insert(kind.plural().to_owned(), values(state, *kind)?);
            }
            let whole = Value::Object(whole);
            if format == Format::Json { pretty(&whole) } else { yaml_documents(&[whole]) }
        }
        Format::Jsonl | Format::Name | Format::Csv => kinds.iter().map(|kind| listed(state, *kind, format)).collect(),
        Format::Table | Format::Wide | Format::Sql => {
            let mut text = String::new();
            for kind in kinds {
                let table = listed(state, *kind, format)?;
                if kinds.len() == 1 {
                    return Ok(table);
                }
                let count = table.lines().count().saturating_sub(1);
                text.push_str(&format!(
                    "{}{} ({count})\n{table}",
                    if text.is_empty() { "" } else { "\n" },
                    kind.plural()
                ));
            }
            Ok(text)
        }
    }
}

/// Of which moment a state is.
fn facts(state: &State, history: &History) -> Map<String, Value> {
    let facts = json!({
        "index": state.applied().0,
        "time": show_time(i64::try_from(state.now().as_millis()).unwrap_or(i64::MAX)),
        "state_hash": state.hash().to_string(),
        "group": history.source.group().unwrap_or_default(),
        "incarnation": state.incarnation(),
        "rules_version": state.rules().0,
    });
    match facts {
        Value::Object(facts) => facts,
        _ => Map::new(),
    }
}

fn to_db(
    history: &History,
    start: Start,
    to: Moment,
    path: &Path,
    format: Format,
    console: &mut Console,
) -> Result<(), Failed> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unwritable =
        |error: std::io::Error| Failed::new(Exit::Failure, format!("{} cannot be written: {error}", path.display()));
    // Under a temporary name until it is whole; it vanishes if anything goes wrong.
    let temp = tempfile::Builder::new().prefix(".audit-").tempfile_in(folder).map_err(unwritable)?;
    let about = About {
        group: history.source.group().unwrap_or_default(),
        build: crate::commands::version::build(),
        history: history.called.clone(),
    };
    let mut bar = Entries::start("replaying", history.expected(&start, to), console.watched);
    let replayed = sqlite::write(&*history.source, start, to, temp.path(), &about, |_| bar.one())?;
    let sum = bar.sum();
    drop(bar);
    history.check_has_begun(to, &replayed.state)?;
    temp.as_file().sync_all().map_err(unwritable)?;
    temp.persist(path).map_err(|error| unwritable(error.error))?;
    head(&replayed.state, history, console);
    history.say_if_later("--to", to, (replayed.state.applied().0, replayed.state.now()), console);
    console.say(&format!("{sum}; every hash is the one that the history has"));
    let file = path.display().to_string();
    match format {
        Format::Json | Format::Jsonl | Format::Yaml => {
            let mut whole = facts(&replayed.state, history);
            whole.insert("file".to_owned(), json!(file));
            if format == Format::Yaml {
                console.data(&yaml_documents(&[whole])?)
            } else {
                console.data(&json_line(&whole)?)
            }
        }
        Format::Name => console.line(&file),
        _ => console.line(&format!("{file} written: open it with sqlite3 {file}")),
    }
}

impl From<SqliteError> for Failed {
    fn from(error: SqliteError) -> Failed {
        match error {
            SqliteError::Replay(error) => error.into(),
            other => Failed::new(Exit::Failure, with_causes(&other)),
        }
    }
}
