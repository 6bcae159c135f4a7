//! The rows of a benchmark, as a table for people and as data for programs.

use std::time::Duration;

use serde::Serialize;

use super::machine::Machine;
use super::rows::to_the_hundredth;
use crate::exit::Failed;
use crate::output::{Column, Format, View, list, pretty, yaml_documents};
use crate::text::show_bytes;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) baseline: Baseline,
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn shown(&self, format: Format) -> Result<String, Failed> {
        match format {
            Format::Json => pretty(self),
            Format::Yaml => yaml_documents(&[self]),
            _ => list(format, "rows", None, &self.rows),
        }
    }
}

/// What this machine needs for something that has nothing to do with us, in the same run.
#[derive(Debug, Serialize)]
pub(super) struct Baseline {
    /// Finding one of so many names in a sorted map, picked evenly: mostly waiting for memory.
    pub(super) lookups: Vec<Lookup>,
}

#[derive(Debug, Serialize)]
pub(super) struct Lookup {
    pub(super) names: u32,
    pub(super) cost: Cost,
}

/// How long something takes: the middle one of many rounds, and how far they were apart.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    pub(super) ns: u64,
    ns_min: u64,
    ns_max: u64,
    ops_per_s: u64,
    rounds: usize,
}

impl Cost {
    /// `rounds` must not be empty.
    pub(super) fn of(rounds: &[Duration]) -> Cost {
        let mut rounds: Vec<u64> =
            rounds.iter().map(|took| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1)).collect();
        rounds.sort_unstable();
        let at = |place: usize| rounds.get(place).copied().unwrap_or(1);
        let ns = at(rounds.len() / 2);
        let last = rounds.len().saturating_sub(1);
        Cost { ns, ns_min: at(0), ns_max: at(last), ops_per_s: 1_000_000_000 / ns, rounds: rounds.len() }
    }

    pub(super) fn against(self, other: Cost) -> f64 {
        ratio(self.ns, other.ns)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of what was measured")]
pub(super) fn ratio(one: u64, other: u64) -> f64 {
    one as f64 / other.max(1) as f64
}

/// One figure.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) clusters: u32,
    #[serde(flatten)]
    pub(super) figure: Figure,
    /// What the ratio is to.
    pub(super) against: Against,
    #[serde(serialize_with = "to_the_hundredth")]
    pub(super) ratio: Option<f64>,
    pub(super) goal: Goal,
    /// Nothing if it could not be measured here.
    pub(super) met: Option<bool>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Figure {
    Cost(Cost),
    Memory { bytes_per_cluster: Option<u64> },
}

#[derive(Debug, Serialize)]
pub(super) struct Against {
    pub(super) name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clusters: Option<u32>,
    #[serde(flatten)]
    pub(super) figure: Figure,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "figure", rename_all = "snake_case")]
pub(super) enum Goal {
    Ratio { at_most: f64 },
    OpsPerS { at_least: u64 },
    BytesPerCluster { at_most: u64 },
}

impl Goal {
    pub(super) fn met(self, figure: Figure, ratio: Option<f64>) -> Option<bool> {
        match (self, figure) {
            (Goal::Ratio { at_most }, _) => ratio.map(|ratio| ratio <= at_most),
            (Goal::OpsPerS { at_least }, Figure::Cost(cost)) => Some(cost.ops_per_s >= at_least),
            (Goal::BytesPerCluster { at_most }, Figure::Memory { bytes_per_cluster }) => {
                bytes_per_cluster.map(|bytes| bytes <= at_most)
            }
            _ => None,
        }
    }

    fn shown(self) -> String {
        match self {
            Goal::Ratio { at_most } => format!("ratio <= {at_most}"),
            Goal::OpsPerS { at_least } => format!(">= {at_least}/s"),
            Goal::BytesPerCluster { at_most } => format!("<= {}", show_bytes(at_most)),
        }
    }
}

impl Figure {
    fn shown(self) -> String {
        match self {
            Figure::Cost(cost) => show_ns(cost.ns),
            Figure::Memory { bytes_per_cluster } => bytes_per_cluster.map(show_bytes).unwrap_or_default(),
        }
    }

    fn per_second(self) -> String {
        match self {
            Figure::Cost(cost) => cost.ops_per_s.to_string(),
            Figure::Memory { .. } => String::new(),
        }
    }
}

impl View for Row {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("CLUSTERS"),
        Column::always("COST"),
        Column::always("PER-SECOND"),
        Column::always("AGAINST"),
        Column::always("RATIO"),
        Column::always("GOAL"),
        Column::always("MET"),
    ];

    fn cells(&self) -> Vec<String> {
        let clusters = self.against.clusters.map(|clusters| format!(" at {clusters}")).unwrap_or_default();
        vec![
            self.name.to_owned(),
            self.clusters.to_string(),
            self.figure.shown(),
            self.figure.per_second(),
            format!("{} {}{clusters}", self.against.figure.shown(), self.against.name),
            self.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            self.goal.shown(),
            self.met.map_or("not measured", |met| if met { "yes" } else { "no" }).to_owned(),
        ]
    }

    fn name(&self) -> String {
        format!("{}/{}", self.name, self.clusters)
    }
}

/// `950ns`, `4.2us`, `1.3ms`.
fn show_ns(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}.{}us", ns / 1_000, ns % 1_000 / 100),
        _ => format!("{}.{}ms", ns / 1_000_000, ns % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(nanos: &[u64]) -> Cost {
        Cost::of(&nanos.iter().copied().map(Duration::from_nanos).collect::<Vec<_>>())
    }

    #[test]
    fn one_slow_round_does_not_move_the_figure() {
        let cost = cost(&[5_000, 4_000, 900_000, 6_000, 4_500]);
        assert_eq!((cost.ns, cost.ns_min, cost.ns_max, cost.rounds), (5_000, 4_000, 900_000, 5));
        assert_eq!(cost.ops_per_s, 200_000);
    }

    #[test]
    fn a_goal_is_met_up_to_and_including_its_bound() {
        let figure = Figure::Cost(cost(&[5_000]));
        assert_eq!(Goal::OpsPerS { at_least: 200_000 }.met(figure, None), Some(true));
        assert_eq!(Goal::OpsPerS { at_least: 200_001 }.met(figure, None), Some(false));
        assert_eq!(Goal::Ratio { at_most: 1.5 }.met(figure, Some(1.5)), Some(true));
        assert_eq!(Goal::Ratio { at_most: 1.5 }.met(figure, Some(1.51)), Some(false));
        let memory = |bytes_per_cluster| Figure::Memory { bytes_per_cluster };
        assert_eq!(Goal::BytesPerCluster { at_most: 4_096 }.met(memory(Some(4_096)), None), Some(true));
        assert_eq!(Goal::BytesPerCluster { at_most: 4_096 }.met(memory(None), None), None, "nobody knows");
    }

    #[test]
    fn times_are_shown_in_the_unit_that_suits_them() {
        assert_eq!([950, 4_260, 1_349_000].map(show_ns), ["950ns", "4.2us", "1.3ms"]);
    }
}
