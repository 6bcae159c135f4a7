//! The `loadline` command under another name.

fn main() -> std::process::ExitCode {
    loadline_cli::main()
}
