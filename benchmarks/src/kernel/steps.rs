//! From a board's first beacon to a result and the end: how long each step takes, and how much code it is.
//!
//! A board is started in QEMU for each run, found, attested, brought the hello component, and called twice: the first
//! call runs what QEMU has not translated yet. The code of a step is the machine code of the crates that do it, as the
//! linker laid it into the image (`kernel/prebuilt/NAME.code`).

use super::board::{self, Answer, Prepared};
use super::runtime;
use crate::report::{Figures, Table, number, quantile};
use crate::run::Bench;
use anyhow::{Context as _, ensure};
use board_link::{Settings, hash};
use std::time::{Duration, Instant};
use unit_metal::finder::Finder;
use unit_metal::qemu::{self, Machine, free_port};

/// A board, and which code of its image is how large.
const BOARDS: [(Machine, &str); 2] = [
    (Machine::QemuArm, include_str!("../../../kernel/prebuilt/qemu-arm.code")),
    (Machine::QemuX86, include_str!("../../../kernel/prebuilt/qemu-x86.code")),
];

/// What crates are for; what is in none of them is of small libraries.
const PARTS: [(&str, &[&str]); 6] = [
    (
        "found, attested, channel: beacons, evidence, sessions",
        &[
            "board_link",
            "snow",
            "curve25519_dalek",
            "ed25519",
            "ed25519_dalek",
            "signature",
            "sha2",
            "digest",
            "block_buffer",
            "chacha20",
            "chacha20poly1305",
            "poly1305",
            "cipher",
            "aead",
            "subtle",
            "zeroize",
        ],
    ),
    ("all of them: packets", &["network", "smoltcp", "drivers", "heapless", "managed"]),
    (
        "linked, run, dropped: host calls, frames, the executive",
        &["kernel_core", "serverkernel", "frame", "event", "kernel_abi"],
    ),
    (
        "linked, run, dropped: wasmtime",
        &[
            "wasmtime",
            "wasmtime_environ",
            "wasmtime_internal_core",
            "wasmtime_internal_unwinder",
            "wasmparser",
            "target_lexicon",
            "cranelift_entity",
            "cranelift_bitset",
            "cranelift_bforest",
            "postcard",
            "serde",
            "serde_core",
            "object",
            "bumpalo",
            "semver",
        ],
    ),
    ("run: bytecode", &["pulley_interpreter"]),
    ("machine: processor, memory, reports", &["arch_metal", "kernel_arch", "qemu-arm", "qemu-x86", "faults"]),
];

/// What one run took, in milliseconds.
#[derive(Default)]
struct Steps(Vec<(&'static str, Vec<f64>)>);

impl Steps {
    fn add(&mut self, step: &'static str, took: Duration) {
        let ms = took.as_secs_f64() * 1e3;
        match self.0.iter_mut().find(|(name, _)| *name == step) {
            Some((_, times)) => times.push(ms),
            None => self.0.push((step, vec![ms])),
        }
    }
}

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        for (machine, code) in BOARDS {
            ensure!(machine.find().is_some(), "{} is not installed", machine.program());
            let component = bench.guest("hello")?;
            let payload = board::payload(&component, machine)?;
            let mut steps = Steps::default();
            let began = Instant::now();
            for _ in 0..bench.pick(5, 25) {
                run(bench, machine, &payload, &mut steps).await.with_context(|| machine.as_str())?;
            }
            println!("{} runs of {} took {:.0} s", bench.pick(5, 25), machine.as_str(), began.elapsed().as_secs_f64());
            let title = format!("From beacon to result on `{}`, emulated: time", machine.as_str());
            let mut table = Table::new(&title, &["step", "p50 ms", "p90", "max"]);
            for (step, times) in &steps.0 {
                let cells = [0.5, 0.9, 1.0].map(|share| number(quantile(times, share)));
                table.row([(*step).to_owned()].into_iter().chain(cells));
            }
            table.print();
            let image = unit_metal::kernel(machine).len();
            sizes(
                machine,
                code,
                [("the component", component.len()), ("its payload", payload.len()), ("the image", image)],
            )?;
            if machine == Machine::QemuArm {
                let of =
                    |step: &str| steps.0.iter().find(|(name, _)| *name == step).map_or(&[][..], |(_, times)| times);
                figures.set("virt_beacon_ms", quantile(of(FOUND), 0.5));
                figures.set("virt_beacon_to_result_ms", quantile(of(ALL), 0.5));
            }
        }
        anyhow::Ok(())
    })
}

const FOUND: &str = "found: QEMU starts, first beacon heard";
const ALL: &str = "beacon to first result, all of it";
const FIRST: [&str; 4] = [
    "first call: event there, result back",
    "first: checked, linked",
    "first: run",
    "first: dropped, unlinked and scrubbed",
];
const SECOND: [&str; 4] = [
    "second call: event there, result back",
    "second: checked, linked",
    "second: run",
    "second: dropped, unlinked and scrubbed",
];

async fn run(bench: &Bench, machine: Machine, payload: &[u8], steps: &mut Steps) -> anyhow::Result<()> {
    let finder = Finder::listen(0).await?;
    let link = free_port()?;
    let settings = Settings { beacon_pause_ms: 200, ..Settings::default() };
    let board_port = settings.link_port;
    let board = Prepared::new(bench, machine, &finder, link, settings)?;
    let start = qemu::Start {
        machine,
        image: &board.file,
        memory_mb: 256,
        link_port: link,
        board_port,
        console: None,
        kvm: false,
        slip: None,
        wire: None,
    };
    let began = Instant::now();
    let mut qemu = qemu::start(&start)?;
    let goal = board.heard(&finder).await?;
    steps.add(FOUND, began.elapsed());

    let began = Instant::now();
    let mut session = board.session(goal).await?;
    steps.add("attested, channel open: connection, handshake, evidence", began.elapsed());
    let brought = Instant::now();
    let code = hash(payload);
    session.bring(code, payload).await?;
    steps.add("code brought and kept", brought.elapsed());
    let first = board::call(&mut session, code, 1, "world").await?;
    steps.add(ALL, began.elapsed());
    add_call(steps, &first, FIRST);
    let second = board::call(&mut session, code, 2, "world").await?;
    add_call(steps, &second, SECOND);
    session.end().await;
    qemu.kill().await?;
    Ok(())
}

fn add_call(steps: &mut Steps, answer: &Answer, names: [&'static str; 4]) {
    let stages = &answer.stages;
    let stages = [stages.link_us, stages.run_us, stages.unlink_us].map(|us| Duration::from_micros(us.into()));
    steps.add(names[0], answer.took.saturating_sub(stages.iter().sum()));
    names[1..].iter().zip(stages).for_each(|(name, took)| steps.add(name, took));
}

/// What stands in `NAME.code`: bytes and the crate they are of, a line each.
fn sizes(machine: Machine, code: &str, files: [(&str, usize); 3]) -> anyhow::Result<()> {
    let title = format!("From beacon to result on `{}`: size", machine.as_str());
    let mut table = Table::new(&title, &["", "kB"]);
    let kilobytes = |bytes: usize| number(bytes as f64 / 1e3);
    files.into_iter().for_each(|(name, bytes)| table.row([name.to_owned(), kilobytes(bytes)]));
    let mut crates = Vec::new();
    for line in code.lines() {
        let (bytes, name) = line.split_once(' ').context("a size without a name")?;
        crates.push((name, bytes.parse::<usize>()?));
    }
    let all: usize = crates.iter().map(|(_, bytes)| bytes).sum();
    table.row(["code in it".to_owned(), kilobytes(all)]);
    let mut rest = all;
    for (part, names) in PARTS {
        let bytes = crates.iter().filter(|(name, _)| names.contains(name)).map(|(_, bytes)| bytes).sum::<usize>();
        rest -= bytes;
        table.row([format!("· {part}"), kilobytes(bytes)]);
    }
    table.row(["· Rust's own libraries, and small ones".to_owned(), kilobytes(rest)]);
    table.print();
    Ok(())
}
