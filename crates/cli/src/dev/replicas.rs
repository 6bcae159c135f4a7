//! The replicas of a group of `dev`: processes on this machine, in one folder that all its nodes share.
//!
//! They are started by the nodes and outlive them: `dev kill` takes no replica down. They end with the group as a whole, and
//! by themselves when their folder is removed.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::demo::BACKEND;
use super::process::Process;
use crate::console::Console;
use crate::exit::{Exit, Failed};

/// Longer than a replica takes to finish its requests when it is told to end.
const END_PATIENCE: Duration = Duration::from_secs(8);
/// A killed process is gone at once, unless the machine is very busy.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Where they are, beside the nodes.
pub(super) fn folder(home: &Path) -> PathBuf {
    home.join("replicas")
}

/// What each node is told in a file.
pub(super) fn write_config(path: &Path, home: &Path) -> Result<(), Failed> {
    let text = |path: &Path| toml::Value::String(path.display().to_string()).to_string();
    let program = std::env::current_exe()?;
    let secret = super::secret::of_group(home)?;
    let config = format!(
        "# Written by `loadline dev` at every start. What it gives as flags wins over what is here.\n\
         # On this machine nobody needs a login: for trying things out only.\n\
         trust = \"loopback\"\npeer_secret_file = {}\n\n\
         [backends.{BACKEND}]\nkind = \"local\"\nfolder = {}\nprogram = {}\n",
        text(&secret),
        text(&folder(home)),
        text(&program),
    );
    std::fs::write(path, config)
        .map_err(|error| Failed::new(Exit::Failure, format!("{} cannot be written: {error}", path.display())))
}

/// Ends every replica, once no node is left that could start another. Answers how many there were.
pub(super) fn end_all(home: &Path, console: &mut Console) -> usize {
    let replicas = running(&folder(home));
    if replicas.is_empty() {
        return 0;
    }
    let (term, kill) = (Signal::TERM, Signal::KILL);
    let mut left = replicas.len();
    for (signal, patience) in [(term, END_PATIENCE), (kill, KILL_PATIENCE)] {
        let there: Vec<&Process> = replicas.iter().filter(|replica| !replica.ends_within(Duration::ZERO)).collect();
        for replica in &there {
            let _ = replica.signal(signal);
        }
        let until = Instant::now() + patience;
        let stays = |replica: &&&Process| !replica.ends_within(until.saturating_duration_since(Instant::now()));
        left = there.iter().filter(stays).count();
    }
    if left > 0 {
        console
            .warn(&format!("{left} replicas could not be ended; they end when {} is removed", folder(home).display()));
    }
    let ended = replicas.len() - left;
    console.say(&format!("ended {ended} replica{}", if ended == 1 { "" } else { "s" }));
    replicas.len()
}

/// The replicas of this folder, by the words that their processes were started with.
fn running(folder: &Path) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Process::find(pid, |words| is_replica(words, folder))).collect()
}

/// The keeper of a replica of this folder. Its server ends with it.
fn is_replica(words: &[OsString], folder: &Path) -> bool {
    let mut flag = OsString::from("--folder=");
    flag.push(folder);
    let has = |wanted: &OsStr| words.iter().any(|word| word == wanted);
    let serves = words.iter().any(|word| word.to_string_lossy().starts_with("--keeper="));
    has("replica".as_ref()) && has(&flag) && !serves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keepers_of_replicas_of_this_very_folder_are_meant() {
        let check = |text: &str, expected: bool| {
            let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            assert_eq!(is_replica(&words, Path::new("/x/replicas")), expected, "{text}");
        };
        check("loadline replica --cluster=c1.0 --name=r1 --folder=/x/replicas", true);
        check("loadline replica --cluster=c1.0 --name=r1 --folder=/x/replicas --keeper=7", false);
        check("loadline replica --cluster=c1.0 --name=r1 --folder=/y/replicas", false);
        check("vim --folder=/x/replicas", false);
    }

    #[test]
    fn what_a_node_is_told_names_one_folder_for_all() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("node.toml");
        write_config(&path, home.path()).expect("written");
        let text = std::fs::read_to_string(&path).expect("read");
        let parsed: toml::Table = text.parse().expect("TOML");
        assert_eq!(parsed["trust"].as_str(), Some("loopback"));
        assert!(Path::new(parsed["peer_secret_file"].as_str().expect("a path")).is_file());
        let backend = &parsed["backends"][BACKEND];
        assert_eq!(backend["folder"].as_str(), home.path().join("replicas").to_str());
        assert!(Path::new(backend["program"].as_str().expect("a path")).is_file());
    }
}
