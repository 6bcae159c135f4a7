//! The rules of `deploy/alerts` are sound, and alert when they say so: Prometheus' own tool runs their tests.

use std::path::Path;
use std::process::Command;

fn promtool(words: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/alerts");
    let output = Command::new("promtool").args(words).current_dir(&folder).output();
    let output = output.expect("promtool starts (apt-get install prometheus)");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {words:?}:\n{said}");
}

#[test]
fn the_rules_about_signals_are_sound_and_alert_when_they_say_so() {
    promtool(&["check", "rules", "signals.rules.yaml"]);
    promtool(&["test", "rules", "signals.test.yaml"]);
}
