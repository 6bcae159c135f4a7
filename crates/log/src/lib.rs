//! Bytes that survive: disk, frames, write-ahead log, snapshots, journal, audit index.
