//! Measures what a dispatch costs the host: checked, unchecked, in a list and in a graph, against raw `cuLaunchKernel`.
//!
//! `cargo run --release -p zinc-runtime --example dispatch_cost` on a machine with a GPU. Exits with 1 where a checked
//! dispatch costs more than 1.10 times the raw call, an unchecked one more than 1.02 times, or where a graph is not at least
//! 5 times cheaper than launching one by one.

#[path = "../tests/common/ptx.rs"]
mod ptx;

use std::error::Error;
use std::ffi::c_void;
use std::time::{Duration, Instant};

use cubin_format::archive::Payload;
use cubin_format::{Archive, ArchiveBuilder, Metadata, NewKernel, NewTarget, Resources};
use zinc_runtime::{BufferSlice, CommandList, Device, DeviceSelector, Library, Queue};

/// Dispatches of one sample: as many as a decoded token takes.
const DISPATCHES: usize = 600;
/// Samples, of which the median counts.
const SAMPLES: usize = 41;

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

/// A measured way to launch: its name, and the launches of one sample.
type Row<'a> = (&'a str, Box<dyn Fn() + 'a>);

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open(&DeviceSelector::Auto)?;
    let library = Library::new(&device, archive()?)?;
    let queue = Queue::new(&library)?;
    let kernel = zinc_contract::kernel("vadd")?;
    let words = [256u32];
    let buffers = [
        device.buffer(1024)?,
        device.buffer(1024)?,
        device.buffer(1024)?,
    ];
    for buffer in &buffers {
        queue.fill(buffer.all(), 0)?;
    }
    let slices: [BufferSlice<'_>; 3] = std::array::from_fn(|at| buffers[at].all());
    let target = library.load(kernel)?.target;
    let geometry = kernel
        .geometry(target.arch.number(), device.info().sm_count, &words)?
        .ok_or("vadd of 256 elements has work")?;
    queue.commit_and_wait()?;

    // SAFETY: the driver is open already; the functions are declared as the driver API has them.
    let driver = unsafe { libloading::Library::new(device.driver().path()) }?;
    let (mut module, mut function) = (
        std::ptr::null_mut::<c_void>(),
        std::ptr::null_mut::<c_void>(),
    );
    let mut image = ptx::VADD_PTX.as_bytes().to_vec();
    image.push(0);
    // SAFETY: as above; the context is current on this thread since the device was used here.
    let launch = unsafe {
        let load: libloading::Symbol<unsafe extern "C" fn(*mut *mut c_void, *const u8) -> i32> =
            driver.get(b"cuModuleLoadData")?;
        let find: libloading::Symbol<
            unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const u8) -> i32,
        > = driver.get(b"cuModuleGetFunction")?;
        assert_eq!(load(&mut module, image.as_ptr()), 0);
        assert_eq!(find(&mut function, module, c"vadd".as_ptr().cast()), 0);
        *driver.get::<Launch>(b"cuLaunchKernel")?
    };
    let raw = || {
        let mut addresses: [u64; 3] = std::array::from_fn(|at| buffers[at].address());
        let mut push = words[0];
        let mut parameters: [*mut c_void; 4] = [
            (&raw mut addresses[0]).cast(),
            (&raw mut addresses[1]).cast(),
            (&raw mut addresses[2]).cast(),
            (&raw mut push).cast(),
        ];
        // SAFETY: parameters are those of vadd, and the buffers have 256 floats.
        let code = unsafe {
            launch(
                function,
                geometry.grid[0],
                geometry.grid[1],
                geometry.grid[2],
                geometry.block[0],
                geometry.block[1],
                geometry.block[2],
                geometry.shared_bytes,
                queue.raw_stream(),
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        assert_eq!(code, 0);
    };

    let mut list = CommandList::new(&library);
    for _ in 0..DISPATCHES {
        list.dispatch(kernel, &words, &slices)?;
    }
    let graph = list.graph()?;
    queue.prepare(&graph)?;

    let each = |work: &dyn Fn()| {
        for _ in 0..DISPATCHES {
            work();
        }
    };
    let checked = || {
        queue
            .dispatch(kernel, &words, &slices)
            .expect("a good dispatch")
    };
    let unchecked = || {
        // SAFETY: words, buffers and geometry were checked above.
        unsafe { queue.dispatch_unchecked(kernel, geometry, &words, &slices) }
            .expect("a good dispatch");
    };
    let rows: [Row<'_>; 5] = [
        ("raw cuLaunchKernel", Box::new(|| each(&raw))),
        ("dispatch, checked", Box::new(|| each(&checked))),
        ("dispatch, unchecked", Box::new(|| each(&unchecked))),
        (
            "command list",
            Box::new(|| queue.submit(&list).expect("a good list")),
        ),
        (
            "graph",
            Box::new(|| queue.launch(&graph).expect("a good graph")),
        ),
    ];

    // Interleaved, so that a change of clocks meets every row.
    let mut samples = vec![Vec::with_capacity(SAMPLES); rows.len()];
    for _ in 0..SAMPLES {
        for (row, samples) in rows.iter().zip(&mut samples) {
            queue.synchronize()?;
            let start = Instant::now();
            row.1();
            samples.push(start.elapsed());
            queue.commit_and_wait()?;
        }
    }
    let medians: Vec<f64> = samples
        .into_iter()
        .map(|samples| per_dispatch(median(samples)))
        .collect();
    println!(
        "{}, {DISPATCHES} dispatches, median of {SAMPLES}, host time per dispatch",
        device.info().name
    );
    for ((name, _), nanoseconds) in rows.iter().zip(&medians) {
        println!(
            "{name:22} {nanoseconds:8.0} ns {:8.3} of raw",
            nanoseconds / medians[0]
        );
    }
    let limits = [1.0, 1.10, 1.02, 1.02, 0.20];
    match medians
        .iter()
        .zip(limits)
        .all(|(median, limit)| median / medians[0] <= limit)
    {
        true => Ok(()),
        false => Err(format!("over the limits of {limits:?} times raw").into()),
    }
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort();
    samples[samples.len() / 2]
}

fn per_dispatch(sample: Duration) -> f64 {
    sample.as_nanos() as f64 / DISPATCHES as f64
}

/// An archive with vadd as PTX.
fn archive() -> Result<Archive<'static>, Box<dyn Error>> {
    let mut builder = ArchiveBuilder::new(Metadata::default());
    builder.push(NewKernel {
        name: "vadd".into(),
        entry: "vadd".into(),
        targets: vec![NewTarget {
            target: "compute_75".parse()?,
            resources: Resources::default(),
            compiler: String::new(),
            payload: Payload::compress(ptx::VADD_PTX.as_bytes())?,
        }],
        ..NewKernel::default()
    });
    Ok(Archive::from_vec(builder.finish()?)?)
}
