//! `audit`: one file per verb.

pub(super) mod export;
pub(super) mod verify;

use std::io::Write as _;

use loadline_client::{Client, ExportPart, ExportedHistory, HistoryBound, HistoryRange};

use crate::exit::Failed;
use crate::meter::Meter;
use crate::moment::Moment;

/// Writes what a node exports into a file, from its beginning.
async fn fetch(
    client: &Client,
    range: &HistoryRange,
    file: &mut std::fs::File,
    watched: bool,
) -> Result<ExportedHistory, Failed> {
    let mut meter = Meter::start(watched);
    let mut total = 0;
    let exported = client
        .export_history(range, |part| match part {
            ExportPart::Start { first_index, last_index } => {
                total = last_index - first_index + 1;
                file.set_len(0)?;
                std::io::Seek::rewind(file)
            }
            ExportPart::Data { data, entries } => {
                meter.entries("exporting", entries, total);
                file.write_all(data)
            }
        })
        .await?;
    Ok(exported)
}

fn bound(moment: Moment) -> HistoryBound {
    match moment {
        Moment::Index(index) => HistoryBound::Index(index),
        Moment::TimeMs(millis) => HistoryBound::TimeMs(millis),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
