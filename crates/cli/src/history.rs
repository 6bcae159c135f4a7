//! Where a command gets a history from: the folder of a node that has stopped.
//!
//! Whatever it is read from, it is the same to whoever reads it: a [`loadline_audit::Source`].

use std::path::PathBuf;

use clap::Args;
use loadline_audit::{Kept, Moment, ReplayError, Source, SourceError};
use loadline_sql::tables::value::timestamp_of;
use loadline_state_machine::Time;

use crate::exit::{Exit, Failed};

/// Which history.
#[derive(Debug, Clone, Args)]
pub(crate) struct HistoryArgs {
    /// Read the folder of a node that is stopped
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// A history, and what to call it.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) source: Box<dyn Source>,
    /// For people: which file or folder.
    pub(crate) called: String,
}

impl HistoryArgs {
    /// Whether one is named; without, a running group is asked.
    pub(crate) fn is_given(&self) -> bool {
        self.data_dir.is_some()
    }

    pub(crate) fn open(&self) -> Result<History, Failed> {
        let Some(folder) = &self.data_dir else {
            return Err(Failed::usage("which history?").hint("name the folder of a stopped node with --data-dir DIR"));
        };
        let called = folder.display().to_string();
        // Opening makes what is missing, as a node that starts would; nobody wants a folder for a slip of the finger.
        if !folder.join("journal").is_dir() {
            let message = format!("{called} is not the data folder of a node: it has no journal");
            return Err(Failed::new(Exit::NotFound, message));
        }
        let kept = Kept::open(folder).map_err(|error| unreadable(&called, &error))?;
        Ok(History { source: Box::new(kept), called })
    }
}

/// What went wrong, with everything that led to it.
fn unreadable(called: &str, error: &SourceError) -> Failed {
    Failed::new(Exit::Failure, format!("{called}: {}", causes(error)))
}

pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}

impl From<ReplayError> for Failed {
    fn from(error: ReplayError) -> Failed {
        let exit = match error {
            ReplayError::NotYet { .. } => Exit::NotFound,
            _ => Exit::Failure,
        };
        let failed = Failed::new(exit, causes(&error));
        match error {
            ReplayError::Begins { .. } => {
                failed.hint("begin with a kept state: --from-snapshot; or ask a node that was there from the start")
            }
            ReplayError::Differs { .. } => {
                failed.hint("the history was changed, or another build wrote it: loadline audit verify")
            }
            _ => failed,
        }
    }
}

/// A moment of a history: an index of the log, a time, how long ago, or `end`.
pub(crate) fn parse_moment(text: &str) -> Result<Moment, String> {
    let text = text.trim();
    if let Ok(index) = text.parse() {
        return Ok(Moment::Index(index));
    }
    if matches!(text, "end" | "now" | "latest") {
        return Ok(Moment::End);
    }
    parse_time(text).map(Moment::Time).map_err(|_| {
        format!("'{text}' is not a moment; write an index such as 412, a time such as '2026-11-16 10:00:00', '2h ago', or end")
    })
}

/// A time, or how long ago, with or without the word.
pub(crate) fn parse_time(text: &str) -> Result<Time, String> {
    let text = text.trim();
    if let Some(micros) = timestamp_of(text).and_then(|micros| u64::try_from(micros).ok()) {
        return Ok(Time::from_millis(micros / 1_000));
    }
    let wanted =
        || format!("'{text}' is not a time; write one such as '2026-11-16 10:00:00', or how long ago, such as 2h");
    let span: jiff::SignedDuration = text.strip_suffix("ago").unwrap_or(text).trim().parse().map_err(|_| wanted())?;
    let span = if let Some(days) = text.strip_suffix("ago").unwrap_or(text).trim().strip_suffix('d') {
        let days: i64 = days.trim().parse().map_err(|_| wanted())?;
        jiff::SignedDuration::from_hours(days.saturating_mul(24))
    } else {
        span
    };
    let at = jiff::Timestamp::now().checked_sub(span.abs()).map_err(|_| wanted())?;
    u64::try_from(at.as_millisecond()).map(Time::from_millis).map_err(|_| wanted())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_index_a_time_how_long_ago_or_the_end() {
        assert_eq!(parse_moment("412"), Ok(Moment::Index(412)));
        assert_eq!(parse_moment("end"), Ok(Moment::End));
        let at = Time::from_millis(1_794_787_200_000);
        for text in ["2026-11-16", "2026-11-16 00:00:00", "2026-11-16T00:00:00Z", "2026-11-16 02:00:00+02"] {
            assert_eq!(parse_moment(text), Ok(Moment::Time(at)), "{text}");
        }
        let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default();
        for (text, millis) in
            [("2h ago", 7_200_000), ("2h", 7_200_000), ("90m ago", 5_400_000), ("3d ago", 259_200_000)]
        {
            let Ok(Moment::Time(at)) = parse_moment(text) else { panic!("{text} is a time") };
            assert!(now.saturating_sub(at.as_millis()).abs_diff(millis) < 60_000, "{text}: {at}");
        }
        for wrong in ["", "soon", "-4", "2 moons ago", "2026-13-01"] {
            assert!(parse_moment(wrong).is_err(), "{wrong}");
        }
    }
}
