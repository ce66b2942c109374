//! What runs inside: process 1 of the new namespaces builds the walls, and its only child becomes the interpreter.
//!
//! Descriptors: 0 the control socket, 1 and 2 pipes of the log, 3 the bundle, 4 the keeper's socket. Nothing else is
//! open.

use super::{
    MESSAGE_BYTES_MAX, Missing, Protection, Report, Settings, files, keeper, mounts, rights, syscalls, zygote,
};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// A step that failed.
pub struct Failed {
    pub step: String,
    pub why: String,
}

impl Failed {
    pub fn at(step: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let step = step.into();
        move |error| Self { step, why: error.to_string() }
    }
}

/// Runs as the hidden command of the node's program. Returns only if the jail could not be built, or after a probe.
pub fn main() -> ExitCode {
    let Some(control) = Control::take() else {
        eprintln!("this command is for a node to start its jails with");
        return ExitCode::from(2);
    };
    match build(&control) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(program)) => failed(&control, zygote::run(&control.0, program)),
        Err(why) => failed(&control, why),
    }
}

fn failed(control: &Control, Failed { step, why }: Failed) -> ExitCode {
    control.say(&Report::Failed { step, why });
    ExitCode::FAILURE
}

/// Builds the walls, and becomes the zygote; or returns the program that the jail's own zygote starts. None: a probe.
fn build(control: &Control) -> Result<Option<Exec>, Failed> {
    let settings: Settings = control.hear()?;
    let mut missing = Vec::new();
    let code = read_code()?;
    rights::give_up_names()?;
    mounts::build(&settings, &code)?;
    drop(code);
    if let Some(user) = settings.outer_user {
        missing.extend(enter_user_namespace(control, user)?);
    }
    rights::drop_all(settings.processes)?;
    let program = exec_arguments(&settings);
    keeper::part()?;
    if let Err(error) = files::restrict() {
        missing.push(Missing { protection: Protection::Landlock, why: error });
    }
    control.say(&Report::Stands { missing });
    // The node looks who it is while it can be nobody else.
    control.hear::<()>()?;
    syscalls::restrict().map_err(|why| Failed { step: "system call filter".into(), why })?;
    match settings {
        Settings { probe: true, .. } => return Ok(None),
        Settings { anew: true, .. } => return Ok(Some(program)),
        _ => {}
    }
    Err(Failed::at(format!("starting {}", settings.program.display()))(program.exec()))
}

/// The bundle, whole; a probe has none.
fn read_code() -> Result<Vec<u8>, Failed> {
    // SAFETY: whoever starts a jail opens descriptor 3 for it, and nothing else in this process knows of it.
    #[expect(unsafe_code, reason = "taking over an inherited descriptor")]
    let file = unsafe { OwnedFd::from_raw_fd(3) };
    let mut code = Vec::new();
    File::from(file).read_to_end(&mut code).map_err(Failed::at("reading the bundle"))?;
    Ok(code)
}

/// As root: a user namespace in which the jail's user is one that nobody else has.
fn enter_user_namespace(control: &Control, user: u32) -> Result<Option<Missing>, Failed> {
    if let Err(error) = rights::unshare_user() {
        rights::become_user(user).map_err(Failed::at("changing the user"))?;
        return Ok(Some(Missing { protection: Protection::UserNamespace, why: error.to_string() }));
    }
    control.say(&Report::Map);
    control.hear::<()>()?;
    rights::become_user(super::USER).map_err(Failed::at("changing the user"))?;
    Ok(None)
}

/// Everything that is needed to become another program, made while memory can still be had.
pub struct Exec {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

fn exec_arguments(settings: &Settings) -> Exec {
    let text = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
    let program = text(settings.program.as_os_str().as_bytes());
    let arguments = std::iter::once(program.clone()).chain(settings.arguments.iter().map(|a| text(a.as_bytes())));
    let environment = settings.environment.iter().map(|(name, value)| text(format!("{name}={value}").as_bytes()));
    Exec { arguments: arguments.collect(), environment: environment.collect(), program }
}

impl Exec {
    /// The same with `text` in the place of each `word` of its arguments and its environment.
    pub fn with(&self, word: &str, text: &str) -> Self {
        let replaced = |all: &[CString]| {
            let one = |one: &CString| CString::new(one.to_string_lossy().replace(word, text)).unwrap_or_default();
            all.iter().map(one).collect()
        };
        let (arguments, environment) = (replaced(&self.arguments), replaced(&self.environment));
        Self { program: self.program.clone(), arguments, environment }
    }

    /// Returns only if it did not.
    pub fn exec(&self) -> io::Error {
        let pointers = |texts: &[CString]| {
            let all = texts.iter().map(|text| text.as_ptr());
            all.chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        // SAFETY: both lists end with a null pointer, and all they point to lives until the call returns.
        #[expect(unsafe_code, reason = "becoming another program")]
        unsafe {
            libc::execve(self.program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        }
        io::Error::last_os_error()
    }
}

/// The jail's end of the control socket, descriptor 0.
struct Control(OwnedFd);

impl Control {
    /// None if descriptor 0 is no socket of packets, as when somebody tries the command by hand.
    fn take() -> Option<Self> {
        let mut kind: libc::c_int = 0;
        let mut size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `kind` and `size` are valid for writes and as large as is said.
        #[expect(unsafe_code, reason = "asking what descriptor 0 is")]
        let asked =
            unsafe { libc::getsockopt(0, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &raw mut size) };
        if asked != 0 || kind != libc::SOCK_SEQPACKET {
            return None;
        }
        // SAFETY: it is open, and the standard input of this process is used nowhere else.
        #[expect(unsafe_code, reason = "taking over an inherited descriptor")]
        Some(Self(unsafe { OwnedFd::from_raw_fd(0) }))
    }

    fn hear<T: serde::de::DeserializeOwned>(&self) -> Result<T, Failed> {
        let mut message = vec![0; MESSAGE_BYTES_MAX];
        // SAFETY: the buffer is valid for writes of its length.
        #[expect(unsafe_code, reason = "no safe call receives one packet")]
        let got = unsafe { libc::recv(self.0.as_raw_fd(), message.as_mut_ptr().cast(), message.len(), 0) };
        let got = usize::try_from(got).map_err(|_| Failed::at("hearing the node")(io::Error::last_os_error()))?;
        serde_json::from_slice(&message[..got])
            .map_err(|error| Failed { step: "hearing the node".into(), why: error.to_string() })
    }

    /// A node that is gone hears nothing; the jail ends with it.
    fn say(&self, report: &Report) {
        let message = serde_json::to_vec(report).expect("texts");
        // SAFETY: the buffer is valid for reads of its length.
        #[expect(unsafe_code, reason = "no safe call sends one packet")]
        let _ = unsafe { libc::send(self.0.as_raw_fd(), message.as_ptr().cast(), message.len(), libc::MSG_NOSIGNAL) };
    }
}
