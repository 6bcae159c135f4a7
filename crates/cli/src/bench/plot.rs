//! Latency and throughput over clients, ours beside etcd's, as an SVG that needs nothing but a browser.

use std::fmt::Write as _;

use super::figures::Figures;
use super::rows::Row;
use crate::drawing::{BLUE, ORANGE, Stroke, legend, open, polyline};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const PANEL_WIDTH: f64 = 340.0;
const PANEL_HEIGHT: f64 = 220.0;
const OURS: &str = BLUE;
const THEIRS: &str = ORANGE;

/// One line of a panel.
struct Line<'a> {
    label: &'a str,
    stroke: Stroke,
    points: Vec<(f64, f64)>,
}

/// Nothing if there are not at least two numbers of clients.
pub(super) fn draw(rows: &[Row]) -> Option<String> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.name == "write" && row.figures.is_some()).collect();
    if rows.len() < 2 {
        return None;
    }
    let line = |label, colour, dashed, whose: fn(&Row) -> Option<Figures>, figure: fn(Figures) -> f64| {
        let point = |row: &&Row| Some((whole(row.clients?), figure(whose(row)?)));
        Line { label, stroke: Stroke { colour, dashed, width: 2 }, points: rows.iter().filter_map(point).collect() }
    };
    let ours = |row: &Row| row.figures;
    let etcd = |row: &Row| row.etcd;
    let rates =
        [line("loadline", OURS, false, ours, |it| it.ops_per_s), line("etcd", THEIRS, false, etcd, |it| it.ops_per_s)];
    let times = [
        line("loadline p50", OURS, false, ours, |it| it.p50_ms),
        line("loadline p99", OURS, true, ours, |it| it.p99_ms),
        line("etcd p50", THEIRS, false, etcd, |it| it.p50_ms),
        line("etcd p99", THEIRS, true, etcd, |it| it.p99_ms),
    ];
    let mut svg = open(WIDTH, HEIGHT, "Durable writes on three nodes, over the number of clients");
    panel(&mut svg, 70.0, "writes per second", &rates);
    panel(&mut svg, 500.0, "milliseconds", &times);
    svg.push_str("</svg>\n");
    Some(svg)
}

#[expect(clippy::cast_precision_loss, reason = "a number of clients")]
fn whole(count: usize) -> f64 {
    count as f64
}

/// Both axes are logarithmic: what is measured spans three orders of magnitude.
fn panel(svg: &mut String, left: f64, title: &str, lines: &[Line<'_>]) {
    let top = 40.0;
    let all = || lines.iter().flat_map(|line| line.points.iter().copied());
    let bounds = |value: fn((f64, f64)) -> f64| {
        let (low, high) = all().map(value).fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(it), high.max(it)));
        (low.max(1e-6), high.max(low * 1.01).max(1e-6))
    };
    let (x_low, x_high) = bounds(|(x, _)| x);
    let (y_low, y_high) = bounds(|(_, y)| y);
    let (y_low, y_high) = (10_f64.powf(y_low.log10().floor()), 10_f64.powf(y_high.log10().ceil()));
    let share = |value: f64, low: f64, high: f64| (value.max(low).ln() - low.ln()) / (high.ln() - low.ln()).max(1e-9);
    let x = |value: f64| left + share(value, x_low, x_high) * PANEL_WIDTH;
    let y = |value: f64| top + (1.0 - share(value, y_low, y_high)) * PANEL_HEIGHT;
    let _ = writeln!(svg, "<text x=\"{left}\" y=\"24\" font-weight=\"bold\">{title}</text>");
    let mut decade = y_low;
    while decade <= y_high * 1.001 {
        let (at, right) = (y(decade), left + PANEL_WIDTH);
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{decade}</text>",
            left - 6.0,
            at + 4.0
        );
        decade *= 10.0;
    }
    let mut clients: Vec<f64> = all().map(|(x, _)| x).collect();
    clients.sort_by(f64::total_cmp);
    clients.dedup();
    for count in clients {
        let bottom = top + PANEL_HEIGHT + 16.0;
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{bottom}\" text-anchor=\"middle\">{count}</text>", x(count));
    }
    let middle = left + PANEL_WIDTH / 2.0;
    let _ =
        writeln!(svg, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">clients</text>", top + PANEL_HEIGHT + 34.0);
    for (place, line) in (0_u32..).zip(lines.iter().filter(|line| !line.points.is_empty())) {
        let points: Vec<(f64, f64)> = line.points.iter().map(|(px, py)| (x(*px), y(*py))).collect();
        polyline(svg, &points, line.stroke);
        for (px, py) in &line.points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{}\"/>",
                x(*px),
                y(*py),
                line.stroke.colour
            );
        }
        legend(svg, left + f64::from(place) * 88.0, HEIGHT - 20.0, line.label, line.stroke);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(clients: usize, ops_per_s: f64, etcd: bool) -> Row {
        let figures = Some(Figures { ops_per_s, p50_ms: 1.5, p99_ms: 20.0 });
        Row::new("write", Some(clients), figures).beside(figures.filter(|_| etcd))
    }

    #[test]
    fn every_line_has_a_point_for_each_number_of_clients_inside_the_picture() {
        let svg = draw(&[row(1, 700.0, true), row(16, 5_000.0, true), row(256, 21_000.0, true)]).expect("a plot");
        let lines: Vec<&str> = svg.lines().filter_map(|line| line.strip_prefix("<polyline points=\"")).collect();
        assert_eq!(lines.len(), 6);
        for line in lines {
            let points: Vec<(f64, f64)> = line
                .split('"')
                .next()
                .expect("points")
                .split(' ')
                .map(|point| point.split_once(',').expect("x and y"))
                .map(|(x, y)| (x.parse().expect("x"), y.parse().expect("y")))
                .collect();
            assert_eq!(points.len(), 3);
            assert!(points.iter().all(|(x, y)| (0.0..=WIDTH).contains(x) && (0.0..=HEIGHT).contains(y)), "{points:?}");
            assert!(points.is_sorted_by(|one, next| one.0 < next.0));
        }
        assert!(svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn without_etcd_only_ours_are_drawn_and_one_point_is_no_line() {
        let svg = draw(&[row(1, 700.0, false), row(16, 5_000.0, false)]).expect("a plot");
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert_eq!(draw(&[row(1, 700.0, true)]), None);
    }
}
