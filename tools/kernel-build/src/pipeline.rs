//! The build: from the catalog and the device code to one archive, compiling only what no earlier build compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cubin_format::{
    Arch, ArchiveBuilder, ArchiveError, Digest, FatbinError, ImageKind, Metadata, NewKernel,
    NewTarget, Payload, Resources, Target, archive, fatbin,
};
use rayon::prelude::*;
use zinc_catalog::{Catalog, Kernel, codegen};

use crate::cache::{Cache, Compiled, write_if_changed};
use crate::check::{self, CheckError};
use crate::compile::{CompileError, Input, Paths, compile};
use crate::environment::Environment;
use crate::limits;
use crate::prebuilt::{self, PrebuiltError};
use crate::sources::{ArchBounds, SourceError, Sources};
use crate::targets::{Request, TargetError, front_end};
use crate::toolkit::{Toolkit, ToolkitError};

/// Part of every cache key: another number makes every kernel compile again.
const REVISION: &str = "2";

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The catalog has no kernel with an implementation.
    #[error("{}: no kernel has an implementation", catalog.display())]
    EmptyTable {
        /// The catalog's directory.
        catalog: PathBuf,
    },
    /// The sources cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// nvcc cannot be used.
    #[error(transparent)]
    Toolkit(#[from] ToolkitError),
    /// `ZINC_CUDA_ARCHS` cannot be met.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A prebuilt archive was asked for and cannot be used.
    #[error(transparent)]
    Prebuilt(#[from] PrebuiltError),
    /// There is neither nvcc nor an archive.
    #[error(
        "{toolkit}\nand no prebuilt archive can take its place: {}",
        if refused.is_empty() { "there is no cubins/*.zca".to_owned() } else { lines(refused) }
    )]
    NothingToUse {
        /// Where nvcc was looked for.
        toolkit: ToolkitError,
        /// Why each archive in `cubins/` is refused.
        refused: Vec<PrebuiltError>,
    },
    /// Kernels that nvcc refuses, or whose result breaks the contract.
    #[error("{}", lines(failures))]
    Kernels {
        /// What was found, by kernel and target.
        failures: Vec<UnitError>,
    },
    /// The archive cannot be made.
    #[error("cannot make the archive of the kernels")]
    Archive(#[from] ArchiveError),
    /// A fatbin cannot be made.
    #[error("cannot make a fatbin of the kernels")]
    Fatbin(#[from] FatbinError),
    /// An output cannot be written.
    #[error("cannot write to {}", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What is wrong with one kernel for one target.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// nvcc gave nothing.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// What it gave breaks the contract.
    #[error(transparent)]
    Check(#[from] CheckError),
}

fn lines<E: std::error::Error>(errors: &[E]) -> String {
    errors
        .iter()
        .map(|error| chain(error))
        .collect::<Vec<_>>()
        .join("\n")
}

/// An error and its sources on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// What to build, and where.
#[derive(Debug, Clone)]
pub struct Build<'a> {
    /// The project's root, which holds kernels-cu and cubins.
    pub root: &'a Path,
    /// The validated catalog of kernels-cu.
    pub catalog: &'a Catalog,
    /// The directory for all outputs.
    pub out: &'a Path,
    /// The environment that decides tools and targets.
    pub environment: &'a Environment,
    /// Called now and then with the number of finished (kernel, target) pairs and of all.
    pub progress: fn(usize, usize),
}

/// How one image came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// nvcc ran.
    Compiled,
    /// From the cache, or unchanged since the last build in this output directory.
    Cached,
}

/// One kernel for one target.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Unit {
    /// The kernel.
    pub kernel: String,
    /// The target.
    pub target: Target,
    /// How the image came to be.
    pub origin: Origin,
    /// How long that took, milliseconds.
    pub milliseconds: u64,
    /// What the image needs on the device.
    pub resources: Resources,
    /// What nvcc warned of; empty if nothing.
    pub warnings: String,
}

/// What a build did.
#[derive(Debug, Clone)]
pub struct Report {
    /// The archive.
    pub archive: PathBuf,
    /// The hash of the sources.
    pub source_hash: Digest,
    /// One line: what the archive comes from.
    pub summary: String,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// The nvcc or the prebuilt archive: when it changes, a build is due.
    pub tool: PathBuf,
    /// Every kernel and target; empty where the archive is prebuilt.
    pub units: Vec<Unit>,
}

/// What a finished build leaves for the next one in the same directory.
#[derive(serde::Serialize, serde::Deserialize)]
struct State {
    /// The hash of everything that decides the outputs.
    inputs: Digest,
    /// The hash of the archive.
    archive: Digest,
    units: Vec<Unit>,
}

/// An image, and its form in the archive.
struct Made {
    image: Vec<u8>,
    payload: Payload,
}

/// One kernel for one target, to be looked up or compiled.
struct Job<'a> {
    kernel: &'a Kernel,
    cu: String,
    target: Target,
    /// Whose PTX it is assembled from.
    front_end: Arch,
    key: Digest,
}

/// Jobs of one kernel that have the same front end's PTX in common, with their numbers; that text itself comes first where
/// it is one of them.
struct Group<'a> {
    jobs: Vec<(usize, &'a Job<'a>)>,
}

impl Group<'_> {
    /// Whether the text is made apart from what is assembled from it.
    fn shares(&self) -> bool {
        self.jobs.len() > 1
            || self
                .jobs
                .iter()
                .any(|(_, job)| job.front_end != job.target.arch)
    }
}

/// The jobs, those of one front end together.
fn groups<'a>(jobs: &'a [Job<'a>]) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<(&str, Arch), Vec<(usize, &Job<'_>)>> = BTreeMap::new();
    for (number, job) in jobs.iter().enumerate() {
        let group = groups.entry((&job.kernel.name, job.front_end));
        group.or_default().push((number, job));
    }
    let sorted = |mut jobs: Vec<(usize, &'a Job<'a>)>| {
        jobs.sort_by_key(|(_, job)| job.target.kind != ImageKind::Ptx);
        Group { jobs }
    };
    groups.into_values().map(sorted).collect()
}

impl Build<'_> {
    /// Makes the archive: from `ZINC_CUBINS` if that is set, else with nvcc, else from an archive in `cubins/`.
    ///
    /// Outputs, all below `out`: `include/zinc/<kernel>.h`, `images/<target>/<kernel>.{cubin,ptx}`, `images/fatbin/<kernel>.fatbin`,
    /// `kernels.zca`, and `build.log` with one line per kernel and target.
    ///
    /// # Errors
    /// Each says what to do about it: see [`BuildError`].
    pub fn run(&self) -> Result<Report, BuildError> {
        if self.catalog.implemented().next().is_none() {
            return Err(BuildError::EmptyTable {
                catalog: self.catalog.root.clone(),
            });
        }
        let generated = self.generate_headers()?;
        let sources = Sources::read(self.root, &generated)?;
        let request = Request::of(self.environment)?;
        let source_hash = sources.hash();
        if let Some(path) = self.environment.get("ZINC_CUBINS") {
            return self.take(&self.root.join(path), source_hash, &request);
        }
        match Toolkit::find(self.environment) {
            Ok(toolkit) => self.compile_all(&toolkit, &request, &sources),
            Err(toolkit @ ToolkitError::Missing { .. }) => {
                let mut refused = Vec::new();
                for path in prebuilt::dropped(self.root) {
                    match self.take(&path, source_hash, &request) {
                        Err(BuildError::Prebuilt(error)) => refused.push(error),
                        taken => return taken,
                    }
                }
                Err(BuildError::NothingToUse { toolkit, refused })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
        write_if_changed(path, bytes).map_err(|source| BuildError::Write {
            path: path.to_path_buf(),
            source,
        })
    }

    /// Writes the header of every kernel, and returns them by the name that an `#include` uses.
    fn generate_headers(&self) -> Result<BTreeMap<String, String>, BuildError> {
        let header = |kernel: &Kernel| {
            (
                format!("zinc/{}.h", kernel.name),
                codegen::device_header(kernel),
            )
        };
        let generated: BTreeMap<_, _> = self.catalog.implemented().map(header).collect();
        for (name, text) in &generated {
            self.write(&self.out.join("include").join(name), text.as_bytes())?;
        }
        self.keep_only(&self.out.join("include"), |name| {
            generated.contains_key(name)
        })?;
        Ok(generated)
    }

    /// Removes the files below `folder` that no kernel of this build has; `wanted` sees paths relative to `folder`.
    fn keep_only(&self, folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<(), BuildError> {
        let error = |path: &Path, source| BuildError::Write {
            path: path.to_path_buf(),
            source,
        };
        for inner in fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
        {
            for path in fs::read_dir(&inner)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
            {
                let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy();
                if !wanted(&name) {
                    fs::remove_file(&path).map_err(|source| error(&path, source))?;
                }
            }
        }
        Ok(())
    }

    /// Uses a prebuilt archive.
    fn take(
        &self,
        path: &Path,
        source_hash: Digest,
        request: &Request,
    ) -> Result<Report, BuildError> {
        let prebuilt = prebuilt::open(path, source_hash, self.catalog, request)?;
        let archive = self.out.join("kernels.zca");
        self.write(&archive, prebuilt.bytes())?;
        let summary = format!(
            "prebuilt {} (compiled with {}), {} kernels",
            path.display(),
            prebuilt.metadata().compiler,
            prebuilt.kernels().len()
        );
        Ok(Report {
            archive,
            source_hash,
            summary,
            warnings: Vec::new(),
            tool: path.to_path_buf(),
            units: Vec::new(),
        })
    }

    fn compile_all(
        &self,
        toolkit: &Toolkit,
        request: &Request,
        sources: &Sources,
    ) -> Result<Report, BuildError> {
        let targets = request.targets(toolkit)?;
        let numbers = self.catalog.implemented().flat_map(Kernel::specific_archs);
        let (specific, lacking) = targets.specific(numbers, toolkit);
        let jobs = self.jobs(toolkit, &targets.targets, &specific, sources)?;
        let source_hash = sources.hash();
        let archive_path = self.out.join("kernels.zca");
        let state_path = self.out.join("state.json");

        let inputs = self.inputs(toolkit, &jobs, source_hash);
        let units = match self.unchanged(&state_path, &archive_path, inputs) {
            Some(units) => units,
            None => {
                let (units, made) = self.obtain_all(toolkit, &jobs)?;
                let archive = self.write_outputs(toolkit, &jobs, &units, made, source_hash)?;
                self.write(&archive_path, &archive)?;
                self.write_log(toolkit, &units)?;
                let state = State {
                    inputs,
                    archive: Digest::of(&archive),
                    units,
                };
                let text = serde_json::to_vec(&state).map_err(io::Error::from);
                let text = text.map_err(|source| BuildError::Write {
                    path: state_path.clone(),
                    source,
                })?;
                self.write(&state_path, &text)?;
                state.units
            }
        };

        let all: BTreeSet<Target> = jobs.iter().map(|job| job.target).collect();
        let names = all
            .iter()
            .map(Target::to_string)
            .collect::<Vec<_>>()
            .join(" ");
        let skipped = targets.skipped.iter().map(|arch| {
            format!("{toolkit} cannot compile for sm_{arch} of the default list: left out")
        });
        let lacking = lacking.iter().map(|target| {
            format!("{toolkit} cannot compile for {target}: left out, so that its GPUs run more general code")
        });
        let spoken = units.iter().filter(|unit| !unit.warnings.is_empty());
        let spoken = spoken.map(|unit| {
            format!(
                "kernel {} for {}: {}",
                unit.kernel,
                unit.target,
                unit.warnings.trim_end()
            )
        });
        let warnings = skipped.chain(lacking).chain(spoken).collect();
        let summary = format!("{toolkit}; {names}; host compiler {}", toolkit.host);
        Ok(Report {
            archive: archive_path,
            source_hash,
            summary,
            warnings,
            tool: toolkit.nvcc.clone(),
            units,
        })
    }

    /// Every kernel for `targets` and for those of `specific` that it has code for, sorted, with its cache key.
    fn jobs(
        &self,
        toolkit: &Toolkit,
        targets: &[Target],
        specific: &BTreeSet<Target>,
        sources: &Sources,
    ) -> Result<Vec<Job<'_>>, SourceError> {
        let identity = toolkit.identity();
        let mut jobs = Vec::new();
        let mut arch_bounds = ArchBounds::new();
        for kernel in self.catalog.implemented() {
            let cu = kernel
                .cu
                .to_str()
                .ok_or_else(|| SourceError::Name {
                    path: kernel.cu.clone(),
                })?
                .to_owned();
            let closure = sources.closure_hash(&cu)?;
            let bounds = sources.arch_bounds(&cu, &mut arch_bounds)?;
            let own = |target: &&Target| {
                kernel
                    .specific_archs()
                    .any(|number| number == target.arch.number())
            };
            let own = specific.iter().filter(own);
            let all: BTreeSet<Target> = targets.iter().chain(own).copied().collect();
            for target in all {
                let front_end = front_end(target, &bounds, toolkit);
                let mut text = format!(
                    "{REVISION}\n{identity}\n{}\n{cu}\n{target}\n{closure}",
                    kernel.name
                );
                if front_end != target.arch {
                    text += &format!("\n{}", front_end.ptx());
                }
                jobs.push(Job {
                    kernel,
                    cu: cu.clone(),
                    target,
                    front_end,
                    key: Digest::of(text.as_bytes()),
                });
            }
        }
        Ok(jobs)
    }

    /// The hash of everything that decides the outputs: all keys, and what the archive says beside the images.
    fn inputs(&self, toolkit: &Toolkit, jobs: &[Job<'_>], source_hash: Digest) -> Digest {
        let mut text = format!(
            "{source_hash}\n{}\n{}\n",
            compiler(toolkit),
            archive::VERSION
        );
        jobs.iter()
            .for_each(|job| text += &format!("{}\n", job.key));
        Digest::of(text.as_bytes())
    }

    /// The units of the last build in this directory, if it had the same inputs and its archive is still there.
    fn unchanged(&self, state: &Path, archive: &Path, inputs: Digest) -> Option<Vec<Unit>> {
        let state: State = serde_json::from_slice(&fs::read(state).ok()?).ok()?;
        let whole = state.inputs == inputs && Digest::of(&fs::read(archive).ok()?) == state.archive;
        let outputs = state
            .units
            .iter()
            .all(|unit| self.image_path(&unit.kernel, unit.target).is_file());
        (whole && outputs).then(|| {
            let cached = |unit| Unit {
                origin: Origin::Cached,
                milliseconds: 0,
                ..unit
            };
            state.units.into_iter().map(cached).collect()
        })
    }

    /// Compiles or looks up everything, in parallel. The first kernel that nvcc refuses stops the build, because others are
    /// likely to fail alike; broken contracts are collected.
    fn obtain_all(
        &self,
        toolkit: &Toolkit,
        jobs: &[Job<'_>],
    ) -> Result<(Vec<Unit>, Vec<Made>), BuildError> {
        let write = |path: &Path, source| BuildError::Write {
            path: path.to_path_buf(),
            source,
        };
        let cache_folder = self
            .environment
            .cache()
            .unwrap_or_else(|| self.out.join("cache"))
            .join("kernels");
        let cache = Cache::new(cache_folder.clone());
        fs::create_dir_all(self.out).map_err(|source| write(self.out, source))?;
        let scratch = tempfile::tempdir_in(self.out).map_err(|source| write(self.out, source))?;
        let generated = std::path::absolute(self.out.join("include"))
            .map_err(|source| write(self.out, source))?;
        let scratch_path =
            std::path::absolute(scratch.path()).map_err(|source| write(self.out, source))?;
        let paths = Paths {
            root: self.root,
            generated: &generated,
            scratch: &scratch_path,
        };

        let (failed, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        let started = Instant::now();
        let spoke = AtomicUsize::new(0);
        let obtain = |group: &Group<'_>| {
            let mut ptx = None;
            let mut results = Vec::new();
            for (number, job) in &group.jobs {
                if failed.load(Ordering::Relaxed) {
                    break;
                }
                let result = obtain(
                    toolkit,
                    &cache,
                    paths,
                    job,
                    group.shares().then_some(&mut ptx),
                );
                if matches!(result, Err(UnitError::Compile(_))) {
                    failed.store(true, Ordering::Relaxed);
                }
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                let interval =
                    (started.elapsed().as_millis() / PROGRESS_INTERVAL.as_millis()) as usize;
                if spoke.fetch_max(interval, Ordering::Relaxed) < interval {
                    (self.progress)(done, jobs.len());
                }
                results.push((*number, result));
            }
            results
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(limits::jobs(self.environment))
            .build();
        let pool = pool.map_err(|error| write(self.out, io::Error::other(error)))?;
        let groups = groups(jobs);
        let mut results: Vec<_> = pool.install(|| {
            let results = groups.par_iter().with_max_len(1).map(obtain);
            results.flatten_iter().collect()
        });
        results.sort_unstable_by_key(|(number, _)| *number);

        let (mut units, mut images, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for (_, result) in results {
            match result {
                Ok((unit, image)) => {
                    units.push(unit);
                    images.push(image);
                }
                Err(error) => failures.push(error),
            }
        }
        if !failures.is_empty() {
            return Err(BuildError::Kernels { failures });
        }
        let made = pool.install(|| compress(&cache, jobs, images))?;
        if units.iter().any(|unit| unit.origin == Origin::Compiled) {
            // A cache that cannot be trimmed, or not even be written, costs time and nothing else.
            let _ = cache.trim();
        }
        Ok((units, made))
    }

    fn image_path(&self, kernel: &str, target: Target) -> PathBuf {
        self.out.join("images").join(image_name(kernel, target))
    }

    /// Writes images and fatbins, and returns the archive.
    fn write_outputs(
        &self,
        toolkit: &Toolkit,
        jobs: &[Job<'_>],
        units: &[Unit],
        made: Vec<Made>,
        source_hash: Digest,
    ) -> Result<Vec<u8>, BuildError> {
        let mut builder = ArchiveBuilder::new(Metadata {
            source_hash,
            compiler: compiler(toolkit),
        });
        let mut rows = jobs.iter().zip(units).zip(made).peekable();
        while let Some(((job, _), _)) = rows.peek() {
            let kernel = job.kernel;
            let mut new = NewKernel {
                name: kernel.name.clone(),
                family: kernel.family.clone(),
                summary: kernel.summary.clone(),
                entry: kernel.name.clone(),
                extended: kernel.extended,
                contract_hash: check::contract_hash(kernel),
                targets: Vec::new(),
            };
            let mut images = Vec::new();
            while let Some(((_, unit), Made { image, payload })) =
                rows.next_if(|((job, _), _)| job.kernel.name == kernel.name)
            {
                self.write(&self.image_path(&unit.kernel, unit.target), &image)?;
                images.push((unit.target, image));
                let resources = unit.resources;
                new.targets.push(NewTarget {
                    target: unit.target,
                    resources,
                    compiler: String::new(),
                    payload,
                });
            }
            let parts = images.iter().map(|(target, bytes)| fatbin::Image {
                target: *target,
                bytes,
            });
            let parts: Vec<_> = parts.collect();
            let path = self.out.join("images").join(fatbin_name(&kernel.name));
            self.write(&path, &fatbin::write(&parts)?)?;
            builder.push(new);
        }
        let images = units
            .iter()
            .map(|unit| image_name(&unit.kernel, unit.target));
        let fatbins = units.iter().map(|unit| fatbin_name(&unit.kernel));
        let names: BTreeSet<String> = images.chain(fatbins).collect();
        self.keep_only(&self.out.join("images"), |name| names.contains(name))?;
        Ok(builder.finish()?)
    }

    fn write_log(&self, toolkit: &Toolkit, units: &[Unit]) -> Result<(), BuildError> {
        let mut text = format!("{toolkit}; host compiler {}\n", toolkit.host);
        for unit in units {
            let Resources {
                registers,
                shared_bytes,
                local_bytes,
                ..
            } = unit.resources;
            text += &format!(
                "{} {} {:?} {} ms, {registers} registers, {shared_bytes} B shared, {local_bytes} B local, {} B spilled\n",
                unit.kernel,
                unit.target,
                unit.origin,
                unit.milliseconds,
                unit.resources.spill_bytes()
            );
        }
        self.write(&self.out.join("build.log"), text.as_bytes())
    }
}

/// Compresses images, with another one before them as their base where that is worth it: machine code with the one for the
/// architecture before, and every image with that of the kernel whose code for the same target is nearest in size, which is
/// how kernels show that they are made of the same templates.
fn compress(
    cache: &Cache,
    jobs: &[Job<'_>],
    images: Vec<Vec<u8>>,
) -> Result<Vec<Made>, ArchiveError> {
    let code = |job: &Job<'_>| job.target.kind == ImageKind::Sass;
    let size = |number: usize| images[number].len();
    let payloads: Vec<Payload> = jobs
        .par_iter()
        .with_max_len(1)
        .enumerate()
        .map(|(number, job)| {
            let arch_before = (0..number).rev().find(|other| {
                jobs[*other].kernel.name == job.kernel.name && code(&jobs[*other]) && code(job)
            });
            let near = |other: &usize| size(*other).abs_diff(size(number)) * 32 <= size(number);
            let sibling = (0..number)
                .filter(|other| {
                    jobs[*other].target == job.target && jobs[*other].kernel.name != job.kernel.name
                })
                .filter(near)
                .min_by_key(|other| size(*other).abs_diff(size(number)));
            let bases = [arch_before, sibling].into_iter().flatten();
            let bases = Vec::from_iter(bases.map(|base| images[base].as_slice()));
            cache.payload(&images[number], &bases)
        })
        .collect::<Result<_, _>>()?;
    let made = images.into_iter().zip(payloads);
    Ok(made
        .map(|(image, payload)| Made { image, payload })
        .collect())
}

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// What the archive says of its compiler.
fn compiler(toolkit: &Toolkit) -> String {
    format!("nvcc {} ({})", toolkit.version, toolkit.build)
}

fn fatbin_name(kernel: &str) -> String {
    format!("fatbin/{kernel}.fatbin")
}

fn image_name(kernel: &str, target: Target) -> String {
    let extension = match target.kind {
        ImageKind::Sass => "cubin",
        ImageKind::Ptx => "ptx",
    };
    format!("{target}/{kernel}.{extension}")
}

/// One image from the cache or from nvcc, checked against the contract. Where it shares its front end's text with others,
/// that is in `shared`, or is put there.
fn obtain(
    toolkit: &Toolkit,
    cache: &Cache,
    paths: Paths<'_>,
    job: &Job<'_>,
    mut shared: Option<&mut Option<Compiled>>,
) -> Result<(Unit, Vec<u8>), UnitError> {
    let started = Instant::now();
    let kernel = &job.kernel.name;
    let is_front_end = job.target == job.front_end.ptx();
    let (compiled, resources, origin) = match cache.get(job.key) {
        Some(compiled) => {
            let resources = check::check(job.kernel, job.target, &compiled)?;
            (compiled, resources, Origin::Cached)
        }
        None => {
            let source = |target| compile(toolkit, paths, kernel, Input::Source(&job.cu), target);
            let compiled = match shared.as_deref_mut() {
                Some(shared) if !is_front_end => {
                    let front_end = match shared.take() {
                        Some(front_end) => front_end,
                        None => source(job.front_end.ptx())?,
                    };
                    let front_end = shared.insert(front_end);
                    let text = Input::Ptx(&front_end.image);
                    let assembled = compile(toolkit, paths, kernel, text, job.target)?;
                    let warnings = front_end.warnings.clone() + &assembled.warnings;
                    Compiled {
                        warnings,
                        ..assembled
                    }
                }
                _ => source(job.target)?,
            };
            let resources = check::check(job.kernel, job.target, &compiled)?;
            // Stored only once it is known to be good. A cache that cannot be written costs time and nothing else.
            let _ = cache.put(job.key, &compiled);
            (compiled, resources, Origin::Compiled)
        }
    };
    let milliseconds = started.elapsed().as_millis() as u64;
    if let (Some(shared), true) = (shared, is_front_end) {
        *shared = Some(compiled.clone());
    }
    let Compiled {
        image, warnings, ..
    } = compiled;
    Ok((
        Unit {
            kernel: kernel.clone(),
            target: job.target,
            origin,
            milliseconds,
            resources,
            warnings,
        },
        image,
    ))
}
