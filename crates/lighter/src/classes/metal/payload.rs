//! `lighter build --target`: portable functions compiled for boards, signed by the node of this data folder.

use clap::{ArgMatches, Args, ValueEnum};
use cli::build::{Build, Built};
use cli::images::{self, Project};
use cli::stop::Result;
use cli::table::Table;
use cli::{ExtraOption, Session, locate, words};
use serde::Serialize;
use std::path::PathBuf;
use unit_metal::qemu::Machine;

#[derive(Debug, Args)]
struct Targets {
    /// Also compile portable functions for a board, signed by the node of this data folder; may be repeated
    #[arg(long, value_name = "TARGET")]
    target: Vec<Target>,
}

/// What boards run.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Target {
    #[value(name = "aarch64-unknown-none")]
    Aarch64,
    #[value(name = "x86_64-unknown-none")]
    X86_64,
    /// Bytecode for any board
    Pulley64,
}

/// Code for a board.
#[derive(Debug, Serialize)]
struct Payload {
    function: String,
    target: &'static str,
    payload: PathBuf,
    payload_bytes: u64,
    /// Of the component it was made from, and of the kernel that runs it.
    image_bytes: u64,
    kernel_bytes: Option<u64>,
}

pub const OPTION: ExtraOption = ExtraOption { command: "build", augment: Targets::augment_args, run };

fn run(matches: &ArgMatches, session: &Session) -> Option<Result> {
    let targets: Targets = match cli::read(matches) {
        Ok(targets) => targets,
        Err(stop) => return Some(Err(stop)),
    };
    let build = || {
        let (project, built) = cli::read::<Build>(matches)?.built(session)?;
        targets.payloads(session, &project, &built)
    };
    (!targets.target.is_empty()).then(build)
}

impl Targets {
    fn payloads(&self, session: &Session, project: &Project, built: &[Built]) -> Result {
        let folder = locate::data_folder(session.global.data_folder.as_deref())?.join("boards");
        let enrolled = super::flash::enrolled(&folder)?;
        let mut payloads = Vec::new();
        for built in built {
            let portable = project.manifest.function.iter().find(|(name, _)| name.as_str() == built.function);
            if portable.is_some_and(|(_, function)| function.isolation == manifest::Isolation::Process) {
                session.out.say(format!("{}: a process function is for nodes alone", built.function));
                continue;
            }
            let Some((name, function)) = portable else { continue };
            let image = images::image(project, name, function)?.bytes;
            kernel_code::shape(&image)?;
            for target in &self.target {
                let target = target.code();
                let bytes = unit_metal::payload(&enrolled, &image, target)?;
                let payload = built.image.with_extension(format!("{}.payload", target.as_str()));
                images::replace(&payload, &bytes)?;
                payloads.push(Payload {
                    function: built.function.clone(),
                    target: target.as_str(),
                    payload,
                    payload_bytes: bytes.len() as u64,
                    image_bytes: built.image_bytes,
                    kernel_bytes: kernel_bytes(target),
                });
            }
        }
        if session.out.json {
            return session.out.json(&payloads);
        }
        let mut table = Table::new(&["FUNCTION", "TARGET", ">COMPONENT", ">PAYLOAD", ">KERNEL", "FILE"]);
        for one in &payloads {
            table.row([
                one.function.clone(),
                one.target.to_owned(),
                words::bytes(one.image_bytes),
                words::bytes(one.payload_bytes),
                one.kernel_bytes.map_or_else(|| "-".to_owned(), words::bytes),
                one.payload.display().to_string(),
            ]);
        }
        session.out.table(&table)
    }
}

impl Target {
    fn code(self) -> kernel_code::Target {
        match self {
            Self::Aarch64 => kernel_code::Target::Aarch64,
            Self::X86_64 => kernel_code::Target::X86_64(kernel_code::Features::default()),
            Self::Pulley64 => kernel_code::Target::Pulley64,
        }
    }
}

/// Of the kernel that comes with this program for such boards.
fn kernel_bytes(target: kernel_code::Target) -> Option<u64> {
    let machine = match target {
        kernel_code::Target::Aarch64 => Machine::QemuArm,
        kernel_code::Target::X86_64(_) => Machine::QemuX86,
        kernel_code::Target::Pulley64 => return None,
    };
    Some(unit_metal::kernel(machine).len() as u64)
}
