//! Reads whole tables of the node's records, page by page.

use problem::{Code, Problem};
use state::Records;

/// Hands every record of the table to `take`, in the order of their keys; ends at its first problem.
pub fn each(records: &Records, mut take: impl FnMut(&str, &[u8]) -> Result<(), Problem>) -> Result<(), Problem> {
    let mut after: Option<String> = None;
    loop {
        let page = records.list("", after.as_deref(), state::LIMIT_MAX)?;
        for entry in &page.entries {
            take(&entry.key, &entry.value)?;
        }
        match page.next {
            Some(next) if after.as_ref() == Some(&next) => {
                return Err(Problem::new(
                    Code::StateCorrupt,
                    format!("reading the records does not go on after {next:?}"),
                ));
            }
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}
