//! The `loadline` command.
