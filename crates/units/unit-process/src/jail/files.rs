//! Landlock: what of the jail's own root may be read and written, no network, no signals to the outside.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::fs;
use std::path::Path;

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
        let reading = AccessFs::from_read(NEWEST);
        domain()?
            .add_rule(PathBeneath::new(root, reading))?
            .add_rule(PathBeneath::new(devices, writing()))?
            .add_rule(PathBeneath::new(scratch, rights))?
            .restrict_self()
    };
    match enforce().map_err(|error: RulesetError| error.to_string())?.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err("this kernel has no Landlock, or it is switched off".to_owned()),
    }
}

/// Puts a child into a domain of its own: of all scratch folders it may touch this one, and signal nobody outside.
/// Where there is no Landlock this does nothing; the node knows of that.
///
/// # Errors
/// The walls cannot be made though there is Landlock.
pub fn restrict_to(scratch: &Path) -> Result<(), String> {
    let entries = fs::read_dir("/").map_err(|error| error.to_string())?.flatten().map(|entry| entry.path());
    let outside: Vec<_> = entries.filter(|path| path != Path::new(super::SCRATCH)).collect();
    let enforce = || {
        let mut domain = domain()?;
        for path in outside {
            let reading = match path.is_dir() {
                true => AccessFs::from_read(NEWEST),
                false => AccessFs::ReadFile | AccessFs::Execute,
            };
            let is_device = path == Path::new("/dev");
            let rights = if is_device { writing() } else { reading };
            // What is gone since is nobody's to read.
            let Ok(place) = PathFd::new(&path) else { continue };
            domain = domain.add_rule(PathBeneath::new(place, rights))?;
        }
        if let Ok(place) = PathFd::new(scratch) {
            domain = domain.add_rule(PathBeneath::new(place, AccessFs::from_all(NEWEST)))?;
        }
        domain.restrict_self()
    };
    enforce().map(drop).map_err(|error: RulesetError| error.to_string())
}

/// Everything that is not allowed by a rule is denied in it.
fn domain() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()
}

fn writing() -> landlock::BitFlags<AccessFs> {
    AccessFs::WriteFile | AccessFs::ReadFile | AccessFs::ReadDir
}

/// Whether this kernel's Landlock cannot keep signals in.
pub fn lets_signals_out() -> bool {
    const VERSION: libc::c_uint = 1;
    // SAFETY: no attributes are given, and none are read.
    #[expect(unsafe_code, reason = "no safe call asks for the version alone")]
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    version < NEWEST as libc::c_long
}
