//! Assembles the words of a push struct from what a host passes.

use crate::error::ContractError;
use crate::kernel::{FieldKind, Kernel};
use std::ops::Deref;

/// Most words that a push struct has.
pub const MAX_WORDS: usize = 32;

/// The complete push struct of one dispatch: push fields, then launch counts, then specialization values.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    words: [u32; MAX_WORDS],
    length: usize,
}

impl Words {
    /// The words, in field order.
    pub fn as_slice(&self) -> &[u32] {
        &self.words[..self.length]
    }

    fn push(&mut self, word: u32) {
        self.words[self.length] = word;
        self.length += 1;
    }
}

impl Deref for Words {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        self.as_slice()
    }
}

impl PartialEq for Words {
    fn eq(&self, other: &Words) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Words {}

impl Kernel {
    /// Appends launch counts and specialization values to the host's Vulkan push block.
    ///
    /// `push` is the block's bytes in the host's byte order. Fields with a default may be missing at its end, where
    /// earlier hosts had none; at most `ignored_push_bytes` may follow it, where later hosts have more. `launch` and
    /// `spec` are positional; values that are left out at the end take the catalog's default.
    pub fn words(&self, push: &[u8], launch: &[u32], spec: &[u32]) -> Result<Words, ContractError> {
        let wanted = self.push_words * 4;
        let optional = self.fields[..self.push_words]
            .iter()
            .rev()
            .take_while(|field| field.default.is_some());
        let least = wanted - optional.count() * 4;
        let most = wanted + self.ignored_push_bytes;
        if !(least..=most).contains(&push.len()) || !push.len().is_multiple_of(4) {
            let kernel = self.name;
            return Err(ContractError::PushBytes {
                kernel,
                wanted,
                least,
                most,
                found: push.len(),
            });
        }
        let mut words = Words {
            words: [0; MAX_WORDS],
            length: 0,
        };
        let (given, _) = push.as_chunks::<4>();
        for (index, field) in self.fields[..self.push_words].iter().enumerate() {
            let given = given.get(index).map(|bytes| u32::from_ne_bytes(*bytes));
            words.push(given.or(field.default).unwrap_or_default());
        }
        for (kind, values) in [(FieldKind::Launch, launch), (FieldKind::Spec, spec)] {
            let mut given = values.iter();
            for field in self.fields_of(kind) {
                match given.next().copied().or(field.default) {
                    Some(word) => words.push(word),
                    None => return Err(self.count_error(kind, values.len())),
                }
            }
            if given.next().is_some() {
                return Err(self.count_error(kind, values.len()));
            }
        }
        Ok(words)
    }

    /// Assembles the push struct from named values, as 4-byte words; names may come in any order. Fields that are not
    /// named take the catalog's default.
    pub fn words_by_name(&self, values: &[(&str, u32)]) -> Result<Words, ContractError> {
        if let Some((name, _)) = values
            .iter()
            .find(|(name, _)| !self.fields.iter().any(|field| field.name == *name))
        {
            let name = (*name).to_owned();
            return Err(ContractError::UnknownField {
                kernel: self.name,
                name,
            });
        }
        let mut words = Words {
            words: [0; MAX_WORDS],
            length: 0,
        };
        for field in self.fields {
            let given = values.iter().find(|(name, _)| *name == field.name);
            match given.map(|(_, word)| *word).or(field.default) {
                Some(word) => words.push(word),
                None => {
                    return Err(ContractError::MissingField {
                        kernel: self.name,
                        field: field.name,
                    });
                }
            }
        }
        Ok(words)
    }

    fn count_error(&self, kind: FieldKind, found: usize) -> ContractError {
        let wanted = self.fields_of(kind).count();
        ContractError::ValueCount {
            kernel: self.name,
            kind,
            wanted,
            found,
        }
    }
}
