//! What a kernel must never do, done on purpose on real machines in QEMU: each is caught, reported, and ends in a
//! restart.
//!
//! `kernel/arch/metal/faults` makes the mistakes. What is not installed is skipped, and said.

use board_link::{Image, Settings};
use std::path::Path;
use std::time::{Duration, Instant};
use unit_metal::qemu::{self, Machine};

const PATIENCE: Duration = Duration::from_secs(30);

/// What it is told to do, and what its report says.
const FAULTS: [(&str, &str); 12] = [
    ("write code", "exception: memory that must not be read or written"),
    ("write constants", "exception: memory that must not be read or written"),
    ("write settings", "exception: memory that must not be read or written"),
    ("write published code", "exception: memory that must not be read or written"),
    ("run data", "exception: memory that must not be run"),
    ("run constants", "exception: memory that must not be run"),
    ("run unpublished code", "exception: memory that must not be run"),
    ("read nothing", "exception: memory that must not be read or written"),
    ("read beyond memory", "exception: memory that must not be read or written"),
    ("overflow the stack", "exception: stack overflow"),
    ("panic", "as it was told"),
    ("hang", "watchdog: no sign of life"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_on_virt_is_reported_and_ends_in_a_restart() {
    check(Machine::QemuArm, "  pc ").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_on_microvm_is_reported_and_ends_in_a_restart() {
    check(Machine::QemuX86, "  rip ").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_on_raspi3b_is_reported_and_ends_in_a_restart() {
    check(Machine::Raspi3b, "  pc ").await;
}

async fn check(machine: Machine, registers: &str) {
    if machine.find().is_none() {
        println!("skipped: qemu: faults on {}: {} is not installed", machine.as_str(), machine.program());
        return;
    }
    for (fault, report) in FAULTS {
        let console = console_of(machine, fault).await;
        let begun = format!("faults: about to {fault}");
        let first = console.split(&begun).nth(1).unwrap();
        assert!(first.contains(report), "{fault}: {console}");
        assert!(first.contains("  from 0x"), "{fault}: there is no way back in {console}");
        assert!(fault == "panic" || first.contains(registers), "{fault}: there are no registers in {console}");
        assert!(!first.contains("nothing happened"), "{fault}: {console}");
        assert_eq!(first.contains("published code runs"), fault == "run unpublished code", "{console}");
    }
}

/// What it says until it has started for the second time.
async fn console_of(machine: Machine, fault: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (image, console) = (folder.path().join("image"), folder.path().join("console"));
    let prebuilt = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../kernel/prebuilt");
    let kernel = std::fs::read(prebuilt.join(format!("{}-faults", machine.as_str()))).unwrap();
    let settings = Settings { name: fault.into(), ..Settings::default() };
    std::fs::write(&image, Image::read(kernel).unwrap().with(&settings).unwrap().elf()).unwrap();
    let start = qemu::Start {
        machine,
        image: &image,
        memory_mb: 128,
        link_port: qemu::free_port().unwrap(),
        board_port: settings.link_port,
        console: Some(&console),
        kvm: false,
        slip: None,
        wire: None,
    };
    let _board = qemu::start(&start).unwrap();
    let since = Instant::now();
    loop {
        let said = std::fs::read(&console).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        if said.matches("faults: about to").count() >= 2 {
            return said;
        }
        assert!(since.elapsed() < PATIENCE, "{fault}: it did not start again: {said}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
