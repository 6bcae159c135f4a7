//! The `loadline` command: runs nodes, and speaks to them.
//!
//! [`main`] reads the command line (`args.rs`), finds out where to (`context.rs`), runs one of `commands/` or `dev/`, and
//! turns how it ended into an exit code (`exit.rs`). What is shown, and how, is in `output/`.
//!
//! Not here: retries and request ids (`loadline-client`), and what a node does (`loadline-server`).

mod args;
mod audit_args;
mod bench;
mod commands;
mod console;
mod context;
mod dev;
mod drawing;
mod exit;
mod history;
mod hooks;
mod manifest;
mod meter;
mod moment;
mod noun;
mod output;
mod plan;
mod role_args;
mod scaling_args;
mod serve_args;
mod signal_lines;
mod sleep_args;
mod text;

use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::Cli;
use crate::console::Console;
use crate::exit::Exit;

pub use crate::hooks::Hooks;

/// Runs the command that this process was called with.
pub fn main() -> ExitCode {
    main_with(&Hooks::default())
}

/// The same with a node that lives in another world. For programs that test this one.
pub fn main_with(hooks: &Hooks) -> ExitCode {
    // The parser speaks before anybody has read its result.
    console::set_colour(std::env::args_os().any(|word| word == "--no-color"));
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let mut cli = Cli::from_arg_matches(&matches)?;
        cli.global.actor_named = matches.value_source("actor") == Some(ValueSource::CommandLine);
        Ok(cli)
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout and is no failure; a closed pipe is none, either.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() };
        }
    };
    let mut console = Console::of_process();
    match commands::run(cli, hooks, &mut console) {
        Ok(()) => Exit::Ok.into(),
        Err(failed) => {
            console.fail(&failed);
            failed.exit.into()
        }
    }
}
