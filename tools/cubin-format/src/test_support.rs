//! Cubins for tests: synthesised ELF bytes, and real ones where a toolkit is found.

use std::path::{Path, PathBuf};
use std::process::Command;

const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOBITS: u32 = 8;

/// A section: its name, contents, and size (which only a section without contents has of its own).
pub struct Section {
    pub name: String,
    pub data: Vec<u8>,
    pub nobits: u64,
}

/// A symbol: its name, `st_info`, `st_other`, and the name of its section.
pub struct Symbol {
    pub name: String,
    pub info: u8,
    pub other: u8,
    pub section: String,
}

/// The parts of an ELF file in the layout of a cubin.
pub struct Elf {
    pub machine: u16,
    pub abi: u8,
    pub flags: u32,
    pub sections: Vec<Section>,
    pub symbols: Vec<Symbol>,
}

/// An attribute with data, as in `.nv.info`.
pub fn attribute(number: u8, words: &[u32]) -> Vec<u8> {
    let mut bytes = vec![4, number, 4 * words.len() as u8, 0];
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// An attribute whose value is in its header.
pub fn short_attribute(format: u8, number: u8, value: u16) -> Vec<u8> {
    let [low, high] = value.to_le_bytes();
    vec![format, number, low, high]
}

pub fn parameter(ordinal: u32, offset: u32, size: u32) -> Vec<u8> {
    attribute(0x17, &[0, ordinal | offset << 16, 0x1f000 | size << 18])
}

impl Elf {
    /// A cubin of CUDA 13 with the entry `vadd`: three pointers, a push block of 12 bytes, 40
    /// registers, 512 bytes of static shared memory, a stack of 64 bytes, launch bounds of 256
    /// threads.
    pub fn vadd(number: u32, accelerated: bool) -> Self {
        // Index 0 is the null symbol.
        let symbol = 1;
        let info = [
            attribute(0x2f, &[symbol, 40]),
            attribute(0x11, &[symbol, 48]),
            attribute(0x12, &[symbol, 64]),
        ];
        let entry = [
            attribute(0x37, &[130]),
            parameter(3, 24, 12),
            parameter(2, 16, 8),
            parameter(1, 8, 8),
            parameter(0, 0, 8),
            short_attribute(3, 0x19, 36),
            attribute(0x05, &[256, 1, 1]),
        ];
        let compat = [
            short_attribute(2, 0x09, accelerated.into()),
            short_attribute(2, 0x02, 1),
        ];
        let reserved = if number >= 90 { 1024 } else { 0 };
        let section = |name: &str, data: Vec<u8>, nobits| Section {
            name: name.to_owned(),
            data,
            nobits,
        };
        Self {
            machine: 190,
            abi: 8,
            flags: 0x0600_0004 | number << 8,
            sections: vec![
                section(".nv.info", info.concat(), 0),
                section(".nv.compat", compat.concat(), 0),
                section(".nv.info.vadd", entry.concat(), 0),
                section(".text.vadd", vec![0; 128], 0),
                section(".nv.shared.vadd", Vec::new(), reserved + 512),
            ],
            symbols: vec![Symbol {
                name: "vadd".to_owned(),
                info: 0x12,
                other: 0x10,
                section: ".text.vadd".to_owned(),
            }],
        }
    }

    pub fn section(&mut self, name: &str) -> &mut Section {
        self.sections
            .iter_mut()
            .find(|section| section.name == name)
            .unwrap()
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"\x7fELF\x02\x01\x01\x41".to_vec();
        out.push(self.abi);
        out.resize(16, 0);
        out.extend(2u16.to_le_bytes());
        out.extend(self.machine.to_le_bytes());
        out.extend(1u32.to_le_bytes());
        out.resize(64, 0);

        let mut names = vec![0];
        let mut headers = vec![[0u8; 64]];
        let mut put = |out: &mut Vec<u8>,
                       name: &str,
                       kind: u32,
                       data: &[u8],
                       nobits: u64,
                       link: u32,
                       entry: u64| {
            let offset = out.len() as u64;
            let mut header = Vec::new();
            header.extend((names.len() as u32).to_le_bytes());
            header.extend(kind.to_le_bytes());
            let size = if kind == NOBITS {
                nobits
            } else {
                data.len() as u64
            };
            for value in [0u64, 0, offset, size] {
                header.extend(value.to_le_bytes());
            }
            header.extend(link.to_le_bytes());
            header.extend(1u32.to_le_bytes());
            header.extend(1u64.to_le_bytes());
            header.extend(entry.to_le_bytes());
            names.extend(name.as_bytes());
            names.push(0);
            headers.push(header.try_into().unwrap());
            out.extend(data);
        };
        for section in &self.sections {
            let kind = if section.nobits > 0 { NOBITS } else { PROGBITS };
            put(
                &mut out,
                &section.name,
                kind,
                &section.data,
                section.nobits,
                0,
                0,
            );
        }
        let mut strings = vec![0];
        let mut symbols = vec![0u8; 24];
        for symbol in &self.symbols {
            let index = self
                .sections
                .iter()
                .position(|section| section.name == symbol.section)
                .unwrap()
                + 1;
            symbols.extend((strings.len() as u32).to_le_bytes());
            symbols.extend([symbol.info, symbol.other]);
            symbols.extend((index as u16).to_le_bytes());
            symbols.extend([0; 16]);
            strings.extend(symbol.name.as_bytes());
            strings.push(0);
        }
        let strings_index = self.sections.len() as u32 + 1;
        put(&mut out, ".strtab", STRTAB, &strings, 0, 0, 0);
        put(&mut out, ".symtab", SYMTAB, &symbols, 0, strings_index, 24);
        put(&mut out, ".shstrtab", STRTAB, &[], 0, 0, 0);
        let last = headers.last_mut().unwrap();
        last[32..40].copy_from_slice(&(names.len() as u64).to_le_bytes());
        out.extend(&names);
        out.resize(out.len().next_multiple_of(8), 0);
        let table = out.len() as u64;
        out[40..48].copy_from_slice(&table.to_le_bytes());
        out[48..52].copy_from_slice(&self.flags.to_le_bytes());
        for (at, value) in [
            (52, 64u16),
            (58, 64),
            (60, headers.len() as u16),
            (62, headers.len() as u16 - 1),
        ] {
            out[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        out.extend(headers.concat());
        out
    }
}

/// The tools of a CUDA toolkit, from `ZINC_NVCC` or the search path.
pub struct Toolkit {
    directory: PathBuf,
}

/// Says on stderr what is left out where there is no toolkit.
pub fn toolkit(left_out: &str) -> Option<Toolkit> {
    let given = std::env::var_os("ZINC_NVCC").map(PathBuf::from);
    let searched = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .map(|directory| directory.join("nvcc"))
            .find(|nvcc| nvcc.is_file())
    };
    let nvcc = given.or_else(searched);
    if nvcc.is_none() {
        eprintln!("no nvcc in ZINC_NVCC or PATH: {left_out} is not tested");
    }
    Some(Toolkit {
        directory: nvcc?.parent()?.to_owned(),
    })
}

impl Toolkit {
    pub fn run(&self, tool: &str, arguments: &[&str], directory: &Path) -> String {
        let output = Command::new(self.directory.join(tool))
            .args(arguments)
            .current_dir(directory)
            .output()
            .unwrap();
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success(),
            "{tool} {arguments:?}: {stdout}{stderr}"
        );
        format!("{stdout}{stderr}")
    }

    /// Compiles to a cubin for `sm_<arch>`.
    pub fn cubin(&self, source: &str, arch: &str, directory: &Path) -> Vec<u8> {
        let architecture = format!("-arch=sm_{arch}");
        self.compile(source, &["-cubin", &architecture], directory)
    }

    /// Compiles to PTX for `compute_<arch>`.
    pub fn ptx(&self, source: &str, arch: &str, directory: &Path) -> Vec<u8> {
        let architecture = format!("-arch=compute_{arch}");
        self.compile(source, &["-ptx", &architecture], directory)
    }

    fn compile(&self, source: &str, arguments: &[&str], directory: &Path) -> Vec<u8> {
        std::fs::write(directory.join("source.cu"), source).unwrap();
        let files = ["source.cu", "-o", "image"];
        self.run("nvcc", &[arguments, files.as_slice()].concat(), directory);
        std::fs::read(directory.join("image")).unwrap()
    }
}

/// One small entry.
pub const SMALL_SOURCE: &str = "extern \"C\" __global__ void __launch_bounds__(64) copy(const int* a, int* b) { b[threadIdx.x] = a[threadIdx.x]; }";

/// Entry `vadd` has the parameters of [`Elf::vadd`]; `local` has a stack; `dynamic` has no static
/// shared memory, and calls a function that is no entry.
pub const SOURCE: &str = r#"
struct push { unsigned m; unsigned k; float scale; };
extern "C" __global__ void __launch_bounds__(256)
vadd(const float* a, const float* b, float* c, push p) {
    __shared__ float tile[128];
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    if (threadIdx.x < 128) tile[threadIdx.x] = a[i];
    __syncthreads();
    if (i < p.m) c[i] = tile[127 - threadIdx.x % 128] + b[i] * p.scale;
}
extern "C" __global__ void local(const int* a, int* c) {
    int t[64];
    for (int i = 0; i < 64; i++) t[i] = a[i];
    for (int i = 0; i < 64; i++) c[i] = t[a[i] & 63];
}
__device__ __noinline__ int called(int x, const int* p) { return p[x] + p[x & 3]; }
struct large { char bytes[20000]; };
extern "C" __global__ void dynamic(int* a, large b) {
    extern __shared__ int tile[];
    tile[threadIdx.x] = b.bytes[a[threadIdx.x]];
    __syncthreads();
    a[0] = called(a[1], tile) + called(a[2], a);
}
extern "C" __global__ void nothing() {}
"#;
