//! `lighter boards`: the boards there are, and whether the node trusts them.

use api_types::BoardInfo;
use clap::Args;
use cli::stop::Result;
use cli::table::Table;
use cli::{Run, Session, locate, words};
use std::time::Duration;

#[derive(Debug, Args)]
pub struct Boards {}

impl Run for Boards {
    fn run(self, session: &Session) -> Result {
        list(session)
    }
}

fn list(session: &Session) -> Result {
    let boards: Vec<BoardInfo> = session.client()?.get("/v1/boards")?;
    if session.out.json {
        return session.out.json(&boards);
    }
    if boards.is_empty() {
        session.out.say(none_heard(session));
        return Ok(());
    }
    let mut table = Table::new(&["BOARD", "STATE", "KIND", "KERNEL", "ADDRESS", ">MEMORY", ">UP", ">RUNS"]);
    for board in &boards {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        table.row([
            board.name.clone(),
            board.state.clone(),
            board.machine.clone(),
            or_dash(&board.kernel),
            or_dash(&board.address),
            board.memory_bytes.map_or_else(|| "-".to_owned(), words::bytes),
            board.uptime_ms.map_or_else(|| "-".to_owned(), |ms| words::duration(Duration::from_millis(ms))),
            board.runs.map_or_else(|| "-".to_owned(), |runs| runs.to_string()),
        ]);
    }
    session.out.table(&table)?;
    for (board, why) in boards.iter().filter_map(|board| Some((board, board.detail.as_ref()?))) {
        session.out.say(format!("{}: {why}", board.name));
    }
    Ok(())
}

/// What to do about it. Of a node of this data folder it is known whether and where it listens.
fn none_heard(session: &Session) -> String {
    let known = || {
        let known = locate::known_node(&locate::data_folder(session.global.data_folder.as_deref()).ok()?)?;
        (session.address().ok()?.url == known.api).then_some(known.beacons)
    };
    match known() {
        Some(Some(port)) => {
            format!("no board was heard on UDP port {port}: `lighter boot --board qemu-arm` starts one here")
        }
        Some(None) => {
            "no board was heard: the node does not listen, `lighter up --boards` starts one that does".to_owned()
        }
        None => "no board was heard: `lighter boot --board qemu-arm` starts one, for a node that listens \
                 (`lighter up --boards`)"
            .to_owned(),
    }
}
