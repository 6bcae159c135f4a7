//! A backend in memory that can lie.
