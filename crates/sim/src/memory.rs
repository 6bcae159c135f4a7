//! How much memory a seed has: a run has a thread to itself, and everything that its nodes allocate is allocated there.
//!
//! The figure is that of the whole thread, with what the simulator itself remembers of the run. It is never part of a trace:
//! a map that is hashed by chance may grow a little earlier or later.

#![allow(unsafe_code, reason = "an allocator cannot be written without; this one only counts what it hands on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Has no destructor and needs no allocation, so that it can be used from inside the allocator at any time.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Counting;

/// Bytes that this thread has allocated and nobody has freed here.
pub fn live_bytes() -> usize {
    usize::try_from(LIVE.get()).unwrap_or(0)
}

fn count(bytes: usize, sign: isize) {
    // No object is larger than what `isize` counts. A thread that is ending has nothing to count with, and nobody to tell.
    let _ = LIVE.try_with(|live| live.set(live.get().wrapping_add(sign.wrapping_mul(bytes.cast_signed()))));
}

// SAFETY: everything is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, there: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(bytes, 1);
        // SAFETY: as above; `there` came from `System`.
        unsafe { System.realloc(there, layout, bytes) }
    }

    unsafe fn dealloc(&self, there: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above; `there` came from `System`.
        unsafe { System.dealloc(there, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::live_bytes;

    #[test]
    fn what_is_allocated_is_counted_until_it_is_freed() {
        let before = live_bytes();
        let kept = vec![1_u8; 1 << 20];
        assert!(live_bytes() >= before + (1 << 20));
        drop(kept);
        assert!(live_bytes() < before + (1 << 20));
    }
}
