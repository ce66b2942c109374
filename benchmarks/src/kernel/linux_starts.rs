//! Linux in QEMU's machine `microvm`, for comparison with the start of a unit: from the start of QEMU to the first
//! output of the first program, which is all there is in its initramfs.
//!
//! With KVM where that works: where KVM is nested and privileged code is emulated Linux may not come up at all, and
//! then everything is emulated. The row says which it was.

use super::machines::Archive;
use crate::report::{Table, number, quantile};
use crate::run::Bench;
use anyhow::{Context as _, bail};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What the program prints.
const WORD: &[u8] = b"ready";
/// Emulated it takes a second or two; longer means that it does not come up.
const START_MAX: Duration = Duration::from_secs(20);

pub fn measure(bench: &Bench) -> anyhow::Result<()> {
    let kernel = bench.peers.program("linux")?.join("vmlinuz");
    let mut archive = Archive::default();
    archive.add("init", 0o100_755, &fs::read(bench.peers.program("first-output")?)?);
    let initramfs = bench.work().join("initramfs-first-output");
    fs::write(&initramfs, archive.end())?;
    let (name, accelerator) = match first_output("kvm", &kernel, &initramfs) {
        Ok(_) => ("Linux in QEMU microvm, KVM", "kvm"),
        Err(why) => {
            println!("Linux in QEMU microvm does not come up with KVM here ({why:#}): it is emulated");
            ("Linux in QEMU microvm, emulated (TCG): KVM does not run it here", "tcg")
        }
    };
    let mut times = Vec::new();
    for _ in 0..bench.pick(5, 20) {
        times.push(first_output(accelerator, &kernel, &initramfs)?.as_secs_f64() * 1e3);
    }
    let mut table = Table::new("The same, with a kernel of its own", &["", "p50 ms", "p90", "p99", "max"]);
    let cells = [0.5, 0.9, 0.99, 1.0].map(|share| number(quantile(&times, share)));
    table.row([name.to_owned()].into_iter().chain(cells));
    table.print();
    Ok(())
}

fn first_output(accelerator: &str, kernel: &Path, initramfs: &Path) -> anyhow::Result<Duration> {
    let processor = if accelerator == "kvm" { "host" } else { "max" };
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-M", "microvm,acpi=off,rtc=on", "-accel", accelerator, "-cpu", processor, "-m", "256"])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio", "-kernel"])
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", "console=ttyS0 quiet panic=-1 reboot=t"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let began = Instant::now();
    let mut qemu = command.spawn().context("starting qemu-system-x86_64")?;
    let mut output = qemu.stdout.take().context("stdout is a pipe")?;
    let (sender, said) = channel();
    thread::spawn(move || {
        let (mut all, mut some) = (Vec::new(), [0; 4_096]);
        while let Ok(bytes @ 1..) = output.read(&mut some) {
            all.extend_from_slice(&some[..bytes]);
            if all.windows(WORD.len()).any(|window| window == WORD) {
                let _ = sender.send(Instant::now());
                return;
            }
        }
    });
    let heard = said.recv_timeout(START_MAX);
    let _ = qemu.kill();
    qemu.wait()?;
    match heard {
        Ok(at) => Ok(at - began),
        Err(RecvTimeoutError::Timeout) => bail!("nothing after {} s", START_MAX.as_secs()),
        Err(RecvTimeoutError::Disconnected) => bail!("it ended before its program said anything"),
    }
}
