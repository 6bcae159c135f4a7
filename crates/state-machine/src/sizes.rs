//! The ladder of sizes. Order matters: a strategy that shrinks or grows walks it step by step.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::decide::Moment;
use crate::names::{check_name, check_range};
use crate::resource::check_etag;
use crate::table::{Key, Table};
use crate::{Event, Field, Rejection, ResourceName, Revision};

/// A named step on the ladder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub name: String,
    /// A larger rank is a larger size. No two sizes share one.
    pub rank: u32,
    /// Work that one replica of this size takes at once.
    pub slots: u32,
    pub price_micros_per_hour: u64,
    pub created: Revision,
    /// The etag.
    pub updated: Revision,
}

/// Room for a new size between any two, as line numbers once had.
const RANK_STEP: u32 = 10;
const RANK_MAX: u32 = 1_000_000;
const SLOTS_MAX: u32 = 1_000_000;
/// A million an hour. Sums over a hundred thousand replicas and a year stay far inside 128 bits, and inside 64 per hour.
const PRICE_MICROS_PER_HOUR_MAX: u64 = 1_000_000_000_000;

/// Two views of the same rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    by_name: Table<Key, Arc<Size>>,
    by_rank: Table<u32, Arc<Size>>,
}

impl Sizes {
    pub(crate) fn get(&self, name: &str) -> Option<&Size> {
        self.by_name.get(name).map(Arc::as_ref)
    }

    /// The name as it is kept once for everybody who mentions it.
    pub(crate) fn key(&self, name: &str) -> Option<Key> {
        self.by_name.get_key_value(name).map(|(key, _)| Key::clone(key))
    }

    pub(crate) fn at_rank(&self, rank: u32) -> Option<&Size> {
        self.by_rank.get(&rank).map(Arc::as_ref)
    }

    /// From the smallest to the largest.
    pub(crate) fn ladder(&self) -> impl Iterator<Item = &Size> {
        self.by_rank.values().map(Arc::as_ref)
    }

    pub(crate) fn largest(&self) -> Option<&Size> {
        self.by_rank.get_max().map(|(_, size)| size.as_ref())
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn put(&mut self, size: &Size) {
        self.remove(&size.name);
        let size = Arc::new(size.clone());
        self.by_rank.insert(size.rank, Arc::clone(&size));
        self.by_name.insert(size.name.as_str().into(), size);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(size) = self.by_name.remove(name) {
            self.by_rank.remove(&size.rank);
        }
    }

    fn rank_is_free_for(&self, rank: u32, name: &str) -> Result<(), Rejection> {
        match self.at_rank(rank) {
            Some(other) if other.name != name => {
                Err(Rejection::RankTaken { rank, by: ResourceName::size(&other.name) })
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn create(
    sizes: &Sizes,
    at: Moment,
    name: &str,
    rank: Option<u32>,
    slots: u32,
    price_micros_per_hour: u64,
) -> Result<Vec<Event>, Rejection> {
    check_name(Field::Name, name)?;
    if let Some(size) = sizes.get(name) {
        return Err(Rejection::AlreadyExists {
            field: Field::Name,
            resource: ResourceName::size(name),
            etag: size.updated,
        });
    }
    let highest = sizes.largest().map_or(0, |size| size.rank);
    let rank = rank.unwrap_or_else(|| highest.saturating_add(RANK_STEP));
    let size = Size {
        name: name.to_owned(),
        rank,
        slots,
        price_micros_per_hour,
        created: at.revision(),
        updated: at.revision(),
    };
    check(sizes, &size)?;
    Ok(vec![Event::SizeCreated { size }])
}

pub(crate) fn change(
    sizes: &Sizes,
    at: Moment,
    name: &str,
    rank: Option<u32>,
    slots: Option<u32>,
    price_micros_per_hour: Option<u64>,
    etag: Option<Revision>,
) -> Result<Vec<Event>, Rejection> {
    let before = existing(sizes, name)?;
    check_etag(|| ResourceName::size(name), etag, Some(before.updated))?;
    let size = Size {
        rank: rank.unwrap_or(before.rank),
        slots: slots.unwrap_or(before.slots),
        price_micros_per_hour: price_micros_per_hour.unwrap_or(before.price_micros_per_hour),
        ..before.clone()
    };
    check(sizes, &size)?;
    if size == *before {
        return Ok(vec![]);
    }
    Ok(vec![Event::SizeChanged { before: Box::new(before.clone()), size: Size { updated: at.revision(), ..size } }])
}

pub(crate) fn drop(
    sizes: &Sizes,
    name: &str,
    etag: Option<Revision>,
    allow_missing: bool,
) -> Result<Vec<Event>, Rejection> {
    match existing(sizes, name) {
        Err(Rejection::NotFound { .. }) if allow_missing => Ok(vec![]),
        Err(rejection) => Err(rejection),
        Ok(size) => {
            check_etag(|| ResourceName::size(name), etag, Some(size.updated))?;
            Ok(vec![Event::SizeDropped { size: size.clone() }])
        }
    }
}

fn existing<'a>(sizes: &'a Sizes, name: &str) -> Result<&'a Size, Rejection> {
    check_name(Field::Name, name)?;
    sizes.get(name).ok_or_else(|| Rejection::NotFound { resource: ResourceName::size(name) })
}

/// What every size must fulfil, new, changed or restored.
pub(crate) fn check(sizes: &Sizes, size: &Size) -> Result<(), Rejection> {
    check_range(Field::Rank, size.rank.into(), 1, RANK_MAX.into())?;
    check_range(Field::Slots, size.slots.into(), 1, SLOTS_MAX.into())?;
    check_range(Field::PriceMicrosPerHour, size.price_micros_per_hour, 0, PRICE_MICROS_PER_HOUR_MAX)?;
    sizes.rank_is_free_for(size.rank, &size.name)
}
