//! The catalog as data: validated contracts and launch rules, in a form that code is generated from.

use crate::error::CatalogError;
use crate::expr::{Condition, Expr};
use std::collections::BTreeSet;
use std::path::PathBuf;

pub use zinc_contract_types::{
    Access, FieldKind, MAX_BLOCK_THREADS, MAX_BUFFERS, MAX_WORDS, Scalar,
};

/// The families a kernel can belong to.
pub const FAMILIES: [&str; 11] = [
    "attention",
    "elementwise",
    "extended",
    "gemm",
    "kv",
    "moe",
    "norm_act",
    "quantize",
    "rope",
    "ssm",
    "utility",
];

/// The extension of launch files, which lie beside the code of their kernels.
pub const LAUNCH_EXTENSION: &str = "launch.toml";

/// The name under which launch rules see the number of multiprocessors of the device.
pub const SM_COUNT: &str = "sm_count";

/// The name under which grid, block and shared memory see the blocks of a cluster.
pub const CLUSTER: &str = "cluster";

/// The first architecture that has clusters of blocks.
pub const CLUSTERS_SINCE: u32 = 90;

/// All contracts and launch rules.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// The directory that was read (`kernels-cu`).
    pub root: PathBuf,
    /// All kernels, sorted by name.
    pub kernels: Vec<Kernel>,
    /// Every file that was read, relative to `root`, sorted: TOML files first, then the implementations.
    pub files: Vec<PathBuf>,
    /// What a tolerant load overlooked; empty after a strict one.
    pub warnings: Vec<CatalogError>,
}

/// One kernel: its contract, and the launch rules of its implementation.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Name of the kernel, its entry and its file.
    pub name: String,
    /// One of [`FAMILIES`].
    pub family: String,
    /// Beyond the 110.
    pub extended: bool,
    /// One sentence.
    pub summary: String,
    /// The definition of the result.
    pub math: String,
    /// Edge cases.
    pub edge: String,
    /// Precision and tolerance.
    pub numerics: String,
    /// Who dispatches it.
    pub used_in: String,
    /// The grid of the original.
    pub reference_grid: String,
    /// Words of the device's push struct: push fields, then launch counts, then specialization values.
    pub fields: Vec<Field>,
    /// How many of `fields` the host's Vulkan push block holds.
    pub push_words: usize,
    /// Trailing push bytes that are accepted and ignored.
    pub ignored_push_bytes: u32,
    /// Buffers in binding order.
    pub buffers: Vec<Buffer>,
    /// Pairs of buffer indices that may be the same range.
    pub may_alias: Vec<(usize, usize)>,
    /// Preconditions, in the order in which they are checked.
    pub requires: Vec<ConditionText>,
    /// The TOML file of the contract, relative to the catalog's root.
    pub toml: PathBuf,
    /// The line of its `[[kernel]]`.
    pub line: usize,
    /// Where the implementation belongs, relative to the catalog's root.
    pub cu: PathBuf,
    /// Why there is no implementation; `None` if there is one.
    pub pending: Option<String>,
    /// Launch rules: the base rule, then overrides by ascending architecture. Empty while pending.
    pub launch: Vec<LaunchRule>,
    /// Whether the implementation waits by itself for the kernel before it on the stream.
    pub overlap: bool,
    /// Indices of the buffers that the implementation reads before it waits.
    pub early: Vec<usize>,
    /// What the implementation is allowed to do that the build refuses otherwise.
    pub allow: Allow,
}

/// One 4-byte word of a push struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Meaning.
    pub doc: String,
    /// Who supplies it.
    pub kind: FieldKind,
    /// Type.
    pub scalar: Scalar,
    /// Value when the caller gives none, as the word's bits.
    pub default: Option<u32>,
}

/// One buffer of a contract.
#[derive(Debug, Clone)]
pub struct Buffer {
    /// Name.
    pub name: String,
    /// Element type or block format.
    pub dtype: String,
    /// Layout in words.
    pub shape: String,
    /// Direction.
    pub access: Access,
    /// Least size: first byte after the touched range.
    pub bytes: ExprText,
    /// First touched byte.
    pub start: ExprText,
    /// Required alignment of the bound address.
    pub align: u64,
}

/// An expression with its text as written.
#[derive(Debug, Clone)]
pub struct ExprText {
    /// As written.
    pub text: String,
    /// Parsed.
    pub expr: Expr,
}

/// A condition with its text as written.
#[derive(Debug, Clone)]
pub struct ConditionText {
    /// As written.
    pub text: String,
    /// Parsed.
    pub condition: Condition,
}

/// How an implementation is launched, for architectures from `min_arch` on, or for the code of exactly that one.
#[derive(Debug, Clone)]
pub struct LaunchRule {
    /// Least compiled architecture (10 * major + minor); 0 in the base rule.
    pub min_arch: u32,
    /// Whether the rule is for code compiled for exactly `min_arch` (suffix `a`), which the build then makes beside the
    /// others.
    pub specific: bool,
    /// Named constants, sorted by name; an override has all of them, changed or not.
    pub tile: Vec<(String, u32)>,
    /// Values with names, sorted by these, which the expressions below may use and which are made of fields, constants
    /// and `sm_count`; an override has all of them, changed or not.
    pub lets: Vec<(String, ExprText)>,
    /// Blocks per cluster, along x; the other expressions have it in the place of their `cluster`.
    pub cluster: ExprText,
    /// Blocks per grid: x, y, z.
    pub grid: [ExprText; 3],
    /// Threads per block: x, y, z.
    pub block: [ExprText; 3],
    /// Dynamic shared memory in bytes.
    pub shared: ExprText,
}

/// Exceptions of an implementation, each with its reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allow {
    /// Why registers may spill.
    pub spills: Option<String>,
    /// Why local memory may be used.
    pub local: Option<String>,
}

impl Catalog {
    /// The kernel with this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        let index = self
            .kernels
            .binary_search_by(|kernel| kernel.name.as_str().cmp(name))
            .ok()?;
        Some(&self.kernels[index])
    }

    /// What a build must watch that needs no more of the implementations than their launch files, relative to `root`:
    /// every file that was read, the directory in which new contracts would appear, and those in which missing
    /// implementations would. The code is not among them.
    pub fn watched(&self) -> BTreeSet<PathBuf> {
        let mut watched = BTreeSet::from_iter(self.files.iter().cloned());
        watched.insert(PathBuf::from("catalog"));
        let missing = self
            .kernels
            .iter()
            .filter(|kernel| kernel.pending.is_some());
        watched.extend(missing.filter_map(|kernel| kernel.cu.parent().map(PathBuf::from)));
        watched.retain(|path| self.root.join(path).exists());
        watched
    }

    /// The kernels that have an implementation.
    pub fn implemented(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels
            .iter()
            .filter(|kernel| kernel.pending.is_none())
    }
}

impl Kernel {
    /// Where the implementation's launch file belongs, relative to the catalog's root.
    pub fn launch_file(&self) -> PathBuf {
        self.cu.with_extension(LAUNCH_EXTENSION)
    }

    /// The architectures (10 * major + minor) of which the kernel has code that runs on nothing else, beside its other
    /// code.
    pub fn specific_archs(&self) -> impl Iterator<Item = u32> {
        let rules = self.launch.iter().filter(|rule| rule.specific);
        rules.map(|rule| rule.min_arch)
    }

    /// The fields that `kind` supplies.
    pub fn fields_of(&self, kind: FieldKind) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(move |field| field.kind == kind)
    }
}
