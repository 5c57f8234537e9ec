//! One dispatch as the references see it: named fields and named buffers, checked against the
//! contract before anything is read.

use zinc_contract_types::{Binding, Buffer, Kernel};

use crate::OracleError;

/// A dispatch with its initial buffer contents, known to satisfy the contract's preconditions and
/// byte counts.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    kernel: &'static Kernel,
    words: &'a [u32],
    buffers: &'a [&'a [u8]],
}

/// Position of `name` among the words of `kernel`.
pub(crate) fn field_index(kernel: &'static Kernel, name: &str) -> Result<usize, OracleError> {
    let found = kernel.fields.iter().position(|f| f.name == name);
    found.ok_or_else(|| OracleError::NoField {
        kernel: kernel.name,
        field: name.to_owned(),
    })
}

/// Position of `name` among the buffers of `kernel`.
pub(crate) fn buffer_index(kernel: &'static Kernel, name: &str) -> Result<usize, OracleError> {
    let found = kernel.buffers.iter().position(|b| b.name == name);
    found.ok_or_else(|| OracleError::NoBuffer {
        kernel: kernel.name,
        buffer: name.to_owned(),
    })
}

/// The contract's byte count of `buffer`; a negative value counts as 0.
pub(crate) fn buffer_bytes(
    kernel: &'static Kernel,
    buffer: &'static Buffer,
    words: &[u32],
) -> Result<u64, OracleError> {
    let bytes = (buffer.bytes.eval)(words).map_err(|source| OracleError::Eval {
        kernel: kernel.name,
        expression: buffer.bytes.text,
        source,
    })?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// The bindings of buffers of the given lengths at distinct, well aligned addresses.
fn bindings(buffers: &[&[u8]]) -> Vec<Binding> {
    let mut address = 1 << 20;
    let next = |bytes: &&[u8]| {
        let binding = Binding {
            address,
            bytes: bytes.len() as u64,
        };
        address = (address + binding.bytes + 1).next_multiple_of(1 << 12);
        binding
    };
    buffers.iter().map(next).collect()
}

impl<'a> Call<'a> {
    /// A checked view of one dispatch.
    ///
    /// # Errors
    /// A wrong number of words or buffers, a violated precondition, a buffer that is too small.
    pub fn new(
        kernel: &'static Kernel,
        words: &'a [u32],
        buffers: &'a [&'a [u8]],
    ) -> Result<Self, OracleError> {
        kernel.check(words, &bindings(buffers))?;
        Ok(Self {
            kernel,
            words,
            buffers,
        })
    }

    /// The contract.
    pub fn kernel(&self) -> &'static Kernel {
        self.kernel
    }

    /// The raw 32 bits of a push, launch or spec field.
    ///
    /// # Errors
    /// The catalog has no such field.
    pub fn word(&self, field: &str) -> Result<u32, OracleError> {
        Ok(self.words[field_index(self.kernel, field)?])
    }

    /// A u32 field as a count.
    ///
    /// # Errors
    /// The catalog has no such field.
    pub fn count(&self, field: &str) -> Result<usize, OracleError> {
        Ok(self.word(field)? as usize)
    }

    /// A field that holds an f32, or the bits of one, widened.
    ///
    /// # Errors
    /// The catalog has no such field.
    pub fn float(&self, field: &str) -> Result<f64, OracleError> {
        Ok(f64::from(f32::from_bits(self.word(field)?)))
    }

    /// Binding position of a buffer.
    ///
    /// # Errors
    /// The catalog has no such buffer.
    pub fn index(&self, buffer: &str) -> Result<usize, OracleError> {
        buffer_index(self.kernel, buffer)
    }

    /// The initial contents of a buffer.
    ///
    /// # Errors
    /// The catalog has no such buffer.
    pub fn bytes(&self, buffer: &str) -> Result<&'a [u8], OracleError> {
        Ok(self.buffers[self.index(buffer)?])
    }

    /// The `len` bytes from `start` of a buffer.
    ///
    /// # Errors
    /// The catalog has no such buffer, or its byte count does not cover the range.
    pub fn slice(&self, buffer: &str, start: usize, len: usize) -> Result<&'a [u8], OracleError> {
        let index = self.index(buffer)?;
        let bytes = self.buffers[index];
        if len == 0 {
            return Ok(&[]);
        }
        let end = start.saturating_add(len);
        bytes
            .get(start..end)
            .ok_or_else(|| OracleError::OutOfBounds {
                kernel: self.kernel.name,
                buffer: self.kernel.buffers[index].name,
                wanted: end as u64,
                found: bytes.len() as u64,
            })
    }

    /// `count` f32 values from byte `start` of a buffer.
    ///
    /// # Errors
    /// As [`Call::slice`].
    pub fn floats(
        &self,
        buffer: &str,
        start: usize,
        count: usize,
    ) -> Result<Vec<f32>, OracleError> {
        let bytes = self.slice(buffer, start, count.saturating_mul(4))?;
        Ok(words_of(bytes).map(f32::from_bits).collect())
    }

    /// `count` f32 values from byte `start` of a buffer, widened.
    ///
    /// # Errors
    /// As [`Call::slice`].
    pub fn doubles(
        &self,
        buffer: &str,
        start: usize,
        count: usize,
    ) -> Result<Vec<f64>, OracleError> {
        let floats = self.floats(buffer, start, count)?;
        Ok(floats.into_iter().map(f64::from).collect())
    }

    /// `count` values from element 0 of a buffer that holds f16 or f32, widened.
    ///
    /// # Errors
    /// As [`Call::slice`].
    pub fn halves_or_floats(
        &self,
        buffer: &str,
        halves: bool,
        count: usize,
    ) -> Result<Vec<f64>, OracleError> {
        if !halves {
            return self.doubles(buffer, 0, count);
        }
        let bytes = self.slice(buffer, 0, count.saturating_mul(2))?;
        let pairs = bytes.chunks_exact(2);
        Ok(pairs
            .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f64())
            .collect())
    }

    /// `count` u32 values from element `start` of a buffer.
    ///
    /// # Errors
    /// As [`Call::slice`].
    pub fn integers(
        &self,
        buffer: &str,
        start: usize,
        count: usize,
    ) -> Result<Vec<u32>, OracleError> {
        let bytes = self.slice(buffer, start.saturating_mul(4), count.saturating_mul(4))?;
        Ok(words_of(bytes).collect())
    }

    /// An error about the contents of a buffer.
    pub(crate) fn contents(
        &self,
        buffer: &'static str,
        what: String,
        wanted: String,
        found: impl ToString,
    ) -> OracleError {
        OracleError::Contents {
            kernel: self.kernel.name,
            buffer,
            what,
            wanted,
            found: found.to_string(),
        }
    }
}

/// The little-endian 32-bit words of `bytes`; a rest of fewer than four bytes is left out.
pub(crate) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}
