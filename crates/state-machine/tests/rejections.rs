//! The codes that programs branch on and the words that people read, pinned as text.

use std::collections::BTreeSet;

use crate::common::{golden_file, rewriting, samples, write_golden_file};

#[test]
fn every_rejection_has_a_code_a_class_a_field_and_says_what_would_be_right() {
    let mut text = String::new();
    for rejection in samples::rejections() {
        let field = rejection.field().unwrap_or("-");
        text += &format!("{} {:?} {field}\n    {rejection}\n", rejection.code(), rejection.class());
        for (name, value) in rejection.metadata() {
            text += &format!("    {name} = {value}\n");
        }
    }
    let path = "golden/rejections.txt";
    if rewriting() {
        write_golden_file(path, &text);
    }
    assert_eq!(text, golden_file(path), "{path} differs; LOADLINE_GOLDEN=rewrite rewrites it");
}

#[test]
fn codes_are_unique_and_names_are_fit_for_programs() {
    let all = samples::rejections();
    let codes: BTreeSet<&str> = all.iter().map(|rejection| rejection.code()).collect();
    assert_eq!(codes.len(), all.len());
    for rejection in &all {
        let upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        assert!(rejection.code().chars().all(upper), "{}", rejection.code());
        let metadata = rejection.metadata();
        let names: BTreeSet<&str> = metadata.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), metadata.len(), "{} says something twice", rejection.code());
        assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_')));
    }
}
