//! `lighter boards`: the boards there are, and whether the node trusts them.

use super::stop::Result;
use super::table::Table;
use super::{Session, words};
use crate::api::types::BoardInfo;
use std::time::Duration;

pub fn run(session: &Session) -> Result {
    let boards: Vec<BoardInfo> = session.client()?.get("/v1/boards")?;
    if session.out.json {
        return session.out.json(&boards);
    }
    if boards.is_empty() {
        session.out.say("no board was heard: `lighter boot --board virt` starts one here, for a node that listens (`lighter up --boards`)");
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
