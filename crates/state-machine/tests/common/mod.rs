//! A small world to talk to: a state, the next index, and a clock that only the test moves.

// Every test file is a program of its own and uses the part it needs.
#![allow(dead_code, unreachable_pub)]

pub mod access_samples;
pub mod samples;
pub mod say_scaling;
pub mod scaling_samples;
pub mod show_scaling;
pub mod signal_samples;

use loadline_state_machine::{
    Action, Actor, Applied, Command, Entry, Epoch, Hash, LogIndex, Proof, Receipt, Request, RequestId, Revision,
    Sealed, Span, State, Time, apply,
};

/// 2026-11-16T12:00:00Z: as good a noon as any.
pub const NOON: Time = Time::from_millis(1_794_830_400_000);

#[derive(Clone, Debug)]
pub struct World {
    pub state: State,
    pub time: Time,
}

impl World {
    pub fn new() -> Self {
        Self { state: State::new(), time: NOON }
    }

    pub fn next_index(&self) -> LogIndex {
        LogIndex(self.state.applied().0 + 1)
    }

    /// One entry with these requests, at the world's time.
    pub fn apply(&mut self, requests: Vec<Request>) -> Applied {
        let sealed = Sealed::seal(Entry { stamped_at: self.time, requests });
        let index = self.next_index();
        apply(&mut self.state, index, &sealed)
    }

    /// One entry with one request.
    pub fn ask(&mut self, request: Request) -> Receipt {
        let mut receipts = self.apply(vec![request]).receipts;
        assert_eq!(receipts.len(), 1, "one request, one receipt");
        receipts.remove(0)
    }

    /// One entry with one command that must be accepted.
    pub fn must(&mut self, command: Command) -> Receipt {
        let receipt = self.ask(anonymous(vec![command]));
        assert!(receipt.result.is_ok(), "{receipt:?}");
        receipt
    }

    pub fn pass_time(&mut self, span: Span) {
        self.time = self.time + span;
    }

    /// The state after being written to a snapshot and read back.
    pub fn through_snapshot(&self) -> Self {
        let bytes = self.state.encode();
        let state = State::decode(&bytes).expect("a snapshot of ours can be read");
        assert_eq!(state, self.state);
        assert_eq!(state.encode(), bytes, "equal states have equal bytes");
        Self { state, time: self.time }
    }
}

/// Without a request id: asked twice, done twice.
pub fn anonymous(commands: Vec<Command>) -> Request {
    Request { actor: Actor::new("alice", "test"), request_id: None, commands }
}

pub fn identified(id: RequestId, commands: Vec<Command>) -> Request {
    Request { request_id: Some(id), ..anonymous(commands) }
}

/// As somebody who is known in this way.
pub fn proven(name: &str, proof: Proof, commands: Vec<Command>) -> Request {
    Request { actor: Actor::new(name, "test").proven(proof), request_id: None, commands }
}

/// A UUID version 7 made at `time`; `number` tells those of one millisecond apart.
pub fn request_id(time: Time, number: u64) -> RequestId {
    assert!(time.as_millis() < 1 << 48 && number < 1 << 62);
    RequestId(u128::from(time.as_millis()) << 80 | 7 << 76 | 0b10 << 62 | u128::from(number))
}

pub fn revision(text: &str) -> Revision {
    text.parse().expect("a revision")
}

pub fn create_cluster(name: &str) -> Command {
    Command::CreateCluster { name: name.to_owned() }
}

pub fn create_size(name: &str, rank: Option<u32>) -> Command {
    Command::CreateSize { name: name.to_owned(), rank, slots: 4, price_micros_per_hour: 250_000 }
}

/// What the executor says before it calls.
pub fn claim(state: &State, action: &Action, epoch: Epoch, attempt: u32) -> Command {
    let backend = state.backend_for(action).unwrap_or("sim").to_owned();
    let parameters = action.parameters(&backend);
    Command::ClaimAction { action: action.id, epoch, attempt, backend, parameters }
}

pub fn set(name: &str, value: &str) -> Command {
    Command::SetSetting { name: name.to_owned(), value: value.to_owned(), etag: None }
}

/// The commands that restore `backup`, when the first of them is applied as the first event at `index`.
pub fn restore_commands(backup: &[u8], index: LogIndex, chunk_bytes: usize) -> Vec<Command> {
    let restore = Revision { index, ordinal: 0 };
    let mut commands = vec![Command::BeginRestore { bytes_total: backup.len() as u64, hash: Hash::of(backup) }];
    for (number, chunk) in backup.chunks(chunk_bytes).enumerate() {
        let offset = (number * chunk_bytes) as u64;
        commands.push(Command::RestoreChunk { restore, offset, bytes: chunk.into() });
    }
    commands.push(Command::FinishRestore { restore });
    commands
}

/// A file of expectations; empty if there is none yet.
#[allow(clippy::disallowed_methods)] // Tests may look at files and the environment; the state machine may not.
pub fn golden_file(path: &str) -> String {
    std::fs::read_to_string(full(path)).unwrap_or_default()
}

#[allow(clippy::disallowed_methods)]
pub fn write_golden_file(path: &str, text: &str) {
    std::fs::write(full(path), text).expect("the file of expectations can be written");
}

/// Whether `LOADLINE_GOLDEN=rewrite` asks for the files of expectations to be written, not compared.
#[allow(clippy::disallowed_methods)]
pub fn rewriting() -> bool {
    std::env::var("LOADLINE_GOLDEN").is_ok_and(|value| value == "rewrite")
}

fn full(path: &str) -> String {
    format!("{}/tests/{path}", env!("CARGO_MANIFEST_DIR"))
}
