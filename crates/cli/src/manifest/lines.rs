//! Where in a file something stands. Read beside the values themselves, and only when there is a mistake to point at.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// One step into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Into {
    Item(usize),
    Key(String),
}

/// The line of what lies at `path` in the documents of `text`, or of the nearest thing around it. Nothing where the text does
/// not say, as with JSON documents that follow each other without a mark.
pub(super) fn line_of(text: &str, path: &[Into]) -> Option<u64> {
    let documents: Vec<Spanned<Tree>> = serde_saphyr::from_multiple(text).ok()?;
    let (Into::Item(first), rest) = path.split_first()? else { return None };
    let mut place = documents.get(*first)?;
    let mut line = place.referenced.line();
    for step in rest {
        let found = match (step, &place.value) {
            (Into::Item(number), Tree::List(items)) => items.get(*number),
            (Into::Key(key), Tree::Fields(fields)) => {
                let found = fields.iter().find(|(known, _)| known.value == *key);
                // The key stands where somebody looks; its value may begin a line further down.
                if let Some((key, _)) = found {
                    line = key.referenced.line();
                }
                found.map(|(_, value)| value)
            }
            _ => None,
        };
        let Some(found) = found else { break };
        if matches!(step, Into::Item(_)) {
            line = found.referenced.line();
        }
        place = found;
    }
    (line > 0).then_some(line)
}

/// The shape of a document without its values.
#[derive(Debug)]
enum Tree {
    Fields(Vec<(Spanned<String>, Spanned<Tree>)>),
    List(Vec<Spanned<Tree>>),
    Leaf,
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(Shape)
    }
}

struct Shape;

macro_rules! leaves {
    ($($visit:ident($Type:ty)),* $(,)?) => {
        $(fn $visit<E>(self, _: $Type) -> Result<Tree, E> {
            Ok(Tree::Leaf)
        })*
    };
}

impl<'de> Visitor<'de> for Shape {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    leaves!(visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_i128(i128), visit_u128(u128));
    leaves!(visit_f64(f64), visit_str(&str), visit_bytes(&[u8]));

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Tree::Leaf)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = entries.next_entry()? {
            fields.push(field);
        }
        Ok(Tree::Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, path: &[Into], line: Option<u64>) {
        assert_eq!(line_of(text, path), line, "{path:?}");
    }

    fn key(key: &str) -> Into {
        Into::Key(key.to_owned())
    }

    #[test]
    fn a_field_is_found_where_its_key_stands() {
        let text = "# first\nkind: size\nname: s\n---\nkind: strategy\nspec:\n  type: burst\n  options:\n    SIZE:\n      100cc\n";
        check(text, &[Into::Item(0)], Some(2));
        check(text, &[Into::Item(0), key("name")], Some(3));
        check(text, &[Into::Item(1), key("spec"), key("options"), key("SIZE")], Some(9));
        check(text, &[Into::Item(1), key("spec"), key("nowhere")], Some(6));
        check(text, &[Into::Item(7)], None);
        let list = "[\n {\"kind\": \"size\"},\n {\n  \"kind\": \"x\"}\n]";
        check(list, &[Into::Item(0), Into::Item(1)], Some(3));
        check(list, &[Into::Item(0), Into::Item(1), key("kind")], Some(4));
        check("{\"kind\": 1} {\"kind\": 2}", &[Into::Item(0)], None);
    }
}
