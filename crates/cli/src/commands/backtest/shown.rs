//! What came of a backtest: the figures of the runs side by side, where they part, and what had to be assumed.

use std::fmt::Write as _;

use loadline_audit::backtest::{Backtest, Difference, Figures};
use loadline_state_machine::{Span, Time};
use serde::Serialize;

use super::{Shown, plot};
use crate::drawing::escaped;
use crate::exit::Failed;
use crate::output::{Column, Format, View, json_line, list, pretty, table, yaml_documents};
use crate::text::show_price;

pub(super) fn shown(tried: &Backtest, shown: Shown) -> Result<String, Failed> {
    Ok(match shown {
        Shown::Svg => plot::draw(tried),
        Shown::Html => page(tried),
        Shown::As(Format::Table | Format::Wide | Format::Sql) => story(tried),
        Shown::As(Format::Json) => pretty(tried)?,
        Shown::As(Format::Jsonl) => json_line(tried)?,
        Shown::As(Format::Yaml) => yaml_documents(std::slice::from_ref(tried))?,
        Shown::As(format @ (Format::Csv | Format::Name)) => match tried.changed {
            Some(_) => list(format, "figures", None, &rows(tried))?,
            None => list(format, "figures", None, &rows(tried).into_iter().map(Unchanged).collect::<Vec<_>>())?,
        },
    })
}

/// One figure of each run.
#[derive(Debug, Clone, Serialize)]
struct Row {
    figure: String,
    recorded: String,
    model: String,
    changed: String,
    /// With a change, from the model without it to the model with it; else from the record to the model.
    difference: String,
}

impl View for Row {
    const COLUMNS: &'static [Column] = &[
        Column::always("FIGURE"),
        Column::always("RECORDED"),
        Column::always("MODEL"),
        Column::always("CHANGED"),
        Column::always("DIFFERENCE"),
    ];

    fn cells(&self) -> Vec<String> {
        [&self.figure, &self.recorded, &self.model, &self.changed, &self.difference].map(String::clone).into()
    }

    fn name(&self) -> String {
        format!("figures/{}", self.figure)
    }
}

/// The same where nothing is changed.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
struct Unchanged(Row);

impl View for Unchanged {
    const COLUMNS: &'static [Column] =
        &[Column::always("FIGURE"), Column::always("RECORDED"), Column::always("MODEL"), Column::always("DIFFERENCE")];

    fn cells(&self) -> Vec<String> {
        [&self.0.figure, &self.0.recorded, &self.0.model, &self.0.difference].map(String::clone).into()
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

type Show = fn(u64) -> String;

fn rows(tried: &Backtest) -> Vec<Row> {
    let mut kinds: Vec<&String> = [Some(&tried.recorded), Some(&tried.unchanged), tried.changed.as_ref()]
        .into_iter()
        .flatten()
        .flat_map(|figures| figures.actions.keys())
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let row = |figure: &str, show: Show, of: &dyn Fn(&Figures) -> u64| {
        let (recorded, model) = (of(&tried.recorded), of(&tried.unchanged));
        let changed = tried.changed.as_ref().map(of);
        let (from, to) = changed.map_or((recorded, model), |changed| (model, changed));
        let sign = match to.cmp(&from) {
            std::cmp::Ordering::Less => "-",
            std::cmp::Ordering::Equal => "",
            std::cmp::Ordering::Greater => "+",
        };
        Row {
            figure: figure.to_owned(),
            recorded: show(recorded),
            model: show(model),
            changed: changed.map(show).unwrap_or_default(),
            difference: format!("{sign}{}", show(from.abs_diff(to))),
        }
    };
    let count: Show = |count| count.to_string();
    let span: Show = |millis| Span::from_millis(millis).to_string();
    let mut rows = vec![row("actions", count, &Figures::actions_total)];
    for kind in kinds {
        rows.push(row(kind, count, &|figures| figures.actions.get(kind).copied().unwrap_or(0)));
    }
    rows.push(row("replica-hours", thousandths, &|figures| figures.replica_hours_milli));
    rows.push(row("cost", show_price, &|figures| figures.cost_micros));
    rows.push(row("time-short", span, &|figures| figures.short_ms));
    rows.push(row("time-over-target", span, &|figures| figures.over_target_ms));
    rows.push(row("cold-starts", count, &|figures| figures.cold_starts));
    rows.push(row("cold-start-wait", span, &|figures| figures.cold_start_wait_ms));
    rows.push(row("direction-changes", count, &|figures| figures.direction_changes));
    rows
}

fn thousandths(milli: u64) -> String {
    let text = format!("{}.{:03}", milli / 1_000, milli % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// For people.
fn story(tried: &Backtest) -> String {
    let rows = rows(tried);
    let mut text = window(tried) + "\n\n";
    text += &match tried.changed {
        Some(_) => table(&rows, false),
        None => table(&rows.into_iter().map(Unchanged).collect::<Vec<_>>(), false),
    };
    text.push('\n');
    for line in findings(tried) {
        let _ = writeln!(text, "{line}");
    }
    text += "\nassumptions:\n";
    for assumption in &tried.assumptions {
        let _ = writeln!(text, "  - {assumption}");
    }
    text
}

fn window(tried: &Backtest) -> String {
    let window = &tried.window;
    let (from, to) = (Time::from_millis(window.from_ms), Time::from_millis(window.to_ms));
    let (first, last, entries, clusters) = (window.first_index, window.last_index, window.entries, window.clusters);
    let clusters = if clusters == 1 { "1 cluster".to_owned() } else { format!("{clusters} clusters") };
    format!("{from} to {to}: {entries} entries ({first} to {last}), {clusters}")
}

/// What the figures alone do not say.
fn findings(tried: &Backtest) -> Vec<String> {
    let mut lines = Vec::new();
    let fidelity = &tried.fidelity;
    let apart = Span::from_millis(fidelity.apart_max_ms);
    if fidelity.reproduced {
        lines.push(format!(
            "model: without a change it does what the record did: {} of {} actions in the same order, at most {apart} apart",
            fidelity.matched_actions, fidelity.recorded_actions
        ));
    } else {
        lines.push(format!(
            "model: without a change it differs from the record on {}; {} of {} recorded actions are matched",
            if fidelity.clusters_different == 1 {
                "1 cluster".to_owned()
            } else {
                format!("{} clusters", fidelity.clusters_different)
            },
            fidelity.matched_actions,
            fidelity.recorded_actions
        ));
        lines.extend(fidelity.first_difference.iter().flat_map(|first| parting(first, "recorded", "model")));
        lines.extend(fidelity.reasons.iter().map(|reason| format!("  why: {reason}")));
    }
    lines.extend(failures(tried));
    match &tried.effect {
        Some(effect) if effect.different => {
            let who = match effect.clusters_different {
                1 => "1 cluster decides or acts".to_owned(),
                count => format!("{count} clusters decide or act"),
            };
            lines.push(format!("change: {who} differently"));
            lines.extend(effect.first_difference.iter().flat_map(|first| parting(first, "without", "with")));
        }
        Some(_) => lines.push("change: nothing is decided or done differently".to_owned()),
        None => {}
    }
    lines
}

/// What the model does better than the record, also where both made the same calls.
fn failures(tried: &Backtest) -> Option<String> {
    let fidelity = &tried.fidelity;
    let calls = match fidelity.failed_calls {
        0 => return None,
        1 => "1 call".to_owned(),
        count => format!("{count} calls"),
    };
    let more = fidelity.failed_clusters.saturating_sub(fidelity.failed_on.len() as u64);
    let more = if more > 0 { format!(" and {more} more clusters") } else { String::new() };
    let on = fidelity.failed_on.join(", ");
    Some(format!(
        "record: {calls} failed or ended in doubt, on {on}{more}; those of the model succeed, so figures differ"
    ))
}

fn parting(first: &Difference, one: &str, other: &str) -> Vec<String> {
    let at = Time::from_millis(first.at_ms);
    let side = |name: &str, what: &Option<String>, why: &Option<String>| match (what, why) {
        (Some(what), Some(why)) => format!("    {name}: {what}, because {why}"),
        (Some(what), None) => format!("    {name}: {what}"),
        (None, _) => format!("    {name}: nothing"),
    };
    vec![
        format!("  first at {at}, entry {}, cluster {}:", first.index, first.cluster),
        side(one, &first.one, &first.one_why),
        side(other, &first.other, &first.other_why),
    ]
}

/// All of it in one file, with the picture.
fn page(tried: &Backtest) -> String {
    let mut html = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Backtest</title>\n<style>\
                    body{font-family:sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#1f2328}\
                    table{border-collapse:collapse}td,th{padding:.25em .9em;text-align:right;border-bottom:1px solid #ddd}\
                    td:first-child,th:first-child{text-align:left}pre{background:#f6f8fa;padding:1em;overflow-x:auto}\
                    </style></head><body>\n<h1>Backtest</h1>\n"
        .to_owned();
    let _ = writeln!(html, "<p>{}</p>", escaped(&window(tried)));
    if !tried.statements.is_empty() {
        let statements: Vec<String> = tried.statements.iter().map(|statement| format!("{statement};")).collect();
        let _ = writeln!(html, "<h2>Change</h2>\n<pre>{}</pre>", escaped(&statements.join("\n")));
    }
    html += "<h2>Figures</h2>\n<table><tr><th>figure</th><th>recorded</th><th>model</th>";
    let changed = tried.changed.is_some();
    html += if changed { "<th>changed</th><th>difference</th></tr>\n" } else { "<th>difference</th></tr>\n" };
    for row in rows(tried) {
        let cells = if changed { row.cells() } else { Unchanged(row).cells() };
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        let _ = writeln!(html, "<tr>{cells}</tr>");
    }
    let _ = writeln!(html, "</table>\n<h2>Findings</h2>\n<pre>{}</pre>", escaped(&findings(tried).join("\n")));
    let _ = writeln!(html, "<h2>Over time</h2>\n{}", plot::draw(tried));
    html += "<h2>Assumptions</h2>\n<ul>\n";
    for assumption in &tried.assumptions {
        let _ = writeln!(html, "<li>{}</li>", escaped(assumption));
    }
    html += "</ul>\n</body></html>\n";
    html
}

#[cfg(test)]
mod tests {
    use loadline_audit::backtest::{Fidelity, RunLines, Window};

    use super::*;

    /// A model that made two of three calls, and why.
    fn different() -> Backtest {
        let first_difference = Difference {
            index: 1_423,
            at_ms: 1_794_787_200_000,
            cluster: "web".to_owned(),
            one: Some("create_replica r1_auto of size 1".to_owned()),
            one_why: Some("target_size: target size 1 not present".to_owned()),
            other: None,
            other_why: None,
        };
        let fidelity = Fidelity {
            reproduced: false,
            recorded_actions: 3,
            modelled_actions: 2,
            matched_actions: 2,
            apart_max_ms: 0,
            failed_calls: 0,
            failed_clusters: 0,
            failed_on: Vec::new(),
            clusters_different: 1,
            first_difference: Some(first_difference),
            reasons: vec!["1 call failed".to_owned(), "the leader changed once".to_owned()],
        };
        let (replicas, slots) = Default::default();
        Backtest {
            window: Window {
                first_index: 1,
                last_index: 2_000,
                from_ms: 1_794_787_100_000,
                to_ms: 1_794_787_300_000,
                entries: 2_000,
                clusters: 1,
            },
            statements: Vec::new(),
            recorded: Figures::default(),
            unchanged: Figures::default(),
            changed: None,
            fidelity,
            effect: None,
            learned: Vec::new(),
            assumptions: vec!["Nobody knows.".to_owned()],
            lines: RunLines { replicas, slots, clusters: Vec::new(), clusters_compared: 9, clusters_left_out: 7 },
        }
    }

    #[test]
    fn a_model_that_differs_says_where_first_and_why() {
        let expected = [
            "model: without a change it differs from the record on 1 cluster; 2 of 3 recorded actions are matched",
            "  first at 2026-11-16T00:00:00.000Z, entry 1423, cluster web:",
            "    recorded: create_replica r1_auto of size 1, because target_size: target size 1 not present",
            "    model: nothing",
            "  why: 1 call failed",
            "  why: the leader changed once",
        ];
        assert_eq!(findings(&different()), expected);
        let text = story(&different());
        assert!(text.contains(&expected.join("\n")) && text.ends_with("assumptions:\n  - Nobody knows.\n"), "{text}");
    }

    #[test]
    fn calls_that_failed_are_named_also_where_the_model_does_the_same() {
        let mut tried = different();
        tried.fidelity = Fidelity {
            reproduced: true,
            first_difference: None,
            reasons: vec![],
            failed_calls: 3,
            failed_clusters: 7,
            failed_on: vec!["web".to_owned(), "other".to_owned()],
            ..tried.fidelity
        };
        let said = "record: 3 calls failed or ended in doubt, on web, other and 5 more clusters; those of the model succeed, so figures \
                    differ";
        assert_eq!(findings(&tried)[1..], [said]);
        (tried.fidelity.failed_calls, tried.fidelity.failed_clusters) = (1, 1);
        tried.fidelity.failed_on.truncate(1);
        assert!(findings(&tried)[1].starts_with("record: 1 call failed or ended in doubt, on web; "));
    }

    #[test]
    fn the_page_has_in_its_picture_what_is_left_out() {
        let page = page(&different());
        assert!(page.contains(">7 more clusters are in the sums only: "), "{page}");
    }
}
