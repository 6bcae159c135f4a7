//! The codes of scaling that programs and dashboards go by, pinned as text: one that vanishes or changes its meaning breaks
//! somebody's alert. New ones may come.

use std::collections::BTreeSet;

use crate::common::{golden_file, rewriting, write_golden_file};
use loadline_state_machine::{ActionStatus, Brake, ChangeCause, Conclusion, FailureReason, Reason, StrategyKind};

fn all() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    vec![
        (
            "strategies, in the order in which they run",
            StrategyKind::PRIORITY_ORDER.map(|it| (it.as_str(), "")).to_vec(),
        ),
        ("reasons", Reason::CODES.to_vec()),
        ("conclusions", Conclusion::CODES.to_vec()),
        ("brakes", Brake::ALL.iter().map(|it| (it.code(), it.text())).collect()),
        ("changes by themselves", ChangeCause::ALL.iter().map(|it| (it.code(), it.text())).collect()),
        ("failures of operations", FailureReason::ALL.iter().map(|it| (it.code(), it.text())).collect()),
        ("statuses of actions", ActionStatus::CODES.to_vec()),
    ]
}

#[test]
fn every_code_is_listed_with_its_text_and_stays() {
    let mut text = String::new();
    for (title, codes) in all() {
        text += &format!("{title}\n");
        for (code, meaning) in codes {
            text += format!("    {code}  {meaning}").trim_end();
            text += "\n";
        }
    }
    let path = "golden/scaling_codes.txt";
    if rewriting() {
        write_golden_file(path, &text);
    }
    assert_eq!(text, golden_file(path), "{path} differs; LOADLINE_GOLDEN=rewrite rewrites it");
}

#[test]
fn a_code_is_there_once_and_fit_for_programs() {
    for (title, codes) in all() {
        let distinct: BTreeSet<&str> = codes.iter().map(|(code, _)| *code).collect();
        assert_eq!(distinct.len(), codes.len(), "{title}");
        let fit = |code: &str| code.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
        assert!(distinct.iter().all(|code| !code.is_empty() && fit(code)), "{title}");
    }
}
