//! What a verb is about: `clusters`, `cluster demo`, `sizes/100cc`.

use std::fmt;
use std::str::FromStr;

use loadline_client::Kind;

use crate::exit::Failed;
use crate::text::did_you_mean;

/// A type of thing that can be named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noun {
    Resource(Kind),
    Node,
}

/// Singular and plural of each.
const WORDS: [(&str, &str, Noun); 10] = [
    ("size", "sizes", Noun::Resource(Kind::Size)),
    ("cluster", "clusters", Noun::Resource(Kind::Cluster)),
    ("setting", "settings", Noun::Resource(Kind::Setting)),
    ("strategy", "strategies", Noun::Resource(Kind::Strategy)),
    ("decision", "decisions", Noun::Resource(Kind::Decision)),
    ("operation", "operations", Noun::Resource(Kind::Operation)),
    ("action", "actions", Noun::Resource(Kind::Action)),
    ("role", "roles", Noun::Resource(Kind::Role)),
    ("signal", "signals", Noun::Resource(Kind::Signal)),
    ("node", "nodes", Noun::Node),
];

impl Noun {
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Noun::Resource(kind) => kind.plural(),
            Noun::Node => "nodes",
        }
    }
}

impl fmt::Display for Noun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Noun::Resource(kind) => kind.singular(),
            Noun::Node => "node",
        })
    }
}

impl FromStr for Noun {
    type Err = Failed;

    fn from_str(word: &str) -> Result<Noun, Failed> {
        let found = WORDS.iter().find(|(singular, plural, _)| word == *singular || word == *plural);
        if let Some((_, _, noun)) = found {
            return Ok(*noun);
        }
        let known = WORDS.iter().flat_map(|(singular, plural, _)| [*plural, *singular]);
        Err(Failed::usage(format!("there is no type '{word}'{}", did_you_mean(word, known))).hint(
            "the types are sizes, clusters, settings, strategies, decisions, operations, actions, roles, signals and nodes",
        ))
    }
}

/// One thing by its type and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) noun: Noun,
    pub(crate) name: String,
}

/// `TYPE`, `TYPE NAME...` or `TYPE/NAME...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    All(Noun),
    Some(Vec<Named>),
}

impl Selection {
    pub(crate) fn parse(words: &[String]) -> Result<Selection, Failed> {
        let Some((first, rest)) = words.split_first() else {
            return Err(Failed::usage("name a type, such as clusters, or a type and a name, such as clusters/demo"));
        };
        if first.contains('/') {
            return words.iter().map(|word| named(word)).collect::<Result<_, _>>().map(Selection::Some);
        }
        let noun: Noun = first.parse()?;
        if rest.is_empty() {
            return Ok(Selection::All(noun));
        }
        if let Some(mixed) = rest.iter().find(|word| word.contains('/')) {
            return Err(Failed::usage(format!(
                "'{mixed}' after '{first}': write {first} NAME... or TYPE/NAME..., not both"
            )));
        }
        Ok(Selection::Some(rest.iter().map(|name| Named { noun, name: name.clone() }).collect()))
    }

    /// For verbs that show one table.
    pub(crate) fn one_type(self) -> Result<(Noun, Vec<String>), Failed> {
        match self {
            Selection::All(noun) => Ok((noun, Vec::new())),
            Selection::Some(things) => {
                let noun = things[0].noun;
                if let Some(other) = things.iter().find(|thing| thing.noun != noun) {
                    return Err(Failed::usage(format!(
                        "'{}/{}' is not one of the {}: ask for one type at a time",
                        other.noun.plural(),
                        other.name,
                        noun.plural()
                    )));
                }
                Ok((noun, things.into_iter().map(|thing| thing.name).collect()))
            }
        }
    }
}

fn named(word: &str) -> Result<Named, Failed> {
    match word.split_once('/') {
        Some((noun, name)) if !name.is_empty() => Ok(Named { noun: noun.parse()?, name: name.to_owned() }),
        _ => Err(Failed::usage(format!("'{word}' is not TYPE/NAME, such as clusters/demo"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Selection, Failed> {
        Selection::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    fn things(list: &[(Noun, &str)]) -> Selection {
        Selection::Some(list.iter().map(|(noun, name)| Named { noun: *noun, name: (*name).to_owned() }).collect())
    }

    const CLUSTER: Noun = Noun::Resource(Kind::Cluster);
    const SIZE: Noun = Noun::Resource(Kind::Size);

    #[test]
    fn types_are_singular_or_plural_and_names_follow_by_space_or_slash() {
        for (words, expected) in [
            (&["clusters"][..], Selection::All(CLUSTER)),
            (&["node"], Selection::All(Noun::Node)),
            (&["cluster", "a", "b"], things(&[(CLUSTER, "a"), (CLUSTER, "b")])),
            (&["clusters/a", "size/b"], things(&[(CLUSTER, "a"), (SIZE, "b")])),
        ] {
            assert_eq!(parse(words), Ok(expected), "{words:?}");
        }
    }

    #[test]
    fn a_misspelt_type_gets_a_suggestion() {
        let failed = parse(&["clutsers"]).expect_err("no such type");
        assert!(failed.message.contains("did you mean 'clusters'?"), "{}", failed.message);
        for words in [&[][..], &["pods"], &["clusters/"], &["/a"], &["clusters/a", "b"], &["clusters", "sizes/b"]] {
            assert_eq!(parse(words).expect_err("wrong").exit, crate::exit::Exit::Usage, "{words:?}");
        }
    }

    #[test]
    fn one_table_holds_one_type() {
        assert!(things(&[(CLUSTER, "a"), (SIZE, "b")]).one_type().is_err());
        assert_eq!(things(&[(CLUSTER, "a")]).one_type(), Ok((CLUSTER, vec!["a".to_owned()])));
    }
}
