//! Dispatches: contract check, buffers, the order of blocks over OS threads, and the checks afterwards.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuilder};
use zinc_contract::{Access, Binding, Geometry, Kernel};

use crate::abi::Entry;
use crate::buffer::{Buffer, Memory};
use crate::error::{EmulatorError, Signature};
use crate::schedule::{BlockOrder, Schedule};
use crate::shared;
use crate::table;
use crate::worker::{Borrowed, Counts, Launch};

/// The compiled architecture whose launch rules the emulator uses: the base rule.
const ARCH: u32 = 0;

/// Most OS threads that run blocks. A process may have some 65000 memory mappings, and every CUDA thread that waits
/// needs two of them for its stack: 1024 * 2 per OS thread.
const MAX_OS_THREADS: usize = 24;

/// Threads that a block may have.
const BLOCK_THREADS: RangeInclusive<u64> = 1..=1024;

/// How an emulator runs kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The order of threads and blocks.
    pub schedule: Schedule,
    /// What shared memory and new buffers hold before something is written to them. Other undefined values, such as a
    /// shuffle from a lane that takes no part, are made of it too.
    pub shared_poison: u8,
    /// OS threads that run blocks; 0 for as many as the machine has, 24 at most. 1 runs every block on the calling
    /// thread, strictly in the order of the schedule.
    pub threads: usize,
    /// The number of multiprocessors that launch rules see.
    pub sm_count: u32,
    /// Whether kernels may read before they wait for the kernel before them what they read early, as on a GPU where that one
    /// does not write it.
    pub may_read_early: bool,
    /// Whether the threads of the first block are watched until they wait for the kernel before theirs: of the buffers of
    /// a kernel that may overlap that one they may touch no more than those that it reads early. Only in a build with the
    /// address sanitizer, where a violation ends the process, and with one OS thread; nothing else may use the buffers at
    /// the time.
    pub watch_overlap: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            schedule: Schedule::Forward,
            shared_poison: 0xff,
            threads: 0,
            sm_count: 4,
            may_read_early: true,
            watch_overlap: false,
        }
    }
}

/// What a dispatch did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks that ran.
    pub blocks: u64,
    /// CUDA threads that ran.
    pub threads: u64,
    /// Times that a coroutine was resumed.
    pub switches: u64,
    /// Barriers that blocks passed.
    pub barriers: u64,
    /// Warp operations (shuffles, votes, ...) that warps completed.
    pub warp_operations: u64,
    /// Most shared memory of a block, static and dynamic, in bytes.
    pub shared_bytes: u64,
    /// Time from the start of the first block to the end of the last one.
    pub elapsed: Duration,
}

/// A device that runs kernels on the CPU. Cheap to make; several can run at once.
#[derive(Debug, Clone, Default)]
pub struct Emulator {
    options: Options,
}

impl Emulator {
    /// An emulator with these options.
    pub fn new(options: Options) -> Emulator {
        Emulator { options }
    }

    /// The options it was made with.
    pub fn options(&self) -> Options {
        self.options
    }

    /// New memory of `bytes` bytes at a multiple of 256, filled with the poison of the options.
    ///
    /// Ends the process when there is not enough memory, as other allocations do; [`Emulator::try_alloc`] does not.
    pub fn alloc(&self, bytes: u64) -> Buffer {
        self.try_alloc(bytes).unwrap_or_else(|| {
            let size = usize::try_from(bytes).unwrap_or(usize::MAX);
            match std::alloc::Layout::array::<u8>(size) {
                Ok(layout) => std::alloc::handle_alloc_error(layout),
                Err(_) => std::process::abort(),
            }
        })
    }

    /// As [`Emulator::alloc`]; `None` when there is not enough memory.
    pub fn try_alloc(&self, bytes: u64) -> Option<Buffer> {
        Buffer::new(usize::try_from(bytes).ok()?, self.options.shared_poison)
    }

    /// New memory with a copy of `data`.
    pub fn upload(&self, data: &[u8]) -> Result<Buffer, EmulatorError> {
        let buffer = self.alloc(data.len() as u64);
        buffer.write(data)?;
        Ok(buffer)
    }

    /// Checks a dispatch against the kernel's contract, runs it and waits for its end.
    ///
    /// `words` is the complete push struct ([`Kernel::words`]), `buffers` the bindings in order. The geometry is that
    /// of the base launch rule. Buffers may be bound more than once where the contract allows it.
    pub fn dispatch(
        &self,
        kernel: &Kernel,
        words: &[u32],
        buffers: &[Buffer],
    ) -> Result<Stats, EmulatorError> {
        let binding = |buffer: &Buffer| Binding {
            address: buffer.address() as u64,
            bytes: buffer.bytes(),
        };
        let bindings = Vec::from_iter(buffers.iter().map(binding));
        kernel.check(words, &bindings)?;
        // SAFETY: the call meets the kernel's contract.
        unsafe { self.dispatch_unchecked(kernel, words, buffers) }
    }

    /// Runs a dispatch without looking at the contract.
    ///
    /// # Safety
    /// The call must meet the kernel's contract: otherwise the kernel may access any memory of the process.
    pub unsafe fn dispatch_unchecked(
        &self,
        kernel: &Kernel,
        words: &[u32],
        buffers: &[Buffer],
    ) -> Result<Stats, EmulatorError> {
        let entry = table::entry(kernel.name).ok_or_else(|| EmulatorError::NotEmulated {
            kernel: kernel.name.to_owned(),
        })?;
        let Some(geometry) = kernel.geometry(ARCH, self.options.sm_count, words)? else {
            return Ok(Stats::default());
        };
        let access = Vec::from_iter(kernel.buffers.iter().map(|buffer| buffer.access));
        let call = Call {
            name: kernel.name,
            entry,
            geometry,
            words,
            buffers,
            access: &access,
            buffer_name: &|index| kernel.buffers.get(index).map(|buffer| buffer.name),
            waits: kernel.overlap,
            early: kernel.overlap.then_some(kernel.early),
        };
        // SAFETY: as the caller promises.
        unsafe { self.run(&call) }
    }

    /// Runs a kernel that is in no catalog, such as one that tests the emulator.
    ///
    /// # Safety
    /// The kernel must only access the given buffers, with this geometry and these words.
    pub unsafe fn launch(
        &self,
        name: &str,
        entry: &Entry,
        geometry: Geometry,
        words: &[u32],
        buffers: &[Buffer],
    ) -> Result<Stats, EmulatorError> {
        let call = Call {
            name,
            entry,
            geometry,
            words,
            buffers,
            access: &[],
            buffer_name: &|_| None,
            waits: false,
            early: Some(&[]),
        };
        // SAFETY: as the caller promises.
        unsafe { self.run(&call) }
    }

    /// As [`Emulator::dispatch`], but twice, on copies of the buffers: with the threads in ascending order and shared
    /// memory of 0xff, and in descending order with 0x7f and nothing read early. Different results are an error, and so is a change of a
    /// buffer that the contract says is only read. Then the buffers hold the result.
    ///
    /// Finds races and reads of uninitialised shared memory. A kernel whose contract leaves bits open (sums in the
    /// order of atomic additions) may fail without being wrong.
    pub fn dispatch_checked_twice(
        &self,
        kernel: &Kernel,
        words: &[u32],
        buffers: &[Buffer],
    ) -> Result<Stats, EmulatorError> {
        let written = Vec::from_iter(kernel.buffers.iter().map(|buffer| buffer.access.writes()));
        let name = |index: usize| {
            kernel
                .buffers
                .get(index)
                .map_or_else(|| index.to_string(), |buffer| buffer.name.to_owned())
        };
        self.twice(kernel.name, buffers, &written, &name, |emulator, copies| {
            emulator.dispatch(kernel, words, copies)
        })
    }

    /// As [`Emulator::dispatch_checked_twice`] for [`Emulator::launch`]; every buffer may be written.
    ///
    /// # Safety
    /// As for [`Emulator::launch`].
    pub unsafe fn launch_checked_twice(
        &self,
        name: &str,
        entry: &Entry,
        geometry: Geometry,
        words: &[u32],
        buffers: &[Buffer],
    ) -> Result<Stats, EmulatorError> {
        let written = vec![true; buffers.len()];
        self.twice(
            name,
            buffers,
            &written,
            &|index| index.to_string(),
            |emulator, copies| {
                // SAFETY: as the caller promises, for buffers of the same sizes.
                unsafe { emulator.launch(name, entry, geometry, words, copies) }
            },
        )
    }

    fn twice(
        &self,
        kernel: &str,
        buffers: &[Buffer],
        written: &[bool],
        buffer_name: &dyn Fn(usize) -> String,
        dispatch: impl Fn(&Emulator, &[Buffer]) -> Result<Stats, EmulatorError>,
    ) -> Result<Stats, EmulatorError> {
        let allocations = allocations(buffers);
        let run = |schedule, shared_poison, may_read_early| {
            let emulator = Emulator::new(Options {
                schedule,
                shared_poison,
                may_read_early,
                ..self.options
            });
            let mut copies = Vec::with_capacity(allocations.len());
            for allocation in &allocations {
                copies.push(emulator.upload(&allocation.whole.read())?);
            }
            let moved = |buffer: &Buffer| match allocations.iter().position(|a| a.holds(buffer)) {
                Some(index) => buffer.moved_to(&copies[index]),
                None => buffer.clone(),
            };
            let stats = dispatch(&emulator, &Vec::from_iter(buffers.iter().map(moved)))?;
            Ok::<_, EmulatorError>((stats, copies))
        };
        let (stats, first) = run(Schedule::Forward, 0xff, self.options.may_read_early)?;
        let (_, second) = run(Schedule::Reverse, 0x7f, false)?;
        for (allocation, copies) in allocations.iter().zip(first.iter().zip(&second)) {
            let (first, second) = (copies.0.read(), copies.1.read());
            if let Some(offset) = first_difference(&first, &second) {
                return Err(EmulatorError::NotDeterministic {
                    kernel: kernel.to_owned(),
                    buffer: buffer_name(allocation.index),
                    offset: offset as u64,
                    first: first[offset],
                    second: second[offset],
                });
            }
            let mut bindings = buffers.iter().zip(written);
            if bindings.any(|(buffer, &written)| written && allocation.holds(buffer)) {
                allocation.whole.write(&first)?;
            } else if let Some(offset) = first_difference(&first, &allocation.whole.read()) {
                return Err(EmulatorError::ReadOnlyChanged {
                    kernel: kernel.to_owned(),
                    buffer: buffer_name(allocation.index),
                    offset: offset as u64,
                });
            }
        }
        Ok(stats)
    }

    /// # Safety
    /// The call must meet the contract of its kernel.
    unsafe fn run(&self, call: &Call) -> Result<Stats, EmulatorError> {
        let wanted = Signature {
            buffers: call.buffers.len() as u64,
            push_bytes: call.words.len() as u64 * 4,
        };
        let found = Signature {
            buffers: call.entry.buffers.into(),
            push_bytes: call.entry.push_bytes.into(),
        };
        if wanted != found {
            return Err(EmulatorError::Signature {
                kernel: call.name.to_owned(),
                wanted,
                found,
            });
        }
        let Geometry {
            grid,
            block,
            cluster: _, // every block is one of its own
            shared_bytes,
        } = call.geometry;
        let threads = block.iter().map(|&n| u64::from(n)).product();
        if !BLOCK_THREADS.contains(&threads) || shared_bytes as usize > shared::LIMIT {
            return Err(EmulatorError::Geometry {
                kernel: call.name.to_owned(),
                threads,
                shared_bytes: shared_bytes.into(),
            });
        }
        let allocations = allocations(call.buffers);
        let mut uses = Vec::with_capacity(allocations.len());
        for allocation in &allocations {
            let writes = call.buffers.iter().enumerate().any(|(index, buffer)| {
                allocation.holds(buffer) && call.access.get(index).is_none_or(|a| a.writes())
            });
            uses.push(allocation.memory.use_for(writes)?);
        }
        let pointers = Vec::from_iter(
            call.buffers
                .iter()
                .map(|buffer| buffer.address().cast::<c_void>()),
        );
        let watched = match call.early {
            Some(early) if self.options.watch_overlap => {
                let early = if self.options.may_read_early {
                    early
                } else {
                    &[]
                };
                watched(call.buffers, early)
            }
            _ => Vec::new(),
        };
        let launch = Launch {
            kernel: call.name,
            entry: call.entry,
            grid,
            block,
            shared_bytes: shared_bytes as usize,
            buffers: &pointers,
            words: call.words,
            schedule: self.options.schedule,
            poison: self.options.shared_poison,
            waits: call.waits,
            may_read_early: self.options.may_read_early,
            watched: &watched,
        };
        let start = Instant::now();
        let counts = self.run_blocks(&launch);
        let elapsed = start.elapsed();
        for Allocation { index, memory, .. } in &allocations {
            if let Some(offset) = memory.overrun() {
                return Err(EmulatorError::Overrun {
                    kernel: call.name.to_owned(),
                    buffer: (call.buffer_name)(*index)
                        .map_or_else(|| index.to_string(), str::to_owned),
                    offset,
                    bytes: memory.bytes() as u64,
                });
            }
        }
        let counts = counts?;
        Ok(Stats {
            blocks: counts.blocks,
            threads: counts.threads,
            switches: counts.switches,
            barriers: counts.barriers,
            warp_operations: counts.warp_operations,
            shared_bytes: counts.shared_bytes,
            elapsed,
        })
    }

    fn run_blocks(&self, launch: &Launch) -> Result<Counts, EmulatorError> {
        let blocks = launch.grid.iter().map(|&n| u64::from(n)).product();
        if blocks == 0 {
            return Ok(Counts::default());
        }
        let order = BlockOrder::new(self.options.schedule, blocks);
        let pool = match self.options.threads {
            1 => None,
            _ if blocks == 1 => None,
            threads => pool(threads),
        };
        let unwatched = Launch {
            watched: &[],
            ..*launch
        };
        let Some(pool) = pool else {
            let mut worker = Borrowed::take();
            return (0..blocks).try_fold(Counts::default(), |counts, place| {
                let launch = if place == 0 { launch } else { &unwatched };
                Ok(counts.and(worker.run(launch, order.block(place))?))
            });
        };
        pool.install(|| {
            (0..blocks)
                .into_par_iter()
                .map_init(Borrowed::take, |worker, place| {
                    worker.run(&unwatched, order.block(place))
                })
                .try_reduce(Counts::default, |a, b| Ok(a.and(b)))
        })
    }
}

/// One dispatch of one kernel.
struct Call<'a> {
    name: &'a str,
    entry: &'a Entry,
    geometry: Geometry,
    words: &'a [u32],
    buffers: &'a [Buffer],
    /// What the kernel may do to each buffer; everything where it is shorter.
    access: &'a [Access],
    buffer_name: &'a dyn Fn(usize) -> Option<&'static str>,
    /// Whether its threads have to wait for the kernel before it.
    waits: bool,
    /// The buffers that it may touch before it waits for the kernel before it; all where it does not wait.
    early: Option<&'a [u8]>,
}

/// One of the allocations that a dispatch uses.
struct Allocation {
    /// The first binding of it.
    index: usize,
    memory: Arc<Memory>,
    whole: Buffer,
}

impl Allocation {
    fn holds(&self, buffer: &Buffer) -> bool {
        buffer
            .memory()
            .is_some_and(|memory| Arc::ptr_eq(memory, &self.memory))
    }
}

/// The distinct allocations among the buffers, in the order of their first bindings.
fn allocations(buffers: &[Buffer]) -> Vec<Allocation> {
    let mut found: Vec<Allocation> = Vec::new();
    for (index, buffer) in buffers.iter().enumerate() {
        let known = found.iter().any(|allocation| allocation.holds(buffer));
        if let (false, Some(memory)) = (known, buffer.memory()) {
            found.push(Allocation {
                index,
                memory: memory.clone(),
                whole: buffer.whole(),
            });
        }
    }
    found
}

/// The memory of the buffers that are not among the `early` ones.
fn watched(buffers: &[Buffer], early: &[u8]) -> Vec<(*mut u8, usize)> {
    let is_early = |index: usize| early.iter().any(|early| usize::from(*early) == index);
    let range = |buffer: &Buffer| (buffer.address(), buffer.bytes() as usize);
    let early = || {
        (0..buffers.len())
            .filter(|index| is_early(*index))
            .map(|index| range(&buffers[index]))
    };
    // A range of which a part may be touched is not watched: contracts let no written buffer share memory with these.
    let apart = |(start, bytes): (*mut u8, usize)| {
        early().all(|(other, length)| {
            start.addr() >= other.addr() + length || other.addr() >= start.addr() + bytes
        })
    };
    let others = (0..buffers.len()).filter(|index| !is_early(*index));
    let others = others.map(|index| range(&buffers[index]));
    Vec::from_iter(others.filter(|range| range.1 > 0 && apart(*range)))
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}

/// The pool with this many threads, 0 for the machine's number, shared by all emulators. `None` if the system gives no
/// threads: then blocks run on the calling thread.
fn pool(threads: usize) -> Option<Arc<ThreadPool>> {
    static POOLS: Mutex<Option<HashMap<usize, Arc<ThreadPool>>>> = Mutex::new(None);
    let wanted = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let wanted = wanted.min(MAX_OS_THREADS);
    if wanted == 1 {
        return None;
    }
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let pools = pools.get_or_insert_with(HashMap::new);
    if let Some(pool) = pools.get(&wanted) {
        return Some(pool.clone());
    }
    let builder = ThreadPoolBuilder::new()
        .num_threads(wanted)
        .thread_name(|index| format!("zinc-emulator-{index}"));
    let pool = Arc::new(builder.build().ok()?);
    pools.insert(wanted, pool.clone());
    Some(pool)
}
