//! `audit export`: the history of a group, or a part of it, in one signed file.

use std::path::Path;

use loadline_audit::Moment;
use loadline_client::HistoryRange;
use loadline_log::export::Export;
use loadline_state_machine::Hash;
use serde::Serialize;

use super::{bound, fetch, hex};
use crate::audit_args::ExportArgs;
use crate::commands::Session;
use crate::exit::{Exit, Failed};
use crate::meter::Meter;
use crate::output::{Column, Format, View, one};
use crate::text::{show_bytes, show_time};

pub(crate) async fn export(args: &ExportArgs, session: Session<'_>) -> Result<(), Failed> {
    let Some(path) = &args.file else { return Err(Failed::usage("where to? Name a new file with -o FILE")) };
    if path.exists() && !args.overwrite {
        return Err(Failed::new(Exit::Conflict, format!("{} is there already", path.display()))
            .hint("choose another name, or add --overwrite"));
    }
    if args.from == Some(Moment::End) {
        return Err(Failed::usage("--from end: there is nothing behind the end")
            .hint("name the first entry by its index or a time"));
    }
    let backwards = match (args.from, args.to) {
        (Some(Moment::Index(from)), Some(Moment::Index(to))) => from > to,
        (Some(Moment::Time(from)), Some(Moment::Time(to))) => from > to,
        _ => false,
    };
    if backwards {
        return Err(Failed::usage("--to is before --from").hint("the earlier moment comes first"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unwritable =
        |error: std::io::Error| Failed::new(Exit::Failure, format!("{} cannot be written: {error}", path.display()));
    // Under a temporary name until it is whole; it vanishes if anything goes wrong. Its owner alone may read it: among what it
    // holds is what is kept of every password.
    let mut temp = tempfile::Builder::new().prefix(".export-").tempfile_in(folder).map_err(unwritable)?;
    let range = HistoryRange { from: args.from.and_then(bound), to: args.to.and_then(bound), reading: session.reading };
    fetch(&session.client, &range, temp.as_file_mut(), session.console.watched).await?;
    temp.as_file().sync_all().map_err(unwritable)?;
    let mut meter = Meter::start(session.console.watched);
    let export = Export::open(temp.path(), |done, total| meter.bytes("reading it back", done, total));
    drop(meter);
    let export =
        export.map_err(|error| Failed::new(Exit::Failure, format!("what came is not a whole export: {error}")))?;
    let view = ExportView::of(path, &export);
    temp.persist(path).map_err(|error| unwritable(error.error))?;
    // The name of the file is a fact about the folder, and is on disk only after this.
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(unwritable)?;
    if args.from.is_none() && view.first > 1 {
        session.console.warn(&format!(
            "node {} keeps the history from entry {} on; another node may keep more: see docs/commands/audit.md",
            view.node, view.first
        ));
    }
    let text = match session.format {
        Format::Table | Format::Wide => format!(
            "{} exported: entries {} to {}, {}, signed by {} with {}\n",
            view.file,
            view.first,
            view.last,
            show_bytes(view.bytes),
            view.node,
            view.public_key
        ),
        format => one(format, &view)?,
    };
    session.console.data(&text)
}

/// What a file holds.
#[derive(Debug, Serialize)]
struct ExportView {
    file: String,
    bytes: u64,
    first: u64,
    last: u64,
    entries: u64,
    /// After the last entry.
    hash: String,
    group: String,
    node: String,
    version: String,
    /// Logical time.
    made: String,
    public_key: String,
}

impl ExportView {
    fn of(path: &Path, export: &Export) -> ExportView {
        let head = export.head();
        ExportView {
            file: path.display().to_string(),
            bytes: export.len(),
            first: head.first,
            last: head.last,
            entries: head.last - head.first + 1,
            hash: export.end().map(|end| Hash(end.last_hash).to_string()).unwrap_or_default(),
            group: head.group.clone(),
            node: head.node_name.clone(),
            version: head.version.clone(),
            made: show_time(i64::try_from(head.made_ms).unwrap_or(i64::MAX)),
            public_key: hex(&head.public_key),
        }
    }
}

impl View for ExportView {
    const COLUMNS: &'static [Column] = &[
        Column::always("FILE"),
        Column::always("BYTES"),
        Column::always("FIRST"),
        Column::always("LAST"),
        Column::always("ENTRIES"),
        Column::always("HASH"),
        Column::always("GROUP"),
        Column::always("NODE"),
        Column::always("VERSION"),
        Column::always("MADE"),
        Column::always("PUBLIC-KEY"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.file.clone(),
            self.bytes.to_string(),
            self.first.to_string(),
            self.last.to_string(),
            self.entries.to_string(),
            self.hash.clone(),
            self.group.clone(),
            self.node.clone(),
            self.version.clone(),
            self.made.clone(),
            self.public_key.clone(),
        ]
    }

    fn name(&self) -> String {
        self.file.clone()
    }
}
