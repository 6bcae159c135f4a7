//! What every benchmark of whole groups needs: a folder on a disk, an etcd to measure beside, the yardstick, and somebody who
//! says how far it is.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use loadline_client::v1::change::Change;
use loadline_client::v1::{Cluster, CreateClusterRequest, SetSettingRequest};
use loadline_client::{Client, Writing};
use tempfile::TempDir;

use super::baseline::Yardstick;
use super::etcd::{self, Etcd};
use super::machine::Machine;
use super::rows::{Baseline, Row, Suite};
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::text::parse_duration;

/// What one put of etcd and one pause of ours carry. A longer reason of a pause would be cut.
pub(super) const VALUE_BYTES: usize = 200;
/// What such a write is in a log: the value, the name, who asked, when, and the frame.
const LOGGED_BYTES: usize = VALUE_BYTES + 100;
/// Callers that share a connection, on both sides.
const CALLERS_PER_CONNECTION: usize = 16;
/// Changes in one transaction while a benchmark is set up.
const CHANGES_AT_ONCE: usize = 500;

#[derive(Debug, Clone, Args)]
pub(crate) struct StageArgs {
    /// How long one round of one measurement lasts
    #[arg(long = "for", value_name = "DURATION", default_value = "3s", value_parser = parse_duration)]
    pub(super) lasts: Duration,
    /// Rounds of each measurement, ours and etcd's in turn; a figure is the middle one
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) rounds: u32,
    /// Program to measure beside; looked for on PATH if not given
    #[arg(long, value_name = "FILE", conflicts_with = "without_etcd")]
    etcd: Option<PathBuf>,
    /// Measure ours only
    #[arg(long)]
    without_etcd: bool,
    /// Folder on the disk to measure on; what is put there is removed again
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Also write the result there, as -o json would show it
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Draw latency and throughput over clients into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
}

pub(super) struct Stage<'a> {
    pub(super) args: StageArgs,
    pub(super) console: &'a mut Console,
    /// Of the benchmark that is under way, if it is compared with one.
    pub(super) etcd: Option<Etcd>,
    pub(super) yardstick: Yardstick,
    /// What could not be measured, and why.
    pub(super) missing: Vec<String>,
    machine: Machine,
    progress: ProgressBar,
    /// The program to measure beside.
    beside: Option<PathBuf>,
    etcd_version: Option<String>,
    folder: TempDir,
}

/// What a benchmark is measured beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    Etcd,
    Nothing,
}

impl<'a> Stage<'a> {
    pub(super) async fn set(args: &StageArgs, console: &'a mut Console) -> Result<Stage<'a>, Failed> {
        let machine = Machine::this();
        console.say(&machine.line());
        if Machine::is_debug() {
            console.warn("this is a build for debugging, its figures mean nothing; measure with a release build");
        }
        let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new().prefix("loadline-bench-").tempdir_in(&parent).map_err(|error| {
            Failed::new(Exit::Failure, format!("{} cannot be used: {error}", parent.display())).hint("see --dir")
        })?;
        let progress = spinner(console);
        let beside = match etcd::find(args.etcd.as_deref()) {
            _ if args.without_etcd => None,
            Some(binary) => Some(binary),
            None => {
                if let Some(path) = &args.etcd {
                    return Err(Failed::usage(format!("--etcd {}: there is no such program", path.display())));
                }
                console.warn("etcd is not installed (package etcd-server), so its columns stay empty; see --etcd");
                None
            }
        };
        let yardstick = Yardstick::new(folder.path(), LOGGED_BYTES).await?;
        Ok(Stage {
            args: args.clone(),
            console,
            etcd: None,
            yardstick,
            missing: Vec::new(),
            machine,
            progress,
            beside,
            etcd_version: None,
            folder,
        })
    }

    /// Begins one of the benchmarks: with an etcd as new as the nodes are, if it is measured beside one, with none otherwise, and with
    /// a yardstick of its own.
    pub(super) async fn begin(&mut self, name: &str, beside: Beside) -> Result<(), Failed> {
        self.etcd = None;
        self.yardstick.begin();
        if let Some(binary) = self.beside.clone().filter(|_| beside == Beside::Etcd) {
            self.tell(&format!("{name}: starting etcd"));
            let etcd = Etcd::start(&binary, self.folder.path(), &format!("etcd-{name}")).await?;
            self.etcd_version = Some(etcd.version.clone());
            self.etcd = Some(etcd);
        }
        Ok(())
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What is going on now.
    pub(super) fn tell(&mut self, what: &str) {
        if self.progress.is_hidden() {
            self.console.say(what);
        } else {
            self.progress.set_message(what.to_owned());
        }
    }

    /// A round of the yardstick, which goes with every round of a benchmark.
    pub(super) async fn yardstick(&mut self) -> Result<(), Failed> {
        self.yardstick.measure(self.args.lasts / 5).await
    }

    pub(super) fn baseline(&self) -> Baseline {
        self.yardstick.baseline(self.etcd_version.clone())
    }

    /// The result if it ended here.
    pub(super) fn so_far(&self, rows: &[Row]) -> Suite {
        let (machine, baseline) = (self.machine.clone(), self.baseline());
        Suite { machine, baseline, rows: rows.to_vec(), missing: self.missing.clone() }
    }

    pub(super) fn end(self, rows: &[Row]) -> Suite {
        self.progress.finish_and_clear();
        self.so_far(rows)
    }
}

/// On a terminal only; elsewhere every step is a line.
fn spinner(console: &Console) -> ProgressBar {
    if !console.watched {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
    let bar = ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// For each caller the connection that it uses.
pub(super) fn shared<C: Clone>(connections: &[C], callers: usize) -> Vec<C> {
    (0..callers).map(|caller| connections[caller % connections.len()].clone()).collect()
}

pub(super) fn connections(callers: usize) -> usize {
    callers.div_ceil(CALLERS_PER_CONNECTION).max(1)
}

pub(super) fn cluster_name(number: u64) -> String {
    format!("cluster-{number:06}")
}

pub(super) fn set_setting(name: &str, value: &str) -> Change {
    Change::SetSetting(SetSettingRequest {
        name: name.to_owned(),
        value: value.to_owned(),
        ..SetSettingRequest::default()
    })
}

/// Switches scaling on, and makes `cluster-000000` and so on.
pub(super) async fn create_clusters(client: &Client, count: u32) -> Result<(), Failed> {
    client.transact(vec![set_setting("enable_auto_scaling", "true")], Writing::Record).await?;
    let numbers: Vec<u32> = (0..count).collect();
    for some in numbers.chunks(CHANGES_AT_ONCE) {
        let create = |number: &u32| {
            let cluster = Cluster { name: cluster_name(u64::from(*number)), ..Cluster::default() };
            Change::CreateCluster(CreateClusterRequest { options: None, cluster: Some(cluster) })
        };
        client.transact(some.iter().map(create).collect(), Writing::Record).await?;
    }
    Ok(())
}

/// Text of exactly the size that is compared, unlike any other.
pub(super) fn value(caller: usize, number: u64) -> String {
    const REST: &str = match str::from_utf8(&[b'-'; VALUE_BYTES]) {
        Ok(rest) => rest,
        Err(_) => "",
    };
    // Not with a width of `format!`, which goes letter by letter: whoever asks shares the machine with whoever answers.
    let mut value = String::with_capacity(VALUE_BYTES);
    let _ = write!(value, "{caller}/{number}");
    value.push_str(REST.get(value.len()..).unwrap_or_default());
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_new_and_of_the_same_size() {
        assert_eq!(value(255, 10_000_000).len(), VALUE_BYTES);
        assert_ne!(value(1, 11), value(11, 1));
    }

    #[test]
    fn callers_share_connections_evenly() {
        assert_eq!([1, 16, 17, 256].map(connections), [1, 1, 2, 16]);
        let callers = shared(&["a", "b"], 5);
        assert_eq!(callers, ["a", "b", "a", "b", "a"]);
    }
}
