//! What the ledger says, as a value: who may give orders, and what has become of each one.
//!
//! A book is a pure fold over records. Every process that reads the same records comes to the same book, so a record need not be
//! *checked* before it is written: it is written, and the book says whether it counts. Only what stands before it decides.
//!
//! The rules that everything else rests on:
//!
//! 1. An order takes effect by [`Record::Begun`], and by nothing else. The replica that is concerned writes it, or whoever is
//!    about to kill that replica, and does what was asked only after it has seen that its record counts.
//! 2. `Begun` counts only if the order stands open at that place of the ledger, under exactly this epoch and attempt, and no
//!    higher epoch stands before it. So from the place of a [`Record::Fenced`] on nothing of a lower epoch begins any more,
//!    however long ago it was asked for and however late its `Begun` is written.
//! 3. A key begins at most once while it does not fail: `Begun` makes it something that is not open any more.
//!
//! Not here: bytes and files (`ledger`), and what a replica does when its `Begun` counts (`replica`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use loadline_state_machine::{Call, ClusterId, DrainResult, Epoch, Report};
use serde::{Deserialize, Serialize};

/// Settled keys that are always kept, however old.
///
/// A forgotten key that came again would be carried out again, so it must be one that cannot come. Who sends a key reads it
/// from the group's state, where it is unsettled; it is settled there as soon as a leader has heard of its end. Only one that
/// settled here and not there could come: its sender died in between and every node was down since. That is why age alone
/// is not enough. When the group comes back, what is unsettled is read back within seconds, and ten thousand other
/// orders do not settle on one machine in that time.
const SETTLED_KEPT: usize = 10_000;

/// What is written in the ledger. New kinds may be added; a reader that does not know one stops, because its book would differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Record {
    /// No order of a lower epoch begins from here on.
    Fenced { epoch: Epoch },
    /// The intent: what somebody is about to do.
    Asked { key: String, ticket: Ticket, parameters: String, intent: Intent },
    /// It takes effect here. Of a create: the life that begins.
    Begun { key: String, ticket: Ticket, incarnation: Option<String> },
    /// What came of an order that had begun.
    Settled { key: String, ending: Ending },
    /// It shall not begin any more. Void if it has begun.
    Withdrawn { key: String, ticket: Ticket, retryable: bool, reason: String },
    /// Keys that settled before this time need not be remembered, except the newest.
    Forgotten { before_millis: u64 },
    /// All that stands before this place of the ledger. It changes nothing; a reader may start with it.
    Image { as_of: u64, book: Box<Book> },
}

/// Under whose leadership an order was given, and the how manyth time: a later one takes over from an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Ticket {
    pub(super) epoch: Epoch,
    pub(super) attempt: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verb {
    Create,
    Cordon,
    Uncordon,
    Drain,
    Drop,
    Checkpoint,
}

impl Verb {
    /// Whether it is done the moment it begins.
    fn is_instant(self) -> bool {
        matches!(self, Verb::Create | Verb::Cordon | Verb::Uncordon)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Intent {
    pub(super) verb: Verb,
    pub(super) cluster: ClusterId,
    pub(super) name: String,
    pub(super) size: String,
    /// Whom it is about; of a create nobody yet.
    pub(super) incarnation: Option<String>,
}

impl Intent {
    pub(super) fn of(cluster: ClusterId, call: &Call) -> Intent {
        let (verb, incarnation) = match call {
            Call::CreateReplica(_) => (Verb::Create, None),
            Call::CordonReplica(life) => (Verb::Cordon, life.incarnation.as_ref()),
            Call::UncordonReplica(life) => (Verb::Uncordon, life.incarnation.as_ref()),
            Call::DrainReplica(life) => (Verb::Drain, life.incarnation.as_ref()),
            Call::DropReplica(life) => (Verb::Drop, life.incarnation.as_ref()),
            Call::CheckpointReplica(life) => (Verb::Checkpoint, life.incarnation.as_ref()),
        };
        let text = |key: &dyn fmt::Display| key.to_string();
        Intent {
            verb,
            cluster,
            name: text(call.replica()),
            size: text(call.size()),
            incarnation: incarnation.map(|it| text(it)),
        }
    }
}

impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.verb {
            Verb::Create => "create",
            Verb::Cordon => "cordon",
            Verb::Uncordon => "uncordon",
            Verb::Drain => "drain",
            Verb::Drop => "drop",
            Verb::Checkpoint => "checkpoint",
        };
        write!(f, "{verb} replica {} of size {} in cluster {}", self.name, self.size, self.cluster)?;
        self.incarnation.iter().try_for_each(|it| write!(f, ", incarnation {it}"))
    }
}

/// What came of an order. A copy of what the group's log says, because that may grow and this file has a life of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Ending {
    Created { incarnation: String },
    Done,
    Drained { moved: u64, left: u64 },
    Failed { retryable: bool, reason: String },
}

impl Ending {
    /// Nothing if it failed.
    pub(super) fn report(&self) -> Option<Report> {
        match self {
            Ending::Created { incarnation } => Some(Report::Created { incarnation: Some(incarnation.clone()) }),
            Ending::Done => Some(Report::Nothing),
            Ending::Drained { moved, left } => Some(Report::Drained(DrainResult { moved: *moved, left: *left })),
            Ending::Failed { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Progress {
    /// Asked for, and without any effect so far.
    Open,
    Begun,
    /// The place among all that settled, and when.
    Settled {
        ending: Ending,
        place: u64,
        at_millis: u64,
    },
}

/// What is known of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) parameters: String,
    pub(super) intent: Intent,
    pub(super) ticket: Ticket,
    /// The record that holds the order now. Its writer is the one who has to get it going.
    pub(super) asked_by: String,
    pub(super) asked_at_millis: u64,
    pub(super) progress: Progress,
}

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Book {
    highest: Option<Epoch>,
    keys: BTreeMap<String, Entry>,
    /// Keys by their place among all that settled, the oldest first.
    settled: BTreeMap<u64, String>,
    places: u64,
    /// Keys that are not settled.
    unsettled: BTreeSet<String>,
}

impl Book {
    pub(super) fn highest(&self) -> Option<Epoch> {
        self.highest
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.keys.get(key)
    }

    /// The highest epoch, if it is above this one.
    pub(super) fn fenced(&self, epoch: Epoch) -> Option<Epoch> {
        self.highest.filter(|highest| *highest > epoch)
    }

    /// What a replica still has to do, in the order in which it was asked.
    pub(super) fn open_for(&self, incarnation: &str) -> Vec<(String, Entry)> {
        let entries = self.unsettled.iter().filter_map(|key| Some((key, self.keys.get(key)?)));
        let mut open: Vec<(String, Entry)> = entries
            .filter(|(_, entry)| entry.intent.incarnation.as_deref() == Some(incarnation))
            .filter(|(_, entry)| entry.progress == Progress::Open && self.fenced(entry.ticket.epoch).is_none())
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect();
        open.sort_by_key(|(_, entry)| (entry.ticket.epoch, entry.asked_at_millis));
        open
    }

    fn forget(&mut self, before_millis: u64) {
        while self.settled.len() > SETTLED_KEPT {
            let oldest = self.settled.first_key_value().and_then(|(_, key)| self.keys.get(key));
            let progress = oldest.map(|entry| &entry.progress);
            if matches!(progress, Some(Progress::Settled { at_millis, .. }) if *at_millis >= before_millis) {
                break;
            }
            if let Some((_, key)) = self.settled.pop_first() {
                self.keys.remove(&key);
            }
        }
        // Orders of former leaders that nobody settled. What did not begin never will, and is not seen with or without its
        // entry. What began and is asked for again does no harm: it names an incarnation that can be drained or ended only once.
        let (highest, keys) = (self.highest, &mut self.keys);
        self.unsettled.retain(|key| {
            let is_over = keys
                .get(key)
                .is_none_or(|entry| Some(entry.ticket.epoch) < highest && entry.asked_at_millis < before_millis);
            if is_over {
                keys.remove(key);
            }
            !is_over
        });
    }

    /// Takes in one record. `id` is the record's own, `at_millis` the time on it.
    pub(super) fn take(&mut self, id: &str, at_millis: u64, record: &Record) {
        match record {
            Record::Fenced { epoch } => self.highest = self.highest.max(Some(*epoch)),
            Record::Asked { key, ticket, parameters, intent } => {
                self.asked(id, at_millis, key, *ticket, parameters, intent);
            }
            Record::Begun { key, ticket, incarnation } => self.begun(at_millis, key, *ticket, incarnation.as_deref()),
            Record::Settled { key, ending } => {
                if self.entry(key).is_some_and(|entry| entry.progress == Progress::Begun) {
                    self.settle(at_millis, key, ending.clone());
                }
            }
            Record::Withdrawn { key, ticket, retryable, reason } => {
                let is_it = |entry: &Entry| entry.progress == Progress::Open && entry.ticket == *ticket;
                if self.entry(key).is_some_and(is_it) {
                    let ending = Ending::Failed { retryable: *retryable, reason: reason.clone() };
                    self.settle(at_millis, key, ending);
                }
            }
            Record::Forgotten { before_millis } => self.forget(*before_millis),
            Record::Image { .. } => {}
        }
    }

    fn asked(&mut self, id: &str, at_millis: u64, key: &str, ticket: Ticket, parameters: &str, intent: &Intent) {
        if self.fenced(ticket.epoch).is_some() {
            return;
        }
        self.highest = self.highest.max(Some(ticket.epoch));
        if let Some(known) = self.keys.get(key) {
            let taken_over = match &known.progress {
                Progress::Open => ticket > known.ticket,
                Progress::Begun => false,
                // Nothing came of it, and somebody wants it once more.
                Progress::Settled { ending: Ending::Failed { retryable: true, .. }, .. } => ticket >= known.ticket,
                Progress::Settled { .. } => false,
            };
            if !taken_over || known.parameters != parameters {
                return;
            }
            if let Progress::Settled { place, .. } = known.progress {
                self.settled.remove(&place);
            }
        }
        let entry = Entry {
            parameters: parameters.to_owned(),
            intent: intent.clone(),
            ticket,
            asked_by: id.to_owned(),
            asked_at_millis: at_millis,
            progress: Progress::Open,
        };
        self.keys.insert(key.to_owned(), entry);
        self.unsettled.insert(key.to_owned());
    }

    fn begun(&mut self, at_millis: u64, key: &str, ticket: Ticket, incarnation: Option<&str>) {
        if self.fenced(ticket.epoch).is_some() {
            return;
        }
        let Some(entry) = self.keys.get_mut(key) else { return };
        if entry.progress != Progress::Open || entry.ticket != ticket {
            return;
        }
        entry.progress = Progress::Begun;
        if entry.intent.verb.is_instant() {
            let ending = match incarnation {
                Some(incarnation) => Ending::Created { incarnation: incarnation.to_owned() },
                None => Ending::Done,
            };
            self.settle(at_millis, key, ending);
        }
    }

    fn settle(&mut self, at_millis: u64, key: &str, ending: Ending) {
        let Some(entry) = self.keys.get_mut(key) else { return };
        self.places += 1;
        entry.progress = Progress::Settled { ending, place: self.places, at_millis };
        self.settled.insert(self.places, key.to_owned());
        self.unsettled.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::LogIndex;

    use super::*;

    const CLUSTER: ClusterId = ClusterId { index: LogIndex(7), ordinal: 0 };

    fn ticket(epoch: u64, attempt: u32) -> Ticket {
        Ticket { epoch: Epoch { incarnation: 1, index: LogIndex(epoch) }, attempt }
    }

    fn fenced(epoch: u64) -> Record {
        Record::Fenced { epoch: ticket(epoch, 1).epoch }
    }

    fn asked(key: &str, ticket: Ticket, verb: Verb) -> Record {
        let incarnation = (verb != Verb::Create).then(|| "i".to_owned());
        let intent = Intent { verb, cluster: CLUSTER, name: "r1".to_owned(), size: "s".to_owned(), incarnation };
        Record::Asked { key: key.to_owned(), ticket, parameters: "p".to_owned(), intent }
    }

    fn begun(key: &str, ticket: Ticket, incarnation: Option<&str>) -> Record {
        Record::Begun { key: key.to_owned(), ticket, incarnation: incarnation.map(str::to_owned) }
    }

    fn withdrawn(key: &str, ticket: Ticket) -> Record {
        Record::Withdrawn { key: key.to_owned(), ticket, retryable: true, reason: "late".to_owned() }
    }

    fn drained(key: &str) -> Record {
        Record::Settled { key: key.to_owned(), ending: Ending::Drained { moved: 2, left: 1 } }
    }

    /// What becomes of key `k`, in a word, after these records.
    fn check(records: &[Record], expected: &str) {
        let mut book = Book::default();
        for (number, record) in records.iter().enumerate() {
            book.take(&format!("id{number}"), 1, record);
        }
        let text = match book.entry("k").map(|entry| (&entry.progress, entry)) {
            None => "nothing".to_owned(),
            Some((Progress::Open, entry)) => format!("open by {}", entry.asked_by),
            Some((Progress::Begun, _)) => "begun".to_owned(),
            Some((Progress::Settled { ending: Ending::Created { incarnation }, .. }, _)) => {
                format!("made {incarnation}")
            }
            Some((Progress::Settled { ending, .. }, _)) => format!("{ending:?}"),
        };
        assert_eq!(text, expected, "{records:#?}");
    }

    #[test]
    fn a_create_begins_once_and_only_while_it_holds() {
        let (old, new) = (ticket(5, 1), ticket(7, 2));
        let ask = |ticket| asked("k", ticket, Verb::Create);
        let begin = |ticket, life| begun("k", ticket, Some(life));
        check(&[ask(old)], "open by id0");
        check(&[ask(old), begin(old, "a")], "made a");
        check(&[ask(old), begin(old, "a"), begin(old, "b")], "made a");
        check(&[ask(old), begin(old, "a"), fenced(7), ask(new), begin(new, "b")], "made a");
        check(&[begin(old, "a")], "nothing");
        // Fenced before it began: whenever its process comes, it is too late.
        check(&[ask(old), fenced(7), begin(old, "a")], "open by id0");
        check(&[fenced(7), ask(old)], "nothing");
        // Taken over by the next leader; only that one's process counts.
        check(&[ask(old), fenced(7), ask(new), begin(old, "a")], "open by id2");
        check(&[ask(old), fenced(7), ask(new), begin(old, "a"), begin(new, "b")], "made b");
        check(&[ask(old), ask(new), begin(old, "a"), begin(new, "b")], "made b");
        // The same again changes nothing, and neither does an earlier attempt that comes late.
        check(&[ask(old), ask(old)], "open by id0");
        check(&[ask(ticket(5, 2)), ask(old)], "open by id0");
    }

    #[test]
    fn what_is_withdrawn_never_begins_and_what_began_is_not_withdrawn() {
        let (first, second) = (ticket(5, 1), ticket(5, 2));
        let ask = |ticket| asked("k", ticket, Verb::Create);
        let failed = r#"Failed { retryable: true, reason: "late" }"#;
        check(&[ask(first), withdrawn("k", first), begun("k", first, Some("a"))], failed);
        check(&[ask(first), begun("k", first, Some("a")), withdrawn("k", first)], "made a");
        check(&[ask(first), withdrawn("k", second)], "open by id0");
        check(&[ask(first), withdrawn("k", first), ask(second), begun("k", first, Some("a"))], "open by id2");
        check(&[ask(first), withdrawn("k", first), ask(second), begun("k", second, Some("a"))], "made a");
    }

    #[test]
    fn what_takes_time_has_begun_before_it_is_settled() {
        let (old, new) = (ticket(5, 1), ticket(7, 2));
        let done = "Drained { moved: 2, left: 1 }";
        check(&[asked("k", old, Verb::Drain), drained("k")], "open by id0");
        check(&[asked("k", old, Verb::Drain), begun("k", old, None)], "begun");
        check(&[asked("k", old, Verb::Drain), begun("k", old, None), drained("k")], done);
        // A fence does not undo what has begun; who asks again waits for the same end.
        let resumed = [asked("k", old, Verb::Drain), begun("k", old, None), fenced(7), asked("k", new, Verb::Drain)];
        check(&resumed, "begun");
        check(&[&resumed[..], &[drained("k")]].concat(), done);
        check(&[asked("k", old, Verb::Cordon), begun("k", old, None)], "Done");
    }

    #[test]
    fn a_key_with_other_parameters_changes_nothing() {
        let other = match asked("k", ticket(7, 1), Verb::Create) {
            Record::Asked { key, ticket, intent, .. } => {
                Record::Asked { key, ticket, parameters: "other".to_owned(), intent }
            }
            record => record,
        };
        check(&[asked("k", ticket(5, 1), Verb::Create), other.clone()], "open by id0");
        check(
            &[asked("k", ticket(5, 1), Verb::Create), withdrawn("k", ticket(5, 1)), other],
            r#"Failed { retryable: true, reason: "late" }"#,
        );
    }

    #[test]
    fn only_old_keys_beyond_the_newest_are_forgotten() {
        let mut book = Book::default();
        let at = |number: usize| u64::try_from(number).unwrap();
        let total = SETTLED_KEPT + 10;
        for number in 0..total {
            let key = format!("k{number}");
            book.take("id", at(number), &asked(&key, ticket(5, 1), Verb::Create));
            book.take("id", at(number), &begun(&key, ticket(5, 1), Some("a")));
        }
        book.take("id", 3, &asked("left", ticket(5, 1), Verb::Create));
        book.take("id", 9, &Record::Forgotten { before_millis: 4 });
        assert!(book.entry("k3").is_none());
        assert!(book.entry("k4").is_some(), "not old enough");
        assert!(book.entry("left").is_some(), "its leader may still be one");
        book.take("id", 9, &fenced(7));
        book.take("id", 9, &Record::Forgotten { before_millis: u64::MAX });
        assert!(book.entry("left").is_none(), "never begun, and never will be");
        assert!(book.entry("k9").is_none());
        assert!(book.entry("k10").is_some(), "among the newest, however old");
        assert_eq!(book.keys.len(), SETTLED_KEPT);
        assert_eq!(book.fenced(ticket(5, 1).epoch), Some(ticket(7, 1).epoch), "the fence is never forgotten");
    }
}
