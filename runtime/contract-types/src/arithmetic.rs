//! The checked arithmetic of the generated expressions. The catalog's own evaluator gives the same results.

/// Why an expression has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A result does not fit in 64 bits.
    #[error("the value does not fit in 64 bits")]
    Overflow,
    /// An exact division left a remainder.
    #[error("{dividend} / {divisor} leaves a remainder")]
    Inexact {
        /// Left side.
        dividend: i64,
        /// Right side.
        divisor: i64,
    },
    /// The divisor of `/`, `%` or `ceil_div` is zero or negative.
    #[error("division by {divisor}")]
    Divisor {
        /// Right side.
        divisor: i64,
    },
    /// The push struct is shorter than the expression needs.
    #[error("the push struct has no word {index}")]
    MissingWord {
        /// Index of the word.
        index: usize,
    },
}

/// A word of the push struct.
///
/// # Errors
/// [`EvalError::MissingWord`].
#[inline]
pub fn word(words: &[u32], index: usize) -> Result<i64, EvalError> {
    match words.get(index) {
        Some(word) => Ok(i64::from(*word)),
        None => Err(EvalError::MissingWord { index }),
    }
}

/// `a + b`.
///
/// # Errors
/// [`EvalError::Overflow`].
#[inline]
pub fn add(a: i64, b: i64) -> Result<i64, EvalError> {
    a.checked_add(b).ok_or(EvalError::Overflow)
}

/// `a - b`.
///
/// # Errors
/// [`EvalError::Overflow`].
#[inline]
pub fn sub(a: i64, b: i64) -> Result<i64, EvalError> {
    a.checked_sub(b).ok_or(EvalError::Overflow)
}

/// `a * b`.
///
/// # Errors
/// [`EvalError::Overflow`].
#[inline]
pub fn mul(a: i64, b: i64) -> Result<i64, EvalError> {
    a.checked_mul(b).ok_or(EvalError::Overflow)
}

/// `a / b`, exact.
///
/// # Errors
/// [`EvalError::Divisor`] and [`EvalError::Inexact`].
#[inline]
pub fn div(a: i64, b: i64) -> Result<i64, EvalError> {
    let divisor = positive(b)?;
    if a % divisor != 0 {
        return Err(EvalError::Inexact {
            dividend: a,
            divisor,
        });
    }
    Ok(a / divisor)
}

/// `a % b`, never negative.
///
/// # Errors
/// [`EvalError::Divisor`].
#[inline]
pub fn rem(a: i64, b: i64) -> Result<i64, EvalError> {
    Ok(a.rem_euclid(positive(b)?))
}

/// The least integer that is not below `a / b`.
///
/// # Errors
/// [`EvalError::Divisor`].
#[inline]
pub fn ceil_div(a: i64, b: i64) -> Result<i64, EvalError> {
    let divisor = positive(b)?;
    Ok(a.div_euclid(divisor) + i64::from(a.rem_euclid(divisor) != 0))
}

#[inline]
fn positive(divisor: i64) -> Result<i64, EvalError> {
    if divisor > 0 {
        Ok(divisor)
    } else {
        Err(EvalError::Divisor { divisor })
    }
}
