//! Questions about contracts: what a dispatch has to pass, and what follows from given values. No device is needed.

use std::ffi::{CString, c_char, c_void};
use std::sync::OnceLock;

use zinc_contract::{
    Access, Binding, ContractError, Expr, FieldKind, KERNELS, Kernel, MAX_BUFFERS, Scalar, Value,
    Values, Words,
};
use zinc_runtime::compiled_arch;

use crate::pointer::{out, reference, room, target_of, text, values};
use crate::status::{Failure, c_text, guard, zcu_status};

/// The contract of a kernel. It is part of the library and never freed.
#[derive(Debug)]
pub struct zcu_kernel {
    kernel: &'static Kernel,
    info: zcu_kernel_info,
    buffers: Box<[zcu_buffer_info]>,
    fields: Box<[zcu_field_info]>,
}

// SAFETY: the pointers lead to texts that are never changed or freed.
unsafe impl Send for zcu_kernel {}
// SAFETY: as above.
unsafe impl Sync for zcu_kernel {}

/// What a kernel is and what a dispatch passes to it. The texts are never freed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_kernel_info {
    /// Name of the kernel and of its entry point.
    pub name: *const c_char,
    /// Family, such as "gemm" or "attention".
    pub family: *const c_char,
    /// One sentence.
    pub summary: *const c_char,
    /// Buffers, in binding order.
    pub buffer_count: u32,
    /// 4-byte fields of the push block.
    pub push_count: u32,
    /// Launch counts: what the original shader encodes in its grid.
    pub launch_count: u32,
    /// Specialization values.
    pub spec_count: u32,
    /// Bytes of the push block.
    pub push_bytes: u32,
    /// Fewest bytes that are accepted: fields with a default may be missing at the end.
    pub push_bytes_least: u32,
    /// Most bytes that are accepted: those behind push_bytes are ignored.
    pub push_bytes_most: u32,
    /// Whether it is beyond the 110.
    pub extended: bool,
    /// Whether there is an implementation.
    pub implemented: bool,
}

/// Direction of a buffer.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum zcu_access {
    /// Only read.
    Read = 1,
    /// Only written.
    Write = 2,
    /// Read and written.
    ReadWrite = 3,
}

/// One buffer of a contract. The texts are never freed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_buffer_info {
    /// Name.
    pub name: *const c_char,
    /// Element type or block format.
    pub dtype: *const c_char,
    /// Layout, in words.
    pub shape: *const c_char,
    /// Least size in bytes, as an expression over the fields; see zcu_kernel_buffer_range for its value.
    pub bytes: *const c_char,
    /// Direction.
    pub access: zcu_access,
    /// Required alignment of the address, bytes.
    pub alignment: u64,
}

/// Where a field comes from.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum zcu_field_kind {
    /// The push block.
    Push = 0,
    /// A launch count.
    Launch = 1,
    /// A specialization value.
    Spec = 2,
}

/// Type of a field.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum zcu_scalar {
    /// Unsigned 32-bit integer.
    U32 = 0,
    /// IEEE single.
    F32 = 1,
}

/// One 4-byte field of a kernel. The texts are never freed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_field_info {
    /// Name.
    pub name: *const c_char,
    /// Meaning and unit.
    pub doc: *const c_char,
    /// Where it comes from.
    pub kind: zcu_field_kind,
    /// Type.
    pub scalar: zcu_scalar,
    /// Whether it may be left out.
    pub has_default: bool,
    /// The word that then stands for it.
    pub default_word: u32,
}

/// What a dispatch passes besides its buffers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_values {
    /// The push block, byte for byte that of the Vulkan shader: a zinc_..._push of zinc_kernels.h.
    pub push: *const c_void,
    /// Its bytes.
    pub push_bytes: usize,
    /// The launch counts, in the contract's order. Those with a default may be missing at the end.
    pub launch: *const u32,
    /// How many; launch may be NULL if there are none.
    pub launch_count: usize,
    /// The specialization values, in the contract's order. Those with a default may be missing at the end.
    pub spec: *const u32,
    /// How many; spec may be NULL if there are none.
    pub spec_count: usize,
}

/// A range of device memory, for a check without a device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct zcu_binding {
    /// Address of the first byte, in any address space; 0 with 0 bytes binds nothing.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// How a kernel is launched.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct zcu_geometry {
    /// Blocks along x, y and z; all 0 where there is nothing to do.
    pub grid: [u32; 3],
    /// Threads along x, y and z.
    pub block: [u32; 3],
    /// Blocks of a cluster along x; 1 without clusters.
    pub cluster: u32,
    /// Dynamic shared memory of a block, bytes.
    pub shared_bytes: u32,
}

/// The contracts as C reads them, in the order of [`KERNELS`]. Their texts are leaked: they live as long as the process.
fn table() -> &'static [zcu_kernel] {
    static TABLE: OnceLock<Box<[zcu_kernel]>> = OnceLock::new();
    TABLE.get_or_init(|| KERNELS.iter().map(zcu_kernel::new).collect())
}

fn leak(text: &str) -> *const c_char {
    CString::into_raw(c_text(text))
}

impl zcu_kernel {
    fn new(kernel: &'static Kernel) -> Self {
        let count = |kind| kernel.fields_of(kind).count() as u32;
        let push = count(FieldKind::Push);
        let optional = kernel.fields[..kernel.push_words]
            .iter()
            .rev()
            .take_while(|field| field.default.is_some());
        let least = push - optional.count() as u32;
        let info = zcu_kernel_info {
            name: leak(kernel.name),
            family: leak(kernel.family),
            summary: leak(kernel.summary),
            buffer_count: kernel.buffers.len() as u32,
            push_count: push,
            launch_count: count(FieldKind::Launch),
            spec_count: count(FieldKind::Spec),
            push_bytes: 4 * push,
            push_bytes_least: 4 * least,
            push_bytes_most: 4 * push + kernel.ignored_push_bytes as u32,
            extended: kernel.extended,
            implemented: kernel.pending.is_none(),
        };
        let buffers = kernel.buffers.iter().map(|buffer| zcu_buffer_info {
            name: leak(buffer.name),
            dtype: leak(buffer.dtype),
            shape: leak(buffer.shape),
            bytes: leak(buffer.bytes.text),
            access: match buffer.access {
                Access::Read => zcu_access::Read,
                Access::Write => zcu_access::Write,
                Access::ReadWrite => zcu_access::ReadWrite,
            },
            alignment: buffer.align,
        });
        let fields = kernel.fields.iter().map(|field| zcu_field_info {
            name: leak(field.name),
            doc: leak(field.doc),
            kind: match field.kind {
                FieldKind::Push => zcu_field_kind::Push,
                FieldKind::Launch => zcu_field_kind::Launch,
                FieldKind::Spec => zcu_field_kind::Spec,
            },
            scalar: match field.scalar {
                Scalar::U32 => zcu_scalar::U32,
                Scalar::F32 => zcu_scalar::F32,
            },
            has_default: field.default.is_some(),
            default_word: field.default.unwrap_or_default(),
        });
        Self {
            kernel,
            info,
            buffers: buffers.collect(),
            fields: fields.collect(),
        }
    }

    pub(crate) fn contract(&self) -> &'static Kernel {
        self.kernel
    }

    fn buffer_at(&self, index: usize) -> Result<&zcu_buffer_info, Failure> {
        self.buffers.get(index).ok_or_else(|| {
            Failure::index("buffer", index, self.buffers.len()).kernel(self.kernel.name)
        })
    }
}

impl zcu_values {
    /// The complete push struct.
    ///
    /// # Safety
    /// The pointers are valid for what the counts say.
    pub(crate) unsafe fn words(&self, kernel: &'static Kernel) -> Result<Words, Failure> {
        // SAFETY: the caller vouches for the pointers.
        let (push, launch, spec) = unsafe {
            (
                values(self.push.cast::<u8>(), self.push_bytes, "values.push")?,
                values(self.launch, self.launch_count, "values.launch")?,
                values(self.spec, self.spec_count, "values.spec")?,
            )
        };
        Ok(kernel.words(push, launch, spec)?)
    }
}

fn evaluate(
    kernel: &'static Kernel,
    what: &'static str,
    expr: &Expr,
    words: &[u32],
) -> Result<i64, Failure> {
    (expr.eval)(words).map_err(|error| {
        let used = expr.fields.iter().filter_map(|&at| {
            let at = usize::from(at);
            let (field, word) = (kernel.fields.get(at)?, *words.get(at)?);
            let value = match field.scalar {
                Scalar::U32 => Value::U32(word),
                Scalar::F32 => Value::F32(f32::from_bits(word)),
            };
            Some((field.name, value))
        });
        let error = ContractError::Eval {
            kernel: kernel.name,
            what,
            text: expr.text,
            values: Values(used.collect()),
            error,
        };
        Failure::from(error).buffer(what)
    })
}

/// Contracts in the library: those of the 110, the extended ones, and those that have no implementation yet.
#[unsafe(no_mangle)]
pub extern "C" fn zcu_kernel_count() -> usize {
    KERNELS.len()
}

/// The contract at an index. They are sorted by name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_kernel_at(index: usize, kernel: *mut *const zcu_kernel) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for outputs.
        let out = unsafe { out(kernel, "kernel") }?;
        let table = table();
        let found = table.get(index);
        out.put(found.ok_or_else(|| Failure::index("kernel", index, table.len()))?);
        Ok(())
    })
}

/// The contract of the kernel with this name. Look it up once: a dispatch takes the pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_kernel_find(
    name: *const c_char,
    kernel: *mut *const zcu_kernel,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for texts and outputs.
        let (name, out) = unsafe { (text(name, "name")?, out(kernel, "kernel")?) };
        let table = table();
        match table.binary_search_by(|kernel| kernel.kernel.name.cmp(name)) {
            Ok(at) => out.put(&raw const table[at]),
            Err(_) => {
                // The contract's own look-up knows the most similar name.
                zinc_contract::kernel(name)?;
            }
        }
        Ok(())
    })
}

/// What a kernel is and what a dispatch passes to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_kernel_describe(
    kernel: *const zcu_kernel,
    info: *mut zcu_kernel_info,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (kernel, out) = unsafe { (reference(kernel, "kernel")?, out(info, "info")?) };
        out.put(kernel.info);
        Ok(())
    })
}

/// One buffer of a kernel, by its place in the binding order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_kernel_buffer(
    kernel: *const zcu_kernel,
    index: usize,
    info: *mut zcu_buffer_info,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (kernel, out) = unsafe { (reference(kernel, "kernel")?, out(info, "info")?) };
        out.put(*kernel.buffer_at(index)?);
        Ok(())
    })
}

/// One field of a kernel: the push fields, then the launch counts, then the specialization values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_kernel_field(
    kernel: *const zcu_kernel,
    index: usize,
    info: *mut zcu_field_info,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and outputs.
        let (kernel, out) = unsafe { (reference(kernel, "kernel")?, out(info, "info")?) };
        let field = kernel.fields.get(index);
        out.put(*field.ok_or_else(|| {
            Failure::index("field", index, kernel.fields.len()).kernel(kernel.kernel.name)
        })?);
        Ok(())
    })
}

/// The complete push struct, as the device code takes it behind the buffers' addresses: push fields, launch counts,
/// specialization values. capacity is that of words; count becomes the number of words. For engines that launch the images
/// with their own driver loader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_kernel_words(
    kernel: *const zcu_kernel,
    values: *const zcu_values,
    words: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles, inputs and outputs.
        let (kernel, given, room, count) = unsafe {
            (
                reference(kernel, "kernel")?,
                reference(values, "values")?,
                room(words, capacity, "words")?,
                out(count, "count")?,
            )
        };
        // SAFETY: as above.
        let all = unsafe { given.words(kernel.kernel) }?;
        if all.len() > capacity {
            return Err(Failure::new(
                zcu_status::Length,
                format!(
                    "the push struct has {} words, there is room for {capacity}",
                    all.len()
                ),
            )
            .kernel(kernel.kernel.name)
            .wanted(all.len())
            .found(capacity));
        }
        for (place, word) in room.iter_mut().zip(all.as_slice()) {
            place.write(*word);
        }
        count.put(all.len());
        Ok(())
    })
}

/// The bytes of a buffer that the kernel may touch with these values: from start to before end. The buffer has to have end
/// bytes; 0 and 0: it is not touched. Preconditions are not checked here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_kernel_buffer_range(
    kernel: *const zcu_kernel,
    values: *const zcu_values,
    buffer: usize,
    start: *mut u64,
    end: *mut u64,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles, inputs and outputs.
        let (kernel, given, start, end) = unsafe {
            (
                reference(kernel, "kernel")?,
                reference(values, "values")?,
                out(start, "start")?,
                out(end, "end")?,
            )
        };
        kernel.buffer_at(buffer)?;
        let contract = kernel.kernel;
        // SAFETY: as above.
        let words = unsafe { given.words(contract) }?;
        let buffer = &contract.buffers[buffer];
        let bytes = evaluate(contract, buffer.name, &buffer.bytes, &words)?;
        let first = evaluate(contract, buffer.name, &buffer.start, &words)?;
        let bytes = u64::try_from(bytes).unwrap_or_default();
        end.put(bytes);
        start.put(u64::try_from(first).unwrap_or_default().min(bytes));
        Ok(())
    })
}

/// How a kernel is launched with these values, for its image of this target ("sm_90", as zcu_entry_info has it) on a device
/// with sm_count multiprocessors. Preconditions are not checked here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_kernel_geometry(
    kernel: *const zcu_kernel,
    values: *const zcu_values,
    target: *const c_char,
    sm_count: u32,
    geometry: *mut zcu_geometry,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles, inputs and outputs.
        let (kernel, given, target, out) = unsafe {
            (
                reference(kernel, "kernel")?,
                reference(values, "values")?,
                target_of(target)?,
                out(geometry, "geometry")?,
            )
        };
        let contract = kernel.kernel;
        // SAFETY: as above.
        let words = unsafe { given.words(contract) }?;
        let geometry = contract.geometry(compiled_arch(target), sm_count, &words)?;
        out.put(geometry.map_or(
            zcu_geometry {
                grid: [0; 3],
                block: [0; 3],
                cluster: 1,
                shared_bytes: 0,
            },
            |geometry| zcu_geometry {
                grid: geometry.grid,
                block: geometry.block,
                cluster: geometry.cluster,
                shared_bytes: geometry.shared_bytes,
            },
        ));
        Ok(())
    })
}

/// Checks a dispatch as zcu_queue_dispatch does, without a device: values, number, size and alignment of the buffers,
/// preconditions, overlaps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zcu_kernel_check(
    kernel: *const zcu_kernel,
    values: *const zcu_values,
    buffers: *const zcu_binding,
    buffer_count: usize,
) -> zcu_status {
    guard(|| {
        // SAFETY: the caller keeps the header's rules for handles and inputs.
        let (kernel, given, bound) = unsafe {
            (
                reference(kernel, "kernel")?,
                reference(values, "values")?,
                crate::pointer::values(buffers, buffer_count, "buffers")?,
            )
        };
        let contract = kernel.kernel;
        // SAFETY: as above.
        let words = unsafe { given.words(contract) }?;
        let mut bindings = [Binding::UNBOUND; MAX_BUFFERS];
        for (binding, given) in bindings.iter_mut().zip(bound) {
            *binding = Binding {
                address: given.address,
                bytes: given.bytes,
            };
        }
        let bindings = bindings
            .get(..bound.len())
            .ok_or_else(|| buffer_count_error(contract, bound.len()))?;
        Ok(contract.check(&words, bindings)?)
    })
}

/// More buffers than any kernel has.
#[cold]
pub(crate) fn buffer_count_error(kernel: &'static Kernel, found: usize) -> ContractError {
    ContractError::BufferCount {
        kernel: kernel.name,
        wanted: kernel.buffers.len(),
        found,
    }
}
