//! What strategies, operations and actions are called. As everywhere, ids are allocated from the log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{LogIndex, ParseIdError, Revision};

macro_rules! log_id {
    ($(#[$meta:meta])* $Name:ident, $letter:literal, $what:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $Name {
            pub index: LogIndex,
            pub ordinal: u32,
        }

        impl From<Revision> for $Name {
            fn from(revision: Revision) -> Self {
                Self { index: revision.index, ordinal: revision.ordinal }
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}.{}"), self.index, self.ordinal)
            }
        }

        impl FromStr for $Name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.strip_prefix($letter).and_then(|rest| rest.parse::<Revision>().ok()).map(Self::from).ok_or_else(|| {
                    ParseIdError::new(
                        $what,
                        text,
                        concat!($letter, "INDEX.ORDINAL, as in ", $letter, "412.3"),
                    )
                })
            }
        }
    };
}

log_id!(
    /// A strategy for as long as it lives, however it is changed.
    StrategyId,
    "s",
    "strategy id"
);
log_id!(
    /// One multi-step change of a cluster.
    OperationId,
    "o",
    "operation id"
);
log_id!(
    /// One call on a backend.
    ActionId,
    "a",
    "action id"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_as_it_was_written_and_not_as_another_kind() {
        let action = ActionId { index: LogIndex(412), ordinal: 3 };
        assert_eq!(action.to_string(), "a412.3");
        assert_eq!("a412.3".parse(), Ok(action));
        for wrong in ["412.3", "s412.3", "a412", "a0412.3", "a", ""] {
            assert!(wrong.parse::<ActionId>().is_err(), "{wrong:?} must not be an action id");
        }
    }
}
