//! `bench replay`: the journal of a node that has stopped, applied once more from its beginning with every hash compared.
//!
//! Beside it, the same entries are applied that are decoded and in memory already, as `bench brain` does: the difference is
//! unpacking, decoding and comparing.

use std::time::{Duration, Instant};

use loadline_audit::replay::entries;
use loadline_audit::{Kept, Moment, ReplayError, Start, replay};
use loadline_state_machine::{LogIndex, State};

use super::figures::median;
use super::group::Group;
use super::rows::Row;
use super::signals::{self, Mix};
use super::stage::{Beside, Stage, create_clusters};
use super::write::{KEYS, pauses};
use crate::exit::{Exit, Failed};

const RATIO_MIN: f64 = 0.7;
/// Callers that make the history.
const CALLERS: usize = 16;

pub(super) async fn measure(stage: &mut Stage<'_>) -> Result<Vec<Row>, Failed> {
    stage.begin("replay", Beside::Nothing).await?;
    stage.tell("replay: making a history");
    let mut group = Group::start(stage.folder(), "replay", &[]).await?;
    create_clusters(&group.client()?, KEYS).await?;
    let lasts = stage.args.lasts;
    pauses(&mut group, CALLERS, lasts).await?;
    let endpoint = group.leader_endpoint().await?;
    let mix = Mix { clusters: KEYS, per_report: 16, collectors: 4, under_way: 16, at_once: None };
    signals::streams(&endpoint, &mix, 1, lasts).await?;
    for place in 0..group.nodes().len() {
        group.kill(place).await?;
    }
    stage.yardstick().await?;
    stage.tell("replay: reading it");
    let data = group.nodes()[0].data.clone();
    let rounds = stage.args.rounds;
    let (entries, replayed, applied) = tokio::task::spawn_blocking(move || rounds_of(&data, rounds))
        .await
        .map_err(|error| Failed::new(Exit::Failure, error.to_string()))??;
    let rates = |took: &[Duration]| median(took.iter().map(|took| per_second(entries, *took)).collect());
    let (Some(replayed), Some(applied)) = (rates(&replayed), rates(&applied)) else { return Ok(vec![]) };
    let row = Row::of_value("replay", replayed, "entries/s");
    Ok(vec![row.against("applying the same entries from memory", Some(replayed / applied)).ratio_at_least(RATIO_MIN)])
}

pub(super) type Rounds = (u64, Vec<Duration>, Vec<Duration>);

pub(super) fn rounds_of(data: &std::path::Path, rounds: u32) -> Result<Rounds, Failed> {
    let failed = |error: ReplayError| Failed::new(Exit::Failure, error.to_string());
    let kept = Kept::open(data).map_err(|error| failed(error.into()))?;
    let entries = entries(&kept).map_err(failed)?;
    let (mut replayed, mut applied) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for whole in [round % 2 == 0, round % 2 == 1] {
            let began = Instant::now();
            if whole {
                replay(&kept, Start::Beginning, Moment::End, |_| {}).map_err(failed)?;
                replayed.push(began.elapsed());
            } else {
                let mut state = State::new();
                for (record, entry) in &entries {
                    entry.apply_to(&mut state, LogIndex(record.index));
                }
                applied.push(began.elapsed());
            }
        }
    }
    Ok((entries.len() as u64, replayed, applied))
}

#[expect(clippy::cast_precision_loss, reason = "a number of entries")]
pub(super) fn per_second(entries: u64, took: Duration) -> f64 {
    entries as f64 / took.as_secs_f64().max(1e-9)
}
