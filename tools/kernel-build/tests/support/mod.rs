//! A small project in a temporary directory, and an nvcc made of a shell script that needs no toolkit.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use kernel_build::{Build, BuildError, Environment, Origin, Report};
use tempfile::TempDir;
use zinc_catalog::{Catalog, CatalogErrors, Tolerance};

/// Two kernels, `alpha` and `beta`: both include `common.cuh`, `beta` alone includes `only_beta.cuh`.
pub struct Project {
    /// Keeps the directory.
    _folder: TempDir,
    pub root: PathBuf,
    pub cache: PathBuf,
}

impl Project {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("a project");
        let project = Self {
            cache: folder.path().join("cache"),
            root,
            _folder: folder,
        };
        project.write(
            "kernels-cu/include/zinc/platform.cuh",
            include_str!("../../../../kernels-cu/include/zinc/platform.cuh"),
        );
        project.write("kernels-cu/include/zinc/common.cuh", "#pragma once\n");
        project.write(
            "kernels-cu/include/zinc/only_beta.cuh",
            "#pragma once\n#define BETA_FACTOR 2.0f\n",
        );
        project.write(
            "kernels-cu/catalog/utility.toml",
            &format!("{}{}", entry("alpha"), entry("beta")),
        );
        project.kernel("alpha", "#include \"zinc/common.cuh\"", "y[i] = x[i];");
        project.kernel(
            "beta",
            "#include \"zinc/common.cuh\"\n#include \"zinc/only_beta.cuh\"",
            "y[i] = x[i] * BETA_FACTOR;",
        );
        project
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes a kernel that runs `body` for each `i` below `p.n`, with `includes` in front.
    pub fn kernel(&self, name: &str, includes: &str, body: &str) {
        self.kernel_file(name, &format!(
            "{includes}\nZINC_KERNEL void __launch_bounds__(256) {name}(const float* x, float* y, {name}_push p) {{\n  \
             const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < p.n) {{ {body} }}\n}}\n"
        ), "");
    }

    /// Writes the files of a kernel: one with the generated header and `code`, and one with its launch rule and further
    /// lines of that.
    pub fn kernel_file(&self, name: &str, code: &str, launch: &str) {
        let text = format!("// {name}\n#include \"zinc/{name}.h\"\n{code}");
        self.write(&format!("kernels-cu/utility/{name}.cu"), &text);
        let rule = format!("block = [\"256\"]\ngrid = [\"ceil_div(n, 256)\"]\n{launch}");
        self.write(&format!("kernels-cu/utility/{name}.launch.toml"), &rule);
    }

    pub fn catalog(&self) -> Result<Catalog, CatalogErrors> {
        Catalog::load(&self.root.join("kernels-cu"), Tolerance::Strict)
    }

    /// The environment of a build in which ZINC_NVCC is `nvcc`.
    pub fn environment(&self, nvcc: &Path) -> Environment {
        let path = std::env::var_os("PATH").unwrap();
        Environment::of(&[
            ("PATH", &path),
            ("ZINC_CUDA_CACHE", self.cache.as_os_str()),
            ("ZINC_NVCC", nvcc.as_os_str()),
        ])
        .with("ZINC_CUDA_ARCHS", "80,90")
    }

    pub fn build(&self, environment: &Environment) -> Result<Report, BuildError> {
        self.build_into("out", environment)
    }

    pub fn build_into(&self, out: &str, environment: &Environment) -> Result<Report, BuildError> {
        let catalog = self.catalog().unwrap();
        let out = self.root.join(out);
        Build {
            root: &self.root,
            catalog: &catalog,
            out: &out,
            environment,
            progress: |_, _| {},
        }
        .run()
    }

    pub fn error(&self, environment: &Environment) -> String {
        self.build(environment).unwrap_err().to_string()
    }
}

/// The catalog entry of a kernel that reads `x`, writes `y` and takes `n`.
pub fn entry(name: &str) -> String {
    format!(
        r#"
[[kernel]]
name = "{name}"
family = "utility"
summary = "Test."
buffers = [
  {{ name = "x", access = "read", dtype = "f32", bytes = "n * 4", shape = "[n]" }},
  {{ name = "y", access = "write", dtype = "f32", bytes = "n * 4", shape = "[n]" }},
]
push = [{{ name = "n", type = "u32", doc = "elements" }}, {{ name = "unused", type = "u32", doc = "nothing" }}]
math = ""
requires = []
reference_grid = ""
edge = ""
numerics = ""
used_in = ""
"#
    )
}

/// The images that nvcc made in a build, such as `alpha sm_80`.
pub fn compiled(report: &Report) -> BTreeSet<String> {
    let units = report
        .units
        .iter()
        .filter(|unit| unit.origin == Origin::Compiled);
    units
        .map(|unit| format!("{} {}", unit.kernel, unit.target))
        .collect()
}

pub fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// An nvcc that knows sm_80 and sm_90, and "compiles" by copying prepared images. Lines of the source steer it:
/// `FAKE error TEXT` makes it fail, `FAKE spill N` reports spills, `FAKE stack N` a stack frame, `FAKE warn TEXT` prints a warning,
/// `FAKE without ARCH` leaves the entry out there, and `FAKE params` gives other parameters.
pub struct FakeNvcc {
    _folder: TempDir,
    pub path: PathBuf,
}

const SCRIPT: &str = r#"#!/bin/bash
here=$(dirname "$0")
case "$1" in
  --version) printf 'nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 99.1, V99.1.7\nBuild fake_99.1\n'; exit;;
  --list-gpu-code) printf 'sm_80\nsm_90\n'; exit;;
  --list-gpu-arch) printf 'compute_80\ncompute_90\n'; exit;;
  --dryrun)
    case "$*" in *sm_80a*) echo "nvcc fatal : Unsupported gpu architecture 'sm_80a'" >&2; exit 1;; esac
    echo '#$ c++ -E -x c++ probe.cu' >&2; exit;;
esac
arguments="$*"
while [ $# -gt 0 ]; do
  case "$1" in -o) out=$2; shift;; -arch=*) arch=${1#-arch=};; *.cu|*.ptx) source=$1;; esac
  shift
done
echo "$arch $source" >>"$here/calls"
kernel=$(basename "$source"); kernel=${kernel%%.*}
steer() { sed -n "s/^.*FAKE $1 *//p" "$source"; }
front_end=true; case "$source" in *.ptx) front_end=false;; esac
text=$(steer error); if [ -n "$text" ]; then echo "$source(7): error: $text" >&2; exit 2; fi
text=$(steer warn); if [ -n "$text" ] && $front_end; then echo "$source(8): warning: $text" >&2; fi
spill=$(steer spill); stack=$(steer stack)
printf "ptxas info    : Compiling entry function '$kernel' for '$arch'\nptxas info    : Function properties for $kernel\n" >&2
printf "    ${stack:-0} bytes stack frame, ${spill:-0} bytes spill stores, 0 bytes spill loads\n" >&2
printf "ptxas info    : Used 33 registers, used 0 barriers, 128 bytes smem\n" >&2
image=$kernel
[ "$(steer without)" != "$arch" ] || image=other
if grep -q 'FAKE params' "$source"; then image=$image.params; fi
case "$arch" in
  compute_*) { sed "s/NAME/$image/g; s/ARCH/sm_${arch#compute_}/" "$here/ptx"; grep FAKE "$source" | sed 's,^,// ,'; } >"$out";;
  *) cp "$here/$image.$arch" "$out";;
esac
"#;

const PTX: &str = ".version 9.0\n.target ARCH\n.visible .entry NAME(\n\t.param .u64 NAME_param_0,\n\t.param .u64 NAME_param_1,\n\t.param .align 4 .b8 NAME_param_2[8]\n)\n{ ret; }\n";

impl FakeNvcc {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nvcc");
        fs::write(&path, SCRIPT).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("ptx"), PTX).unwrap();
        for arch in [80, 90] {
            for name in ["alpha", "beta", "other"] {
                fs::write(
                    folder.path().join(format!("{name}.sm_{arch}")),
                    cubin(name, arch, &[(0, 8), (8, 8), (16, 8)]),
                )
                .unwrap();
                let shifted = cubin(name, arch, &[(0, 8), (8, 8), (16, 4)]);
                fs::write(
                    folder.path().join(format!("{name}.params.sm_{arch}")),
                    shifted,
                )
                .unwrap();
            }
        }
        Self {
            path,
            _folder: folder,
        }
    }

    /// How often it was asked to compile.
    pub fn calls(&self) -> usize {
        fs::read_to_string(self.path.with_file_name("calls")).map_or(0, |text| text.lines().count())
    }
}

/// A cubin with one entry and no code, with the parameters at these offsets and of these sizes.
fn cubin(entry: &str, arch: u8, parameters: &[(u16, u16)]) -> Vec<u8> {
    let names = [
        "",
        ".shstrtab",
        ".strtab",
        ".symtab",
        &format!(".nv.info.{entry}"),
        &format!(".text.{entry}"),
        ".nv.info",
    ];
    let mut section_names = Vec::new();
    let mut name_offsets = Vec::new();
    for name in names {
        name_offsets.push(section_names.len() as u32);
        section_names.extend(name.as_bytes());
        section_names.push(0);
    }
    let strings = [b"\0", entry.as_bytes(), b"\0"].concat();
    let mut symbols = vec![0; 24];
    // st_name, global function, the entry mark of CUDA, section 5, value, size.
    symbols.extend(1u32.to_le_bytes());
    symbols.extend([0x12, 0x10, 5, 0]);
    symbols.extend([0u64.to_le_bytes(), 16u64.to_le_bytes()].concat());
    let mut info = Vec::new();
    for (ordinal, (offset, size)) in parameters.iter().enumerate().rev() {
        info.extend([0x04, 0x17, 12, 0, 0, 0, 0, 0]);
        info.extend([(ordinal as u16).to_le_bytes(), offset.to_le_bytes()].concat());
        info.extend((0xf000u32 | u32::from(*size) << 18).to_le_bytes());
    }
    let end = parameters
        .iter()
        .map(|(offset, size)| offset + size)
        .max()
        .unwrap();
    info.extend([0x03, 0x19]);
    info.extend(end.to_le_bytes());
    let code = vec![0; 16];
    // EIATTR_REGCOUNT of symbol 1.
    let registers = [0x2f04u32 | 8 << 16, 1, 33].map(u32::to_le_bytes).concat();

    let bodies = [
        Vec::new(),
        section_names,
        strings,
        symbols,
        info,
        code,
        registers,
    ];
    // Type, flags, link, info and entry size of each section.
    let kinds: [(u32, u64, u32, u32, u64); 7] = [
        (0, 0, 0, 0, 0),
        (3, 0, 0, 0, 0),
        (3, 0, 0, 0, 0),
        (2, 0, 2, 1, 24),
        (0x7000_0000, 0x40, 3, 5, 0),
        (1, 6, 3, 1, 0),
        (0x7000_0000, 0, 3, 0, 0),
    ];
    let (mut data, mut headers) = (Vec::new(), Vec::new());
    for ((body, (kind, flags, link, info, size)), name) in
        bodies.iter().zip(kinds).zip(name_offsets)
    {
        data.resize(data.len().next_multiple_of(8), 0);
        headers.extend([name, kind].map(u32::to_le_bytes).concat());
        headers.extend(
            [flags, 0, 64 + data.len() as u64, body.len() as u64]
                .map(u64::to_le_bytes)
                .concat(),
        );
        headers.extend([link, info].map(u32::to_le_bytes).concat());
        headers.extend([u64::from(kind != 0), size].map(u64::to_le_bytes).concat());
        data.extend(body);
    }
    data.resize(data.len().next_multiple_of(8), 0);
    let mut elf = vec![
        0x7f, b'E', b'L', b'F', 2, 1, 1, 0x41, 8, 0, 0, 0, 0, 0, 0, 0,
    ];
    elf.extend([2u16, 190].map(u16::to_le_bytes).concat());
    elf.extend(1u32.to_le_bytes());
    elf.extend(
        [0, 0, 64 + data.len() as u64]
            .map(u64::to_le_bytes)
            .concat(),
    );
    elf.extend((0x0600_0004u32 | u32::from(arch) << 8).to_le_bytes());
    elf.extend([64u16, 56, 0, 64, 7, 1].map(u16::to_le_bytes).concat());
    elf.extend(data);
    elf.extend(headers);
    elf
}
