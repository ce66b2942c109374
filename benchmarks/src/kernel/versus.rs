//! The same work on our kernel and on Linux: a chain of MD5 digests, and datagrams that come back.
//!
//! First on the processor itself: a microvm unit, called through a node, beside a Linux process; then in the same QEMU,
//! where every instruction is emulated. The time is from the request to the answer, as the one who asks sees it: on
//! Linux a process is started for it, on our kernel the function is linked and dropped again. CPU time is what the
//! program says its chain took; where nobody else uses the machine, our kernel's clock is one of CPU time.

use super::called::Called;
use super::machines::{Board, Linux, Run};
use super::runtime;
use crate::report::{Figures, Table, number, quantile};
use crate::run::Bench;
use anyhow::ensure;
use std::process::Command;
use std::time::Instant;

/// Bytes of a datagram.
const DATAGRAMS: [usize; 3] = [64, 512, 1_400];

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    on_the_processor(bench, figures)?;
    runtime()?.block_on(async {
        let linux = Linux::start(bench)?;
        let mut board = Board::start(bench, "md5").await?;
        let mut rows = Rows::new("MD5 in QEMU, emulated: our board and Linux, medians", "board", "Linux");
        for rounds in bench.pick(&[1_u64, 1_000, 10_000, 100_000][..], &[1, 100, 1_000, 10_000, 100_000, 1_000_000]) {
            for turn in 0..turns(bench, *rounds) {
                let (ours, theirs) = match turn % 2 {
                    0 => (board.md5(*rounds).await?, linux.md5(*rounds)?),
                    _ => {
                        let theirs = linux.md5(*rounds)?;
                        (board.md5(*rounds).await?, theirs)
                    }
                };
                rows.add(*rounds, ours, theirs)?;
            }
        }
        let (cpu, time) = rows.print();
        figures.set("md5_cpu_vs_linux", cpu);
        figures.set("md5_time_vs_linux", time);
        echoes(bench, figures, &board, &linux)
    })
}

/// Longer ones are repeated less.
fn turns(bench: &Bench, rounds: u64) -> usize {
    if rounds >= 100_000 { bench.pick(3, 7) } else { bench.pick(9, 41) }
}

fn on_the_processor(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let program = bench.peers.program("linux")?.join("init");
    let lines = "isolation = \"microvm\"\nlimits.cpu_ms = 60_000\nlimits.time_ms = 60_000";
    let mut node = Called::start(bench, "md5", &[("md5".to_owned(), lines.to_owned())])?;
    let mut rows = Rows::new("MD5 on the processor: a microvm unit and a Linux process, medians", "unit", "process");
    for rounds in [1_u64, 1_000, 10_000, 100_000, 1_000_000] {
        for _ in 0..turns(bench, rounds) {
            let (took, reply) = node.call("md5", &rounds.to_string())?;
            let ours = Run::read(took, reply.as_bytes())?;
            let began = Instant::now();
            let output = Command::new(&program).arg(rounds.to_string()).output()?;
            let theirs = Run::read(began.elapsed(), &output.stdout)?;
            rows.add(rounds, ours, theirs)?;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    let (cpu, time) = rows.print();
    figures.set("md5_cpu_vs_process", cpu);
    figures.set("md5_time_vs_process", time);
    Ok(())
}

fn echoes(bench: &Bench, figures: &mut Figures, board: &Board, linux: &Linux) -> anyhow::Result<()> {
    let columns = ["bytes", "board p50 µs", "p99", "Linux p50 µs", "p99", "Linux / board"];
    let mut table = Table::new("UDP echo in QEMU, emulated, one datagram at a time", &columns);
    let mut worst = f64::INFINITY;
    for bytes in DATAGRAMS {
        let data = vec![b'x'; bytes];
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..bench.pick(300, 3_000) {
            for (echo, times) in [&board.echo, &linux.echo].into_iter().zip(&mut times) {
                let (took, answer) = echo.ask(&data)?;
                ensure!(answer == data, "another datagram came back");
                times.push(took.as_secs_f64() * 1e6);
            }
        }
        let [ours, theirs] = &times;
        let ratio = quantile(theirs, 0.5) / quantile(ours, 0.5);
        worst = worst.min(ratio);
        let cells = [quantile(ours, 0.5), quantile(ours, 0.99), quantile(theirs, 0.5), quantile(theirs, 0.99), ratio];
        table.row([bytes.to_string()].into_iter().chain(cells.map(number)));
    }
    table.print();
    figures.set("udp_echo_vs_linux", worst);
    Ok(())
}

/// Runs of both, by rounds.
struct Rows {
    title: String,
    names: [String; 2],
    runs: Vec<(u64, Vec<[Run; 2]>)>,
}

impl Rows {
    fn new(title: &str, ours: &str, theirs: &str) -> Self {
        Self { title: title.to_owned(), names: [ours.to_owned(), theirs.to_owned()], runs: Vec::new() }
    }

    fn add(&mut self, rounds: u64, ours: Run, theirs: Run) -> anyhow::Result<()> {
        ensure!(ours.digest == theirs.digest, "the digests differ");
        match self.runs.iter_mut().find(|(of, _)| *of == rounds) {
            Some((_, runs)) => runs.push([ours, theirs]),
            None => self.runs.push((rounds, vec![[ours, theirs]])),
        }
        Ok(())
    }

    /// Prints them. Returns Linux's CPU time over ours where there is something to compute, and its time over ours: the
    /// worst of the rows.
    fn print(&self) -> (f64, f64) {
        /// Below, a clock's own time is most of what is measured.
        const CPU_ROUNDS_MIN: u64 = 1_000;
        let [ours, theirs] = &self.names;
        let columns = [
            "rounds".to_owned(),
            format!("{ours} CPU ms"),
            format!("{theirs} CPU ms"),
            "ratio".to_owned(),
            format!("{ours} time ms"),
            format!("{theirs} time ms"),
            "ratio".to_owned(),
        ];
        let mut table = Table::new(&self.title, &columns.each_ref().map(String::as_str));
        let mut worst = (f64::INFINITY, f64::INFINITY);
        for (rounds, runs) in &self.runs {
            let median = |of: fn(&Run) -> f64, which: usize| {
                quantile(&runs.iter().map(|both| of(&both[which])).collect::<Vec<_>>(), 0.5)
            };
            let cpu = [0, 1].map(|which| median(|run| run.cpu.as_secs_f64() * 1e3, which));
            let time = [0, 1].map(|which| median(|run| run.took.as_secs_f64() * 1e3, which));
            let ratios = (cpu[1] / cpu[0], time[1] / time[0]);
            if *rounds >= CPU_ROUNDS_MIN {
                worst.0 = worst.0.min(ratios.0);
            }
            worst.1 = worst.1.min(ratios.1);
            let cells = [cpu[0], cpu[1], ratios.0, time[0], time[1], ratios.1].map(number);
            table.row([rounds.to_string()].into_iter().chain(cells));
        }
        table.print();
        worst
    }
}
