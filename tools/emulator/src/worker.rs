//! Runs one block after another on an OS thread: its threads as coroutines, its barriers and warp operations as
//! rendezvous. Nothing in here may yield to rayon while a block runs: a coroutine never changes its OS thread, and the
//! current thread is a thread-local variable.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{self, NonNull};

use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::abi::{self, Block, Collective, Lanes, Phase, SharedKey, Thread, WARP, wait};
use crate::error::{EmulatorError, Index, Waiting};
use crate::schedule::{Order, Schedule};
use crate::shared::SharedMemory;
use crate::stack::ThreadStack;

/// A grid of blocks of one kernel.
pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) entry: &'a abi::Entry,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: usize,
    pub(crate) buffers: &'a [*mut c_void],
    pub(crate) words: &'a [u32],
    pub(crate) schedule: Schedule,
    pub(crate) poison: u8,
    /// Whether each thread has to wait for the kernel before its own.
    pub(crate) waits: bool,
    /// Whether the kernel may read before that what it reads early.
    pub(crate) may_read_early: bool,
    /// What threads may not touch before they wait for the kernel before theirs, as starts and sizes.
    pub(crate) watched: &'a [(*mut u8, usize)],
}

// SAFETY: the pointers are the buffers' memory, which kernels access as they do on a GPU: what different blocks do to
// the same bytes without atomics is the kernel's responsibility, and the dispatch holds the buffers' locks.
unsafe impl Sync for Launch<'_> {}

/// What happened in some blocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) blocks: u64,
    pub(crate) threads: u64,
    pub(crate) switches: u64,
    pub(crate) barriers: u64,
    pub(crate) warp_operations: u64,
    pub(crate) shared_bytes: u64,
}

impl Counts {
    pub(crate) fn and(self, other: Counts) -> Counts {
        Counts {
            blocks: self.blocks + other.blocks,
            threads: self.threads + other.threads,
            switches: self.switches + other.switches,
            barriers: self.barriers + other.barriers,
            warp_operations: self.warp_operations + other.warp_operations,
            shared_bytes: self.shared_bytes.max(other.shared_bytes),
        }
    }
}

/// Why a coroutine stopped.
enum Stop {
    /// Its thread waits.
    Waiting,
    /// Its thread has returned and there was no other one to start.
    Idle,
}

type Fiber = Coroutine<(), Stop, Infallible, ThreadStack>;

/// What the callbacks from C++ and the coroutines use. It is only reached through raw pointers, because all of them
/// run in the middle of the worker's own functions.
#[repr(C)]
struct Context {
    /// First, so that its address is the context's.
    block: Block,
    shared: SharedMemory,
    /// The array for which there was no room.
    exhausted: *const SharedKey,
    run: unsafe extern "C" fn(*const *mut c_void, *const c_void),
    buffers: *const *mut c_void,
    push: *const c_void,
    /// Threads to start: the lanes `queue[next..]` of the warp whose first thread is `warp`.
    queue: [u8; WARP],
    queued: usize,
    next: usize,
    warp: *mut Thread,
    /// Where C++ looks for the current thread.
    current: *mut *mut Thread,
    /// The launch's; empty between blocks.
    watched: *const [(*mut u8, usize)],
    /// Whether that is accessible now.
    accessible: bool,
}

impl Context {
    /// Lets the thread that runs next touch the watched memory, or not.
    ///
    /// # Safety
    /// A block runs.
    unsafe fn set_accessible(context: *mut Context, accessible: bool) {
        // SAFETY: nothing else uses the context, and the launch outlives the block.
        unsafe {
            if (*context).accessible != accessible {
                (*context).accessible = accessible;
                for &(start, bytes) in &*(*context).watched {
                    abi::set_accessible(start, bytes, accessible);
                }
            }
        }
    }
}

/// The coroutines and the memory with which an OS thread runs blocks.
pub(crate) struct Worker {
    context: NonNull<Context>,
    fibers: Vec<Fiber>,
    idle: Vec<usize>,
    threads: Vec<Thread>,
    order: Order,
    counts: Counts,
}

thread_local! {
    static IDLE_WORKERS: RefCell<Vec<Worker>> = const { RefCell::new(Vec::new()) };
}

/// A worker of this OS thread, which goes back to the thread's idle ones.
pub(crate) struct Borrowed(Option<Worker>);

impl Borrowed {
    pub(crate) fn take() -> Borrowed {
        let idle = IDLE_WORKERS.with_borrow_mut(Vec::pop);
        Borrowed(Some(idle.unwrap_or_else(Worker::new)))
    }

    pub(crate) fn run(&mut self, launch: &Launch, block: u64) -> Result<Counts, EmulatorError> {
        let worker = self.0.get_or_insert_with(Worker::new);
        let result = worker.run(launch, block);
        if result.is_err() {
            worker.abandon();
        }
        result
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let worker = self.0.take();
        // At the end of the OS thread there is nowhere to put it.
        let _ = IDLE_WORKERS.try_with(|idle| {
            if let (Ok(mut idle), Some(worker)) = (idle.try_borrow_mut(), worker) {
                idle.push(worker);
            }
        });
    }
}

unsafe extern "C" fn nothing(_: *const *mut c_void, _: *const c_void) {}

/// Suspends the running thread until the scheduler resumes it.
unsafe extern "C" fn suspend(thread: *mut Thread) {
    // SAFETY: the coroutine that runs the thread has stored its yielder, and C++ passes the thread that runs.
    let yielder = unsafe { &*(*thread).yielder.cast::<Yielder<(), Stop>>() };
    yielder.suspend(Stop::Waiting);
}

/// The thread has waited for the kernel before its own.
unsafe extern "C" fn previous_ended(thread: *mut Thread) {
    // SAFETY: C++ passes the thread that runs, of a block whose context begins with it.
    unsafe {
        (*thread).previous_ended = 1;
        Context::set_accessible((*thread).block.cast(), true);
    }
}

/// Finds or makes the block's instance of a shared array.
unsafe extern "C" fn shared(block: *mut Block, key: *const SharedKey) -> *mut c_void {
    let context = block.cast::<Context>();
    // SAFETY: the block is the first field of its context, and nothing else uses the shared memory now.
    let array = unsafe { (*context).shared.array(key) };
    match array {
        Some(array) => array.cast(),
        None => {
            // SAFETY: as above; the current thread is the one that runs.
            let thread = unsafe {
                (*context).exhausted = key;
                *(*context).current
            };
            loop {
                // SAFETY: as above.
                unsafe {
                    (*thread).wait = wait::TRAP;
                    suspend(thread);
                }
            }
        }
    }
}

/// Runs queued threads one after the other; a thread that waits keeps the coroutine until it returns.
fn fiber_body(context: *mut Context, yielder: &Yielder<(), Stop>) -> Infallible {
    loop {
        // SAFETY: the context outlives its coroutines, and while one of them runs, nothing else does on this OS
        // thread. No reference into it is held over a call or a switch.
        unsafe {
            while (*context).next < (*context).queued {
                let lane = (*context).queue[(*context).next];
                (*context).next += 1;
                let thread = (*context).warp.add(lane.into());
                (*thread).yielder = ptr::from_ref(yielder).cast();
                *(*context).current = thread;
                Context::set_accessible(context, (*context).watched.is_empty());
                ((*context).run)((*context).buffers, (*context).push);
                if !(*thread).copies.is_null() {
                    abi::zinc_emulator_end_copies((*thread).copies, true);
                    (*thread).copies = ptr::null_mut();
                }
                (*thread).wait = wait::DONE;
            }
        }
        yielder.suspend(Stop::Idle);
    }
}

impl Worker {
    fn new() -> Worker {
        let context = Context {
            block: Block {
                block_idx: [0; 3],
                block_dim: [0; 3],
                grid_dim: [0; 3],
                poison: 0,
                may_read_early: 0,
                dynamic_shared: ptr::null_mut(),
                suspend,
                shared,
                previous_ended,
            },
            shared: SharedMemory::new(),
            exhausted: ptr::null(),
            run: nothing,
            buffers: ptr::null(),
            push: ptr::null(),
            queue: [0; WARP],
            queued: 0,
            next: 0,
            warp: ptr::null_mut(),
            // SAFETY: the function has no preconditions.
            current: unsafe { abi::zinc_emulator_current_slot() },
            watched: &[],
            accessible: true,
        };
        Worker {
            context: NonNull::from(Box::leak(Box::new(context))),
            fibers: Vec::new(),
            idle: Vec::new(),
            threads: Vec::new(),
            order: Order::new(),
            counts: Counts::default(),
        }
    }

    fn context(&self) -> *mut Context {
        self.context.as_ptr()
    }

    /// Runs block `index` (x fastest) to its end.
    fn run(&mut self, launch: &Launch, index: u64) -> Result<Counts, EmulatorError> {
        let result = self.run_threads(launch, index);
        let context = self.context();
        // SAFETY: no coroutine runs, and the launch is still there.
        unsafe {
            Context::set_accessible(context, true);
            (*context).watched = &[];
        }
        result
    }

    fn run_threads(&mut self, launch: &Launch, index: u64) -> Result<Counts, EmulatorError> {
        let count = launch.block.iter().map(|&n| n as usize).product::<usize>();
        let warps = count.div_ceil(WARP);
        self.start(launch, index, count);
        for place in 0..warps {
            let warp = self.order.warps[place] as usize;
            self.start_warp(launch, warp)?;
        }
        loop {
            if !self.finish_phases(launch)? && !self.finish_barrier(launch)? {
                break;
            }
        }
        let hasty = |thread: &Thread| thread.previous_ended == 0;
        match self.threads.iter().position(hasty) {
            Some(thread) if launch.waits => Err(EmulatorError::NoWait {
                kernel: launch.kernel.to_owned(),
                block: self.block_index(),
                thread: Index(self.threads[thread].thread_idx),
            }),
            _ => self.finish(launch),
        }
    }

    /// Lanes that a warp has.
    fn lanes(&self, warp: usize) -> usize {
        WARP.min(self.threads.len() - warp * WARP)
    }

    fn start(&mut self, launch: &Launch, index: u64, count: usize) {
        let context = self.context();
        let [width, height, _] = launch.grid.map(u64::from);
        let block_idx = [
            (index % width) as u32,
            (index / width % height) as u32,
            (index / width / height) as u32,
        ];
        // SAFETY: no coroutine runs, so nothing else uses the context.
        unsafe {
            (*context).block.block_idx = block_idx;
            (*context).block.block_dim = launch.block;
            (*context).block.grid_dim = launch.grid;
            (*context).block.poison = u32::from_ne_bytes([launch.poison; 4]);
            (*context).block.may_read_early = launch.may_read_early.into();
            (*context).block.dynamic_shared =
                (*context).shared.start(launch.poison, launch.shared_bytes);
            (*context).exhausted = ptr::null();
            (*context).run = launch.entry.run;
            (*context).buffers = launch.buffers.as_ptr();
            (*context).push = launch.words.as_ptr().cast();
            (*context).watched = ptr::from_ref(launch.watched);
        }
        self.counts = Counts {
            blocks: 1,
            threads: count as u64,
            ..Counts::default()
        };
        self.threads.clear();
        let [width, height, _] = launch.block;
        self.threads
            .extend((0u32..).take(count).map(|thread| Thread {
                thread_idx: [
                    thread % width,
                    thread / width % height,
                    thread / width / height,
                ],
                lane: thread % WARP as u32,
                block: context.cast(),
                wait: wait::RUNNING,
                mask: 0,
                collective: ptr::null(),
                args: ptr::null_mut(),
                what: ptr::null(),
                file: ptr::null(),
                line: 0,
                value: 0,
                copies: ptr::null_mut(),
                yielder: ptr::null(),
                slot: 0,
                previous_ended: 0,
            }));
        self.order
            .start(launch.schedule, count.div_ceil(WARP), index);
    }

    /// Starts all lanes of a warp and runs it until each of them has returned or waits for what other warps do.
    fn start_warp(&mut self, launch: &Launch, warp: usize) -> Result<(), EmulatorError> {
        let lanes = self.lanes(warp);
        let context = self.context();
        // SAFETY: no coroutine runs; the warp's threads exist.
        unsafe {
            (*context).next = 0;
            (*context).queued = 0;
            for &lane in &self.order.lanes {
                if usize::from(lane) < lanes {
                    let place = (*context).queued;
                    (*context).queue[place] = lane;
                    (*context).queued += 1;
                }
            }
            (*context).warp = self.threads.as_mut_ptr().add(warp * WARP);
        }
        loop {
            // SAFETY: as above; coroutines take threads from the queue while they run.
            if unsafe { (*context).next == (*context).queued } {
                break;
            }
            let slot = match self.idle.pop() {
                Some(slot) => slot,
                None => self.add_fiber(launch)?,
            };
            self.switch_to(slot);
        }
        self.settle_warp(launch, warp)
    }

    fn resume_lanes(&mut self, warp: usize, ready: u32) {
        for place in 0..WARP {
            let lane = self.order.lanes[place];
            if ready >> lane & 1 == 0 {
                continue;
            }
            let thread = &mut self.threads[warp * WARP + usize::from(lane)];
            if thread.wait != wait::RUNNING {
                continue;
            }
            let thread: *mut Thread = thread;
            // SAFETY: the thread exists, and the slot of the current thread belongs to this OS thread.
            let slot = unsafe {
                let context = self.context();
                *(*context).current = thread;
                let unwatched = (*context).watched.is_empty();
                Context::set_accessible(context, unwatched || (*thread).previous_ended != 0);
                (*thread).slot as usize
            };
            self.switch_to(slot);
        }
    }

    /// Runs a coroutine until it stops, and remembers which thread holds it.
    fn switch_to(&mut self, slot: usize) {
        self.counts.switches += 1;
        match self.fibers[slot].resume(()) {
            CoroutineResult::Yield(Stop::Idle) => self.idle.push(slot),
            CoroutineResult::Yield(Stop::Waiting) => {
                // SAFETY: the current thread is the one that has just suspended itself.
                unsafe { (**(*self.context()).current).slot = slot as u64 };
            }
            CoroutineResult::Return(never) => match never {},
        }
    }

    fn add_fiber(&mut self, launch: &Launch) -> Result<usize, EmulatorError> {
        let slot = self.fibers.len();
        let stack = ThreadStack::new(slot).map_err(|source| EmulatorError::Stacks {
            kernel: launch.kernel.to_owned(),
            source,
        })?;
        self.fibers.push(new_fiber(stack, self.context()));
        Ok(slot)
    }

    /// Completes warp operations and phases and resumes their lanes until no lane can go on without other warps.
    fn settle_warp(&mut self, launch: &Launch, warp: usize) -> Result<(), EmulatorError> {
        loop {
            let base = warp * WARP;
            let mut waiting = 0u32;
            let mut phases = 0u32;
            for lane in 0..self.lanes(warp) {
                match self.threads[base + lane].wait {
                    wait::WARP => waiting |= 1 << lane,
                    wait::PHASE => phases |= 1 << lane,
                    wait::TRAP => return Err(self.trap(launch, base + lane)),
                    _ => {}
                }
            }
            let mut ready = self.complete_warp_operations(warp, waiting);
            for lane in bits(phases) {
                let thread = &mut self.threads[base + lane];
                if phase_has_ended(thread) {
                    thread.wait = wait::RUNNING;
                    ready |= 1 << lane;
                }
            }
            if ready == 0 {
                // Lanes that wait for a phase may still come to the operation of the others.
                return match waiting == 0 || phases != 0 {
                    true => Ok(()),
                    false => Err(self.warp_mismatch(launch, warp, waiting)),
                };
            }
            self.resume_lanes(warp, ready);
        }
    }

    /// Completes every warp operation whose lanes have all arrived; the lanes that can run on.
    fn complete_warp_operations(&mut self, warp: usize, waiting: u32) -> u32 {
        let base = warp * WARP;
        let existing = lanes_mask(self.lanes(warp));
        let mut ready = 0;
        let mut rest = waiting;
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let mask = self.threads[base + first].mask & existing;
            rest &= !(1 << first);
            if mask & (1 << first) == 0 || mask & !waiting != 0 {
                continue;
            }
            let leader = &self.threads[base + first];
            let together = bits(mask).all(|lane| {
                let thread = &self.threads[base + lane];
                thread.mask & existing == mask && same_operation(leader, thread)
            });
            if !together {
                continue;
            }
            self.complete(base, mask, leader.collective);
            rest &= !mask;
            ready |= mask;
        }
        ready
    }

    fn complete(&mut self, base: usize, mask: u32, collective: *const Collective) {
        let mut lanes = Lanes {
            args: [ptr::null_mut(); WARP],
            present: mask,
            // SAFETY: no coroutine runs.
            poison: unsafe { (*self.context()).block.poison },
        };
        for lane in bits(mask) {
            let thread = &mut self.threads[base + lane];
            lanes.args[lane] = thread.args;
            thread.wait = wait::RUNNING;
        }
        // SAFETY: the operation is a C++ constant, and the arguments are local variables of suspended threads.
        unsafe { ((*collective).run)(&raw mut lanes) };
        self.counts.warp_operations += 1;
    }

    /// Runs every warp that has lanes whose phase has ended: false when there is none.
    fn finish_phases(&mut self, launch: &Launch) -> Result<bool, EmulatorError> {
        let mut some = false;
        for place in 0..self.order.warps.len() {
            let warp = self.order.warps[place] as usize;
            let base = warp * WARP;
            if self.threads[base..base + self.lanes(warp)]
                .iter()
                .any(phase_has_ended)
            {
                some = true;
                self.settle_warp(launch, warp)?;
            }
        }
        if some {
            self.order.advance();
        }
        Ok(some)
    }

    /// When every thread has returned: false. Otherwise all of them must wait at one barrier, which is completed; the
    /// threads run on until they can't without each other.
    fn finish_barrier(&mut self, launch: &Launch) -> Result<bool, EmulatorError> {
        if let Some(stuck) = self.threads.iter().position(is_in_phase) {
            let phase = phase_of(&self.threads[stuck]);
            return Err(EmulatorError::EndlessPhase {
                kernel: launch.kernel.to_owned(),
                block: self.block_index(),
                waiting: self.waiting(stuck),
                missing: phase.missing,
                arrivals: phase.arrivals,
            });
        }
        let is_waiting = |thread: &Thread| thread.wait == wait::BLOCK;
        let Some(first) = self.threads.iter().position(is_waiting) else {
            return Ok(false);
        };
        let mut holds = 0;
        for other in 0..self.threads.len() {
            let thread = &self.threads[other];
            if !is_waiting(thread) {
                return Err(EmulatorError::BarrierAfterExit {
                    kernel: launch.kernel.to_owned(),
                    block: self.block_index(),
                    waiting: self.waiting(first),
                    exited: Index(thread.thread_idx),
                });
            }
            if !same_place(&self.threads[first], thread) {
                return Err(EmulatorError::DivergentBarrier {
                    kernel: launch.kernel.to_owned(),
                    block: self.block_index(),
                    first: self.waiting(first),
                    second: self.waiting(other),
                });
            }
            holds += thread.value;
        }
        for thread in &mut self.threads {
            thread.value = holds;
            thread.wait = wait::RUNNING;
        }
        self.counts.barriers += 1;
        self.order.advance();
        for place in 0..self.order.warps.len() {
            let warp = self.order.warps[place] as usize;
            self.resume_lanes(warp, lanes_mask(self.lanes(warp)));
            self.settle_warp(launch, warp)?;
        }
        Ok(true)
    }

    fn finish(&mut self, launch: &Launch) -> Result<Counts, EmulatorError> {
        let context = self.context();
        // SAFETY: no coroutine runs.
        let (overrun, bytes) = unsafe {
            *(*context).current = ptr::null_mut();
            ((*context).shared.finish(), (*context).shared.bytes())
        };
        if let Some(overrun) = overrun {
            return Err(EmulatorError::SharedOverrun {
                kernel: launch.kernel.to_owned(),
                block: self.block_index(),
                array: match overrun.key {
                    // SAFETY: keys are C++ constants.
                    Some(key) => text(unsafe { (*key).name }),
                    None => "the dynamic array".to_owned(),
                },
                offset: overrun.offset as u64,
            });
        }
        self.counts.shared_bytes = bytes as u64;
        Ok(self.counts)
    }

    fn block_index(&self) -> Index {
        // SAFETY: no coroutine runs.
        Index(unsafe { (*self.context()).block.block_idx })
    }

    fn waiting(&self, thread: usize) -> Box<Waiting> {
        let thread = &self.threads[thread];
        Box::new(Waiting {
            thread: Index(thread.thread_idx),
            operation: text(thread.what),
            mask: (thread.wait == wait::WARP).then_some(thread.mask),
            location: location(thread),
        })
    }

    fn trap(&self, launch: &Launch, thread: usize) -> EmulatorError {
        let kernel = launch.kernel.to_owned();
        let block = self.block_index();
        // SAFETY: no coroutine runs.
        let exhausted = unsafe { (*self.context()).exhausted };
        if !exhausted.is_null() {
            // SAFETY: keys are C++ constants.
            let (name, bytes) = unsafe { ((*exhausted).name, (*exhausted).bytes) };
            return EmulatorError::SharedExhausted {
                kernel,
                block,
                array: text(name),
                bytes,
            };
        }
        let thread = &self.threads[thread];
        EmulatorError::Trap {
            kernel,
            block,
            thread: Index(thread.thread_idx),
            reason: text(thread.what),
            location: location(thread),
        }
    }

    /// Explains why no warp operation of the `waiting` lanes can complete.
    fn warp_mismatch(&self, launch: &Launch, warp: usize, waiting: u32) -> EmulatorError {
        let base = warp * WARP;
        let existing = lanes_mask(self.lanes(warp));
        let first = waiting.trailing_zeros() as usize;
        let kernel = launch.kernel.to_owned();
        let block = self.block_index();
        if let Some(outsider) =
            bits(waiting).find(|&lane| self.threads[base + lane].mask >> lane & 1 == 0)
        {
            return EmulatorError::NotInMask {
                kernel,
                block,
                waiting: self.waiting(base + outsider),
            };
        }
        let leader = &self.threads[base + first];
        let mask = leader.mask & existing;
        let other = bits(mask).find(|&lane| {
            let thread = &self.threads[base + lane];
            thread.wait != wait::WARP
                || thread.mask & existing != mask
                || !same_operation(leader, thread)
        });
        let other = base + other.unwrap_or(first);
        if self.threads[other].wait == wait::DONE {
            return EmulatorError::WarpAfterExit {
                kernel,
                block,
                waiting: self.waiting(base + first),
                exited: Index(self.threads[other].thread_idx),
            };
        }
        EmulatorError::WarpMismatch {
            kernel,
            block,
            first: self.waiting(base + first),
            second: self.waiting(other),
        }
    }

    /// After a failed block: makes every coroutine startable again.
    fn abandon(&mut self) {
        let context = self.context();
        for thread in &mut self.threads {
            if !thread.copies.is_null() {
                // SAFETY: the thread never runs again.
                unsafe { abi::zinc_emulator_end_copies(thread.copies, false) };
                thread.copies = ptr::null_mut();
            }
        }
        // SAFETY: no coroutine runs.
        unsafe {
            *(*context).current = ptr::null_mut();
            (*context).next = (*context).queued;
        }
        self.idle.clear();
        for (slot, mut fiber) in std::mem::take(&mut self.fibers).into_iter().enumerate() {
            // SAFETY: what lives on a coroutine's stack are frames of `fiber_body`, of the callbacks and of kernels
            // compiled without exceptions: none of them has anything to drop.
            unsafe { fiber.force_reset() };
            let stack = fiber.into_stack();
            let (lowest, bytes) = stack.usable();
            abi::set_accessible(lowest, bytes, true);
            self.fibers.push(new_fiber(stack, context));
            self.idle.push(slot);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        for fiber in &mut self.fibers {
            // SAFETY: as in `abandon`.
            unsafe { fiber.force_reset() };
        }
        // SAFETY: the context comes from a leaked box, and its coroutines never run again.
        drop(unsafe { Box::from_raw(self.context()) });
    }
}

fn new_fiber(stack: ThreadStack, context: *mut Context) -> Fiber {
    Fiber::with_stack(stack, move |yielder, ()| fiber_body(context, yielder))
}

fn is_in_phase(thread: &Thread) -> bool {
    thread.wait == wait::PHASE
}

/// The barrier of a thread that waits for a phase.
fn phase_of(thread: &Thread) -> Phase {
    // SAFETY: the barrier is in the block's shared memory, as phase_wait has found.
    unsafe { thread.args.cast::<Phase>().read_unaligned() }
}

/// Whether a thread waits for a phase that has ended.
fn phase_has_ended(thread: &Thread) -> bool {
    is_in_phase(thread) && u32::from(phase_of(thread).parity) != thread.value
}

/// The first `lanes` bits.
fn lanes_mask(lanes: usize) -> u32 {
    u32::MAX >> (WARP - lanes)
}

/// The set bits of a mask.
fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let bit = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            bit
        })
    })
}

fn same_operation(a: &Thread, b: &Thread) -> bool {
    a.collective == b.collective && same_place(a, b)
}

/// Whether two waiting threads wait for the same thing in the same line of source.
fn same_place(a: &Thread, b: &Thread) -> bool {
    a.line == b.line && same_text(a.file, b.file) && same_text(a.what, b.what)
}

fn same_text(a: *const c_char, b: *const c_char) -> bool {
    // SAFETY: both are C++ string literals.
    a == b || unsafe { CStr::from_ptr(a) == CStr::from_ptr(b) }
}

fn text(literal: *const c_char) -> String {
    if literal.is_null() {
        return "?".to_owned();
    }
    // SAFETY: it is a C++ string literal.
    unsafe { CStr::from_ptr(literal) }
        .to_string_lossy()
        .into_owned()
}

fn location(thread: &Thread) -> String {
    format!("{}:{}", text(thread.file), thread.line)
}
