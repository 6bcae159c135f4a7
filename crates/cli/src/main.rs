//! The `loadline` binary: the command of `loadline-cli`, and where its memory comes from.

/// Nodes keep the whole state in memory and touch it all over. With pages of 4 KiB, finding a page costs as much as what is
/// on it; this one asks for huge pages by itself wherever the system gives them to who asks. `loadline bench brain` says
/// what a signal costs among many clusters against few.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    loadline_cli::main()
}
