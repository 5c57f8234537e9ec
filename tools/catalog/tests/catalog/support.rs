//! A small kernels-cu directory to break in one place.

use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use zinc_catalog::{Catalog, CatalogErrors, Tolerance};

/// A contract with every feature; its first line is line 1 of catalog/demo.toml.
pub const CONTRACT: &str = r#"[[kernel]]
name = "demo_scale"
family = "utility"
summary = "Scales a vector."
derived = false
buffers = [
  { name = "x", access = "read", dtype = "f32", bytes = "(x_offset + n * rows) * 4", start = "x_offset * 4", align = 4, shape = "[rows, n]" },
  { name = "y", access = "write", dtype = "f32", bytes = "n * rows * 4", shape = "[rows, n]" },
]
push = [
  { name = "n", type = "u32", doc = "elements of a row" },
  { name = "x_offset", type = "u32", doc = "first element" },
  { name = "factor", type = "f32", doc = "factor" },
]
launch = [
  { name = "rows", type = "u32", doc = "rows" },
]
spec = [
  { name = "wide", type = "u32", default = 1, doc = "layout" },
]
math = "y = factor * x"
requires = ["n % 4 == 0", "wide <= 1"]
reference_grid = "rows workgroups"
edge = "n = 0 is a no-op."
numerics = "f32"
used_in = "Tests."
may_alias = [["y", "x"]]
ignored_push_bytes = 4
"#;

/// The code of its implementation.
pub const CODE: &str = r#"// Scales a vector.
#include "zinc/demo_scale.h"
"#;

/// How that is launched.
pub const LAUNCH: &str = r#"# Scales a vector.
tile = { warps = 8, rows_per_warp = 1 }
block = ["32 * warps"]
grid = ["ceil_div(n, 32 * warps)", "ceil_div(rows, rows_per_warp)"]
shared = "n * 4"
[arch.90]
tile = { warps = 16 }
[arch.90a]
tile = { rows_per_warp = 2 }
block = ["64 * warps"]
[arch.120]
cluster = "rows <= 8 ? 8 : 4"
grid = ["min(n, sm_count) * cluster"]
[allow]
spills = "measured"
"#;

pub struct Kernels {
    directory: TempDir,
}

impl Kernels {
    /// The contract and its implementation.
    pub fn complete() -> Kernels {
        let kernels = Kernels {
            directory: TempDir::new().unwrap(),
        };
        kernels.write("catalog/demo.toml", CONTRACT);
        kernels.write("demo/demo_scale.cu", CODE);
        kernels.write("demo/demo_scale.launch.toml", LAUNCH);
        kernels
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Replaces the only occurrence of `old` in a file.
    pub fn replace(&self, path: &str, old: &str, new: &str) {
        let text = fs::read_to_string(self.root().join(path)).unwrap();
        assert_eq!(
            text.matches(old).count(),
            1,
            "`{old}` is not unique in {path}"
        );
        self.write(path, &text.replace(old, new));
    }

    pub fn remove(&self, path: &str) {
        fs::remove_file(self.root().join(path)).unwrap();
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    pub fn load(&self) -> Result<Catalog, CatalogErrors> {
        Catalog::load(self.root(), Tolerance::Strict)
    }

    /// The only error of a strict load, with file names relative to the root.
    pub fn error(&self) -> String {
        let errors = self.load().expect_err("the catalog has a mistake");
        assert_eq!(errors.0.len(), 1, "one mistake, several errors:\n{errors}");
        errors
            .to_string()
            .replace(&format!("{}/", self.root().display()), "")
    }
}

/// The project's own kernels-cu.
pub fn project_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels-cu")
}
