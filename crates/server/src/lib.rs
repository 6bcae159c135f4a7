//! The composition root: wires the node together and serves gRPC and HTTP.
//!
//! A library, so that the command line, tests and a simulator run the same wiring.

pub mod config;
