//! What an explanation may lack, because the history does: an entry that is not there may have changed what is told here.
//!
//! Only gaps in which something was looked for count. That the history begins late is no reason to doubt what was found in the rest of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use loadline_state_machine::{Fact, ResourceKind, ResourceName};

use super::{Explainer, Story};
use crate::trail::TrailError;

/// The gaps that were met, by their first entry.
#[derive(Debug, Default)]
pub(super) struct Doubts(RefCell<BTreeMap<u64, u64>>);

impl Explainer<'_> {
    /// The answer depends on every entry after one, up to another.
    pub(super) fn depends_on(&self, after: u64, up_to: u64) {
        let met = |gap: &RangeInclusive<u64>| *gap.start() <= up_to && *gap.end() > after;
        let gaps = self.trail.gaps().into_iter().filter(met);
        self.doubts.0.borrow_mut().extend(gaps.map(RangeInclusive::into_inner));
    }

    /// Says which entries the answer may lack.
    pub(super) fn with_doubts(&self, name: &ResourceName, mut story: Story) -> Story {
        for (first, last) in &*self.doubts.0.borrow() {
            let ordinal = u32::try_from(story.facts.len()).unwrap_or(u32::MAX);
            let text = format!(
                "warning: entries {first} to {last} are not in this history; what happened there is missing here, and another node may have them"
            );
            let fact = Fact { subject: name.to_string(), ordinal, topic: "gap", text, ..Fact::default() };
            story.facts.push(Fact { name: format!("{first}-{last}"), ..fact });
        }
        story
    }

    /// That nothing is known of something says little if the entry is not there that would tell of it.
    pub(super) fn unknown(&self, name: &ResourceName) -> Result<Option<Story>, TrailError> {
        let digits = match name.kind {
            ResourceKind::Action => name.name.strip_prefix('a').unwrap_or_default(),
            ResourceKind::Decision => &name.name,
            _ => return Ok(None),
        };
        let Ok(index) = digits.split('.').next().unwrap_or_default().parse::<u64>() else { return Ok(None) };
        match self.trail.gaps().into_iter().find(|gap| gap.contains(&index)) {
            Some(gap) => Err(TrailError::Lacks { index, first: *gap.start(), last: *gap.end() }),
            None => Ok(None),
        }
    }
}
