//! Dispatches on cudarc's streams and slices: on a real GPU where there is one, and on the fake driver everywhere.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::Command;
use std::sync::Arc;

use common::{Fake, VADD, archive, ptx::VADD_PTX, vadd};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use zinc_contract::ContractError;
use zinc_runtime::cudarc::{CudarcError, CudarcQueue};
use zinc_runtime::{
    BufferError, CommandList, Device, DeviceSelector, DispatchError, Driver, Library, Queue,
};

/// The first device through cudarc and through us; none where the machine has no driver, since cudarc panics there.
fn opened() -> Option<(Arc<CudaContext>, Library)> {
    let driver = match Driver::load() {
        Ok(driver) => driver,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    let context = CudaContext::new(0).unwrap();
    let device = Device::from_cudarc(&driver, &context).unwrap();
    let kernels = match device.info().name.starts_with("Fake") {
        true => archive(&[("vadd", &[("90", VADD)])]),
        false => archive(&[("vadd", &[("compute_75", VADD_PTX)])]),
    };
    Some((context, Library::new(&device, kernels).unwrap()))
}

struct Operands {
    a: CudaSlice<f32>,
    b: CudaSlice<f32>,
    c: CudaSlice<f32>,
}

const N: usize = 1000;

fn operands(stream: &Arc<CudaStream>) -> Operands {
    let a: Vec<f32> = (0..N).map(|at| at as f32).collect();
    Operands {
        a: stream.clone_htod(&a).unwrap(),
        b: stream.clone_htod(&[0.5; N]).unwrap(),
        c: stream.alloc_zeros(N).unwrap(),
    }
}

fn dispatch_on_slices(library: &Library, stream: &Arc<CudaStream>) {
    let queue = CudarcQueue::new(library, stream).unwrap();
    let Operands { a, b, mut c } = operands(stream);
    {
        let (a, b, c) = (
            queue.read(&a).unwrap(),
            queue.read(&b).unwrap(),
            queue.write(&mut c).unwrap(),
        );
        queue
            .dispatch(vadd(), &[N as u32], &[a.slice(), b.slice(), c.slice()])
            .unwrap();
    }
    let result = stream.clone_dtoh(&c).unwrap();
    assert!(
        result
            .iter()
            .enumerate()
            .all(|(at, value)| *value == at as f32 + 0.5),
        "{:?}",
        &result[..8]
    );
    // Views bind a part, and the contract sees the part's length.
    {
        let (from, b) = (a.slice(100..200), b.slice(..100));
        let mut to = c.slice_mut(8..108);
        let (from, b, to) = (
            queue.read(&from).unwrap(),
            queue.read(&b).unwrap(),
            queue.write(&mut to).unwrap(),
        );
        queue
            .dispatch(vadd(), &[100], &[from.slice(), b.slice(), to.slice()])
            .unwrap();
        let error = queue
            .dispatch(vadd(), &[101], &[from.slice(), b.slice(), to.slice()])
            .unwrap_err();
        assert!(
            matches!(
                error,
                DispatchError::Contract(ContractError::BufferTooSmall {
                    wanted: 404,
                    found: 400,
                    ..
                })
            ),
            "{error}"
        );
    }
    let result = stream.clone_dtoh(&c).unwrap();
    assert_eq!(
        (result[7], result[8], result[107], result[108]),
        (7.5, 100.5, 199.5, 108.5)
    );
    drop((a, b, c));
    stream.synchronize().unwrap();
}

fn slices_stay_on_their_queue(library: &Library, stream: &Arc<CudaStream>) {
    let queue = CudarcQueue::new(library, stream).unwrap();
    let other = Queue::new(library).unwrap();
    let Operands { a, b, mut c } = operands(stream);
    let (a, b, c) = (
        queue.read(&a).unwrap(),
        queue.read(&b).unwrap(),
        queue.write(&mut c).unwrap(),
    );
    let slices = [a.slice(), b.slice(), c.slice()];
    let refused = |result: Result<(), DispatchError>| {
        let Err(DispatchError::Buffer {
            source: BufferError::OtherStream,
            ..
        }) = result
        else {
            panic!("{result:?}");
        };
    };
    refused(other.dispatch(vadd(), &[N as u32], &slices));
    refused(CommandList::new(library).dispatch(vadd(), &[N as u32], &slices));
    other.begin_capture().unwrap();
    refused(other.dispatch(vadd(), &[N as u32], &slices));
    assert_eq!(
        other.fill(slices[0].slice(..4).unwrap(), 0),
        Err(BufferError::OtherStream.into())
    );
    other.end_capture().unwrap();
    queue.dispatch(vadd(), &[N as u32], &slices).unwrap();
}

fn our_memory_in_cudarc(library: &Library, stream: &Arc<CudaStream>) {
    let context = library.device().to_cudarc().unwrap();
    assert_eq!(context.cu_ctx(), stream.context().cu_ctx());
    let queue = CudarcQueue::new(library, stream).unwrap();
    let buffer = library.device().buffer(4 * N as u64).unwrap();
    let ones: Vec<f32> = vec![1.0; N];
    {
        let mut shared = buffer.to_cudarc::<f32>(stream).unwrap();
        stream.memcpy_htod(&ones, &mut shared.view_mut()).unwrap();
        assert_eq!(stream.clone_dtoh(&*shared).unwrap(), ones);
    }
    queue
        .dispatch(vadd(), &[N as u32], &[buffer.all(); 3])
        .unwrap();
    let shared = buffer.to_cudarc::<f32>(stream).unwrap();
    drop(buffer);
    assert_eq!(stream.clone_dtoh(&*shared).unwrap(), vec![2.0; N]);
    let odd = library.device().buffer(6).unwrap();
    assert!(matches!(
        odd.to_cudarc::<f32>(stream),
        Err(CudarcError::Buffer(BufferError::Length { .. }))
    ));
}

fn scenario(context: &Arc<CudaContext>, library: &Library) {
    let own = context.new_stream().unwrap();
    for stream in [context.default_stream(), own] {
        dispatch_on_slices(library, &stream);
        slices_stay_on_their_queue(library, &stream);
        our_memory_in_cudarc(library, &stream);
    }
    library.device().synchronize().unwrap();
}

#[test]
fn cudarc_slices_work_on_a_real_gpu() {
    if let Some((context, library)) = opened() {
        scenario(&context, &library);
        println!("ran on {}", library.device().info().name);
    }
}

#[test]
fn cudarc_slices_work_on_the_fake_driver() {
    let fake = Fake::new();
    let dir = fake.path.parent().unwrap();
    std::os::unix::fs::symlink(&fake.path, dir.join("libcuda.so")).unwrap();
    for settings in ["devices=1", "devices=1,lazy=1"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "child_runs_on_the_fake",
                "--ignored",
                "--nocapture",
            ])
            .env("LD_LIBRARY_PATH", dir)
            .env("FAKE_CUDA", settings)
            .env_remove("ZINC_LIBCUDA")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{settings}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
#[ignore = "run by cudarc_slices_work_on_the_fake_driver"]
fn child_runs_on_the_fake() {
    let (context, library) = opened().unwrap();
    assert!(library.device().info().name.starts_with("Fake"));
    scenario(&context, &library);
    let second = Device::open_with(library.device().driver(), &DeviceSelector::Ordinal(0)).unwrap();
    assert!(
        second.same_context(library.device()),
        "the primary context is one"
    );
}
