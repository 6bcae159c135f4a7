//! `operator snapshot`: saving the state to a file, looking into one, and putting one in place.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use loadline_client::SnapshotPart;
use loadline_log::SnapshotMeta;
use loadline_state_machine::{Hash, State};
use serde::Serialize;

use super::Session;
use crate::args::Snapshot;
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::output::{Column, Format, View, describe, one};
use crate::text::{show_bytes, show_time};

pub(crate) async fn snapshot(what: Snapshot, session: Session<'_>) -> Result<(), Failed> {
    match what {
        Snapshot::Save { file, overwrite } => save(&file, overwrite, session).await,
        Snapshot::Restore { file, yes } => restore(&file, yes, session).await,
        Snapshot::Inspect { file } => inspect(&file, session.format, session.console),
    }
}

/// What a file holds.
#[derive(Debug, Serialize)]
struct SnapshotView {
    file: String,
    bytes: u64,
    index: u64,
    term: u64,
    state_hash: String,
    group: String,
    incarnation: u64,
    rules_version: u32,
    created: String,
    /// Logical time of the state.
    time: String,
    sizes: usize,
    clusters: usize,
    /// Those that are not at their default.
    settings: usize,
}

impl SnapshotView {
    fn of(path: &Path, bytes: u64, meta: &SnapshotMeta, state: &State) -> SnapshotView {
        let time = |millis: u64| show_time(i64::try_from(millis).unwrap_or(i64::MAX));
        SnapshotView {
            file: path.display().to_string(),
            bytes,
            index: meta.last.map(|last| last.index).unwrap_or_default(),
            term: meta.last.map(|last| last.term).unwrap_or_default(),
            state_hash: Hash(meta.state_hash).to_string(),
            group: meta.group.clone(),
            incarnation: meta.incarnation,
            rules_version: state.rules().0,
            created: time(meta.created_ms),
            time: time(state.now().as_millis()),
            sizes: state.size_count(),
            clusters: state.cluster_count(),
            settings: state.settings().iter().filter(|setting| !setting.is_default).count(),
        }
    }

    fn pairs(&self) -> Vec<(&'static str, String)> {
        vec![
            ("File", self.file.clone()),
            ("Size", show_bytes(self.bytes)),
            ("Index", self.index.to_string()),
            ("Term", self.term.to_string()),
            ("State hash", self.state_hash.clone()),
            ("Group", self.group.clone()),
            ("Incarnation", self.incarnation.to_string()),
            ("Rules version", self.rules_version.to_string()),
            ("Created", self.created.clone()),
            ("Time in it", self.time.clone()),
            ("Sizes", self.sizes.to_string()),
            ("Clusters", self.clusters.to_string()),
            ("Settings changed", self.settings.to_string()),
        ]
    }
}

impl View for SnapshotView {
    const COLUMNS: &'static [Column] = &[
        Column::always("FILE"),
        Column::always("BYTES"),
        Column::always("INDEX"),
        Column::always("TERM"),
        Column::always("STATE-HASH"),
        Column::always("GROUP"),
        Column::always("INCARNATION"),
        Column::always("RULES"),
        Column::always("CREATED"),
        Column::always("TIME"),
        Column::always("SIZES"),
        Column::always("CLUSTERS"),
        Column::always("SETTINGS"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.file.clone(),
            self.bytes.to_string(),
            self.index.to_string(),
            self.term.to_string(),
            self.state_hash.clone(),
            self.group.clone(),
            self.incarnation.to_string(),
            self.rules_version.to_string(),
            self.created.clone(),
            self.time.clone(),
            self.sizes.to_string(),
            self.clusters.to_string(),
            self.settings.to_string(),
        ]
    }

    fn name(&self) -> String {
        self.file.clone()
    }
}

pub(crate) fn inspect(path: &Path, format: Format, console: &mut Console) -> Result<(), Failed> {
    let bytes = read(path)?;
    let view = look_into(path, &bytes)?;
    let text = match format {
        Format::Table | Format::Wide => describe(&view.pairs()),
        format => one(format, &view)?,
    };
    console.data(&text)
}

fn read(path: &Path) -> Result<Vec<u8>, Failed> {
    std::fs::read(path).map_err(|error| {
        let exit = if error.kind() == std::io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Failure };
        Failed::new(exit, format!("{} cannot be read: {error}", path.display()))
    })
}

/// Checks every byte: a backup that cannot be read must be found out when it is made, not when it is needed.
fn look_into(path: &Path, bytes: &[u8]) -> Result<SnapshotView, Failed> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failed::new(Exit::Failure, format!("{} is not a snapshot that can be used: {why}", path.display()))
    };
    let (meta, body) = loadline_log::snapshot::parse_bytes(bytes).map_err(|error| wrong(&error))?;
    let state = State::decode(&body).map_err(|error| wrong(&error))?;
    if state.hash().0 != meta.state_hash {
        return Err(wrong(&"the state in it has another hash than its header says"));
    }
    Ok(SnapshotView::of(path, bytes.len() as u64, &meta, &state))
}

async fn save(path: &Path, overwrite: bool, session: Session<'_>) -> Result<(), Failed> {
    if path.exists() && !overwrite {
        return Err(Failed::new(Exit::Conflict, format!("{} is there already", path.display()))
            .hint("choose another name, or add --overwrite"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unwritable =
        |error: std::io::Error| Failed::new(Exit::Failure, format!("{} cannot be written: {error}", path.display()));
    // Under a temporary name until it is whole and checked; it vanishes if anything goes wrong.
    let mut temp = tempfile::Builder::new().prefix(".snapshot-").tempfile_in(folder).map_err(unwritable)?;
    let bar = Progress::start("saving", session.console.watched);
    let done = Arc::clone(&bar.done);
    let total = Arc::clone(&bar.total);
    let file = temp.as_file_mut();
    session
        .client
        .save_snapshot(|part| match part {
            SnapshotPart::Start { bytes_total } => {
                total.store(bytes_total, Ordering::Relaxed);
                done.store(0, Ordering::Relaxed);
                file.set_len(0)?;
                std::io::Seek::rewind(file)
            }
            SnapshotPart::Data(data) => {
                done.fetch_add(data.len() as u64, Ordering::Relaxed);
                file.write_all(data)
            }
        })
        .await?;
    bar.finish();
    temp.as_file().sync_all().map_err(unwritable)?;
    let view = look_into(path, &read(temp.path())?)?;
    temp.persist(path).map_err(|error| unwritable(error.error))?;
    // The name of the file is a fact about the folder, and is on disk only after this.
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(unwritable)?;
    let text = match session.format {
        Format::Table | Format::Wide => {
            format!("{} saved: index {}, {}\n", view.file, view.index, show_bytes(view.bytes))
        }
        format => one(format, &view)?,
    };
    session.console.data(&text)
}

async fn restore(path: &Path, yes: bool, session: Session<'_>) -> Result<(), Failed> {
    let bytes = read(path)?;
    // A bad file is refused before anybody is asked anything.
    let view = look_into(path, &bytes)?;
    session.console.say(&format!(
        "{}: index {} of group {}, {} sizes, {} clusters, made {}",
        view.file, view.index, view.group, view.sizes, view.clusters, view.created
    ));
    if !yes {
        session.console.confirm("Everything in the group is replaced by what is in this file.", "--yes")?;
    }
    let bar = Progress::start("restoring", session.console.watched);
    bar.total.store(bytes.len() as u64, Ordering::Relaxed);
    let answer = session.client.restore_snapshot(bytes, Arc::clone(&bar.done)).await?;
    bar.finish();
    match session.format {
        Format::Table | Format::Wide | Format::Csv | Format::Name | Format::Sql => session.console.line(&format!(
            "restored at revision {}: incarnation {} (the backup was of revision {}, incarnation {})",
            answer.revision, answer.incarnation, answer.backup_revision, answer.backup_incarnation
        )),
        Format::Json | Format::Jsonl | Format::Yaml => {
            let value = serde_json::json!({
                "revision": answer.revision,
                "incarnation": answer.incarnation,
                "backup_revision": answer.backup_revision,
                "backup_incarnation": answer.backup_incarnation,
            });
            session.console.data(&crate::output::json_line(&value)?)
        }
    }
}

/// A bar on a terminal, for what takes longer than anybody likes to wait without a sign.
#[derive(Debug)]
struct Progress {
    done: Arc<AtomicU64>,
    total: Arc<AtomicU64>,
    /// Hidden until it is worth showing.
    bar: ProgressBar,
    drawing: Option<tokio::task::JoinHandle<()>>,
}

/// Shorter work needs no bar, and one that only flashes up disturbs.
const QUIET_FOR: Duration = Duration::from_secs(2);

impl Progress {
    fn start(what: &'static str, watched: bool) -> Progress {
        let (done, total) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let bar = ProgressBar::hidden().with_message(what);
        let drawing = watched.then(|| tokio::spawn(draw(bar.clone(), Arc::clone(&done), Arc::clone(&total))));
        Progress { done, total, bar, drawing }
    }

    /// Dropping it does the same; the name says that it is time.
    fn finish(self) {}
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(drawing) = &self.drawing {
            drawing.abort();
        }
        self.bar.finish_and_clear();
    }
}

async fn draw(bar: ProgressBar, done: Arc<AtomicU64>, total: Arc<AtomicU64>) {
    tokio::time::sleep(QUIET_FOR).await;
    bar.set_draw_target(ProgressDrawTarget::stderr());
    loop {
        let all = total.load(Ordering::Relaxed);
        // Before the first byte nobody knows how many there will be.
        let look = if all == 0 { "{spinner} {msg}" } else { "{spinner} {msg} {wide_bar} {bytes}/{total_bytes}" };
        if let Ok(style) = ProgressStyle::with_template(look) {
            bar.set_style(style);
        }
        bar.set_length(all);
        bar.set_position(done.load(Ordering::Relaxed));
        bar.tick();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
