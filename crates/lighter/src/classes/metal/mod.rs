//! `metal`: components on boards, which run our kernel and nothing else.

mod boards;
mod boot;
mod flash;
mod payload;
mod routes;

use super::{Class, Open, Opened, kernel};
use clap::Args;
use cli::{Brought, Extra};
use futures_util::future::{BoxFuture, FutureExt};
use node::Header;
use node::config::Config;
use node::options::{Asked, Options};
use problem::{Code, Problem};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use unit::IsolationClass;
use unit_metal::MetalClass;

pub const CLASS: Class = Class {
    options: Some(BoardOptions::augment_args),
    configure,
    command_line: Some(bring),
    document: Some(<routes::Document as utoipa::OpenApi>::openapi),
    compiler: Some(kernel::compiler),
    program: None,
};

/// Its options of `lighter up`.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(default)]
struct BoardOptions {
    /// Listen for the beacons of boards, and run functions of isolation = "metal" on enrolled boards
    #[arg(long)]
    boards: bool,
    /// UDP port for beacons [default: 7311]
    #[arg(long, value_name = "PORT")]
    beacon_port: Option<u16>,
}

impl Options for BoardOptions {
    fn or(self, file: Self) -> Self {
        Self { boards: self.boards || file.boards, beacon_port: self.beacon_port.or(file.beacon_port) }
    }
}

struct Metal {
    class: MetalClass,
    /// The UDP port beacons come to; none: no boards.
    beacon_port: Option<u16>,
}

fn configure(asked: &Asked<'_>) -> Result<Open, Problem> {
    let BoardOptions { boards, beacon_port } = asked.options()?;
    let beacon_port = boards.then(|| beacon_port.unwrap_or(board_link::BEACON_PORT));
    Ok(Box::new(move |config| open(config, beacon_port)))
}

fn open(config: &Config, beacon_port: Option<u16>) -> Result<Opened, Problem> {
    let class = MetalClass::new(&config.data.join("boards"))?;
    let metal = Metal { class: class.clone(), beacon_port };
    let found = ("beacons", json!(beacon_port));
    Ok(Opened { router: Some(routes::router(class)), found: Some(found), ..Opened::new(metal) })
}

impl node::Class for Metal {
    fn units(&self) -> Arc<dyn IsolationClass> {
        Arc::new(self.class.clone())
    }

    fn start(&self) -> BoxFuture<'_, Result<(), Problem>> {
        async move {
            let Some(port) = self.beacon_port else { return Ok(()) };
            self.class.listen(port).await.map_err(|error| {
                Problem::new(Code::ListenFailed, format!("beacons on UDP port {port} cannot be heard: {error}"))
            })
        }
        .boxed()
    }

    fn header(&self) -> Option<Header> {
        Some(Header { name: manifest::BOARD_HEADER, names: "a board" })
    }

    fn leaves_dumps(&self) -> bool {
        false
    }
}

fn bring(brought: &mut Brought) {
    brought.groups.push("Boards  boards   that were heard    boot      one in QEMU     flash   a card");
    brought.options.push(payload::OPTION);
    brought.commands.push(Extra::new::<boards::Boards>(
        "boards",
        "List the boards, and whether they are trusted",
        Some("logs"),
        &["lighter boards"],
    ));
    brought.commands.push(Extra::new::<boot::Boot>(
        "boot",
        "Start a board in QEMU, to try it out",
        Some("boards"),
        &["lighter boot --board qemu-arm", "lighter boot --board qemu-x86 --name shed --kvm"],
    ));
    brought.commands.push(Extra::new::<flash::Flash>(
        "flash",
        "Write a board's image, or the files for its SD card",
        Some("boot"),
        &["lighter flash --board raspi3b --name shed --to /media/card"],
    ));
}
