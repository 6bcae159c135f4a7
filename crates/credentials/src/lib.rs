//! Passwords and tokens at the edge: what is kept of them in the log, and how one that somebody gives is checked.
//!
//! - [`scram`]: verifiers of passwords, as PostgreSQL writes them, and the server's side of SCRAM-SHA-256.
//! - [`token`]: tokens for gRPC.
//!
//! Randomness is drawn here, so that the state machine needs none. Deliberately not here: who may what, which is decided in
//! the state machine, and how a credential travels, which is each edge's own affair.

#![forbid(unsafe_code)]

pub mod scram;
pub mod token;
