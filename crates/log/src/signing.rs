//! The key with which a node signs what it hands out of its history, so that whoever holds the file knows whose word it is.
//!
//! Ed25519. The private half is made when a node starts for the first time, stays in the data folder, readable by its owner
//! only, and is never sent anywhere; the public half is what `status` shows.
//!
//! Not here: which key is to be trusted. Whoever checks a file compares its public key with what the node showed when nobody
//! had a reason to lie.

use std::io;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use crate::{
    disk::{Disk, read_all, replace_private_file},
    encoding::{Fields, PutFields as _},
    frame::{Chain, Family, Walk},
};

const FILE: &str = "signing-key";
const KIND: u16 = 1;

pub const PUBLIC_KEY_BYTES: usize = 32;
pub const SIGNATURE_BYTES: usize = 64;

/// Why the key could not be read or made.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    #[error("cannot {doing} the file signing-key")]
    Io { doing: &'static str, source: io::Error },
    /// The files that were signed with it stay valid, for whoever noted its public half.
    #[error(
        "the file signing-key is damaged: {what}; put a backup of it in place, or move it away and a new key is made, \
         which whoever checks exports has to be told"
    )]
    Damaged { what: String },
}

/// See the module. What it prints of itself is the public half.
pub struct SigningKey(Ed25519KeyPair);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let public = self.public().map(|byte| format!("{byte:02x}")).concat();
        f.debug_tuple("SigningKey").field(&public).finish()
    }
}

impl SigningKey {
    /// The key of this folder. If it has none, one is made from `seed` and is durable when this returns.
    pub fn load_or_make(disk: &dyn Disk, seed: impl FnOnce() -> io::Result<[u8; 32]>) -> Result<Self, SigningKeyError> {
        if let Some(key) = Self::load(disk)? {
            return Ok(key);
        }
        let made = seed().map_err(|source| SigningKeyError::Io { doing: "find randomness for", source })?;
        let key = Self::of_seed(&made)?;
        let mut bytes = Vec::new();
        let mut chain = Chain { family: Family::SigningKey, segment: 0, link: 0 };
        chain
            .put(&mut bytes, KIND, 0, |out| {
                out.put_raw(&made);
                out.put_raw(&key.public());
            })
            .map_err(io::Error::from)
            .and_then(|()| replace_private_file(disk, "", FILE, &bytes))
            .map_err(|source| SigningKeyError::Io { doing: "write", source })?;
        Ok(key)
    }

    /// The key of this folder, if it has one.
    pub fn load(disk: &dyn Disk) -> Result<Option<Self>, SigningKeyError> {
        let file = match disk.open(FILE, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(SigningKeyError::Io { doing: "open", source }),
        };
        let bytes = read_all(&*file).map_err(|source| SigningKeyError::Io { doing: "read", source })?;
        let damaged = |what: &str| SigningKeyError::Damaged { what: what.to_owned() };
        let mut walk = Walk::new(&bytes, Family::SigningKey, 0, Some(0));
        let frame = walk.next_frame().map_err(|error| damaged(&error.to_string()))?;
        let Some(frame) = frame.filter(|frame| frame.kind == KIND && frame.end() == bytes.len()) else {
            return Err(damaged("it is not one intact record"));
        };
        let mut fields = Fields(frame.body);
        let malformed = |error: crate::encoding::Malformed| damaged(&error.to_string());
        let seed = fields.array::<32>().map_err(malformed)?;
        let public = fields.array::<PUBLIC_KEY_BYTES>().map_err(malformed)?;
        fields.end().map_err(malformed)?;
        let key = Self::of_seed(&seed)?;
        if key.public() != public {
            return Err(damaged("its two halves do not belong together"));
        }
        Ok(Some(key))
    }

    /// A key that is kept nowhere.
    pub fn of_seed(seed: &[u8; 32]) -> Result<Self, SigningKeyError> {
        Ed25519KeyPair::from_seed_unchecked(seed)
            .map(Self)
            .map_err(|error| SigningKeyError::Damaged { what: error.to_string() })
    }

    pub fn public(&self) -> [u8; PUBLIC_KEY_BYTES] {
        // A key of this kind has one length only.
        self.0.public_key().as_ref().try_into().unwrap_or_default()
    }

    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let mut signature = [0; SIGNATURE_BYTES];
        signature.copy_from_slice(self.0.sign(message).as_ref());
        signature
    }
}

/// Randomness of the operating system, for a key that nobody can guess.
pub fn system_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut seed)
        .map_err(|_| io::Error::other("the operating system gives no randomness"))?;
    Ok(seed)
}

/// Whether whoever holds the private half of this key has signed this message.
pub fn is_signed_by(public: &[u8; PUBLIC_KEY_BYTES], message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
    UnparsedPublicKey::new(&ED25519, public).verify(message, signature).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::disk::{ModelDisk, RealDisk};

    fn never() -> io::Result<[u8; 32]> {
        Err(io::Error::other("the key is there already"))
    }

    #[test]
    fn a_key_is_made_once_and_only_its_owner_may_read_it() {
        let dir = tempfile::TempDir::new().unwrap();
        let real = RealDisk::open(dir.path()).unwrap();
        let made = SigningKey::load_or_make(&real, system_seed).unwrap().public();
        assert_eq!(SigningKey::load_or_make(&real, never).unwrap().public(), made);
        let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let model = ModelDisk::new(1);
        let made = SigningKey::load_or_make(&model, || Ok([7; 32])).unwrap().public();
        assert_eq!(SigningKey::load_or_make(&model, never).unwrap().public(), made);
        assert_ne!(SigningKey::of_seed(&system_seed().unwrap()).unwrap().public(), made);
    }

    #[test]
    fn what_was_signed_is_recognised_and_nothing_else_is() {
        let key = SigningKey::of_seed(&[7; 32]).unwrap();
        let signature = key.sign(b"a message");
        assert!(is_signed_by(&key.public(), b"a message", &signature));
        assert!(!is_signed_by(&key.public(), b"a massage", &signature));
        assert!(!is_signed_by(&SigningKey::of_seed(&[8; 32]).unwrap().public(), b"a message", &signature));
        for bit in 0..SIGNATURE_BYTES * 8 {
            let mut other = signature;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_signed_by(&key.public(), b"a message", &other), "bit {bit}");
        }
    }

    #[test]
    fn a_power_cut_while_a_key_is_made_leaves_it_whole_or_not_there() {
        for seed in 0..40 {
            for cut_at in 1..8 {
                let disk = ModelDisk::new(seed);
                disk.cut_power_at(cut_at);
                let made = SigningKey::load_or_make(&disk, || Ok([1; 32])).ok().map(|key| key.public());
                disk.power_cut();
                let found = SigningKey::load_or_make(&disk.reopen(), || Ok([2; 32])).unwrap().public();
                let first = SigningKey::of_seed(&[1; 32]).unwrap().public();
                let second = SigningKey::of_seed(&[2; 32]).unwrap().public();
                assert!(found == first || found == second && made.is_none(), "seed {seed}, cut at {cut_at}");
            }
        }
    }

    #[test]
    fn any_flipped_bit_is_refused_with_the_way_out() {
        let disk = ModelDisk::new(1);
        SigningKey::load_or_make(&disk, || Ok([7; 32])).unwrap();
        for offset in 0..disk.contents(FILE).unwrap().len() as u64 {
            disk.flip_bit(FILE, offset, 2).unwrap();
            let message = SigningKey::load(&disk).unwrap_err().to_string();
            assert!(message.contains("backup"), "{message}");
            disk.flip_bit(FILE, offset, 2).unwrap();
        }
    }

    #[test]
    fn what_it_prints_of_itself_is_public() {
        let key = SigningKey::of_seed(&[0x5e; 32]).unwrap();
        assert!(!format!("{key:?}").contains("5e5e5e"), "{key:?}");
    }
}
