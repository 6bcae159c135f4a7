//! Keys for the audit index: by resource, by who asked, by kind, by time. The index itself is in `crates/log`, to
//! which they are opaque bytes.
//!
//! A key is a letter for what it is about and then the thing, so that all keys about one thing are found by that
//! prefix and nothing else is.
//!
//! Every record of the journal is kept with its keys, and verifying a history makes them anew: an entry must have the same keys for ever,
//! so a change of what follows here from an entry waits for other rules, as a change of `apply` does.

use crate::{Applied, ClusterId, Command, Event, ResourceName, Sealed, Time, resource_changes};

/// A text in a key is cut here: it comes from outside, and a key is no place to keep a megabyte.
const TEXT_BYTES_MAX: usize = 255;

/// Everything that happened to this resource.
pub fn resource_key(name: &ResourceName) -> Vec<u8> {
    text_key(b'r', &name.to_string())
}

/// Everything that this actor asked for.
pub fn actor_key(name: &str) -> Vec<u8> {
    text_key(b'a', name)
}

/// Everything that was decided about this cluster or done to it, under whatever name.
pub fn cluster_key(cluster: ClusterId) -> Vec<u8> {
    [&b"k"[..], &cluster.index.0.to_be_bytes(), &cluster.ordinal.to_be_bytes()].concat()
}

/// Every entry with a command of this kind, refused or not.
pub fn command_key(kind: u16) -> Vec<u8> {
    [&b"c"[..], &kind.to_be_bytes()].concat()
}

/// Every entry with an event of this kind.
pub fn event_key(kind: u16) -> Vec<u8> {
    [&b"e"[..], &kind.to_be_bytes()].concat()
}

/// Every entry with an event of this kind about this cluster. Only for those that end something: the rows of one cluster are
/// asked for more often than those of all.
pub fn cluster_event_key(cluster: ClusterId, kind: u16) -> Vec<u8> {
    [&b"h"[..], &cluster_key(cluster)[1..], &kind.to_be_bytes()].concat()
}

/// Sorts by time.
pub fn time_key(time: Time) -> Vec<u8> {
    [&b"t"[..], &time.as_millis().to_be_bytes()].concat()
}

/// Whether a key is of that kind.
pub fn is_time_key(key: &[u8]) -> bool {
    key.first() == Some(&b't')
}

/// The length comes first: "demo" must not find "demo2".
fn text_key(letter: u8, text: &str) -> Vec<u8> {
    let cut = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
    let length = u8::try_from(cut.len()).unwrap_or(u8::MAX);
    [&[letter, length][..], cut].concat()
}

impl Applied {
    /// Under which keys this entry can be found: see [`entry_keys`].
    pub fn index_keys(&self, entry: &Sealed) -> Vec<Vec<u8>> {
        entry_keys(entry, &self.events, self.time)
    }
}

/// Under which keys an entry with these events can be found, each once. None for an entry that only told the time, or signals from
/// which nothing followed: several per second would bury everything else.
pub fn entry_keys(entry: &Sealed, events: &[Event], time: Time) -> Vec<Vec<u8>> {
    // Of many requests most are by the same actor and of the same kind: a key is made of what is left.
    let (mut actors, mut commands) = (Vec::new(), Vec::new());
    for request in &entry.entry().requests {
        if request.commands.iter().all(is_routine) {
            continue;
        }
        actors.push(request.actor.name.as_str());
        commands.extend(request.commands.iter().map(Command::kind));
    }
    let mut keys: Vec<Vec<u8>> = each_once(actors).map(actor_key).collect();
    keys.extend(each_once(commands).map(command_key));
    let signal = |event: &&Event| {
        matches!(
            event,
            Event::SignalsReported { .. }
                | Event::CollectorHeard { .. }
                | Event::CourseNoted { .. }
                | Event::SignalFailed { .. }
        )
    };
    let told = || events.iter().filter(|event| !signal(event));
    keys.extend(each_once(told().map(Event::kind).collect()).map(event_key));
    keys.extend(each_once(told().filter_map(Event::cluster).collect()).map(cluster_key));
    let ends = |event: &&Event| matches!(event.kind(), Event::ACTION_SETTLED | Event::OPERATION_ENDED);
    let ended = told().filter(ends).filter_map(|event| Some((event.cluster()?, event.kind())));
    keys.extend(ended.map(|(cluster, kind)| cluster_event_key(cluster, kind)));
    keys.extend(resource_changes(events).iter().map(|change| resource_key(&change.name)));
    if !keys.is_empty() {
        keys.push(time_key(time));
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn each_once<T: Ord>(mut all: Vec<T>) -> impl Iterator<Item = T> {
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}

/// What comes all the time and is only worth finding for what followed from it.
fn is_routine(command: &Command) -> bool {
    matches!(
        command,
        Command::Tick | Command::ReportSignals { .. } | Command::RecordSignals { .. } | Command::PushSignals { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Actor, Entry, LogIndex, Request, State, apply};

    fn keys(requests: Vec<(&str, Vec<Command>)>) -> Vec<Vec<u8>> {
        let requests = requests
            .into_iter()
            .map(|(actor, commands)| Request { actor: Actor::new(actor, "test"), request_id: None, commands })
            .collect();
        let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(9), requests });
        apply(&mut State::new(), LogIndex(1), &sealed).index_keys(&sealed)
    }

    fn create(name: &str) -> Command {
        Command::CreateCluster { name: name.to_owned() }
    }

    #[test]
    fn an_entry_is_found_by_who_asked_what_was_asked_what_happened_to_what_and_when() {
        let rename = Command::RenameCluster { name: "a".to_owned(), to: "b".to_owned(), etag: None };
        let found =
            keys(vec![("alice", vec![create("a"), rename]), ("bob", vec![create("b")]), ("bob", vec![create("-")])]);
        let mut expected = vec![
            actor_key("alice"),
            actor_key("bob"),
            command_key(20),
            command_key(21),
            cluster_key(ClusterId { index: LogIndex(1), ordinal: 0 }),
            event_key(20),
            event_key(21),
            resource_key(&ResourceName::cluster("a")),
            resource_key(&ResourceName::cluster("b")),
            time_key(Time::from_millis(9)),
        ];
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_entry_that_only_tells_the_time_is_not_indexed() {
        assert_eq!(keys(vec![("loadline", vec![Command::Tick])]), Vec::<Vec<u8>>::new());
        let report = Command::ReportSignals { collector: "watcher".to_owned(), sequence: 1, clusters: vec![] };
        assert_eq!(keys(vec![("watcher", vec![report])]), Vec::<Vec<u8>>::new(), "nor one with signals and no more");
    }

    #[test]
    fn the_numbers_that_the_past_is_read_by_are_those_of_the_log() {
        for (number, name) in [
            (Event::DECISION_MADE, "DecisionMade"),
            (Event::ACTION_SETTLED, "ActionSettled"),
            (Event::OPERATION_ENDED, "OperationEnded"),
        ] {
            assert!(Event::KINDS.contains(&(number, name)), "{name}");
        }
    }

    #[test]
    fn no_key_is_the_beginning_of_another() {
        let all = [
            actor_key("demo"),
            actor_key("demo2"),
            actor_key(""),
            resource_key(&ResourceName::cluster("demo")),
            resource_key(&ResourceName::cluster("demo2")),
            command_key(1),
            command_key(257),
            cluster_key(ClusterId { index: LogIndex(1), ordinal: 0 }),
            cluster_key(ClusterId { index: LogIndex(1), ordinal: 1 }),
            event_key(1),
            cluster_event_key(ClusterId { index: LogIndex(1), ordinal: 0 }, Event::ACTION_SETTLED),
            cluster_event_key(ClusterId { index: LogIndex(1), ordinal: 0 }, Event::OPERATION_ENDED),
            cluster_event_key(ClusterId { index: LogIndex(1), ordinal: 1 }, Event::ACTION_SETTLED),
            time_key(Time::from_millis(0)),
            time_key(Time::from_millis(1)),
        ];
        for (place, key) in all.iter().enumerate() {
            for (other_place, other) in all.iter().enumerate() {
                assert!(place == other_place || !other.starts_with(key), "{key:?} finds {other:?}");
            }
        }
    }

    #[test]
    fn keys_of_time_sort_by_time_and_long_texts_are_cut() {
        assert!(time_key(Time::from_millis(255)) < time_key(Time::from_millis(256)));
        assert_eq!(actor_key(&"x".repeat(1 << 20)).len(), 2 + TEXT_BYTES_MAX);
    }
}
