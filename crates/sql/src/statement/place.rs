//! Where in the text something stood.

/// A character of the text, counted from 1 as PostgreSQL does. No part of what a statement means, so any two are equal:
/// a statement that was printed and read again is the same statement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place(pub usize);

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Place {}
