//! Values that are written behind `=`.

/// What was written. What it stands for is said by whatever it is the value of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// As it was written, with its sign.
    Number(String),
    Bool(bool),
    /// A bare word, folded to lower case: `MANAGED_ONLY`, `on`.
    Word(String),
    /// `INTERVAL '5 minutes'`.
    Interval(String),
}

impl Value {
    /// As a text: what would stand between the quotes if it had been written in some.
    pub fn as_text(&self) -> String {
        match self {
            Self::Text(text) | Self::Number(text) | Self::Word(text) | Self::Interval(text) => text.clone(),
            Self::Bool(value) => value.to_string(),
        }
    }
}
