//! The tokens of one statement, and the small questions that every statement asks of them.

use std::ops::Range;

use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Token as Kind, TokenWithSpan, Tokenizer, Word};

use super::did_you_mean;
use crate::error::{ParseError, SqlError, SqlState};
use crate::print::is_reserved;
use crate::statement::{Place, Value};

/// What is neither blank nor comment.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) spanned: TokenWithSpan,
    /// In characters from 1.
    pub(super) position: usize,
    pub(super) bytes: Range<usize>,
}

impl Token {
    pub(super) fn is_semicolon(&self) -> bool {
        self.spanned.token == Kind::SemiColon
    }

    fn word(&self) -> Option<&Word> {
        match &self.spanned.token {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    /// A word without quotes, which may so be a keyword.
    fn upper(&self) -> Option<String> {
        self.word().filter(|word| word.quote_style.is_none()).map(|word| word.value.to_ascii_uppercase())
    }
}

/// From lines and columns, which is what the tokenizer counts, to characters and bytes. Found in one step each: a text of one
/// long line has as many tokens as any other.
pub(super) struct Places {
    /// The first byte of each character, and the end.
    characters: Vec<usize>,
    /// The first character of each line.
    lines: Vec<usize>,
}

impl Places {
    pub(super) fn new(text: &str) -> Self {
        let characters = text.char_indices().map(|(byte, _)| byte).chain([text.len()]).collect();
        let breaks = text.chars().enumerate().filter(|(_, character)| *character == '\n');
        Self { characters, lines: [0].into_iter().chain(breaks.map(|(number, _)| number + 1)).collect() }
    }

    /// The number of a character, from 0, and its first byte.
    pub(super) fn find(&self, line: u64, column: u64) -> (usize, usize) {
        let index = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        let end = self.characters.len() - 1;
        let line = self.lines.get(index(line)).copied().unwrap_or(end);
        let character = line.saturating_add(index(column)).min(end);
        (character, self.characters[character])
    }
}

/// The tokens of a text, all statements of it.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ParseError> {
    let places = Places::new(text);
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location().map_err(|error| {
        let (character, _) = places.find(error.location.line, error.location.column);
        SqlError::new(SqlState::SYNTAX_ERROR, error.message).at(character + 1)
    })?;
    let tokens = tokens.into_iter().filter(|token| !matches!(token.token, Kind::Whitespace(_) | Kind::EOF));
    let placed = tokens.map(|spanned| {
        let (character, start) = places.find(spanned.span.start.line, spanned.span.start.column);
        let (_, end) = places.find(spanned.span.end.line, spanned.span.end.column);
        Token { spanned, position: character + 1, bytes: start..end.max(start) }
    });
    Ok(placed.collect())
}

#[derive(Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    tokens: &'a [Token],
    next: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, tokens: &'a [Token]) -> Self {
        Self { text, tokens, next: 0 }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    pub(super) fn all(&self) -> &'a [Token] {
        self.tokens
    }

    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.next)
    }

    fn kind(&self) -> Option<&'a Kind> {
        self.peek().map(|token| &token.spanned.token)
    }

    pub(super) fn next(&mut self) {
        self.next += 1;
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.peek().is_none()
    }

    pub(super) fn is_left_paren(&self) -> bool {
        self.kind() == Some(&Kind::LParen)
    }

    /// Where the next token is, or the end of the statement if there is none.
    pub(super) fn place(&self) -> Place {
        let end = || self.tokens.last().map_or(1, |last| last.position + self.text[last.bytes.clone()].chars().count());
        Place(self.peek().map_or_else(end, |token| token.position))
    }

    /// The next word in capitals, if it is one without quotes.
    pub(super) fn upper_word(&self) -> Option<String> {
        self.peek().and_then(Token::upper)
    }

    pub(super) fn star_is(&self, ahead: usize) -> bool {
        self.tokens.get(self.next + ahead).is_some_and(|token| token.spanned.token == Kind::Mul)
    }

    /// Goes past so many tokens, which say this.
    pub(super) fn past<T>(&mut self, tokens: usize, said: T) -> T {
        self.next += tokens;
        said
    }

    pub(super) fn word_is(&self, ahead: usize, word: &str) -> bool {
        self.tokens.get(self.next + ahead).and_then(Token::upper).is_some_and(|it| it == word)
    }

    /// Goes past the word if it is the next one.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        self.take_words(&[word])
    }

    /// Goes past all of these words if they are the next ones, in this order.
    pub(super) fn take_words(&mut self, words: &[&str]) -> bool {
        let all = words.iter().enumerate().all(|(ahead, word)| self.word_is(ahead, word));
        if all {
            self.next += words.len();
        }
        all
    }

    pub(super) fn take(&mut self, kind: &Kind) -> bool {
        let taken = self.kind() == Some(kind);
        self.next += usize::from(taken);
        taken
    }

    pub(super) fn expect_word(&mut self, word: &'static str) -> Result<(), ParseError> {
        self.expect_one_of(&[word]).map(|_| ())
    }

    pub(super) fn expect_words(&mut self, words: &[&'static str]) -> Result<(), ParseError> {
        words.iter().try_for_each(|word| self.expect_word(word))
    }

    pub(super) fn expect_one_of(&mut self, words: &[&'static str]) -> Result<&'static str, ParseError> {
        match words.iter().find(|word| self.word_is(0, word)) {
            Some(word) => {
                self.next();
                Ok(word)
            }
            None => Err(self.expected_one_of(words)),
        }
    }

    pub(super) fn expect(&mut self, kind: &Kind) -> Result<(), ParseError> {
        if self.take(kind) { Ok(()) } else { Err(self.expected(&format!("\"{kind}\""))) }
    }

    /// Nothing may follow.
    pub(super) fn end(&self) -> Result<(), ParseError> {
        if self.is_at_end() { Ok(()) } else { Err(self.expected("the end of the statement")) }
    }

    /// One of several names, each of one or more words; `TARGET_SIZE` is also written `TARGET SIZE`.
    pub(super) fn one_of_names(&mut self, names: &[&'static str], what: &str) -> Result<&'static str, ParseError> {
        let mut joined = String::new();
        let mut found = None;
        for (ahead, token) in self.tokens[self.next.min(self.tokens.len())..].iter().enumerate().take(4) {
            let Some(word) = token.upper() else { break };
            if ahead > 0 {
                joined.push('_');
            }
            joined.push_str(&word);
            // The longest one counts: BURST is also the beginning of BURST SIZE.
            if let Some(name) = names.iter().find(|name| **name == joined) {
                found = Some((*name, ahead + 1));
            }
        }
        if let Some((name, words)) = found {
            self.next += words;
            return Ok(name);
        }
        let error = self.expected(&format!("{what} ({})", names.join(", ")));
        let first = self.upper_word();
        let close = first
            .iter()
            .map(String::as_str)
            .chain([joined.as_str()])
            .find_map(|it| did_you_mean(it, names.iter().copied()));
        Err(match close {
            Some(close) => error.with_hint(format!("Did you mean {close}?")),
            None => error,
        })
    }

    /// Everything up to the next `=`, as one name: the way options are written.
    pub(super) fn words_before_equals(&self) -> Option<String> {
        let rest = &self.tokens[self.next.min(self.tokens.len())..];
        let count = rest.iter().position(|token| token.spanned.token == Kind::Eq)?;
        let words: Option<Vec<String>> = rest[..count].iter().map(Token::upper).collect();
        words.filter(|words| !words.is_empty()).map(|words| words.join("_"))
    }

    /// A name: folded to lower case, or in double quotes as it is.
    pub(super) fn identifier(&mut self, what: &str) -> Result<String, ParseError> {
        let Some(word) = self.peek().and_then(Token::word) else {
            let error = self.expected(what);
            return Err(match self.kind() {
                Some(Kind::SingleQuotedString(_)) => error.with_hint("Names are written bare or in double quotes."),
                Some(Kind::Number(..)) => {
                    error.with_hint("A name that begins with a digit is written in double quotes.")
                }
                _ => error,
            });
        };
        if word.quote_style.is_some() {
            if word.value.is_empty() {
                return Err(
                    SqlError::new(SqlState::SYNTAX_ERROR, "zero-length delimited identifier").at(self.place().0)
                );
            }
            self.next();
            return Ok(word.value.clone());
        }
        let folded = word.value.to_ascii_lowercase();
        if is_reserved(&folded) {
            let hint = format!("\"{folded}\" in double quotes can be a name.");
            return Err(self.expected(what).with_hint(hint));
        }
        self.next();
        if self.kind() == Some(&Kind::Minus) {
            let hint = "A name with a hyphen is written in double quotes.";
            return Err(self.expected("a blank").with_hint(hint));
        }
        Ok(folded)
    }

    /// A name with dots in it, as parameters and settings have one.
    pub(super) fn dotted(&mut self, what: &str) -> Result<String, ParseError> {
        let mut name = self.identifier(what)?;
        while self.take(&Kind::Period) {
            name.push('.');
            name.push_str(&self.identifier(what)?);
        }
        Ok(name)
    }

    pub(super) fn names(&mut self, what: &str) -> Result<Vec<String>, ParseError> {
        let mut names = vec![self.identifier(what)?];
        while self.take(&Kind::Comma) {
            names.push(self.identifier(what)?);
        }
        Ok(names)
    }

    /// A name, or the same as a text: `BACKEND local`, `BACKEND = 'local'`.
    pub(super) fn name_or_text(&mut self, what: &str) -> Result<String, ParseError> {
        match self.maybe_text() {
            Some(text) => Ok(text),
            None => self.identifier(what),
        }
    }

    fn maybe_text(&mut self) -> Option<String> {
        let text = match self.kind()? {
            Kind::SingleQuotedString(text) | Kind::EscapedStringLiteral(text) | Kind::UnicodeStringLiteral(text) => {
                text.clone()
            }
            Kind::DollarQuotedString(quoted) => quoted.value.clone(),
            _ => return None,
        };
        self.next();
        Some(text)
    }

    pub(super) fn text_literal(&mut self, what: &str) -> Result<String, ParseError> {
        self.maybe_text().ok_or_else(|| {
            let error = self.expected(&format!("{what} in single quotes"));
            if self
                .peek()
                .is_some_and(|token| token.word().is_some() || matches!(token.spanned.token, Kind::Number(..)))
            {
                error.with_hint("Texts are written in single quotes.")
            } else {
                error
            }
        })
    }

    /// A whole number without a sign.
    pub(super) fn whole_number(&mut self, what: &str) -> Result<u64, ParseError> {
        let Some(Kind::Number(digits, _)) = self.kind() else { return Err(self.expected(what)) };
        let number = digits.parse().map_err(|_| self.expected(what))?;
        self.next();
        Ok(number)
    }

    pub(super) fn value(&mut self) -> Result<Value, ParseError> {
        const WHAT: &str = "a value";
        if self.word_is(0, "INTERVAL") && self.tokens.len() > self.next + 1 {
            self.next();
            return self.text_literal("an interval").map(Value::Interval);
        }
        if let Some(text) = self.maybe_text() {
            return Ok(Value::Text(text));
        }
        let negative = match self.kind() {
            Some(Kind::Minus) => true,
            Some(Kind::Plus | Kind::Number(..)) => false,
            _ => return self.word_value(WHAT),
        };
        if !matches!(self.kind(), Some(Kind::Number(..))) {
            self.next();
        }
        let Some(Kind::Number(digits, _)) = self.kind() else { return Err(self.expected("a number")) };
        let number = if negative { format!("-{digits}") } else { digits.clone() };
        self.next();
        // `200cc` is a number and a word.
        if let Some(token) = self.peek()
            && token.word().is_some()
            && self.tokens[self.next - 1].bytes.end == token.bytes.start
        {
            let word = &self.text[token.bytes.clone()];
            let hint = format!("Write it in single quotes: '{number}{word}'.");
            return Err(self.expected("the end of the number").with_hint(hint));
        }
        Ok(Value::Number(number))
    }

    fn word_value(&mut self, what: &str) -> Result<Value, ParseError> {
        let Some(word) = self.peek().and_then(Token::word) else { return Err(self.expected(what)) };
        let value = match (word.quote_style, word.value.to_ascii_lowercase()) {
            (None, folded) if folded == "true" => Value::Bool(true),
            (None, folded) if folded == "false" => Value::Bool(false),
            (None, folded) => Value::Word(folded),
            (Some(_), _) => Value::Word(word.value.clone()),
        };
        self.next();
        Ok(value)
    }

    pub(super) fn if_exists(&mut self) -> bool {
        self.take_words(&["IF", "EXISTS"])
    }

    pub(super) fn if_not_exists(&mut self) -> bool {
        self.take_words(&["IF", "NOT", "EXISTS"])
    }

    /// The next token is not what must stand here.
    pub(super) fn expected(&self, what: &str) -> ParseError {
        let near = match self.peek() {
            Some(token) => format!("syntax error at or near \"{}\"", shortened(&self.text[token.bytes.clone()])),
            None => "syntax error at end of input".to_owned(),
        };
        SqlError::new(SqlState::SYNTAX_ERROR, format!("{near}: expected {what}")).at(self.place().0)
    }

    pub(super) fn expected_one_of(&self, words: &[&'static str]) -> ParseError {
        let error = self.expected(&or(words));
        let found = self.upper_word();
        match found.and_then(|found| did_you_mean(&found, words.iter().copied())) {
            Some(close) => error.with_hint(format!("Did you mean {close}?")),
            None => error,
        }
    }

    pub(super) fn not_supported(&self, what: &str) -> ParseError {
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} not supported")).at(self.place().0)
    }
}

fn or(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn shortened(token: &str) -> String {
    const SHOWN_MAX: usize = 40;
    match token.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &token[..end]),
        None => token.to_owned(),
    }
}
