//! Groups of real nodes in one process, one module for what a reader would look for.
//!
//! One program for all of them: each program more is linked with everything below it once more.

mod agreement;
mod common;
mod disk_reserve;
mod foresight;
mod founding;
mod history;
mod membership;
mod snapshots;
mod strangers;
mod surroundings;
mod writes;
