//! A day in a file: makes up a log, keeps it as a node does, exports it, verifies and replays it, and says how fast and in how much
//! memory. Ends with an error if anything is not as it was made, or takes more memory than it may.
//!
//! ```console
//! $ cargo run --profile dist -p loadline-audit --features testing --example day -- 1000000 1000
//! ```

#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use loadline_audit::day::Day;
use loadline_audit::export::{Begin, Origin, bounds, export};
use loadline_audit::verify::{verify_file, verify_folder};
use loadline_audit::{ExportFile, Kept, Moment, Source as _, Start, replay};
use loadline_log::{Journal, JournalOptions, RealDisk, SigningKey};

type Done<T> = Result<T, Box<dyn Error>>;

/// Whatever the length of the history. (A state of some thousand clusters is a small part of it.)
const MEMORY_KIB_MAX: u64 = 256 << 10;

fn main() -> Done<()> {
    let mut arguments = std::env::args().skip(1);
    let entries: u64 = arguments.next().map_or(Ok(1_000_000), |word| word.parse())?;
    let clusters: u32 = arguments.next().map_or(Ok(1_000), |word| word.parse())?;
    // With a folder that is there already, only what follows is measured, without the memory that making it up took.
    let kept_in = arguments.next();
    let temporary = tempfile::tempdir()?;
    let folder = kept_in.as_deref().map_or(temporary.path(), Path::new);
    let mut made = None;
    if !folder.join("journal").exists() {
        let began = Instant::now();
        let hash = make(folder, entries, clusters)?;
        report("made up", entries, began);
        println!("hash of the state that made it: {hash}");
        made = Some(hash);
    }

    let file = folder.join("day.export");
    let began = Instant::now();
    let kept = Kept::open(folder)?;
    let range = bounds(&kept, Begin::First, Moment::End)?;
    let count = range.end() - range.start() + 1;
    let key = SigningKey::of_seed(&[7; 32])?;
    let origin = Origin {
        group: "a day".to_owned(),
        node_id: 1,
        node_name: "n1".to_owned(),
        incarnation: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made_ms: 0,
    };
    export(&kept, range, &origin, &key, BufWriter::new(File::create(&file)?), |_, _| {})?;
    report("exported", count, began);
    println!("bytes of the export: {}", file.metadata()?.len());
    drop(kept);

    let began = Instant::now();
    let of_file = verify_file(&file, Some(&key.public()), |_| {})?;
    report("verified (file)", of_file.replayed, began);

    let began = Instant::now();
    let of_folder = verify_folder(folder, |_| {})?;
    report("verified (data folder)", of_folder.replayed, began);

    let began = Instant::now();
    let opened = ExportFile::open(&file)?;
    let replayed = replay(&opened, Start::Beginning, Moment::End, |_| {})?;
    report("replayed (file)", replayed.entries, began);
    let hash = replayed.state.hash();
    println!("valid: {} and {}; hash {hash}; range {:?}", of_file.is_valid(), of_folder.is_valid(), opened.range());
    let all_say_so = [of_file.hash, of_folder.hash].iter().all(|of| *of == Some(hash));
    if !of_file.is_valid() || !of_folder.is_valid() || !all_say_so || made.is_some_and(|made| made != hash.to_string())
    {
        return Err(format!("not as it was made: {of_file:?}, {of_folder:?}").into());
    }
    let most: u64 = line("VmHWM").split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or_default();
    if most > MEMORY_KIB_MAX {
        return Err(format!("{most} KiB of memory, and {MEMORY_KIB_MAX} are allowed").into());
    }
    Ok(())
}

/// Writes a journal as a node does.
fn make(folder: &Path, entries: u64, clusters: u32) -> Done<String> {
    let disk = Arc::new(RealDisk::open(folder)?);
    let journal = Journal::open(disk, JournalOptions::default())?;
    let mut day = Day::new(clusters, 1);
    for _ in 0..entries {
        journal.append(day.record())?;
    }
    journal.close()?;
    Ok(day.state().hash().to_string())
}

fn report(what: &str, entries: u64, began: Instant) {
    let took = began.elapsed();
    let rate = u128::from(entries) * 1_000 / took.as_millis().max(1);
    println!("{what}: {entries} entries in {:.1} s, {rate} entries/s; {}", took.as_secs_f32(), memory());
}

/// What the kernel says of this process: memory now, and at its highest.
fn memory() -> String {
    format!("memory {}, at most {}", line("VmRSS"), line("VmHWM"))
}

fn line(name: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    found.map(|rest| rest.trim_start_matches(':').trim().to_owned()).unwrap_or_default()
}
