//! What was seen, as text: one line for each transition, in columns.
//!
//! The text is also what two runs of one seed are compared by, so it holds nothing that differs between runs.

use std::fmt::Write as _;

use loadline_state_machine::{Command, Event, Outcome};

use crate::history::{Ask, Told};
use crate::record::{Applied, Seen, Sighting};

/// What becomes of the lines of a run.
#[derive(Debug, Clone, Copy)]
pub enum Tracing {
    /// There are none.
    Off,
    /// They are in the outcome.
    Kept,
    /// Each is told as it comes, so that they are there even if the process does not come to its end.
    Told(fn(&str)),
}

/// Time, who, what, details.
pub fn line(sighting: &Sighting) -> String {
    let (who, what, details) = columns(&sighting.what);
    format!("{:>9.3}  {who:<8} {what:<10} {details}", sighting.at.as_secs_f64())
}

fn columns(seen: &Seen) -> (String, &'static str, String) {
    let n = |node: &usize| format!("n{}", node + 1);
    match seen {
        Seen::Started { node, life } => (n(node), "start", format!("life {life}")),
        Seen::Ended { node, life, why } => (n(node), "end", format!("life {life}: {why}")),
        Seen::Elected { node, life } => (n(node), "elected", format!("life {life}")),
        Seen::Applied(applied) => (n(&applied.node), "apply", apply(applied)),
        Seen::Replaced { node, state, .. } => {
            (n(node), "replace", format!("{} {}", state.applied(), short(&state.hash().to_string())))
        }
        Seen::SnapshotBuilt { node, .. } => (n(node), "snapshot", String::new()),
        Seen::Truncated { node, entries } => (n(node), "truncate", format!("{entries} entries")),
        Seen::Step { node, step, action } => (n(node), "step", format!("{action} {}", step.name())),
        Seen::Ledger(line) => (
            "backend".to_owned(),
            "ledger",
            format!("{:?} {} epoch {} attempt {}: {}", line.event, line.key, line.epoch, line.attempt, line.call),
        ),
        Seen::Promised { node, promise } => (n(node), "promise", format!("{:?}", promise.vote)),
        Seen::Recovered { node, promise } => (n(node), "recover", format!("{:?}", promise.vote)),
        Seen::Journal { node, kept } => {
            let words = kept.as_ref().map_or_else(String::clone, |kept| format!("{} records", kept.len()));
            (n(node), "journal", words)
        }
        Seen::Asked(asked) => {
            let what = match &asked.what {
                Ask::Write(what) => what.clone(),
                Ask::Read(what) => format!("read {what}"),
                Ask::Report(collector, sequence) => format!("report {collector} {sequence}"),
            };
            (asked.tag.clone(), "ask", what)
        }
        Seen::Answered(answered) => {
            let told = match &answered.answer {
                Told::Done { index, repeated } => {
                    format!("done at {index}{}", if *repeated { " (repeated)" } else { "" })
                }
                Told::Found { index, resource } => {
                    format!("{} at {index}", if resource.is_some() { "found" } else { "not there" })
                }
                Told::Refused(refusal) => format!("refused: {}", refusal.reason),
                Told::NotDone(why) => format!("not done: {why}"),
                Told::Unknown(why) => format!("unknown: {why}"),
            };
            (answered.tag.clone(), "answer", told)
        }
        Seen::Watched(watched) => (watched.watcher.clone(), "watch", watched.words()),
        Seen::Ambushed { node, action, then } => (n(node), "ambush", format!("{action} {then:?}")),
        Seen::Said { node, command } => (n(node), "say", said(command)),
        Seen::Sizes { node, sizes } => (n(node), "sizes", format!("{sizes:?}")),
        // Not how much: see `memory`.
        Seen::Allocated { .. } => ("world".to_owned(), "allocated", String::new()),
        Seen::Removed { node } => (n(node), "removed", String::new()),
        Seen::Deed(words) => ("world".to_owned(), "deed", words.clone()),
        Seen::Phase(phase) => ("world".to_owned(), "phase", format!("{phase:?}")),
    }
}

/// A claim or an outcome, in words.
pub(crate) fn said(command: &Command) -> String {
    match command {
        Command::ClaimAction { action, epoch, attempt, .. } => {
            format!("claim {action} attempt {attempt} epoch {epoch}")
        }
        Command::RecordOutcome { action, epoch, attempt, outcome } => {
            let outcome = match outcome {
                Outcome::Succeeded { .. } => "succeeded",
                Outcome::Failed { retryable: true, .. } => "failed for now",
                Outcome::Failed { .. } => "failed",
                Outcome::Unknown { .. } => "unknown",
            };
            format!("outcome {action} attempt {attempt} epoch {epoch}: {outcome}")
        }
        other => format!("{other:?}"),
    }
}

fn apply(applied: &Applied) -> String {
    let mut text =
        format!("{:>5} {} t={}", applied.index.to_string(), short(&applied.hash.to_string()), applied.time.as_millis());
    for event in &applied.events {
        let _ = write!(text, " {}", event_words(event));
    }
    for receipt in &applied.receipts {
        if let Err(refused) = &receipt.result {
            let _ = write!(text, " refused({})", refused.rejection.code());
        }
    }
    text
}

fn event_words(event: &Event) -> String {
    match event {
        Event::LeaderAnnounced { node, epoch, .. } => format!("leader({node} epoch {epoch})"),
        Event::ActionPlanned { action }
        | Event::ActionApproved { action }
        | Event::ActionClaimed { action }
        | Event::ActionReturned { action }
        | Event::ActionUnsure { action }
        | Event::ActionSettled { action, .. } => {
            format!("action({} {} {} attempt {})", action.id, action.call.code(), action.status.code(), action.attempt)
        }
        Event::DecisionMade { decision } => format!("decision({} {})", decision.cluster, decision.conclusion.code()),
        Event::SignalsReported { collector, sequence, .. } => format!("signals({collector} {sequence})"),
        Event::ClusterCreated { cluster } => format!("cluster+({})", cluster.name),
        Event::ClusterDropped { cluster } => format!("cluster-({})", cluster.name),
        Event::ClusterRenamed { from, cluster } => format!("renamed({from} {})", cluster.name),
        Event::SettingSet { name, value, .. } => format!("set({name}={value})"),
        other => {
            let text = format!("{other:?}");
            text.split([' ', '{']).next().unwrap_or_default().to_owned()
        }
    }
}

fn short(hash: &str) -> &str {
    hash.get(..8).unwrap_or(hash)
}
