//! Landlock: what of the jail's own root may be read and written, no network, no signals to the outside.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

/// The newest version whose rights are asked for; an older kernel gives those it has.
const NEWEST: ABI = ABI::V6;

/// Puts this process, and all it starts, into a Landlock domain.
///
/// # Errors
/// The kernel has no Landlock, or it is not the whole of what must be: says what is missing.
pub fn restrict() -> Result<(), String> {
    let rights = AccessFs::from_all(NEWEST);
    let open = |path: &str| PathFd::new(path).map_err(|error| error.to_string());
    let (root, devices, scratch) = (open("/")?, open("/dev")?, open(super::SCRATCH)?);
    let enforce = || {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(rights)?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?;
        let reading = AccessFs::from_read(NEWEST);
        let writing = AccessFs::WriteFile | AccessFs::ReadFile | AccessFs::ReadDir;
        ruleset
            .add_rule(PathBeneath::new(root, reading))?
            .add_rule(PathBeneath::new(devices, writing))?
            .add_rule(PathBeneath::new(scratch, rights))?
            .restrict_self()
    };
    match enforce().map_err(|error: landlock::RulesetError| error.to_string())?.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err("this kernel has no Landlock, or it is switched off".to_owned()),
    }
}
