//! Fetches from other nodes what the journal of this one lacks: a snapshot stood in for it, or the folder came back without its past.
//!
//! In the background, page by page, with a pause after each: nobody waits for it. Every page is checked before it is kept: the hash of each
//! entry must follow from the one before it and the bytes of the entry and its events, and the last must have the hash that this node has known
//! since the snapshot. What the hash does not cover, the time of a record and the keys that it is found under, is made anew from what it
//! does. So it does not matter whom the pages come from. What has come so far survives a restart.
//!
//! A gap is filled from its first entry on, or from the first that anybody still has, if the group lets old segments go
//! (`journal_retention`, `journal_bytes_max`). The hash at its end proves what comes from there on. Only when the very first of them happened is
//! taken at the word of whoever sends it: the time of an entry follows from those before it.
//!
//! What this node has let go itself it does not fetch again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use loadline_api::raft as wire;
use loadline_log::{Filling, Gap, Journal, JournalError, JournalRecord, pack_records, unpack_records};
use loadline_state_machine::{Hash, JournalEntry, LogIndex, State, Time, audit, decode_events};
use tonic::Status;

use crate::node::{Inner, Running};
use crate::storage::published::Published;
use crate::storage::{causes, io_error};

/// So many looks are left out after nobody had what this node lacks: the others have better things to do.
const LOOKS_LEFT_OUT: u32 = 30;
/// Bytes of records of one page, before they are packed.
const PAGE_BYTES: usize = 512 << 10;
/// More than any page unpacks to. An entry has a few megabytes at most, and what it brought about is not much larger.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;
/// Pages until the disk is asked to make them durable: a sync for each would slow down those that writes wait for.
const PAGES_PER_SYNC: u32 = 8;
/// With the size of a page, some ten megabytes a second at most.
const PAUSE_AFTER_PAGE: Duration = Duration::from_millis(50);
/// A page that takes longer does not come.
const PAGE_WITHIN: Duration = Duration::from_secs(10);

/// A page of this node's journal for another node.
pub(crate) async fn page(inner: &Inner, first: u64, last: u64) -> Result<wire::ReadHistoryResponse, Status> {
    let journal = inner.storage.journal.clone();
    let read = inner.storage.off_thread(move || match journal.read(first, PAGE_BYTES) {
        Ok(mut records) => {
            records.retain(|record| record.index <= last);
            // Keys are not sent: whoever gets the records makes them anew.
            records.iter_mut().for_each(|record| record.keys = [].into());
            let packed = if records.is_empty() { Vec::new() } else { pack_records(&records)? };
            Ok(wire::ReadHistoryResponse { records: Bytes::from(packed), ..wire::ReadHistoryResponse::default() })
        }
        Err(JournalError::Missing { next, .. }) => {
            let mut answer = wire::ReadHistoryResponse::default();
            if let Some(next) = next.filter(|next| *next <= last)
                && let Some(before) = journal.hash_at(next - 1).map_err(|error| io_error(&error))?
            {
                (answer.next, answer.before_next) = (next, Bytes::copy_from_slice(&before));
            }
            Ok(answer)
        }
        Err(error) => Err(io_error(&error)),
    });
    read.await.map_err(|error| Status::unavailable(format!("the journal cannot be read: {error}")))
}

/// Looks for ever.
pub(crate) async fn run(inner: Arc<Inner>) {
    let every = inner.config.history_look_every;
    let mut asking = Asking::default();
    loop {
        tokio::time::sleep(every).await;
        let Some(running) = inner.running() else { continue };
        let gaps = match look(&inner).await {
            Ok(gaps) => gaps,
            Err(why) => {
                tracing::warn!("it cannot be told what the journal lacks: {why}");
                tokio::time::sleep(every * LOOKS_LEFT_OUT).await;
                continue;
            }
        };
        inner.observer.history_lacking(gaps.iter().map(|gap| gap.last - gap.first + 1).sum());
        if gaps.is_empty() {
            continue;
        }
        let mut filled = false;
        // The newest first: what was missed lately is asked for sooner than what was before this node was there.
        for gap in gaps.into_iter().rev() {
            let (first, last) = (gap.first, gap.last);
            match fill(&inner, &running, gap, &mut asking).await {
                Ok(done) => filled |= done,
                Err(why) => tracing::warn!(first, last, "old entries could not be kept: {why}"),
            }
        }
        if !filled {
            tokio::time::sleep(every * LOOKS_LEFT_OUT).await;
        }
    }
}

/// The gaps that are to be filled. What was begun of others is thrown away.
async fn look(inner: &Inner) -> Result<Vec<Gap>, String> {
    let (journal, published) = (inner.storage.journal.clone(), inner.published.clone());
    let looked = inner.storage.off_thread(move || {
        let gaps = journal.gaps().and_then(|mut gaps| {
            // After the gaps: a snapshot leaves one, and brings the settings.
            let limited = is_limited(&published);
            let mut wanted = Vec::new();
            for gap in gaps.drain(..) {
                if !goes_again(&journal, &gap, limited, journal.was_let_go(&gap)?) {
                    wanted.push(gap);
                }
            }
            journal.discard_unfinished(&wanted)?;
            Ok(wanted)
        });
        gaps.map_err(|error| io_error(&error))
    });
    looked.await.map_err(|error| error.to_string())
}

fn is_limited(published: &Published) -> bool {
    !published.state().journal_limits().is_none()
}

/// Whether what fills this gap would be let go again: this node has done so before. What a snapshot stood in for it never had, unless it
/// has fetched all of that once (`was_let_go`).
fn goes_again(journal: &Journal, gap: &Gap, limited: bool, was_let_go: bool) -> bool {
    limited && gap.first == 1 && (was_let_go || journal.begins_with_a_snapshot() != Some(gap.last))
}

/// Whom to ask: whoever answered last, and then the others in turn.
#[derive(Debug, Default)]
struct Asking {
    first: usize,
    in_vain: usize,
}

impl Asking {
    /// The place of the one to ask among so many. None: all of them were asked in vain.
    fn whom(&self, others: usize) -> Option<usize> {
        (self.in_vain < others).then(|| (self.first + self.in_vain) % others)
    }

    fn in_vain(&mut self) {
        self.in_vain += 1;
    }

    fn answered(&mut self) {
        *self = Self { first: self.first + self.in_vain, in_vain: 0 };
    }

    /// What has come leads nowhere. Somebody else begins, or the same would come again for ever.
    fn misled(&mut self) {
        *self = Self { first: self.first + 1, in_vain: 0 };
    }
}

/// What has come of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    All,
    /// Nobody has the rest, or nobody wants it any more.
    Part,
    /// A part, and nobody has what would follow on from it, but something else.
    Wrong,
    /// Nothing, or a part, and everybody has let go of what would follow on from it: somebody has what comes later.
    Later(Offer),
}

/// Fills one gap. False: nobody has what is lacking, or what they have is not what belongs there.
async fn fill(inner: &Inner, running: &Running, gap: Gap, asking: &mut Asking) -> Result<bool, String> {
    let said = |error: std::io::Error| error.to_string();
    let storage = &inner.storage;
    let (first, last) = (gap.first, gap.last);
    let mut later = None;
    let (came, finished) = loop {
        let (journal, of) = (storage.journal.clone(), gap.clone());
        let filling = storage.off_thread(move || begin(&journal, of, later).map_err(|error| io_error(&error)));
        let filling = Arc::new(filling.await.map_err(said)?);
        let came = fetch(inner, running, &filling, asking).await;
        // However it ended: when the last handle goes, what it holds is written and synced, for which no async task may wait.
        let ended = storage.off_thread({
            let came = came.clone();
            move || end(filling, came).map_err(|error| io_error(&error))
        });
        let finished = ended.await.map_err(said)?;
        match came? {
            Came::Later(offer) => {
                let next = offer.first;
                tracing::info!(
                    first,
                    last,
                    next,
                    "nobody has these old entries from their beginning on: what is left is fetched"
                );
                later = Some(offer);
            }
            came => break (came, finished),
        }
    };
    match came {
        Came::Part | Came::Later(_) => {}
        Came::Wrong => asking.misled(),
        Came::All if !finished => {
            tracing::warn!(first, last, "old entries that were fetched lead elsewhere, and are thrown away");
            asking.misled();
        }
        Came::All => {
            tracing::info!(first, last, "old entries were fetched: this part of the journal is whole");
            if let Some(audit) = &storage.audit {
                audit.index().make_anew();
            }
        }
    }
    Ok(finished)
}

/// What has come of a gap so far; `later`: nothing yet, and nobody has its beginning any more.
fn begin(journal: &Journal, gap: Gap, later: Option<Offer>) -> Result<Filling, JournalError> {
    let filling = journal.fill(gap)?;
    if let Some(offer) = later {
        filling.begin_later(offer.first, offer.before)?;
    }
    Ok(filling)
}

/// Lets readers find what has come, if that is all and right. What is wrong is thrown away, and a part is kept.
fn end(filling: Arc<Filling>, came: Result<Came, String>) -> Result<bool, JournalError> {
    match (came, Arc::into_inner(filling)) {
        (Ok(Came::All), Some(filling)) => filling.finish(),
        // Any chain looks right until its end. If nobody's goes on from here, what has come may be what is wrong.
        (Ok(Came::Wrong), Some(filling)) => filling.discard().map(|()| false),
        // Between what has come and what is offered is what nobody has: both together lead nowhere.
        (Ok(Came::Later(_)), Some(filling)) => filling.discard().map(|()| false),
        (Ok(Came::Later(_)), None) => {
            Err(JournalError::Failed { reason: "a page of old entries is still being kept".to_owned() })
        }
        // A page that nobody waits for any more is still being kept, or there is no more to do.
        _ => Ok(false),
    }
}

/// Asks for page after page.
async fn fetch(inner: &Inner, running: &Running, filling: &Arc<Filling>, asking: &mut Asking) -> Result<Came, String> {
    let (mut wrong, mut unanswered, mut unsynced) = (false, false, 0);
    let mut offered: Option<Offer> = None;
    asking.in_vain = 0;
    while !filling.is_complete() {
        let limited = is_limited(&inner.published);
        if goes_again(&inner.storage.journal, filling.gap(), limited, filling.was_let_go()) {
            return Ok(Came::Part);
        }
        let others: Vec<(u64, String)> = running
            .membership()
            .nodes()
            .filter(|(id, _)| **id != running.identity.node_id)
            .map(|(id, member)| (*id, member.address.clone()))
            .collect();
        let Some((peer, address)) = asking.whom(others.len()).and_then(|place| others.get(place)) else {
            // Everybody was asked for what comes next, and whoever has the most of the rest is known. What has come is only given up for that if
            // nobody who did not answer may have what comes next.
            let later = offered.take().filter(|_| !wrong && (filling.is_untouched() || !unanswered));
            if let Some(offer) = later {
                return Ok(Came::Later(offer));
            }
            return Ok(if wrong { Came::Wrong } else { Came::Part });
        };
        let (first, last) = (filling.next(), filling.gap().last);
        let request = wire::ReadHistoryRequest { envelope: Some(running.envelope(*peer)), first, last };
        let records = match inner.links.read_history(address, request, PAGE_WITHIN).await {
            Ok(answer) if !answer.records.is_empty() => answer.records,
            // It does not have it either. What it has may be all that is left.
            Ok(answer) => {
                let more = |it: &Offer| offered.as_ref().is_none_or(|known| it.first < known.first);
                offered = Offer::of(&answer, first, last).filter(more).or(offered);
                asking.in_vain();
                continue;
            }
            Err(status) => {
                tracing::debug!(peer, first, "no page of old entries came: {status}");
                asking.in_vain();
                unanswered = true;
                continue;
            }
        };
        let into = filling.clone();
        unsynced = (unsynced + 1) % PAGES_PER_SYNC;
        let sync = unsynced == 0;
        let kept = inner.storage.off_thread(move || Ok(keep(&into, &records, sync))).await;
        match kept.map_err(|error| error.to_string())? {
            Ok(count) => {
                inner.observer.history_fetched(count);
                asking.answered();
                (wrong, unanswered, offered) = (false, false, None);
            }
            Err(Unkept::Wrong(why)) => {
                tracing::warn!(peer, first, "a page of old entries is not what it should be: {why}");
                asking.in_vain();
                wrong = true;
            }
            Err(Unkept::Failed(error)) => return Err(causes(&error)),
        }
        tokio::time::sleep(PAUSE_AFTER_PAGE).await;
    }
    Ok(Came::All)
}

/// What somebody has of a gap who does not have its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offer {
    first: u64,
    /// The hash after the entry before it.
    before: [u8; 32],
}

impl Offer {
    /// Of what begins after the entry that was asked for.
    fn of(answer: &wire::ReadHistoryResponse, asked: u64, last: u64) -> Option<Offer> {
        let before = answer.before_next.as_ref().try_into().ok()?;
        (answer.next > asked && answer.next <= last).then_some(Offer { first: answer.next, before })
    }
}

enum Unkept {
    /// The page is wrong.
    Wrong(String),
    /// This node cannot keep it.
    Failed(JournalError),
}

/// Keeps a page, if every entry of it follows from the one before.
fn keep(filling: &Filling, packed: &[u8], sync: bool) -> Result<u64, Unkept> {
    let records = unpack_records(packed, UNPACKED_BYTES_MAX).map_err(|error| Unkept::Wrong(error.to_string()))?;
    let before = filling.hash().map_err(Unkept::Failed)?;
    let before = before.map_or_else(|| State::new().hash(), Hash);
    let time = filling.time_ms().map_err(Unkept::Failed)?;
    // What was before the first that anybody has is gone, and with it the proof of when that was.
    let said = records.first().filter(|first| first.index > 1).map_or(0, |first| first.time_ms);
    let time = Time::from_millis(time.unwrap_or(said));
    let records = check(before, time, filling.next(), records).map_err(Unkept::Wrong)?;
    let count = records.len() as u64;
    filling.add(records).map_err(Unkept::Failed)?;
    if sync {
        filling.sync().map_err(Unkept::Failed)?;
    }
    Ok(count)
}

/// These records, if they are the next ones, each with the hash that follows from its bytes and the hash before it; and with the times and
/// keys that follow from those bytes.
fn check(
    mut before: Hash,
    mut time: Time,
    first: u64,
    mut records: Vec<JournalRecord>,
) -> Result<Vec<JournalRecord>, String> {
    for (index, record) in (first..).zip(&mut records) {
        if record.index != index {
            return Err(format!("entry {} comes where {index} should be", record.index));
        }
        let gives = JournalEntry::link(before, LogIndex(index), &record.entry, &record.events);
        if gives != Some(Hash(record.hash)) {
            return Err(format!("the hash of entry {index} does not follow from its bytes and the hash before it"));
        }
        before = Hash(record.hash);
        let unreadable = |error| format!("entry {index} cannot be decoded: {error}");
        let events = decode_events(&record.events).map_err(unreadable)?;
        record.keys = match JournalEntry::decode(&record.entry).map_err(unreadable)? {
            JournalEntry::Requests(sealed) => {
                time = time.max(sealed.entry().stamped_at);
                audit::entry_keys(&sealed, &events, time).into()
            }
            // Their events are no part of the hash, because there are none.
            JournalEntry::Blank | JournalEntry::Membership(_) if events.is_empty() => Vec::new().into(),
            JournalEntry::Blank | JournalEntry::Membership(_) => {
                return Err(format!("entry {index} brings nothing about, and comes with events"));
            }
        };
        record.time_ms = time.as_millis();
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::{Actor, Command, Entry, Request, Sealed, apply, pass};

    use super::*;

    fn records(count: u64) -> Vec<JournalRecord> {
        let mut state = State::new();
        let one = |index| {
            let payload = format!("members {index}");
            let applied = pass(&mut state, LogIndex(index), payload.as_bytes());
            JournalRecord {
                index,
                time_ms: 0,
                hash: applied.hash.0,
                entry: JournalEntry::encode_membership(payload.as_bytes()).into(),
                events: applied.encode_events().into(),
                keys: vec![].into(),
            }
        };
        (1..=count).map(one).collect()
    }

    #[test]
    fn only_what_follows_byte_for_byte_is_kept() {
        let all = records(10);
        let start = State::new().hash();
        let check = |before, first, records: &[JournalRecord]| check(before, Time::default(), first, records.to_vec());
        assert_eq!(check(start, 1, &all), Ok(all.clone()));
        assert_eq!(check(Hash(all[3].hash), 5, &all[4..]), Ok(all[4..].to_vec()));
        assert!(check(start, 1, &all[1..]).unwrap_err().contains("entry 2 comes where 1 should be"));
        assert!(check(start, 5, &all[4..]).unwrap_err().contains("the hash of entry 5 does not follow"));
        let mut altered = all.clone();
        altered[6].entry = JournalEntry::encode_membership(b"others").into();
        assert!(check(start, 1, &altered).unwrap_err().contains("the hash of entry 7"));
        let mut removed = all.clone();
        removed.remove(4);
        assert!(check(start, 1, &removed).unwrap_err().contains("entry 6 comes where 5 should be"));
        let mut invented = all;
        invented[2].events = asked_for().events;
        assert!(check(start, 1, &invented).unwrap_err().contains("entry 3 brings nothing about"));
    }

    #[test]
    fn whoever_answered_is_asked_first_and_whoever_misled_is_asked_last() {
        let mut asking = Asking::default();
        let round = |asking: &Asking, in_vain: usize| {
            let mut asking = Asking { first: asking.first, in_vain: asking.in_vain };
            let mut asked = Vec::new();
            while let Some(place) = asking.whom(3) {
                asked.push(place);
                asking.in_vain();
            }
            assert_eq!(asked.len(), 3 - in_vain);
            asked
        };
        assert_eq!(round(&asking, 0), [0, 1, 2]);
        asking.in_vain();
        assert_eq!(round(&asking, 1), [1, 2]);
        asking.answered();
        assert_eq!(round(&asking, 0), [1, 2, 0]);
        asking.answered();
        assert_eq!(round(&asking, 0), [1, 2, 0]);
        asking.misled();
        assert_eq!(round(&asking, 0), [2, 0, 1]);
        // Members come and go.
        assert_eq!(asking.whom(1), Some(0));
        assert_eq!(asking.whom(0), None);
    }

    #[test]
    fn an_offer_is_of_what_comes_later_and_still_belongs_to_the_gap() {
        let before = [7; 32];
        let answer = |next: u64, before: &[u8]| wire::ReadHistoryResponse {
            next,
            before_next: Bytes::copy_from_slice(before),
            ..wire::ReadHistoryResponse::default()
        };
        assert_eq!(Offer::of(&answer(5, &before), 1, 9), Some(Offer { first: 5, before }));
        assert_eq!(Offer::of(&answer(9, &before), 1, 9), Some(Offer { first: 9, before }));
        for nothing in [answer(0, &[]), answer(5, &before[1..]), answer(1, &before), answer(10, &before)] {
            assert_eq!(Offer::of(&nothing, 1, 9), None, "{nothing:?}");
        }
    }

    fn asked_for() -> JournalRecord {
        let command = Command::CreateCluster { name: "shop".to_owned() };
        let request = Request { actor: Actor::new("alice", "test"), request_id: None, commands: vec![command] };
        let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(70), requests: vec![request] });
        let applied = apply(&mut State::new(), LogIndex(1), &sealed);
        JournalRecord {
            index: 1,
            time_ms: applied.time.as_millis(),
            hash: applied.hash.0,
            entry: JournalEntry::encode_requests(sealed.bytes()).into(),
            events: applied.encode_events().into(),
            keys: applied.index_keys(&sealed).into(),
        }
    }

    #[test]
    fn what_was_fetched_and_let_go_is_not_fetched_again_while_a_limit_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(loadline_log::RealDisk::open(folder.path()).unwrap());
        let journal = Journal::open(disk, loadline_log::JournalOptions::default()).unwrap();
        let all = records(60);
        journal.start_after(40, all[39].hash).unwrap();
        all[40..].iter().for_each(|record| journal.append(record.clone()).unwrap());
        let asked = |limited| {
            let gap = journal.gaps().unwrap().pop().unwrap();
            assert_eq!((gap.first, gap.last), (1, 40));
            goes_again(&journal, &gap, limited, journal.was_let_go(&gap).unwrap())
        };
        // A snapshot stood in for it: it never was here.
        assert_eq!((asked(false), asked(true)), (false, false));
        let filling = journal.fill(journal.gaps().unwrap().pop().unwrap()).unwrap();
        filling.add(all[..40].to_vec()).unwrap();
        assert!(filling.finish().unwrap());
        journal.let_go(40).unwrap();
        assert_eq!((asked(false), asked(true)), (false, true));
    }

    #[test]
    fn what_the_hash_does_not_cover_is_made_anew() {
        let right = asked_for();
        assert!(!right.keys.is_empty());
        let doctored = JournalRecord { time_ms: 5, keys: vec![b"nobody".to_vec()].into(), ..right.clone() };
        let kept = check(State::new().hash(), Time::default(), 1, vec![doctored.clone()]);
        assert_eq!(kept, Ok(vec![right.clone()]));
        // Time does not go back behind what is before it.
        let later = check(State::new().hash(), Time::from_millis(90), 1, vec![doctored]).unwrap();
        assert_eq!(later[0].time_ms, 90);
    }
}
