//! Dispatches, commands, lists, graphs and transfers on the fake driver.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::Write;

use common::{Fake, VADD, archive, filled, floats, to_floats, vadd, vadd_archive, values};
use zinc_contract::{ContractError, EARLY_SHARED_BYTES, Geometry};
use zinc_runtime::{
    Buffer, BufferError, BufferSlice, CommandList, Device, DeviceSelector, DispatchError,
    DispatchId, Event, GraphError, Library, Queue, QueueError, QueueOptions, StagingOptions,
    TransferError, Uploader,
};

/// Three buffers of 8 floats: 1, 2 and zeros.
fn operands(queue: &Queue) -> [Buffer; 3] {
    [
        filled(queue, &[1.0; 8]),
        filled(queue, &[2.0; 8]),
        filled(queue, &[0.0; 8]),
    ]
}

fn add(queue: &Queue, n: u32, [a, b, c]: &[Buffer; 3]) -> Result<(), DispatchError> {
    queue.dispatch(vadd(), &[n], &[a.all(), b.all(), c.all()])
}

// ---- dispatch ----

#[test]
fn dispatch_runs_with_the_geometry_of_the_contract() {
    let fake = Fake::new();
    let queue = fake.queue();
    let buffers = operands(&queue);
    add(&queue, 8, &buffers).unwrap();
    assert_eq!(values(&queue, &buffers[2]), [3.0; 8]);
    let [launch] = fake.launches()[..] else {
        panic!("one launch");
    };
    let geometry = vadd().geometry(90, 132, &[8]).unwrap().unwrap();
    assert_eq!(launch.name(), "vadd");
    assert_eq!(
        (launch.grid, launch.block, launch.shared),
        (geometry.grid, geometry.block, geometry.shared_bytes)
    );
    assert_eq!(launch.words(), [8]);
    assert_eq!(
        launch.pointers[..3],
        [0, 1, 2].map(|at: usize| buffers[at].address())
    );
}

#[test]
fn typed_launch_functions_dispatch_and_record() {
    use zinc_contract::launch::{VaddBuffers, VaddPush};
    let fake = Fake::new();
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    let buffers = VaddBuffers {
        a: a.all(),
        b: b.all(),
        c: c.all(),
    };
    zinc_contract::launch::vadd(&queue, &VaddPush { n: 8 }, buffers).unwrap();
    let mut list = CommandList::new(queue.library());
    zinc_contract::launch::vadd(
        &mut list,
        &VaddPush { n: 4 },
        VaddBuffers {
            a: c.all(),
            ..buffers
        },
    )
    .unwrap();
    queue.submit(&list).unwrap();
    assert_eq!(values(&queue, &c), [5.0, 5.0, 5.0, 5.0, 3.0, 3.0, 3.0, 3.0]);
}

#[test]
fn dispatch_binds_slices_at_their_offset() {
    let fake = Fake::new();
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    queue
        .dispatch(
            vadd(),
            &[4],
            &[
                a.slice(..16).unwrap(),
                b.slice(16..).unwrap(),
                c.slice(8..24).unwrap(),
            ],
        )
        .unwrap();
    assert_eq!(values(&queue, &c), [0.0, 0.0, 3.0, 3.0, 3.0, 3.0, 0.0, 0.0]);
}

#[test]
fn dispatch_with_nothing_to_do_launches_nothing() {
    let fake = Fake::new();
    let queue = fake.queue();
    add(&queue, 0, &operands(&queue)).unwrap();
    queue
        .dispatch(vadd(), &[0], &[BufferSlice::UNBOUND; 3])
        .unwrap();
    queue.commit_and_wait().unwrap();
    assert_eq!(fake.count("launches"), 0);
}

#[test]
fn dispatch_that_breaks_the_contract_never_reaches_the_driver() {
    let fake = Fake::new();
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    let refused =
        |words: &[u32], buffers: &[BufferSlice<'_>]| match queue.dispatch(vadd(), words, buffers) {
            Err(DispatchError::Contract(error)) => error,
            other => panic!("{other:?}"),
        };
    let (x, y, z) = (a.all(), b.all(), c.all());
    assert!(matches!(
        refused(&[9], &[x, y, z]),
        ContractError::BufferTooSmall {
            buffer: "a",
            wanted: 36,
            found: 32,
            ..
        }
    ));
    assert!(matches!(
        refused(&[8], &[x, y]),
        ContractError::BufferCount {
            wanted: 3,
            found: 2,
            ..
        }
    ));
    assert!(matches!(
        refused(&[8], &[x; 17]),
        ContractError::BufferCount {
            wanted: 3,
            found: 17,
            ..
        }
    ));
    assert!(matches!(
        refused(&[8, 1], &[x, y, z]),
        ContractError::WordCount { .. }
    ));
    assert!(matches!(
        refused(&[8], &[BufferSlice::UNBOUND, y, z]),
        ContractError::BufferTooSmall { found: 0, .. }
    ));
    assert!(matches!(
        refused(&[4], &[x.slice(2..).unwrap(), y, z]),
        ContractError::Misaligned { buffer: "a", .. }
    ));
    assert!(matches!(
        refused(&[4], &[x, y, x.slice(4..).unwrap()]),
        ContractError::Overlap { .. }
    ));
    queue.synchronize().unwrap();
    assert_eq!(fake.count("launches"), 0);
}

#[test]
fn buffer_of_another_device_is_refused() {
    let fake = Fake::new();
    fake.set("devices", 2);
    let queue = fake.queue();
    let other = Device::open_with(&fake.driver(), &DeviceSelector::Ordinal(1)).unwrap();
    let foreign = other.buffer(32).unwrap();
    let [a, _, c] = operands(&queue);
    let error = queue
        .dispatch(vadd(), &[8], &[a.all(), foreign.all(), c.all()])
        .unwrap_err();
    assert!(
        matches!(
            error,
            DispatchError::Buffer {
                buffer: "b",
                source: BufferError::WrongDevice,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(
        queue.fill(foreign.all(), 0),
        Err(BufferError::WrongDevice.into())
    );
}

#[test]
fn block_beyond_the_compiled_limit_is_refused() {
    let fake = Fake::new();
    let library =
        Library::new(&fake.device(), vadd_archive(&format!("{VADD} threads=128"))).unwrap();
    let queue = Queue::new(&library).unwrap();
    let error = add(&queue, 8, &operands(&queue)).unwrap_err();
    assert!(
        matches!(
            error,
            DispatchError::Threads {
                most: 128,
                found: 256,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn launch_failure_carries_kernel_target_and_code() {
    let fake = Fake::new();
    let queue = fake.queue();
    let buffers = operands(&queue);
    fake.fail("cuLaunchKernelEx", 2, 0);
    let error = add(&queue, 8, &buffers).unwrap_err();
    let DispatchError::Launch {
        kernel,
        target,
        source,
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(
        (*kernel, target.to_string(), source.code),
        ("vadd", "sm_90".to_owned(), 2)
    );
    assert!(common::chain(&error).contains("CUDA_ERROR_OUT_OF_MEMORY"));
    add(&queue, 8, &buffers).unwrap();
}

#[test]
fn unchecked_dispatch_takes_the_geometry_as_given() {
    let fake = Fake::new();
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    let geometry = Geometry {
        grid: [3, 2, 1],
        block: [32, 1, 1],
        cluster: 1,
        shared_bytes: 16,
    };
    // SAFETY: the buffers have 8 floats; the fake needs no particular geometry.
    unsafe { queue.dispatch_unchecked(vadd(), geometry, &[8], &[a.all(), b.all(), c.all()]) }
        .unwrap();
    queue.synchronize().unwrap();
    let launch = fake.launches()[0];
    assert_eq!(
        (launch.grid, launch.block, launch.shared),
        ([3, 2, 1], [32, 1, 1], 16)
    );
}

#[test]
fn kernel_outside_the_table_is_refused() {
    let fake = Fake::new();
    let queue = fake.queue();
    let original = vadd();
    let copy: &'static zinc_contract::Kernel = Box::leak(Box::new(zinc_contract::Kernel {
        buffers: original.buffers,
        fields: original.fields,
        launch: original.launch,
        may_alias: original.may_alias,
        requires: original.requires,
        ..*original
    }));
    let [a, b, c] = operands(&queue);
    let error = queue
        .dispatch(copy, &[8], &[a.all(), b.all(), c.all()])
        .unwrap_err();
    assert!(error.to_string().contains("not an entry of"), "{error}");
}

// ---- commands ----

#[test]
fn command_holds_its_buffers_until_it_is_done() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let queue = fake.queue();
    let buffers = operands(&queue);
    queue.synchronize().unwrap();
    add(&queue, 8, &buffers).unwrap();
    add(&queue, 8, &buffers).unwrap();
    let [a, b, c] = buffers;
    drop((a, b));
    assert_eq!(fake.live_buffers(), 3, "the open command needs them");
    let token = queue.commit_async().unwrap();
    assert!(!queue.is_done(token).unwrap());
    assert_eq!(queue.release_completed().unwrap(), 0);
    assert_eq!(fake.live_buffers(), 3, "the pending command needs them");
    fake.advance(1);
    assert_eq!(queue.release_completed().unwrap(), 0);
    fake.advance(100);
    assert!(queue.is_done(token).unwrap());
    assert_eq!(fake.live_buffers(), 3, "not released yet");
    assert_eq!(queue.release_completed().unwrap(), 1);
    assert_eq!(fake.live_buffers(), 1);
    assert_eq!(values(&queue, &c), [3.0; 8]);
    assert_eq!(fake.count("sticky"), 0);
}

#[test]
fn buffer_in_two_queues_is_held_by_both() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let library = fake.library();
    let (first, second) = (Queue::new(&library).unwrap(), Queue::new(&library).unwrap());
    let buffers = operands(&first);
    first.synchronize().unwrap();
    for queue in [&first, &second, &first, &second] {
        add(queue, 8, &buffers).unwrap();
    }
    let (one, two) = (
        first.commit_async().unwrap(),
        second.commit_async().unwrap(),
    );
    drop(buffers);
    first.wait(one).unwrap();
    assert_eq!(fake.live_buffers(), 3, "the second queue needs them");
    second.wait(two).unwrap();
    assert_eq!(fake.live_buffers(), 0);
    assert_eq!(fake.count("sticky"), 0);
}

#[test]
fn full_ring_refuses_or_waits() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let queue = fake.queue_with_ring(2);
    let buffers = operands(&queue);
    queue.synchronize().unwrap();
    let commit = || {
        add(&queue, 8, &buffers).unwrap();
        queue.try_commit_async()
    };
    let first = commit().unwrap();
    let second = commit().unwrap();
    assert_eq!(commit(), Err(QueueError::RingFull { capacity: 2 }));
    assert_eq!(queue.pending(), 2);
    // The refused command is still open; the blocking commit waits for the oldest and takes it.
    let third = queue.commit_async().unwrap();
    assert_eq!(queue.pending(), 2);
    assert!(queue.is_done(first).unwrap());
    assert!(!queue.is_done(third).unwrap());
    queue.wait(third).unwrap();
    assert!(queue.is_done(second).unwrap());
    assert_eq!(queue.pending(), 0);
    queue.wait(first).unwrap();
    assert_eq!(fake.count("launches"), 3);
}

#[test]
fn ring_reuses_its_events() {
    let fake = Fake::new();
    let queue = fake.queue_with_ring(3);
    let buffers = operands(&queue);
    let mut tokens = Vec::new();
    for _ in 0..20 {
        add(&queue, 8, &buffers).unwrap();
        tokens.push(queue.commit_async().unwrap());
    }
    queue.wait(tokens[19]).unwrap();
    let staging = 2;
    assert!(
        fake.count("live_events") <= 4 + staging,
        "{} events",
        fake.count("live_events")
    );
}

#[test]
fn begin_finds_a_command_that_was_not_committed() {
    let fake = Fake::new();
    let queue = fake.queue();
    let buffers = operands(&queue);
    queue.commit_and_wait().unwrap();
    queue.begin().unwrap();
    assert_eq!(queue.begin(), Err(QueueError::AlreadyBegun));
    queue.commit_and_wait().unwrap();
    add(&queue, 8, &buffers).unwrap();
    assert_eq!(queue.begin(), Err(QueueError::AlreadyBegun));
}

#[test]
fn batch_commits_and_waits() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let queue = fake.queue();
    let buffers = operands(&queue);
    queue.commit_and_wait().unwrap();
    #[derive(Debug, PartialEq)]
    struct Failed(String);
    impl From<QueueError> for Failed {
        fn from(error: QueueError) -> Self {
            Self(error.to_string())
        }
    }
    let value = queue
        .batch(|queue| {
            add(queue, 8, &buffers).map_err(|error| Failed(error.to_string()))?;
            Ok::<_, Failed>(7)
        })
        .unwrap();
    assert_eq!((value, fake.count("launches"), queue.pending()), (7, 1, 0));
    let failed = queue.batch(|_| Err::<(), _>(Failed("no".into())));
    assert_eq!(failed, Err(Failed("no".into())));
}

#[test]
fn token_of_another_queue_is_refused() {
    let fake = Fake::new();
    let library = fake.library();
    let (first, second) = (Queue::new(&library).unwrap(), Queue::new(&library).unwrap());
    let token = first.commit_async().unwrap();
    assert_eq!(second.wait(token), Err(QueueError::ForeignToken));
    assert_eq!(second.is_done(token), Err(QueueError::ForeignToken));
}

#[test]
fn fault_on_the_device_is_reported_by_wait_and_keeps_buffers() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    queue.synchronize().unwrap();
    let stray = c.address() + (1 << 40);
    // SAFETY: the address is bad on purpose; the fake finds out when it runs the kernel.
    let bad = unsafe { BufferSlice::from_raw(stray, 32) };
    queue
        .dispatch(vadd(), &[8], &[a.all(), b.all(), bad])
        .unwrap();
    let token = queue.commit_async().unwrap();
    let error = queue.wait(token).unwrap_err();
    assert!(
        matches!(&error, QueueError::Cuda(error) if error.code == 700),
        "{error}"
    );
    assert!(error.to_string().contains("context is lost"), "{error}");
    assert_eq!(queue.pending(), 1);
}

#[test]
fn queue_waits_before_it_frees_what_is_pending() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let queue = fake.queue();
    let buffers = operands(&queue);
    add(&queue, 8, &buffers).unwrap();
    queue.commit_async().unwrap();
    add(&queue, 8, &buffers).unwrap();
    drop(buffers);
    drop(queue);
    assert_eq!(fake.count("launches"), 2);
    assert_eq!(fake.count("sticky"), 0);
}

#[test]
fn everything_is_given_back_in_any_order_of_dropping() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    for reversed in [false, true] {
        let device = fake.device();
        let library = Library::new(&device, vadd_archive(VADD)).unwrap();
        let queue = Queue::new(&library).unwrap();
        let mut uploader = Uploader::new(&device).unwrap();
        let buffers = operands(&queue);
        uploader.upload(buffers[0].all(), &[0; 32]).unwrap();
        queue.commit_and_wait().unwrap();
        queue.begin_capture().unwrap();
        add(&queue, 8, &buffers).unwrap();
        let graph = queue.end_capture().unwrap();
        queue.launch(&graph).unwrap();
        if reversed {
            drop((device, library, buffers, graph, queue, uploader));
        } else {
            drop((uploader, queue, graph));
            drop((buffers, library, device));
        }
        let live = |what| fake.count(what);
        assert_eq!(fake.live_buffers() + fake.count_of("live", 1), 0);
        assert_eq!(
            [
                live("live_modules"),
                live("live_streams"),
                live("live_events"),
                live("live_graphs"),
                live("sticky")
            ],
            [0; 5]
        );
        assert_eq!(fake.count_of("context_references", 0), 0);
    }
}

#[test]
fn queue_on_a_raw_stream_leaves_the_stream_alone() {
    let fake = Fake::new();
    let owner = fake.queue();
    let before = fake.count("live_streams");
    // SAFETY: the owner outlives the queue.
    let queue = unsafe {
        Queue::from_raw_stream(owner.library(), owner.raw_stream(), QueueOptions::default())
    }
    .unwrap();
    let buffers = operands(&queue);
    add(&queue, 8, &buffers).unwrap();
    assert_eq!(values(&owner, &buffers[2]), [3.0; 8]);
    drop(queue);
    assert_eq!(fake.count("live_streams"), before);
}

#[test]
fn event_orders_two_queues() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let library = fake.library();
    let (first, second) = (Queue::new(&library).unwrap(), Queue::new(&library).unwrap());
    let [a, b, c] = operands(&first);
    let d = filled(&first, &[0.0; 8]);
    first.synchronize().unwrap();
    first
        .dispatch(vadd(), &[8], &[a.all(), b.all(), c.all()])
        .unwrap();
    let event = Event::new(first.device()).unwrap();
    first.record(&event).unwrap();
    second.wait_for(&event).unwrap();
    second
        .dispatch(vadd(), &[8], &[c.all(), a.all(), d.all()])
        .unwrap();
    assert_eq!(values(&second, &d), [4.0; 8]);
    assert!(event.is_done().unwrap());
    first.synchronize().unwrap();
}

#[test]
fn time_is_that_of_the_device() {
    let fake = Fake::new();
    let queue = fake.queue();
    let buffers = operands(&queue);
    let (_, took) = queue
        .time(|queue| {
            for _ in 0..5 {
                add(queue, 8, &buffers).unwrap();
            }
            Ok::<_, QueueError>(())
        })
        .unwrap();
    // The fake's clock moves one millisecond per piece of work.
    assert_eq!(took.as_millis(), 6);
}

// ---- command lists ----

#[test]
fn list_is_submitted_in_order_and_again() {
    let fake = Fake::new();
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    let mut list = CommandList::new(queue.library());
    list.dispatch(vadd(), &[8], &[a.all(), b.all(), c.all()])
        .unwrap();
    list.dispatch(vadd(), &[0], &[a.all(), b.all(), c.all()])
        .unwrap();
    list.dispatch(vadd(), &[4], &[c.all(), b.all(), a.all()])
        .unwrap();
    assert_eq!(list.len(), 3);
    queue.submit(&list).unwrap();
    queue.submit(&list).unwrap();
    queue.synchronize().unwrap();
    let words: Vec<u32> = fake
        .launches()
        .iter()
        .map(|launch| launch.words()[0])
        .collect();
    assert_eq!(words, [8, 4, 8, 4]);
    assert_eq!(values(&queue, &a), [9.0, 9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn launch_error_in_a_list_names_its_position() {
    let fake = Fake::new();
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    let mut list = CommandList::new(queue.library());
    for n in [8, 0, 7, 6, 5] {
        list.dispatch(vadd(), &[n], &[a.all(), b.all(), c.all()])
            .unwrap();
    }
    fake.fail("cuLaunchKernelEx", 1, 2);
    let error = queue.submit(&list).unwrap_err();
    assert!(
        matches!(&error, DispatchError::Launch { index: 3, source, .. } if source.code == 1),
        "{error:?}"
    );
    let words: Vec<u32> = fake
        .launches()
        .iter()
        .map(|launch| launch.words()[0])
        .collect();
    assert_eq!(
        words,
        [8, 7],
        "those before it were submitted, those behind it were not"
    );
}

#[test]
fn list_keeps_its_buffers() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    let mut list = CommandList::new(queue.library());
    list.dispatch(vadd(), &[8], &[a.all(), b.all(), c.all()])
        .unwrap();
    drop((a, b, c));
    queue.submit(&list).unwrap();
    drop(list);
    queue.commit_and_wait().unwrap();
    assert_eq!(
        (
            fake.count("sticky"),
            fake.count("launches"),
            fake.live_buffers()
        ),
        (0, 1, 0)
    );
}

#[test]
fn list_of_another_library_is_refused() {
    let fake = Fake::new();
    let queue = fake.queue();
    let list = CommandList::new(&fake.library());
    assert!(matches!(
        queue.submit(&list),
        Err(DispatchError::WrongLibrary)
    ));
}

// ---- graphs ----

fn captured(
    queue: &Queue,
    sizes: &[u32],
    buffers: &[Buffer; 3],
) -> (zinc_runtime::Graph, Vec<DispatchId>) {
    queue.begin_capture().unwrap();
    let ids = sizes.iter().map(|n| {
        add(queue, *n, buffers).unwrap();
        queue.last_captured().unwrap()
    });
    let ids = ids.collect();
    (queue.end_capture().unwrap(), ids)
}

fn listed(
    queue: &Queue,
    sizes: &[u32],
    [a, b, c]: &[Buffer; 3],
) -> (zinc_runtime::Graph, Vec<DispatchId>) {
    let mut list = CommandList::new(queue.library());
    for n in sizes {
        list.dispatch(vadd(), &[*n], &[a.all(), b.all(), c.all()])
            .unwrap();
    }
    (
        list.graph().unwrap(),
        (0..sizes.len()).map(DispatchId::new).collect(),
    )
}

fn recorded_by(
    make: impl Fn(&Queue, &[u32], &[Buffer; 3]) -> (zinc_runtime::Graph, Vec<DispatchId>),
) {
    let fake = Fake::new();
    let queue = fake.queue();
    let buffers = operands(&queue);
    queue.commit_and_wait().unwrap();
    let (mut graph, ids) = make(&queue, &[8, 4, 0], &buffers);
    assert_eq!(
        (graph.len(), fake.count("launches")),
        (3, 0),
        "recording runs nothing"
    );

    let run = |graph: &zinc_runtime::Graph| {
        let before = fake.launches().len();
        queue.launch(graph).unwrap();
        queue.commit_and_wait().unwrap();
        fake.launches()[before..]
            .iter()
            .map(|launch| (launch.words()[0], launch.grid[0]))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(&graph), [(8, 1), (4, 1)]);
    graph.set_words(ids[1], &[5]).unwrap();
    assert_eq!(run(&graph), [(8, 1), (5, 1)]);
    // A dispatch that had nothing to do gets something, and one that had something gets nothing.
    graph.set_words(ids[2], &[2]).unwrap();
    graph.set_words(ids[0], &[0]).unwrap();
    assert_eq!(run(&graph), [(5, 1), (2, 1)]);
    graph.update(ids[0], |words| words[0] = 1).unwrap();
    assert_eq!(run(&graph), [(1, 1), (5, 1), (2, 1)]);

    // New words are checked against the contract and the buffers.
    let error = graph.set_words(ids[0], &[9]).unwrap_err();
    assert!(
        matches!(
            error,
            GraphError::Dispatch(DispatchError::Contract(ContractError::BufferTooSmall {
                wanted: 36,
                ..
            }))
        ),
        "{error}"
    );
    let error = graph.set_words(ids[0], &[1, 2]).unwrap_err();
    assert!(matches!(
        error,
        GraphError::Dispatch(DispatchError::Contract(ContractError::WordCount { .. }))
    ));
    let error = graph.set_words(DispatchId::new(3), &[1]).unwrap_err();
    assert!(
        matches!(error, GraphError::UnknownDispatch { found: 3, .. }),
        "{error}"
    );
    assert_eq!(graph.dispatch(ids[1]).unwrap().1, [5]);
    assert_eq!(
        run(&graph),
        [(1, 1), (5, 1), (2, 1)],
        "a refused change changes nothing"
    );
}

#[test]
fn captured_graph_replays_with_new_words() {
    recorded_by(captured);
}

#[test]
fn graph_of_a_list_replays_with_new_words() {
    recorded_by(listed);
}

fn overlaps(fake: &Fake) -> Vec<u32> {
    let launches = fake.launches();
    launches.iter().map(|launch| launch.overlap).collect()
}

#[test]
fn kernel_that_waits_by_itself_may_overlap_the_one_before_it() {
    assert!(vadd().overlap, "the test needs such a kernel");
    let fake = Fake::new();
    let queue = fake.queue();
    let buffers = operands(&queue);
    add(&queue, 8, &buffers).unwrap();
    queue.commit_and_wait().unwrap();
    assert_eq!(overlaps(&fake), [1]);
    // In a graph of a list it is the edge from the dispatch before that allows it; the first has none.
    for (make, wanted) in [
        (captured as fn(&Queue, &[u32], &[Buffer; 3]) -> _, [1, 1]),
        (listed, [0, 1]),
    ] {
        let before = overlaps(&fake).len();
        let (mut graph, ids) = make(&queue, &[8, 8], &buffers);
        queue.launch(&graph).unwrap();
        graph.set_words(ids[1], &[4]).unwrap();
        queue.launch(&graph).unwrap();
        queue.commit_and_wait().unwrap();
        assert_eq!(overlaps(&fake)[before..], [wanted, wanted].concat());
    }
}

#[test]
fn code_for_gpus_that_cannot_overlap_is_launched_plainly() {
    let fake = Fake::new();
    fake.set("capability", 80);
    let archive = archive(&[("vadd", &[("80", VADD)])]);
    let queue = Queue::new(&Library::new(&fake.device(), archive).unwrap()).unwrap();
    let buffers = operands(&queue);
    add(&queue, 8, &buffers).unwrap();
    queue.commit_and_wait().unwrap();
    assert_eq!(overlaps(&fake), [0]);
}

/// A kernel that reads its weights before it waits if it may, on a queue whose kernels are it and vadd.
struct Early {
    fake: Fake,
    queue: Queue,
    kernel: &'static zinc_contract::Kernel,
    weights: Buffer,
    x: Buffer,
    y: Buffer,
}

impl Early {
    const WORDS: [u32; 6] = [64, 64, 0, 0, 0, 0];

    fn new() -> Self {
        let kernel = zinc_contract::kernel("dmmv_q8_0").unwrap();
        assert_eq!(kernel.early, [0], "the test needs such a kernel");
        let fake = Fake::new();
        let archive = archive(&[
            ("dmmv_q8_0", &[("90", "FAKE dmmv_q8_0 pointers=3 push=24")]),
            ("vadd", &[("90", VADD)]),
        ]);
        let queue = Queue::new(&Library::new(&fake.device(), archive).unwrap()).unwrap();
        let buffer = |bytes| queue.device().buffer(bytes).unwrap();
        let (weights, x, y) = (buffer(64 * 2 * 34), buffer(64 * 4), buffer(64 * 4));
        Self {
            fake,
            queue,
            kernel,
            weights,
            x,
            y,
        }
    }

    fn slices(&self) -> [BufferSlice<'_>; 3] {
        [self.weights.all(), self.x.all(), self.y.all()]
    }

    fn dispatch(&self) {
        let slices = self.slices();
        self.queue
            .dispatch(self.kernel, &Self::WORDS, &slices)
            .unwrap();
    }

    fn list(&self, dispatches: usize) -> CommandList {
        let mut list = CommandList::new(self.queue.library());
        for _ in 0..dispatches {
            list.dispatch(self.kernel, &Self::WORDS, &self.slices())
                .unwrap();
        }
        list
    }

    /// For every launch of `work`, whether it is told that it may read early.
    fn told(&self, work: impl FnOnce()) -> Vec<bool> {
        let before = self.fake.launches().len();
        work();
        self.queue.commit_and_wait().unwrap();
        let own = self.kernel.geometry(90, 132, &Self::WORDS);
        let own = own.unwrap().unwrap().shared_bytes;
        let usual = |name: &str| if name == self.kernel.name { own } else { 0 };
        self.fake.launches()[before..]
            .iter()
            .map(|launch| match launch.shared - usual(launch.name()) {
                0 => false,
                EARLY_SHARED_BYTES => launch.name() == self.kernel.name,
                more => panic!("{more} bytes more than usual"),
            })
            .collect()
    }

    /// For a launch of each way, the first of its command, list or graph, and for the second: at once, unchecked, by a list,
    /// a captured graph, a list in one, a list's graph; graphs twice, with new words in between.
    fn everywhere(&self) -> [Vec<bool>; 6] {
        let (kernel, words) = (self.kernel, Self::WORDS);
        let queue = &self.queue;
        let replayed = |mut graph: zinc_runtime::Graph| {
            self.told(|| {
                queue.launch(&graph).unwrap();
                graph.set_words(DispatchId::new(1), &words).unwrap();
                queue.launch(&graph).unwrap();
            })
        };
        let geometry = kernel.geometry(90, 132, &words).unwrap().unwrap();
        let unchecked = || {
            // SAFETY: the words and buffers are those of the checked dispatch.
            unsafe { queue.dispatch_unchecked(kernel, geometry, &words, &self.slices()) }.unwrap();
        };
        let twice = |what: &dyn Fn()| {
            self.clean();
            self.told(|| {
                what();
                what();
            })
        };
        let captured = |record: &dyn Fn()| {
            queue.begin_capture().unwrap();
            record();
            replayed(queue.end_capture().unwrap())
        };
        [
            twice(&|| self.dispatch()),
            twice(&unchecked),
            {
                self.clean();
                self.told(|| queue.submit(&self.list(2)).unwrap())
            },
            captured(&|| {
                self.dispatch();
                self.dispatch();
            }),
            captured(&|| queue.submit(&self.list(2)).unwrap()),
            replayed(self.list(2).graph().unwrap()),
        ]
    }

    /// Something that is no dispatch.
    fn clean(&self) {
        self.queue.fill(self.y.all(), 0).unwrap();
    }

    /// A dispatch of another kernel that writes `to`.
    fn other(&self, to: BufferSlice<'_>) {
        let x = self.x.all();
        let to = to.slice(..Self::OTHER_BYTES).unwrap();
        self.queue
            .dispatch(vadd(), &[Self::OTHER_BYTES as u32 / 4], &[x, x, to])
            .unwrap();
    }

    const OTHER_BYTES: u64 = 64;
}

#[test]
fn kernel_may_read_early_what_is_constant_or_not_written_by_the_dispatch_before() {
    let early = Early::new();
    let [first, second] = [[false, true], [true, true]];
    let of_graphs = |one: [bool; 2]| [one, one].concat();
    let wanted = |one: [bool; 2]| {
        let graph = of_graphs(one);
        [
            one.to_vec(),
            one.to_vec(),
            one.to_vec(),
            graph.clone(),
            graph.clone(),
            graph,
        ]
    };
    assert_eq!(early.everywhere(), wanted(first));
    // What it reads later does not matter.
    early.x.make_constant().unwrap();
    assert_eq!(early.everywhere(), wanted(first));

    let list = early.list(2);
    let clone = early.weights.clone();
    clone.make_constant().unwrap();
    assert!(early.weights.is_constant());
    assert_eq!(early.everywhere(), wanted(second));
    // What was recorded before stays as it was.
    let submit = || early.queue.submit(&list).unwrap();
    assert_eq!(early.told(submit), first);
    assert_eq!(overlaps(&early.fake).last(), Some(&1));
}

#[test]
fn kernel_waits_first_where_the_work_before_may_have_written_what_it_reads_early() {
    let early = Early::new();
    let queue = &early.queue;
    let (weights, bytes) = (early.weights.all(), early.weights.bytes());
    let list = early.list(1);
    let elsewhere = queue.device().buffer(bytes).unwrap();
    let told_after = |work: &dyn Fn()| {
        early.clean();
        early.dispatch();
        work();
        *early.told(|| early.dispatch()).last().unwrap()
    };
    assert!(told_after(&|| ()));
    assert!(told_after(&|| early.other(elsewhere.all())));
    assert!(told_after(&|| queue.submit(&list).unwrap()));
    assert!(told_after(&|| queue
        .record(&Event::new(queue.device()).unwrap())
        .unwrap()));
    // A part of a buffer: the bytes up to it, one word of it, its last ones, those behind it.
    let wide = queue.device().buffer(bytes + 256).unwrap();
    let inside = wide.slice(128..128 + bytes).unwrap();
    let written = Early::OTHER_BYTES;
    for (at, wanted) in [
        (128 - written, true),
        (128 - written + 4, false),
        (128 + bytes - written, false),
        (128 + bytes, true),
    ] {
        early.other(wide.slice(at..).unwrap());
        let slices = [inside, early.x.all(), early.y.all()];
        let told = early.told(|| {
            queue
                .dispatch(early.kernel, &Early::WORDS, &slices)
                .unwrap()
        });
        assert_eq!(told, [wanted], "{at}");
    }
    assert!(!told_after(&|| early.other(weights)));

    // What is no dispatch, or not known to be one.
    let graph = list.graph().unwrap();
    let event = Event::new(queue.device()).unwrap();
    queue.record(&event).unwrap();
    let no_dispatch: [&dyn Fn(); 6] = [
        &|| queue.fill(early.y.all(), 0).unwrap(),
        &|| queue.copy(early.y.all(), early.x.all()).unwrap(),
        &|| queue.write(early.y.all(), &[0; 256]).unwrap(),
        &|| queue.read(early.y.all(), &mut [0; 256]).unwrap(),
        &|| queue.launch(&graph).unwrap(),
        &|| queue.wait_for(&event).unwrap(),
    ];
    for (number, work) in no_dispatch.iter().enumerate() {
        assert!(!told_after(work), "{number}");
    }
    let failed = || {
        early.fake.fail("cuLaunchKernelEx", 1, 0);
        let slices = [early.x.all(), early.x.all(), elsewhere.all()];
        queue.dispatch(vadd(), &[4], &slices).unwrap_err();
    };
    assert!(!told_after(&failed));
    let more = || {
        queue.raw_stream();
    };
    assert!(!told_after(&more));
    assert!(!told_after(&|| ()), "others have the stream now");
    early.weights.make_constant().unwrap();
    assert!(told_after(&|| ()));
}

#[test]
fn recorded_kernel_waits_first_where_what_runs_before_it_writes_what_it_reads_early() {
    let early = Early::new();
    let queue = &early.queue;
    let elsewhere = queue.device().buffer(early.weights.bytes()).unwrap();
    queue.begin_capture().unwrap();
    early.other(early.weights.all());
    early.other(elsewhere.all());
    early.dispatch();
    early.clean();
    early.dispatch();
    let mut graph = queue.end_capture().unwrap();
    let told = |graph: &zinc_runtime::Graph| early.told(|| queue.launch(graph).unwrap());
    assert_eq!(told(&graph), [false, false, true, false]);
    // Without the second dispatch it is the first that runs before the third.
    let second = DispatchId::new(1);
    graph.set_words(second, &[0]).unwrap();
    assert_eq!(told(&graph), [false, false, false]);
    graph.set_words(second, &[1]).unwrap();
    assert_eq!(told(&graph), [false, false, true, false]);

    queue.raw_stream();
    queue.begin_capture().unwrap();
    early.dispatch();
    early.dispatch();
    let graph = queue.end_capture().unwrap();
    assert_eq!(
        told(&graph),
        [false, false],
        "others may have recorded work in between"
    );
}

#[test]
fn memory_without_a_buffer_is_not_constant() {
    let early = Early::new();
    early.weights.make_constant().unwrap();
    // SAFETY: the memory is that of a buffer that stays, and is only read.
    let raw = unsafe { BufferSlice::from_raw(early.weights.address(), early.weights.bytes()) };
    let [_, x, y] = early.slices();
    let told = |weights: BufferSlice<'_>| {
        early.clean();
        early.told(|| {
            early
                .queue
                .dispatch(early.kernel, &Early::WORDS, &[weights, x, y])
                .unwrap();
        })
    };
    assert_eq!(told(raw), [false]);
    // SAFETY: as above.
    let around = unsafe {
        let device = early.queue.device();
        Buffer::from_raw(device, early.weights.address(), early.weights.bytes())
    };
    assert!(!around.is_constant());
    around.make_constant().unwrap();
    assert_eq!(told(around.all()), [true]);
}

#[test]
fn constant_buffer_is_not_written() {
    let fake = Fake::new();
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    c.clone().make_constant().unwrap();
    c.make_constant().unwrap();
    assert!(c.is_constant() && !a.is_constant());
    let refused = Err(QueueError::Buffer(BufferError::Constant));
    let part = c.slice(8..16).unwrap();
    assert_eq!(queue.fill(part, 0), refused);
    assert_eq!(queue.copy(part, a.slice(..8).unwrap()), refused);
    assert_eq!(queue.write(part, &[0; 8]), refused);
    let mut uploader = Uploader::with_options(queue.device(), SMALL).unwrap();
    let file = tempfile::tempfile().unwrap();
    for result in [
        uploader.upload(part, &[0; 8]),
        uploader.upload_from(part, &mut &[0; 8][..]),
        uploader.upload_file(part, &file, 0),
    ] {
        assert!(
            matches!(result, Err(TransferError::Buffer(BufferError::Constant))),
            "{result:?}"
        );
    }
    let written = |result: Result<(), DispatchError>| match result {
        Err(DispatchError::Buffer {
            kernel: "vadd",
            buffer: "c",
            source: BufferError::Constant,
        }) => {}
        other => panic!("{other:?}"),
    };
    let slices = [a.slice(..8).unwrap(), b.slice(..8).unwrap(), part];
    written(queue.dispatch(vadd(), &[2], &slices));
    let mut list = CommandList::new(queue.library());
    written(list.dispatch(vadd(), &[2], &slices));
    queue.commit_and_wait().unwrap();
    queue.begin_capture().unwrap();
    written(queue.dispatch(vadd(), &[2], &slices));
    assert_eq!(queue.fill(part, 0), refused);
    assert!(queue.end_capture().unwrap().is_empty());
    assert_eq!(fake.count("launches"), 0);

    // Reading it is as before.
    queue
        .dispatch(vadd(), &[8], &[c.all(), b.all(), a.all()])
        .unwrap();
    queue.copy(b.all(), c.all()).unwrap();
    assert_eq!(values(&queue, &a), [2.0; 8]);
    assert_eq!(values(&queue, &b), [0.0; 8]);
    assert_eq!(downloaded(&mut uploader, &c), [0; 32]);
}

#[test]
fn recorded_work_that_writes_a_constant_buffer_is_refused() {
    let fake = Fake::new();
    let queue = fake.queue();
    let buffers = operands(&queue);
    let [a, b, c] = &buffers;
    queue.commit_and_wait().unwrap();
    let mut list = CommandList::new(queue.library());
    list.dispatch(vadd(), &[8], &[a.all(), b.all(), c.all()])
        .unwrap();
    let of_list = list.graph().unwrap();
    let of = |record: &dyn Fn()| {
        queue.begin_capture().unwrap();
        record();
        queue.end_capture().unwrap()
    };
    let graphs = [
        of_list,
        of(&|| add(&queue, 8, &buffers).unwrap()),
        of(&|| queue.submit(&list).unwrap()),
        of(&|| queue.fill(c.all(), 1).unwrap()),
        of(&|| queue.copy(c.all(), a.all()).unwrap()),
    ];
    let reads = of(&|| queue.copy(a.all(), c.all()).unwrap());
    let run = || {
        let list = queue.submit(&list).is_ok();
        let graphs = graphs.iter().map(|graph| match queue.launch(graph) {
            Err(QueueError::Buffer(BufferError::Constant)) => false,
            other => other.is_ok(),
        });
        let ran: Vec<bool> = graphs.chain([list]).collect();
        queue.commit_and_wait().unwrap();
        ran
    };
    assert_eq!(run(), [true; 6]);
    b.make_constant().unwrap();
    assert_eq!(run(), [true; 6], "they only read it");
    c.make_constant().unwrap();
    for _ in 0..2 {
        assert_eq!(run(), [false; 6]);
    }
    let error = queue.submit(&list).unwrap_err();
    assert!(
        common::chain(&error)
            .ends_with("vadd: buffer c: the buffer is constant, and would be written"),
        "{}",
        common::chain(&error)
    );
    queue.launch(&reads).unwrap();
    queue.commit_and_wait().unwrap();
}

#[test]
fn buffer_becomes_constant_after_the_work_before() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let queue = fake.queue();
    let buffers = operands(&queue);
    add(&queue, 8, &buffers).unwrap();
    let token = queue.commit_async().unwrap();
    assert!(!queue.is_done(token).unwrap());
    buffers[2].make_constant().unwrap();
    assert!(queue.is_done(token).unwrap());

    fake.fail("cuCtxSynchronize", 900, 0);
    let error = buffers[0].make_constant().unwrap_err();
    assert_eq!(error.code, 900);
    assert!(!buffers[0].is_constant());
}

#[test]
fn clusters_follow_the_launch_rule_and_stay_in_a_graph() {
    let router = zinc_contract::kernel("router_f32_batch").unwrap();
    let fake = Fake::new();
    let archive = archive(&[(
        "router_f32_batch",
        &[("90", "FAKE router_f32_batch pointers=3 push=20")],
    )]);
    let queue = Queue::new(&Library::new(&fake.device(), archive).unwrap()).unwrap();
    let buffers = [(); 3].map(|()| queue.device().buffer(4 * 64 * 64).unwrap());
    let [x, weights, y] = &buffers;
    let slices = [x.all(), weights.all(), y.all()];
    let words = |rows, tokens| [rows, 64, tokens, 64, 64];
    let cluster = |rows, tokens| {
        let geometry = router.geometry(90, 132, &words(rows, tokens));
        geometry.unwrap().unwrap().cluster
    };
    let (few, many) = (cluster(64, 1), cluster(64, 64));
    assert!(few == 1 && many > 1, "{few}, {many}");

    let run = |words: [u32; 5]| {
        queue.dispatch(router, &words, &slices).unwrap();
        queue.commit_and_wait().unwrap();
        fake.launches().last().unwrap().cluster
    };
    assert_eq!([run(words(64, 1)), run(words(64, 64))], [few, many]);

    let mut list = CommandList::new(queue.library());
    list.dispatch(router, &words(64, 64), &slices).unwrap();
    let mut graph = list.graph().unwrap();
    let id = DispatchId::new(0);
    graph.set_words(id, &words(60, 64)).unwrap();
    queue.launch(&graph).unwrap();
    queue.commit_and_wait().unwrap();
    assert_eq!(fake.launches().last().unwrap().cluster, many);
    let error = graph.set_words(id, &words(64, 1)).unwrap_err();
    assert!(
        matches!(error, GraphError::Cluster { found: 1, .. }),
        "{error}"
    );
}

#[test]
fn geometry_follows_new_words() {
    let fake = Fake::new();
    let queue = fake.queue();
    let big = [(); 3].map(|()| queue.device().buffer(4 * 5000).unwrap());
    let (mut graph, ids) = captured(&queue, &[5000], &big);
    graph.set_words(ids[0], &[100]).unwrap();
    queue.launch(&graph).unwrap();
    graph.set_words(ids[0], &[3000]).unwrap();
    queue.launch(&graph).unwrap();
    queue.synchronize().unwrap();
    let grids: Vec<u32> = fake
        .launches()
        .iter()
        .map(|launch| launch.grid[0])
        .collect();
    let wanted = [100, 3000].map(|n| vadd().geometry(90, 132, &[n]).unwrap().unwrap().grid[0]);
    assert_eq!(grids, wanted);
}

#[test]
fn submitted_launch_keeps_its_words() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let queue = fake.queue();
    let buffers = operands(&queue);
    queue.commit_and_wait().unwrap();
    let (mut graph, ids) = captured(&queue, &[8], &buffers);
    queue.launch(&graph).unwrap();
    graph.set_words(ids[0], &[3]).unwrap();
    queue.launch(&graph).unwrap();
    queue.commit_and_wait().unwrap();
    let words: Vec<u32> = fake
        .launches()
        .iter()
        .map(|launch| launch.words()[0])
        .collect();
    assert_eq!(words, [8, 3]);
}

#[test]
fn graph_keeps_buffers_and_pending_commands_keep_the_graph() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let queue = fake.queue();
    let buffers = operands(&queue);
    queue.commit_and_wait().unwrap();
    let (graph, _) = captured(&queue, &[8], &buffers);
    drop(buffers);
    assert_eq!(fake.live_buffers(), 3);
    queue.launch(&graph).unwrap();
    queue.launch(&graph).unwrap();
    let token = queue.commit_async().unwrap();
    drop(graph);
    assert_eq!(fake.live_buffers(), 3);
    queue.wait(token).unwrap();
    assert_eq!(
        (
            fake.live_buffers(),
            fake.count("live_graphs"),
            fake.count("sticky")
        ),
        (0, 0, 0)
    );
    assert_eq!(fake.count("launches"), 2);
}

#[test]
fn capture_records_fills_copies_and_lists() {
    let fake = Fake::new();
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    queue.commit_and_wait().unwrap();
    let mut list = CommandList::new(queue.library());
    list.dispatch(vadd(), &[8], &[a.all(), b.all(), c.all()])
        .unwrap();
    queue.begin_capture().unwrap();
    queue.fill(a.all(), 0).unwrap();
    queue.submit(&list).unwrap();
    queue.copy(b.all(), c.all()).unwrap();
    queue
        .dispatch(vadd(), &[8], &[b.all(), c.all(), c.all()])
        .unwrap();
    assert_eq!(queue.last_captured(), Some(DispatchId::new(1)));
    let graph = queue.end_capture().unwrap();
    assert_eq!(
        (graph.len(), values(&queue, &a)),
        (2, vec![1.0; 8]),
        "nothing ran yet"
    );
    queue.launch(&graph).unwrap();
    assert_eq!(values(&queue, &c), [4.0; 8]);
    queue.launch(&graph).unwrap();
    assert_eq!(values(&queue, &c), [4.0; 8], "0 + 2, copied, doubled again");
}

#[test]
fn capturing_queue_refuses_what_can_not_be_recorded() {
    let fake = Fake::new();
    let queue = fake.queue();
    let buffers = operands(&queue);
    assert_eq!(
        queue.begin_capture(),
        Err(QueueError::AlreadyBegun),
        "the writes are not committed"
    );
    queue.commit_and_wait().unwrap();
    assert!(matches!(queue.end_capture(), Err(QueueError::NotCapturing)));
    let (graph, _) = captured(&queue, &[8], &buffers);
    queue.begin_capture().unwrap();
    assert_eq!(queue.begin_capture(), Err(QueueError::Capturing));
    assert_eq!(queue.begin(), Err(QueueError::Capturing));
    assert_eq!(queue.commit_async(), Err(QueueError::Capturing));
    assert_eq!(queue.launch(&graph), Err(QueueError::Capturing));
    assert_eq!(
        queue.write(buffers[0].all(), &[0; 32]),
        Err(QueueError::Capturing)
    );
    assert_eq!(
        queue.read(buffers[0].all(), &mut [0; 32]),
        Err(QueueError::Capturing)
    );
    assert_eq!(queue.synchronize(), Err(QueueError::Capturing));
    queue.end_capture().unwrap();
    queue.commit_and_wait().unwrap();
}

#[test]
fn dropped_queue_abandons_its_capture() {
    let fake = Fake::new();
    let queue = fake.queue();
    let buffers = operands(&queue);
    queue.commit_and_wait().unwrap();
    queue.begin_capture().unwrap();
    add(&queue, 8, &buffers).unwrap();
    drop(queue);
    assert_eq!(
        (fake.count("live_graphs"), fake.count("live_streams")),
        (0, 0)
    );
}

#[test]
fn failed_instantiation_ends_the_capture() {
    let fake = Fake::new();
    let queue = fake.queue();
    let buffers = operands(&queue);
    queue.commit_and_wait().unwrap();
    queue.begin_capture().unwrap();
    add(&queue, 8, &buffers).unwrap();
    fake.fail("cuGraphInstantiateWithFlags", 2, 0);
    assert!(matches!(queue.end_capture(), Err(QueueError::Cuda(error)) if error.code == 2));
    assert_eq!(fake.count("live_graphs"), 0);
    add(&queue, 8, &buffers).unwrap();
    queue.commit_and_wait().unwrap();
}

// ---- transfers ----

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at % 251) as u8 ^ (at >> 9) as u8)
        .collect()
}

const SMALL: StagingOptions = StagingOptions {
    slots: 2,
    slot_bytes: 4096,
};

fn downloaded(uploader: &mut Uploader, buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes() as usize];
    uploader.download(buffer.all(), &mut bytes).unwrap();
    bytes
}

#[test]
fn upload_larger_than_staging_arrives_whole() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let device = fake.device();
    let mut uploader = Uploader::with_options(&device, SMALL).unwrap();
    for bytes in [1, 4095, 4096, 4097, 100_000] {
        let data = pattern(bytes);
        let buffer = device.buffer(bytes as u64).unwrap();
        uploader.upload(buffer.all(), &data).unwrap();
        uploader.finish().unwrap();
        assert_eq!(downloaded(&mut uploader, &buffer), data, "{bytes} bytes");
    }
    assert_eq!(fake.count("pinned_peak"), 2 * 4096);
}

#[test]
fn many_small_uploads_share_the_staging() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let device = fake.device();
    let mut uploader = Uploader::with_options(&device, SMALL).unwrap();
    let tensors: Vec<(Buffer, Vec<u8>)> = (1..200)
        .map(|at| {
            let data: Vec<u8> = pattern(at * 7).iter().map(|byte| byte ^ at as u8).collect();
            (device.buffer(data.len() as u64).unwrap(), data)
        })
        .collect();
    for (buffer, data) in &tensors {
        uploader.upload(buffer.all(), data).unwrap();
    }
    uploader.finish().unwrap();
    for (at, (buffer, data)) in tensors.iter().enumerate() {
        assert_eq!(downloaded(&mut uploader, buffer), *data, "tensor {at}");
    }
}

#[test]
fn file_map_and_reader_upload_the_same() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let device = fake.device();
    let mut uploader = Uploader::with_options(&device, SMALL).unwrap();
    let data = pattern(50_000);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&data).unwrap();
    // SAFETY: the file is the test's own.
    let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
    let range = 1234..41_234;
    let buffer = device.buffer(40_000).unwrap();
    let check = |uploader: &mut Uploader, how: &str| {
        uploader.finish().unwrap();
        assert_eq!(downloaded(uploader, &buffer), data[range.clone()], "{how}");
        uploader.upload(buffer.all(), &vec![0; 40_000]).unwrap();
        uploader.finish().unwrap();
    };
    uploader.upload_file(buffer.all(), &file, 1234).unwrap();
    check(&mut uploader, "file");
    uploader
        .upload_map(buffer.all(), &map, range.clone())
        .unwrap();
    check(&mut uploader, "map");
    uploader
        .upload_from(buffer.all(), &mut &data[range.clone()])
        .unwrap();
    check(&mut uploader, "reader");

    let error = uploader
        .upload_file(buffer.all(), &file, 20_000)
        .unwrap_err();
    assert!(
        matches!(error, TransferError::Read { wanted: 40_000, done, .. } if done <= 30_000),
        "{error}"
    );
    let error = uploader
        .upload_map(buffer.all(), &map, 20_000..60_000)
        .unwrap_err();
    assert!(
        matches!(error, TransferError::MapRange { bytes: 50_000, .. }),
        "{error}"
    );
    let error = uploader
        .upload_from(buffer.all(), &mut &data[..100])
        .unwrap_err();
    assert!(
        matches!(error, TransferError::Read { done: 0, .. }),
        "{error}"
    );
    uploader.upload_file(buffer.all(), &file, 1234).unwrap();
    check(&mut uploader, "file after errors");
}

#[test]
fn uploader_holds_buffers_until_they_are_written() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let device = fake.device();
    let mut uploader = Uploader::with_options(&device, SMALL).unwrap();
    let buffer = device.buffer(3000).unwrap();
    uploader.upload(buffer.all(), &[7; 3000]).unwrap();
    drop(buffer);
    assert_eq!(fake.live_buffers(), 1);
    uploader.finish().unwrap();
    assert_eq!((fake.live_buffers(), fake.count("sticky")), (0, 0));
}

#[test]
fn queue_can_wait_for_an_upload() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    let mut uploader = Uploader::with_options(queue.device(), SMALL).unwrap();
    uploader.upload(a.all(), &floats(&[10.0; 8])).unwrap();
    queue.wait_for(&uploader.event().unwrap()).unwrap();
    queue
        .dispatch(vadd(), &[8], &[a.all(), b.all(), c.all()])
        .unwrap();
    assert_eq!(values(&queue, &c), [12.0; 8]);
}

#[test]
fn queue_write_and_read_are_in_order_with_dispatches() {
    let fake = Fake::new();
    fake.set("lazy", 1);
    let queue = fake.queue();
    let [a, b, c] = operands(&queue);
    let mut data = floats(&[5.0; 8]);
    queue.write(a.all(), &data).unwrap();
    data.fill(0);
    queue
        .dispatch(vadd(), &[8], &[a.all(), b.all(), c.all()])
        .unwrap();
    queue.write(a.all(), &data).unwrap();
    queue
        .copy(b.slice(..16).unwrap(), c.slice(16..).unwrap())
        .unwrap();
    queue.fill(b.slice(16..20).unwrap(), 0).unwrap();
    let mut bytes = [0; 32];
    queue.read(c.all(), &mut bytes).unwrap();
    assert_eq!(to_floats(&bytes), [7.0; 8]);
    assert_eq!(values(&queue, &b), [7.0, 7.0, 7.0, 7.0, 0.0, 2.0, 2.0, 2.0]);
}

#[test]
fn transfer_of_another_length_or_to_nothing_is_refused() {
    let fake = Fake::new();
    let queue = fake.queue();
    let buffer = queue.device().buffer(32).unwrap();
    let other = queue.device().buffer(64).unwrap();
    let length = |wanted, found| QueueError::Buffer(BufferError::Length { wanted, found });
    assert_eq!(queue.write(buffer.all(), &[0; 33]), Err(length(33, 32)));
    assert_eq!(queue.read(buffer.all(), &mut [0; 31]), Err(length(32, 31)));
    assert_eq!(queue.copy(buffer.all(), other.all()), Err(length(64, 32)));
    assert_eq!(
        queue.fill(BufferSlice::UNBOUND, 0),
        Err(BufferError::Unbound.into())
    );
    queue.fill(buffer.slice(8..8).unwrap(), 0).unwrap();
    queue.write(buffer.slice(32..).unwrap(), &[]).unwrap();
    assert_eq!(
        buffer.slice(8..33).unwrap_err(),
        BufferError::Range {
            start: 8,
            end: 33,
            bytes: 32
        }
    );
    #[expect(
        clippy::reversed_empty_ranges,
        reason = "that is what has to be refused"
    )]
    let reversed = buffer.slice(9..8);
    assert!(reversed.is_err());
    assert!(buffer.slice(..=u64::MAX).is_err());
}

#[test]
fn empty_buffer_exists() {
    let fake = Fake::new();
    let buffer = fake.device().buffer(0).unwrap();
    assert_eq!(buffer.bytes(), 0);
    assert_ne!(buffer.address(), 0);
}
