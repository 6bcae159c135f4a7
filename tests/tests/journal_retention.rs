//! A group that keeps only a part of its journal: the segments go, and everybody who asks about the past is told where it begins.

use loadline_tests::load::Load;
use loadline_tests::{Group, Options, alone, ask, eventually, scaled};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

/// A figure of one node.
async fn figure(group: &Group, number: usize, name: &str) -> Option<u64> {
    let page = scaled::metrics(&group.members[number].http).await.ok()?;
    let line = page.lines().find(|line| line.starts_with(name) && line[name.len()..].starts_with(' '))?;
    line[name.len()..].trim().parse().ok()
}

/// Writes until every node has let segments go, and says with which entry the journal of the first one begins then.
async fn segments_go(group: &Group) -> anyhow::Result<u64> {
    let load = Load::start(&group.endpoints(), 4)?;
    eventually("segments go on every node", ask::PATIENCE, async || {
        for number in 0..group.members.len() {
            figure(group, number, "loadline_journal_segments_removed_total").await.filter(|gone| *gone > 0)?;
        }
        Some(())
    })
    .await?;
    load.stop().await?;
    ask::agreement(group, group.members.len()).await?;
    // Whatever the last snapshot lets go is gone by then.
    eventually("the last snapshot is taken", ask::PATIENCE, async || {
        let applied = figure(group, 0, "loadline_raft_applied_index").await?;
        let snapshot = figure(group, 0, "loadline_raft_snapshot_index").await?;
        (applied < snapshot + 200).then_some(())
    })
    .await?;
    let first = figure(group, 0, "loadline_journal_first_index").await;
    first.filter(|first| *first > 1).ok_or_else(|| anyhow::anyhow!("the journal begins with {first:?}"))
}

/// What a command said on both channels, and how it ended.
fn run(group: &Group, words: &[&str]) -> anyhow::Result<(Option<i32>, String, String)> {
    let output = ask::run(group, words)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((output.status.code(), text(output.stdout), text(output.stderr)))
}

/// A command that must work.
#[track_caller]
fn works(group: &Group, words: &[&str]) -> (String, String) {
    let (code, out, err) = run(group, words).expect("it runs");
    assert_eq!(code, Some(0), "loadline {words:?}: {out}{err}");
    (out, err)
}

/// A command that must fail and name this entry.
#[track_caller]
fn names(group: &Group, words: &[&str], entry: u64) {
    let (code, out, err) = run(group, words).expect("it runs");
    assert!(code.is_some_and(|code| code != 0) && out.is_empty(), "loadline {words:?}: {code:?} {out}{err}");
    assert!(err.contains(&entry.to_string()), "loadline {words:?} does not name {entry}: {err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_is_verified_replayed_and_exported_and_everything_says_where_it_begins() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 1, Options::short_log())?;
    ask::leader(&group).await?;
    works(&group, &["set", "journal_bytes_max", "40000"]);
    works(&group, &["create", "cluster", "early"]);
    let first = segments_go(&group).await?;
    works(&group, &["create", "cluster", "late"]);

    // Of the running node.
    let (verdict, _) = works(&group, &["audit", "verify", "--node", "n1", "-o", "json"]);
    let verdict: Value = serde_json::from_str(&verdict)?;
    let begins = verdict["entries"][0]["first"].as_u64();
    assert!(verdict["valid"] == true && begins >= Some(first), "{verdict}");
    let file = group.folder().join("rest.export").display().to_string();
    let (_, err) = works(&group, &["audit", "export", "--file", &file]);
    assert!(err.contains("keeps the history from entry"), "it does not say that it begins later: {err}");
    works(&group, &["audit", "verify", &file]);
    // What it names is where an export can begin, and not only where the journal does.
    let earlier = ["audit", "export", "--file", &format!("{file}.2"), "--from", "2"];
    let (code, _, err) = run(&group, &earlier)?;
    let named: u64 = err.trim_end().rsplit(' ').next().and_then(|entry| entry.parse().ok()).unwrap_or_default();
    assert!(code == Some(3) && named >= first, "loadline {earlier:?}: {code:?} {err}");
    works(&group, &["audit", "export", "--file", &format!("{file}.3"), "--from", &named.to_string()]);
    let between =
        format!("entry {first} is before the oldest state that is kept: an export can begin with entry {named}");
    if named > first {
        let (code, _, err) =
            run(&group, &["audit", "export", "--file", &format!("{file}.2"), "--from", &first.to_string()])?;
        assert!(code == Some(3) && (err.contains(&between) || err.contains("it was let go")), "{code:?} {err}");
    }
    let (out, err) = works(&group, &["audit", "log", "--kind", "ClusterCreated", "--cluster", "late"]);
    assert!(out.contains("late"), "{out}");
    assert!(err.contains(&format!("entries 1 to {}", first - 1)), "{err}");
    names(&group, &["explain", "cluster/early", "--at", "3"], first);
    let (out, _) = works(&group, &["explain", "cluster/early"]);
    assert!(out.contains("warning: entries 1 to"), "who created it is not known, and it does not say so: {out}");
    let (out, _) = works(&group, &["explain", "cluster/late"]);
    assert!(!out.contains("warning"), "everything about it is there: {out}");

    // Of its folder.
    group.stop(0)?;
    let folder = group.members[0].data.display().to_string();
    let (verdict, _) = works(&group, &["audit", "verify", "--data-dir", &folder, "-o", "json"]);
    let verdict: Value = serde_json::from_str(&verdict)?;
    assert!(verdict["entries"][0]["first"].as_u64() >= Some(first), "{verdict}");
    assert!(verdict["replayed"].as_u64() > Some(0), "{verdict}");
    let begins = verdict["entries"][0]["first"].as_u64().unwrap_or_default();
    let (out, _) = works(&group, &["audit", "replay", "clusters", "--data-dir", &folder, "-o", "name"]);
    assert!(out.contains("early") && out.contains("late"), "{out}");
    let db = group.folder().join("rest.db").display().to_string();
    works(&group, &["audit", "replay", "--data-dir", &folder, "--to-db", &db]);
    names(&group, &["audit", "replay", "--data-dir", &folder, "--to", "3"], begins);
    names(&group, &["explain", "cluster/early", "--data-dir", &folder, "--at", "3"], begins);
    let (_, err) = works(&group, &["audit", "log", "--data-dir", &folder, "--cluster", "late"]);
    assert!(err.contains(&format!("entries 1 to {}", begins - 1)), "{err}");
    let (out, _) = works(&group, &["explain", "cluster/early", "--data-dir", &folder]);
    assert!(out.contains("warning: entries 1 to"), "{out}");

    // It starts again with what is left, and goes on.
    group.start_member(0)?;
    ask::leader(&group).await?;
    works(&group, &["create", "cluster", "later"]);
    works(&group, &["audit", "verify", "--node", "n1"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_old_goes_on_every_node() -> anyhow::Result<()> {
    let _alone = alone();
    let group = Group::start(BINARY, 3, Options { sql: true, ..Options::short_log() })?;
    ask::leader(&group).await?;
    // Over SQL this time.
    let address = group.members[0].pg.clone();
    works(&group, &["sql", "--sql-endpoint", &address, "-c", "ALTER SYSTEM SET journal_retention = '1s'"]);
    segments_go(&group).await?;
    for number in 0..3 {
        let begins = figure(&group, number, "loadline_journal_first_index").await;
        assert!(begins > Some(1), "node {number} begins with {begins:?}");
        let name = &group.members[number].name;
        works(&group, &["audit", "verify", "--node", name]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_fetches_what_the_others_still_keep() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::short_log())?;
    ask::leader(&group).await?;
    works(&group, &["set", "journal_bytes_max", "40000"]);
    segments_go(&group).await?;
    let mut kept = Vec::new();
    for number in 0..3 {
        kept.extend(figure(&group, number, "loadline_journal_first_index").await);
    }
    let oldest = kept.into_iter().min().expect("three nodes have a journal");
    assert!(oldest > 1);

    group.join()?;
    eventually("the new node has as much as the others", ask::PATIENCE, async || {
        let first = figure(&group, 3, "loadline_journal_first_index").await?;
        (first == oldest).then_some(())
    })
    .await?;
    eventually("it looks for nothing more", ask::PATIENCE, async || {
        (figure(&group, 3, "loadline_journal_lacking_entries").await? == 0).then_some(())
    })
    .await?;
    // It is one history without a gap, which leads to what everybody has.
    works(&group, &["audit", "verify", "--node", "n4"]);
    group.stop(3)?;
    let folder = group.members[3].data.display().to_string();
    let (verdict, _) = works(&group, &["audit", "verify", "--data-dir", &folder, "-o", "json"]);
    let verdict: Value = serde_json::from_str(&verdict)?;
    assert_eq!(verdict["entries"].as_array().map(Vec::len), Some(1), "{verdict}");
    assert_eq!((&verdict["entries"][0]["first"], &verdict["valid"]), (&oldest.into(), &true.into()), "{verdict}");
    Ok(())
}
