//! The outside world: what only a leader does, and the brakes on doing it.
