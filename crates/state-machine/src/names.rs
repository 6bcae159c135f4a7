//! What sizes and clusters may be called.

use crate::{Field, NameProblem, Rejection};

/// As in PostgreSQL, and short enough for a label of a metric or of Kubernetes.
const NAME_BYTES_MAX: usize = 63;

/// A name must survive a shell, a URL, a SQL identifier and a resource name without quoting. Control characters and slashes
/// would let one resource pass for another in a listing.
pub(crate) fn check_name(field: Field, name: &str) -> Result<(), Rejection> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let problem = if let Some(first) = name.chars().next() {
        if name.len() > NAME_BYTES_MAX {
            NameProblem::TooLong { bytes: name.len() as u64 }
        } else if !word(first) {
            NameProblem::BeginsWith { character: first }
        } else if let Some(character) = name.chars().find(|&c| !word(c) && c != '-' && c != '.') {
            NameProblem::Contains { character }
        } else {
            return Ok(());
        }
    } else {
        NameProblem::Empty
    };
    Err(Rejection::InvalidName { field, value: shortened(name), problem })
}

/// Enough to recognise it: a refusal is remembered, and must not keep a megabyte of somebody's mistake.
pub(crate) fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    // Most texts are short, and a character has at least one byte: there is nothing to count.
    if text.len() <= CHARACTERS_MAX {
        return text.to_owned();
    }
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

pub(crate) fn check_range(field: Field, value: u64, min: u64, max: u64) -> Result<(), Rejection> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(Rejection::OutOfRange { field, value, min, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(name: &str) -> Option<NameProblem> {
        match check_name(Field::Name, name) {
            Ok(()) => None,
            Err(Rejection::InvalidName { problem, .. }) => Some(problem),
            Err(other) => panic!("{other:?} says nothing about the name"),
        }
    }

    #[test]
    fn names_that_need_no_quoting_anywhere_are_taken() {
        for name in ["a", "25cc", "200cc", "M.1-nano", "r1_auto", "_hidden", &"x".repeat(63)] {
            assert_eq!(problem(name), None, "{name:?}");
        }
    }

    #[test]
    fn any_other_name_is_refused_with_what_is_wrong() {
        assert_eq!(problem(""), Some(NameProblem::Empty));
        assert_eq!(problem(&"x".repeat(64)), Some(NameProblem::TooLong { bytes: 64 }));
        assert_eq!(problem("-rf"), Some(NameProblem::BeginsWith { character: '-' }));
        assert_eq!(problem("a/b"), Some(NameProblem::Contains { character: '/' }));
        assert_eq!(problem("a b"), Some(NameProblem::Contains { character: ' ' }));
        assert_eq!(problem("a\u{1b}"), Some(NameProblem::Contains { character: '\u{1b}' }));
        assert_eq!(problem("größe"), Some(NameProblem::Contains { character: 'ö' }));
    }

    #[test]
    fn a_refusal_does_not_keep_a_huge_name() {
        let Err(Rejection::InvalidName { value, .. }) = check_name(Field::Name, &"ß".repeat(1 << 20)) else {
            panic!("a megabyte is no name");
        };
        assert!(value.len() < 500);
    }
}
