//! `lighter ps`: the units that exist now.

use super::stop::Result;
use super::table::Table;
use super::{Session, words};
use api_types::UnitInfo;
use std::time::Duration;

pub fn run(session: &Session) -> Result {
    let units: Vec<UnitInfo> = session.client()?.get("/v1/units")?;
    if session.out.json {
        return session.out.json(&units);
    }
    if units.is_empty() {
        session.out.say("no unit exists now: each lives as long as its call, unless units.reuse_calls keeps it");
        return Ok(());
    }
    let mut table = Table::new(&[">UNIT", "FUNCTION", ">VERSION", "CLASS", ">AGE", ">CALLS", "SERVES"]);
    for unit in units {
        table.row([
            unit.unit.to_string(),
            unit.function,
            unit.version.to_string(),
            unit.isolation,
            words::duration(Duration::from_millis(unit.age_ms)),
            unit.calls.to_string(),
            unit.request_id.unwrap_or_else(|| "(waits for a call)".to_owned()),
        ]);
    }
    session.out.table(&table)
}
