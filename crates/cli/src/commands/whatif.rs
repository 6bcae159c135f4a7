//! `whatif -f`: which clusters would decide differently right now if these statements were run.
//!
//! The state is fetched as a backup is, and everything else happens here, on a fork: nothing of it is seen by the group.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use loadline_audit::whatif::{Different, Outlook, WhatIf, dropped, whatif};
use loadline_audit::{Change, ChangeError, Moment, replay, words};
use loadline_client::SnapshotPart;
use loadline_state_machine::{Actor, Planned, Proof, Reason, ReplicaSpec, State};
use serde::Serialize;

use super::Session;
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::history::HistoryArgs;
use crate::meter::Meter;
use crate::output::{Column, Format, View, list};

#[derive(Debug, Args)]
pub(crate) struct WhatIfArgs {
    /// Statements, as loadline sql reads them; - reads stdin
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    filename: PathBuf,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
}

/// On the state at the end of a history.
pub(crate) fn at_rest(args: &WhatIfArgs, actor: &str, format: Format, console: &mut Console) -> Result<(), Failed> {
    let (change, name) = read_change(&args.filename)?;
    let history = args.history.open(console)?;
    let start = history.start(Moment::End, true)?;
    let expected = history.expected(&start, Moment::End).unwrap_or(0);
    let mut meter = Meter::start(console.watched);
    let mut entries = 0;
    let replayed = replay(history.source.as_ref(), start, Moment::End, |_| {
        entries += 1;
        meter.entries("replaying", entries, expected);
    })?;
    show(&replayed.state, &change, &name, actor, meter, format, console)
}

pub(crate) async fn of_group(args: &WhatIfArgs, session: Session<'_>) -> Result<(), Failed> {
    let (change, name) = read_change(&args.filename)?;
    let mut meter = Meter::start(session.console.watched);
    let mut bytes = Vec::new();
    let mut total = 0;
    session
        .client
        .save_snapshot(|part| {
            match part {
                SnapshotPart::Start { bytes_total } => {
                    total = bytes_total;
                    bytes.clear();
                }
                SnapshotPart::Data(data) => bytes.extend_from_slice(data),
            }
            meter.bytes("fetching the state", bytes.len() as u64, total);
            Ok(())
        })
        .await?;
    let state = state_of(&bytes)?;
    drop(bytes);
    show(&state, &change, &name, &super::actor(session.global), meter, session.format, session.console)
}

fn state_of(bytes: &[u8]) -> Result<State, Failed> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failed::new(Exit::Failure, format!("the group sent a state that cannot be read: {why}"))
    };
    let (meta, body) = loadline_log::snapshot::parse_bytes(bytes).map_err(|error| wrong(&error))?;
    let state = State::decode(&body).map_err(|error| wrong(&error))?;
    if state.hash().0 != meta.state_hash {
        return Err(wrong(&"it has another hash than its header says"));
    }
    Ok(state)
}

fn show(
    state: &State,
    change: &Change,
    name: &str,
    actor: &str,
    mut meter: Meter,
    format: Format,
    console: &mut Console,
) -> Result<(), Failed> {
    let tried = whatif(state, change, &trying(actor), |looked, total| {
        const EVERY: u64 = 1_000;
        if looked % EVERY == 0 {
            meter.clusters("looking at clusters", looked, total);
        }
    });
    drop(meter);
    let WhatIf { index, at, clusters, different } = tried.map_err(|error| refused(name, &error))?;
    let rows: Vec<Row> = different.iter().map(Row::of).collect();
    console.data(&list(format, "clusters", Some(index.0), &rows)?)?;
    let count = rows.len();
    let of = if clusters == 1 { "1 cluster".to_owned() } else { format!("{clusters} clusters") };
    console.say(&format!("{count} of {of} would decide differently at revision {index} ({at})"));
    if rows.is_empty() { Ok(()) } else { Err(Failed::quietly(Exit::Failure)) }
}

/// Whoever could fetch the whole state may try anything on a copy of it; under the name of a role, what that role may.
pub(super) fn trying(actor: &str) -> Actor {
    Actor::new(actor, "loadline").proven(Proof::Machine)
}

pub(super) fn read_change(path: &Path) -> Result<(Change, String), Failed> {
    let stdin = path == Path::new("-");
    let name = if stdin { "stdin".to_owned() } else { path.display().to_string() };
    let text = if stdin {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| Failed::usage(format!("{name} cannot be read: {error}")))?;
    let change = Change::parse(&text).map_err(|error| refused(&name, &error))?;
    Ok((change, name))
}

/// A text that says nothing is a mistake of whoever typed it; a change that the state refuses is a conflict with what is there.
pub(super) fn refused(name: &str, error: &ChangeError) -> Failed {
    let exit = if error.unreadable { Exit::Usage } else { Exit::Conflict };
    let failed = Failed::new(exit, format!("{name}: {error}"));
    match &error.hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

/// One cluster that would decide differently.
#[derive(Debug, Serialize)]
struct Row {
    cluster: String,
    before: Option<OutlookView>,
    after: Option<OutlookView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<DroppedView>,
}

/// What becomes of a cluster that is dropped.
#[derive(Debug, Serialize)]
struct DroppedView {
    left_behind: Vec<SpecView>,
    why: String,
}

#[derive(Debug, Serialize)]
struct OutlookView {
    desired: Vec<SpecView>,
    planned: Vec<PlannedView>,
    conclusion: &'static str,
    brakes: Vec<&'static str>,
    reasons: Vec<ReasonView>,
    /// In one line.
    why: String,
    /// With the strategies in dry run, where that is something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run_desired: Option<Vec<SpecView>>,
}

#[derive(Debug, Serialize)]
struct SpecView {
    replica: String,
    size: String,
}

#[derive(Debug, Serialize)]
struct PlannedView {
    step: String,
    strategy: &'static str,
    reason: &'static str,
    text: String,
}

#[derive(Debug, Serialize)]
struct ReasonView {
    strategy: &'static str,
    reason: &'static str,
    text: String,
}

impl Row {
    fn of(different: &Different) -> Row {
        Row {
            cluster: different.cluster.clone(),
            before: different.before.as_ref().map(OutlookView::of),
            after: different.after.as_ref().map(OutlookView::of),
            dropped: different.left_behind.as_deref().map(DroppedView::of),
        }
    }
}

impl DroppedView {
    fn of(left: &[ReplicaSpec]) -> DroppedView {
        DroppedView { left_behind: specs(left), why: dropped(left) }
    }
}

fn specs(specs: &[ReplicaSpec]) -> Vec<SpecView> {
    specs.iter().map(|spec| SpecView { replica: spec.name.to_string(), size: spec.size.to_string() }).collect()
}

fn listed(specs: &[SpecView]) -> String {
    if specs.is_empty() {
        return "none".to_owned();
    }
    specs.iter().map(|spec| format!("{}={}", spec.replica, spec.size)).collect::<Vec<_>>().join(",")
}

impl OutlookView {
    fn of(outlook: &Outlook) -> OutlookView {
        let reason = |(strategy, reason): &(&'static str, Reason)| ReasonView {
            strategy,
            reason: reason.code(),
            text: reason.to_string(),
        };
        OutlookView {
            desired: specs(&outlook.desired),
            planned: outlook.planned.iter().map(PlannedView::of).collect(),
            conclusion: outlook.conclusion.code(),
            brakes: outlook.brakes.iter().map(|held| held.brake.code()).collect(),
            reasons: outlook.reasons.iter().map(reason).collect(),
            why: outlook.why.clone(),
            dry_run_desired: outlook.shadow.as_deref().map(specs),
        }
    }

    fn shown_desired(&self) -> String {
        let dry_run = self.dry_run_desired.as_deref();
        let dry_run = dry_run.map(|wanted| format!(" (dry run: {})", listed(wanted))).unwrap_or_default();
        listed(&self.desired) + &dry_run
    }

    fn shown_conclusion(&self) -> String {
        let brakes: String = self.brakes.iter().map(|brake| format!(",{brake}")).collect();
        format!("{}{brakes}", self.conclusion)
    }
}

impl PlannedView {
    fn of(planned: &Planned) -> PlannedView {
        let step = words::step(&planned.step);
        let (strategy, reason) = (planned.by.code(), planned.reason.code());
        PlannedView { step, strategy, reason, text: planned.reason.to_string() }
    }
}

impl View for Row {
    const COLUMNS: &'static [Column] = &[
        Column::always("CLUSTER"),
        Column::always("BEFORE"),
        Column::always("AFTER"),
        Column::always("CONCLUSION"),
        Column::always("ACTIONS"),
        Column::always("REASON"),
        Column::wide("CONCLUSION-BEFORE"),
        Column::wide("ACTIONS-BEFORE"),
    ];

    fn cells(&self) -> Vec<String> {
        let desired = |outlook: &Option<OutlookView>| outlook.as_ref().map(OutlookView::shown_desired);
        let conclusion = |outlook: &Option<OutlookView>| outlook.as_ref().map(OutlookView::shown_conclusion);
        let actions = |outlook: &Option<OutlookView>| {
            let steps = outlook.iter().flat_map(|outlook| &outlook.planned).map(|planned| planned.step.as_str());
            steps.collect::<Vec<_>>().join(", ")
        };
        let dropped = self.dropped.as_ref();
        let reason = self.after.as_ref().map(|after| after.why.clone()).or(dropped.map(|dropped| dropped.why.clone()));
        let after = conclusion(&self.after).or(dropped.map(|_| "DROPPED".to_owned()));
        vec![
            self.cluster.clone(),
            desired(&self.before).unwrap_or_default(),
            desired(&self.after).unwrap_or_default(),
            after.unwrap_or_default(),
            actions(&self.after),
            reason.unwrap_or_default(),
            conclusion(&self.before).unwrap_or_default(),
            actions(&self.before),
        ]
    }

    fn name(&self) -> String {
        format!("clusters/{}", self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlook(desired: &[&str], dry_run: Option<&[&str]>) -> OutlookView {
        let specs = |names: &[&str]| -> Vec<SpecView> {
            names.iter().map(|name| SpecView { replica: (*name).to_owned(), size: "1".to_owned() }).collect()
        };
        OutlookView {
            desired: specs(desired),
            planned: vec![],
            conclusion: "AS_WANTED",
            brakes: vec![],
            reasons: vec![],
            why: "because".to_owned(),
            dry_run_desired: dry_run.map(specs),
        }
    }

    fn cells(row: &Row) -> Vec<String> {
        row.cells().into_iter().take(6).collect()
    }

    #[test]
    fn what_a_dry_run_would_come_to_is_in_the_table() {
        let (before, after) = (Some(outlook(&["r1"], None)), Some(outlook(&["r1"], Some(&[]))));
        let row = Row { cluster: "web".to_owned(), before, after, dropped: None };
        assert_eq!(cells(&row), ["web", "r1=1", "r1=1 (dry run: none)", "AS_WANTED", "", "because"]);
    }

    #[test]
    fn a_cluster_that_is_dropped_is_shown_as_such_with_what_it_leaves_behind() {
        let left = [ReplicaSpec { name: "r1".into(), size: "1".into() }];
        let dropped = Some(DroppedView::of(&left));
        let row = Row { cluster: "web".to_owned(), before: Some(outlook(&["r1"], None)), after: None, dropped };
        let why = "the cluster is dropped, and nobody drops the replicas it leaves behind: r1 of size 1";
        assert_eq!(cells(&row), ["web", "r1=1", "", "DROPPED", "", why]);
    }
}
