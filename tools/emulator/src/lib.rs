//! Runs the kernel sources on the CPU: CUDA threads as coroutines.
//!
//! The build script compiles every implementation in `kernels-cu` with the host's C++ compiler against
//! `include/zinc_emulator.h`, which supplies CUDA's built-ins. A dispatch runs the blocks of the grid in parallel on OS
//! threads. The threads of one block are coroutines of one OS thread; barriers and warp operations are rendezvous of
//! all that take part, so that a divergent barrier, a wrong mask or a thread that has left is an error with the source
//! lines of those who wait, and not a hang. Writes outside a buffer or a shared array are found when a dispatch or a
//! block ends, races and uninitialised shared memory by [`Emulator::dispatch_checked_twice`].
//!
//! ```no_run
//! use zinc_emulator::{Emulator, Options};
//!
//! let vadd = zinc_contract::kernel("vadd")?;
//! let emulator = Emulator::new(Options::default());
//! let [a, b, c] = [(); 3].map(|()| emulator.alloc(4000));
//! a.write(&vec![0; 4000])?;
//! b.write(&vec![0; 4000])?;
//! let words = vadd.words(&1000u32.to_ne_bytes(), &[], &[])?;
//! emulator.dispatch(vadd, &words, &[a, b, c.clone()])?;
//! assert_eq!(c.read(), vec![0; 4000]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//! Threads run until they wait at a barrier, for a phase or in a warp operation: one that spins on memory until another
//! thread or block writes may never end. The threads of a block that have returned are not at its barriers, as hardware would have it:
//! `__syncthreads` after the exit of a thread is an error, because CUDA only promises it for whole blocks.
//! Kernels can't throw; `__trap()` and `assert` end the dispatch with an error. A read outside a buffer is only found
//! with the address sanitizer, and an access far outside may end the process as on any host.
//!
//! # Instructions without a built-in
//! Wrappers of tensor-core and asynchronous-copy instructions get their host meaning from
//! `zinc_emulator::warp_collective`, which sees the arguments of all lanes at once, and `zinc_emulator::copy_async`,
//! whose copies arrive when they are waited for and not before.
//!
//! # Build
//! A kernel that does not compile fails the build; with `ZINC_EMULATOR_PARTIAL=1` it is left out with a warning. Only
//! kernels whose sources changed are compiled again.
//!
//! # Sanitizers
//! With `ZINC_EMULATOR_SANITIZE=address,undefined` in the environment of the build, kernels are instrumented, and the
//! memory around buffers and shared arrays is off limits: the first access outside ends the process with a message that
//! names the kernel. It needs GCC, whose sanitizer libraries are linked dynamically, and
//! `ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0` where the program runs.

mod abi;
mod buffer;
mod emulator;
mod error;
mod schedule;
mod shared;
mod stack;
mod table;
mod worker;

pub use abi::Entry;
pub use buffer::Buffer;
pub use emulator::{Emulator, Options, Stats};
pub use error::{EmulatorError, Index, Signature, Waiting};
pub use schedule::Schedule;
pub use table::kernels;
