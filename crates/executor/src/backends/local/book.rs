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
