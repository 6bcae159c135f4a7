//! Histories that are at rest: an export or the folder of a stopped node, and no group to ask.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use loadline_audit::{Kept, Moment, Start};
use loadline_log::{LogPosition, RealDisk, SnapshotMeta, SnapshotStore};

use crate::support::Desk;

/// A made-up day of twelve clusters, as a node kept and exported it.
fn golden(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../audit/tests/golden");
    folder.join(name).display().to_string()
}

fn whole() -> String {
    golden("day.format1.rules1.export")
}

/// From entry 500 on.
fn afternoon() -> String {
    golden("day-afternoon.format1.rules1.export")
}

/// The same as a data folder, and its only segment.
fn folder(desk: &Desk, name: &str) -> (String, PathBuf) {
    let folder = desk.path(name);
    std::fs::create_dir_all(folder.join("journal")).expect("made");
    let segment = folder.join("journal/0000000000000001.journal");
    std::fs::copy(golden("day-journal.format1.rules1.journal"), &segment).expect("copied");
    (folder.display().to_string(), segment)
}

#[test]
fn a_folder_is_what_it_was_after_every_way_of_looking_at_it() {
    let desk = Desk::new();
    let (data, segment) = folder(&desk, "data");
    let before = std::fs::read(&segment).expect("read");
    desk.said(&["audit", "verify", "--data-dir", &data]);
    desk.said(&["audit", "replay", "clusters", "--data-dir", &data]);
    desk.said(&["audit", "log", "--data-dir", &data, "--limit", "3"]);
    desk.said(&["explain", "cluster/cluster-0001", "--data-dir", &data]);
    assert_eq!(std::fs::read(&segment).expect("read"), before);
    let there: Vec<_> = std::fs::read_dir(&data).expect("listed").map(|it| it.expect("there").file_name()).collect();
    assert_eq!(there, ["journal"]);
}

#[test]
fn damage_in_a_folder_is_not_valid_and_names_the_entries() {
    let desk = Desk::new();
    let (data, segment) = folder(&desk, "data");
    let mut bytes = std::fs::read(&segment).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).expect("written");
    let ended = desk.run(&["audit", "verify", "--data-dir", &data]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.out.contains("is NOT VALID") && ended.out.contains("  wrong        entries "), "{ended:?}");
    assert!(!ended.out.contains("remove-peer") && ended.err.is_empty(), "{ended:?}");
    // Whoever wants something else of it is told where to look.
    desk.fails(&["audit", "log", "--data-dir", &data], 1, "loadline audit verify --data-dir");
}

#[test]
fn a_folder_that_is_not_one_says_which_may_be_meant() {
    let desk = Desk::new();
    folder(&desk, "n1/data");
    for words in [["audit", "verify", "--data-dir", "n1"], ["audit", "log", "--data-dir", "n1"]] {
        desk.fails(&words, 3, "did you mean --data-dir n1/data?");
    }
    desk.fails(&["audit", "verify", "--data-dir", "nowhere"], 3, "nowhere is not there");
    assert!(!desk.path("nowhere").exists());
}

#[test]
fn a_part_of_a_history_knows_the_clusters_from_before() {
    let desk = Desk::new();
    let all = desk.json(&["audit", "log", "--file", &afternoon(), "-o", "json"]);
    // An id begins with the entry that made it, and this file begins with entry 500.
    let is_older = |id: &str| {
        id.trim_start_matches('c').split('.').next().is_some_and(|it| it.parse::<u64>().is_ok_and(|it| it < 500))
    };
    let rows = all["history"].as_array().expect("rows");
    let row =
        rows.iter().find(|row| row["cluster_id"].as_str().is_some_and(is_older)).expect("one about an older cluster");
    let name = row["cluster"].as_str().expect("a name");
    assert!(name.starts_with("cluster-00"), "{row}");
    let about = desk.said(&["audit", "log", "--file", &afternoon(), "--cluster", name, "-o", "csv"]);
    assert!(about.lines().count() > 1 && about.lines().skip(1).all(|line| line.contains(name)), "{about}");
    desk.fails(&["audit", "log", "--file", &afternoon(), "--cluster", "nobody"], 3, "no cluster nobody");
}

#[test]
fn a_replay_shows_replicas_and_what_was_reported() {
    let desk = Desk::new();
    let all = desk.json(&["audit", "replay", "--file", &whole(), "-o", "json"]);
    let replicas = all["replicas"].as_array().expect("replicas");
    assert!(replicas.iter().any(|it| it["ready"] == true && it["hydrated_objects"] == 3), "{replicas:?}");
    let reports = all["reports"].as_array().expect("reports");
    for kind in ["activity", "metric"] {
        assert!(reports.iter().any(|it| it["kind"] == kind && it["collector"] == "made-up"), "{reports:?}");
    }
    let table = desk.said(&["audit", "replay", "replicas", "--file", &whole()]);
    assert!(table.starts_with("CLUSTER") && table.lines().count() == replicas.len() + 1, "{table}");
    let csv = desk.said(&["audit", "replay", "reports", "--file", &whole(), "-o", "csv"]);
    assert_eq!(csv.lines().count(), reports.len() + 1, "{csv}");
}

#[test]
fn a_moment_that_is_not_in_the_history_is_said_to_be_missing() {
    let desk = Desk::new();
    // After its end: an entry is not there, and a time is answered with the end, which is said.
    desk.fails(&["audit", "replay", "--file", &whole(), "--to", "901"], 3, "901 is not in this history");
    desk.fails(&["audit", "diff", "10", "901", "--file", &whole()], 3, "901 is not in this history");
    let file = whole();
    let replay = ["audit", "replay", "--file", &file, "--to", "2036-01-01"];
    let explain = ["explain", "cluster/cluster-0001", "--file", &file, "--at", "2036-01-01"];
    for words in [replay, explain] {
        let ended = desk.run(&words);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.err.contains("is after the end of"), "{ended:?}");
    }
    // Before its beginning.
    desk.fails(&["audit", "replay", "--file", &afternoon(), "--to", "10"], 3, "begins with entry 500");
    desk.fails(&["explain", "cluster/cluster-0001", "--file", &afternoon(), "--at", "10"], 3, "begins with entry 500");
    // What to try has to be said, or that nothing is.
    desk.fails(&["backtest", "--file", &whole()], 2, "--filename <FILE>|--no-change");
    // The wrong way round.
    desk.fails(&["audit", "diff", "20", "10", "--file", &whole()], 2, "the earlier moment comes first");
    desk.fails(&["audit", "log", "--file", &whole(), "--since", "1h", "--until", "2h"], 2, "--until is before --since");
}

#[test]
fn a_file_that_was_cut_off_says_that_it_ends() {
    let desk = Desk::new();
    let bytes = std::fs::read(whole()).expect("read");
    std::fs::write(desk.path("cut.export"), &bytes[..bytes.len() * 2 / 3]).expect("written");
    let ended = desk.run(&["audit", "verify", "cut.export"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.out.contains("the file ends in the middle of what is here"), "{ended:?}");
    assert!(ended.out.contains("  wrong        from entry "), "{ended:?}");
}

/// Every tag that is opened is closed, in order; what is in between has no stray `<`, `>` or `&`.
fn check_well_formed(xml: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        assert!(!text.contains('>'), "stray >: {text}");
        for part in text.split('&').skip(1) {
            assert!(["amp;", "lt;", "gt;", "quot;", "#"].iter().any(|it| part.starts_with(it)), "stray &: {part}");
        }
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "an attribute does not end: {tag}");
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().expect("a name");
        match tag {
            tag if tag.starts_with('!') || tag.starts_with('?') || tag.ends_with('/') => {}
            tag if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "</{name}> closes something else"),
            // The one of HTML that has no end.
            _ if name == "meta" => {}
            _ => open.push(name),
        }
        rest = &rest[end + 1..];
    }
    assert_eq!(open, Vec::<&str>::new(), "left open");
}

#[test]
fn the_pictures_of_a_backtest_are_whole_and_show_every_run_over_universal_time() {
    let desk = Desk::new();
    let change = "ALTER SCALING STRATEGY FOR CLUSTER \"cluster-0001\" TYPE TARGET SIZE UPDATE (SIZE = '25cc');";
    let change = desk.file("change.sql", change);
    let words = |format: &'static str| -> Vec<String> {
        let words = ["backtest", "-f", &change, "--file", &whole(), "--since", "40s", "-o", format];
        words.map(str::to_owned).to_vec()
    };
    for format in ["svg", "html"] {
        let words = words(format);
        let ended = desk.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(ended.code, 1, "{ended:?}");
        let picture = &ended.out;
        check_well_formed(picture);
        assert!(picture.contains("<svg") && picture.contains("time in UTC"), "{picture}");
        for run in ["recorded", "model without the change", "model with the change"] {
            assert!(picture.contains(run), "no {run}: {picture}");
        }
        // Three lines in the first panel alone.
        assert!(picture.matches("<polyline").count() >= 3, "{picture}");
    }
    let page = desk.run(&words("html").iter().map(String::as_str).collect::<Vec<_>>()).out;
    assert!(page.contains("<li>Size 200cc: ready after "), "{page}");
    let text = desk.run(&["backtest", "-f", &change, "--file", &whole(), "--since", "40s"]).out;
    assert!(text.contains("  - Size 200cc: ready after "), "{text}");
}

/// As if a node had kept the state after this entry.
fn keep_state(data: &str, index: u64) {
    let kept = Kept::open(Path::new(data)).expect("a history");
    let replayed = loadline_audit::replay(&kept, Start::Beginning, Moment::Index(index), |_| {});
    let state = replayed.expect("replayed").state;
    drop(kept);
    let meta = SnapshotMeta {
        last: Some(LogPosition { term: 1, node: 1, index }),
        membership_at: None,
        membership: Vec::new().into(),
        state_hash: state.hash().0,
        created_ms: 0,
        group: "g".to_owned(),
        incarnation: 1,
    };
    let disk = Arc::new(RealDisk::open(Path::new(data)).expect("a disk"));
    SnapshotStore::open(disk, 2).expect("snapshots").write(&meta, &state.encode()).expect("written");
}

#[test]
fn a_replay_from_a_snapshot_begins_there_and_says_so_where_there_is_none() {
    const FROM_THE_BEGINNING: &str = "every entry is applied, from the first on";
    let desk = Desk::new();
    let (data, _) = folder(&desk, "data");
    let near = |source: [&str; 2]| {
        let ended = desk.run(&["audit", "replay", "--to", "700", "--from-snapshot", source[0], source[1]]);
        assert_eq!(ended.code, 0, "{ended:?}");
        ended
    };
    let all = desk.run(&["audit", "replay", "--to", "700", "--data-dir", &data]);
    assert!(all.err.contains("700 entries in ") && !all.err.contains(FROM_THE_BEGINNING), "{}", all.err);
    for source in [["--data-dir", &data], ["--file", &whole()]] {
        let ended = near(source);
        assert!(ended.err.contains("700 entries in ") && ended.err.contains(FROM_THE_BEGINNING), "{}", ended.err);
    }
    keep_state(&data, 640);
    for (source, applied) in [(["--data-dir", &data], "60 entries in "), (["--file", &afternoon()], "201 entries in ")]
    {
        let ended = near(source);
        assert!(ended.err.contains(applied) && !ended.err.contains(FROM_THE_BEGINNING), "{}", ended.err);
        assert_eq!(ended.out, all.out, "it is the same state");
    }
    let words = ["audit", "diff", "690", "700", "--from-snapshot", "--data-dir", &data];
    assert!(!desk.run(&words).err.contains(FROM_THE_BEGINNING));
    assert!(
        desk.run(&["audit", "diff", "600", "700", "--from-snapshot", "--data-dir", &data])
            .err
            .contains(FROM_THE_BEGINNING)
    );
}

#[test]
fn a_cluster_that_a_shorter_history_does_not_tell_of_may_be_in_what_it_lacks() {
    let desk = Desk::new();
    let ended = desk.run(&["audit", "log", "--cluster", "before", "--file", &afternoon()]);
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.contains("this history tells of no cluster before"), "{ended:?}");
    assert!(ended.err.contains("entries 1 to 499 are not in this history"), "{ended:?}");
}

#[test]
fn a_cluster_without_a_name_is_a_mistake_of_whoever_asks() {
    let desk = Desk::new();
    desk.fails(&["audit", "log", "--cluster", "", "--file", &whole()], 2, "a value is required for '--cluster");
    desk.fails(&["audit", "log", "--cluster", ""], 2, "a value is required for '--cluster");
}
