//! `units.batch`: which functions may have several events handled together.

use crate::Name;
use crate::function::{Grants, Units, in_range};
use problem::{Code, Problem};

/// # Errors
/// [`Code::ManifestValue`]: out of its range. [`Code::ManifestConflict`]: the function sends requests.
pub fn check(name: &Name, units: &Units, grants: &Grants) -> Result<(), Problem> {
    in_range(name, "units.batch", units.batch, 1..=256)?;
    if units.batch == 1 || grants.hosts.is_empty() {
        return Ok(());
    }
    let detail = format!("function {:?}: units.batch is {} and grants.hosts is not empty", name.as_str(), units.batch);
    let hint = "a request that leaves in the middle of a batch would tell of what may still be undone: leave out one \
                of the two, or let another function send";
    Err(Problem::new(Code::ManifestConflict, detail).with_hint(hint))
}
