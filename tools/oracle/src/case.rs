//! Verification cases: one dispatch each, with all initial contents, and the tools that make them.
//!
//! Conventions of every case: bytes of a read buffer that the contract does not cover (before an
//! offset, between strides, behind the end) are 0xFF, which is NaN in every float format, so that a
//! wrong address shows in the result. Buffers that are written are poisoned, and longer than asked
//! for, so that a write outside the contract shows.

use zinc_contract_types::{Access, Binding, Kernel};

use crate::call::{buffer_bytes, buffer_index, field_index};
use crate::{Expected, OracleError, Report, Rng, compare, expect};

/// Guard bytes behind the end of a buffer that is written.
const GUARD: usize = 64;
/// Guard bytes behind the end of a read buffer, in the cases that have them.
const READ_GUARD: usize = 32;
/// Poison of written buffers: a NaN that is easy to recognise, or a tiny negative number.
const POISONS: [u32; 2] = [0x7fc0_a5a5, 0xa5a5_a5a5];

/// One dispatch that a kernel is verified with.
#[derive(Debug, Clone)]
pub struct Case {
    /// the contract
    pub kernel: &'static Kernel,
    /// what is special about the case; unique within the kernel
    pub label: String,
    /// the whole push struct: push fields, launch counts, specialization values
    pub words: Vec<u32>,
    /// the buffers in binding order
    pub buffers: Vec<CaseBuffer>,
    /// true for shapes that take long on an emulator
    pub heavy: bool,
}

/// One buffer of a case.
#[derive(Debug, Clone)]
pub struct CaseBuffer {
    /// initial contents; empty if the buffer is bound to the memory of another one, or to nothing
    pub bytes: Vec<u8>,
    /// binding position of the buffer whose memory this one is bound to as well
    pub alias_of: Option<usize>,
}

impl Case {
    /// Binding position of the buffer that owns the memory of buffer `index`.
    pub fn owner(&self, index: usize) -> usize {
        self.buffers[index].alias_of.unwrap_or(index)
    }

    /// The initial contents of every buffer, those of shared memory repeated.
    pub fn contents(&self) -> Vec<&[u8]> {
        (0..self.buffers.len())
            .map(|i| self.buffers[self.owner(i)].bytes.as_slice())
            .collect()
    }

    /// Bindings of all buffers as the contract's check wants them, at made-up addresses.
    pub fn bindings(&self) -> Vec<Binding> {
        let mut addresses = Vec::new();
        let mut free = 1 << 20;
        for buffer in &self.buffers {
            addresses.push(free);
            free = (free + buffer.bytes.len() as u64 + 1).next_multiple_of(1 << 12);
        }
        let contents = self.contents().into_iter().enumerate();
        let binding = |(index, bytes): (usize, &[u8])| match bytes.len() as u64 {
            0 => Binding::UNBOUND,
            bytes => Binding {
                address: addresses[self.owner(index)],
                bytes,
            },
        };
        contents.map(binding).collect()
    }

    /// The wanted final contents of all buffers. Buffers that the kernel only reads have to stay as
    /// they are, unless a written one is bound to their memory.
    ///
    /// # Errors
    /// As [`expect`].
    pub fn expect(&self) -> Result<Vec<Expected>, OracleError> {
        let mut expected = expect(self.kernel, &self.words, &self.contents())?;
        let written: Vec<usize> = expected.iter().map(|e| self.owner(e.buffer)).collect();
        for index in 0..self.buffers.len() {
            if self.kernel.buffers[index].access == Access::Read
                && !written.contains(&self.owner(index))
            {
                expected.push(Expected::unchanged(index));
            }
        }
        Ok(expected)
    }

    /// Judges the final contents of all buffers, those of shared memory repeated.
    ///
    /// # Errors
    /// As [`expect`].
    pub fn compare<O: AsRef<[u8]>>(&self, outputs: &[O]) -> Result<Report, OracleError> {
        let expected = self.expect()?;
        Ok(compare(
            self.kernel,
            &self.label,
            &self.contents(),
            &expected,
            outputs,
        ))
    }
}

/// The cases of one kernel while they are made.
pub(crate) struct Cases {
    kernel: &'static Kernel,
    heavy: bool,
    made: Vec<Case>,
    error: Option<OracleError>,
}

impl Cases {
    /// The cases that `make` adds, the heavy ones only if `heavy`.
    pub(crate) fn collect(
        kernel: &'static Kernel,
        heavy: bool,
        make: fn(&mut Cases),
    ) -> Result<Vec<Case>, OracleError> {
        let mut cases = Self {
            kernel,
            heavy,
            made: Vec::new(),
            error: None,
        };
        make(&mut cases);
        match cases.error {
            Some(error) => Err(error),
            None => Ok(cases.made),
        }
    }

    /// Adds the case that `fill` completes.
    pub(crate) fn add(&mut self, label: impl Into<String>, fill: impl FnOnce(&mut Draft)) {
        self.make(label.into(), false, fill);
    }

    /// Adds a case that takes long on an emulator.
    pub(crate) fn heavy(&mut self, label: impl Into<String>, fill: impl FnOnce(&mut Draft)) {
        if self.heavy {
            self.make(label.into(), true, fill);
        }
    }

    fn make(&mut self, label: String, heavy: bool, fill: impl FnOnce(&mut Draft)) {
        let mut draft = Draft::new(self.kernel, &label);
        fill(&mut draft);
        match draft.finish() {
            Ok(case) => self.made.push(Case { heavy, ..case }),
            Err(error) => self.error = self.error.take().or(Some(error)),
        }
    }
}

/// A case under construction. Mistakes (unknown names, a shape that violates the contract) are kept
/// and reported by [`Draft::finish`].
pub(crate) struct Draft {
    kernel: &'static Kernel,
    label: String,
    words: Vec<u32>,
    buffers: Vec<CaseBuffer>,
    poison: u32,
    read_guard: usize,
    error: Option<OracleError>,
    /// random numbers of this case
    pub(crate) rng: Rng,
}

impl Draft {
    /// A draft whose random numbers depend on the kernel and the label.
    pub(crate) fn new(kernel: &'static Kernel, label: &str) -> Self {
        let seed = Rng::from_names(&[kernel.name, label]).next_u64();
        Self::seeded(kernel, label, seed)
    }

    /// A draft with the given seed.
    pub(crate) fn seeded(kernel: &'static Kernel, label: &str, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let poison = rng.pick(&POISONS);
        let read_guard = rng.pick(&[0, READ_GUARD]);
        Self {
            kernel,
            label: label.to_owned(),
            words: kernel
                .fields
                .iter()
                .map(|f| f.default.unwrap_or(0))
                .collect(),
            buffers: vec![
                CaseBuffer {
                    bytes: Vec::new(),
                    alias_of: None,
                };
                kernel.buffers.len()
            ],
            poison,
            read_guard,
            error: None,
            rng,
        }
    }

    /// Unwraps `result`, keeping the first error.
    fn keep<T>(&mut self, result: Result<T, OracleError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.error = self.error.take().or(Some(error));
                None
            }
        }
    }

    /// Sets a field.
    pub(crate) fn set(&mut self, field: &str, value: u32) {
        if let Some(index) = self.keep(field_index(self.kernel, field)) {
            self.words[index] = value;
        }
    }

    /// Sets fields.
    pub(crate) fn set_all(&mut self, fields: &[(&str, u32)]) {
        for (field, value) in fields {
            self.set(field, *value);
        }
    }

    /// Sets an f32 field, or one that holds the bits of an f32.
    pub(crate) fn set_float(&mut self, field: &str, value: f32) {
        self.set(field, value.to_bits());
    }

    /// The contract's byte count of buffer `index` for the fields set so far.
    fn bytes(&mut self, index: usize) -> usize {
        let bytes = buffer_bytes(self.kernel, &self.kernel.buffers[index], &self.words);
        self.keep(bytes).unwrap_or(0) as usize
    }

    /// Fills a buffer: `len` times `background`, with `content` at byte `start`.
    fn fill(&mut self, index: usize, mut bytes: Vec<u8>, start: usize, content: &[u8]) {
        let end = start + content.len();
        if bytes.len() < end {
            let error = OracleError::OutOfBounds {
                kernel: self.kernel.name,
                buffer: self.kernel.buffers[index].name,
                wanted: end as u64,
                found: bytes.len() as u64,
            };
            self.keep::<()>(Err(error));
            return;
        }
        bytes[start..end].copy_from_slice(content);
        self.buffers[index] = CaseBuffer {
            bytes,
            alias_of: None,
        };
    }

    /// Gives a buffer that is only read its contents from byte `start` on.
    pub(crate) fn read(&mut self, buffer: &str, start: usize, content: &[u8]) {
        let Some(index) = self.keep(buffer_index(self.kernel, buffer)) else {
            return;
        };
        let background = vec![0xff; self.bytes(index) + self.read_guard];
        self.fill(index, background, start, content);
    }

    /// Gives a buffer that is only read its f32 values from byte `start` on.
    pub(crate) fn read_floats(&mut self, buffer: &str, start: usize, content: &[f32]) {
        self.read(buffer, start, &float_bytes(content));
    }

    /// Gives a buffer that is only read its u32 values.
    pub(crate) fn read_integers(&mut self, buffer: &str, content: &[u32]) {
        self.read(buffer, 0, &integer_bytes(content));
    }

    /// Gives a buffer that holds f16 or f32 its values.
    pub(crate) fn read_halves_or_floats(&mut self, buffer: &str, halves: bool, content: &[f32]) {
        if halves {
            let half = |v: &f32| half::f16::from_f32(*v).to_le_bytes();
            let bytes: Vec<u8> = content.iter().flat_map(half).collect();
            self.read(buffer, 0, &bytes);
        } else {
            self.read_floats(buffer, 0, content);
        }
    }

    /// Poisons a buffer that is written.
    pub(crate) fn write(&mut self, buffer: &str) {
        self.update(buffer, 0, &[]);
    }

    /// Poisons a buffer that is read and written, and gives it f32 values from byte `start` on.
    pub(crate) fn update(&mut self, buffer: &str, start: usize, content: &[f32]) {
        let Some(index) = self.keep(buffer_index(self.kernel, buffer)) else {
            return;
        };
        let len = (self.bytes(index) + GUARD).next_multiple_of(4);
        let words = len / 4;
        let background = (0..words).flat_map(|_| self.poison.to_le_bytes()).collect();
        self.fill(index, background, start, &float_bytes(content));
    }

    /// Gives a buffer that is read and written its u32 values, with poison behind them.
    pub(crate) fn update_integers(&mut self, buffer: &str, content: &[u32]) {
        let floats: Vec<f32> = content.iter().map(|&v| f32::from_bits(v)).collect();
        self.update(buffer, 0, &floats);
    }

    /// Overwrites bytes of a buffer that has its contents already.
    pub(crate) fn patch(&mut self, buffer: &str, start: usize, content: &[u8]) {
        if let Some(index) = self.keep(buffer_index(self.kernel, buffer)) {
            let bytes = std::mem::take(&mut self.buffers[index].bytes);
            self.fill(index, bytes, start, content);
        }
    }

    /// Makes a buffer that has its contents already `extra` bytes of poison longer.
    pub(crate) fn extend(&mut self, buffer: &str, extra: usize) {
        if let Some(index) = self.keep(buffer_index(self.kernel, buffer)) {
            let poison = self.poison.to_le_bytes().into_iter().cycle();
            self.buffers[index].bytes.extend(poison.take(extra));
        }
    }

    /// Binds `buffer` to the memory of `owner`, which has its contents already.
    pub(crate) fn alias(&mut self, buffer: &str, owner: &str) {
        let index = self.keep(buffer_index(self.kernel, buffer));
        let owner = self.keep(buffer_index(self.kernel, owner));
        if let (Some(index), Some(owner)) = (index, owner) {
            self.buffers[index] = CaseBuffer {
                bytes: Vec::new(),
                alias_of: Some(owner),
            };
        }
    }

    /// Binds the written `buffer` and the read buffer `input` to one memory, which has the poison and
    /// the length of the former and the contents of the latter.
    pub(crate) fn own(&mut self, buffer: &str, input: &str) {
        let index = self.keep(buffer_index(self.kernel, buffer));
        let from = self.keep(buffer_index(self.kernel, input));
        if let (Some(index), Some(from)) = (index, from) {
            let len = self.bytes(from);
            let content = self.buffers[from].bytes.get(..len).unwrap_or(&[]).to_vec();
            self.patch(buffer, 0, &content);
            self.buffers[from] = CaseBuffer {
                bytes: Vec::new(),
                alias_of: Some(index),
            };
        }
    }

    /// The finished case.
    ///
    /// # Errors
    /// The first mistake: an unknown name, a shape that the contract forbids, a buffer that is too
    /// small for it.
    pub(crate) fn finish(self) -> Result<Case, OracleError> {
        let case = Case {
            kernel: self.kernel,
            label: self.label,
            words: self.words,
            buffers: self.buffers,
            heavy: false,
        };
        let check = || {
            if let Some(error) = self.error {
                return Err(error);
            }
            Ok(case.kernel.check(&case.words, &case.bindings())?)
        };
        match check() {
            Ok(()) => Ok(case),
            Err(source) => Err(OracleError::Case {
                kernel: case.kernel.name,
                label: case.label,
                source: Box::new(source),
            }),
        }
    }
}

/// The bytes of f32 values; NaN payloads are kept.
pub(crate) fn float_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// The bytes of u32 values.
pub(crate) fn integer_bytes(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Kinds of f32 vectors that cases are filled with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fill {
    /// bell-shaped around 0, standard deviation as given
    Normal(f32),
    /// all equal
    Equal(f32),
    /// alternating in sign, so that sums cancel
    Alternating(f32),
    /// normal, with this value at every 7th place from place 3 on
    Sprinkled(f32),
    /// normal, with this value at one place only, counted from the end
    One(usize, f32),
    /// of random sign, with sizes between these powers of ten
    Spread(f32, f32),
    /// normal, times powers of ten from the first to the second in order
    Growing(f32, f32),
}

impl Fill {
    /// `count` values.
    pub(crate) fn make(self, rng: &mut Rng, count: usize) -> Vec<f32> {
        let scale = if let Self::Normal(scale) = self {
            scale
        } else {
            1.0
        };
        let mut values = rng.normals(count, scale);
        for (index, value) in values.iter_mut().enumerate() {
            match self {
                Self::Equal(v) => *value = v,
                Self::Alternating(v) => *value = if index % 2 == 0 { v } else { -v },
                Self::Sprinkled(v) if index % 7 == 3 => *value = v,
                Self::One(back, v) if index + 1 + back == count => *value = v,
                Self::Spread(low, high) => {
                    let size = 10_f64.powf(f64::from(low) + rng.unit() * f64::from(high - low));
                    *value = (size as f32).copysign(*value);
                }
                Self::Growing(low, high) => {
                    let power = low + (high - low) * index as f32 / count as f32;
                    *value *= 10_f64.powf(f64::from(power)) as f32;
                }
                _ => {}
            }
        }
        values
    }

    /// `rows` rows of `len` values whose starts are `stride` apart, with NaN between them.
    pub(crate) fn rows(self, rng: &mut Rng, rows: u32, len: u32, stride: u32) -> Vec<f32> {
        let mut all = Vec::new();
        for row in 0..rows {
            all.resize((row * stride) as usize, f32::NAN);
            all.extend(self.make(rng, len as usize));
        }
        all
    }
}
