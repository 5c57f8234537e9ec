//! What the driver said when a call failed.

use std::fmt;
use std::ops::Deref;

/// A driver call that failed, or a limit of the shim that was met. Dereferences to its details.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaError(Box<CudaErrorDetails>);

/// What is known of a failed driver call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaErrorDetails {
    /// The function that failed, such as `cuLaunchKernel`.
    pub call: String,
    /// The driver's code (`CUresult`); negative for the shim's own.
    pub code: i32,
    /// The driver's name of the code, such as `CUDA_ERROR_INVALID_VALUE`; empty where it has none.
    pub name: String,
    /// The driver's description of the code; empty where it has none.
    pub text: String,
    /// Which launch of a list failed; 0 for single calls.
    pub index: u32,
    /// The log of the driver's compiler or linker, where the call makes one.
    pub log: Option<String>,
}

impl From<CudaErrorDetails> for CudaError {
    fn from(details: CudaErrorDetails) -> Self {
        Self(Box::new(details))
    }
}

impl Deref for CudaError {
    type Target = CudaErrorDetails;

    fn deref(&self) -> &CudaErrorDetails {
        &self.0
    }
}

impl CudaError {
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub const OUT_OF_MEMORY: i32 = 2;
    /// `CUDA_ERROR_STUB_LIBRARY`: the toolkit's link-time stand-in was loaded instead of the driver.
    pub const STUB_LIBRARY: i32 = 34;
    /// `CUDA_ERROR_NO_DEVICE`.
    pub const NO_DEVICE: i32 = 100;
    /// `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub const ILLEGAL_ADDRESS: i32 = 700;

    /// Adds the log of the driver's compiler, unless it is blank.
    pub(crate) fn with_log(mut self, log: String) -> Self {
        self.0.log = Some(log).filter(|log| !log.trim().is_empty());
        self
    }

    /// What usually causes this code, where there is one usual cause.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self.code {
            2 => {
                "the GPU's memory is used up; other processes on it count too (nvidia-smi lists them)"
            }
            34 => {
                "this is the toolkit's stub, not the driver: take its directory off LD_LIBRARY_PATH"
            }
            100 => {
                "the driver sees no GPU: in a container, start it with --gpus all; check CUDA_VISIBLE_DEVICES"
            }
            200 | 209 => "the code does not fit this GPU's architecture",
            218 | 222 => "the PTX is newer than this driver's compiler: a newer driver is needed",
            300 | 301 => "the driver's files are incomplete: reinstall the driver",
            700 | 716 | 717 | 718 | 719 => {
                "a kernel made a bad access; the context is lost, and every later call reports this too"
            }
            702 => "the kernel ran longer than the display watchdog allows",
            802 => "the system is still starting (fabric manager on NVSwitch machines)",
            803 => {
                "libcuda and the kernel driver are of different versions: reboot after a driver update"
            }
            804 => {
                "the compatibility library does not support this GPU: use the driver's own libcuda"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed", self.call)?;
        match (self.name.is_empty(), self.code < 0) {
            (false, false) => write!(f, " with {} ({})", self.name, self.code)?,
            (false, true) => write!(f, ": {} ({})", self.name, own_text(self.code))?,
            (true, false) => write!(f, " with the unknown code {}", self.code)?,
            (true, true) => write!(f, ": {}", own_text(self.code))?,
        }
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        if let Some(hint) = self.hint() {
            write!(f, "; {hint}")?;
        }
        if let Some(log) = &self.log {
            write!(f, "\n{}", log.trim_end())?;
        }
        Ok(())
    }
}

impl std::error::Error for CudaError {}

/// Codes of the shim itself.
fn own_text(code: i32) -> &'static str {
    use crate::ffi;
    match code {
        ffi::ZINC_E_OPEN => "the library cannot be opened",
        ffi::ZINC_E_SYMBOL => "the library lacks this function",
        ffi::ZINC_E_MEMORY => "out of host memory",
        ffi::ZINC_E_UNSUPPORTED => "this driver lacks the function",
        ffi::ZINC_E_ARGUMENT => "there is no such node, or the stream is in another state",
        _ => "unknown code",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32, name: &str, text: &str) -> CudaError {
        let details = CudaErrorDetails {
            call: "cuInit".into(),
            code,
            name: name.into(),
            text: text.into(),
            index: 0,
            log: None,
        };
        details.into()
    }

    #[test]
    fn error_shows_call_name_code_text_and_hint() {
        let shown = error(
            100,
            "CUDA_ERROR_NO_DEVICE",
            "no CUDA-capable device is detected",
        )
        .to_string();
        for part in [
            "cuInit",
            "CUDA_ERROR_NO_DEVICE",
            "100",
            "no CUDA-capable device",
            "--gpus all",
        ] {
            assert!(shown.contains(part), "{part} is missing in: {shown}");
        }
    }

    #[test]
    fn error_shows_the_log_last() {
        let failed = error(
            218,
            "CUDA_ERROR_INVALID_PTX",
            "a PTX JIT compilation failed",
        );
        let failed = failed.with_log("ptxas error: line 3\n".into());
        assert!(failed.to_string().ends_with("\nptxas error: line 3"));
    }

    #[test]
    fn error_without_a_name_still_shows_its_code() {
        assert_eq!(
            error(12345, "", "").to_string(),
            "cuInit failed with the unknown code 12345"
        );
    }
}
