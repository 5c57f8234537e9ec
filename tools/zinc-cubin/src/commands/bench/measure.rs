//! Runs rows: on a GPU by graph replay over rotating buffers, on the emulator once.

use std::time::{Duration, Instant};

use serde::Serialize;
use zinc_contract::Access;
use zinc_emulator::Emulator;
use zinc_runtime::{Buffer, BufferSlice, CommandList, Device, Library, Queue};

use super::data::{Content, contents};
use super::shape::{Regime, Row, pieces};

/// Copies of a cold row's data are together so many times as large as the L2 cache.
const CACHES: u64 = 3;
/// Most dispatches of one graph.
const NODES: usize = 600;
/// What one replay should take, so that its own start does not count.
const REPLAY: Duration = Duration::from_millis(3);
/// A buffer of at least this share of a row's data is copied for a cold row. Smaller ones were just written by the kernel
/// before, in an engine, and are in the cache.
const SHARE: u64 = 16;
/// Bytes of the copy that gives the ceiling.
const COPY: u64 = 1 << 30;

/// Time of one dispatch.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Timing {
    /// Median over the replays, microseconds.
    pub us: f64,
    /// Fastest and slowest replay.
    pub us_low: f64,
    pub us_high: f64,
    /// Sets of buffers that the dispatches go round.
    pub sets: usize,
    /// Dispatches of a replay.
    pub dispatches: usize,
    /// Replays that were timed.
    pub replays: usize,
}

/// What running a row gave: its time, the initial contents of its first set, and the final ones of what it writes.
pub struct Ran {
    pub timing: Timing,
    pub initial: Vec<Content>,
    pub outputs: Vec<Option<Vec<u8>>>,
}

/// A GPU with the archive's kernels.
pub struct Gpu {
    pub device: Device,
    pub library: Library,
    pub queue: Queue,
    /// Timed replays of a row.
    pub replays: usize,
}

/// The buffers of one dispatch; equal buffers of several sets are clones.
type Set = Vec<Option<Buffer>>;

impl Gpu {
    /// Bytes per second of the driver's copy on the device, counting bytes read and bytes written.
    ///
    /// # Errors
    /// A failure of the driver.
    pub fn copy_bandwidth(&self) -> anyhow::Result<f64> {
        let (free, _) = self.device.memory()?;
        let bytes = COPY.min(free / 4);
        let (from, to) = (self.device.buffer(bytes)?, self.device.buffer(bytes)?);
        let seed = self.upload(&Content {
            period: zinc_oracle::Rng::new(1).bytes(4 << 20).into(),
            bytes,
        })?;
        self.queue.copy(from.all(), seed.all())?;
        let mut times = Vec::new();
        for _ in 0..9 {
            let (_, time) = self.queue.time(|queue| queue.copy(to.all(), from.all()))?;
            times.push(time);
        }
        self.queue.commit_and_wait()?;
        // The first ones warm up.
        let median = median(&mut times[2..]);
        Ok(2.0 * bytes as f64 / median.as_secs_f64())
    }

    /// Times a row, then resets what it writes, dispatches it once more and reads the results.
    ///
    /// # Errors
    /// A failure of the driver or of the contract's check, and a device without enough memory.
    pub fn run(&self, row: &Row) -> anyhow::Result<Ran> {
        let rounds = contents(row);
        let sets = self.sets(row, &rounds)?;
        let pristine = self.pristine(row, &sets[0])?;
        let timing = self.time(row, &sets, &pristine);
        self.queue.commit_and_wait()?;
        let timing = timing?;

        let first = &sets[0];
        for ((buffer, content), set) in row.buffers.iter().zip(&rounds[0]).zip(first) {
            if let (true, Some(memory)) = (buffer.access.writes(), set) {
                self.write(memory, content)?;
            }
        }
        self.queue
            .dispatch(row.kernel, &row.words, &slices(first))?;
        let mut outputs = Vec::new();
        for (buffer, set) in row.buffers.iter().zip(first) {
            outputs.push(match set {
                Some(memory) if buffer.access.writes() => {
                    let mut bytes = vec![0; buffer.bytes as usize];
                    self.queue.read(memory.all(), &mut bytes)?;
                    Some(bytes)
                }
                _ => None,
            });
        }
        self.queue.commit_and_wait()?;
        Ok(Ran {
            timing,
            initial: rounds[0].clone(),
            outputs,
        })
    }

    /// Copies of what a row reads and writes.
    fn pristine(&self, row: &Row, set: &Set) -> anyhow::Result<Set> {
        let mut pristine = Vec::new();
        for (buffer, memory) in row.buffers.iter().zip(set) {
            pristine.push(match memory {
                Some(memory) if buffer.access == Access::ReadWrite => {
                    let copy = self.device.buffer(memory.bytes())?;
                    self.queue.copy(copy.all(), memory.all())?;
                    Some(copy)
                }
                _ => None,
            });
        }
        Ok(pristine)
    }

    /// Gives every set back what it had: a kernel that works in place would drift away from ordinary values.
    fn restore(&self, sets: &[Set], pristine: &Set) -> anyhow::Result<()> {
        for (index, copy) in pristine.iter().enumerate() {
            let Some(copy) = copy else { continue };
            let mut last = None;
            for memory in sets.iter().filter_map(|set| set[index].as_ref()) {
                if last.replace(memory.address()) != Some(memory.address()) {
                    self.queue.copy(memory.all(), copy.all())?;
                }
            }
        }
        Ok(())
    }

    fn time(&self, row: &Row, sets: &[Set], pristine: &Set) -> anyhow::Result<Timing> {
        let dispatch = |queue: &Queue, set: &Set| -> anyhow::Result<()> {
            Ok(queue.dispatch(row.kernel, &row.words, &slices(set))?)
        };
        dispatch(&self.queue, &sets[0])?;
        self.queue.synchronize()?;
        let (_, twice) = self.queue.time(|queue| -> anyhow::Result<()> {
            dispatch(queue, &sets[sets.len() - 1])?;
            dispatch(queue, &sets[0])
        })?;
        let one = (twice / 2).max(Duration::from_micros(1));
        let wanted = (REPLAY.as_secs_f64() / one.as_secs_f64()) as usize;
        let dispatches = wanted.clamp(2, NODES).max(sets.len());
        let mut list = CommandList::new(&self.library);
        for set in sets.iter().cycle().take(dispatches) {
            list.dispatch(row.kernel, &row.words, &slices(set))?;
        }
        let graph = list.graph()?;
        self.queue.prepare(&graph)?;
        let mut times = Vec::new();
        for _ in 0..self.replays + 2 {
            self.restore(sets, pristine)?;
            let (_, time) = self.queue.time(|queue| queue.launch(&graph))?;
            times.push(time);
        }
        // A graph must not go before its work is done.
        self.queue.commit_and_wait()?;
        let times = &mut times[2..];
        let median = median(times);
        let us = |time: Duration| time.as_secs_f64() * 1e6 / dispatches as f64;
        Ok(Timing {
            us: us(median),
            us_low: us(times[0]),
            us_high: us(times[times.len() - 1]),
            sets: sets.len(),
            dispatches,
            replays: times.len(),
        })
    }

    /// The sets of buffers that a row goes round: as many as make its large buffers too much for the cache, or one.
    fn sets(&self, row: &Row, rounds: &[Vec<Content>]) -> anyhow::Result<Vec<Set>> {
        let cache = CACHES * u64::from(self.device.info().l2_bytes);
        let total: u64 = row.buffers.iter().map(|buffer| buffer.moved).sum();
        let large: Vec<bool> = row
            .buffers
            .iter()
            .map(|buffer| buffer.moved * SHARE >= total && buffer.bytes > 0)
            .collect();
        let moved: u64 = row
            .buffers
            .iter()
            .zip(&large)
            .filter(|(_, large)| **large)
            .map(|(buffer, _)| buffer.moved.min(buffer.bytes))
            .sum();
        let (copies, rounds) = match row.shape.regime {
            Regime::Warm => (1, &rounds[..1]),
            Regime::Cold => {
                let each = (moved * rounds.len() as u64).max(1);
                let least = if rounds.len() > 1 { 1 } else { 2 };
                (
                    cache.div_ceil(each).clamp(least, NODES as u64) as usize,
                    rounds,
                )
            }
        };
        let make = |content: &Content| -> anyhow::Result<Option<Buffer>> {
            match content.bytes {
                0 => Ok(None),
                _ => self.upload(content).map(Some),
            }
        };
        let base = rounds[0]
            .iter()
            .map(make)
            .collect::<anyhow::Result<Set>>()?;
        let mut sets: Vec<Set> = Vec::new();
        for copy in 0..copies {
            let mut set = base.clone();
            if copy > 0 {
                for (buffer, large) in set.iter_mut().zip(&large) {
                    if let (Some(memory), true) = (&buffer, large) {
                        let again = self.device.buffer(memory.bytes())?;
                        self.queue.copy(again.all(), memory.all())?;
                        *buffer = Some(again);
                    }
                }
            }
            for (index, round) in rounds.iter().enumerate() {
                let mut set = set.clone();
                for (at, content) in round.iter().enumerate() {
                    if index > 0 && !std::sync::Arc::ptr_eq(&content.period, &rounds[0][at].period)
                    {
                        set[at] = make(content)?;
                    }
                }
                sets.push(set);
            }
        }
        self.queue.commit_and_wait()?;
        Ok(sets)
    }

    fn upload(&self, content: &Content) -> anyhow::Result<Buffer> {
        let memory = self.device.buffer(content.bytes)?;
        self.write(&memory, content)?;
        Ok(memory)
    }

    /// Writes one period, and lets the device double it.
    fn write(&self, memory: &Buffer, content: &Content) -> anyhow::Result<()> {
        let mut done = content.bytes.min(content.period.len() as u64);
        self.queue
            .write(memory.slice(..done)?, &content.period[..done as usize])?;
        while done < content.bytes {
            let next = done.min(content.bytes - done);
            self.queue
                .copy(memory.slice(done..done + next)?, memory.slice(..next)?)?;
            done += next;
        }
        Ok(())
    }
}

/// What a dispatch binds.
fn slices(set: &Set) -> Vec<BufferSlice<'_>> {
    set.iter()
        .map(|buffer| buffer.as_ref().map_or(BufferSlice::UNBOUND, Buffer::all))
        .collect()
}

/// Runs a row on the emulator, once.
///
/// # Errors
/// Whatever the emulator finds wrong.
pub fn emulate(emulator: &Emulator, row: &Row) -> anyhow::Result<Ran> {
    let rounds = contents(row);
    let initial = &rounds[0];
    let mut buffers = Vec::new();
    for content in initial {
        buffers.push(emulator.upload(&content.view(&pieces(0, content.bytes, 0, 1)))?);
    }
    let start = Instant::now();
    emulator.dispatch(row.kernel, &row.words, &buffers)?;
    let us = start.elapsed().as_secs_f64() * 1e6;
    let outputs = buffers.iter().zip(&row.buffers).map(|(memory, buffer)| {
        let bytes = buffer.access.writes().then(|| memory.read());
        bytes.filter(|_| buffer.bytes > 0)
    });
    Ok(Ran {
        timing: Timing {
            us,
            us_low: us,
            us_high: us,
            sets: 1,
            dispatches: 1,
            replays: 1,
        },
        outputs: outputs.collect(),
        initial: initial.clone(),
    })
}

/// The median; `times` are sorted afterwards and not empty.
fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
