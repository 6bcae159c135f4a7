//! The `loadline` command under another name, which a test can hold at a step of an action, and take a protection from: see
//! `loadline_tests::holding`.

fn main() -> std::process::ExitCode {
    loadline_tests::holding::main()
}
