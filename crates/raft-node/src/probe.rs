//! Asking the other nodes how they are: clocks, disks, and whether all believe the same.
//!
//! Every node compares the hash of its state with the others' at the checkpoints that all of them keep. Whoever
//! differs from a majority of the voters stops. While nodes differ and no majority is known, nobody acts: the lease is
//! suspended and proposals are refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use loadline_api::raft as wire;
use loadline_log::{is_newer, note_program};
use loadline_state_machine::{Hash, LogIndex, RULES_VERSION_MAX, RulesVersion};
use tokio::time::Instant;

use crate::errors::StopReason;
use crate::node::{Inner, Running};
use crate::reserve::Space;
use crate::types::Member;

/// A clock that is further off than this is worth a warning: deadlines come from the leader's.
pub(crate) const SKEW_WORTH_A_WARNING: Duration = Duration::from_secs(1);

/// What a node said so many rounds ago says nothing about it now.
const ROUNDS_REMEMBERED: u32 = 10;

/// What another node said about itself last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// When, on this node's boot-time clock.
    pub(crate) at: Duration,
    /// How far its wall clock is ahead of this node's; negative: behind.
    pub(crate) skew_ms: i64,
    pub(crate) disk_low: Option<Space>,
    pub(crate) rules_version_max: u32,
}

/// What the other nodes said about themselves last.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    seen: Mutex<BTreeMap<u64, Seen>>,
    /// Where nodes were found to differ without a majority for either.
    disputed: Mutex<Option<LogIndex>>,
}

impl Neighbours {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_disputed(&self) -> MutexGuard<'_, Option<LogIndex>> {
        self.disputed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disputed(&self) -> Option<LogIndex> {
        *self.lock_disputed()
    }

    pub(crate) fn all(&self) -> BTreeMap<u64, Seen> {
        self.lock().clone()
    }

    /// The voter that is short of disk, if so many are that no majority is left to take entries.
    pub(crate) fn short_of_disk(&self, voters: &[u64], me: u64) -> Option<(u64, Space)> {
        let seen = self.lock();
        let low: Vec<(u64, Space)> = voters
            .iter()
            .filter(|voter| **voter != me)
            .filter_map(|voter| Some((*voter, seen.get(voter)?.disk_low?)))
            .collect();
        let able = voters.len() - low.len();
        if able > voters.len() / 2 { None } else { low.first().copied() }
    }
}

impl Inner {
    pub(crate) fn rules_known_to_all(&self) -> Option<RulesVersion> {
        let running = self.running()?;
        let seen = self.neighbours.all();
        let since = self.clock.boottime().saturating_sub(self.config.timing.probe_every * ROUNDS_REMEMBERED);
        let membership = running.membership();
        let mut others = membership.nodes().map(|(id, _)| id).filter(|id| **id != running.identity.node_id);
        others.try_fold(RULES_VERSION_MAX, |known, id| {
            let said = seen.get(id).filter(|seen| seen.at >= since)?;
            Some(known.min(RulesVersion(said.rules_version_max)))
        })
    }
}

/// What a comparison of states means for this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody is known to differ, or a majority agrees with this node.
    Agreed,
    /// A majority has this hash, and this node has another.
    Outvoted(Hash),
    /// Some differ, and no hash has a majority, or not enough have answered to tell.
    NoMajority,
}

/// Judges the hashes of one index. `theirs` are the other voters', unknown where one did not answer.
pub(crate) fn judge(ours: Hash, this_node_votes: bool, theirs: &[Option<Hash>]) -> Verdict {
    let mut counts: BTreeMap<Hash, usize> = BTreeMap::new();
    for hash in theirs.iter().flatten().chain(this_node_votes.then_some(&ours)) {
        *counts.entry(*hash).or_default() += 1;
    }
    let voters = theirs.len() + usize::from(this_node_votes);
    match counts.iter().find(|(_, count)| **count > voters / 2) {
        Some((hash, _)) if *hash == ours => Verdict::Agreed,
        Some((hash, _)) => Verdict::Outvoted(*hash),
        None if theirs.iter().flatten().any(|hash| *hash != ours) => Verdict::NoMajority,
        None => Verdict::Agreed,
    }
}

/// Asks for ever.
pub(crate) async fn run(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(inner.config.timing.probe_every).await;
        if let Some(running) = inner.running() {
            round(&inner, &running).await;
        }
    }
}

async fn round(inner: &Inner, running: &Running) {
    let me = running.identity.node_id;
    let latest = inner.published.state().checkpoints().last();
    let answers = ask(inner, running, latest.map_or(LogIndex(0), |(index, _)| index)).await;
    note(inner, &answers);
    note_newer(inner, &answers).await;
    let state = inner.published.state();
    let compared = |answer: &wire::ProbeResponse| {
        let index = LogIndex(answer.hash_index);
        let (theirs, ours) = (reported(answer)?, state.hash_at(index)?);
        Some((index, ours, theirs == ours))
    };
    let differs = answers.iter().find_map(|answer| compared(&answer.said).filter(|(.., agrees)| !agrees));
    let membership = running.membership();
    let this_node_votes = membership.voter_ids().any(|voter| voter == me);
    let others = || membership.voter_ids().filter(|voter| *voter != me);
    let answer_of = |answers: &[Answer], voter: u64| {
        answers.iter().find(|answer| answer.id == voter).map(|answer| answer.said.clone())
    };

    let Some((index, ours, _)) = differs else {
        // Silence is no agreement: a dispute ends when a majority is known to agree at that index or, which means
        // the same, at a later one.
        if let Some(disputed) = inner.neighbours.disputed() {
            let agrees = |voter: &u64| {
                let compared = answer_of(&answers, *voter).and_then(|answer| compared(&answer));
                compared.is_some_and(|(index, _, agrees)| agrees && index >= disputed)
            };
            let agreeing = others().filter(agrees).count() + usize::from(this_node_votes);
            if agreeing > (others().count() + usize::from(this_node_votes)) / 2 {
                dispute(inner, None);
            }
        }
        return;
    };
    // Now everybody is asked about that very index, because they may have answered about different ones.
    let answers = ask(inner, running, index).await;
    let theirs: Vec<Option<Hash>> = others()
        .map(|voter| {
            answer_of(&answers, voter).filter(|answer| answer.hash_index == index.0).as_ref().and_then(reported)
        })
        .collect();
    match judge(ours, this_node_votes, &theirs) {
        Verdict::Agreed => dispute(inner, None),
        Verdict::NoMajority => dispute(inner, Some(index)),
        Verdict::Outvoted(theirs) => inner.stop.raise(StopReason::Diverged { index, ours, theirs }),
    }
}

fn reported(answer: &wire::ProbeResponse) -> Option<Hash> {
    <[u8; 32]>::try_from(&answer.hash[..]).ok().map(Hash)
}

/// Begins or ends a dispute about the state at this index. While there is one, this node does not act.
fn dispute(inner: &Inner, index: Option<LogIndex>) {
    let before = std::mem::replace(&mut *inner.neighbours.lock_disputed(), index);
    match (before, index) {
        (None, Some(index)) => {
            tracing::error!(%index, "the nodes disagree about the state and no majority can be found: this node stops acting");
        }
        (Some(_), None) => tracing::info!("a majority agrees with this node about the state: it may act again"),
        _ => {}
    }
    inner.lease.set_suspended(index.is_some());
}

/// What one member said.
#[derive(Debug)]
struct Answer {
    id: u64,
    said: wire::ProbeResponse,
    /// Judged when the answer came: the others may take as long as they like.
    skew_ms: i64,
}

/// The answers of the members that gave one.
async fn ask(inner: &Inner, running: &Running, hash_index: LogIndex) -> Vec<Answer> {
    questions(inner, running, hash_index).filter_map(std::future::ready).collect().await
}

/// One question to every other member; the answers as they come, nothing for who gives none.
fn questions<'a>(
    inner: &'a Inner,
    running: &'a Running,
    hash_index: LogIndex,
) -> FuturesUnordered<impl Future<Output = Option<Answer>> + 'a> {
    let ask_one = |(id, member): (u64, Member)| async move {
        let request = wire::ProbeRequest { envelope: Some(running.envelope(id)), hash_index: hash_index.0 };
        let said = inner.links.probe(&member.address, request).await.ok()?;
        let skew_ms = said.wall_clock_ms.saturating_sub(i64::try_from(inner.clock.wall_ms()).unwrap_or(i64::MAX));
        // Another node may live at that address by now.
        (said.group == running.identity.group && said.node_id == id).then_some(Answer { id, said, skew_ms })
    };
    let membership = running.membership();
    let others = membership.nodes().filter(|(id, _)| **id != running.identity.node_id);
    others.map(|(id, member)| ask_one((*id, member.clone()))).collect()
}

/// The wall clocks of the members that answer soon, and of this node.
///
/// A majority is waited for; whoever is slower than two heartbeats beyond that is left out, because a new leader must
/// not be kept waiting by a node that vanished.
pub(crate) async fn clocks(inner: &Inner, running: &Running) -> Vec<u64> {
    let mut questions = questions(inner, running, LogIndex(0));
    let others = questions.len();
    let soon = Instant::now() + inner.config.timing.heartbeat * 2;
    let mut clocks = vec![inner.clock.wall_ms()];
    loop {
        let majority = clocks.len() > others.div_ceil(2);
        let answer = tokio::select! {
            biased;
            answer = questions.next() => answer,
            () = tokio::time::sleep_until(soon), if majority => None,
        };
        let Some(answer) = answer else { return clocks };
        clocks.extend(answer.and_then(|answer| u64::try_from(answer.said.wall_clock_ms).ok()));
    }
}

fn note(inner: &Inner, answers: &[Answer]) {
    let at = inner.clock.boottime();
    let mut seen = inner.neighbours.lock();
    let before = std::mem::take(&mut *seen);
    let recently = |last: &Seen| at.saturating_sub(last.at) < inner.config.timing.probe_every * 10;
    // What a silent node said stays for a while: one lost answer does not mean that its disk has room again.
    *seen = before.clone().into_iter().filter(|(_, last)| recently(last)).collect();
    for Answer { id, said, skew_ms } in answers {
        let skew_ms = *skew_ms;
        let far = |skew: i64| Duration::from_millis(skew.unsigned_abs()) > SKEW_WORTH_A_WARNING;
        if far(skew_ms) && !before.get(id).is_some_and(|last| far(last.skew_ms)) {
            tracing::warn!(peer = id, skew_ms, "the clock of a peer is far from this node's");
        }
        inner.observer.clock_skew(*id, skew_ms);
        let space = Space { free: said.disk_free, reserve: said.disk_reserve };
        let disk_low = said.disk_low.then_some(space);
        seen.insert(*id, Seen { at, skew_ms, disk_low, rules_version_max: said.rules_version_max });
    }
}

/// A newer version in the group may write what this one cannot read. It is noted before that comes, so that whoever stops there can
/// say which version goes on.
async fn note_newer(inner: &Inner, answers: &[Answer]) {
    let Some(version) = newest(answers.iter().map(|answer| answer.said.version.as_str())) else { return };
    let (disk, noted) = (inner.storage.disk.clone(), version.to_owned());
    if let Err(error) = inner.storage.off_thread(move || note_program(&*disk, &noted)).await {
        tracing::warn!("that version {version} is in the group could not be noted in the data folder: {error}");
    }
}

/// The newest of these versions that is newer than this one.
fn newest<'a>(versions: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let newer = versions.filter(|version| is_newer(version, env!("CARGO_PKG_VERSION")));
    newer.reduce(|newest, version| if is_newer(version, newest) { version } else { newest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_that_are_newer_than_this_one_are_noted_and_of_these_the_newest() {
        let ours = env!("CARGO_PKG_VERSION");
        assert_eq!(newest(["", "0.0.1", ours].into_iter()), None);
        assert_eq!(newest([ours, "99.0.0", "99.10.0", "99.9.0"].into_iter()), Some("99.10.0"));
    }

    fn hash(letter: char) -> Hash {
        Hash([letter as u8; 32])
    }

    /// One letter per voter: our own first (in brackets if this node does not vote), `?` for one that did not answer.
    fn check(hashes: &str, expected: Verdict) {
        let this_node_votes = !hashes.starts_with('(');
        let mut letters = hashes.chars().filter(|letter| letter.is_alphabetic() || *letter == '?');
        let ours = hash(letters.next().unwrap());
        let theirs: Vec<_> = letters.map(|letter| (letter != '?').then(|| hash(letter))).collect();
        assert_eq!(judge(ours, this_node_votes, &theirs), expected, "{hashes}");
    }

    #[test]
    fn whoever_differs_from_a_majority_is_outvoted() {
        check("ABB", Verdict::Outvoted(hash('B')));
        check("ABBBA", Verdict::Outvoted(hash('B')));
        check("ABB?B", Verdict::Outvoted(hash('B')));
        check("(A)BB", Verdict::Outvoted(hash('B')));
        check("(A)BB?", Verdict::Outvoted(hash('B')));
    }

    #[test]
    fn with_a_majority_behind_it_a_node_goes_on() {
        check("AAA", Verdict::Agreed);
        check("AAB", Verdict::Agreed);
        check("AA?", Verdict::Agreed);
        check("A", Verdict::Agreed);
        check("AABBA", Verdict::Agreed);
        check("(A)AA", Verdict::Agreed);
    }

    #[test]
    fn a_node_that_knows_of_no_difference_goes_on() {
        check("A??", Verdict::Agreed);
        check("(A)??", Verdict::Agreed);
        check("(A)A??", Verdict::Agreed);
    }

    #[test]
    fn with_a_difference_and_no_majority_nobody_acts() {
        check("AB", Verdict::NoMajority);
        check("ABC", Verdict::NoMajority);
        check("AB?", Verdict::NoMajority);
        check("AABB", Verdict::NoMajority);
        check("(A)B?", Verdict::NoMajority);
    }

    fn neighbours(low: &[u64]) -> Neighbours {
        let neighbours = Neighbours::default();
        for id in 1..=5 {
            let disk_low = low.contains(&id).then_some(Space { free: id, reserve: 100 });
            let seen = Seen { at: Duration::ZERO, skew_ms: 0, disk_low, rules_version_max: 1 };
            neighbours.lock().insert(id, seen);
        }
        neighbours
    }

    #[test]
    fn one_follower_short_of_disk_does_not_hold_up_three_but_two_do() {
        assert_eq!(neighbours(&[2]).short_of_disk(&[1, 2, 3], 1), None);
        assert_eq!(neighbours(&[2, 3]).short_of_disk(&[1, 2, 3], 1), Some((2, Space { free: 2, reserve: 100 })));
        assert_eq!(neighbours(&[4, 5]).short_of_disk(&[1, 2, 3], 1), None, "they do not vote");
        assert_eq!(neighbours(&[2]).short_of_disk(&[1, 2], 1), Some((2, Space { free: 2, reserve: 100 })));
        assert_eq!(neighbours(&[]).short_of_disk(&[1], 1), None);
    }
}
