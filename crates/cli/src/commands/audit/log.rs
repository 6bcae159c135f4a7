//! `audit log`: what happened and who did it, the newest first, from a running group or from a history at rest.

use loadline_audit::search::{Kind, Wanted, search};
use loadline_audit::{Scanned, Trail, TrailError, TrailNames, beginning, with_causes};
use loadline_client::HistoryQuery;
use loadline_client::v1::{HistoryGap, HistoryRow};
use loadline_sql::tables::EventRow;
use loadline_state_machine::Time;
use serde::Serialize;

use super::super::Session;
use crate::audit_args::LogArgs;
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::meter::Entries;
use crate::output::{Column, Format, View, list};
use crate::text::{did_you_mean, show_time};

/// Through the audit index of a node.
pub(super) async fn running(args: &LogArgs, actor: Option<String>, session: Session<'_>) -> Result<(), Failed> {
    kinds(args)?;
    let query = HistoryQuery {
        cluster: args.cluster.clone(),
        actor,
        kinds: args.kinds.clone(),
        since_ms: args.since.map(millis),
        until_ms: args.until.map(millis),
    };
    let count = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let found = session.client.search_history(&query, count, session.reading).await?;
    let rows: Vec<Row> = found.rows.into_iter().map(Row::of).collect();
    say_gaps(&found.gaps, session.console);
    show(&rows, found.more, Some(found.revision), session.format, session.console)
}

/// By going through all of it once.
pub(super) fn at_rest(
    args: &LogArgs,
    actor: Option<String>,
    format: Format,
    console: &mut Console,
) -> Result<(), Failed> {
    let kinds = kinds(args)?;
    let history = args.history.open(console)?;
    let mut bar = Entries::start("looking through it", history.len(), console.watched);
    let index = Scanned::read(&*history.source, || bar.one()).map_err(failed)?;
    drop(bar);
    let trail = Trail { source: &*history.source, index: &index };
    // Before anything is looked for: what is not found may be in one of them.
    let gap = |gap: std::ops::RangeInclusive<u64>| HistoryGap { first_index: *gap.start(), last_index: *gap.end() };
    let gaps: Vec<HistoryGap> = trail.gaps().into_iter().map(gap).collect();
    say_gaps(&gaps, console);
    let before = beginning(&*history.source).map_err(failed)?;
    let cluster = match &args.cluster {
        None => None,
        Some(name) => {
            let missing = || Failed::new(Exit::NotFound, format!("this history tells of no cluster {name}"));
            let told = trail.cluster_named(name, None).map_err(failed)?;
            let there = || before.as_ref()?.cluster(name).map(|cluster| cluster.id);
            Some(told.or_else(there).ok_or_else(missing)?)
        }
    };
    let wanted = Wanted { cluster, actor, kinds, since: args.since, until: args.until };
    let names = TrailNames::new(trail, None).beginning_with(before.as_ref());
    let count = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let (mut rows, mut before) = (Vec::new(), None);
    loop {
        let page = search(&trail, &wanted, &names, before, count - rows.len()).map_err(failed)?;
        rows.extend(page.rows);
        before = page.next;
        if before.is_none() || rows.len() >= count {
            break;
        }
    }
    let more = before.is_some() || rows.len() > count;
    rows.truncate(count);
    let rows: Vec<Row> = rows.into_iter().map(Row::at_rest).collect();
    let last = history.source.range().map(|range| *range.end());
    show(&rows, more, last, format, console)
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn failed(error: TrailError) -> Failed {
    Failed::new(Exit::Failure, with_causes(&error))
}

fn millis(time: Time) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A slip of the finger is found before anybody is asked.
fn kinds(args: &LogArgs) -> Result<Vec<Kind>, Failed> {
    if let (Some(since), Some(until)) = (args.since, args.until)
        && since > until
    {
        return Err(Failed::usage("--until is before --since").hint("the earlier moment comes first"));
    }
    let read = |text: &String| {
        Kind::read(text).map_err(|error| Failed::usage(format!("{error}{}", did_you_mean(text, Kind::names()))))
    };
    args.kinds.iter().map(read).collect()
}

fn say_gaps(gaps: &[HistoryGap], console: &mut Console) {
    for gap in gaps {
        console.warn(&format!(
            "entries {} to {} are not in this history: what happened there is not shown; another node may have them",
            gap.first_index, gap.last_index
        ));
    }
}

fn show(rows: &[Row], more: bool, revision: Option<u64>, format: Format, console: &mut Console) -> Result<(), Failed> {
    if rows.is_empty() {
        console.say("nothing of that is in this history");
    }
    console.data(&list(format, "history", revision, rows)?)?;
    if more {
        console.say("there is more: see --limit, --since and --until");
    }
    Ok(())
}

/// One thing that happened.
#[derive(Debug, Serialize)]
struct Row {
    index: u64,
    time: String,
    actor: String,
    source: String,
    proof: String,
    request_id: String,
    kind: String,
    cluster: String,
    cluster_id: String,
    resource: String,
    what: String,
}

impl Row {
    fn of(row: HistoryRow) -> Row {
        Row {
            index: row.log_index,
            time: show_time(row.time_ms),
            actor: row.actor,
            source: row.source,
            proof: row.proof,
            request_id: row.request_id,
            kind: row.kind,
            cluster: row.cluster,
            cluster_id: row.cluster_id,
            resource: row.resource,
            what: row.what,
        }
    }
}

impl Row {
    /// The same, as a history at rest tells it.
    fn at_rest(row: EventRow) -> Row {
        Row {
            index: row.index.0,
            time: show_time(millis(row.at)),
            actor: row.actor.unwrap_or_default(),
            source: row.source.unwrap_or_default(),
            proof: row.proof.unwrap_or_default(),
            request_id: row.request_id.unwrap_or_default(),
            kind: row.kind.to_owned(),
            cluster: row.cluster_name.unwrap_or_default(),
            cluster_id: row.cluster.map(|id| id.to_string()).unwrap_or_default(),
            resource: row.resource.unwrap_or_default(),
            what: row.what,
        }
    }
}

impl View for Row {
    const COLUMNS: &'static [Column] = &[
        Column::always("INDEX"),
        Column::always("TIME"),
        Column::always("ACTOR"),
        Column::always("KIND"),
        Column::always("CLUSTER"),
        Column::wide("SOURCE"),
        Column::wide("PROOF"),
        Column::wide("REQUEST"),
        Column::always("WHAT"),
    ];

    fn cells(&self) -> Vec<String> {
        let cluster = if self.cluster.is_empty() { &self.cluster_id } else { &self.cluster };
        vec![
            self.index.to_string(),
            self.time.clone(),
            self.actor.clone(),
            self.kind.clone(),
            cluster.clone(),
            self.source.clone(),
            self.proof.clone(),
            self.request_id.clone(),
            self.what.clone(),
        ]
    }

    fn name(&self) -> String {
        self.resource.clone()
    }
}
