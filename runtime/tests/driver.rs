//! The search for the driver and for a device, on fake drivers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{Fake, VADD, archive, vadd_archive};
use zinc_runtime::{
    CudaError, Device, DeviceError, DeviceSelector, Driver, DriverError, DriverVersion, Library,
    LibraryError, Lookup, Outcome,
};

fn places<const N: usize>(places: [&str; N]) -> Lookup {
    Lookup::places(places.map(PathBuf::from))
}

#[test]
fn no_driver_error_lists_every_place_and_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("libcuda.so.1");
    std::fs::write(&text, "not a library ".repeat(100)).unwrap();
    let missing = dir.path().join("nowhere/libcuda.so.1");
    let lookup = Lookup::places([
        missing.clone(),
        text.clone(),
        PathBuf::from("libzinc-absent.so.7"),
    ]);
    let error = lookup.load().unwrap_err();
    let DriverError::NotFound { search } = &error else {
        panic!("{error:?}");
    };
    assert!(error.is_no_device());
    assert_eq!(search.attempts[0].outcome, Outcome::Missing);
    assert!(
        matches!(&search.attempts[1].outcome, Outcome::NotLoaded(why) if why.contains("invalid ELF")),
        "{search}"
    );
    assert!(
        matches!(&search.attempts[2].outcome, Outcome::NotLoaded(why) if why.contains("libzinc-absent"))
    );
    let shown = error.to_string();
    for part in [
        missing.to_str().unwrap(),
        text.to_str().unwrap(),
        "libzinc-absent.so.7",
        "likely cause",
    ] {
        assert!(shown.contains(part), "{part} is missing in: {shown}");
    }
}

#[test]
fn library_without_driver_functions_is_not_a_driver() {
    let error = places(["libm.so.6"]).load().unwrap_err();
    let DriverError::NotFound { search } = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        search.attempts[0].outcome,
        Outcome::NotADriver("cuInit".into())
    );
}

#[test]
fn stub_that_says_so_is_skipped() {
    let (stub, real) = (Fake::new(), Fake::new());
    stub.set("stub", 1);
    let lookup = Lookup::places([stub.path.clone(), real.path.clone()]);
    assert_eq!(lookup.load().unwrap().path(), real.path);
}

#[test]
fn stub_is_recognised_by_its_directory_before_it_is_started() {
    let stub = Fake::named("cuda/lib64/stubs/libcuda.so.1");
    let real = Fake::new();
    let lookup = Lookup::places([stub.path.clone(), real.path.clone()]);
    assert_eq!(lookup.load().unwrap().path(), real.path);

    let error = Driver::load_from(&stub.path).unwrap_err();
    let DriverError::NotFound { search } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(search.attempts[0].outcome, Outcome::Stub);
    assert!(error.to_string().contains("stub"), "{error}");
}

#[test]
fn stub_behind_a_link_is_recognised() {
    let stub = Fake::named("stubs/libcuda.so.1");
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("libcuda.so.1");
    std::os::unix::fs::symlink(&stub.path, &link).unwrap();
    let error = Driver::load_from(&link).unwrap_err();
    assert!(
        matches!(error, DriverError::NotFound { search } if search.attempts[0].outcome == Outcome::Stub)
    );
}

#[test]
fn place_that_leads_to_a_rejected_library_again_is_not_tried_twice() {
    let fake = Fake::new();
    fake.set("stub", 1);
    let lookup = Lookup::places([fake.path.clone(), fake.path.clone()]);
    let DriverError::NotFound { search } = lookup.load().unwrap_err() else {
        panic!();
    };
    assert!(
        matches!(&search.attempts[1].outcome, Outcome::Repeated(path) if path.ends_with("libcuda.so.1"))
    );
}

#[test]
fn old_driver_is_refused_with_found_and_wanted() {
    let fake = Fake::new();
    fake.set("version", 12_080);
    let error = Driver::load_from(&fake.path).unwrap_err();
    assert_eq!(
        error,
        DriverError::TooOld {
            path: fake.path.clone(),
            wanted: DriverVersion(13_000),
            found: DriverVersion(12_080),
        }
    );
    assert!(!error.is_no_device());
    assert!(
        error.to_string().contains("12.8") && error.to_string().contains("13.0"),
        "{error}"
    );
    let lowered = Lookup::places([fake.path.clone()]).minimum(DriverVersion(12_080));
    assert_eq!(lowered.load().unwrap().version(), DriverVersion(12_080));
}

#[test]
fn driver_that_does_not_start_is_named_with_its_reason() {
    let fake = Fake::new();
    fake.fail("cuInit", 999, 0);
    let error = Driver::load_from(&fake.path).unwrap_err();
    assert!(
        matches!(&error, DriverError::NotStarted { source, .. } if source.code == 999),
        "{error:?}"
    );
    assert!(!error.is_no_device());
}

#[test]
fn driver_that_does_not_start_does_not_end_the_search() {
    let (broken, working) = (Fake::new(), Fake::new());
    broken.set("devices", 0);
    let lookup = Lookup::places([broken.path.clone(), working.path.clone()]);
    assert_eq!(lookup.load().unwrap().path(), working.path);
}

#[test]
fn driver_without_a_device_is_no_device() {
    let fake = Fake::new();
    fake.set("devices", 0);
    let error = Driver::load_from(&fake.path).unwrap_err();
    assert!(error.is_no_device(), "{error:?}");
    assert!(DeviceError::from(error).is_no_device());

    let late = Fake::new();
    let driver = late.driver();
    late.set("devices", 0);
    let error = Device::open_with(&driver, &DeviceSelector::Best).unwrap_err();
    assert_eq!(error, DeviceError::NoDevice);
}

#[test]
fn device_says_what_it_is() {
    let fake = Fake::new();
    fake.set("devices", 3);
    let devices = fake.driver().devices().unwrap();
    assert_eq!(devices.len(), 3);
    assert_eq!(devices[2].name, "Fake GPU 2");
    assert_eq!(devices[2].capability.to_string(), "9.0");
    assert_eq!(devices[2].sm_count, 130);
    assert_eq!(devices[2].pci_bus_id, "0000:3d:00.0");
    assert_eq!(
        devices[2].uuid.to_string(),
        "GPU-12121212-1212-1212-1212-121212121212"
    );
    // Equal capability: the most multiprocessors.
    assert_eq!(fake.device().info().ordinal, 0);
    let second = Device::open_with(&fake.driver(), &"0000:3c:00.0".parse().unwrap()).unwrap();
    assert_eq!(second.info().ordinal, 1);
}

#[test]
fn device_gives_its_context_back() {
    let fake = Fake::new();
    let device = fake.device();
    let buffer = device.buffer(64).unwrap();
    drop(device);
    assert_eq!(
        fake.count_of("context_references", 0),
        1,
        "the buffer needs the context"
    );
    drop(buffer);
    assert_eq!(fake.count_of("context_references", 0), 0);
}

#[test]
fn incompatible_device_is_refused_at_load_with_what_is_embedded() {
    let fake = Fake::new();
    fake.set("capability", 50);
    let device = fake.device();
    let images: &[(&str, &str)] = &[("90", VADD), ("compute_75", VADD)];
    let error = Library::new(&device, archive(&[("vadd", images)])).unwrap_err();
    assert!(matches!(error, LibraryError::Archive(_)));
    let shown = common::chain(&error);
    for part in ["vadd", "5.0", "sm_90", "compute_75"] {
        assert!(shown.contains(part), "{part} is missing in: {shown}");
    }
}

#[test]
fn image_follows_the_capability() {
    for (capability, wanted) in [(90, "sm_90"), (89, "sm_86"), (75, "compute_75")] {
        let fake = Fake::new();
        fake.set("capability", capability);
        let images: &[(&str, &str)] = &[("90", VADD), ("86", VADD), ("compute_75", VADD)];
        let library = Library::new(&fake.device(), archive(&[("vadd", images)])).unwrap();
        assert_eq!(
            library.load(common::vadd()).unwrap().target.to_string(),
            wanted
        );
    }
}

#[test]
fn image_that_does_not_load_carries_the_log() {
    let fake = Fake::new();
    let library = Library::new(&fake.device(), vadd_archive("JUNK here")).unwrap();
    let error = library.load(common::vadd()).unwrap_err();
    let LibraryError::Load {
        kernel,
        target,
        source,
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!((*kernel, target.to_string()), ("vadd", "sm_90".to_owned()));
    assert_eq!(source.name, "CUDA_ERROR_INVALID_PTX");
    assert!(
        common::chain(&error).contains("unknown instruction 'JUNK here'"),
        "{error}"
    );
}

#[test]
fn image_without_the_entry_is_a_load_error() {
    let fake = Fake::new();
    let library =
        Library::new(&fake.device(), vadd_archive("FAKE other pointers=3 push=4")).unwrap();
    let error = library.load(common::vadd()).unwrap_err();
    assert!(
        matches!(error, LibraryError::Load { source, .. } if source.name == "CUDA_ERROR_NOT_FOUND")
    );
    assert_eq!(fake.count("live_modules"), 0);
}

#[test]
fn image_with_other_parameters_than_the_contract_is_refused() {
    for (image, parameter, found) in [
        ("FAKE vadd pointers=2 push=4", 2, Some((16, 4))),
        ("FAKE vadd pointers=3 push=8", 3, Some((24, 8))),
        ("FAKE vadd pointers=3 push=0", 3, None),
        ("FAKE vadd pointers=4 push=4", 3, Some((24, 8))),
    ] {
        let fake = Fake::new();
        let library = Library::new(&fake.device(), vadd_archive(image)).unwrap();
        let error = library.load(common::vadd()).unwrap_err();
        let LibraryError::Abi {
            parameter: at,
            found: got,
            wanted,
            ..
        } = &error
        else {
            panic!("{image}: {error:?}");
        };
        assert_eq!(
            (*at, *got, wanted % 4),
            (parameter, found, 0),
            "{image}: {error}"
        );
    }
}

#[test]
fn kernel_loads_on_first_use_and_once() {
    let fake = Fake::new();
    let library = fake.library();
    assert_eq!(fake.count("live_modules"), 0);
    library.load(common::vadd()).unwrap();
    library.load(common::vadd()).unwrap();
    assert_eq!(fake.count("live_modules"), 1);
    drop(library);
    assert_eq!(fake.count("live_modules"), 0);
}

#[test]
fn load_all_loads_what_the_archive_has() {
    let fake = Fake::new();
    let library = fake.library();
    assert_eq!(library.load_all().unwrap(), 1);
    assert_eq!(fake.count("live_modules"), 1);
}

#[test]
fn kernel_that_the_archive_lacks_is_named() {
    let fake = Fake::new();
    let error = fake
        .library()
        .load(zinc_contract::kernel("argmax").unwrap())
        .unwrap_err();
    assert!(error.to_string().contains("argmax"), "{error}");
}

#[test]
fn other_context_of_the_thread_comes_back_after_a_call() {
    let fake = Fake::new();
    fake.set("devices", 2);
    let driver = fake.driver();
    let first = Device::open_with(&driver, &DeviceSelector::Ordinal(0)).unwrap();
    let second = Device::open_with(&driver, &DeviceSelector::Ordinal(1)).unwrap();
    // SAFETY: both functions are the driver API's.
    unsafe {
        let library = libloading::Library::new(&fake.path).unwrap();
        let get: libloading::Symbol<unsafe extern "C" fn(*mut usize) -> i32> =
            library.get(b"cuCtxGetCurrent").unwrap();
        let set: libloading::Symbol<unsafe extern "C" fn(usize) -> i32> =
            library.get(b"cuCtxSetCurrent").unwrap();
        let mut current = 0;
        first.buffer(64).unwrap();
        get(&mut current);
        assert_eq!(
            current,
            first.raw_context().addr(),
            "a thread without a context keeps ours"
        );
        set(second.raw_context().addr());
        first.buffer(64).unwrap();
        get(&mut current);
        assert_eq!(current, second.raw_context().addr());
    }
}

#[test]
fn raw_context_is_wrapped_and_left_alone() {
    let fake = Fake::new();
    fake.set("devices", 2);
    let owner = Device::open_with(&fake.driver(), &DeviceSelector::Ordinal(1)).unwrap();
    // SAFETY: the owner outlives the wrapper.
    let wrapped = unsafe { Device::from_raw_context(&fake.driver(), owner.raw_context()) }.unwrap();
    assert_eq!(wrapped.info(), owner.info());
    assert!(wrapped.same_context(&owner));
    drop(wrapped);
    assert_eq!(fake.count_of("context_references", 1), 1);
}

/// Runs one ignored test of this program in a process of its own.
fn in_process(test: &str, environment: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn environment_names_the_library_and_the_device() {
    let fake = Fake::new();
    let library = fake.path.to_str().unwrap();
    in_process(
        "child_opens_what_the_environment_says",
        &[
            ("ZINC_LIBCUDA", library),
            ("ZINC_DEVICE", "1"),
            ("FAKE_CUDA", "devices=2"),
        ],
    );
    in_process(
        "child_reports_the_override",
        &[("ZINC_LIBCUDA", "/nowhere/libcuda.so.1")],
    );
    in_process(
        "child_refuses_an_unknown_device_text",
        &[("ZINC_LIBCUDA", library), ("ZINC_DEVICE", "fastest")],
    );
}

#[test]
#[ignore = "run by environment_names_the_library_and_the_device"]
fn child_opens_what_the_environment_says() {
    let device = Device::open(&DeviceSelector::Auto).unwrap();
    assert_eq!(device.info().ordinal, 1);
    assert_eq!(
        device.driver().path().to_str(),
        std::env::var("ZINC_LIBCUDA").ok().as_deref()
    );
}

#[test]
#[ignore = "run by environment_names_the_library_and_the_device"]
fn child_reports_the_override() {
    let error = Driver::load().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("ZINC_LIBCUDA names this library"),
        "{error}"
    );
}

#[test]
#[ignore = "run by environment_names_the_library_and_the_device"]
fn child_refuses_an_unknown_device_text() {
    let error = Device::open(&DeviceSelector::Auto).unwrap_err();
    assert!(
        matches!(error, DeviceError::UnknownSelector { .. }),
        "{error}"
    );
}

#[test]
fn out_of_memory_says_what_is_free() {
    let fake = Fake::new();
    fake.set("memory", 1 << 20);
    let device = fake.device();
    let _taken = device.buffer(600 << 10).unwrap();
    let error = device.buffer(600 << 10).unwrap_err();
    assert_eq!(
        error,
        zinc_runtime::BufferError::OutOfMemory {
            wanted: 600 << 10,
            free: (1 << 20) - (600 << 10),
            total: 1 << 20,
        }
    );
    assert_eq!(CudaError::OUT_OF_MEMORY, 2);
}
