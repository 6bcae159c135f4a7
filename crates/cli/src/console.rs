//! Where a command speaks: data goes to stdout, talk to stderr.

use std::io::{self, IsTerminal, Write};

use crate::exit::{Exit, Failed};

/// The two streams of this process.
pub(crate) struct Console {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    /// Somebody watches stderr: progress may be drawn there.
    pub(crate) watched: bool,
    /// Somebody can answer a question.
    pub(crate) answers: bool,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("watched", &self.watched).field("answers", &self.answers).finish()
    }
}

impl Console {
    pub(crate) fn of_process() -> Console {
        let watched = io::stderr().is_terminal();
        Console {
            // Lines are flushed one by one by `line`, tables in one go: a pipe gets few, large writes.
            out: Box::new(io::BufWriter::new(io::stdout())),
            err: Box::new(anstream::stderr()),
            watched,
            answers: watched && io::stdin().is_terminal(),
        }
    }

    /// Data, as it is.
    pub(crate) fn data(&mut self, text: &str) -> Result<(), Failed> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(())
    }

    /// One line of data.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failed> {
        self.data(&format!("{text}\n"))
    }

    /// Talk. Nobody's result depends on it, so a stderr that is closed is no failure.
    pub(crate) fn say(&mut self, text: &str) {
        let _ = writeln!(self.err, "{text}");
        let _ = self.err.flush();
    }

    pub(crate) fn warn(&mut self, text: &str) {
        self.say(&format!("\u{1b}[1;33mwarning:\u{1b}[0m {text}"));
    }

    /// Says how a command failed.
    pub(crate) fn fail(&mut self, failed: &Failed) {
        if failed.message.is_empty() {
            return;
        }
        self.say(&format!("\u{1b}[1;31merror:\u{1b}[0m {}", failed.message));
        for hint in &failed.hints {
            self.say(&format!("  \u{1b}[1mhint:\u{1b}[0m {hint}"));
        }
    }

    /// Asks for a yes on a terminal. Elsewhere there is nobody to ask, and `flag` must have said it.
    pub(crate) fn confirm(&mut self, question: &str, flag: &str) -> Result<(), Failed> {
        if !self.answers {
            return Err(Failed::usage(format!("{question} There is no terminal to ask at: add {flag} to say yes.")));
        }
        let _ = write!(self.err, "{question} Type yes to go on: ");
        let _ = self.err.flush();
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if answer.trim().eq_ignore_ascii_case("yes") {
            return Ok(());
        }
        Err(Failed::new(Exit::Failure, "nothing was done"))
    }
}

/// To be called before anything is said. Without `--no-color`, NO_COLOR, TERM and the stream itself decide.
pub(crate) fn set_colour(no_color: bool) {
    if no_color {
        anstream::ColorChoice::Never.write_global();
    }
}
