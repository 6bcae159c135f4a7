//! `dev.json`: who runs where, written by the supervisor for `dev kill`, `dev stop` and `dev status`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lock::Lock;
use crate::exit::{Exit, Failed};
use crate::output::{Column, View};

const FILE: &str = "dev.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DevState {
    pub(super) supervisor: i32,
    /// True once there was a leader.
    pub(super) ready: bool,
    pub(super) ephemeral: bool,
    /// The cluster demo is there.
    #[serde(default)]
    pub(super) demo: bool,
    pub(super) nodes: Vec<NodeState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeState {
    pub(super) name: String,
    /// Nothing while it is down.
    pub(super) pid: Option<i32>,
    pub(super) grpc: String,
    pub(super) http: String,
    #[serde(default)]
    pub(super) pg: String,
    pub(super) data_dir: PathBuf,
    pub(super) log: PathBuf,
}

impl DevState {
    pub(super) fn write(&self, folder: &Path) -> Result<(), Failed> {
        write_json(&folder.join(FILE), self)
    }

    pub(super) fn remove(folder: &Path) {
        let _ = std::fs::remove_file(folder.join(FILE));
    }

    /// What the file says, if it is there and whole.
    pub(super) fn read(folder: &Path) -> Option<DevState> {
        serde_json::from_slice(&std::fs::read(folder.join(FILE)).ok()?).ok()
    }

    /// The state of a supervisor that runs. A file that a dead one left behind does not count.
    pub(super) fn of_running(folder: &Path) -> Result<DevState, Failed> {
        let nobody = || {
            Failed::new(Exit::NotFound, format!("no group runs from {}", folder.display()))
                .hint("start one with loadline dev, or name its folder with --data-dir")
        };
        if !Lock::is_held(folder)? {
            return Err(nobody());
        }
        DevState::read(folder).ok_or_else(|| {
            Failed::new(Exit::Unavailable, format!("the group in {} is just starting or stopping", folder.display()))
                .hint("try again in a moment")
        })
    }

    pub(super) fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.grpc.clone()).collect()
    }

    pub(super) fn sql_endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.pg.clone()).filter(|address| !address.is_empty()).collect()
    }
}

/// Whoever reads sees the old file or the new one, never half of one.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failed> {
    let unwritable = |error: &dyn std::fmt::Display| {
        Failed::new(Exit::Failure, format!("{} cannot be written: {error}", path.display()))
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|error| unwritable(&error))?;
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| unwritable(&error))?;
    text.push(b'\n');
    file.write_all(&text).map_err(|error| unwritable(&error))?;
    file.persist(path).map_err(|error| unwritable(&error))?;
    Ok(())
}

/// A row of the table that `dev` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct DevView {
    pub(super) node: String,
    pub(super) pid: Option<i32>,
    pub(super) role: Option<String>,
    pub(super) grpc: String,
    pub(super) http: String,
    pub(super) sql: String,
    pub(super) log: PathBuf,
}

impl View for DevView {
    const COLUMNS: &'static [Column] = &[
        Column::always("NODE"),
        Column::always("PID"),
        Column::always("ROLE"),
        Column::always("GRPC"),
        Column::always("HTTP"),
        Column::always("SQL"),
        Column::wide("LOG"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.node.clone(),
            self.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            self.role.clone().unwrap_or_else(|| "down".to_owned()),
            self.grpc.clone(),
            self.http.clone(),
            self.sql.clone(),
            self.log.display().to_string(),
        ]
    }

    fn name(&self) -> String {
        format!("nodes/{}", self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_supervisor_behind_it_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(DevState::of_running(folder.path()).expect_err("nobody").exit, Exit::NotFound);
        let state = DevState { supervisor: 1, ready: true, ephemeral: false, demo: false, nodes: Vec::new() };
        state.write(folder.path()).expect("written");
        assert_eq!(DevState::of_running(folder.path()).expect_err("nobody").exit, Exit::NotFound);
        let _lock = Lock::try_take(folder.path()).expect("a lock").expect("free");
        assert_eq!(DevState::of_running(folder.path()), Ok(state));
        std::fs::write(folder.path().join(FILE), "{").expect("written");
        assert_eq!(DevState::of_running(folder.path()).expect_err("half a file").exit, Exit::Unavailable);
    }
}
