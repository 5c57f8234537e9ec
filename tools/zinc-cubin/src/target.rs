//! Where kernels run: the emulator or a GPU, behind one interface.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use cubin_format::{Capability, TargetEntry};
use serde::Serialize;
use zinc_contract::Kernel;
use zinc_emulator::Emulator;
use zinc_oracle::{Case, CaseBuffer};
use zinc_runtime::{Buffer, BufferSlice, Device, DeviceSelector, Library, Queue};

use crate::context::Context;
use crate::failure::Failure;

/// Guard bytes on each side of a buffer on the GPU; a multiple of every alignment that contracts ask for.
const GUARD: u64 = 256;
/// What the guard bytes hold.
const GUARD_BYTE: u8 = 0xA5;

/// How buffers lie in the GPU's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Between guard bytes, which are compared after the run.
    Guarded,
    /// Each in an allocation of its size, so that a memory checker sees an access past the end.
    Exact,
}

/// A device that kernels run on.
pub enum Target {
    /// The emulator.
    Cpu(Emulator),
    /// A GPU.
    Gpu(Box<Gpu>),
}

/// A GPU with the archive's kernels.
pub struct Gpu {
    device: Device,
    capability: Capability,
    /// One user at a time; lazily loaded kernels stay loaded.
    queue: Mutex<Queue>,
    layout: Layout,
}

/// What a report says of the device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceInfo {
    /// `cpu` or `gpu`.
    pub kind: &'static str,
    /// Product name.
    pub name: String,
    /// Compute capability, for a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// CUDA version of the driver, for a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

impl DeviceInfo {
    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.capability.is_some()
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let (Some(capability), Some(driver)) = (&self.capability, &self.driver) {
            write!(f, " (capability {capability}, driver for CUDA {driver})")?;
        }
        Ok(())
    }
}

/// What was asked for with `--device`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Auto,
    Cpu,
    Gpu(DeviceSelector),
}

impl Wanted {
    fn parse(text: &str) -> Result<Self, Failure> {
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "gpu" => Ok(Self::Gpu(DeviceSelector::Auto)),
            Some(("gpu", which)) if !which.is_empty() => {
                let selector = which.parse().with_context(|| format!("device {text:?}"))?;
                Ok(Self::Gpu(selector))
            }
            _ => Err(Failure::input(format!(
                "unknown device {text:?}: wanted auto, cpu, gpu or gpu:N"
            ))),
        }
    }
}

impl Target {
    /// Opens the device that `--device` asks for.
    ///
    /// # Errors
    /// Input for a text that is no device, no device where a GPU was asked for and cannot be used.
    pub fn open(text: &str, context: &Context, layout: Layout) -> Result<Self, Failure> {
        match Wanted::parse(text)? {
            Wanted::Cpu => Ok(Self::emulator()),
            Wanted::Gpu(selector) => Self::gpu(&selector, context, layout),
            Wanted::Auto => match Device::open(&DeviceSelector::Auto) {
                Err(error) if error.is_no_device() => Ok(Self::emulator()),
                _ => Self::gpu(&DeviceSelector::Auto, context, layout),
            },
        }
    }

    /// The emulator.
    pub fn emulator() -> Self {
        Self::Cpu(Emulator::default())
    }

    fn gpu(selector: &DeviceSelector, context: &Context, layout: Layout) -> Result<Self, Failure> {
        let open = || -> anyhow::Result<Gpu> {
            let device = Device::open(selector)?;
            let capability = device.info().capability;
            let library = Library::new(&device, context.archive.clone())?;
            let queue = Mutex::new(Queue::new(&library)?);
            Ok(Gpu {
                device,
                capability,
                queue,
                layout,
            })
        };
        open()
            .map(|gpu| Self::Gpu(Box::new(gpu)))
            .map_err(Failure::NoDevice)
    }

    /// What it is.
    pub fn info(&self) -> DeviceInfo {
        match self {
            Self::Cpu(_) => DeviceInfo {
                kind: "cpu",
                name: format!("emulator on {} threads", rayon::current_num_threads()),
                capability: None,
                driver: None,
            },
            Self::Gpu(gpu) => DeviceInfo {
                kind: "gpu",
                name: gpu.device.info().name.clone(),
                capability: Some(gpu.capability.to_string()),
                driver: Some(gpu.device.driver().version().to_string()),
            },
        }
    }

    /// The image of a kernel that runs here; none on the emulator.
    pub fn image<'a>(&self, context: &'a Context, kernel: &Kernel) -> Option<&'a TargetEntry> {
        match self {
            Self::Cpu(_) => None,
            Self::Gpu(gpu) => context
                .archive
                .kernel(kernel.name)
                .ok()?
                .choose(gpu.capability)
                .ok(),
        }
    }

    /// Runs a case and returns the final contents of all buffers, those of shared memory repeated.
    ///
    /// On the emulator it runs twice, with opposite thread orders and different shared memory poison; different bits are
    /// an error.
    ///
    /// # Errors
    /// Whatever the device says, and a changed guard byte.
    pub fn run_case(&self, case: &Case) -> anyhow::Result<Vec<Vec<u8>>> {
        match self {
            Self::Cpu(emulator) => {
                let buffers = upload(case, &case.buffers, |bytes| Ok(emulator.upload(bytes)?))?;
                emulator.dispatch_checked_twice(case.kernel, &case.words, &buffers)?;
                Ok(buffers.iter().map(zinc_emulator::Buffer::read).collect())
            }
            Self::Gpu(gpu) => gpu.run_both_ways(case),
        }
    }

    /// Runs a case once and returns the buffers, then `repeat` times for the median time of one dispatch.
    ///
    /// Buffers that are read and written go on from where the last run left them; only the first run's results are
    /// returned.
    ///
    /// # Errors
    /// As [`Target::run_case`].
    pub fn time_case(&self, case: &Case, repeat: u32) -> anyhow::Result<(Vec<Vec<u8>>, Duration)> {
        match self {
            Self::Cpu(emulator) => {
                let outputs = self.run_case(case)?;
                let buffers = upload(case, &case.buffers, |bytes| Ok(emulator.upload(bytes)?))?;
                let mut times = Vec::new();
                for _ in 0..repeat.max(1) {
                    let start = Instant::now();
                    emulator.dispatch(case.kernel, &case.words, &buffers)?;
                    times.push(start.elapsed());
                }
                Ok((outputs, median(times)))
            }
            Self::Gpu(gpu) => gpu.run(case, false, repeat.max(1)),
        }
    }
}

/// One buffer per binding, those of shared memory as clones of their owner; a case leaves unbound buffers empty.
fn upload<B: Clone>(
    case: &Case,
    buffers: &[CaseBuffer],
    mut make: impl FnMut(&[u8]) -> anyhow::Result<B>,
) -> anyhow::Result<Vec<B>> {
    let mut made: Vec<Option<B>> = vec![None; buffers.len()];
    for index in 0..buffers.len() {
        let owner = case.owner(index);
        if made[owner].is_none() {
            made[owner] = Some(make(&buffers[owner].bytes)?);
        }
        made[index] = made[owner].clone();
    }
    Ok(made.into_iter().flatten().collect())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// A buffer of a case in the GPU's memory.
#[derive(Clone)]
struct Placed {
    memory: Buffer,
    guard: u64,
    bytes: u64,
}

impl Placed {
    fn slice(&self) -> anyhow::Result<BufferSlice<'_>> {
        if self.bytes == 0 {
            return Ok(BufferSlice::UNBOUND);
        }
        Ok(self.memory.slice(self.guard..self.guard + self.bytes)?)
    }
}

impl Gpu {
    /// The device, and a queue for the archive's kernels.
    pub fn into_parts(self) -> (Device, Queue) {
        let queue = self.queue.into_inner();
        (
            self.device,
            queue.unwrap_or_else(std::sync::PoisonError::into_inner),
        )
    }

    /// Runs a case and reads its buffers. A kernel that reads some buffers early where it may runs twice, without and with
    /// that.
    fn run_both_ways(&self, case: &Case) -> anyhow::Result<Vec<Vec<u8>>> {
        let (outputs, _) = self.run(case, false, 0)?;
        if !case.kernel.early.is_empty() {
            let (early, _) = self.run(case, true, 0)?;
            let differs = |at: usize| outputs[at] != early[at];
            if let Some(at) = (0..outputs.len()).find(|at| differs(*at)) {
                let buffer = case.kernel.buffers[at].name;
                bail!("buffer {buffer}: other bytes where the kernel may read early");
            }
        }
        Ok(outputs)
    }

    /// Runs a case, reads its buffers, and then times `repeat` more runs. `early`: whether the kernel may read early what it
    /// reads early.
    fn run(
        &self,
        case: &Case,
        early: bool,
        repeat: u32,
    ) -> anyhow::Result<(Vec<Vec<u8>>, Duration)> {
        // Another case's panic leaves nothing behind that this one uses.
        let queue = self
            .queue
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let placed = upload(case, &case.buffers, |bytes| self.place(&queue, bytes))?;
        let constant = if early { case.kernel.early } else { &[] };
        for at in constant {
            placed[usize::from(*at)].memory.make_constant()?;
        }
        let slices = placed
            .iter()
            .map(Placed::slice)
            .collect::<anyhow::Result<Vec<_>>>()?;
        queue.dispatch(case.kernel, &case.words, &slices)?;
        let outputs = placed
            .iter()
            .zip(case.kernel.buffers)
            .map(|(buffer, contract)| {
                read_back(&queue, buffer).with_context(|| format!("buffer {}", contract.name))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut times = Vec::new();
        for _ in 0..repeat {
            let (_, time) = queue.time(|queue| -> anyhow::Result<()> {
                queue.dispatch(case.kernel, &case.words, &slices)?;
                Ok(())
            })?;
            times.push(time);
        }
        Ok((outputs, median(times)))
    }

    fn place(&self, queue: &Queue, bytes: &[u8]) -> anyhow::Result<Placed> {
        let guard = match self.layout {
            Layout::Guarded => GUARD,
            Layout::Exact => 0,
        };
        let length = bytes.len() as u64;
        let memory = self.device.buffer((length + 2 * guard).max(1))?;
        if guard > 0 {
            queue.fill(memory.slice(..guard)?, GUARD_BYTE)?;
            queue.fill(memory.slice(guard + length..)?, GUARD_BYTE)?;
        }
        if length > 0 {
            queue.write(memory.slice(guard..guard + length)?, bytes)?;
        }
        Ok(Placed {
            memory,
            guard,
            bytes: length,
        })
    }
}

/// The buffer's bytes, after a look at its guards.
fn read_back(queue: &Queue, buffer: &Placed) -> anyhow::Result<Vec<u8>> {
    let mut all = vec![0; (buffer.bytes + 2 * buffer.guard) as usize];
    if all.is_empty() {
        return Ok(all);
    }
    queue.read(buffer.memory.slice(..all.len() as u64)?, &mut all)?;
    let inside = buffer.guard as usize..(buffer.guard + buffer.bytes) as usize;
    let changed = all
        .iter()
        .enumerate()
        .find(|(at, byte)| !inside.contains(at) && **byte != GUARD_BYTE);
    if let Some((at, byte)) = changed {
        anyhow::bail!(
            "guard byte at offset {} was overwritten with {byte:#04x}",
            at as i64 - buffer.guard as i64
        );
    }
    Ok(all[inside].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_texts_are_parsed_or_refused() {
        assert_eq!(Wanted::parse("auto").unwrap(), Wanted::Auto);
        assert_eq!(Wanted::parse("cpu").unwrap(), Wanted::Cpu);
        assert_eq!(
            Wanted::parse("gpu").unwrap(),
            Wanted::Gpu(DeviceSelector::Auto)
        );
        assert_eq!(
            Wanted::parse("gpu:3").unwrap(),
            Wanted::Gpu(DeviceSelector::Ordinal(3))
        );
        for bad in ["", "gpu:", "gpu:x", "cuda", "cpu:0"] {
            assert!(Wanted::parse(bad).is_err(), "{bad} was accepted");
        }
    }

    #[test]
    fn median_of_nothing_is_zero() {
        assert_eq!(median(vec![]), Duration::ZERO);
        assert_eq!(
            median([3, 1, 2].map(Duration::from_secs).to_vec()),
            Duration::from_secs(2)
        );
    }
}
