//! Adds two cudarc slices with the embedded `vadd` kernel, without a copy between cudarc and this runtime.
//!
//! `cargo run -p zinc-runtime --features cudarc --example cudarc_interop -- ARCHIVE`

use std::error::Error;
use std::path::PathBuf;

use cubin_format::Archive;
use cudarc::driver::CudaContext;
use zinc_runtime::cudarc::CudarcQueue;
use zinc_runtime::{Device, Driver, Library};

const N: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let path: PathBuf = std::env::args_os()
        .nth(1)
        .ok_or("usage: cudarc_interop ARCHIVE")?
        .into();
    let archive = Archive::read(&path)?;

    // Our search first: it knows more places, and cudarc panics where it finds no driver.
    let driver = Driver::load()?;
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let a = stream.clone_htod(&vec![1.0f32; N])?;
    let b = stream.clone_htod(&vec![2.0f32; N])?;
    let mut c = stream.alloc_zeros::<f32>(N)?;

    let device = Device::from_cudarc(&driver, &context)?;
    let library = Library::new(&device, archive)?;
    let queue = CudarcQueue::new(&library, &stream)?;
    {
        let (a, b, c) = (queue.read(&a)?, queue.read(&b)?, queue.write(&mut c)?);
        let vadd = zinc_contract::kernel("vadd")?;
        queue.dispatch(vadd, &[N as u32], &[a.slice(), b.slice(), c.slice()])?;
    }

    let sums = stream.clone_dtoh(&c)?;
    let right = sums.iter().filter(|sum| **sum == 3.0).count();
    println!("{}: {right} of {N} sums are right", device.info().name);
    match right == N {
        true => Ok(()),
        false => Err("wrong sums".into()),
    }
}
