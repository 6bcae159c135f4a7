//! The machine under a group whose replicas are local processes: what its ledger says was done, and what runs.
//!
//! The ledger is read here by rules of the test's own, not with the product's reader: what begins counts once for each key, and
//! not behind the fence of a later leadership. A backend that kept other rules would be found out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A folder with a ledger and replicas. What runs from it ends with it.
#[derive(Debug)]
pub struct Machine {
    folder: tempfile::TempDir,
}

/// Of a leadership: its incarnation and its index.
pub type Epoch = (u64, u64);

/// What was done under each key, as in "create r1_auto".
pub type Effects = BTreeMap<String, Vec<String>>;

/// An order that somebody gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub key: String,
    pub epoch: Epoch,
    pub attempt: u64,
    pub verb: String,
    /// The id of its cluster.
    pub cluster: String,
    pub replica: String,
    /// A later leadership had fenced the backend before.
    pub late: bool,
}

/// A replica that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The id of its cluster.
    pub cluster: String,
    pub name: String,
    pub size: String,
    pub incarnation: String,
    pub key: Option<String>,
    pub ready: bool,
    pub address: Option<String>,
    /// The process that keeps it running.
    pub keeper: Option<i32>,
}

impl Machine {
    pub fn new() -> Result<Machine> {
        Ok(Machine { folder: tempfile::tempdir().context("making a folder for replicas")? })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// For every node of the group: quick replicas, and a backend that is looked at often.
    pub fn config(&self) -> String {
        format!(
            "[backends.local]\nkind = \"local\"\nfolder = {:?}\nstartup_delay = \"20ms\"\nhydration_time = \"50ms\"\n\
             restart_after = \"100ms\"\nterminate_grace = \"1s\"\nobserve_every = \"200ms\"\n",
            self.folder().display().to_string()
        )
    }

    fn records(&self) -> Result<Vec<Value>> {
        let text = match std::fs::read_to_string(self.folder().join("ledger")) {
            Ok(text) => text,
            // Nobody has given an order yet.
            Err(_) => return Ok(Vec::new()),
        };
        let whole = text.lines().filter_map(|line| line.strip_prefix("L1 ")?.split_once(' '));
        whole.map(|(_, json)| Ok(serde_json::from_str::<Value>(json)?["record"].clone())).collect()
    }

    /// Every order that was given, whether it was carried out or not, in the order of the ledger.
    pub fn given(&self) -> Result<Vec<Given>> {
        Ok(self.replay()?.0)
    }

    /// How often each key took effect, with the replica and what was done to it.
    pub fn effects(&self) -> Result<Effects> {
        Ok(self.replay()?.1)
    }

    fn replay(&self) -> Result<(Vec<Given>, Effects)> {
        let mut fence: Option<Epoch> = None;
        let mut given: Vec<Given> = Vec::new();
        let mut effects = Effects::new();
        for record in self.records()? {
            if let Some(fenced) = record.get("fenced") {
                fence = fence.max(Some(epoch(&fenced["epoch"])?));
            } else if let Some(asked) = record.get("asked") {
                let by = epoch(&asked["ticket"]["epoch"])?;
                given.push(Given {
                    key: text(&asked["key"])?,
                    epoch: by,
                    attempt: asked["ticket"]["attempt"].as_u64().context("an attempt")?,
                    verb: text(&asked["intent"]["verb"])?,
                    cluster: id(&asked["intent"]["cluster"])?,
                    replica: text(&asked["intent"]["name"])?,
                    late: fence > Some(by),
                });
            } else if let Some(begun) = record.get("begun") {
                let key = text(&begun["key"])?;
                let by = epoch(&begun["ticket"]["epoch"])?;
                let order = given.iter().rev().find(|order| order.key == key && order.epoch == by);
                let order = order.with_context(|| format!("{key} began without having been asked for"))?;
                if fence <= Some(by) {
                    effects.entry(key).or_default().push(format!("{} {}", order.verb, order.replica));
                }
            }
        }
        Ok((given, effects))
    }

    /// The replicas of every cluster that run, by name.
    pub fn running(&self) -> Result<Vec<Running>> {
        let mut running = Vec::new();
        for path in self.lives() {
            let Ok(life) = read_life(&path) else { continue };
            let name = path.parent().and_then(Path::file_name).context("a name")?.to_string_lossy().into_owned();
            let cluster = path.ancestors().nth(2).and_then(Path::file_name).context("a cluster")?;
            if life["begun"] == true && is_alive(&life["keeper"]) {
                running.push(Running {
                    cluster: cluster.to_string_lossy().into_owned(),
                    name,
                    size: text(&life["size"])?,
                    incarnation: text(&life["incarnation"])?,
                    key: life["key"].as_str().map(str::to_owned),
                    ready: life["ready"] == true,
                    address: life["address"].as_str().map(str::to_owned),
                    keeper: life["keeper"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()),
                });
            }
        }
        running.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(running)
    }

    /// The names of those that run, by the id of their cluster.
    pub fn running_by_cluster(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let mut by_cluster: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for it in self.running()? {
            by_cluster.entry(it.cluster).or_default().push(it.name);
        }
        Ok(by_cluster)
    }

    fn lives(&self) -> Vec<PathBuf> {
        let folders = |folder: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(folder).into_iter().flatten();
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
        };
        let clusters = folders(&self.folder().join("replicas"));
        clusters.iter().flat_map(|cluster| folders(cluster)).map(|replica| replica.join("life.json")).collect()
    }
}

impl Drop for Machine {
    /// Replicas outlive the nodes that started them; they must not outlive their test.
    fn drop(&mut self) {
        for life in self.lives().iter().filter_map(|path| read_life(path).ok()) {
            for process in [&life["keeper"], &life["server"]].into_iter().filter(|process| is_alive(process)) {
                let pid = process["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
                let _ = pid.map(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL));
            }
        }
    }
}

fn read_life(path: &Path) -> Result<Value> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// The number and the moment of the start tell a process from a later one that was given its number.
fn is_alive(process: &Value) -> bool {
    let started = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process["pid"].as_i64()?)).ok()?;
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_whitespace();
        // A zombie is dead, only its parent has not looked yet.
        let is_dead = fields.next()? == "Z";
        fields.nth(18)?.parse::<u64>().ok().filter(|_| !is_dead)
    };
    process["started"].as_u64().is_some_and(|meant| started() == Some(meant))
}

fn epoch(value: &Value) -> Result<Epoch> {
    let part = |name: &str| value[name].as_u64().with_context(|| format!("{value} has no {name}"));
    Ok((part("incarnation")?, part("index")?))
}

/// As users see it: c412.0.
fn id(value: &Value) -> Result<String> {
    let part = |name: &str| value[name].as_u64().with_context(|| format!("{value} has no {name}"));
    Ok(format!("c{}.{}", part("index")?, part("ordinal")?))
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("{value} is no text"))?.to_owned())
}

/// Names that are there more than once.
pub fn doubled<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    names.into_iter().filter(|name| !seen.insert(*name)).collect()
}
