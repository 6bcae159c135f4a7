//! `audit`: one file per verb. Whatever is asked is answered from a history that is at rest: a file, a folder, or what a running node
//! has exported. Nothing of it leaves a trace in the log.

mod diff;
mod export;
mod log;
mod replay;
mod verify;

use std::io::Write as _;

use loadline_audit::Moment;
use loadline_client::{Client, Error, ExportPart, ExportedHistory, HistoryBound, HistoryRange};

use super::Session;
use crate::args::Global;
use crate::audit_args::AuditVerb;
use crate::console::Console;
use crate::exit::Failed;
use crate::history::History;
use crate::meter::Meter;
use crate::output::Format;

/// On a history that the command line names.
pub(crate) fn at_rest(what: &AuditVerb, global: &Global, console: &mut Console) -> Result<(), Failed> {
    let format = global.format().unwrap_or_default();
    if format == Format::Sql {
        return Err(Failed::usage("-o sql is for get strategies, get clusters and get settings"));
    }
    match what {
        AuditVerb::Verify(args) => verify::at_rest(args, format, console),
        AuditVerb::Replay(args) => replay::replay(args, &args.history.open(console)?, format, console),
        AuditVerb::Diff(args) => diff::diff(args, &args.history.open(console)?, format, console),
        AuditVerb::Log(args) => log::at_rest(args, super::named_actor(global), format, console),
        AuditVerb::Export(_) => Err(Failed::usage("an export is made by a running node")),
    }
}

/// On the history of a running group.
pub(crate) async fn running(what: &AuditVerb, actor: Option<String>, session: Session<'_>) -> Result<(), Failed> {
    match what {
        AuditVerb::Export(args) => export::export(args, session).await,
        AuditVerb::Verify(args) => verify::running(args, session).await,
        AuditVerb::Log(args) => log::running(args, actor, session).await,
        AuditVerb::Replay(args) => {
            replay::check_for(args, session.format)?;
            let history = match args.from_snapshot {
                true => History::of_group_from(&session, args.to, args.to).await?,
                false => History::of_group(&session).await?,
            };
            replay::replay(args, &history, session.format, session.console)
        }
        AuditVerb::Diff(args) => {
            let history = match args.from_snapshot {
                true => History::of_group_from(&session, args.from, args.to).await?,
                false => History::of_group(&session).await?,
            };
            diff::diff(args, &history, session.format, session.console)
        }
    }
}

/// Writes what a node exports into a file, from its beginning.
pub(crate) async fn fetch(
    client: &Client,
    range: &HistoryRange,
    file: &mut std::fs::File,
    watched: bool,
) -> Result<ExportedHistory, Error> {
    let mut meter = Meter::start(watched);
    let mut total = 0;
    client
        .export_history(range, |part| match part {
            ExportPart::Start { first_index, last_index } => {
                total = last_index - first_index + 1;
                file.set_len(0)?;
                std::io::Seek::rewind(file)
            }
            ExportPart::Data { data, entries } => {
                meter.entries("exporting", entries, total);
                file.write_all(data)
            }
        })
        .await
}

/// Nothing for the end: an export goes as far as there is anything.
fn bound(moment: Moment) -> Option<HistoryBound> {
    match moment {
        Moment::Index(index) => Some(HistoryBound::Index(index)),
        Moment::Time(time) => Some(HistoryBound::TimeMs(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))),
        Moment::End => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
