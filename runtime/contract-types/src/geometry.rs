//! Grid, block and shared memory of a dispatch.

use crate::arithmetic::EvalError;
use crate::error::{ContractError, Values};
use crate::kernel::{CompiledArch, Kernel};

/// Most threads of a block on every CUDA architecture.
pub const MAX_BLOCK_THREADS: i64 = 1024;

/// Most blocks along x, y and z.
const MAX_GRID: [i64; 3] = [0x7fff_ffff, 0xffff, 0xffff];

/// Most threads along x, y and z.
const MAX_BLOCK: [i64; 3] = [1024, 1024, 64];

/// Most blocks of a cluster on any GPU. More than [`PORTABLE_CLUSTER`] need the driver's leave.
const MAX_CLUSTER: i64 = 16;

/// Most blocks of a cluster that every GPU with clusters takes.
pub const PORTABLE_CLUSTER: u32 = 8;

/// Launch parameters as the rule's expressions give them, unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents {
    /// Blocks per grid: x, y, z.
    pub grid: [i64; 3],
    /// Threads per block: x, y, z.
    pub block: [i64; 3],
    /// Blocks per cluster, along x.
    pub cluster: i64,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: i64,
}

/// Launch parameters within the limits of every CUDA device; only dynamic shared memory depends on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks per grid: x, y, z; none is zero.
    pub grid: [u32; 3],
    /// Threads per block: x, y, z; none is zero.
    pub block: [u32; 3],
    /// Blocks per cluster, along x, of which the grid has whole ones; 1 where the launch has no clusters.
    pub cluster: u32,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

impl Kernel {
    /// Launch parameters for an image that was compiled for `arch` (a number is one without a suffix; 0 is the emulator)
    /// on a device with `sm_count` multiprocessors. `None` means that there is nothing to do.
    pub fn geometry(
        &self,
        arch: impl Into<CompiledArch>,
        sm_count: u32,
        words: &[u32],
    ) -> Result<Option<Geometry>, ContractError> {
        let arch = arch.into();
        let rule = self.launch.iter().rev().find(|rule| rule.suits(arch));
        let Some(rule) = rule else {
            let reason = self.pending.unwrap_or("it has no launch rule");
            return Err(ContractError::Pending {
                kernel: self.name,
                reason,
            });
        };
        self.check_word_count(words)?;
        let extents =
            (rule.extents)(words, sm_count).map_err(|error| self.launch_error(words, error))?;
        if extents.grid.contains(&0) {
            return Ok(None);
        }
        let limited = |what: &'static str, values: [i64; 3], limits: [i64; 3]| {
            for axis in 0..3 {
                if !(1..=limits[axis]).contains(&values[axis]) {
                    return Err(ContractError::LaunchLimit {
                        kernel: self.name,
                        what,
                        axis: ['x', 'y', 'z'][axis],
                        most: limits[axis],
                        found: values[axis],
                    });
                }
            }
            Ok(values.map(|value| value as u32))
        };
        let grid = limited("grid", extents.grid, MAX_GRID)?;
        let block = limited("block", extents.block, MAX_BLOCK)?;
        let threads = extents.block.iter().product();
        if threads > MAX_BLOCK_THREADS {
            return Err(ContractError::BlockTooLarge {
                kernel: self.name,
                most: MAX_BLOCK_THREADS,
                found: threads,
            });
        }
        if !(1..=MAX_CLUSTER).contains(&extents.cluster) || extents.grid[0] % extents.cluster != 0 {
            return Err(ContractError::Cluster {
                kernel: self.name,
                most: MAX_CLUSTER,
                found: extents.cluster,
                blocks: extents.grid[0],
            });
        }
        let shared_bytes =
            u32::try_from(extents.shared_bytes).map_err(|_| ContractError::SharedMemory {
                kernel: self.name,
                found: extents.shared_bytes,
            })?;
        Ok(Some(Geometry {
            grid,
            block,
            cluster: extents.cluster as u32,
            shared_bytes,
        }))
    }

    #[cold]
    fn launch_error(&self, words: &[u32], error: EvalError) -> ContractError {
        let all = Vec::from_iter(0..self.fields.len() as u8);
        ContractError::Eval {
            kernel: self.name,
            what: "the launch rule",
            text: "grid, block, cluster, shared",
            values: Values::of(self, &all, words),
            error,
        }
    }
}
