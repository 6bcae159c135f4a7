//! `backtest -f --since`: what a change would have done to the past.
//!
//! - [`shown`]: what came of it, as a text, as figures, and as a page.
//! - [`plot`]: the runs over time.
//!
//! Not here: how it is tried (`loadline_audit::backtest`).

mod plot;
mod shown;

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use loadline_audit::backtest::{BacktestError, Bound, Phase, Trial, backtest};
use loadline_audit::{Change, Moment, with_causes};
use loadline_state_machine::{Span, Time};

use super::Session;
use super::whatif::{read_change, refused, trying};
use crate::args::Global;
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::history::{History, HistoryArgs};
use crate::meter::Meter;
use crate::output::Format;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).args(["filename", "no_change"]))]
pub(crate) struct BacktestArgs {
    /// Statements, as loadline sql reads them; - reads stdin
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    filename: Option<PathBuf>,
    /// Change nothing: see whether the model does what the record did
    #[arg(long)]
    no_change: bool,
    /// Begin so long before the end, such as 24h or 7d, or at a time, such as 2026-11-16T10:00:00Z; 24h before the end, or as much as
    /// there is without a gap, if not given
    #[arg(long, value_name = "TIME", value_parser = parse_bound)]
    since: Option<Bound>,
    /// End at a time, or so long before the end of the history; with its last entry if not given
    #[arg(long, value_name = "TIME", value_parser = parse_bound)]
    until: Option<Bound>,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
}

/// How long a window is for which nobody has said that.
const WINDOW: Span = Span::from_hours(24);

/// How the answer is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    As(Format),
    Svg,
    Html,
}

impl Shown {
    /// `-o`, where a picture can be asked for as well.
    pub(crate) fn of(global: &Global) -> Result<Shown, Failed> {
        match global.other_output().map(|other| other.to_string_lossy().to_lowercase()).as_deref() {
            None => Ok(Shown::As(global.format().unwrap_or_default())),
            Some("svg") => Ok(Shown::Svg),
            Some("html") => Ok(Shown::Html),
            Some(other) => {
                let message = format!("'{other}' is not something that a backtest can be shown as");
                Err(Failed::usage(message).hint("write -o table, json, jsonl, yaml, csv, svg or html"))
            }
        }
    }
}

/// On the history of the running group.
pub(crate) async fn of_group(args: &BacktestArgs, session: Session<'_>) -> Result<(), Failed> {
    // A file that cannot be read is said before anything is fetched.
    if let Some(file) = args.filename.as_deref().filter(|file| *file != Path::new("-")) {
        read_change(file)?;
    }
    let history = History::of_group(&session).await?;
    let (actor, shown) = (super::actor(session.global), Shown::of(session.global)?);
    run(args, &history, &actor, shown, session.console)
}

pub(crate) fn run(
    args: &BacktestArgs,
    history: &History,
    actor: &str,
    shown: Shown,
    console: &mut Console,
) -> Result<(), Failed> {
    let (change, name) = match &args.filename {
        Some(file) => read_change(file)?,
        None => (Change::none(), String::new()),
    };
    let (since, until) = (args.since.unwrap_or(Bound::UpTo(WINDOW)), args.until.unwrap_or(Bound::Open));
    let trial = Trial { since, until, change, actor: trying(actor) };
    let mut meter = Meter::start(console.watched);
    let tried = backtest(history.source.as_ref(), &trial, |progress| {
        let doing = match progress.phase {
            Phase::Replaying => "replaying to the beginning",
            Phase::Learning => "learning from the record",
            Phase::Running => "trying",
        };
        meter.entries(doing, progress.entries, progress.entries_total);
    });
    drop(meter);
    let tried = tried.map_err(|error| failed(error, &name, &history.called))?;
    if let Some(Bound::At(until)) = args.until {
        history.say_if_later(
            "--until",
            Moment::Time(until),
            (tried.window.last_index, Time::from_millis(tried.window.to_ms)),
            console,
        );
    }
    console.data(&shown::shown(&tried, shown)?)?;
    if tried.is_different() { Err(Failed::quietly(Exit::Failure)) } else { Ok(()) }
}

fn failed(error: BacktestError, file: &str, history: &str) -> Failed {
    match error {
        BacktestError::Change(error) => {
            refused(file, &error).hint("it is refused at the beginning of the window and at every moment of it")
        }
        BacktestError::Replay(error) => error.into(),
        BacktestError::NoWindow { .. } => {
            Failed::usage(format!("{history}: {error}")).hint("choose the window with --since and --until")
        }
        BacktestError::Restored { .. } => Failed::new(Exit::NotFound, format!("{history}: {error}"))
            .hint("choose the window with --since and --until"),
        BacktestError::Missing { .. } => Failed::new(Exit::NotFound, format!("{history}: {error}"))
            .hint("choose the window with --since and --until, or ask another node: it may have them"),
        BacktestError::Empty => Failed::new(Exit::NotFound, format!("{history}: {error}")),
        BacktestError::Source(_) => Failed::new(Exit::Failure, format!("{history}: {}", with_causes(&error))),
    }
}

fn parse_bound(text: &str) -> Result<Bound, String> {
    if let Ok(span) = text.parse::<Span>() {
        return Ok(Bound::Before(span));
    }
    let at = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let local = text.parse::<jiff::civil::DateTime>();
        let local = local.or_else(|_| text.parse::<jiff::civil::Date>().map(|date| date.at(0, 0, 0, 0)));
        local.ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    });
    let millis = at.and_then(|at| u64::try_from(at.as_millisecond()).ok());
    millis.map(|millis| Bound::At(Time::from_millis(millis))).ok_or_else(|| {
        format!("'{text}' is neither a length of time nor a moment; write 24h or 7d, or 2026-11-16T10:00:00Z")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_across_a_gap_ends_with_not_found_and_names_what_is_missing() {
        let (before, behind) = (Time::from_millis(1_794_787_200_000), Time::from_millis(1_794_790_800_000));
        let failed = failed(BacktestError::Missing { first: 7, last: 40, before, behind }, "change.sql", "data");
        let said = "data: entries 7 to 40 are missing in this history, from 2026-11-16T00:00:00.000Z to \
                    2026-11-16T01:00:00.000Z: let the window end before them, or begin behind them";
        assert_eq!((failed.exit, failed.message.as_str()), (Exit::NotFound, said));
        assert_eq!(failed.hints.len(), 1, "{failed:?}");
    }

    #[test]
    fn a_window_with_a_restored_backup_ends_as_one_across_a_gap_does() {
        let at = Time::from_millis(1_794_787_200_000);
        let failed = failed(BacktestError::Restored { index: 7, at }, "change.sql", "data");
        let said = "data: a backup was restored at entry 7, at 2026-11-16T00:00:00.000Z, which replaced everything: let the window \
                    begin after it, or end before";
        assert_eq!((failed.exit, failed.message.as_str()), (Exit::NotFound, said));
    }

    #[test]
    fn a_window_begins_so_long_before_its_end_or_at_a_time() {
        assert_eq!(parse_bound("24h"), Ok(Bound::Before(Span::from_hours(24))));
        assert_eq!(parse_bound("7d"), Ok(Bound::Before(Span::from_days(7))));
        let at = Ok(Bound::At(Time::from_millis(1_794_787_200_000)));
        for text in ["2026-11-16", "2026-11-16T00:00:00Z", "2026-11-16 00:00:00", "2026-11-16T01:00:00+01:00"] {
            assert_eq!(parse_bound(text), at, "{text}");
        }
        for wrong in ["", "yesterday", "-3h", "12 moons"] {
            assert!(parse_bound(wrong).is_err(), "{wrong}");
        }
    }
}
