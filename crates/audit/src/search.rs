//! Looking for what somebody did, or what happened to a cluster: the newest first, a page at a time, through the index.
//!
//! Several conditions at once must hold of the same row. The index says of which entries all of them may hold; what is in those
//! entries decides.
//!
//! Signals come all the time, and the index leaves them out. So they are shown only to whoever asks for their kind, and then every entry
//! is looked at.

mod follows;

use loadline_sql::tables::EventRow;
use loadline_state_machine::{ClusterId, Command, Event, JournalEntry, LogIndex, Request, Time, audit};

use self::follows::followed_from;
use crate::part::{event_row, proof_words};
use crate::trail::{Opened, Trail, TrailError};
use crate::words::{ClusterNames, asked_words};

/// Entries that are looked at for one page. A page of which most rows do not fit ends here, and the next goes on.
const ENTRIES_PER_PAGE_MAX: usize = 5_000;
const FOUND_AT_ONCE: usize = 256;

/// What the audit index leaves out, as the log calls it.
const ROUTINE_COMMANDS: [&str; 4] = ["Tick", "ReportSignals", "RecordSignals", "PushSignals"];
const ROUTINE_EVENTS: [&str; 4] = ["SignalsReported", "CollectorHeard", "CourseNoted", "SignalFailed"];

/// A kind of thing that was asked for, or that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    name: &'static str,
    command: Option<u16>,
    event: Option<u16>,
}

impl Kind {
    /// By the name that the log has for it, whatever its capitals: `CreateCluster` was asked for, `ClusterCreated` happened.
    pub fn read(text: &str) -> Result<Kind, UnknownKind> {
        let wanted = plain(text);
        let find = |kinds: &'static [(u16, &'static str)]| kinds.iter().find(|(_, name)| plain(name) == wanted);
        let (command, event) = (find(Command::KINDS), find(Event::KINDS));
        let name = command.or(event).map(|(_, name)| *name).ok_or_else(|| UnknownKind { text: text.to_owned() })?;
        Ok(Kind { name, command: command.map(|(number, _)| *number), event: event.map(|(number, _)| *number) })
    }

    /// Of what comes all the time, which the index does not know.
    fn is_routine(&self) -> bool {
        ROUTINE_COMMANDS.contains(&self.name) || ROUTINE_EVENTS.contains(&self.name)
    }

    /// Every name that can be read.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Command::KINDS.iter().chain(Event::KINDS).map(|(_, name)| *name)
    }
}

fn plain(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// It is no kind of command and none of event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no kind of command or event; such as CreateCluster or ClusterCreated")]
pub struct UnknownKind {
    pub text: String,
}

/// What is looked for. Everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub cluster: Option<ClusterId>,
    pub actor: Option<String>,
    /// One of these, if any are given.
    pub kinds: Vec<Kind>,
    pub since: Option<Time>,
    pub until: Option<Time>,
}

/// Some rows, and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The newest first.
    pub rows: Vec<EventRow>,
    /// Before which entry the next page goes on; nothing if this was the last.
    pub next: Option<u64>,
}

/// A page of what is wanted, from before an entry on. It ends between two entries, so it may have a few rows more than `count`.
pub fn search(
    trail: &Trail<'_>,
    wanted: &Wanted,
    names: &dyn ClusterNames,
    before: Option<u64>,
    count: usize,
) -> Result<Found, TrailError> {
    let mut before = before.unwrap_or(u64::MAX);
    if let Some(until) = wanted.until {
        let Some(last) = trail.not_after(until)? else { return Ok(Found::default()) };
        before = before.min(last + 1);
    }
    let mut entries = Entries::of(trail, wanted, before);
    let mut found = Found::default();
    for _ in 0..ENTRIES_PER_PAGE_MAX {
        let Some(entry) = entries.next()? else { return Ok(found) };
        before = entry;
        let Some(opened) = trail.at(entry)? else { continue };
        if wanted.since.is_some_and(|since| opened.at < since) {
            return Ok(found);
        }
        found.rows.extend(rows_of(&opened, wanted, names).into_iter().rev());
        if found.rows.len() >= count {
            break;
        }
    }
    found.next = Some(before);
    Ok(found)
}

/// The entries of which all conditions may hold, the newest first.
struct Entries<'a> {
    trail: &'a Trail<'a>,
    /// Of each condition; none: every entry will do.
    conditions: Vec<Condition>,
    before: u64,
}

/// The entries under any of some keys.
struct Condition {
    keys: Vec<Cursor>,
}

/// The entries under one key, found some at a time.
struct Cursor {
    key: Vec<u8>,
    /// The newest last.
    ahead: Vec<u64>,
    /// There are no more behind those.
    over: bool,
}

impl<'a> Entries<'a> {
    fn of(trail: &'a Trail<'a>, wanted: &Wanted, before: u64) -> Entries<'a> {
        let one = |key: Vec<u8>| Condition { keys: vec![Cursor { key, ahead: Vec::new(), over: false }] };
        let mut conditions: Vec<Condition> = Vec::new();
        if wanted.kinds.iter().any(Kind::is_routine) {
            return Entries { trail, conditions, before };
        }
        conditions.extend(wanted.cluster.map(audit::cluster_key).map(one));
        conditions.extend(wanted.actor.as_deref().map(audit::actor_key).map(one));
        if !wanted.kinds.is_empty() {
            let commands = wanted.kinds.iter().filter_map(|kind| kind.command).map(audit::command_key);
            let events = wanted.kinds.iter().filter_map(|kind| kind.event).map(audit::event_key);
            let keys = commands.chain(events).map(|key| Cursor { key, ahead: Vec::new(), over: false });
            conditions.push(Condition { keys: keys.collect() });
        }
        Entries { trail, conditions, before }
    }

    fn next(&mut self) -> Result<Option<u64>, TrailError> {
        let found = if self.conditions.is_empty() { self.any() } else { self.all_hold()? };
        self.before = found.unwrap_or(0);
        Ok(found)
    }

    /// The newest entry before.
    fn any(&self) -> Option<u64> {
        let range = self.trail.source.range()?;
        let newest = self.before.checked_sub(1)?.min(*range.end());
        (newest >= *range.start()).then_some(newest)
    }

    /// The newest entry before that is under a key of every condition: each in turn says where it goes on, until all agree.
    fn all_hold(&mut self) -> Result<Option<u64>, TrailError> {
        let Some(mut bound) = self.before.checked_sub(1) else { return Ok(None) };
        loop {
            let mut agreed = true;
            for condition in &mut self.conditions {
                let Some(entry) = condition.newest(self.trail, bound)? else { return Ok(None) };
                agreed &= entry == bound;
                bound = entry;
            }
            // The first round only finds where to begin.
            if agreed {
                return Ok(Some(bound));
            }
        }
    }
}

impl Condition {
    /// The newest entry up to this one.
    fn newest(&mut self, trail: &Trail<'_>, bound: u64) -> Result<Option<u64>, TrailError> {
        let mut newest = None;
        for cursor in &mut self.keys {
            newest = newest.max(cursor.newest(trail, bound)?);
        }
        Ok(newest)
    }
}

impl Cursor {
    fn newest(&mut self, trail: &Trail<'_>, bound: u64) -> Result<Option<u64>, TrailError> {
        loop {
            while self.ahead.last().is_some_and(|entry| *entry > bound) {
                self.ahead.pop();
            }
            if let Some(entry) = self.ahead.last() {
                return Ok(Some(*entry));
            }
            if self.over {
                return Ok(None);
            }
            self.ahead = trail.index.find(&self.key, bound.checked_add(1), FOUND_AT_ONCE)?;
            self.ahead.reverse();
            self.over = self.ahead.is_empty();
        }
    }
}

/// The rows of an entry that are wanted, in order.
fn rows_of(opened: &Opened, wanted: &Wanted, names: &dyn ClusterNames) -> Vec<EventRow> {
    let requests: &[Request] = match &opened.entry {
        JournalEntry::Requests(sealed) => &sealed.entry().requests,
        JournalEntry::Blank | JournalEntry::Membership(_) => &[],
    };
    let index = LogIndex(opened.index);
    let mut rows = Vec::new();
    let mut heard = vec![false; requests.len()];
    for (ordinal, (cause, event)) in (0..).zip(&opened.events) {
        let place = match cause {
            loadline_state_machine::Cause::Request(place) => usize::try_from(*place).ok(),
            loadline_state_machine::Cause::Reaction => None,
        };
        let asked = place.and_then(|place| requests.get(place));
        if let Some(heard) = place.and_then(|place| heard.get_mut(place)) {
            *heard = true;
        }
        let of_kind = |kind: &Kind| {
            kind.event == Some(event.kind())
                || kind.command.is_some_and(|kind| asked.is_some_and(|it| followed_from(event, kind, it)))
        };
        let fits = wanted.cluster.is_none_or(|cluster| event.cluster() == Some(cluster))
            && wanted.actor.as_ref().is_none_or(|actor| asked.is_some_and(|it| it.actor.name == *actor))
            && match wanted.kinds.as_slice() {
                [] => !ROUTINE_EVENTS.contains(&event.kind_name()),
                kinds => kinds.iter().any(of_kind),
            };
        if fits {
            rows.push(event_row(index, ordinal, opened.at, event, asked, names));
        }
    }
    // What was asked for and brought nothing about: refused, repeated, or so already. Of which cluster that was, no event says.
    let silent = requests.iter().zip(heard).filter(|(_, heard)| !heard).map(|(request, _)| request);
    for request in silent.filter(|_| wanted.cluster.is_none()) {
        if wanted.actor.as_ref().is_some_and(|actor| request.actor.name != *actor) {
            continue;
        }
        for command in &request.commands {
            let of_kind = |kind: &Kind| kind.command == Some(command.kind());
            let shown = match wanted.kinds.as_slice() {
                [] => !ROUTINE_COMMANDS.contains(&command.kind_name()),
                kinds => kinds.iter().any(of_kind),
            };
            if shown {
                rows.push(silent_row(index, opened.at, request, command));
            }
        }
    }
    rows
}

fn silent_row(index: LogIndex, at: Time, request: &Request, command: &Command) -> EventRow {
    EventRow {
        index,
        // Behind all events: it has no place among them.
        ordinal: u32::MAX,
        at,
        kind: command.kind_name(),
        cluster: None,
        cluster_name: None,
        resource: None,
        actor: Some(request.actor.name.clone()),
        source: Some(request.actor.source.clone()),
        proof: Some(proof_words(&request.actor.proof)),
        request_id: request.request_id.map(|id| id.to_string()),
        what: format!("nothing came of it (refused, a repeat, or so already): {}", asked_words(command)),
    }
}
