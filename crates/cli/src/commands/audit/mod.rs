//! `audit`: one file per verb. They work on a history that is at rest; nothing that is asked here leaves a trace in the log.

mod diff;
mod log;
mod replay;

use super::Session;
use crate::args::Global;
use crate::audit_args::AuditVerb;
use crate::console::Console;
use crate::exit::Failed;
use crate::output::Format;

/// On a history that the command line names.
pub(crate) fn at_rest(what: &AuditVerb, global: &Global, console: &mut Console) -> Result<(), Failed> {
    let format = global.output.unwrap_or_default();
    if format == Format::Sql {
        return Err(Failed::usage("-o sql is for get strategies, get clusters and get settings"));
    }
    match what {
        AuditVerb::Replay(args) => replay::replay(args, &args.history.open()?, format, console),
        AuditVerb::Diff(args) => diff::diff(args, &args.history.open()?, format, console),
        AuditVerb::Log(args) => log::at_rest(args, super::named_actor(global), format, console),
    }
}

/// On the history of a running group.
pub(crate) async fn running(what: &AuditVerb, actor: Option<String>, session: Session<'_>) -> Result<(), Failed> {
    match what {
        AuditVerb::Log(args) => log::running(args, actor, session).await,
        AuditVerb::Replay(args) => {
            let history = args.history.open()?;
            replay::replay(args, &history, session.format, session.console)
        }
        AuditVerb::Diff(args) => {
            let history = args.history.open()?;
            diff::diff(args, &history, session.format, session.console)
        }
    }
}
