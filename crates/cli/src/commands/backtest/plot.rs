//! The runs over one axis of time: replicas and slots of all clusters, and the clusters that differ most on their own.

use std::fmt::Write as _;

use loadline_audit::backtest::{Backtest, CLUSTERS_WITH_LINES_MAX, ClusterLines, Lines, Point, RunLines};
use loadline_state_machine::Span;

use crate::drawing::{BLUE, GREY, ORANGE, Stroke, escaped, legend, open, polyline};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 60.0;
const PANEL_WIDTH: f64 = 870.0;
const PANEL_HEIGHT: f64 = 130.0;
/// From the top of one panel to that of the next.
const PANEL_EVERY: f64 = 190.0;
const TOP: f64 = 60.0;
/// From one line of text under the panels to the next.
const NOTE_EVERY: f64 = 16.0;

const RECORDED: Stroke = Stroke { colour: GREY, dashed: false, width: 7 };
const UNCHANGED: Stroke = Stroke { colour: BLUE, dashed: false, width: 3 };
const CHANGED: Stroke = Stroke { colour: ORANGE, dashed: true, width: 2 };

struct Axis {
    from_ms: u64,
    to_ms: u64,
}

impl Axis {
    #[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
    fn x(&self, at_ms: u64) -> f64 {
        let share = at_ms.clamp(self.from_ms, self.to_ms) - self.from_ms;
        LEFT + share as f64 / (self.to_ms - self.from_ms).max(1) as f64 * PANEL_WIDTH
    }
}

/// The whole picture.
pub(super) fn draw(tried: &Backtest) -> String {
    let mut panels = vec![("replicas of all clusters".to_owned(), &tried.lines.replicas)];
    if !tried.lines.slots.recorded.iter().all(|point| point.value_milli == 0) {
        panels.push(("slots of all clusters".to_owned(), &tried.lines.slots));
    }
    panels.extend(tried.lines.clusters.iter().map(|it| (title(it), &it.replicas)));
    let notes = left_out(&tried.lines);
    let mut height = TOP + 20.0;
    panels.iter().for_each(|_| height += PANEL_EVERY);
    notes.iter().for_each(|_| height += NOTE_EVERY);
    let mut svg = open(WIDTH, height, "Backtest: the recorded run and the model over time");
    let changed = tried.changed.is_some();
    let named = [("recorded", RECORDED), ("model without the change", UNCHANGED), ("model with the change", CHANGED)];
    let without = [("recorded", RECORDED), ("model", UNCHANGED)];
    let mut x = LEFT;
    for (label, stroke) in if changed { &named[..] } else { &without[..] } {
        legend(&mut svg, x, 24.0, label, *stroke);
        x += 170.0;
    }
    let axis = Axis { from_ms: tried.window.from_ms, to_ms: tried.window.to_ms };
    let mut top = TOP;
    for (title, lines) in panels {
        panel(&mut svg, top, &title, lines, &axis);
        top += PANEL_EVERY;
    }
    for note in notes {
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{top}\" font-size=\"10\">{}</text>", escaped(&note));
        top += NOTE_EVERY;
    }
    svg.push_str("</svg>\n");
    svg
}

/// Whose replicas they are, and what a reader should know of the line.
fn title(drawn: &ClusterLines) -> String {
    match drawn.step_ms {
        None => format!("replicas of {}", drawn.cluster),
        Some(step) => {
            let step = Span::from_millis(step);
            format!("replicas of {}: averages of {step}, because they changed too often to be drawn", drawn.cluster)
        }
    }
}

/// What is not in the picture, a line each.
fn left_out(lines: &RunLines) -> Vec<String> {
    let drawn = lines.clusters.len() as u64;
    let mut notes = Vec::new();
    if drawn < lines.clusters_compared {
        notes.push(format!(
            "Of {} clusters with replicas, the {drawn} that differ most are drawn on their own.",
            lines.clusters_compared
        ));
    }
    if lines.clusters_left_out > 0 {
        let more = match lines.clusters_left_out {
            1 => "1 more cluster is".to_owned(),
            count => format!("{count} more clusters are"),
        };
        notes.push(format!(
            "{more} in the sums only: single ones are compared as far as they are among the first {CLUSTERS_WITH_LINES_MAX} that \
             were made."
        ));
    }
    notes
}

fn panel(svg: &mut String, top: f64, title: &str, lines: &Lines, axis: &Axis) {
    let all = [(&lines.recorded, RECORDED), (&lines.unchanged, UNCHANGED), (&lines.changed, CHANGED)];
    let highest = all.iter().flat_map(|(points, _)| points.iter()).map(|point| point.value_milli).max().unwrap_or(0);
    let step = step_of(highest);
    let steps = highest.div_ceil(step).max(1);
    let y = |value_milli: u64| {
        #[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
        let share = value_milli as f64 / (steps * step) as f64;
        top + (1.0 - share) * PANEL_HEIGHT
    };
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>", top - 10.0, escaped(title));
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-size=\"10\">time in UTC</text>",
        LEFT + PANEL_WIDTH,
        top - 10.0
    );
    for value in (0..=steps).map(|number| number * step) {
        let (at, right) = (y(value), LEFT + PANEL_WIDTH);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            shown(value)
        );
    }
    for at_ms in ticks(axis) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\">{}</text>",
            axis.x(at_ms),
            top + PANEL_HEIGHT + 16.0,
            clock(at_ms, axis)
        );
    }
    for (points, stroke) in all.into_iter().filter(|(points, _)| !points.is_empty()) {
        polyline(svg, &steps_of(points, axis, y), stroke);
    }
}

/// A value holds until the next one: a line of steps, not of slopes. What does not change is drawn once.
fn steps_of(points: &[Point], axis: &Axis, y: impl Fn(u64) -> f64) -> Vec<(f64, f64)> {
    let mut drawn: Vec<(f64, f64)> = Vec::new();
    let mut last = None;
    for point in points.iter().filter(|point| point.at_ms <= axis.to_ms) {
        if last == Some(point.value_milli) {
            continue;
        }
        let x = axis.x(point.at_ms);
        if let Some(before) = last {
            drawn.push((x, y(before)));
        } else if point.at_ms > axis.from_ms {
            // Nothing is known to have been there before.
            drawn.push((axis.x(axis.from_ms), y(0)));
            drawn.push((x, y(0)));
        }
        drawn.push((x, y(point.value_milli)));
        last = Some(point.value_milli);
    }
    drawn.push((axis.x(axis.to_ms), y(last.unwrap_or(0))));
    drawn
}

/// So wide that there are at most five: 1, 2 or 5 of a power of ten, and at least one half.
fn step_of(highest_milli: u64) -> u64 {
    let mut step = 500;
    for (times, over) in [(2, 1), (2, 1), (5, 2)].into_iter().cycle() {
        if step >= highest_milli / 5 {
            break;
        }
        step = step * times / over;
    }
    step
}

fn shown(milli: u64) -> String {
    if milli.is_multiple_of(1_000) {
        (milli / 1_000).to_string()
    } else {
        format!("{}.{}", milli / 1_000, milli % 1_000 / 100)
    }
}

/// The moments under which their time is written.
fn ticks(axis: &Axis) -> Vec<u64> {
    const TICKS: u64 = 8;
    let span = axis.to_ms - axis.from_ms;
    (0..=TICKS).map(|number| axis.from_ms + span * number / TICKS).collect()
}

/// In universal time; the day where the window is longer than one, the seconds where it is short.
fn clock(at_ms: u64, axis: &Axis) -> String {
    const MINUTE: u64 = 60_000;
    const DAY: u64 = 24 * 60 * MINUTE;
    let pattern = match axis.to_ms - axis.from_ms {
        span if span > DAY => "%m-%d %H:%M",
        span if span < 20 * MINUTE => "%H:%M:%S",
        _ => "%H:%M",
    };
    let at = i64::try_from(at_ms).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    at.map(|at| at.strftime(pattern).to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_at_most_five_steps_of_a_round_size() {
        for (highest, step) in
            [(0, 500), (1_000, 500), (3_000, 1_000), (7_000, 2_000), (24_000, 5_000), (480_000, 100_000)]
        {
            assert_eq!(step_of(highest), step, "{highest}");
            assert!(highest.div_ceil(step_of(highest)) <= 6, "{highest}");
        }
    }

    #[test]
    fn a_picture_says_what_is_not_in_it_and_which_lines_are_averages() {
        let drawn =
            |cluster: &str, step_ms| ClusterLines { cluster: cluster.to_owned(), step_ms, replicas: Lines::default() };
        let mut lines = RunLines {
            replicas: Lines::default(),
            slots: Lines::default(),
            clusters: vec![drawn("web", None), drawn("busy", Some(180_000))],
            clusters_compared: 2,
            clusters_left_out: 0,
        };
        let titles: Vec<String> = lines.clusters.iter().map(title).collect();
        let averages = "replicas of busy: averages of 3m, because they changed too often to be drawn";
        assert_eq!(titles, ["replicas of web", averages]);
        assert_eq!(left_out(&lines), Vec::<String>::new());
        (lines.clusters_compared, lines.clusters_left_out) = (1_000, 1);
        let sums = "in the sums only: single ones are compared as far as they are among the first 1000 that were made.";
        let most = "Of 1000 clusters with replicas, the 2 that differ most are drawn on their own.".to_owned();
        assert_eq!(left_out(&lines), [most.clone(), format!("1 more cluster is {sums}")]);
        lines.clusters_left_out = 250;
        assert_eq!(left_out(&lines), [most, format!("250 more clusters are {sums}")]);
    }

    #[test]
    fn a_line_goes_in_steps_from_one_end_to_the_other() {
        let axis = Axis { from_ms: 1_000, to_ms: 2_000 };
        let points =
            [(1_500, 1_000), (1_600, 1_000), (1_750, 3_000)].map(|(at_ms, value_milli)| Point { at_ms, value_milli });
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let drawn = steps_of(&points, &axis, |value| value as f64);
        let x = |share: f64| LEFT + share * PANEL_WIDTH;
        let expected = [(0.0, 0.0), (0.5, 0.0), (0.5, 1e3), (0.75, 1e3), (0.75, 3e3), (1.0, 3e3)];
        assert_eq!(drawn, expected.map(|(share, y)| (x(share), y)));
    }
}
