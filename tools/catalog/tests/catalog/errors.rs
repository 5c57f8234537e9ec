//! Every kind of mistake in a catalog is reported once, with file, line and kernel.

use crate::support::{CONTRACT, Kernels};
use zinc_catalog::{Catalog, Problem, Tolerance};

const TOML: &str = "catalog/demo.toml";
const CU: &str = "demo/demo_scale.cu";
const LAUNCH: &str = "demo/demo_scale.launch.toml";

#[test]
fn complete_catalog_loads() {
    let catalog = Kernels::complete().load().unwrap();
    assert_eq!(catalog.kernels.len(), 1);
    let kernel = catalog.kernel("demo_scale").unwrap();
    assert_eq!((kernel.push_words, kernel.fields.len()), (3, 5));
    assert_eq!(kernel.may_alias, [(0, 1)]);
    assert_eq!(kernel.allow.spills.as_deref(), Some("measured"));
    let rules: Vec<_> = kernel
        .launch
        .iter()
        .map(|rule| {
            let arch = (rule.min_arch, rule.specific);
            (arch, &rule.tile, rule.grid[0].text.as_str())
        })
        .collect();
    let tile = |rows, warps| {
        vec![
            ("rows_per_warp".to_owned(), rows),
            ("warps".to_owned(), warps),
        ]
    };
    assert_eq!(
        rules,
        [
            ((0, false), &tile(1, 8), "ceil_div(n, 32 * warps)"),
            ((90, false), &tile(1, 16), "ceil_div(n, 32 * warps)"),
            ((90, true), &tile(2, 8), "ceil_div(n, 32 * warps)"),
            ((120, false), &tile(1, 8), "min(n, sm_count) * cluster"),
        ]
    );
    assert_eq!(Vec::from_iter(kernel.specific_archs()), [90]);
}

#[test]
fn mistakes_in_a_contract_name_file_line_and_kernel() {
    // What is replaced, by what, the line that must be named, and a part of the message.
    let cases = [
        ("derived = false", "edges = 1", 5, "unknown field `edges`"),
        (
            "summary = \"Scales a vector.\"",
            "",
            1,
            "missing field `summary`",
        ),
        (
            "family = \"utility\"",
            "family = \"misc\"",
            3,
            "family `misc` is unknown",
        ),
        (
            "name = \"demo_scale\"",
            "name = \"demo-scale\"",
            2,
            "kernel `demo-scale` is not usable",
        ),
        (
            "name = \"rows\"",
            "name = \"switch\"",
            16,
            "field `switch` is not usable",
        ),
        (
            "name = \"x\"",
            "name = \"X\"",
            7,
            "buffer `X` is not usable",
        ),
        ("access = \"write\"", "access = \"rw\"", 8, "access is `rw`"),
        (
            "\"factor\", type = \"f32\"",
            "\"factor\", type = \"f64\"",
            13,
            "type is `f64`",
        ),
        ("default = 1", "default = -1", 19, "default is `-1`"),
        (
            "name = \"x_offset\"",
            "name = \"n\"",
            12,
            "field `n` is already defined",
        ),
        (
            "name = \"y\"",
            "name = \"rows\"",
            8,
            "name `rows` is already defined",
        ),
        (
            "start = \"x_offset * 4\"",
            "start = \"x_ofset * 4\"",
            7,
            "uses `x_ofset`, which is not a push, launch or spec field",
        ),
        (
            "start = \"x_offset * 4\"",
            "start = \"factor\"",
            7,
            "uses `factor`, but f32 fields",
        ),
        (
            "bytes = \"n * rows * 4\"",
            "bytes = \"n * * 4\"",
            8,
            "expected an integer, a name or `(`, found `*` at column 5",
        ),
        ("\"wide <= 1\"", "\"wide\"", 22, "expected a comparison"),
        ("\"wide <= 1\"", "\"sm_count <= 1\"", 22, "uses `sm_count`"),
        ("align = 4", "align = 12", 7, "align is `12`"),
        (
            "[[\"y\", \"x\"]]",
            "[[\"y\", \"z\"]]",
            27,
            "may_alias [y, z]: no such buffer",
        ),
        (
            "[[\"y\", \"x\"]]",
            "[[\"y\", \"y\"]]",
            27,
            "may_alias [y, y]",
        ),
        (
            "ignored_push_bytes = 4",
            "ignored_push_bytes = 3",
            28,
            "ignored_push_bytes is `3`",
        ),
    ];
    for (old, new, line, part) in cases {
        let kernels = Kernels::complete();
        kernels.replace(TOML, old, new);
        let errors = kernels.load().expect_err(new);
        let first = errors.0.first().unwrap();
        assert_eq!(first.line, Some(line), "{new}: {errors}");
        assert!(first.file.ends_with(TOML), "{new}: {errors}");
        let name = if new.contains("demo-scale") {
            "demo-scale"
        } else {
            "demo_scale"
        };
        assert_eq!(first.kernel.as_deref(), Some(name), "{new}: {errors}");
        assert!(first.to_string().contains(part), "{new}: {errors}");
    }
}

#[test]
fn a_second_kernel_of_the_same_name_names_both_places() {
    let kernels = Kernels::complete();
    kernels.write("catalog/zz.toml", &format!("# one\n{CONTRACT}"));
    assert_eq!(
        kernels.error(),
        "catalog/zz.toml:2: kernel demo_scale: kernel `demo_scale` is already defined at catalog/demo.toml:1"
    );
}

#[test]
fn mistakes_in_a_launch_file_name_file_line_and_kernel() {
    let cases = [
        (
            "shared = \"n * 4\"",
            "sharde = \"n * 4\"",
            5,
            "unknown field `sharde`",
        ),
        ("block = [\"32 * warps\"]\n", "", 1, "missing field `block`"),
        (
            "shared = \"n * 4\"",
            "shared = \"m * 4\"",
            5,
            "uses `m`, which is not a field, a tile constant or sm_count",
        ),
        ("shared = \"n * 4\"", "shared = \"factor\"", 5, "f32 fields"),
        (
            "shared = \"n * 4\"",
            "cluster = 2",
            5,
            "belongs in `[arch.90]`",
        ),
        ("shared = \"n * 4\"", "let.n = 1", 5, "name `n` is already"),
        (
            "shared = \"n * 4\"",
            "let.warps = 1",
            5,
            "name `warps` is already",
        ),
        (
            "shared = \"n * 4\"",
            "let.half = \"cluster / 2\"",
            5,
            "uses `cluster`, which is not a field, a tile constant or sm_count",
        ),
        (
            "shared = \"n * 4\"",
            "let = { a = 1, b = \"a\" }",
            5,
            "uses `a`, which is not a field, a tile constant or sm_count",
        ),
        (
            "tile = { warps = 16 }",
            "let.other = 1",
            7,
            "value `other` is not defined by the base rule",
        ),
        (
            "block = [\"32 * warps\"]",
            "let.all = \"128 * warps\"\nblock = [\"all\", 8]",
            4,
            "8192 threads in a block, at most 1024",
        ),
        (
            "rows <= 8 ?",
            "cluster <= 8 ?",
            12,
            "cannot depend on itself",
        ),
        ("warps = 8,", "cluster = 8,", 2, "name `cluster` is already"),
        ("warps = 8", "n = 8", 2, "name `n` is already defined"),
        (
            "[\"32 * warps\"]",
            "[\"32 * warps\", 8]",
            3,
            "2048 threads in a block, at most 1024",
        ),
        ("[\"32 * warps\"]", "[0]", 3, "the block is 0"),
        (
            "[\"32 * warps\"]",
            "[1, 1, 1, 1]",
            3,
            "4 block dimensions, at most 3",
        ),
        ("[\"32 * warps\"]", "[]", 3, "block dimensions is 0"),
        (
            "tile = { warps = 16 }",
            "tile = { wraps = 16 }",
            7,
            "tile constant `wraps` is not defined by the base rule",
        ),
        (
            "tile = { warps = 16 }",
            "tile = { warps = 64 }",
            3,
            "2048 threads in a block",
        ),
        (
            "[arch.90]",
            "[arch.sm_90]",
            6,
            "`arch.sm_90` is not an architecture number",
        ),
        (
            "[arch.90a]",
            "[arch.90f]",
            8,
            "`arch.90f` is not an architecture number",
        ),
        (
            "spills = \"measured\"",
            "spils = \"measured\"",
            15,
            "unknown field `spils`",
        ),
    ];
    for (old, new, line, part) in cases {
        let kernels = Kernels::complete();
        kernels.replace(LAUNCH, old, new);
        let errors = kernels.load().expect_err(new);
        let first = errors.0.first().unwrap();
        assert_eq!(first.line, Some(line), "{new}: {errors}");
        assert!(first.file.ends_with(LAUNCH), "{new}: {errors}");
        assert_eq!(
            first.kernel.as_deref(),
            Some("demo_scale"),
            "{new}: {errors}"
        );
        assert!(first.to_string().contains(part), "{new}: {errors}");
    }
}

#[test]
fn values_of_let_are_computed_once_and_replaced_by_name() {
    let kernels = Kernels::complete();
    let lets = "let = { all = \"n * rows\", form = \"n <= 8 ? 0 : 1\" }\nshared = \"form * all\"";
    kernels.replace(LAUNCH, "shared = \"n * 4\"", lets);
    kernels.replace(
        LAUNCH,
        "tile = { warps = 16 }",
        "let.form = 2\ncluster = \"form\"",
    );
    let catalog = kernels.load().unwrap();
    let lets = |rule: usize| {
        let lets = &catalog.kernels[0].launch[rule].lets;
        Vec::from_iter(
            lets.iter()
                .map(|(name, value)| (name.as_str(), value.text.as_str())),
        )
    };
    assert_eq!(lets(0), [("all", "n * rows"), ("form", "n <= 8 ? 0 : 1")]);
    assert_eq!(lets(1), [("all", "n * rows"), ("form", "2")]);
    let table = zinc_catalog::codegen::rust_table(&catalog);
    for line in [
        "let let_all = mul(word(w, 0)?, word(w, 3)?)?;",
        "let let_form = if word(w, 0)? <= 8 { 0 } else { 1 };",
        "let let_form = 2;",
        "cluster: let_form, shared_bytes: mul(let_form, let_all)? })",
        "lets: &[(\"all\", \"n * rows\"), (\"form\", \"2\")],",
    ] {
        assert!(table.contains(line), "{line}: {table}");
    }
    // Values that a rule does not use are not computed.
    kernels.replace(LAUNCH, "shared = \"form * all\"", "shared = \"form\"");
    let table = zinc_catalog::codegen::rust_table(&kernels.load().unwrap());
    assert!(!table.contains("let_all"), "{table}");
}

#[test]
fn buffers_that_are_read_early_are_indices_in_binding_order() {
    let kernels = Kernels::complete();
    overlapping(&kernels, "early = [\"x\"]");
    let catalog = kernels.load().unwrap();
    let kernel = catalog.kernel("demo_scale").unwrap();
    assert!(kernel.overlap);
    assert_eq!(kernel.early, [0]);
    assert!(zinc_catalog::codegen::rust_table(&catalog).contains("early: &[0],"));
}

#[test]
fn mistakes_in_early_name_its_line() {
    for (early, part) in [
        ("early = [\"z\"]", "early: `z` is no buffer of the kernel"),
        ("early = [\"y\"]", "early: `y` is written by the kernel"),
        ("early = [\"x\", \"x\"]", "early: `x` is named twice"),
        ("early = \"x\"", "expected a sequence"),
    ] {
        let kernels = Kernels::complete();
        overlapping(&kernels, early);
        let error = kernels.error();
        assert!(
            error.starts_with(&format!("{LAUNCH}:6: ")),
            "{early}: {error}"
        );
        assert!(error.contains(part), "{early}: {error}");
    }
    let kernels = Kernels::complete();
    kernels.replace(LAUNCH, "shared = \"n * 4\"", "early = [\"x\"]");
    let error = kernels.error();
    assert!(error.starts_with(&format!("{LAUNCH}:5: ")), "{error}");
    assert!(error.contains("with `overlap = true`"), "{error}");
    let kernels = Kernels::complete();
    kernels.replace(LAUNCH, "tile = { warps = 16 }", "early = [\"x\"]");
    assert!(kernels.error().contains("unknown field `early`"));
}

/// Lets the implementation overlap, with one more line in its launch file: line 6.
fn overlapping(kernels: &Kernels, line: &str) {
    let shared = "shared = \"n * 4\"";
    kernels.replace(LAUNCH, shared, &format!("overlap = true\n{line}"));
    let include = "#include \"zinc/demo_scale.h\"";
    let wait = format!("{include}\nvoid f() {{ zinc::wait_for_previous(); }}");
    kernels.replace(CU, include, &wait);
}

#[test]
fn overlap_and_the_wait_go_together() {
    let part = "demo/demo_scale.launch.toml: kernel demo_scale: `overlap = true` and a call of";
    let kernels = Kernels::complete();
    kernels.replace(LAUNCH, "shared = \"n * 4\"", "overlap = true");
    assert!(kernels.error().starts_with(part), "{}", kernels.error());
    let kernels = Kernels::complete();
    overlapping(&kernels, "early = []");
    kernels.replace(LAUNCH, "overlap = true\nearly = []\n", "");
    assert!(kernels.error().starts_with(part), "{}", kernels.error());
}

#[test]
fn code_and_launch_file_miss_each_other() {
    let kernels = Kernels::complete();
    kernels.remove(LAUNCH);
    assert_eq!(
        kernels.error(),
        "demo/demo_scale.cu: kernel demo_scale: has no launch file: demo/demo_scale.launch.toml does not exist"
    );
    let kernels = Kernels::complete();
    kernels.write("demo/other.launch.toml", "");
    assert_eq!(
        kernels.error(),
        "demo/other.launch.toml: has no code: demo/other.cu does not exist"
    );
}

#[test]
fn code_is_watched_by_nobody_who_only_needs_the_rules() {
    let kernels = Kernels::complete();
    let watched = |kernels: &Kernels| {
        let catalog = Catalog::load(kernels.root(), Tolerance::Partial).unwrap();
        Vec::from_iter(
            catalog
                .watched()
                .iter()
                .map(|path| path.display().to_string()),
        )
    };
    assert_eq!(watched(&kernels), ["catalog", TOML, LAUNCH]);
    // Until there is an implementation, one may appear.
    kernels.remove(CU);
    kernels.remove(LAUNCH);
    assert_eq!(watched(&kernels), ["catalog", TOML, "demo"]);
}

#[test]
fn entry_without_implementation_names_the_missing_file() {
    let kernels = Kernels::complete();
    kernels.remove(CU);
    assert_eq!(
        kernels.error(),
        "catalog/demo.toml:1: kernel demo_scale: has no implementation: demo/demo_scale.cu does not exist (add it, or say why not in catalog/pending.toml)"
    );
}

#[test]
fn implementation_without_entry_is_named_with_a_suggestion() {
    let kernels = Kernels::complete();
    kernels.write("demo/demo_scales.cu", "");
    assert_eq!(
        kernels.error(),
        "demo/demo_scales.cu: has no catalog entry: no kernel is named `demo_scales`, did you mean `demo_scale`?"
    );
}

#[test]
fn implementation_in_the_wrong_directory_is_told_where_it_belongs() {
    let kernels = Kernels::complete();
    kernels.write("other/demo_scale.cu", "");
    assert_eq!(
        kernels.error(),
        "other/demo_scale.cu: kernel demo_scale: belongs at demo/demo_scale.cu"
    );
}

#[test]
fn directory_key_moves_the_implementations() {
    let kernels = Kernels::complete();
    kernels.write(TOML, &format!("directory = \"elsewhere\"\n{CONTRACT}"));
    let errors = kernels.load().unwrap_err();
    let wanted = kernels.root().join("elsewhere/demo_scale.cu");
    assert_eq!(
        errors.0[0].problem,
        Problem::Misplaced {
            wanted: wanted.clone()
        }
    );
    assert_eq!(errors.0[1].problem, Problem::MissingCu { wanted });
}

#[test]
fn pending_kernel_with_an_implementation_is_an_error() {
    let kernels = Kernels::complete();
    kernels.write(
        "catalog/pending.toml",
        "# why\n[pending]\ndemo_scale = \"later\"\n",
    );
    assert_eq!(
        kernels.error(),
        "catalog/pending.toml:3: kernel demo_scale: is listed as pending, but demo/demo_scale.cu exists"
    );
}

#[test]
fn pending_kernel_without_an_implementation_keeps_its_reason() {
    let kernels = Kernels::complete();
    kernels.remove(CU);
    kernels.write(
        "catalog/pending.toml",
        "[pending]\ndemo_scale = \"later\"\n",
    );
    let catalog = kernels.load().unwrap();
    assert_eq!(catalog.kernels[0].pending.as_deref(), Some("later"));
    assert_eq!(catalog.implemented().count(), 0);
}

#[test]
fn pending_kernel_without_entry_is_an_error() {
    let kernels = Kernels::complete();
    kernels.write("catalog/pending.toml", "[pending]\ndemo_scal = \"later\"\n");
    assert!(
        kernels
            .error()
            .starts_with("catalog/pending.toml:2: kernel demo_scal: is listed as pending, but no")
    );
}

#[test]
fn mistakes_in_several_places_are_reported_together() {
    let kernels = Kernels::complete();
    kernels.replace(LAUNCH, "shared = \"n * 4\"", "shared = \"m * o\"");
    kernels.write("demo/unknown.cu", "");
    let errors = kernels.load().unwrap_err();
    assert_eq!(errors.0.len(), 3, "{errors}");
}

#[test]
fn tolerant_load_warns_about_implementations_and_refuses_broken_contracts() {
    let kernels = Kernels::complete();
    kernels.replace(LAUNCH, "shared = \"n * 4\"", "shared = \"m\"");
    let catalog = Catalog::load(kernels.root(), Tolerance::Partial).unwrap();
    assert!(matches!(
        catalog.warnings[0].problem,
        Problem::UnknownName { .. }
    ));
    assert!(catalog.kernels[0].pending.is_some());

    kernels.replace(TOML, "derived = false", "edges = 1");
    assert!(Catalog::load(kernels.root(), Tolerance::Partial).is_err());
}

#[test]
fn missing_catalog_is_an_error_and_not_an_empty_list() {
    let error = Catalog::load(std::path::Path::new("/nonexistent"), Tolerance::Strict).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
}
