//! Keys for the audit index: by resource, by who asked, by kind, by time. The index itself is in `crates/log`, to
//! which they are opaque bytes.
//!
//! A key is a letter for what it is about and then the thing, so that all keys about one thing are found by that
//! prefix and nothing else is.

use crate::{Applied, Command, ResourceName, Sealed, Time, resource_changes};

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

/// Every entry with a command of this kind, refused or not.
pub fn command_key(kind: u16) -> Vec<u8> {
    [&b"c"[..], &kind.to_be_bytes()].concat()
}

/// Every entry with an event of this kind.
pub fn event_key(kind: u16) -> Vec<u8> {
    [&b"e"[..], &kind.to_be_bytes()].concat()
}

/// Sorts by time.
pub fn time_key(time: Time) -> Vec<u8> {
    [&b"t"[..], &time.as_millis().to_be_bytes()].concat()
}

/// The length comes first: "demo" must not find "demo2".
fn text_key(letter: u8, text: &str) -> Vec<u8> {
    let cut = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
    let length = u8::try_from(cut.len()).unwrap_or(u8::MAX);
    [&[letter, length][..], cut].concat()
}

impl Applied {
    /// Under which keys this entry can be found, each once. None for an entry that only told the time: one per second
    /// would bury everything else.
    pub fn index_keys(&self, entry: &Sealed) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        for request in &entry.entry().requests {
            if request.commands.iter().all(|command| matches!(command, Command::Tick)) {
                continue;
            }
            keys.push(actor_key(&request.actor.name));
            keys.extend(request.commands.iter().map(|command| command_key(command.kind())));
        }
        keys.extend(self.events.iter().map(|event| event_key(event.kind())));
        keys.extend(resource_changes(&self.events).iter().map(|change| resource_key(&change.name)));
        if !keys.is_empty() {
            keys.push(time_key(self.time));
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}
