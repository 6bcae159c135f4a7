//! That the golden histories have a bit of everything: what is in none of them, a change of the rules could alter without anybody noticing.
//!
//! [`life`] makes up the one that has what the days of [`loadline_audit::day`] have not.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

mod life;

use std::collections::BTreeSet;

use loadline_audit::{ExportFile, Source as _};
use loadline_log::JournalRecord;
use loadline_state_machine::{Command, Event, JournalEntry, StrategyKind, decode_events};

pub(super) use self::life::life;
use super::versions::golden;

/// What no history has, and why.
const NEVER: [(&str, &str); 2] = [
    ("RulesRaised", "there is only one version of the rules so far; whoever makes the next one takes this line away"),
    ("StrategyFaulted", "a strategy that ends in a broken assumption is a defect, and none is known"),
];

/// What happened in some histories.
#[derive(Default)]
struct Occurred {
    commands: BTreeSet<&'static str>,
    events: BTreeSet<&'static str>,
    /// Kinds of strategies for which something was done.
    strategies: BTreeSet<String>,
}

impl Occurred {
    /// The last entry of these records; none if there are none.
    fn take(&mut self, records: &[JournalRecord]) -> Option<u64> {
        for record in records {
            if let JournalEntry::Requests(sealed) = JournalEntry::decode(&record.entry).unwrap() {
                let commands = sealed.entry().requests.iter().flat_map(|request| &request.commands);
                self.commands.extend(commands.map(Command::kind_name));
            }
            for event in decode_events(&record.events).unwrap() {
                self.events.insert(event.kind_name());
                if let Event::ActionPlanned { action } = &event {
                    self.strategies.extend(action.by.kind().map(|kind| format!("{kind:?}")));
                }
            }
        }
        records.last().map(|record| record.index)
    }
}

#[test]
fn everything_that_can_be_asked_for_or_happen_is_in_some_golden_history() {
    let mut seen = Occurred::default();
    let mut files = 0;
    for entry in std::fs::read_dir(golden()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "export") {
            let file = ExportFile::open(&path).unwrap();
            let mut next = *file.range().unwrap().start();
            while let Some(last) = seen.take(&file.read(next, 1 << 20).unwrap()) {
                next = last + 1;
            }
            files += 1;
        }
    }
    assert!(files >= 4, "{files} exports");
    let lacks = |kinds: &[(u16, &'static str)], seen: &BTreeSet<&'static str>| {
        let kinds = kinds.iter().map(|(_, name)| *name).filter(|name| !seen.contains(name));
        kinds.map(str::to_owned).collect::<Vec<String>>()
    };
    assert_eq!(lacks(Command::KINDS, &seen.commands), [""; 0], "commands that no golden history has");
    let never: Vec<String> = NEVER.iter().map(|(kind, _)| (*kind).to_owned()).collect();
    assert_eq!(lacks(Event::KINDS, &seen.events), never, "events that no golden history has");
    let kinds = StrategyKind::PRIORITY_ORDER.map(|kind| format!("{kind:?}"));
    let lacking: Vec<&String> = kinds.iter().filter(|kind| !seen.strategies.contains(*kind)).collect();
    assert_eq!(lacking, [""; 0], "strategies for which nothing was done in any golden history");
}
