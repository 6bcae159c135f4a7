//! Admin operations are linearizable: there is one order of all of them, the log's, in which each takes effect at one moment
//! between its call and its answer.
//!
//! The log is the witness, so nothing has to be searched for. A read must show the cluster exactly as it was after some index,
//! which is not before anything that had been answered when it was called, and not after anything that nobody had applied
//! when it was answered. A write that was answered must stand in the log behind whatever had been answered when it was called.
//! What nobody knows the outcome of is in the log or is not; both are right.

use std::collections::BTreeMap;

use loadline_client::v1::{Resource, resource};

use super::{Agreed, Invariant};
use crate::history::{Ask, Told};
use crate::record::{Seen, Sighting};

/// What a reader sees of a cluster: its etag, which no two versions of it share.
type Version = (u64, u32);

#[derive(Debug, Default)]
pub(super) struct Linearizable {
    log: Agreed,
    applied: u64,
    /// By name: from which index on it was in which version, or not there.
    versions: BTreeMap<String, BTreeMap<u64, Option<Version>>>,
    /// The highest index that anybody has been told of.
    answered: u64,
    /// By tag: what was asked, and the highest index that had been told of by then.
    calls: BTreeMap<String, (Ask, u64)>,
}

impl Linearizable {
    /// Whether the cluster was in this version at some index between these, both included.
    fn was(&self, name: &str, version: Option<Version>, from: u64, to: u64) -> bool {
        let Some(versions) = self.versions.get(name) else { return version.is_none() };
        let at_first = versions.range(..=from).next_back().and_then(|(_, version)| *version);
        at_first == version || versions.range(from..=to).any(|(_, later)| *later == version)
    }

    fn read(&self, tag: &str, name: &str, after: u64, index: u64, version: Option<Version>) -> Result<(), String> {
        // What is not there is said without a revision: then any moment during the call will do.
        let (from, to) = if index == 0 { (after, self.applied) } else { (index, index) };
        if index != 0 && index < after {
            return Err(format!("{tag} read {name} as of {index}, and {after} had been answered before it asked"));
        }
        if index > self.applied {
            return Err(format!("{tag} read {name} as of {index}, which nobody has applied"));
        }
        if self.was(name, version, from, to) {
            return Ok(());
        }
        let told = version.map_or_else(|| "gone".to_owned(), |(index, ordinal)| format!("version {index}.{ordinal}"));
        Err(format!("{tag} was told that {name} is {told}, and it was not between {from} and {to}"))
    }

    fn note(&mut self, name: &str, index: u64, version: Option<Version>) {
        self.versions.entry(name.to_owned()).or_default().insert(index, version);
    }
}

/// The version in an etag, "INDEX.ORDINAL".
fn version(resource: &Resource) -> Option<Version> {
    let Some(resource::Resource::Cluster(cluster)) = &resource.resource else { return None };
    let (index, ordinal) = cluster.etag.split_once('.').or_else(|| cluster.etag.split_once('-'))?;
    Some((index.parse().ok()?, ordinal.parse().ok()?))
}

impl Invariant for Linearizable {
    fn name(&self) -> &'static str {
        "linearizable"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        if let Some(applied) = self.log.first(sighting) {
            use loadline_state_machine::Event;
            self.applied = applied.index.0;
            for event in &applied.events {
                match event {
                    Event::ClusterCreated { cluster } | Event::ClusterPlaced { cluster, .. } => {
                        let version = (cluster.updated.index.0, cluster.updated.ordinal);
                        self.note(&cluster.name, applied.index.0, Some(version));
                    }
                    Event::ClusterRenamed { from, cluster } => {
                        self.note(from, applied.index.0, None);
                        let version = (cluster.updated.index.0, cluster.updated.ordinal);
                        self.note(&cluster.name, applied.index.0, Some(version));
                    }
                    Event::ClusterDropped { cluster } => self.note(&cluster.name, applied.index.0, None),
                    _ => {}
                }
            }
            return Ok(());
        }
        match &sighting.what {
            Seen::Asked(asked) => {
                self.calls.insert(asked.tag.clone(), (asked.what.clone(), self.answered));
                Ok(())
            }
            Seen::Answered(answered) => {
                let Some((ask, after)) = self.calls.remove(&answered.tag) else { return Ok(()) };
                match (&answered.answer, ask) {
                    (Told::Done { repeated: true, .. }, _) => Ok(()),
                    (Told::Done { index, .. }, _) => {
                        self.answered = self.answered.max(*index);
                        if *index <= after {
                            return Err(format!(
                                "{} was recorded at {index}, and {after} had been answered before it asked",
                                answered.tag
                            ));
                        }
                        Ok(())
                    }
                    (Told::Found { index, resource }, Ask::Read(name)) => {
                        let name = name.rsplit_once('/').map_or(name.as_str(), |(_, name)| name);
                        let version = resource.as_deref().and_then(version);
                        self.read(&answered.tag, name, after, *index, version)?;
                        self.answered = self.answered.max(*index);
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `demo` is there from 3 on, changes at 6, and goes at 9; 12 have been applied.
    fn history() -> Linearizable {
        let mut history = Linearizable { applied: 12, ..Linearizable::default() };
        history.note("demo", 3, Some((3, 0)));
        history.note("demo", 6, Some((6, 1)));
        history.note("demo", 9, None);
        history
    }

    fn check(after: u64, index: u64, version: Option<Version>) -> Result<(), String> {
        history().read("u1.1", "demo", after, index, version)
    }

    #[test]
    fn a_read_shows_what_was_there_at_its_index() {
        check(2, 5, Some((3, 0))).unwrap();
        check(2, 6, Some((6, 1))).unwrap();
        check(2, 2, None).unwrap();
        assert!(check(2, 6, Some((3, 0))).is_err());
        assert!(check(2, 10, Some((6, 1))).is_err());
    }

    #[test]
    fn a_read_is_not_older_than_what_was_answered_before_it() {
        assert!(check(7, 5, Some((3, 0))).unwrap_err().contains("had been answered"));
        assert!(check(0, 99, None).is_err());
    }

    #[test]
    fn nothing_is_found_only_while_there_is_nothing() {
        check(8, 0, None).unwrap();
        check(10, 0, None).unwrap();
        let mut there = history();
        there.applied = 8;
        assert!(there.read("u1.1", "demo", 4, 0, None).is_err());
        there.read("u1.1", "other", 4, 0, None).unwrap();
    }
}
