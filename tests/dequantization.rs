//! Dequantization as the kernels do it, bit for bit: with x a unit vector, y = W * x is a column of W.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use safetensors::SafeTensors;
use zinc_contract::{KERNELS, Kernel};
use zinc_cuda::zinc_runtime::{BufferSlice, Device, DeviceSelector, Library, Queue};
use zinc_emulator::Emulator;
use zinc_oracle::quant::Format;
use zinc_oracle::unit::{self, UnitCase};

/// The fields of the matrix-vector kernels, dense or over routed experts.
const FIELDS: [&str; 10] = [
    "m",
    "k",
    "a_offset",
    "x_offset",
    "y_offset",
    "acc_mode",
    "expert_stride",
    "x_expert_stride",
    "n_slots",
    "n_experts",
];
const BUFFERS: [&str; 4] = ["weights", "x", "y", "routing"];

/// The kernels that multiply a matrix of blocks with a vector and have code, and the format of their blocks.
fn matrix_vector_kernels() -> Vec<(&'static Kernel, Format)> {
    let kernels = KERNELS.iter().filter(|kernel| kernel.pending.is_none());
    kernels
        .filter(|kernel| kernel.name.starts_with("dmmv_"))
        .filter_map(|kernel| {
            let weights = kernel
                .buffers
                .iter()
                .find(|buffer| buffer.name.starts_with("weights"))?;
            Some((kernel, Format::from_dtype(weights.dtype)?))
        })
        .filter(|(_, format)| *format != Format::F32)
        .collect()
}

/// Whether a kernel computes nothing but the product, so that unit vectors show its dequantization.
fn is_plain(kernel: &Kernel) -> bool {
    kernel
        .fields
        .iter()
        .all(|field| FIELDS.contains(&field.name))
        && kernel
            .buffers
            .iter()
            .all(|buffer| BUFFERS.contains(&buffer.name))
}

/// Blocks of a format and their values, from another implementation than the oracle or the kernels.
fn golden(format: Format) -> (Vec<u8>, Vec<f32>) {
    if format == Format::F16 {
        return halves();
    }
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden/dequant.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |part: &str| {
        let name = format!("{}.{part}", format.dtype());
        let tensor = tensors.tensor(&name);
        tensor
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .data()
            .to_vec()
    };
    let values = tensor("values");
    let (values, _) = values.as_chunks::<4>();
    let values = values
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect();
    (tensor("blocks"), values)
}

/// Every finite f16 and the infinities, with the value that IEEE 754 gives its bits.
fn halves() -> (Vec<u8>, Vec<f32>) {
    let mut blocks = Vec::new();
    let mut values = Vec::new();
    for bits in 0..=u16::MAX {
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
        let magnitude = match exponent {
            0 => fraction * 2f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => continue,
            _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
        };
        blocks.extend(bits.to_le_bytes());
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        // Each fits: f32 has more bits of exponent and fraction.
        values.push((sign * magnitude) as f32);
    }
    (blocks, values)
}

/// Something that runs dispatches and returns the final contents of all buffers.
type Run<'a> = &'a dyn Fn(&UnitCase) -> Vec<Vec<u8>>;

/// Runs all columns of all formats, and returns how many kernels read each.
fn check(run: Run) -> BTreeMap<&'static str, usize> {
    let mut passed = BTreeMap::new();
    for (kernel, format) in matrix_vector_kernels() {
        if !is_plain(kernel) {
            continue;
        }
        let (blocks, values) = golden(format);
        // Some kernels take longer rows than one block; the plain one of their format does not.
        let Ok(cases) = unit::cases(kernel, format, &blocks, &values) else {
            println!("{} does not take rows of one block", kernel.name);
            continue;
        };
        assert_eq!(cases.len(), format.elements());
        for unit in &cases {
            let outputs = run(unit);
            let case = &unit.case;
            let report = zinc_oracle::compare(
                kernel,
                &case.label,
                &case.contents(),
                &unit.expected,
                &outputs,
            );
            assert!(report.ok(), "{report}");
        }
        *passed.entry(format.dtype()).or_insert(0) += 1;
    }
    passed
}

/// Every format that a kernel reads was looked at through one of its kernels.
fn assert_all_formats(passed: &BTreeMap<&'static str, usize>) {
    let read = matrix_vector_kernels()
        .into_iter()
        .map(|(_, format)| format.dtype());
    let read = BTreeSet::from_iter(read);
    assert!(!read.is_empty());
    println!("kernels per format: {passed:?}");
    let missing = Vec::from_iter(read.iter().filter(|format| !passed.contains_key(*format)));
    assert!(
        missing.is_empty(),
        "no kernel showed the values of {missing:?}"
    );
}

#[test]
fn emulated_kernels_dequantize_bit_for_bit() {
    let emulator = Emulator::default();
    let passed = check(&|unit| {
        let case = &unit.case;
        let buffers = case
            .contents()
            .into_iter()
            .map(|bytes| emulator.upload(bytes).unwrap());
        let buffers = Vec::from_iter(buffers);
        emulator
            .dispatch(case.kernel, &case.words, &buffers)
            .unwrap_or_else(|error| panic!("{}: {error}", case.label));
        buffers.iter().map(zinc_emulator::Buffer::read).collect()
    });
    assert_all_formats(&passed);
}

#[test]
fn gpu_kernels_dequantize_bit_for_bit() {
    let device = match Device::open(&DeviceSelector::Auto) {
        Err(error) if error.is_no_device() => {
            println!("not checked: {error}");
            return;
        }
        device => device.unwrap(),
    };
    let library = Library::new(&device, zinc_cuda::archive().unwrap()).unwrap();
    let queue = Queue::new(&library).unwrap();
    let passed = check(&|unit| {
        let case = &unit.case;
        let upload = |bytes: &[u8]| {
            let buffer = device.buffer(bytes.len().max(1) as u64).unwrap();
            queue
                .write(buffer.slice(..bytes.len() as u64).unwrap(), bytes)
                .unwrap();
            buffer
        };
        let contents = case.contents();
        let buffers = Vec::from_iter(contents.iter().map(|bytes| upload(bytes)));
        let slices = buffers.iter().map(|buffer| buffer.all());
        let slices: Vec<BufferSlice> = slices.collect();
        queue
            .dispatch(case.kernel, &case.words, &slices)
            .unwrap_or_else(|error| panic!("{}: {error}", case.label));
        let read = |(buffer, bytes): (&zinc_cuda::zinc_runtime::Buffer, &&[u8])| {
            let mut output = vec![0; bytes.len()];
            queue
                .read(buffer.slice(..bytes.len() as u64).unwrap(), &mut output)
                .unwrap();
            output
        };
        buffers.iter().zip(&contents).map(read).collect()
    });
    assert_all_formats(&passed);
}

#[test]
fn wrong_value_of_one_element_is_found() {
    let kernel = zinc_contract::kernel("dmmv_q8_0").unwrap();
    let (blocks, mut values) = golden(Format::Q8_0);
    let at = 7 * Format::Q8_0.elements() + 3;
    values[at] = f32::from_bits(values[at].to_bits() ^ 1);
    let emulator = Emulator::default();
    let cases = unit::cases(kernel, Format::Q8_0, &blocks, &values).unwrap();
    let wrong = cases.iter().filter(|unit| {
        let case = &unit.case;
        let contents = case.contents();
        let buffers = contents.iter().map(|bytes| emulator.upload(bytes).unwrap());
        let buffers = Vec::from_iter(buffers);
        emulator.dispatch(kernel, &case.words, &buffers).unwrap();
        let outputs = Vec::from_iter(buffers.iter().map(zinc_emulator::Buffer::read));
        !zinc_oracle::compare(kernel, &case.label, &contents, &unit.expected, &outputs).ok()
    });
    let columns = Vec::from_iter(wrong.map(|unit| unit.column));
    assert_eq!(columns, [3]);
}
