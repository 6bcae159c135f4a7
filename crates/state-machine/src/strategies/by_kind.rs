//! How what is kept for each kind of strategy becomes bytes: as a list of what there is, each with its kind, so that a kind that
//! comes later changes nothing for those that have none of it.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::configuration::StrategyKind;

type ByKind<T> = [Option<T>; StrategyKind::COUNT];

pub(crate) fn serialize<T: Serialize, S: Serializer>(all: &ByKind<T>, serializer: S) -> Result<S::Ok, S::Error> {
    let there = StrategyKind::BY_SLOT.iter().zip(all).filter_map(|(kind, one)| one.as_ref().map(|one| (*kind, one)));
    there.collect::<Vec<_>>().serialize(serializer)
}

pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ByKind<T>, D::Error> {
    let mut all: ByKind<T> = [const { None }; StrategyKind::COUNT];
    let mut last = None;
    for (kind, one) in Vec::<(StrategyKind, T)>::deserialize(deserializer)? {
        // Equal states have equal bytes, so there is one order.
        if last.is_some_and(|last| last >= kind.slot()) {
            return Err(D::Error::custom("what is kept for each kind is out of order"));
        }
        last = Some(kind.slot());
        all[kind.slot()] = Some(one);
    }
    Ok(all)
}
