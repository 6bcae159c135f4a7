//! Signals, as commands.

use loadline_state_machine::{Command, Options, SignalKind, State, read_signal_option, signal_option};

use super::{Change, OptionPlaces};
use crate::statement::{AlterSignal, CreateSignal, SignalSaying};

pub(super) fn create(create: &CreateSignal) -> Change {
    let (options, places) = options(create.kind, &create.options);
    let command = Command::CreateSignal {
        name: create.name.clone(),
        kind: create.kind,
        target: create.target.clone(),
        every: create.every,
        options,
        if_not_exists: create.if_not_exists,
    };
    Change { options: places, ..Change::one(command) }
}

/// How an option is spelled depends on the kind, which only the state knows. One that does not exist is for the state machine
/// to refuse.
pub(super) fn alter(alter: &AlterSignal, state: &State) -> Change {
    let kind = state.signal(&alter.name).map_or(SignalKind::Prometheus, |signal| signal.kind);
    let (options, places) = options(kind, &alter.options);
    let key = |name: &&str| signal_option(kind, name).map_or_else(|| name.to_lowercase(), |known| known.key.to_owned());
    let command = Command::ChangeSignal {
        name: alter.name.clone(),
        target: alter.target.clone(),
        every: alter.every,
        options,
        reset: alter.reset.iter().map(key).collect(),
        etag: None,
    };
    Change { options: places, ..Change::one(command) }
}

fn options(kind: SignalKind, written: &[SignalSaying]) -> (Options, Vec<OptionPlaces>) {
    let read = |option: &SignalSaying| read_signal_option(kind, option.name, &option.value.as_text());
    let options = written.iter().map(read).collect();
    let places = written.iter().map(|option| OptionPlaces {
        key: read(option).0,
        name: option.name_place,
        value: option.value_place,
    });
    (options, places.collect())
}
