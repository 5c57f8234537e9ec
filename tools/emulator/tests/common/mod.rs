//! Launching the kernels of tests/kernels.
#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "every test file uses a part of it"
)]

use zinc_contract::Geometry;
use zinc_emulator::{Buffer, Emulator, EmulatorError, Entry, Options, Schedule, Stats};

/// Declares entries of tests/kernels.
macro_rules! test_kernels {
    ($($name:ident)*) => {
        $(
            fn $name() -> (&'static str, &'static zinc_emulator::Entry) {
                unsafe extern "C" {
                    #[link_name = concat!("zinc_emulator_entry_", stringify!($name))]
                    safe fn entry() -> &'static zinc_emulator::Entry;
                }
                (stringify!($name), entry())
            }
        )*
    };
}
pub(crate) use test_kernels;

pub type Kernel = (&'static str, &'static Entry);

pub fn emulator() -> Emulator {
    Emulator::new(Options::default())
}

pub fn grid(blocks: u32, threads: u32) -> Geometry {
    Geometry {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        cluster: 1,
        shared_bytes: 0,
    }
}

pub fn launch(
    emulator: &Emulator,
    (name, entry): Kernel,
    geometry: Geometry,
    words: &[u32],
    buffers: &[Buffer],
) -> Result<Stats, EmulatorError> {
    // SAFETY: the kernels of these tests stay in the buffers, or a little outside where a test wants that.
    unsafe { emulator.launch(name, entry, geometry, words, buffers) }
}

pub fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

pub fn read_u32(buffer: &Buffer) -> Vec<u32> {
    let data = buffer.read();
    let (words, _) = data.as_chunks();
    words.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

pub fn read_f32(buffer: &Buffer) -> Vec<f32> {
    read_u32(buffer).into_iter().map(f32::from_bits).collect()
}

/// Emulators with every kind of schedule.
pub fn all_orders() -> Vec<Emulator> {
    let schedules = [
        Schedule::Forward,
        Schedule::Reverse,
        Schedule::Seeded(1),
        Schedule::Seeded(2),
    ];
    let emulator = |schedule| {
        Emulator::new(Options {
            schedule,
            ..Options::default()
        })
    };
    schedules.map(emulator).into()
}
