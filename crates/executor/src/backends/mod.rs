//! The backends there are, each in a place of its own. What they have in common is the trait, [`crate::Backend`], and the suite
//! that every one of them runs, `crate::conformance`.

#[cfg(any(feature = "sql", feature = "webhook"))]
mod epochs;
#[cfg(feature = "local")]
pub mod local;
#[cfg(feature = "testing")]
pub mod scripted;
pub mod settings;
#[cfg(feature = "sql")]
pub mod sql;
#[cfg(any(feature = "collectors", feature = "sql", feature = "webhook"))]
pub(crate) mod tls;
#[cfg(feature = "webhook")]
pub mod webhook;
