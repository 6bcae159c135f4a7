//! The `loadline` binary: the command of `loadline-cli`, and where its memory comes from.

// To set an option of the allocator: it has no other way.
#![allow(unsafe_code)]

/// Nodes keep the whole state in memory and touch it all over. With pages of 4 KiB, finding a page costs as much as what is
/// on it; this one asks for huge pages by itself wherever the system gives them to who asks. `loadline bench brain` says
/// what a signal costs among many clusters against few.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`, which the bindings do not name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// How long freed memory stays with the process. Entries come and go by the hundred kilobytes; given back after the second that is
/// the default, the system would clear the same pages for us again and again, for a third of all processor time under load.
const PURGE_DELAY_MS: std::ffi::c_long = 10_000;

fn main() -> std::process::ExitCode {
    // SAFETY: the allocator is C, takes two numbers, and may be called at any time. What the environment says goes first.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) };
    loadline_cli::main()
}
