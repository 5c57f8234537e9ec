//! What the typed launch functions need of a device.

use crate::error::ContractError;
use crate::kernel::Kernel;

/// Something that runs kernels, such as a reference to a GPU queue or to the emulator.
///
/// Implementations are expected to run [`Kernel::check`] before anything else.
pub trait Dispatch {
    /// A buffer or a part of one, as this device names it.
    type Slice<'a>;
    /// What a dispatch can fail with.
    type Error: From<ContractError>;

    /// Runs `kernel` with the complete push struct and the buffers in binding order.
    fn dispatch(
        self,
        kernel: &'static Kernel,
        words: &[u32],
        buffers: &[Self::Slice<'_>],
    ) -> Result<(), Self::Error>;
}
