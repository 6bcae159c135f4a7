//! Patterns of cluster names, as SQL's LIKE: `%` for any characters, `_` for one, a backslash before either for
//! itself. Case matters.

/// A pattern that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Like {
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Any,
    One,
    Exactly(char),
}

impl Like {
    /// Nothing if the pattern ends in the middle of an escape.
    pub(crate) fn new(pattern: &str) -> Option<Self> {
        let mut parts = Vec::with_capacity(pattern.len());
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            parts.push(match character {
                // Several in a row mean the same as one, and each would make the matcher try again.
                '%' if parts.last() == Some(&Part::Any) => continue,
                '%' => Part::Any,
                '_' => Part::One,
                '\\' => Part::Exactly(characters.next()?),
                other => Part::Exactly(other),
            });
        }
        Some(Self { parts })
    }

    /// Tries the last `%` again one character further on whenever what follows it does not fit. Earlier ones need no second
    /// try, so it takes at most the product of both lengths.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let mut rest = name.chars();
        let mut part = 0;
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    part += 1;
                    retry = Some((part, rest.clone()));
                    continue;
                }
                None if rest.as_str().is_empty() => return true,
                expected => {
                    let found = rest.next();
                    let fits = match expected {
                        Some(Part::One) => found.is_some(),
                        Some(Part::Exactly(character)) => found == Some(*character),
                        Some(Part::Any) | None => false,
                    };
                    if fits {
                        part += 1;
                        continue;
                    }
                }
            }
            let Some((after, from)) = &mut retry else { return false };
            if from.next().is_none() {
                return false;
            }
            part = *after;
            rest = from.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_as_in_sql() {
        let cases = [
            ("prod_%", "prod_a", true),
            ("prod_%", "prodXa", true),
            ("prod_%", "prod_", true),
            ("prod_%", "prod", false),
            ("prod\\_%", "prod_a", true),
            ("prod\\_%", "prodXa", false),
            ("%", "", true),
            ("%", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("a%b%c", "aXXbYYbZc", true),
            ("a%b%c", "aXXbYYbZ", false),
            ("%ab", "aaab", true),
            ("a_c", "abc", true),
            ("a_c", "ac", false),
            ("A%", "a", false),
            ("100\\%", "100%", true),
            ("100\\%", "1000", false),
            ("\\\\", "\\", true),
            ("%%%a%%", "bab", true),
            ("%ö_", "schön", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(Like::new(pattern).unwrap().matches(name), expected, "{name:?} LIKE {pattern:?}");
        }
        assert_eq!(Like::new("a\\"), None, "an escape of nothing");
    }

    #[test]
    fn a_hostile_pattern_takes_no_longer_than_both_lengths_multiplied() {
        let like = Like::new(&"%a".repeat(100)).unwrap();
        assert!(!like.matches(&"a".repeat(99)));
        assert!(!like.matches(&format!("{}b", "a".repeat(5_000))));
    }
}
