//! Scaling: from what the strategies want to what is done about it.
//!
//! - [`plan`]: what lies between what is there and what is wanted.
//! - [`decisions`]: the record of one evaluation.
//! - [`what_if`]: the same brain as a pure function, with no cluster behind it.

pub(crate) mod decisions;
pub(crate) mod ids;
pub(crate) mod plan;
pub(crate) mod what_if;
