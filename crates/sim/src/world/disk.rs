//! The disk of a node: `loadline_log`'s model, and how long it takes.
//!
//! Only the write-ahead log waits for a slow disk. Snapshots and the journal are written in no time, because the product
//! writes them beside its tasks, and there is nothing beside them here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use loadline_log::{ModelDisk, Pace};

/// How long the write-ahead log waits for its disk. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct DiskPace {
    micros: Arc<AtomicU64>,
}

impl DiskPace {
    pub fn set(&self, takes: Duration) {
        self.micros.store(u64::try_from(takes.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Pace for DiskPace {
    fn pace(&self, work: Box<dyn FnOnce() + Send>) {
        let takes = Duration::from_micros(self.micros.load(Ordering::Relaxed));
        if takes.is_zero() {
            return work();
        }
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            work();
        });
    }
}

/// A disk and its pace.
#[derive(Debug, Clone)]
pub struct MachineDisk {
    pub model: ModelDisk,
    pub pace: DiskPace,
}

impl MachineDisk {
    pub fn new(seed: u64) -> MachineDisk {
        MachineDisk { model: ModelDisk::new(seed), pace: DiskPace::default() }
    }

    /// Flips a bit in a file, of those that hold enough, and says where.
    ///
    /// Never in the last half of what is written: a bit that is wrong in the last batch looks like a write that the power
    /// cut short, and nobody can tell them apart.
    pub fn rot(&self, roll: u64) -> Option<String> {
        let mut files: Vec<(String, usize)> = Vec::new();
        for path in self.model.files() {
            let written = self.model.contents(&path).ok()?.iter().rposition(|byte| *byte != 0)?;
            if path.contains('/') && !path.ends_with(".tmp") && written > 2_048 {
                files.push((path, written));
            }
        }
        let (path, written) = files.get(usize::try_from(roll % files.len().max(1) as u64).ok()?)?;
        let offset = (roll >> 8) % (*written as u64 / 2);
        self.model.flip_bit(path, offset, u8::try_from(roll >> 61).ok()?).ok()?;
        Some(format!("{path} at {offset}"))
    }
}
