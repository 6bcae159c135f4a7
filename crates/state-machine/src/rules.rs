//! Which rules `apply` derives by.

use crate::{Event, Rejection, RulesVersion};

/// What a new group begins with.
pub(crate) const RULES_VERSION_FIRST: RulesVersion = RulesVersion(1);

/// The newest rules that this release knows. A log that was raised beyond stops this node: see [`crate::Sealed::open`].
pub const RULES_VERSION_MAX: RulesVersion = RulesVersion(1);

pub(crate) fn raise(current: RulesVersion, to: RulesVersion, known: RulesVersion) -> Result<Vec<Event>, Rejection> {
    if to < current {
        return Err(Rejection::RulesCannotFall { to, current });
    }
    if to > known {
        return Err(Rejection::RulesUnknown { to, known });
    }
    if to == current {
        return Ok(vec![]);
    }
    Ok(vec![Event::RulesRaised { from: current, to }])
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: RulesVersion = RulesVersion(3);

    #[test]
    fn rules_are_raised_never_lowered_and_not_beyond_what_is_known() {
        let raise_to = |to| raise(RulesVersion(2), RulesVersion(to), KNOWN);
        assert_eq!(raise_to(3), Ok(vec![Event::RulesRaised { from: RulesVersion(2), to: KNOWN }]));
        assert_eq!(raise_to(2), Ok(vec![]), "a repeat changes nothing");
        assert_eq!(raise_to(1), Err(Rejection::RulesCannotFall { to: RulesVersion(1), current: RulesVersion(2) }));
        assert_eq!(raise_to(4), Err(Rejection::RulesUnknown { to: RulesVersion(4), known: KNOWN }));
    }
}
