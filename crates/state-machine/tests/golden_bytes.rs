//! The bytes of everything that is written to disk or sent to a peer, pinned: a log of today must be read for ever.
//!
//! `LOADLINE_GOLDEN=rewrite` adds a line for what is new. It never changes a line that is there: whoever wants that must
//! delete the line by hand, and be sure that no log with it exists anywhere.

use crate::common;
use std::collections::BTreeMap;
use std::fmt::Write;

use crate::common::{NOON, World, anonymous, create_cluster, create_size, golden_file, identified, request_id};
use crate::common::{restore_commands, rewriting, samples, say_scaling, set, write_golden_file};
use loadline_state_machine::{
    Actor, Cause, Command, DecodeError, Entry, Event, Hash, LogIndex, NodeNumber, RULES_VERSION_MAX, Receipt, Request,
    RulesVersion, Sealed, Span, State, apply, decode_caused_events, encode_caused_events, pass,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes all text");
        hex
    })
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal")).collect()
}

/// Compares named bytes with those that were pinned, and gives those back.
fn check(file: &str, samples: &[(String, Vec<u8>)]) -> BTreeMap<String, Vec<u8>> {
    let path = format!("golden/{file}");
    let mut text = golden_file(&path);
    let pinned = |text: &str| -> BTreeMap<String, Vec<u8>> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.split_once(": ")).map(|(name, hex)| (name.to_owned(), unhex(hex))).collect()
    };
    let before = pinned(&text);
    for (name, bytes) in samples {
        match before.get(name) {
            Some(known) => assert_eq!(hex(bytes), hex(known), "{name} in {path}: these bytes are in somebody's log"),
            None if rewriting() => writeln!(text, "{name}: {}", hex(bytes)).expect("a string takes all text"),
            None => panic!("{name} is not pinned in {path}; LOADLINE_GOLDEN=rewrite adds it"),
        }
    }
    let after = pinned(&text);
    assert_eq!(after.len(), samples.len(), "a line in {path} is about nothing that exists: kinds are never taken away");
    if rewriting() {
        write_golden_file(&path, &text);
    }
    after
}

fn request(command: Command) -> Request {
    Request { actor: Actor::new("a", "b"), request_id: None, commands: vec![command] }
}

#[test]
fn every_command_has_its_bytes() {
    let commands = samples::all_commands();
    let sampled: Vec<(u16, &str)> = commands.iter().map(|command| (command.kind(), command.kind_name())).collect();
    assert_eq!(sampled, Command::KINDS, "one sample of each kind, by number");
    let named = |command: &Command| format!("{} {}", command.kind(), command.kind_name());
    let bytes: Vec<_> = commands.iter().map(|it| (named(it), request(it.clone()).encode())).collect();
    let pinned = check("commands.v1.txt", &bytes);
    for command in commands {
        assert_eq!(Request::decode(&pinned[&named(&command)]), Ok(request(command)));
    }
}

#[test]
fn every_event_has_its_bytes() {
    let events = samples::all_events();
    let sampled: Vec<(u16, &str)> = events.iter().map(|event| (event.kind(), event.kind_name())).collect();
    assert_eq!(sampled, Event::KINDS, "one sample of each kind, by number");
    let named = |event: &Event| format!("{} {}", event.kind(), event.kind_name());
    let bytes: Vec<_> =
        events.iter().map(|event| (named(event), encode_caused_events([(Cause::Request(0), event)]))).collect();
    let pinned = check("events.v1.txt", &bytes);
    for event in events {
        assert_eq!(decode_caused_events(&pinned[&named(&event)]), Ok(vec![(Cause::Request(0), event)]));
    }
}

#[test]
fn what_came_into_the_parts_of_events_later_has_its_bytes() {
    let parts = common::scaling_samples::later_parts();
    let bytes: Vec<_> = parts
        .iter()
        .map(|(name, event)| ((*name).to_owned(), encode_caused_events([(Cause::Reaction, event)])))
        .collect();
    let pinned = check("parts.v1.txt", &bytes);
    for (name, event) in parts {
        assert_eq!(decode_caused_events(&pinned[name]), Ok(vec![(Cause::Reaction, event)]));
    }
}

#[test]
fn an_entry_has_its_bytes_with_several_requests_and_several_events() {
    let sealed = Sealed::seal(samples::entry());
    let events = samples::events();
    let causes = [Cause::Request(0), Cause::Request(300), Cause::Reaction];
    let caused: Vec<(Cause, Event)> = causes.into_iter().cycle().zip(events).collect();
    let pinned = check(
        "entries.v1.txt",
        &[
            ("entry".to_owned(), sealed.bytes().to_vec()),
            ("empty entry".to_owned(), Sealed::seal(Entry { stamped_at: NOON, requests: vec![] }).bytes().to_vec()),
            ("events".to_owned(), encode_caused_events(caused.iter().map(|(cause, event)| (*cause, event)))),
            ("no events".to_owned(), encode_caused_events([])),
        ],
    );
    assert_eq!(Sealed::open(pinned["entry"].clone()), Ok(sealed));
    assert_eq!(decode_caused_events(&pinned["events"]), Ok(caused));
    assert_eq!(decode_caused_events(&pinned["no events"]), Ok(vec![]));
}

#[test]
fn every_answer_and_every_rejection_has_its_bytes() {
    let named = |receipt: &Receipt| match &receipt.result {
        Ok(done) => format!("{:?}", done[0].answer).split([' ', '(', '{']).next().unwrap_or_default().to_owned(),
        Err(refused) => refused.rejection.code().to_owned(),
    };
    let receipts = samples::receipts();
    let bytes: Vec<_> = receipts.iter().map(|receipt| (named(receipt), receipt.encode())).collect();
    let pinned = check("receipts.v1.txt", &bytes);
    for receipt in receipts {
        assert_eq!(Receipt::decode(&pinned[&named(&receipt)]), Ok(receipt));
    }
}

/// A little of everything, as it would stand in a log.
fn a_life() -> Vec<Entry> {
    let alone = |command| vec![anonymous(vec![command])];
    let backup = {
        let mut world = World::new();
        world.must(create_cluster("restored"));
        world.must(create_size("restored", None));
        world.state.encode()
    };
    let rename = Command::RenameCluster { name: "a".to_owned(), to: "b".to_owned(), etag: None };
    let drop = Command::DropSize { name: "small".to_owned(), etag: None, allow_missing: false };
    let mut packed = vec![
        alone(Command::AnnounceLeader { node: NodeNumber(1), term: 1 }),
        alone(Command::FoundGroup { nodes: 3 }),
        vec![anonymous(vec![create_size("small", None), create_size("large", Some(50)), create_cluster("a")])],
        vec![
            identified(request_id(NOON, 1), vec![create_cluster("c")]),
            identified(request_id(NOON, 1), vec![create_cluster("c")]),
            identified(request_id(NOON, 2), vec![create_cluster("d"), create_cluster("c")]),
        ],
        vec![anonymous(vec![rename]), anonymous(vec![drop])],
        alone(set("request_window", "5 minutes")),
        alone(Command::AdmitNode { name: "n4".to_owned(), address: "10.0.0.4:7001".to_owned() }),
    ];
    let begins = LogIndex(packed.len() as u64 + 1);
    packed.extend(restore_commands(&backup, begins, 40).into_iter().map(alone));
    packed.push(alone(Command::ResetSetting { name: "request_window".to_owned(), etag: None }));
    packed.push(alone(set("enable_auto_scaling", "true")));
    packed.push(alone(Command::BeginRestore { bytes_total: 9, hash: Hash([7; 32]) }));
    let later = begins.0 + packed.len() as u64 + 1;
    packed.push(vec![identified(request_id(NOON, later), vec![create_cluster("late")])]);
    let times = (0..).map(|second| NOON + Span::from_secs(second));
    times.zip(packed).map(|(stamped_at, requests)| Entry { stamped_at, requests }).collect()
}

/// The rules of `apply` are pinned, too: a log of today must lead to the same hashes for ever.
#[test]
fn an_old_log_is_replayed_to_the_same_hashes_and_the_same_state() {
    let entries: Vec<(String, Vec<u8>)> = (1..)
        .zip(a_life())
        .map(|(index, entry)| (format!("entry {index}"), Sealed::seal(entry).bytes().to_vec()))
        .collect();
    let pinned = check("log.rules1.txt", &entries);

    let mut state = State::new();
    pass(&mut state, LogIndex(0), b"membership");
    let mut results = vec![("hash 0".to_owned(), state.hash().0.to_vec())];
    for index in 1..=pinned.len() as u64 {
        let sealed = Sealed::open(pinned[&format!("entry {index}")].clone()).expect("a pinned entry can be read");
        let applied = apply(&mut state, LogIndex(index), &sealed);
        results.push((format!("events {index}"), applied.encode_events()));
        results.push((format!("hash {index}"), applied.hash.0.to_vec()));
    }
    results.push(("state".to_owned(), state.encode()));
    let pinned = check("replay.rules1.txt", &results);
    assert_eq!(State::decode(&pinned["state"]), Ok(state));
}

/// A cluster that is scaled up, fails, is suspended, is woken and is dropped, as it would stand in a log. The backend is
/// played by whoever reads the state.
fn a_scaled_life() -> Vec<Entry> {
    let mut world = World::new();
    let mut entries = Vec::new();
    let mut say = |world: &mut World, text: &str| {
        for line in text.split("; ") {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (named, plain): (Vec<&str>, Vec<&str>) = words.into_iter().partition(|word| word.contains('='));
            let named = named.into_iter().filter_map(|word| word.split_once('=')).collect();
            let command = say_scaling::command(&world.state, line, &plain, &named);
            let entry = Entry { stamped_at: world.time, requests: vec![anonymous(vec![command])] };
            let index = world.next_index();
            apply(&mut world.state, index, &Sealed::seal(entry.clone()));
            entries.push(entry);
        }
        world.pass_time(Span::from_secs(20));
    };
    let mut begin = vec![Command::AnnounceLeader { node: NodeNumber(1), term: 1 }, set("enable_auto_scaling", "true")];
    begin.push(set("default_backend", "sim"));
    begin.extend(["25cc", "50cc", "400cc"].map(|size| create_size(size, None)));
    begin.push(create_cluster("demo"));
    let begin = Entry { stamped_at: world.time, requests: vec![anonymous(begin)] };
    apply(&mut world.state, LogIndex(1), &Sealed::seal(begin.clone()));

    for line in [
        "report demo: alive; create strategy burst for like d% burst_size=400cc",
        "create strategy target_size for all size=50cc cooldown=0s; create strategy idle_suspend for demo idle_after=2m",
        "create strategy shrink_to_fit for demo max_size=50cc dry_run=true; report demo: alive",
        "claim next; outcome it succeeded life=i-1; report demo: replica r1_auto 50cc ready life=i-1",
        "report demo: alive",
        "report demo: alive; claim next; outcome it failed retryable full",
        "report demo: alive; claim next; outcome it failed no",
        "report demo: hydration r1_auto 1/3, crash r1_auto oom, idle 1s, metric cpu 900",
        "pause demo later for=1m; report demo: hydration r1_auto 3/3, replica mine 25cc ready life=i-9, alive",
        "report demo: alive; change strategy burst for like d% enabled=false",
        "report demo: alive; resume demo; claim next; outcome it succeeded; claim next",
        "outcome it unknown late; claim next; outcome it succeeded moved=2 left=0; claim next; outcome it succeeded",
        "report demo: idle 10m",
        "report demo: alive",
        "report demo: alive; claim next; outcome it succeeded; claim next; outcome it succeeded; claim next",
        "outcome it succeeded; report demo: idle 0s; claim next; outcome it succeeded life=i-3",
        "report demo: replica r1_auto 50cc ready life=i-3; drop strategy target_size for all; cascade cluster demo",
    ] {
        say(&mut world, line);
    }
    entries.insert(0, begin);
    entries
}

/// What another process, machine or release derives from the same log is the same, bit for bit.
#[test]
fn an_old_log_of_scaling_is_replayed_to_the_same_hashes_and_the_same_states() {
    let life: Vec<(String, Vec<u8>)> = (1..)
        .zip(a_scaled_life())
        .map(|(index, entry)| (format!("entry {index}"), Sealed::seal(entry).bytes().to_vec()))
        .collect();
    let pinned = check("scaling_log.rules1.txt", &life);
    let mut state = State::new();
    let mut results = Vec::new();
    let mut told = std::collections::BTreeSet::new();
    for index in 1..=pinned.len() as u64 {
        let sealed = Sealed::open(pinned[&format!("entry {index}")].clone()).expect("a pinned entry can be read");
        let applied = apply(&mut state, LogIndex(index), &sealed);
        let explained = state.explain("demo").map(|it| it.to_string()).unwrap_or_default();
        assert!(applied.receipts[0].result.is_ok(), "entry {index}: {:?}\n{explained}", applied.receipts[0].result);
        told.extend(applied.events.iter().map(Event::kind_name));
        results.push((format!("hash {index}"), applied.hash.0.to_vec()));
        if index % 12 == 0 {
            results.push((format!("state {index}"), state.encode()));
        }
    }
    let pinned = check("scaling_replay.rules1.txt", &results);
    for (name, bytes) in pinned.iter().filter(|(name, _)| name.starts_with("state")) {
        let state = State::decode(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(state.encode(), *bytes, "{name}");
    }
    let expected = [
        "ActionClaimed",
        "ActionPlanned",
        "ActionReturned",
        "ActionSettled",
        "ActionUnsure",
        "ClusterDropped",
        "ClusterPaused",
        "ClusterResumed",
        "DecisionMade",
        "OperationAdvanced",
        "OperationBegun",
        "OperationEnded",
        "SignalsReported",
        "StrategyChanged",
        "StrategyCreated",
        "StrategyDropped",
    ];
    assert!(expected.iter().all(|kind| told.contains(kind)), "the log should have everything in it: {told:?}");
}

/// What the states above have nothing of: clusters that say where they live, and what was given up.
#[test]
fn a_state_with_placements_and_dead_letters_has_its_bytes() {
    let mut world = World::new();
    for command in [
        Command::AnnounceLeader { node: NodeNumber(1), term: 1 },
        set("enable_auto_scaling", "true"),
        set("auto_scaling_attempts_max", "1"),
        create_size("25cc", None),
        create_cluster("demo"),
        Command::PlaceCluster { name: "demo".to_owned(), backend: Some("sim".to_owned()), etag: None },
    ] {
        world.must(command);
    }
    for line in [
        "create strategy target_size for demo size=25cc",
        "claim next",
        "outcome it failed retryable full",
        "place cluster demo on other",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (named, plain): (Vec<&str>, Vec<&str>) = words.into_iter().partition(|word| word.contains('='));
        let named = named.into_iter().filter_map(|word| word.split_once('=')).collect();
        world.must(say_scaling::command(&world.state, line, &plain, &named));
    }
    assert_eq!(world.state.dead_letter_count(), 1);
    let pinned = check("states.v1.txt", &[("placed, given up".to_owned(), world.state.encode())]);
    assert_eq!(State::decode(&pinned["placed, given up"]), Ok(world.state));
}

#[test]
fn a_format_or_a_kind_of_the_future_is_named_in_the_error() {
    let unknown = |what, found| DecodeError::UnknownFormat { what, found, known: 1 };
    assert_eq!(Request::decode(&[2, 0, 9]), Err(unknown("request", 2)));
    assert_eq!(Receipt::decode(&[3, 1]), Err(unknown("receipt", 259)));
    assert_eq!(State::decode(&[9, 0]), Err(unknown("state", 9)));
    assert_eq!(Sealed::open(vec![7, 0]), Err(unknown("entry", 7)));
    assert_eq!(decode_caused_events(&[0, 0]), Err(unknown("events", 0)));
    assert_eq!(
        State::decode(&[9, 0]).map_err(|error| error.to_string()),
        Err("state is in format 9, this version reads format 1: use the version that wrote it, or a newer one"
            .to_owned())
    );

    // The kind of the only command is the two bytes before its length and body.
    let mut bytes = request(Command::Tick).encode();
    let kind_at = bytes.len() - 6;
    bytes[kind_at..kind_at + 2].copy_from_slice(&999u16.to_le_bytes());
    assert_eq!(Request::decode(&bytes), Err(DecodeError::UnknownKind { what: "command", kind: 999 }));

    let mut bytes = State::new().encode();
    bytes.extend_from_slice(&[0xe7, 3, 0, 0, 0, 0]);
    assert_eq!(State::decode(&bytes), Err(DecodeError::UnknownKind { what: "table of a state", kind: 999 }));
}

#[test]
fn a_log_that_raises_the_rules_beyond_what_this_release_knows_cannot_be_opened() {
    let request = request(Command::RaiseRules { to: RulesVersion(RULES_VERSION_MAX.0 + 1) });
    assert!(request.proposable().is_err(), "a leader that does not know the rules must not propose them");
    let sealed = Sealed::seal(Entry { stamped_at: NOON, requests: vec![request] });
    let known = RULES_VERSION_MAX.0;
    assert_eq!(Sealed::open(sealed.bytes().to_vec()), Err(DecodeError::RulesTooNew { to: known + 1, known }));
}
