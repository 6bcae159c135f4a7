//! Any bytes are a value or an error: never a panic, never more memory than in proportion to the input.

use crate::common::{World, create_cluster, create_size, identified, request_id, samples, set};
use loadline_state_machine::{
    Command, DecodeError, Hash, LogIndex, Receipt, Request, Revision, Sealed, State, apply, decode_caused_events,
    encode_caused_events,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Reads the bytes as everything that they could be said to be. What can be read must be written back to something that
/// reads the same, and an entry must be applied without complaint.
fn swallow(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
    if let Ok(receipt) = Receipt::decode(bytes) {
        assert_eq!(Receipt::decode(&receipt.encode()), Ok(receipt));
    }
    if let Ok(events) = decode_caused_events(bytes) {
        let again = encode_caused_events(events.iter().map(|(cause, event)| (*cause, event)));
        assert_eq!(decode_caused_events(&again), Ok(events));
    }
    if let Ok(mut state) = State::decode(bytes) {
        assert_eq!(State::decode(&state.encode()).as_ref(), Ok(&state));
        if state.applied() > LogIndex(0) && state.applied() < LogIndex(u64::MAX) {
            let next = LogIndex(state.applied().0 + 1);
            apply(&mut state, next, &Sealed::seal(samples::entry()));
        }
    }
    if let Ok(sealed) = Sealed::open(bytes) {
        assert_eq!(
            Sealed::open(Sealed::seal(sealed.entry().clone()).bytes().to_vec()).map(|it| it.entry().clone()),
            Ok(sealed.entry().clone())
        );
        apply(&mut State::new(), LogIndex(1), &sealed);
    }
}

fn a_state() -> State {
    let mut world = World::new();
    world.must(create_size("small", None));
    world.must(create_cluster("demo"));
    world.must(set("request_window", "1h"));
    let request = identified(request_id(world.time, 1), vec![create_cluster("other"), create_cluster("demo")]);
    world.ask(request);
    world.must(Command::BeginRestore { bytes_total: 100, hash: Hash([7; 32]) });
    let restore = Revision { index: LogIndex(5), ordinal: 0 };
    world.must(Command::RestoreChunk { restore, offset: 0, bytes: vec![1; 60].into() });
    world.state
}

fn valid() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = samples::requests().iter().map(Request::encode).collect();
    all.extend(samples::receipts().iter().map(Receipt::encode));
    all.push(Sealed::seal(samples::entry()).bytes().to_vec());
    let events = samples::events();
    all.push(encode_caused_events(events.iter().map(|event| (loadline_state_machine::Cause::Reaction, event))));
    all.push(a_state().encode());
    all
}

#[test]
fn every_prefix_of_something_valid_is_an_error_or_a_value() {
    for bytes in valid() {
        for end in 0..bytes.len() {
            swallow(&bytes[..end]);
        }
    }
}

#[test]
fn every_flipped_bit_of_something_valid_is_an_error_or_a_value() {
    for bytes in valid() {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            swallow(&flipped);
        }
    }
}

#[test]
fn what_is_cut_short_or_too_long_is_never_taken_for_the_whole() {
    for request in samples::requests() {
        let bytes = request.encode();
        for end in 0..bytes.len() {
            assert!(Request::decode(&bytes[..end]).is_err());
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(Request::decode(&longer), Err(DecodeError::TrailingBytes { what: "request", count: 1 }));
    }
    let entry = Sealed::seal(samples::entry());
    for end in 0..entry.bytes().len() {
        assert!(Sealed::open(&entry.bytes()[..end]).is_err());
    }
    assert_eq!(
        Sealed::open([entry.bytes(), &[0][..]].concat()),
        Err(DecodeError::TrailingBytes { what: "entry", count: 1 })
    );
    for receipt in samples::receipts() {
        let bytes = receipt.encode();
        for end in 0..bytes.len() {
            assert!(Receipt::decode(&bytes[..end]).is_err());
        }
    }
}

#[test]
fn a_length_that_the_bytes_cannot_hold_is_refused_without_reserving_memory_for_it() {
    // Format 1, then an actor whose name claims to be 2^62 bytes long; the same for an entry's number of requests.
    let huge = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0x40];
    let request = [&[1, 0][..], &huge].concat();
    assert_eq!(Request::decode(&request), Err(DecodeError::Truncated { what: "request" }));
    let entry = [&[1, 0, 0][..], &huge].concat();
    assert_eq!(Sealed::open(entry), Err(DecodeError::Truncated { what: "entry" }));
    // A frame that claims 4 GiB.
    let state = [&[1, 0, 1, 0][..], &[0xff; 4]].concat();
    assert_eq!(State::decode(&state), Err(DecodeError::Truncated { what: "table of a state" }));
}

#[test]
fn a_state_that_contradicts_itself_is_refused() {
    let bytes = a_state().encode();
    let frames = frames(&bytes);
    let refuse = |frames: &[&[u8]], what: &str| {
        let bytes = [&bytes[..2], &frames.concat()].concat();
        match State::decode(&bytes) {
            Err(DecodeError::Inconsistent { .. } | DecodeError::Truncated { .. }) => {}
            other => panic!("a state with {what} gives {other:?}"),
        }
    };
    refuse(&[], "nothing in it");
    refuse(&frames[1..], "no head");
    for (at, frame) in frames.iter().enumerate() {
        let mut twice = frames.clone();
        twice.insert(at, frame);
        refuse(&twice, "a row twice");
        for other in at + 1..frames.len() {
            let mut exchanged = frames.clone();
            exchanged.swap(at, other);
            refuse(&exchanged, "rows out of order");
        }
    }
}

/// The frames of a state: kind (2 bytes), length (4 bytes), body.
fn frames(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = &bytes[2..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_le_bytes([rest[2], rest[3], rest[4], rest[5]]);
        let (frame, more) = rest.split_at(6 + length as usize);
        frames.push(frame);
        rest = more;
    }
    frames
}

/// 256 times 8 rounds; `PROPTEST_CASES=20000` makes it a long night.
fn rounds() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases * 8, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(rounds())]

    #[test]
    fn any_bytes_are_swallowed(bytes in vec(any::<u8>(), 0..200)) {
        swallow(&bytes);
        // With a format that is known, more of the bytes are looked at.
        swallow(&[&[1, 0], bytes.as_slice()].concat());
    }

    #[test]
    fn any_damage_to_something_valid_is_swallowed(
        which in any::<prop::sample::Index>(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let all = valid();
        let mut bytes = which.get(&all).clone();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        swallow(&bytes);
    }
}
