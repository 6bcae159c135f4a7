//! What came of a backtest, as it is told: the figures of the runs, where they part, and what had to be assumed.

use std::collections::BTreeSet;

use loadline_state_machine::{ClusterId, Span, State};
use serde::Serialize;

use super::deeds::Difference;
use super::learned::{CALL_DEFAULT, LearnedSize, START_UP_DEFAULT};
use super::lines::{Lines as Kept, Point};
use super::model::Model;
use super::reasons::reasons;
use super::tally::{Figures, Tally};
use super::{MadeLater, Runs};
use crate::change::shortened;

/// Clusters that are named where more are counted.
const CLUSTERS_NAMED_MAX: usize = 5;
/// Clusters that are drawn on their own.
const CLUSTERS_DRAWN_MAX: usize = 6;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Backtest {
    pub window: Window,
    /// As they were written.
    pub statements: Vec<String>,
    pub recorded: Figures,
    /// Of the model without the change.
    pub unchanged: Figures,
    /// Of the model with it; nothing if nothing is changed.
    pub changed: Option<Figures>,
    /// How well the model without the change does what the record did.
    pub fidelity: Fidelity,
    /// What the change does; nothing if nothing is changed.
    pub effect: Option<ChangeEffect>,
    pub learned: Vec<LearnedSize>,
    /// What had to be assumed, in words.
    pub assumptions: Vec<String>,
    pub lines: RunLines,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Window {
    pub first_index: u64,
    pub last_index: u64,
    pub from_ms: u64,
    pub to_ms: u64,
    pub entries: u64,
    pub clusters: u64,
}

/// The record beside the model without the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fidelity {
    /// Every call of the record was made by the model, cluster by cluster in the same order, and no other.
    pub reproduced: bool,
    pub recorded_actions: u64,
    pub modelled_actions: u64,
    pub matched_actions: u64,
    /// The longest that a call of the one came before the same of the other.
    pub apart_max_ms: u64,
    /// Calls of the record that failed, or ended so that nobody knew what had come of them. Those of the model succeed, so the figures differ,
    /// though the calls may be the same.
    pub failed_calls: u64,
    pub failed_clusters: u64,
    /// The first few of those clusters.
    pub failed_on: Vec<String>,
    pub clusters_different: u64,
    pub first_difference: Option<Difference>,
    /// What the model does not know and the record had.
    pub reasons: Vec<String>,
}

/// The model with the change beside the model without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeEffect {
    pub different: bool,
    pub clusters_different: u64,
    pub first_difference: Option<Difference>,
}

/// The runs over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunLines {
    pub replicas: Lines,
    pub slots: Lines,
    /// Those that differ most.
    pub clusters: Vec<ClusterLines>,
    /// How many they were chosen from.
    pub clusters_compared: u64,
    /// Of which there are no lines, because there are too many: they are in the sums alone.
    pub clusters_left_out: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterLines {
    pub cluster: String,
    /// How wide the steps are of which the lines have the averages; nothing if they have every change.
    pub step_ms: Option<u64>,
    pub replicas: Lines,
}

/// One line for each run; none of a run that there is not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Lines {
    pub recorded: Vec<Point>,
    pub unchanged: Vec<Point>,
    pub changed: Vec<Point>,
}

impl Backtest {
    /// With a change: whether the model does anything else than without. Without one: whether it does anything else than the
    /// record.
    pub fn is_different(&self) -> bool {
        self.effect.as_ref().map_or(!self.fidelity.reproduced, |effect| effect.different)
    }
}

/// What the runs amount to at the end of the window.
pub(super) struct Figured {
    recorded: Figures,
    unchanged: Figures,
    changed: Option<Figures>,
    lines: RunLines,
}

pub(super) fn figure(runs: &mut Runs<'_>, ended: &State) -> Figured {
    let to = runs.window.to;
    Figured {
        recorded: runs.recorded.figures(to),
        unchanged: runs.unchanged.tally.figures(to),
        changed: runs.changed.as_mut().map(|changed| changed.tally.figures(to)),
        lines: lines(runs, ended),
    }
}

pub(super) fn tell(runs: &Runs<'_>, figured: Figured, ended: &State) -> Backtest {
    let to = runs.window.to;
    let Figured { recorded, unchanged, changed, lines } = figured;
    let parted = &runs.fidelity.parted;
    let reproduced = parted.clusters.is_empty();
    let fidelity = Fidelity {
        reproduced,
        recorded_actions: runs.recorded_calls,
        modelled_actions: runs.modelled_calls,
        matched_actions: runs.fidelity.matched,
        apart_max_ms: runs.fidelity.apart_max.as_millis(),
        failed_calls: runs.learned.failures().map(|(_, calls)| calls).sum(),
        failed_clusters: runs.learned.failures().count() as u64,
        failed_on: runs.learned.failures().take(CLUSTERS_NAMED_MAX).map(|(id, _)| name_of(runs, ended, id)).collect(),
        clusters_different: parted.clusters.len() as u64,
        first_difference: parted.first.clone(),
        reasons: if reproduced { Vec::new() } else { reasons(runs, ended) },
    };
    let parted = &runs.effect.parted;
    let effect = runs.changed.as_ref().map(|_| ChangeEffect {
        different: !parted.clusters.is_empty(),
        clusters_different: parted.clusters.len() as u64,
        first_difference: parted.first.clone(),
    });
    Backtest {
        window: Window {
            first_index: runs.window.first,
            last_index: runs.window.last,
            from_ms: runs.window.from.as_millis(),
            to_ms: to.as_millis(),
            entries: runs.window.last + 1 - runs.window.first,
            clusters: ended.cluster_count() as u64,
        },
        statements: runs.trial.change.statements().map(str::to_owned).collect(),
        assumptions: assumptions(runs),
        learned: runs.learned.sizes(),
        recorded,
        unchanged,
        changed,
        fidelity,
        effect,
        lines,
    }
}

fn assumptions(runs: &Runs<'_>) -> Vec<String> {
    let learned = &runs.learned;
    let mut all = vec![
        "What came from outside is the same whatever is done: nobody uses a cluster less because it is slower, and no queue \
         grows or shrinks with the replicas of the model."
            .to_owned(),
        format!(
            "How long things take is learned from the window alone, so that every machine comes to the same. An action is taken up {} \
             after its turn; its call succeeds, after {} (medians of the window{}).",
            learned.taken_up(),
            calls(runs),
            if learned.calls().next().is_none() { ", which has none: a default" } else { "" },
        ),
    ];
    let sizes = learned.sizes();
    if sizes.is_empty() {
        all.push(format!(
            "No new replica became ready in the window: one of any size is taken to be ready after {START_UP_DEFAULT}; a longer \
             window may know better."
        ));
    } else {
        all.push(
            "A new replica is ready, and hydrated where anybody reports that, after the median of its size; of a size of \
             which none was started in the window, after the median of all."
                .to_owned(),
        );
        all.extend(sizes.iter().map(learned_size));
    }
    all.push(
        "A crash, a loss or a notice of a replica that the recorded run had made hits the model's replica of that name, or else \
         its first one of that size in the same cluster; of sizes that only the model runs, none is known to crash."
            .to_owned(),
    );
    all.push(
        "Replicas that were there before, or that somebody else made, go on as recorded until the model drops them."
            .to_owned(),
    );
    all.push(
        "Approvals and rejections of the record answer the same call on the same cluster, until they would have expired; what \
         the model asks beyond that nobody approves."
            .to_owned(),
    );
    if runs.window.shortened {
        all.push(format!(
            "The window begins with entry {}, later than was asked for: this history has no state from before it.",
            runs.window.first
        ));
    }
    if let Some(index) = runs.window.restored {
        all.push(format!(
            "The window begins with entry {}, behind the backup that was restored at entry {index} and replaced everything.",
            runs.window.first
        ));
    }
    for MadeLater { index, at, was_refused } in &runs.made_later {
        all.push(if *was_refused {
            format!(
                "The change is made after entry {index}, at {at}: before, the state refused it, because what it is about was not there."
            )
        } else {
            format!("What met no row before is made after entry {index}, at {at}.")
        });
    }
    if runs.refused.is_none() {
        let never =
            |it: &str| format!("Up to the end of the window there is no row that this is about: {}", shortened(it));
        all.extend(runs.rest.statements().map(never));
    }
    if runs.unchanged.leaves_behind || runs.changed.as_ref().is_some_and(|changed| changed.leaves_behind) {
        all.push(
            "Replicas that a dropped cluster leaves behind are not counted from then on, though they go on and cost money."
                .to_owned(),
        );
    }
    if runs.changed.is_some() && runs.givens.configured > 0 {
        all.push(match runs.givens.configured {
            1 => "1 change of configuration in the record is repeated after the change that is tried, and wins over it."
                .to_owned(),
            count => format!(
                "{count} changes of configuration in the record are repeated after the change that is tried, and win over it."
            ),
        });
    }
    if let Some(missed) = runs.changed.as_ref().map(|changed| &changed.missed).filter(|missed| missed.requests > 0) {
        let requests = match missed.requests {
            1 => "1 request".to_owned(),
            count => format!("{count} requests"),
        };
        let told = missed.told.join("; ");
        all.push(format!("{requests} of the record could not be repeated with the change: {told}."));
    }
    if runs.changed.is_some() && !runs.made && runs.rest.is_empty() {
        all.push("The change asks for nothing that was not so already at the beginning of the window.".to_owned());
    }
    all
}

/// What was learned about a size.
fn learned_size(learned: &LearnedSize) -> String {
    let told = |what: &str, millis: Option<u64>, count: u64| match millis {
        Some(millis) => format!("{what} after {} (median of {count})", Span::from_millis(millis)),
        None => format!("nobody has seen one {what}"),
    };
    let LearnedSize { size, start_up_ms, start_ups, hydration_ms, hydrations } = learned;
    format!(
        "Size {size}: {}, {}.",
        told("ready", *start_up_ms, *start_ups),
        told("hydrated", *hydration_ms, *hydrations)
    )
}

fn calls(runs: &Runs<'_>) -> String {
    let mut told: Vec<String> = runs.learned.calls().map(|(code, span)| format!("{span} ({code})")).collect();
    if told.is_empty() {
        told.push(CALL_DEFAULT.to_string());
    }
    told.join(", ")
}

fn name_of(runs: &Runs<'_>, ended: &State, id: ClusterId) -> String {
    // The change may have made it.
    let made = || runs.changed.as_ref().and_then(|changed| changed.state.cluster_by_id(changed.own_id(id)?));
    let known = ended.cluster_by_id(id).or_else(|| runs.fork.cluster_by_id(id)).or_else(made);
    // One that was made and dropped in the window is in none of these states.
    let passed = || runs.unchanged.made_name(id).map(str::to_owned);
    known.map(|cluster| cluster.name.clone()).or_else(passed).unwrap_or_else(|| id.to_string())
}

/// The lines of one run, by the ids that the record has for its clusters.
struct Drawn<'a> {
    kept: &'a Kept,
    model: Option<&'a Model>,
}

impl<'a> Drawn<'a> {
    fn of(model: &'a Model) -> Drawn<'a> {
        Drawn { kept: &model.tally.lines, model: Some(model) }
    }

    fn recorded_id(&self, own: ClusterId) -> ClusterId {
        self.model.map_or(own, |model| model.recorded_id(own))
    }

    fn own_id(&self, recorded: ClusterId) -> Option<ClusterId> {
        self.model.map_or(Some(recorded), |model| model.own_id(recorded))
    }

    fn is_averaged(&self, recorded: ClusterId) -> bool {
        self.own_id(recorded).is_some_and(|own| self.kept.is_averaged(own))
    }

    fn of_cluster(&self, recorded: ClusterId, averaged: bool) -> Vec<Point> {
        self.own_id(recorded).map(|own| self.kept.of_cluster(own, averaged)).unwrap_or_default()
    }
}

fn lines(runs: &Runs<'_>, ended: &State) -> RunLines {
    let of = |points: fn(&Tally) -> Vec<Point>| Lines {
        recorded: points(&runs.recorded),
        unchanged: points(&runs.unchanged.tally),
        changed: runs.changed.as_ref().map(|changed| points(&changed.tally)).unwrap_or_default(),
    };
    let recorded = Drawn { kept: &runs.recorded.lines, model: None };
    let (unchanged, changed) = (Drawn::of(&runs.unchanged), runs.changed.as_ref().map(Drawn::of));
    let all = || [Some(&recorded), Some(&unchanged), changed.as_ref()].into_iter().flatten();
    let left_out: BTreeSet<ClusterId> =
        all().flat_map(|run| run.kept.left_out().map(move |own| run.recorded_id(own))).collect();
    // What one run has left out is not compared: it would look as if the cluster had nothing there.
    let compared: BTreeSet<ClusterId> = all()
        .flat_map(|run| run.kept.clusters().map(move |own| run.recorded_id(own)))
        .filter(|cluster| !left_out.contains(cluster))
        .collect();

    let end = runs.window.to.as_millis();
    let mut by_distance: Vec<(u128, ClusterId, bool)> = Vec::new();
    let lines_of = |cluster: ClusterId, averaged: bool| Lines {
        recorded: recorded.of_cluster(cluster, averaged),
        unchanged: unchanged.of_cluster(cluster, averaged),
        changed: changed.as_ref().map(|changed| changed.of_cluster(cluster, averaged)).unwrap_or_default(),
    };
    for cluster in &compared {
        // A line of averages and one of changes are never the same.
        let averaged = all().any(|run| run.is_averaged(*cluster));
        let lines = lines_of(*cluster, averaged);
        let (one, other) = match &runs.changed {
            Some(_) => (&lines.unchanged, &lines.changed),
            None => (&lines.recorded, &lines.unchanged),
        };
        by_distance.push((distance(one, other, end), *cluster, averaged));
    }
    by_distance.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(&other.1)));
    by_distance.truncate(CLUSTERS_DRAWN_MAX);
    let step_ms = runs.recorded.lines.step().as_millis();
    let drawn = |(_, id, averaged): (u128, ClusterId, bool)| ClusterLines {
        cluster: name_of(runs, ended, id),
        step_ms: averaged.then_some(step_ms),
        replicas: lines_of(id, averaged),
    };
    RunLines {
        replicas: of(|tally| tally.lines.total_replicas()),
        slots: of(|tally| tally.lines.total_slots()),
        clusters: by_distance.into_iter().map(drawn).collect(),
        clusters_compared: compared.len() as u64,
        clusters_left_out: left_out.len() as u64,
    }
}

/// The area between two lines of steps.
fn distance(one: &[Point], other: &[Point], end: u64) -> u128 {
    let mut moments: Vec<u64> = one.iter().chain(other).map(|point| point.at_ms).chain([end]).collect();
    moments.sort_unstable();
    moments.dedup();
    let value = |points: &[Point], at: u64| {
        let after = points.partition_point(|point| point.at_ms <= at);
        after.checked_sub(1).and_then(|place| points.get(place)).map_or(0, |point| point.value_milli)
    };
    let spans = moments.windows(2);
    spans
        .map(|pair| {
            let apart = value(one, pair[0]).abs_diff(value(other, pair[0]));
            u128::from(apart) * u128::from(Span::from_millis(pair[1] - pair[0]).as_millis())
        })
        .sum()
}
