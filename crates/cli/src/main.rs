//! The `loadline` binary: the command of `loadline-cli`, and where its memory comes from.

/// Nodes keep the whole state in memory and touch it all over. With pages of 4 KiB, finding a page costs as much as what is
/// on it: among a hundred thousand clusters a signal took 1.6 times as long as among a thousand, and takes 1.4 times as
/// long with this one, which asks for huge pages by itself wherever the system gives them to who asks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    loadline_cli::main()
}
