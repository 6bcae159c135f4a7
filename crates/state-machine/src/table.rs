//! The map that every table of the state is made of: persistent, ordered, forked in O(1).
//!
//! `imbl::OrdMap` (a B-tree) was measured against `rpds::RedBlackTreeMap` with triomphe pointers: 100,000 rows, release
//! build, two cores, medians of three runs, ns per call (with 28-byte text keys; with `u64` keys).
//!
//! | | imbl 7.0 | rpds 1.2 |
//! |---|---|---|
//! | clone | 6; 5 | 6; 5 |
//! | get | 737; 150 | 1,338; 523 |
//! | insert | 676; 211 | 1,745; 789 |
//! | insert into a fork | 2,200; 885 | 2,992; 1,644 |
//! | remove | 831; 209 | 1,665; 1,159 |
//! | ten rows from a key on | 1,230; 321 | 3,719; 3,018 |
//! | iterate, per row | 20; 11 | 133; 95 |
//! | bytes per row | 52; 40 | 96; 88 |
//!
//! imbl is ahead in everything but the clone, and most where a tick and a snapshot are: walking rows in order.

use std::sync::Arc;

/// Ordered, so that every node walks it in the same order; persistent, so that a clone is one counter and readers
/// never stop `apply`.
pub(crate) type Table<K, V> = imbl::OrdMap<K, V>;

/// A name as a key. A write to a table that somebody has forked copies whole leaves, so copying a key must not allocate.
/// For the same reason rows that own memory are behind an `Arc`.
pub(crate) type Key = Arc<str>;
