//! `zinc-cubin doctor`: what there is to run on, and what would be loaded there.

use std::collections::BTreeMap;

use serde::Serialize;
use zinc_runtime::{DeviceInfo, DeviceSelector, Driver, DriverError};

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::output;

#[derive(Serialize)]
struct Report {
    version: &'static str,
    archive: ArchiveReport,
    driver: DriverReport,
    devices: Vec<DeviceReport>,
    emulator_kernels: usize,
}

#[derive(Serialize)]
struct ArchiveReport {
    name: String,
    bytes: usize,
    kernels: usize,
    compiler: String,
    source_hash: String,
    /// How many kernels have an image for each target.
    targets: BTreeMap<String, usize>,
}

#[derive(Serialize)]
struct DriverReport {
    usable: bool,
    path: Option<String>,
    cuda_version: Option<String>,
    minimum_cuda_version: String,
    error: Option<String>,
    tried: Vec<Tried>,
}

#[derive(Serialize)]
struct Tried {
    place: String,
    outcome: String,
}

#[derive(Serialize)]
struct DeviceReport {
    ordinal: u32,
    name: String,
    capability: String,
    pci_bus_id: String,
    uuid: String,
    memory_bytes: u64,
    sm_count: u32,
    l2_bytes: u32,
    /// Whether `--device auto` takes it.
    chosen: bool,
    /// How many kernels would load each image here.
    loads: BTreeMap<String, usize>,
    /// Kernels without an image for this device.
    missing: Vec<String>,
}

/// Prints the report; without a GPU that every kernel has an image for, the exit code is that of no device, after the
/// report.
pub fn run(context: &Context) -> Outcome {
    let (driver, devices, error) = match Driver::load() {
        Ok(driver) => match driver.devices() {
            Ok(devices) => (found(&driver), devices, None),
            Err(error) => (found(&driver), Vec::new(), Some(anyhow::Error::new(error))),
        },
        Err(error) => (missing(&error), Vec::new(), Some(anyhow::Error::new(error))),
    };
    let chosen = zinc_runtime::choose(&devices, &DeviceSelector::Auto);
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        archive: archive(context),
        driver,
        devices: devices
            .iter()
            .map(|device| {
                let chosen = chosen
                    .as_ref()
                    .is_ok_and(|best| best.ordinal == device.ordinal);
                describe(context, device, chosen)
            })
            .collect(),
        emulator_kernels: zinc_emulator::kernels().len(),
    };
    if context.json {
        output::json(&report)?;
    } else {
        output::text(&human(&report))?;
    }
    match (error, chosen) {
        (Some(error), _) => Err(Failure::NoDevice(error)),
        (None, Err(error)) => Err(Failure::NoDevice(error.into())),
        (None, Ok(best)) => context
            .archive
            .kernels()
            .iter()
            .try_for_each(|kernel| kernel.choose(best.capability).map(drop))
            .map_err(|error| Failure::NoDevice(error.into())),
    }
}

fn archive(context: &Context) -> ArchiveReport {
    let mut targets = BTreeMap::new();
    for entry in context
        .archive
        .kernels()
        .iter()
        .flat_map(|kernel| &kernel.targets)
    {
        *targets.entry(entry.target.to_string()).or_default() += 1;
    }
    ArchiveReport {
        name: context.archive_name.clone(),
        bytes: context.archive.bytes().len(),
        kernels: context.archive.kernels().len(),
        compiler: context.archive.metadata().compiler.clone(),
        source_hash: context.archive.metadata().source_hash.to_string(),
        targets,
    }
}

fn found(driver: &Driver) -> DriverReport {
    DriverReport {
        usable: true,
        path: Some(driver.path().display().to_string()),
        cuda_version: Some(driver.version().to_string()),
        minimum_cuda_version: zinc_runtime::DriverVersion::MINIMUM.to_string(),
        error: None,
        tried: Vec::new(),
    }
}

fn missing(error: &DriverError) -> DriverReport {
    let (path, version, search) = match error {
        DriverError::NotFound { search } => (None, None, Some(search)),
        DriverError::NotStarted { path, search, .. } => (Some(path), None, Some(search)),
        DriverError::TooOld { path, found, .. } => (Some(path), Some(*found), None),
        DriverError::MissingFunction { path, .. } => (Some(path), None, None),
        _ => (None, None, None),
    };
    DriverReport {
        usable: false,
        path: path.map(|path| path.display().to_string()),
        cuda_version: version.map(|version| version.to_string()),
        minimum_cuda_version: zinc_runtime::DriverVersion::MINIMUM.to_string(),
        error: Some(error.to_string()),
        tried: search
            .map(|search| {
                search
                    .attempts
                    .iter()
                    .map(|attempt| Tried {
                        place: attempt.place.display().to_string(),
                        outcome: attempt.outcome.to_string(),
                    })
                    .collect()
            })
            .unwrap_or_default(),
    }
}

fn describe(context: &Context, device: &DeviceInfo, chosen: bool) -> DeviceReport {
    let mut loads = BTreeMap::new();
    let mut missing = Vec::new();
    for kernel in context.archive.kernels() {
        match kernel.choose(device.capability) {
            Ok(entry) => *loads.entry(entry.target.to_string()).or_default() += 1,
            Err(_) => missing.push(kernel.name.clone()),
        }
    }
    DeviceReport {
        ordinal: device.ordinal,
        name: device.name.clone(),
        capability: device.capability.to_string(),
        pci_bus_id: device.pci_bus_id.clone(),
        uuid: device.uuid.to_string(),
        memory_bytes: device.memory_bytes,
        sm_count: device.sm_count,
        l2_bytes: device.l2_bytes,
        chosen,
        loads,
        missing,
    }
}

fn human(report: &Report) -> String {
    let archive = &report.archive;
    let mut text = format!(
        "archive   {}: {} kernels, {}, {}\n          {}\n",
        archive.name,
        archive.kernels,
        output::bytes(archive.bytes as u64),
        archive.compiler,
        counts(&archive.targets)
    );
    let driver = &report.driver;
    match (&driver.path, &driver.cuda_version) {
        (Some(path), Some(version)) if driver.usable => {
            text.push_str(&format!("driver    {path}, CUDA {version}\n"));
        }
        _ => text.push_str(&format!(
            "driver    none that can be used (CUDA {} or newer is needed)\n",
            driver.minimum_cuda_version
        )),
    }
    for tried in &driver.tried {
        text.push_str(&format!(
            "          tried {}: {}\n",
            tried.place, tried.outcome
        ));
    }
    for device in &report.devices {
        text.push_str(&format!(
            "device {}{} {}, capability {}, {} multiprocessors, {}, {}\n          loads {}\n",
            device.ordinal,
            if device.chosen { "*" } else { " " },
            device.name,
            device.capability,
            device.sm_count,
            output::bytes(device.memory_bytes),
            device.pci_bus_id,
            counts(&device.loads)
        ));
        if !device.missing.is_empty() {
            text.push_str(&format!(
                "          no image for {} kernels\n",
                device.missing.len()
            ));
        }
    }
    text.push_str(&format!("emulator  {} kernels\n", report.emulator_kernels));
    text
}

fn counts(targets: &BTreeMap<String, usize>) -> String {
    if targets.is_empty() {
        return "nothing".to_owned();
    }
    targets
        .iter()
        .map(|(target, kernels)| format!("{target}: {kernels}"))
        .collect::<Vec<_>>()
        .join(", ")
}
