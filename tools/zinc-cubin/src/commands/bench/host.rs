//! The host side: what a dispatch, a graph, loading and the first result of a process cost the processor.

use std::ffi::c_void;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use zinc_contract::Kernel;
use zinc_runtime::{Buffer, BufferSlice, CommandList, Library, Queue, compiled_arch};

use super::measure::Gpu;
use crate::context::Context;
use crate::failure::{OnDevice, Outcome};
use crate::output::{self, Align, Table};
use crate::target::{Layout, Target};

/// Dispatches of one sample: as many as a decoded token takes.
const DISPATCHES: usize = 600;
/// Samples, of which the median counts.
const SAMPLES: usize = 41;
/// Processes that are started for a figure.
const STARTS: usize = 7;
/// The kernel of the measurements: nothing is cheaper to run.
const KERNEL: &str = "vadd";
const ELEMENTS: u32 = 256;

/// The figures; times are medians.
#[derive(Serialize)]
pub struct HostReport {
    dispatches: usize,
    /// Host time per dispatch.
    dispatch: Vec<DispatchCost>,
    kernels: usize,
    /// A new library that loads every kernel at once.
    load_all_ms: f64,
    /// A new library that loads one kernel when it is first dispatched.
    load_one_ms: f64,
    /// From starting the process to the first result, everything included.
    first_result_ms: f64,
    /// The driver's part of it: initialization and the context.
    driver_ms: f64,
    /// `zinc-cubin list`, from start to end.
    list_ms: f64,
}

#[derive(Serialize)]
struct DispatchCost {
    way: &'static str,
    nanoseconds: f64,
    of_raw: f64,
}

/// Measures everything.
///
/// # Errors
/// A failure of the driver, or of a process that was started.
pub fn measure(context: &Context, gpu: &Gpu, device: &str) -> anyhow::Result<HostReport> {
    let dispatch = dispatch_cost(context, gpu)?;
    let kernel = zinc_contract::kernel(KERNEL)?;
    let mut all = Vec::new();
    let mut one = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let library = Library::new(&gpu.device, context.archive.clone())?;
        library.load_all()?;
        all.push(start.elapsed());
        let start = Instant::now();
        Library::new(&gpu.device, context.archive.clone())?.load(kernel)?;
        one.push(start.elapsed());
    }
    let mut first = Vec::new();
    let mut driver = Vec::new();
    for _ in 0..STARTS {
        let (total, report) = start_first_result(context, device)?;
        first.push(total);
        driver.push(Duration::from_secs_f64(report.driver_ms / 1e3));
    }
    let mut list = Vec::new();
    for _ in 0..STARTS {
        let start = Instant::now();
        let status = own_program(context)?
            .arg("list")
            .stdout(Stdio::null())
            .status()?;
        list.push(start.elapsed());
        ensure!(status.success(), "list ended with {status}");
    }
    Ok(HostReport {
        dispatches: DISPATCHES,
        dispatch,
        kernels: context.archive.kernels().len(),
        load_all_ms: milliseconds(all),
        load_one_ms: milliseconds(one),
        first_result_ms: milliseconds(first),
        driver_ms: milliseconds(driver),
        list_ms: milliseconds(list),
    })
}

impl HostReport {
    /// Every figure with its unit.
    pub fn figures(&self) -> Vec<(String, String)> {
        let mut figures = Vec::new();
        for cost in &self.dispatch {
            figures.push((
                format!("host time of a dispatch: {}", cost.way),
                format!("{:.0} ns, {:.3} of raw", cost.nanoseconds, cost.of_raw),
            ));
        }
        let rest = self.first_result_ms - self.driver_ms;
        for (what, time) in [
            (
                format!("loading all {} kernels", self.kernels),
                self.load_all_ms,
            ),
            ("loading one kernel".to_owned(), self.load_one_ms),
            (
                "process start to first result".to_owned(),
                self.first_result_ms,
            ),
            (
                "of which the driver and its context".to_owned(),
                self.driver_ms,
            ),
            ("of which everything else".to_owned(), rest),
            ("list, the whole process".to_owned(), self.list_ms),
        ] {
            figures.push((what, format!("{time:.2} ms")));
        }
        figures
    }

    /// A table for people.
    pub fn human(&self, colour: bool) -> String {
        let columns = [("host side", Align::Left), ("median", Align::Right)];
        let mut table = Table::new(colour, &columns);
        for (what, figure) in self.figures() {
            table.row([what, figure]);
        }
        table.to_string()
    }
}

/// What a process says of its first result.
#[derive(Serialize, Deserialize)]
struct FirstResult {
    driver_ms: f64,
}

/// Opens the device, runs one kernel and prints how long the driver took; the process that started this one times the rest.
pub fn first_result(context: &Context, device: &str) -> Outcome {
    let start = Instant::now();
    let target = Target::open(device, context, Layout::Exact)?;
    let driver_ms = start.elapsed().as_secs_f64() * 1e3;
    let Target::Gpu(gpu) = target else {
        return Err(crate::failure::Failure::NoDevice(anyhow::anyhow!(
            "there is no GPU to measure"
        )));
    };
    let (_, queue) = gpu.into_parts();
    let kernel = zinc_contract::kernel(KERNEL)?;
    let buffers = buffers(&queue).or_check()?;
    let slices: Vec<BufferSlice<'_>> = buffers.iter().map(Buffer::all).collect();
    queue.dispatch(kernel, &[ELEMENTS], &slices).or_check()?;
    let mut sums = vec![0; ELEMENTS as usize * 4];
    queue.read(buffers[2].all(), &mut sums).or_check()?;
    let wanted = f32::from_le_bytes([ONE; 4]) * 2.0;
    if sums.chunks(4).any(|sum| sum != wanted.to_le_bytes()) {
        return Err(crate::failure::Failure::check("the first result is wrong"));
    }
    output::text(&format!(
        "{}\n",
        serde_json::to_string(&FirstResult { driver_ms })?
    ))
}

/// Runs this program for its first result: the time until it was there, and what the program said.
fn start_first_result(context: &Context, device: &str) -> anyhow::Result<(Duration, FirstResult)> {
    let start = Instant::now();
    let mut child = own_program(context)?
        .args(["bench", "--first-result", "--device", device])
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().context("the pipe was asked for")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let total = start.elapsed();
    let status = child.wait()?;
    ensure!(status.success(), "the first result ended with {status}");
    Ok((total, serde_json::from_str(&line)?))
}

/// This program, with the same archive.
fn own_program(context: &Context) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(path) = &context.archive_path {
        command.arg("--archive").arg(path);
    }
    Ok(command)
}

/// The byte that all floats of the inputs are made of; 2 times such a float is exact.
const ONE: u8 = 0x3f;

fn buffers(queue: &Queue) -> anyhow::Result<Vec<Buffer>> {
    let bytes = u64::from(ELEMENTS) * 4;
    let mut buffers = Vec::new();
    for _ in 0..3 {
        let buffer = queue.device().buffer(bytes)?;
        queue.fill(buffer.all(), ONE)?;
        buffers.push(buffer);
    }
    Ok(buffers)
}

/// `cuLaunchKernel`.
type Launch = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> i32;
/// `cuLaunchKernelEx`.
type LaunchWith = unsafe extern "C" fn(
    *const LaunchConfig,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> i32;
/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: *mut c_void,
    attributes: *mut LaunchAttribute,
    count: u32,
}
/// `CUlaunchAttribute` with an integer for its value.
#[repr(C)]
struct LaunchAttribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const OVERLAP: u32 = 6;
/// The first architecture where a launch may overlap the one before it.
const OVERLAP_SINCE: u32 = 90;
/// `cuModuleLoadDataEx`.
type Load =
    unsafe extern "C" fn(*mut *mut c_void, *const c_void, u32, *mut i32, *mut *mut c_void) -> i32;
/// `cuModuleGetFunction`.
type Find = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const std::ffi::c_char) -> i32;

/// A measured way to launch: its name, and the launches of one sample.
type Way<'a> = (&'static str, Box<dyn Fn() -> anyhow::Result<()> + 'a>);

/// Host time per dispatch in every way there is, beside the driver's own launch.
fn dispatch_cost(context: &Context, gpu: &Gpu) -> anyhow::Result<Vec<DispatchCost>> {
    let kernel: &'static Kernel = zinc_contract::kernel(KERNEL)?;
    let queue = &gpu.queue;
    let words = [ELEMENTS];
    let buffers = buffers(queue)?;
    let slices: Vec<BufferSlice<'_>> = buffers.iter().map(Buffer::all).collect();
    let target = gpu.library.load(kernel)?.target;
    let geometry = kernel
        .geometry(compiled_arch(target), gpu.device.info().sm_count, &words)?
        .context("there is work")?;
    queue.commit_and_wait()?;

    let mut image = context.archive.image(kernel.name, target)?;
    // PTX is text that ends with a zero.
    image.push(0);
    // SAFETY: the driver is open already, so that nothing is initialized here.
    let driver = unsafe { libloading::Library::new(gpu.device.driver().path()) }?;
    // SAFETY: the functions are declared as the driver's interface has them.
    let (load, find, launch) = unsafe {
        (
            *driver.get::<Load>(b"cuModuleLoadDataEx")?,
            *driver.get::<Find>(b"cuModuleGetFunction")?,
            *driver.get::<Launch>(b"cuLaunchKernel")?,
        )
    };
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the image is a whole cubin, and the device's context is current on this thread since the queue was used here.
    let code = unsafe {
        let none = std::ptr::null_mut();
        load(
            &mut module,
            image.as_ptr().cast(),
            0,
            none,
            std::ptr::null_mut(),
        )
    };
    ensure!(code == 0, "cuModuleLoadDataEx: {code}");
    // SAFETY: as above; the name ends with a zero.
    let code = unsafe { find(&mut function, module, c"vadd".as_ptr()) };
    ensure!(code == 0, "cuModuleGetFunction: {code}");
    // The launch that the runtime makes for this kernel, and the plain one.
    let launch_with = match kernel.overlap && target.arch.number() >= OVERLAP_SINCE {
        // SAFETY: as above.
        true => unsafe { driver.get::<LaunchWith>(b"cuLaunchKernelEx") }.ok(),
        false => None,
    };
    let (grid, block) = (geometry.grid, geometry.block);
    let call = |plain: bool| {
        let mut addresses = [0, 1, 2].map(|at: usize| buffers[at].address());
        let mut push = ELEMENTS;
        let [a, b, c] = &mut addresses;
        let mut parameters: [*mut c_void; 4] = [
            std::ptr::from_mut(a).cast(),
            std::ptr::from_mut(b).cast(),
            std::ptr::from_mut(c).cast(),
            (&raw mut push).cast(),
        ];
        let (stream, shared) = (queue.raw_stream(), geometry.shared_bytes);
        let parameters = parameters.as_mut_ptr();
        let none = std::ptr::null_mut();
        let code = match &launch_with {
            Some(launch_with) if !plain => {
                let mut attribute = LaunchAttribute {
                    id: OVERLAP,
                    padding: 0,
                    value: [0; 16],
                };
                attribute.value[0] = 1;
                let config = LaunchConfig {
                    grid,
                    block,
                    shared_bytes: shared,
                    stream,
                    attributes: &raw mut attribute,
                    count: 1,
                };
                // SAFETY: the parameters are those of vadd, and the buffers have all its elements.
                unsafe { launch_with(&raw const config, function, parameters, none) }
            }
            // SAFETY: as above.
            _ => unsafe {
                let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
                launch(
                    function, gx, gy, gz, bx, by, bz, shared, stream, parameters, none,
                )
            },
        };
        ensure!(code == 0, "the driver's launch failed: {code}");
        Ok(())
    };
    let raw = || call(false);
    let plain = || call(true);

    let mut list = CommandList::new(&gpu.library);
    for _ in 0..DISPATCHES {
        list.dispatch(kernel, &words, &slices)?;
    }
    let graph = list.graph()?;
    queue.prepare(&graph)?;
    let each = |work: &dyn Fn() -> anyhow::Result<()>| (0..DISPATCHES).try_for_each(|_| work());
    let checked = || Ok(queue.dispatch(kernel, &words, &slices)?);
    let unchecked = || {
        // SAFETY: words, buffers and geometry were checked above.
        unsafe { queue.dispatch_unchecked(kernel, geometry, &words, &slices) }?;
        Ok(())
    };
    let own = match launch_with {
        Some(_) => "cuLaunchKernelEx, overlapping",
        None => "cuLaunchKernel",
    };
    let ways: [Way<'_>; 6] = [
        (own, Box::new(|| each(&raw))),
        ("cuLaunchKernel, plain", Box::new(|| each(&plain))),
        ("dispatch, checked", Box::new(|| each(&checked))),
        ("dispatch, unchecked", Box::new(|| each(&unchecked))),
        ("command list", Box::new(|| Ok(queue.submit(&list)?))),
        ("graph replay", Box::new(|| Ok(queue.launch(&graph)?))),
    ];
    // Interleaved, so that a change of clocks meets every way.
    let mut samples = vec![Vec::with_capacity(SAMPLES); ways.len()];
    for _ in 0..SAMPLES {
        for ((_, launches), samples) in ways.iter().zip(&mut samples) {
            queue.synchronize()?;
            let start = Instant::now();
            launches()?;
            samples.push(start.elapsed());
            queue.commit_and_wait()?;
        }
    }
    let per_dispatch: Vec<f64> = samples
        .into_iter()
        .map(|samples| milliseconds(samples) * 1e6 / DISPATCHES as f64)
        .collect();
    let costs = ways.iter().zip(&per_dispatch);
    Ok(costs
        .map(|((way, _), nanoseconds)| DispatchCost {
            way,
            nanoseconds: *nanoseconds,
            of_raw: nanoseconds / per_dispatch[0],
        })
        .collect())
}

/// The median in milliseconds; 0 of nothing.
fn milliseconds(mut samples: Vec<Duration>) -> f64 {
    samples.sort_unstable();
    let median = samples.get(samples.len() / 2).copied();
    median.unwrap_or_default().as_secs_f64() * 1e3
}
