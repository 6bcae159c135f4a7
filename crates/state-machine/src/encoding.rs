//! How values become bytes and come back. The only module that names bincode, so the only one to change (and to
//! fuzz) when that crate goes.
//!
//! Everything that leaves the state machine (entries, requests, receipts, events, states) begins with a format number.
//! What may grow (commands, events, rows of a state) lies in frames: a kind, a length, a body. So a reader that meets
//! a kind it does not know can say which, instead of guessing where the next one begins.
//!
//! Encoding is canonical: equal values give equal bytes, because the hash chain is over these bytes. Decoding takes any
//! bytes and gives a value or a [`DecodeError`]; it neither panics nor allocates more than in proportion to its input.
//!
//! Not here: checksums and compression. `crates/log` wraps these bytes in frames of its own.

use std::fmt;
use std::sync::Arc;

use bincode::config::standard;
use bincode::serde::{borrow_decode_from_slice, encode_into_std_write};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// The bytes are not what they should be. On bytes from our own log this stops the node: it never guesses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error(
        "{what} is in format {found}, this version reads format {known}: use the version that wrote it, or a newer one"
    )]
    UnknownFormat { what: &'static str, found: u16, known: u16 },
    #[error("{what} of kind {kind} is not known to this version: use the version that wrote it, or a newer one")]
    UnknownKind { what: &'static str, kind: u16 },
    #[error("{what} ends too early")]
    Truncated { what: &'static str },
    #[error("{what} is followed by {count} bytes that do not belong to it")]
    TrailingBytes { what: &'static str, count: usize },
    #[error("{what} is malformed: {detail}")]
    Malformed { what: &'static str, detail: String },
    #[error("{what} contradicts itself: {detail}")]
    Inconsistent { what: &'static str, detail: String },
    #[error(
        "the log raises the rules to version {to}, this version knows rules up to {known}: use a newer version on this node"
    )]
    RulesTooNew { to: u32, known: u32 },
}

impl DecodeError {
    /// Whether the bytes are intact, and only newer than this version.
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::UnknownFormat { .. } | Self::UnknownKind { .. } | Self::RulesTooNew { .. })
    }
}

/// Writes one value with its format number in front.
#[derive(Debug)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
}

/// Room to begin with: most requests and receipts fit, and growing to it step by step took six turns.
const ROOM: usize = 512;

impl Encoder {
    pub(crate) fn with_format(format: u16) -> Self {
        let mut encoder = Self::bare();
        encoder.bytes.extend_from_slice(&format.to_le_bytes());
        encoder
    }

    /// For bytes that only a hash will see, or that become a part of others.
    pub(crate) fn bare() -> Self {
        Self { bytes: Vec::with_capacity(ROOM) }
    }

    pub(crate) fn put<T: Serialize + ?Sized>(&mut self, value: &T) {
        encode_into_std_write(value, &mut self.bytes, standard())
            .expect("a value of ours always has an encoding, and memory takes all bytes");
    }

    /// Makes room for about so many bytes more.
    pub(crate) fn expect(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// What another encoder made of a value.
    pub(crate) fn put_encoded(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A frame: kind (u16), length of the body (u32), body.
    pub(crate) fn frame(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        self.bytes.extend_from_slice(&kind.to_le_bytes());
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let body_at = self.bytes.len();
        body(self);
        let length = u32::try_from(self.bytes.len() - body_at).expect("one frame is far below 4 GiB");
        self.bytes[length_at..body_at].copy_from_slice(&length.to_le_bytes());
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Bytes of rows that are handed on at once.
const PIECE_BYTES: usize = 64 << 10;

/// Writes row after row, and hands them on piece by piece: all of them together take as much memory as what they are of.
pub(crate) struct Rows<'a> {
    written: Encoder,
    take: &'a mut dyn FnMut(&[u8]),
}

impl<'a> Rows<'a> {
    pub(crate) fn with_format(format: u16, take: &'a mut dyn FnMut(&[u8])) -> Self {
        Self { written: Encoder::with_format(format), take }
    }

    pub(crate) fn row<T: Serialize>(&mut self, table: u16, value: &T) {
        self.frame(table, |body| body.put(value));
    }

    pub(crate) fn frame(&mut self, table: u16, body: impl FnOnce(&mut Encoder)) {
        self.written.frame(table, body);
        if self.written.bytes.len() >= PIECE_BYTES {
            self.hand_on();
        }
    }

    /// Hands on what is left.
    pub(crate) fn finish(mut self) {
        self.hand_on();
    }

    fn hand_on(&mut self) {
        (self.take)(&self.written.bytes);
        self.written.bytes.clear();
    }
}

/// Reads what an [`Encoder`] wrote. `what` is what the bytes are said to be, for the error.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn with_format(what: &'static str, known: u16, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (format, rest) = bytes.split_first_chunk().ok_or(DecodeError::Truncated { what })?;
        match u16::from_le_bytes(*format) {
            found if found == known => Ok(Self { what, rest }),
            found => Err(DecodeError::UnknownFormat { what, found, known }),
        }
    }

    /// Of what began with [`Encoder::bare`].
    pub(crate) fn bare(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    pub(crate) fn take<T: Deserialize<'a>>(&mut self) -> Result<T, DecodeError> {
        let (value, used) = decode_bounded(self.rest).map_err(|error| match error {
            bincode::error::DecodeError::UnexpectedEnd { .. } => DecodeError::Truncated { what: self.what },
            // More was announced than so few bytes can hold.
            bincode::error::DecodeError::LimitExceeded => DecodeError::Truncated { what: self.what },
            other => DecodeError::Malformed { what: self.what, detail: other.to_string() },
        })?;
        self.rest = &self.rest[used..];
        Ok(value)
    }

    /// The next frame: its kind, and a decoder of its body. `what` names the things that lie in these frames.
    pub(crate) fn frame(&mut self, what: &'static str) -> Result<(u16, Self), DecodeError> {
        let truncated = DecodeError::Truncated { what };
        let (kind, rest) = self.rest.split_first_chunk().ok_or_else(|| truncated.clone())?;
        let (length, rest) = rest.split_first_chunk().ok_or_else(|| truncated.clone())?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| truncated.clone())?;
        let (body, rest) = rest.split_at_checked(length).ok_or(truncated)?;
        self.rest = rest;
        Ok((u16::from_le_bytes(*kind), Self { what, rest: body }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes { what: self.what, count }),
        }
    }
}

/// Bincode reserves memory for a text or blob before it looks whether the bytes are there, up to a limit that must be
/// a constant. Counted against the limit is at most 16 times the encoded length (a `u128` in one byte), so
/// each step below takes everything that was ever encoded in so many bytes, and hostile bytes cannot reserve more than
/// the step. The memory is not touched before the bytes are found to be missing.
fn decode_bounded<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, usize), bincode::error::DecodeError> {
    const KIB: usize = 1024;
    match bytes.len() {
        0..=4_096 => borrow_decode_from_slice(bytes, standard().with_limit::<{ 64 * KIB }>()),
        4_097..=262_144 => borrow_decode_from_slice(bytes, standard().with_limit::<{ 4 * KIB * KIB }>()),
        262_145..=16_777_216 => borrow_decode_from_slice(bytes, standard().with_limit::<{ 256 * KIB * KIB }>()),
        _ => borrow_decode_from_slice(bytes, standard().with_limit::<{ 64 * KIB * KIB * KIB }>()),
    }
}

/// Bytes that are passed on and not looked into. Sharing is free, and they are encoded in one piece.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blob(Arc<[u8]>);

impl Blob {
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<T: Into<Arc<[u8]>>> From<T> for Blob {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

/// Only the length: a page of numbers helps nobody.
impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BlobVisitor;

        impl Visitor<'_> for BlobVisitor {
            type Value = Blob;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(bytes.into())
            }
        }

        deserializer.deserialize_bytes(BlobVisitor)
    }
}

/// Declares the commands or the events: each with a number that is its own for ever.
///
/// The number goes into the log, so a number is never given to anything else, and the fields behind a number never
/// change: a new shape is a new number. Golden files pin the bytes.
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        pub enum $Name:ident ($what:literal) {
            $(
                $(#[$variant_meta:meta])*
                $number:literal => $Variant:ident $({ $( $(#[$field_meta:meta])* $field:ident: $Type:ty ),* $(,)? })?
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $Name {
            $( $(#[$variant_meta])* $Variant $({ $( $(#[$field_meta])* $field: $Type ),* })? ),*
        }

        impl $Name {
            /// Every kind there is: its number and its name, by number.
            pub const KINDS: &'static [(u16, &'static str)] = &[$( ($number, stringify!($Variant)) ),*];

            /// The number of this kind in the log.
            pub fn kind(&self) -> u16 {
                match self { $( Self::$Variant { .. } => $number ),* }
            }

            pub fn kind_name(&self) -> &'static str {
                match self { $( Self::$Variant { .. } => stringify!($Variant) ),* }
            }

            pub(crate) fn write(&self, out: &mut $crate::encoding::Encoder) {
                out.frame(self.kind(), |_body| match self {
                    $( Self::$Variant $({ $($field),* })? => { $( $( _body.put($field); )* )? } ),*
                });
            }

            pub(crate) fn read(from: &mut $crate::encoding::Decoder<'_>) -> Result<Self, $crate::DecodeError> {
                let (kind, mut _body) = from.frame($what)?;
                let value = match kind {
                    $( $number => {
                        $( $( let $field = _body.take()?; )* )?
                        Self::$Variant $({ $($field),* })?
                    } )*
                    kind => return Err($crate::DecodeError::UnknownKind { what: $what, kind }),
                };
                _body.finish()?;
                Ok(value)
            }
        }
    };
}

pub(crate) use numbered;
