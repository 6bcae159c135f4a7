//! psycopg and asyncpg, from PyPI, against a follower of three real nodes: what Python programs do works as with PostgreSQL.
//!
//! What they do is in `tests/drivers`. Where the packages cannot be installed, this fails and says so.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use loadline_tests::ask;
use loadline_tests::group::{Group, Options};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");
const PASSWORD: &str = "correct horse";

async fn closed_group() -> Result<(Group, String)> {
    let folder = tempfile::tempdir()?;
    let secret = folder.keep().join("secret");
    std::fs::write(&secret, "a secret of all three nodes\n")?;
    let config = format!("peer_secret_file = {:?}\n", secret.display().to_string());
    let group = Group::start(BINARY, 3, Options { config, sql: true, ..Options::default() })?;
    let leads = ask::leader(&group).await?;
    ask::said(&group, &["create", "size", "100cc", "--slots", "1", "--price", "0.25"])?;
    ask::said(&group, &["set", "enable_auto_scaling", "true"])?;
    // Any node will do; one that does not lead has to ask.
    let follower = group.members[(leads + 1) % 3].pg.clone();
    let statements = format!(
        "CREATE CLUSTER shop;
         CREATE SCALING STRATEGY FOR ALL CLUSTERS LIKE 'nothing%' TYPE TARGET SIZE WITH (SIZE = '100cc');
         CREATE ROLE root SUPERUSER PASSWORD '{PASSWORD}'"
    );
    ask::said(&group, &["sql", "--sql-endpoint", &follower, "-c", &statements])?;
    Ok((group, follower))
}

/// Runs every check of one driver, and answers what it printed.
fn check(driver: &str, address: &str) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers/check.py");
    let (host, port) = address.rsplit_once(':').context("an address")?;
    let done = Command::new("python3")
        .arg("-B")
        .arg(&script)
        .args([driver, host, port])
        .env("PGPASSWORD", PASSWORD)
        .output()
        .context("python3 is needed to try the drivers, and does not start")?;
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    ensure!(done.status.success(), "{driver} is not content:\n{out}{err}");
    Ok(out.into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn psycopg_and_asyncpg_work_as_with_postgresql() -> Result<()> {
    let (_group, follower) = closed_group().await?;
    for driver in ["psycopg", "asyncpg"] {
        let said = check(driver, &follower)?;
        assert_eq!(said.lines().filter(|line| line.ends_with(" holds")).count(), 9, "{said}");
    }
    Ok(())
}
