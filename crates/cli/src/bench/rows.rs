//! The rows of the benchmarks that run whole groups: ours, etcd's in the same run, and what the goal is.

use serde::{Serialize, Serializer};

use super::figures::Figures;
use super::machine::Machine;
use crate::exit::Failed;
use crate::output::{Column, Format, View, list, pretty, yaml_documents};

#[derive(Debug, Serialize)]
pub(super) struct Suite {
    pub(super) machine: Machine,
    pub(super) baseline: Baseline,
    pub(super) rows: Vec<Row>,
    /// What could not be measured, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<String>,
}

impl Suite {
    pub(super) fn shown(&self, format: Format) -> Result<String, Failed> {
        match format {
            Format::Json => pretty(self),
            Format::Yaml => yaml_documents(&[self]),
            Format::Table | Format::Wide => {
                let rows = list(format, "rows", None, &self.rows)?;
                Ok(format!("{}\n{rows}{}", self.baseline.line(), self.mixes()))
            }
            _ => list(format, "rows", None, &self.rows),
        }
    }
}

impl Suite {
    /// A line for each mix: the same for all rows that follow each other with it.
    fn mixes(&self) -> String {
        let mut mixes: Vec<&str> = self.rows.iter().filter_map(|row| row.mix.as_deref()).collect();
        mixes.dedup();
        mixes.into_iter().map(|mix| format!("{mix}\n")).collect()
    }
}

/// What this machine needs for the least that every design has to do, in the same run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Baseline {
    /// Appending the same bytes and making them durable, by three writers at once, as three nodes do.
    pub(super) fdatasync_p50_ms: f64,
    pub(super) fdatasync_p99_ms: f64,
    /// The smallest gRPC call over loopback, there and back.
    pub(super) round_trip_p50_ms: f64,
    pub(super) round_trip_p99_ms: f64,
    /// Three round trips with two of those appends between them, right after a rest: a processor that sleeps takes its time. Nothing: no
    /// benchmark of this run rests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rested_p50_ms: Option<f64>,
    /// Nothing: it was not there, or not wanted.
    pub(super) etcd_version: Option<String>,
}

impl Baseline {
    fn line(&self) -> String {
        let etcd = self.etcd_version.as_deref().map_or("without etcd".to_owned(), |version| format!("etcd {version}"));
        let rested = self
            .rested_p50_ms
            .map_or(String::new(), |rested| format!("; two and three of them in a row after a rest {rested:.3} ms"));
        format!(
            "fdatasync by three writers p50 {:.3} ms, p99 {:.3} ms; round trip p50 {:.3} ms, p99 {:.3} ms{rested}; {etcd}",
            self.fdatasync_p50_ms, self.fdatasync_p99_ms, self.round_trip_p50_ms, self.round_trip_p99_ms
        )
    }
}

/// One figure. What does not apply to it is absent.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) clients: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clusters: Option<u32>,
    #[serde(flatten)]
    pub(super) figures: Option<Figures>,
    /// A figure that is neither a rate nor a time of many, with its unit.
    #[serde(flatten)]
    pub(super) value: Option<Value>,
    pub(super) etcd: Option<Figures>,
    /// As it is, for the goal; shown to the hundredth.
    #[serde(serialize_with = "to_the_hundredth")]
    pub(super) ratio: Option<f64>,
    /// What the ratio is to.
    pub(super) against: Option<String>,
    /// The same in milliseconds, where it was measured with disk and loopback while this was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) against_ms: Option<f64>,
    /// What was asked for, where a name does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mix: Option<String>,
    pub(super) goal: Option<String>,
    /// Nothing: there is no goal, or what it is measured against was not there.
    pub(super) met: Option<bool>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Value {
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

impl Row {
    pub(super) fn new(name: &str, clients: Option<usize>, figures: Option<Figures>) -> Row {
        Row { name: name.to_owned(), clients, figures, ..Row::default() }
    }

    pub(super) fn of_value(name: &str, value: f64, unit: &'static str) -> Row {
        Row { name: name.to_owned(), value: Some(Value { value: hundredths(value), unit }), ..Row::default() }
    }

    pub(super) fn with_clusters(self, clusters: u32) -> Row {
        Row { clusters: Some(clusters), ..self }
    }

    pub(super) fn beside(self, etcd: Option<Figures>) -> Row {
        Row { etcd, ..self }
    }

    pub(super) fn against(self, what: &str, ratio: Option<f64>) -> Row {
        Row { against: Some(what.to_owned()), ratio, ..self }
    }

    /// The p50 over the least that it can be.
    pub(super) fn p50_against(self, what: &str, floor_ms: f64) -> Row {
        let ratio = self.figures.map(|figures| figures.p50_ms / floor_ms);
        Row { against_ms: Some(thousandths(floor_ms)), ..self.against(what, ratio) }
    }

    pub(super) fn of_mix(self, mix: &str) -> Row {
        Row { mix: Some(mix.to_owned()), ..self }
    }

    /// Ours over etcd's.
    pub(super) fn rate_against_etcd(self) -> Row {
        let ratio = self.figures.zip(self.etcd).map(|(ours, etcd)| ours.ops_per_s / etcd.ops_per_s);
        self.against("etcd's rate", ratio)
    }

    pub(super) fn goal(self, goal: &str, met: Option<bool>) -> Row {
        Row { goal: Some(goal.to_owned()), met, ..self }
    }

    pub(super) fn ratio_at_most(self, most: f64) -> Row {
        let met = self.ratio.map(|ratio| ratio <= most);
        self.goal(&format!("ratio <= {most}"), met)
    }

    pub(super) fn ratio_at_least(self, least: f64) -> Row {
        let met = self.ratio.map(|ratio| ratio >= least);
        self.goal(&format!("ratio >= {least}"), met)
    }
}

/// More is noise; but what misses its goal by less than that misses it.
fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[expect(clippy::ref_option, reason = "as serde calls it")]
pub(super) fn to_the_hundredth<S: Serializer>(ratio: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    ratio.map(hundredths).serialize(serializer)
}

fn thousandths(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

impl View for Row {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("CLIENTS"),
        Column::always("CLUSTERS"),
        Column::always("PER-SECOND"),
        Column::always("P50"),
        Column::always("P99"),
        Column::always("ETCD"),
        Column::always("ETCD-P50"),
        Column::always("ETCD-P99"),
        Column::always("RATIO"),
        Column::always("TO"),
        Column::always("GOAL"),
        Column::always("MET"),
    ];

    fn cells(&self) -> Vec<String> {
        let whole = |figures: &Option<Figures>| figures.map(|it| format!("{:.0}", it.ops_per_s)).unwrap_or_default();
        let ms = |figures: &Option<Figures>, of: fn(Figures) -> f64| {
            figures.map(|it| format!("{:.2}ms", of(it))).unwrap_or_default()
        };
        let value = self.value.as_ref().map(|it| format!("{:.2} {}", it.value, it.unit));
        vec![
            self.name.clone(),
            self.clients.map(|count| count.to_string()).unwrap_or_default(),
            self.clusters.map(|count| count.to_string()).unwrap_or_default(),
            value.unwrap_or_else(|| whole(&self.figures)),
            ms(&self.figures, |it| it.p50_ms),
            ms(&self.figures, |it| it.p99_ms),
            whole(&self.etcd),
            ms(&self.etcd, |it| it.p50_ms),
            ms(&self.etcd, |it| it.p99_ms),
            self.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            self.against.clone().unwrap_or_default(),
            self.goal.clone().unwrap_or_default(),
            match (&self.goal, self.met) {
                (None, _) => String::new(),
                (Some(_), None) => "not measured".to_owned(),
                (Some(_), Some(met)) => if met { "yes" } else { "no" }.to_owned(),
            },
        ]
    }

    fn name(&self) -> String {
        match self.clients {
            Some(clients) => format!("{}/{clients}", self.name),
            None => self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(ops_per_s: f64) -> Option<Figures> {
        Some(Figures { ops_per_s, p50_ms: 1.0, p99_ms: 2.0 })
    }

    #[test]
    fn a_row_is_one_flat_object_with_etcd_beside_it() {
        let row = Row::new("write", Some(256), figures(300.0)).beside(figures(100.0)).rate_against_etcd();
        let shown = serde_json::to_value(row.ratio_at_least(3.0)).expect("JSON");
        let expected = serde_json::json!({
            "name": "write", "clients": 256, "ops_per_s": 300.0, "p50_ms": 1.0, "p99_ms": 2.0,
            "etcd": { "ops_per_s": 100.0, "p50_ms": 1.0, "p99_ms": 2.0 },
            "ratio": 3.0, "against": "etcd's rate", "goal": "ratio >= 3", "met": true,
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_is_rounded_for_people_is_not_rounded_for_the_goal() {
        let beside = |ours: f64| Row::new("write", Some(256), figures(ours)).beside(figures(100.0)).rate_against_etcd();
        let missed = beside(299.9).ratio_at_least(3.0);
        let shown = serde_json::to_value(&missed).expect("JSON");
        assert_eq!((missed.met, &shown["ratio"]), (Some(false), &serde_json::json!(3.0)));
        assert_eq!(beside(150.1).ratio_at_most(1.5).met, Some(false));
    }

    #[test]
    fn without_etcd_a_goal_is_neither_met_nor_missed() {
        let row = Row::new("write", Some(256), figures(300.0)).rate_against_etcd().ratio_at_least(3.0);
        assert_eq!((row.ratio, row.met), (None, None));
        assert_eq!(row.cells().last().map(String::as_str), Some("not measured"));
    }
}
