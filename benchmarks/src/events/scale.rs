//! How a node grows with its units, as in UniFaaS's figures 5 and 6, and with connections that hear nothing.

use super::clients::Flow;
use super::contest::Contestant as _;
use super::ours::{self, FUNCTION, Ours};
use super::servers;
use crate::lighter::{Node, Project};
use crate::process::{self, Cores, Process};
use crate::report::{Figures, Table, number};
use crate::run::Bench;
use anyhow::{Context as _, ensure};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const MB: f64 = 1e6;
/// What a process settles in after it started or was connected to.
const SETTLE: Duration = Duration::from_secs(1);
/// The work of one event: its naive Fibonacci number takes about a millisecond.
const WORK: &str = "24";
const CONNECTIONS: u32 = 1_000;
/// Connections that are there before: what the first ones bring with them, one more does not.
const CONNECTIONS_BEFORE: u32 = 100;

/// One to ten units of one function.
pub fn units(bench: &Bench, _: &mut Figures) -> anyhow::Result<()> {
    let counts: &[u64] = bench.pick(&[1, 2, 4, 10], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let title = format!("Growth with units: each event is Fibonacci({WORK}); all cores");
    let mut table = Table::new(&title, &["units", "events/s", "CPU % of one core", "resident MB", "idle before, MB"]);
    let project = Project::new(bench.folder("units"))?;
    project.add_image("fibonacci", &bench.guest("fibonacci")?)?;
    for &count in counts {
        let mut project = project.clone();
        project.add_lines(&ours::manifest("fibonacci", count));
        let node = bench.node(&format!("units-{count}"), Cores::All)?;
        node.deploy(project.folder()?)?;
        thread::sleep(SETTLE);
        let idle = node.process.resident_bytes()? as f64 / MB;
        let path = format!("/v1/functions/{FUNCTION}/events");
        let words = ["--path", &path, "--data", WORK, "--header", &node.authorization()?];
        let arguments = words.map(str::to_owned).to_vec();
        let mine = Ours { name: "lighter", node: &node, client: "http-push", to: node.api, arguments, queue: FUNCTION };
        let (begin, cpu) = (Instant::now(), node.process.cpu_time()?);
        let run = mine.run(Flow { events: bench.pick(1_000, 5_000), window: 64, rate: None })?;
        let busy = (node.process.cpu_time()? - cpu).as_secs_f64() / begin.elapsed().as_secs_f64();
        let resident = node.process.resident_bytes()? as f64 / MB;
        table
            .row([count.to_string()].into_iter().chain([run.events_per_s(), busy * 100.0, resident, idle].map(number)));
        node.process.stop()?;
    }
    table.print();
    Ok(())
}

/// A thousand subscribers that hear nothing.
pub fn connections(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let title = format!("{CONNECTIONS} MQTT connections, each with a subscription, idle");
    let columns = ["", "private MB before", "more MB with them", "KB a connection", "CPU % of one core, idle"];
    let mut table = Table::new(&title, &columns);
    let broker = process::free_address()?;
    let data = bench.folder("connections-data");
    let arguments = ["--mqtt".to_owned(), broker.to_string()];
    let node = Node::start_with(&bench.lighter, &data, Cores::All, &arguments)?;
    let mosquitto = servers::mosquitto(bench)?;
    for (name, process, address) in
        [("lighter", &node.process, broker), ("mosquitto", &mosquitto.process, mosquitto.address)]
    {
        let cells = hold(process, address, bench.pick(Duration::from_secs(3), Duration::from_secs(10)))?;
        if name == "lighter" {
            figures.set("mqtt_connection_kb", cells[2]);
        }
        table.row([name.to_owned()].into_iter().chain(cells.map(number)));
    }
    table.print();
    Ok(())
}

fn hold(process: &Process, address: SocketAddr, time: Duration) -> anyhow::Result<[f64; 4]> {
    let _first = Holder::start(address, 0, CONNECTIONS_BEFORE)?;
    thread::sleep(SETTLE);
    let before = process.private_bytes()? as f64;
    let _more = Holder::start(address, CONNECTIONS_BEFORE, CONNECTIONS)?;
    thread::sleep(SETTLE);
    let more = process.private_bytes()? as f64 - before;
    let cpu = process.cpu_time()?;
    thread::sleep(time);
    let busy = (process.cpu_time()? - cpu).as_secs_f64() / time.as_secs_f64();
    Ok([before / MB, more / MB, more / 1e3 / f64::from(CONNECTIONS), busy * 100.0])
}

/// The client that holds the connections; ended when dropped.
struct Holder(Child);

impl Holder {
    /// Opens so many connections, whose numbers begin with `first`.
    fn start(address: SocketAddr, first: u32, connections: u32) -> anyhow::Result<Self> {
        let mut client = process::command(std::env::current_exe()?, Cores::All);
        client.args(["client", "mqtt-hold", &address.to_string(), "--first", &first.to_string()]);
        client.args(["--connections", &connections.to_string()]);
        let mut holder = Self(client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let mut line = String::new();
        BufReader::new(holder.0.stdout.take().context("stdout is a pipe")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "{connections} connections could not all be opened: {line:?}");
        Ok(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Both fail only if it has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
