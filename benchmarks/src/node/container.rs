//! What others pay for a start: a container and a plain process, from the start of the program to its first output.

use crate::process::run_to_end;
use crate::report::{Figures, Table, number, quantile};
use crate::run::Bench;
use anyhow::Context as _;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where machines that mix both versions of cgroups mount version 2. crun refuses them if it finds controllers there.
const CGROUP_HYBRID: &str = "/sys/fs/cgroup/unified";

pub fn measure(bench: &Bench, _figures: &mut Figures) -> anyhow::Result<()> {
    let program = bench.peers.program("first-output")?;
    let columns = ["", "p50 ms", "p90", "p99", "max"];
    let mut table = Table::new("Start to first output, for comparison with the start of a unit", &columns);
    let mut row = |name: &str, times: &[f64]| {
        let cells = [0.5, 0.9, 0.99, 1.0].map(|share| number(quantile(times, share)));
        table.row([name.to_owned()].into_iter().chain(cells));
    };
    row("plain process (fork, exec)", &starts(bench, false, &[program.into()])?);
    let container = container_starts(bench, program);
    if let Ok((name, times)) = &container {
        row(name, times);
    }
    table.print();
    container.map(drop)
}

/// Runs containers from a root file system that holds nothing but the program. They get namespaces but no cgroup, which
/// makes them cheaper than they usually are and works for every user. The name says how it was done.
fn container_starts(bench: &Bench, program: &Path) -> anyhow::Result<(&'static str, Vec<f64>)> {
    let crun = bench.peers.program("crun")?;
    let bundle = bundle(bench, crun, program)?;
    let mut command: Vec<OsString> = vec![crun.into(), "--root".into(), bench.folder("crun-state").into()];
    command.extend(["--cgroup-manager", "disabled", "run", "--bundle"].map(OsString::from));
    command.extend([bundle.into(), format!("bench-{}-{{}}", std::process::id()).into()]);
    match starts(bench, false, &command) {
        Ok(times) => Ok(("container (crun run, no cgroup)", times)),
        Err(why) if Path::new(CGROUP_HYBRID).exists() => {
            let times = starts(bench, true, &command);
            let times = times.with_context(|| format!("{why:#}; and again with {CGROUP_HYBRID} hidden"))?;
            Ok(("container (crun run, no cgroup, version 2 hidden from it)", times))
        }
        Err(why) => Err(why),
    }
}

/// A bundle as `crun spec` makes it, whose program is ours.
fn bundle(bench: &Bench, crun: &Path, program: &Path) -> anyhow::Result<PathBuf> {
    let bundle = bench.folder("container");
    fs::create_dir_all(bundle.join("rootfs"))?;
    fs::copy(program, bundle.join("rootfs/first-output"))?;
    let mut spec = Command::new(crun);
    spec.arg("spec").current_dir(&bundle);
    if !rustix::process::geteuid().is_root() {
        spec.arg("--rootless");
    }
    run_to_end(spec)?;
    let config = bundle.join("config.json");
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&config)?)?;
    value["process"]["args"] = serde_json::json!(["/first-output"]);
    value["process"]["terminal"] = false.into();
    fs::write(&config, serde_json::to_vec(&value)?)?;
    Ok(bundle)
}

/// Milliseconds from start to first output. With `hide_cgroup2`, in a mount namespace without [`CGROUP_HYBRID`]: the
/// whole series runs inside, so that making the namespace is not measured.
fn starts(bench: &Bench, hide_cgroup2: bool, program: &[OsString]) -> anyhow::Result<Vec<f64>> {
    let this = std::env::current_exe()?;
    let mut command = if hide_cgroup2 {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("umount {CGROUP_HYBRID} && exec \"$@\""), "sh"]).arg(this);
        command
    } else {
        Command::new(this)
    };
    command.args(["starts", "--times", bench.pick("100", "500")]).args(program);
    Ok(serde_json::from_slice(&run_to_end(command)?)?)
}
