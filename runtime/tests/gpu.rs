//! The runtime on a real GPU. Every test prints a line and passes where there is none.
//!
//! `ZINC_CUBINS` names an archive whose kernels are loaded as well. The program runs by itself: it can be built on one
//! machine and carried to another.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::Write;
use std::time::Instant;

use common::{archive, chain, filled, ptx::VADD_PTX, vadd, values};
use cubin_format::Archive;
use zinc_contract::KERNELS;
use zinc_contract::launch::{DmmvQ5_1MoeBuffers, DmmvQ5_1MoePush, dmmv_q5_1_moe};
use zinc_runtime::{
    Buffer, BufferError, BufferSlice, CommandList, Device, DeviceError, DeviceSelector, DispatchId,
    Event, Library, LibraryError, Queue, QueueError, StagingOptions, Uploader,
};

/// The best GPU; none, with a line that says why, where there is none.
fn device() -> Option<Device> {
    match Device::open(&DeviceSelector::Auto) {
        Ok(device) => Some(device),
        Err(error) if error.is_no_device() => {
            println!(
                "skipped, no GPU: {}",
                error.to_string().lines().next().unwrap_or_default()
            );
            None
        }
        Err(DeviceError::Driver(error)) => {
            println!("skipped, unusable driver: {error}");
            None
        }
        Err(error) => panic!("{}", chain(&error)),
    }
}

fn library() -> Option<Library> {
    let device = device()?;
    Some(Library::new(&device, archive(&[("vadd", &[("compute_75", VADD_PTX)])])).unwrap())
}

fn queue() -> Option<Queue> {
    Some(Queue::new(&library()?).unwrap())
}

fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|at| (at % 1000) as f32).collect()
}

/// a = ramp, b = 1, c = 0, each of `n` floats.
fn operands(queue: &Queue, n: usize) -> [Buffer; 3] {
    let operands = [
        filled(queue, &ramp(n)),
        filled(queue, &vec![1.0; n]),
        filled(queue, &vec![0.0; n]),
    ];
    queue.commit_and_wait().unwrap();
    operands
}

fn add(queue: &Queue, n: usize, [a, b, c]: &[Buffer; 3]) {
    queue
        .dispatch(vadd(), &[n as u32], &[a.all(), b.all(), c.all()])
        .unwrap();
}

#[test]
fn gpu_describes_itself() {
    let Some(device) = device() else { return };
    let info = device.info();
    println!(
        "{info:?}, driver {} of {}",
        device.driver().version(),
        device.driver().path().display()
    );
    assert!(info.capability.major >= 5 && info.sm_count > 0 && info.warp_size == 32);
    assert!(
        info.memory_bytes > 1 << 30 && info.l2_bytes > 0 && info.shared_bytes_per_block >= 48 << 10
    );
    let (free, total) = device.memory().unwrap();
    assert!(free <= total && total <= info.memory_bytes + (1 << 30));
    let again = |selector: DeviceSelector| {
        Device::open_with(device.driver(), &selector)
            .unwrap()
            .info()
            .ordinal
    };
    assert_eq!(again(DeviceSelector::Uuid(info.uuid)), info.ordinal);
    assert_eq!(again(info.pci_bus_id.parse().unwrap()), info.ordinal);
}

#[test]
fn gpu_adds() {
    let Some(queue) = queue() else { return };
    for n in [1, 255, 1024, 1025, 1_000_003] {
        let buffers = operands(&queue, n);
        add(&queue, n, &buffers);
        let wanted: Vec<f32> = ramp(n).iter().map(|value| value + 1.0).collect();
        assert!(values(&queue, &buffers[2]) == wanted, "{n} elements");
    }
}

#[test]
fn gpu_binds_offsets_and_leaves_the_rest_alone() {
    let Some(queue) = queue() else { return };
    let [a, b, c] = operands(&queue, 100);
    queue
        .dispatch(
            vadd(),
            &[10],
            &[
                a.slice(40..80).unwrap(),
                b.slice(4..44).unwrap(),
                c.slice(8..48).unwrap(),
            ],
        )
        .unwrap();
    let result = values(&queue, &c);
    let wanted: Vec<f32> = (0..100)
        .map(|at| {
            if (2..12).contains(&at) {
                (at + 8 + 1) as f32
            } else {
                0.0
            }
        })
        .collect();
    assert_eq!(result, wanted);
}

#[test]
fn gpu_ring_releases_in_order() {
    let Some(queue) = queue() else { return };
    let n = 1 << 20;
    let buffers = operands(&queue, n);
    let mut tokens = Vec::new();
    for _ in 0..200 {
        for _ in 0..10 {
            add(&queue, n, &buffers);
        }
        tokens.push(queue.commit_async().unwrap());
    }
    drop(buffers);
    assert!(queue.pending() <= 64);
    queue.wait(tokens[150]).unwrap();
    assert!(queue.is_done(tokens[150]).unwrap() && queue.is_done(tokens[0]).unwrap());
    queue.wait(tokens[199]).unwrap();
    assert_eq!(queue.pending(), 0);
}

#[test]
fn gpu_graph_replays_with_new_words() {
    let Some(queue) = queue() else { return };
    let [a, b, c] = operands(&queue, 5000);
    let poison = || {
        queue.fill(c.all(), 0xff).unwrap();
        queue.commit_and_wait().unwrap();
    };
    let written = || {
        values(&queue, &c)
            .iter()
            .take_while(|value| !value.is_nan())
            .count()
    };

    queue.begin_capture().unwrap();
    queue
        .dispatch(vadd(), &[5000], &[a.all(), b.all(), c.all()])
        .unwrap();
    let captured = queue.last_captured().unwrap();
    queue
        .dispatch(vadd(), &[0], &[a.all(), b.all(), c.all()])
        .unwrap();
    let empty = queue.last_captured().unwrap();
    let from_capture = queue.end_capture().unwrap();

    let mut list = CommandList::new(queue.library());
    list.dispatch(vadd(), &[5000], &[a.all(), b.all(), c.all()])
        .unwrap();
    list.dispatch(vadd(), &[0], &[a.all(), b.all(), c.all()])
        .unwrap();
    let from_list = list.graph().unwrap();
    assert_eq!((captured, empty), (DispatchId::new(0), DispatchId::new(1)));

    for mut graph in [from_capture, from_list] {
        queue.prepare(&graph).unwrap();
        for (first, second, wanted) in [
            (5000, 0, 5000),
            (100, 0, 100),
            (0, 3000, 3000),
            (0, 0, 0),
            (7, 9, 9),
            (5000, 1, 5000),
        ] {
            graph.set_words(captured, &[first]).unwrap();
            graph.set_words(empty, &[second]).unwrap();
            poison();
            queue.launch(&graph).unwrap();
            queue.commit_and_wait().unwrap();
            assert_eq!(written(), wanted, "words {first} and {second}");
        }
        assert!(graph.set_words(captured, &[5001]).is_err());
    }
}

#[test]
fn gpu_launch_keeps_the_words_it_was_submitted_with() {
    let Some(queue) = queue() else { return };
    let [a, b, c] = operands(&queue, 4096);
    queue.fill(c.all(), 0).unwrap();
    queue.commit_and_wait().unwrap();
    let mut list = CommandList::new(queue.library());
    // c = c + b over n elements: element i counts the launches with n > i.
    list.dispatch(vadd(), &[1], &[c.all(), b.all(), c.all()])
        .unwrap();
    let mut graph = list.graph().unwrap();
    for n in 1..=200 {
        graph.set_words(DispatchId::new(0), &[n]).unwrap();
        queue.launch(&graph).unwrap();
    }
    drop((graph, list, a));
    let result = values(&queue, &c);
    assert!(
        (0..200).all(|at| result[at] == (200 - at) as f32),
        "{:?}",
        &result[..10]
    );
}

#[test]
fn gpu_capture_takes_fills_and_copies() {
    let Some(queue) = queue() else { return };
    let [a, b, c] = operands(&queue, 64);
    queue.begin_capture().unwrap();
    queue.fill(c.all(), 0).unwrap();
    queue.copy(a.all(), c.all()).unwrap();
    queue
        .dispatch(vadd(), &[64], &[a.all(), b.all(), c.all()])
        .unwrap();
    queue
        .dispatch(vadd(), &[64], &[c.all(), b.all(), c.all()])
        .unwrap();
    let graph = queue.end_capture().unwrap();
    assert_eq!(values(&queue, &a), ramp(64), "recording runs nothing");
    for _ in 0..3 {
        queue.launch(&graph).unwrap();
    }
    assert_eq!(values(&queue, &c), [2.0; 64]);
}

#[test]
fn gpu_event_orders_queues_and_times_work() {
    let Some(library) = library() else { return };
    let (first, second) = (Queue::new(&library).unwrap(), Queue::new(&library).unwrap());
    let n = 1 << 22;
    let [a, b, c] = operands(&first, n);
    let d = library.device().buffer(4 * n as u64).unwrap();
    let (_, took) = first
        .time(|queue| {
            for _ in 0..20 {
                queue
                    .dispatch(vadd(), &[n as u32], &[a.all(), b.all(), c.all()])
                    .unwrap();
            }
            Ok::<_, QueueError>(())
        })
        .unwrap();
    println!(
        "20 sums of {n} floats: {took:?}, {:.0} GB/s",
        20.0 * 12.0 * n as f64 / took.as_secs_f64() / 1e9
    );
    assert!(took.as_micros() > 20);
    for _ in 0..20 {
        first
            .dispatch(vadd(), &[n as u32], &[c.all(), b.all(), c.all()])
            .unwrap();
    }
    let event = Event::new(library.device()).unwrap();
    first.record(&event).unwrap();
    second.wait_for(&event).unwrap();
    second
        .dispatch(vadd(), &[n as u32], &[c.all(), b.all(), d.all()])
        .unwrap();
    let result = values(&second, &d);
    assert!(
        result
            .iter()
            .zip(ramp(n))
            .all(|(value, start)| *value == start + 22.0)
    );
    first.synchronize().unwrap();
}

#[test]
fn gpu_uploads_through_bounded_memory() {
    let Some(device) = device() else { return };
    const BYTES: usize = 1 << 30;
    let mut file = tempfile::tempfile().unwrap();
    let block: Vec<u8> = (0..1 << 20).map(|at| (at % 253) as u8).collect();
    for _ in 0..BYTES >> 20 {
        file.write_all(&block).unwrap();
    }
    // SAFETY: the file is the test's own.
    let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
    let buffer = device.buffer(BYTES as u64).unwrap();
    let mut uploader = Uploader::new(&device).unwrap();
    let before = resident_bytes();
    let rate = |start: Instant| BYTES as f64 / start.elapsed().as_secs_f64() / 1e9;

    let start = Instant::now();
    uploader.upload_map(buffer.all(), &map, 0..BYTES).unwrap();
    uploader.finish().unwrap();
    println!("from a map: {:.1} GB/s", rate(start));
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes more are resident");

    let start = Instant::now();
    uploader.upload_file(buffer.all(), &file, 0).unwrap();
    uploader.finish().unwrap();
    println!("from a file: {:.1} GB/s", rate(start));
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes more are resident");

    let mut part = vec![0; 3 << 20];
    for at in [0, 777 << 20, BYTES - part.len()] {
        let slice = buffer.slice(at as u64..(at + part.len()) as u64).unwrap();
        uploader.download(slice, &mut part).unwrap();
        assert!(
            part.chunks(1 << 20).all(|found| found == block),
            "at byte {at}"
        );
    }
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn gpu_staging_smaller_than_the_data_arrives_whole() {
    let Some(device) = device() else { return };
    let options = StagingOptions {
        slots: 3,
        slot_bytes: 64 << 10,
    };
    let mut uploader = Uploader::with_options(&device, options).unwrap();
    for bytes in [1usize, 65_535, 65_537, 10_000_019] {
        let data: Vec<u8> = (0..bytes)
            .map(|at| (at % 251) as u8 ^ (at >> 11) as u8)
            .collect();
        let buffer = device.buffer(bytes as u64).unwrap();
        uploader.upload(buffer.all(), &data).unwrap();
        let mut back = vec![0; bytes];
        uploader.download(buffer.all(), &mut back).unwrap();
        assert!(back == data, "{bytes} bytes");
    }
}

#[test]
fn gpu_refuses_broken_ptx_with_the_log() {
    let Some(device) = device() else { return };
    let broken = VADD_PTX.replace("add.f32", "frobnicate.f32");
    let library = Library::new(&device, archive(&[("vadd", &[("compute_75", &broken)])])).unwrap();
    let error = library.load(vadd()).unwrap_err();
    println!("{}", chain(&error));
    assert!(
        matches!(&error, LibraryError::Load { source, .. } if source.log.is_some()),
        "{error:?}"
    );
}

#[test]
fn gpu_refuses_other_parameters_than_the_contract() {
    let Some(device) = device() else { return };
    let wider = VADD_PTX.replace("vadd_push[4]", "vadd_push[8]");
    let library = Library::new(&device, archive(&[("vadd", &[("compute_75", &wider)])])).unwrap();
    let error = library.load(vadd()).unwrap_err();
    assert!(
        matches!(
            error,
            LibraryError::Abi {
                parameter: 3,
                wanted: 4,
                found: Some((24, 8)),
                ..
            }
        ),
        "{error}"
    );
}

/// Every dispatch adds 1 to what the one before it wrote, with kernels that are started before that one has ended. Some
/// dispatches have nothing to do, so that the chain goes over disabled nodes of a graph.
#[test]
fn gpu_dispatches_that_overlap_keep_their_order() {
    let Some(path) = std::env::var_os("ZINC_CUBINS") else {
        println!("skipped, ZINC_CUBINS names no archive");
        return;
    };
    let Some(device) = device() else { return };
    assert!(vadd().overlap, "the test needs such a kernel");
    let library = Library::new(&device, Archive::read(path.as_ref()).unwrap()).unwrap();
    let queue = Queue::new(&library).unwrap();
    // Sizes alternate, so that blocks of one dispatch finish while the next one has more or fewer.
    let sizes: Vec<u32> = (0..200)
        .map(|at| [1 << 20, 0, 1 << 18, 1 << 20][at % 4])
        .collect();
    let wanted = sizes.iter().filter(|n| **n == 1 << 20).count() as f32;
    let [_, one, sum] = operands(&queue, 1 << 20);
    let slices = [sum.all(), one.all(), sum.all()];
    let check = |how: &str, rounds: usize| {
        queue.commit_and_wait().unwrap();
        let last = values(&queue, &sum);
        let wrong = last[1 << 18..]
            .iter()
            .position(|v| *v != wanted * rounds as f32);
        assert_eq!(wrong, None, "{how}: the sums after the first quarter");
    };

    let mut list = CommandList::new(&library);
    queue.begin_capture().unwrap();
    for n in &sizes {
        queue.dispatch(vadd(), &[*n], &slices).unwrap();
        list.dispatch(vadd(), &[*n], &slices).unwrap();
    }
    let captured = queue.end_capture().unwrap();
    let built = list.graph().unwrap();
    for n in &sizes {
        queue.dispatch(vadd(), &[*n], &slices).unwrap();
    }
    check("launched one by one", 1);
    queue.launch(&captured).unwrap();
    check("captured", 2);
    queue.launch(&built).unwrap();
    check("built", 3);
}

/// Ids of experts change from step to step, written by a dispatch right before the one that reads them early, or with one
/// between them, which is when that may read them before it waits. Every expert's products are its number times the columns.
#[test]
fn gpu_reads_early_what_the_dispatch_before_the_last_has_written() {
    const EXPERTS: u32 = 64;
    const SLOTS: u32 = 8;
    const M: u32 = 64;
    const K: u32 = 512;
    const STEPS: u32 = 300;
    let Some(path) = std::env::var_os("ZINC_CUBINS") else {
        println!("skipped, ZINC_CUBINS names no archive");
        return;
    };
    let Some(device) = device() else { return };
    let kernel = zinc_contract::kernel("dmmv_q5_1_moe").unwrap();
    assert_eq!(kernel.early, [0, 3], "the test needs such a kernel");
    let library = Library::new(&device, Archive::read(path.as_ref()).unwrap()).unwrap();
    let queue = Queue::new(&library).unwrap();

    let expert_bytes = M * K / 32 * 24;
    let block = |expert: u32| {
        [
            &[0, 0],
            &half::f16::from_f32(expert as f32).to_le_bytes()[..],
            &[0; 20],
        ]
        .concat()
    };
    let weights = (0..EXPERTS).flat_map(|expert| block(expert).repeat((M * K / 32) as usize));
    let weights = Vec::from_iter(weights);
    let matrices = device.buffer(weights.len() as u64).unwrap();
    queue.write(matrices.all(), &weights).unwrap();
    let x = filled(&queue, &[1.0; K as usize]);
    // Small integers as the bits of floats, to which another kernel adds zeros.
    let id = |step: u32, slot: u32| (step * 29 + slot * 7) % EXPERTS;
    let ids = (0..STEPS * SLOTS).map(|at| f32::from_bits(id(at / SLOTS, at % SLOTS)));
    let ids = filled(&queue, &Vec::from_iter(ids));
    let zeros = filled(&queue, &[0.0; SLOTS as usize]);
    let routing = filled(&queue, &[0.0; SLOTS as usize]);
    let y = device.buffer(u64::from(STEPS * SLOTS * M * 4)).unwrap();
    let [a, b, c] = operands(&queue, 1 << 20);

    fn part(buffer: &Buffer, step: u32, bytes: u32) -> BufferSlice<'_> {
        let (start, bytes) = (u64::from(step * bytes), u64::from(bytes));
        buffer.slice(start..start + bytes).unwrap()
    }
    let push = DmmvQ5_1MoePush {
        m: M,
        k: K,
        expert_stride: expert_bytes,
        ..Default::default()
    };
    let mut list = CommandList::new(&library);
    for step in 0..STEPS {
        let new = part(&ids, step, SLOTS * 4);
        list.dispatch(vadd(), &[SLOTS], &[new, zeros.all(), routing.all()])
            .unwrap();
        let between = [1 << 20, 0, 1, 1 << 16][step as usize % 4];
        list.dispatch(vadd(), &[between], &[a.all(), b.all(), c.all()])
            .unwrap();
        let buffers = DmmvQ5_1MoeBuffers {
            weights: matrices.all(),
            x: x.all(),
            y: part(&y, step, SLOTS * M * 4),
            routing: routing.all(),
        };
        dmmv_q5_1_moe(&mut list, &push, SLOTS, EXPERTS, buffers).unwrap();
    }
    let check = |how: &str| {
        queue.commit_and_wait().unwrap();
        let found = values(&queue, &y);
        let wanted = |at: usize| {
            let at = at as u32 / M;
            (id(at / SLOTS, at % SLOTS) * K) as f32
        };
        let wrong = (0..found.len()).find(|at| found[*at] != wanted(*at));
        let wrong = wrong.map(|at| (at, found[at], wanted(at)));
        assert_eq!(wrong, None, "{how}: place, found, wanted");
        queue.fill(y.all(), 0xff).unwrap();
    };
    let graph = list.graph().unwrap();
    for round in 0..5 {
        queue.submit(&list).unwrap();
        check(&format!("list, round {round}"));
        queue.launch(&graph).unwrap();
        check(&format!("graph, round {round}"));
    }
}

#[test]
fn gpu_without_room_says_what_is_free() {
    let Some(device) = device() else { return };
    let error = device.buffer(1 << 50).unwrap_err();
    println!("{error}");
    assert!(matches!(error, BufferError::OutOfMemory { .. }));
}

#[test]
fn gpu_loads_every_kernel_of_the_archive() {
    let Some(path) = std::env::var_os("ZINC_CUBINS") else {
        println!("skipped, ZINC_CUBINS names no archive");
        return;
    };
    let Some(device) = device() else { return };
    let start = Instant::now();
    let library = Library::new(&device, Archive::read(path.as_ref()).unwrap()).unwrap();
    let opened = start.elapsed();
    let loaded = library.load_all().unwrap();
    println!(
        "{loaded} kernels: archive opened in {opened:?}, all loaded after {:?}",
        start.elapsed()
    );
    let in_table = |name: &str| KERNELS.iter().any(|kernel| kernel.name == name);
    assert_eq!(
        loaded,
        library
            .archive()
            .kernels()
            .iter()
            .filter(|kernel| in_table(&kernel.name))
            .count()
    );
    for kernel in KERNELS
        .iter()
        .filter(|kernel| library.archive().kernel(kernel.name).is_ok())
    {
        let info = library.load(kernel).unwrap();
        assert!(
            info.max_threads_per_block >= 32 && info.registers > 0,
            "{}: {info:?}",
            kernel.name
        );
    }
}

#[test]
fn gpu_first_result_is_quick() {
    let start = Instant::now();
    let Some(device) = device() else { return };
    let opened = start.elapsed();
    let library = match std::env::var_os("ZINC_CUBINS") {
        Some(path) => Library::new(&device, Archive::read(path.as_ref()).unwrap()),
        None => Library::new(&device, archive(&[("vadd", &[("compute_75", VADD_PTX)])])),
    };
    let queue = Queue::new(&library.unwrap()).unwrap();
    let buffers = operands(&queue, 8);
    add(&queue, 8, &buffers);
    assert_eq!(values(&queue, &buffers[2])[7], 8.0);
    println!(
        "device opened after {opened:?}, first result after {:?}",
        start.elapsed()
    );
}
