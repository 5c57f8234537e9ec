use crate::{Dispatch, KERNELS, index};

/// Push block of [`demo_scale`]: byte for byte what a host fills for the original shader.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DemoScalePush {
    /// elements of a row
    pub n: u32,
    /// first element
    pub x_offset: u32,
    /// factor
    pub factor: f32,
}

impl DemoScalePush {
    /// The block as bytes, in the order of the fields and the byte order of this machine.
    pub fn bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[0..4].copy_from_slice(&self.n.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.x_offset.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.factor.to_ne_bytes());
        bytes
    }
}

/// Buffers of [`demo_scale`], each a buffer or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct DemoScaleBuffers<S> {
    /// f32, read: \[rows, n\]; `(x_offset + n * rows) * 4` bytes
    pub x: S,
    /// f32, written: \[rows, n\]; `n * rows * 4` bytes
    pub y: S,
}

/// Scales a vector.
///
/// ```text
/// y = factor * x
/// ```
///
/// - `rows`: rows
/// - `wide`: layout (the original's default is 1)
///
/// # Errors
///
/// When a buffer is too small, misaligned or overlaps one that it must not overlap, or when one of these does not hold:
///
/// - `n % 4 == 0`
/// - `wide <= 1`
#[allow(clippy::too_many_arguments)]
pub fn demo_scale<'a, Q: Dispatch>(
    queue: Q,
    push: &DemoScalePush,
    rows: u32,
    wide: u32,
    buffers: DemoScaleBuffers<Q::Slice<'a>>,
) -> Result<(), Q::Error> {
    queue.dispatch(
        &KERNELS[index::DEMO_SCALE],
        &[push.n, push.x_offset, push.factor.to_bits(), rows, wide],
        &[buffers.x, buffers.y],
    )
}
