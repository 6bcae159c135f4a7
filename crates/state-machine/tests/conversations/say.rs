//! Understands what is said in a conversation, and passes it on to the state machine.

use std::collections::BTreeMap;
use std::str::FromStr;

use loadline_state_machine::{
    Actor, Call, Command, Entry, Hash, NodeNumber, Request, Revision, RulesVersion, Sealed, Span, State, Time, apply,
    decode_caused_events, pass, rehearse,
};

use super::show;
use crate::common::{NOON, World, request_id, say_scaling};

pub(crate) struct Speaker {
    world: World,
    backups: BTreeMap<String, Vec<u8>>,
}

impl Speaker {
    pub(crate) fn new() -> Self {
        Self { world: World::new(), backups: BTreeMap::new() }
    }

    /// What came of one entry, or of a stage direction.
    pub(crate) fn hear(&mut self, lines: &[&str]) -> Vec<String> {
        let line = lines[0];
        if line.is_empty() || line.starts_with('#') {
            return vec![];
        }
        if let Some(span) = line.strip_prefix("time passes ") {
            self.world.pass_time(read(span));
            return vec![format!("it is {}", clock(self.world.time))];
        }
        if let Some(span) = line.strip_prefix("time falls back ") {
            let span: Span = read(span);
            self.world.time = self.world.time.before(span);
            return vec![format!("it is {}", clock(self.world.time))];
        }
        if let Some(name) = line.strip_prefix("backup ") {
            let bytes = self.world.state.encode();
            let said = format!("{} bytes, hash {}", bytes.len(), short(Hash::of(&bytes)));
            self.backups.insert(name.to_owned(), bytes);
            return vec![said];
        }
        if let Some(payload) = line.strip_prefix("raft: ") {
            let index = self.world.next_index();
            let applied = pass(&mut self.world.state, index, payload.as_bytes());
            return vec![format!("{} passed, hash {}", applied.index, short(applied.hash))];
        }
        if let Some((who, what)) = line.strip_prefix("would ").and_then(|line| line.split_once(": ")) {
            let (actor, _) = self.who(who);
            let request = Request { actor, request_id: None, commands: self.commands(what) };
            let before = self.world.state.clone();
            let answer = rehearse(&self.world.state, &request, self.world.time);
            assert_eq!(self.world.state, before, "a rehearsal writes nothing");
            return show::result("would be", &answer);
        }
        if let Some(cluster) = line.strip_prefix("explain ") {
            let explained = self.world.state.explain(cluster).expect("the cluster exists");
            return explained.lines().iter().map(|line| without_zone(&line.replace("2026-11-16T", ""))).collect();
        }
        if let Some(sizes) = line.strip_prefix("scene ") {
            return self.set_scene(sizes);
        }
        match line {
            "the backend works" => self.backend_works(),
            "snapshot" => {
                self.world = self.world.through_snapshot();
                vec!["the state that was read back is the same".to_owned()]
            }
            "list settings" => show::settings(&self.world.state),
            "list" => show::everything(&self.world.state),
            _ => self.entry(lines),
        }
    }

    /// What every conversation about scaling begins with: a leader, the feature, a backend, a ladder of sizes, a cluster.
    fn set_scene(&mut self, sizes: &str) -> Vec<String> {
        let begin = "announce node 1 term=1; found 3 nodes; set enable_auto_scaling to true";
        let mut said = vec![format!("loadline: {begin}; set default_backend to sim")];
        said.extend(sizes.split(' ').map(|size| format!("alice: create size {size}")));
        said.push("alice: create cluster demo".to_owned());
        for line in &said {
            self.entry(&[line]);
        }
        let index = self.world.state.applied();
        vec![format!("index {index}: epoch 1, auto-scaling enabled, sizes {sizes}, cluster demo")]
    }

    /// Every action is claimed and succeeds at once, and a new replica is ready at once, until there is nothing left to do. Told
    /// are the calls, and what followed from them.
    fn backend_works(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        let next = |world: &World| world.state.claimable_actions().next().cloned();
        while let Some(action) = next(&self.world) {
            told.push(format!("{}: {}", action.id, action.call));
            let mut said = vec!["executor: claim next".to_owned()];
            if let Call::CreateReplica(made) = &action.call {
                let (name, size, life) = (&made.name, &made.size, format!("i-{}", action.number));
                let cluster = action.cluster;
                said.push(format!("executor: outcome it succeeded life={life}"));
                said.push(format!("backend: report {cluster}: replica {name} {size} ready life={life} from=backend"));
            } else {
                said.push("executor: outcome it succeeded".to_owned());
            }
            for line in said {
                let followed = self.entry(&[&line]);
                told.extend(
                    followed
                        .into_iter()
                        .filter(|line| line.contains("OperationEnded") || line.contains("DecisionMade")),
                );
            }
        }
        if told.is_empty() {
            told.push("there is nothing to do".to_owned());
        }
        told
    }

    fn entry(&mut self, lines: &[&str]) -> Vec<String> {
        let requests: Vec<Request> = lines.iter().map(|line| self.request(line)).collect();
        let sealed = Sealed::seal(Entry { stamped_at: self.world.time, requests });
        let index = self.world.next_index();
        let before = self.world.state.clone();
        let applied = apply(&mut self.world.state, index, &sealed);

        // What every entry must fulfil, whatever the conversation is about.
        let opened = Sealed::open(sealed.bytes().to_vec()).expect("what was sealed can be opened");
        assert_eq!(opened, sealed);
        let mut again = before;
        assert_eq!(apply(&mut again, index, &opened), applied, "the same entry has the same consequences");
        assert_eq!(again, self.world.state);
        let caused = decode_caused_events(&applied.encode_events()).expect("our own events can be read");
        assert_eq!(caused, applied.causes.iter().copied().zip(applied.events.iter().cloned()).collect::<Vec<_>>());

        show::applied(&applied)
    }

    /// `alice (#7 -5m): create cluster demo; create cluster other`
    fn request(&self, line: &str) -> Request {
        let line = line.strip_prefix("& ").unwrap_or(line);
        let (who, what) = line.split_once(": ").unwrap_or_else(|| panic!("nobody says {line:?}"));
        let (actor, id) = self.who(who);
        Request { actor, request_id: id, commands: self.commands(what) }
    }

    fn who(&self, who: &str) -> (Actor, Option<loadline_state_machine::RequestId>) {
        let Some((name, id)) = who.split_once(" (#") else {
            return (Actor::new(who, "test"), None);
        };
        let (number, made) = id.trim_end_matches(')').split_once(' ').unwrap_or((id.trim_end_matches(')'), ""));
        let made_at = match made.split_at_checked(1) {
            Some(("-", span)) => self.world.time.before(read(span)),
            Some(("+", span)) => self.world.time + read(span),
            _ => NOON,
        };
        (Actor::new(name, "test"), Some(request_id(made_at, read(number))))
    }

    fn commands(&self, text: &str) -> Vec<Command> {
        text.split("; ").filter(|text| *text != "nothing").map(|text| self.command(text)).collect()
    }

    fn command(&self, text: &str) -> Command {
        // A word in quotes may hold blanks, or nothing.
        let mut words: Vec<String> = Vec::new();
        for (number, part) in text.split('"').enumerate() {
            match words.last_mut() {
                Some(name) if number % 2 == 1 && name.ends_with('=') => name.push_str(part),
                _ if number % 2 == 1 => words.push(part.to_owned()),
                _ => words.extend(part.split_whitespace().map(str::to_owned)),
            }
        }
        let (plain, named): (Vec<&str>, Vec<&str>) =
            words.iter().map(String::as_str).partition(|word| !word.contains('='));
        let named: BTreeMap<&str, &str> = named.into_iter().filter_map(|word| word.split_once('=')).collect();
        let number = |name: &str| named.get(name).map(|value| read::<u64>(value));
        let small = |name: &str| named.get(name).map(|value| read::<u32>(value));
        let etag: Option<Revision> = named.get("etag").map(|etag| read(etag));
        let restore: Option<Revision> = named.get("restore").map(|restore| read(restore));
        let owned = |name: &str| name.to_owned();
        match plain.as_slice() {
            ["announce", "node", node] => {
                Command::AnnounceLeader { node: NodeNumber(read(node)), term: must(number("term")) }
            }
            ["tick"] => Command::Tick,
            ["raise", "rules", to] => Command::RaiseRules { to: RulesVersion(read(to)) },
            ["admit", "node", name, "at", address] => Command::AdmitNode { name: owned(name), address: owned(address) },
            ["found", nodes, "nodes"] => Command::FoundGroup { nodes: read(nodes) },
            ["create", "size", name] => Command::CreateSize {
                name: owned(name),
                rank: small("rank"),
                slots: small("slots").unwrap_or(1),
                price_micros_per_hour: number("price").unwrap_or(0),
            },
            ["change", "size", name] => Command::ChangeSize {
                name: owned(name),
                rank: small("rank"),
                slots: small("slots"),
                price_micros_per_hour: number("price"),
                etag,
            },
            ["drop", "size", name, rest @ ..] => {
                Command::DropSize { name: owned(name), etag, allow_missing: *rest == ["if", "exists"] }
            }
            ["create", "cluster", name] => Command::CreateCluster { name: owned(name) },
            ["rename", "cluster", name, "to", to] => Command::RenameCluster { name: owned(name), to: owned(to), etag },
            ["drop", "cluster", name, rest @ ..] => {
                Command::DropCluster { name: owned(name), etag, allow_missing: *rest == ["if", "exists"] }
            }
            ["set", name, "to", value @ ..] => Command::SetSetting { name: owned(name), value: value.join(" "), etag },
            ["reset", name] => Command::ResetSetting { name: owned(name), etag },
            ["begin", "restore", backup] => {
                let bytes = self.backup(backup);
                let bytes_total = number("bytes").unwrap_or(bytes.len() as u64);
                Command::BeginRestore { bytes_total, hash: Hash::of(&bytes) }
            }
            ["send", from, "to", to, "of", backup] => {
                let bytes = self.backup(backup);
                let from: usize = read(from);
                let to = if *to == "end" { bytes.len() } else { read(to) };
                let offset = number("offset").unwrap_or(from as u64);
                Command::RestoreChunk { restore: must(restore), offset, bytes: bytes[from..to].into() }
            }
            ["finish", "restore"] => Command::FinishRestore { restore: must(restore) },
            ["abort", "restore"] => Command::AbortRestore { restore },
            _ => say_scaling::command(&self.world.state, text, &plain, &named),
        }
    }

    /// A backup that was taken, or one that nobody took: text as it stands.
    fn backup(&self, name: &str) -> Vec<u8> {
        match name {
            "empty" => State::new().encode(),
            _ => self.backups.get(name).cloned().unwrap_or_else(|| name.as_bytes().to_vec()),
        }
    }
}

fn read<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not understood"))
}

fn must<T>(given: Option<T>) -> T {
    given.expect("the command lacks a part")
}

pub(crate) fn clock(time: Time) -> String {
    time.to_string().replace("2026-11-16T", "").replace(".000Z", "").replace('Z', "")
}

/// Without the `Z` behind a time.
fn without_zone(line: &str) -> String {
    (0..10).fold(line.to_owned(), |line, digit| line.replace(&format!("{digit}Z"), &digit.to_string()))
}

pub(crate) fn short(hash: Hash) -> String {
    hash.to_string()[..8].to_owned()
}
