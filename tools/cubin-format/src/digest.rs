//! SHA-256 values and their hexadecimal text.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// A SHA-256 value. Its text is 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The SHA-256 of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The SHA-256 of the concatenation of `parts`.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// The text is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 is 64 hexadecimal digits, found {text:?}")]
pub struct DigestError {
    /// What was given.
    pub text: String,
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let error = || DigestError {
            text: text.to_owned(),
        };
        let digits = text.as_bytes();
        let mut value = [0u8; 32];
        if digits.len() != 2 * value.len() {
            return Err(error());
        }
        for (byte, pair) in value.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16).ok_or_else(error)?;
            let low = char::from(pair[1]).to_digit(16).ok_or_else(error)?;
            *byte = (high << 4 | low) as u8;
        }
        Ok(Self(value))
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_text_round_trips_and_matches_the_published_vector() {
        let digest = Digest::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(Digest::of_parts(&[b"a", b"", b"bc"]), digest);
    }

    #[test]
    fn digest_text_with_wrong_length_or_digit_is_refused() {
        for text in [
            "",
            "ba78",
            &"g".repeat(64),
            &"é".repeat(32),
            &"0".repeat(65),
        ] {
            assert_eq!(
                text.parse::<Digest>(),
                Err(DigestError {
                    text: text.to_owned()
                })
            );
        }
    }
}
