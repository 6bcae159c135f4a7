//! What changed between two moments of a history, field by field, and who did it.
//!
//! The two states say what changed; the entries between them say who. What strategies and backends did is told by the decision and
//! the action that did it, and by the collector that saw it.
//!
//! Left out: what changes all the time and means nothing by itself, as the ages and values of signals and what strategies note for
//! themselves. They are in the history: see [`crate::search`].
//!
//! [`things`]: what there is, and by what it is known across a new name. [`deeds`]: what was done to each of them, for as long as it can be told
//! of.

mod deeds;
mod things;

use std::collections::{BTreeMap, BTreeSet};

use loadline_state_machine::{State, Time};
use serde_json::Value;

use self::deeds::{Deeds, Done};
use self::things::{Fields, NAME, Thing, things};
use crate::replay::{Moment, ReplayError, Start, begin, replay};
use crate::source::Source;
use crate::trail::Who;

/// A moment that a history was brought to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub index: u64,
    pub at: Time,
    pub hash: String,
}

impl Point {
    fn of(state: &State) -> Point {
        Point { index: state.applied().0, at: state.now(), hash: state.hash().to_string() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Created,
    Altered,
    Dropped,
}

impl What {
    pub fn as_str(self) -> &'static str {
        match self {
            What::Created => "created",
            What::Altered => "altered",
            What::Dropped => "dropped",
        }
    }
}

/// One field that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    /// Null if it was not there.
    pub before: Value,
    pub after: Value,
    /// The last deed that changed it, by its place among those of the thing.
    pub deed: Option<usize>,
}

/// Something that was done to one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    pub index: u64,
    pub at: Time,
    pub kind: &'static str,
    pub what: String,
    /// Nothing if it followed by itself.
    pub who: Option<Who>,
    /// The decision, the action and the strategy that it followed from.
    pub decision: Option<String>,
    pub action: Option<String>,
    pub by: Option<String>,
}

/// One thing that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Such as `clusters/demo`, or `replicas/demo/r1_auto`.
    pub name: String,
    pub what: What,
    pub fields: Vec<Field>,
    /// The oldest first.
    pub deeds: Vec<Deed>,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub from: Point,
    pub to: Point,
    /// By name.
    pub changes: Vec<Changed>,
}

/// Replays to one moment and on to a later one. `tell` hears of every entry.
pub fn diff(
    source: &dyn Source,
    start: Start,
    from: Moment,
    to: Moment,
    mut tell: impl FnMut(),
) -> Result<Difference, DiffError> {
    let began = begin(source, start)?;
    let before = replay(source, Start::From(Box::new(began)), from, |_| tell())?.state;
    let mut deeds = Deeds::since(&things(&before));
    let after = replay(source, Start::From(Box::new(before.clone())), to, |step| {
        tell();
        deeds.add(step);
    })?
    .state;
    // A time that is before the first moment leaves the state where it was; an index says so plainly.
    if let Moment::Index(wanted) = to
        && wanted < before.applied().0
    {
        return Err(DiffError::Backwards { from: before.applied().0, to: wanted });
    }
    if let Moment::Time(wanted) = to
        && wanted < before.now()
    {
        return Err(DiffError::Earlier { from: before.now(), to: wanted });
    }
    Ok(Difference { from: Point::of(&before), to: Point::of(&after), changes: changes(&before, &after, &mut deeds) })
}

#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("the second moment, index {to}, is before the first, index {from}")]
    Backwards { from: u64, to: u64 },
    #[error("the second moment, {to}, is before the first, {from}")]
    Earlier { from: Time, to: Time },
}

fn changes(before: &State, after: &State, deeds: &mut Deeds) -> Vec<Changed> {
    let (mut old, mut new) = (things(before), things(after));
    let keys: BTreeSet<String> = old.keys().chain(new.keys()).cloned().collect();
    let mut changes = Vec::new();
    let (mut gone, mut made) = (BTreeMap::new(), BTreeMap::new());
    for key in keys {
        let done = deeds.take(&key);
        match (old.remove(&key), new.remove(&key)) {
            (Some(old), Some(new)) => changes.extend(altered(&old, new, done)),
            (Some(old), None) => drop(gone.insert(old.name.clone(), (old, done))),
            (None, Some(new)) => drop(made.insert(new.name.clone(), (new, done))),
            (None, None) => {}
        }
    }
    let nothing = Fields::new();
    for (name, (new, done)) in made {
        // Another thing that has taken the place and the name of one that went.
        match gone.remove(&name) {
            Some((old, before)) => changes.extend(altered(&old, new, done.instead_of(before))),
            None => changes.push(changed(new.name, What::Created, &nothing, &new.fields, done)),
        }
    }
    for (old, done) in gone.into_values() {
        changes.push(changed(old.name, What::Dropped, &old.fields, &nothing, done));
    }
    changes.sort_by(|one, other| one.name.cmp(&other.name));
    changes
}

fn altered(old: &Thing, new: Thing, done: Done) -> Option<Changed> {
    (old.fields != new.fields).then(|| changed(new.name, What::Altered, &old.fields, &new.fields, done))
}

fn changed(name: String, what: What, old: &Fields, new: &Fields, done: Done) -> Changed {
    let value = |fields: &Fields, field: &str| fields.get(field).cloned().unwrap_or(Value::Null);
    // What is made or dropped says what it is called.
    let shown = |field: &&String| what == What::Altered || *field != NAME;
    let differ = |field: &&String| old.get(*field) != new.get(*field);
    let field = |name: &String| Field {
        name: name.clone(),
        before: value(old, name),
        after: value(new, name),
        deed: done.of(name),
    };
    let mut fields: Vec<Field> = fields_of_either(old, new).filter(differ).filter(shown).map(field).collect();
    let deeds = done.into_deeds();
    let last = deeds.len().checked_sub(1);
    for field in &mut fields {
        // What went went as a whole.
        field.deed = if what == What::Dropped { last } else { field.deed.or(last) };
    }
    Changed { name, what, fields, deeds }
}

/// Each once, in order.
fn fields_of_either<'a>(old: &'a Fields, new: &'a Fields) -> impl Iterator<Item = &'a String> {
    old.keys().chain(new.keys()).collect::<BTreeSet<_>>().into_iter()
}
