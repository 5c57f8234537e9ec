//! The dispatch check: words and bindings against the contract, before anything reaches a device.

use crate::arithmetic::EvalError;
use crate::error::{ContractError, Reason, Values};
use crate::kernel::{Buffer, Kernel};

/// Most buffers that a kernel binds.
pub const MAX_BUFFERS: usize = 16;

/// One bound buffer, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Binding {
    /// Address of its first byte. Only differences and alignment matter: any address space will do. 0 with 0 bytes
    /// stands for an unbound buffer.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Binding {
    /// A buffer that is not bound, for contracts that do not touch it under the given push values.
    pub const UNBOUND: Binding = Binding {
        address: 0,
        bytes: 0,
    };
}

/// The touched part of a binding: addresses from `start` to before `end`.
#[derive(Clone, Copy, Default)]
struct Range {
    start: u64,
    end: u64,
}

impl Kernel {
    /// Checks a dispatch: number of words and buffers, then preconditions, then size and alignment of every buffer,
    /// then that no written range overlaps another range in a way that the contract does not allow.
    ///
    /// Allocates only for errors.
    pub fn check(&self, words: &[u32], bindings: &[Binding]) -> Result<(), ContractError> {
        self.check_word_count(words)?;
        if bindings.len() != self.buffers.len() {
            return Err(ContractError::BufferCount {
                kernel: self.name,
                wanted: self.buffers.len(),
                found: bindings.len(),
            });
        }
        self.check_preconditions(words)?;
        let mut ranges = [Range::default(); MAX_BUFFERS];
        for ((buffer, binding), range) in self.buffers.iter().zip(bindings).zip(&mut ranges) {
            *range = self.check_buffer(buffer, *binding, words)?;
        }
        self.check_overlaps(&ranges[..bindings.len()])
    }

    /// Checks the number of words and the preconditions alone, for hosts that have no buffers yet.
    pub fn check_preconditions(&self, words: &[u32]) -> Result<(), ContractError> {
        self.check_word_count(words)?;
        for condition in self.requires {
            match (condition.holds)(words) {
                Ok(true) => {}
                Ok(false) => {
                    return Err(ContractError::Precondition {
                        kernel: self.name,
                        text: condition.text,
                        values: Values::of(self, condition.fields, words),
                    });
                }
                Err(error) => {
                    return Err(self.eval_error(
                        "a precondition",
                        condition.text,
                        condition.fields,
                        words,
                        error,
                    ));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn check_word_count(&self, words: &[u32]) -> Result<(), ContractError> {
        if words.len() == self.fields.len() {
            return Ok(());
        }
        Err(ContractError::WordCount {
            kernel: self.name,
            wanted: self.fields.len(),
            found: words.len(),
        })
    }

    fn check_buffer(
        &self,
        buffer: &Buffer,
        binding: Binding,
        words: &[u32],
    ) -> Result<Range, ContractError> {
        let fail = |expr: &crate::Expr, error| {
            self.eval_error(buffer.name, expr.text, expr.fields, words, error)
        };
        let bytes = (buffer.bytes.eval)(words).map_err(|error| fail(&buffer.bytes, error))?;
        let Some(wanted) = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0) else {
            return Ok(Range::default());
        };
        if binding.bytes < wanted {
            return Err(ContractError::BufferTooSmall {
                kernel: self.name,
                buffer: buffer.name,
                wanted,
                found: binding.bytes,
            });
        }
        if binding.address & (buffer.align - 1) != 0 {
            return Err(ContractError::Misaligned {
                kernel: self.name,
                buffer: buffer.name,
                wanted: buffer.align,
                found: binding.address,
            });
        }
        let start = (buffer.start.eval)(words).map_err(|error| fail(&buffer.start, error))?;
        Ok(Range {
            start: binding.address.saturating_add_signed(start),
            end: binding.address.saturating_add(wanted),
        })
    }

    fn check_overlaps(&self, ranges: &[Range]) -> Result<(), ContractError> {
        for (i, a) in ranges.iter().enumerate() {
            for (j, b) in ranges.iter().enumerate().skip(i + 1) {
                let overlap = a.start.max(b.start) < a.end.min(b.end);
                if overlap && (self.buffers[i].access.writes() || self.buffers[j].access.writes()) {
                    let allowed = self.may_alias.contains(&(i as u8, j as u8));
                    if allowed && a.start == b.start {
                        continue;
                    }
                    return Err(ContractError::Overlap {
                        kernel: self.name,
                        a: self.buffers[i].name,
                        b: self.buffers[j].name,
                        reason: if allowed {
                            Reason::NotSameStart
                        } else {
                            Reason::Never
                        },
                    });
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn eval_error(
        &self,
        what: &'static str,
        text: &'static str,
        fields: &[u8],
        words: &[u32],
        error: EvalError,
    ) -> ContractError {
        ContractError::Eval {
            kernel: self.name,
            what,
            text,
            values: Values::of(self, fields, words),
            error,
        }
    }
}
