//! Whose value an answer is.

use std::collections::BTreeMap;

use loadline_state_machine::{ClusterId, Signal, State};

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sample {
    /// One number, for every cluster that the signal is for.
    One(i64),
    /// Numbers by the name that a label gives, or why one of them is none.
    Labelled { label: String, series: Vec<(Option<String>, Result<i64, String>)> },
}

/// A value for each cluster, or why nobody has one.
pub(super) fn of(sample: Sample, signal: &Signal, state: &State) -> Result<Vec<(ClusterId, i64)>, String> {
    let clusters: BTreeMap<&str, ClusterId> =
        state.clusters_of_signal(signal).map(|cluster| (cluster.name.as_str(), cluster.id)).collect();
    if clusters.is_empty() {
        return Err("it is for no cluster that exists".to_owned());
    }
    let (label, series) = match sample {
        Sample::One(value) => return Ok(clusters.into_values().map(|cluster| (cluster, value)).collect()),
        Sample::Labelled { label, series } => (label, series),
    };
    let count = series.len();
    let mut values: BTreeMap<ClusterId, i64> = BTreeMap::new();
    let mut problem = None;
    for (name, number) in series {
        let Some(cluster) = name.as_deref().and_then(|name| clusters.get(name)) else { continue };
        let name = name.unwrap_or_default();
        match number {
            Err(why) => problem = Some(format!("cluster {name}: {why}")),
            Ok(number) => {
                if values.insert(*cluster, number).is_some() {
                    return Err(format!(
                        "the query gave two series for cluster {name}: aggregate it, as in sum by ({label}) (...)"
                    ));
                }
            }
        }
    }
    match (values.is_empty(), problem) {
        (false, _) => Ok(values.into_iter().collect()),
        (true, Some(problem)) => Err(problem),
        (true, None) => {
            Err(format!("none of the {count} series names in label {label} a cluster that this signal is for"))
        }
    }
}
