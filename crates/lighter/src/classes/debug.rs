//! `lighter debug`: one call of a function under gdb or lldb, with source lines.
//!
//! ```text
//! lighter debug ──image from the node──▶ temporary folder
//!        └─ starts gdb (or lldb) ─▶ lighter debug-run --image … --file …      one call, in that process, and its reply
//! ```
//! The debugger learns of compiled code through the GDB JIT interface. The call stops by itself once that code is
//! there, which is when breakpoints are set; a trap stops at its source line like a signal.
//!
//! `--attach` is another thing: it looks at a unit that works on the node, in `attach.rs`.
//!
//! A microvm function runs in its machine, and gdb talks to its tender: `target remote | lighter debug-run …`. The call
//! stands still before its first instruction.

use super::attach;
use api_types::FunctionInfo;
use clap::Args;
use cli::call::{Data, guessed_type};
use cli::nearest::{explain, function_path};
use cli::output::Output;
use cli::stop::{FAILED, Result, Stop};
use cli::{Brought, DataFolder, Extra, Run, Session, images, locate, words};
use event::Event;
use manifest::{Function, Isolation};
use problem::{Code, Problem};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use unit::{LogLine, LogWriter};

#[derive(Debug, Args)]
pub struct Debug {
    /// Function to debug; build it with debug information
    #[arg(required_unless_present = "attach")]
    name: Option<String>,
    /// Show where in its code a working unit is, and let it go on: its number in `lighter ps`, or NAME#NUMBER
    #[arg(long, value_name = "UNIT", conflicts_with_all = ["name", "text", "file", "gdb", "lldb", "breakpoints", "batch"])]
    attach: Option<String>,
    /// With --attach: write its memory to this file, as a core; this ends the call of a wasm unit
    #[arg(long, short, value_name = "FILE", requires = "attach")]
    output: Option<PathBuf>,
    #[command(flatten)]
    data: Data,
    /// Media type of the data [default: guessed from the data]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Use gdb [default: whichever is installed]
    #[arg(long, conflicts_with = "lldb")]
    gdb: bool,
    /// Use lldb
    #[arg(long)]
    lldb: bool,
    /// Stop at FILE:LINE (hello/src/lib.rs:7) or at a function; may be repeated
    #[arg(long = "break", short, value_name = "WHERE")]
    breakpoints: Vec<String>,
    /// Run without questions: show backtrace and variables at each stop, then go on
    #[arg(long)]
    batch: bool,
    #[command(flatten)]
    _folder: DataFolder,
}

#[derive(Debug, Args)]
pub struct DebugRun {
    /// Component to run
    #[arg(long, value_name = "FILE")]
    image: PathBuf,
    /// The function as JSON: its configuration, grants and limits [default: none granted]
    #[arg(long, value_name = "FILE")]
    function: Option<PathBuf>,
    #[command(flatten)]
    data: Data,
    /// Media type of the data
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Names for the machine code of a microvm function are put here; standard input and output are gdb's
    #[arg(long, value_name = "FILE", conflicts_with = "stop_when_loaded")]
    symbols: Option<PathBuf>,
    /// Raise SIGTRAP when the function is loaded; only for a debugger
    #[arg(long)]
    stop_when_loaded: bool,
    #[command(flatten)]
    _folder: DataFolder,
}

/// Adds the two commands.
pub fn bring(brought: &mut Brought) {
    brought.commands.push(Extra::new::<Debug>(
        "debug",
        "Run one call under gdb or lldb, or look at a unit that works",
        Some("salvage"),
        &[
            "lighter debug hello --data world --break hello/src/lib.rs:7",
            "lighter debug hello --batch",
            "lighter debug --attach hello#7",
        ],
    ));
    let about = "Run one call in this process, for a debugger to watch";
    brought.commands.push(Extra::new::<DebugRun>("debug-run", about, None, &[]));
}

impl Run for Debug {
    fn run(self, session: &Session) -> Result {
        match (&self.attach, &self.name) {
            (Some(unit), _) => attach::run(session, unit, self.output.as_deref()),
            (None, Some(name)) => self.one_call(session, name),
            (None, None) => unreachable!("the command line has one of them"),
        }
    }
}

impl Debug {
    fn one_call(&self, session: &Session, name: &str) -> Result {
        check_all(&self.breakpoints)?;
        if session.out.json {
            let problem = Problem::new(Code::Usage, "a debugger talks to people and prints no JSON");
            return Err(problem.with_hint("leave --json out; --batch asks nothing and prints each stop").into());
        }
        let client = session.client()?;
        let path = function_path(&client, name)?;
        let function: FunctionInfo = client.get(&path).map_err(|stop| explain(&client, name, stop))?;
        let version = function.versions.iter().find(|version| version.version == function.version);
        let version =
            version.ok_or_else(|| Stop::new(Code::VersionUnknown, format!("the node keeps no version of {name:?}")))?;
        let is_remote = match version.function.isolation {
            Isolation::Process => return Err(no_component(name)),
            Isolation::Metal => {
                session.out.say(format!("{name} runs on boards: here it is debugged as the class wasm runs it"));
                false
            }
            Isolation::Wasm => false,
            Isolation::Microvm => true,
        };
        let debugger = self.debugger(is_remote)?;
        let hash = &version.image;
        let progress = session.out.progress();
        progress.step(format!("fetching the image of {name}"));
        let image = client.bytes(client.ask("GET", &format!("/v1/images/{hash}"), ())?, images::IMAGE_BYTES_MAX)?;
        drop(progress);
        let data = self.data.read(session.out)?;
        let kind = self.content_type.clone().unwrap_or_else(|| guessed_type(&data).to_owned());

        // Removed when the debugger has ended.
        let folder = tempfile::tempdir().map_err(|error| Stop::file(&std::env::temp_dir(), &error))?;
        let file = |name: String, content: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, content).map_err(|error| Stop::file(&path, &error)).map(|()| path)
        };
        let program = std::env::current_exe().map_err(|error| Stop::file(Path::new("lighter"), &error))?;
        let symbols = folder.path().join("symbols");
        let mut line: Vec<OsString> = vec![program.into(), "debug-run".into()];
        match is_remote {
            true => line.extend(["--symbols".into(), symbols.clone().into()]),
            false => line.push("--stop-when-loaded".into()),
        }
        line.extend(["--image".into(), file(format!("{name}.wasm"), &image)?.into(), "--function".into()]);
        let manifest = serde_json::to_vec(&version.function).expect("a function is plain data");
        line.extend([file("function.json".to_owned(), &manifest)?.into(), "--file".into()]);
        line.extend([file("data".to_owned(), &data)?.into(), "--content-type".into(), kind.into()]);
        if self.breakpoints.is_empty() && !self.batch {
            session.out.advise(if is_remote { REMOTE_ADVICE } else { debugger.advice() });
        }
        let program = debugger.as_str();
        session
            .out
            .advise(format!("starting {program}: it reads symbols before the call begins, which may take a minute"));
        let script = match is_remote {
            true => remote_script(&line, &symbols, &self.breakpoints, self.batch),
            false => debugger.script(&self.breakpoints, self.batch),
        };
        let script = file("commands".to_owned(), script.as_bytes())?;
        let program = if is_remote { &[] } else { &*line };
        start(debugger, &debugger.arguments(&script, self.batch, program))
    }

    fn debugger(&self, is_remote: bool) -> Result<Debugger> {
        let wanted: &[Debugger] = match (self.gdb, self.lldb) {
            (_, true) if is_remote => {
                let problem = Problem::new(Code::Usage, "a microvm function is debugged with gdb");
                return Err(problem.with_hint("leave --lldb out, or debug it with isolation = \"wasm\"").into());
            }
            (true, _) => &[Debugger::Gdb],
            _ if is_remote => &[Debugger::Gdb],
            (_, true) => &[Debugger::Lldb],
            _ => &[Debugger::Gdb, Debugger::Lldb],
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_installed =
            |debugger: &&Debugger| std::env::split_paths(&path).any(|folder| folder.join(debugger.as_str()).is_file());
        wanted.iter().find(is_installed).copied().ok_or_else(|| {
            let names = wanted.iter().map(|debugger| debugger.as_str()).collect::<Vec<_>>().join(" nor ");
            let problem = Problem::new(Code::ToolMissing, format!("{names} is not installed"));
            problem.with_hint(format!("on Debian: sudo apt install {}", wanted[0].as_str())).into()
        })
    }
}

/// A process function is somebody's own program, and what debugs it is that program's own.
fn no_component(name: &str) -> Stop {
    let problem =
        Problem::new(Code::Usage, format!("{name:?} is a process function: gdb has no source lines of its Python"));
    let hint = format!("print, and watch `lighter logs -f {name}`; or run it here, under pdb: `f.local(x)` in the SDK");
    problem.with_hint(hint).into()
}

/// At each stop: where, with which variables; at the end, the exit code of the call. A breakpoint in a loop is left
/// alone after a while.
const GDB_BATCH: &str = "\
set $stops = 0
while $_isvoid($_exitcode) && $_isvoid($_exitsignal) && $stops < 100
  bt 8
  info locals
  set $stops = $stops + 1
  continue
end
if $_isvoid($_exitcode)
  quit 1
end
quit $_exitcode";

const LLDB_BATCH: &str = "bt 8\nframe variable\ncontinue";

const REMOTE_ADVICE: &str =
    "the call stands before its first instruction: set a breakpoint like `break lib.rs:7`, and `continue`";

/// What gdb is told if the call runs in a machine of its own.
fn remote_script(program: &[OsString], symbols: &Path, breakpoints: &[String], batch: bool) -> String {
    // Through a shell: nothing in a path may mean something to it.
    let program = program.iter().map(|word| words::typed(Path::new(word))).collect::<Vec<_>>().join(" ");
    let mut lines = vec![
        "set confirm off".to_owned(),
        // The component is compiled and linked meanwhile.
        "set remotetimeout 300".to_owned(),
        format!("target remote | {program}"),
        format!("symbol-file \"{}\"", symbols.display()),
    ];
    lines.extend(breakpoints.iter().map(|place| Debugger::Gdb.breakpoint(place)));
    if batch || !breakpoints.is_empty() {
        lines.push("continue".to_owned());
    }
    if batch {
        lines.push(GDB_BATCH.to_owned());
    }
    lines.join("\n") + "\n"
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Debugger {
    Gdb,
    Lldb,
}

impl Debugger {
    fn as_str(self) -> &'static str {
        match self {
            Self::Gdb => "gdb",
            Self::Lldb => "lldb",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Gdb => {
                "`run` stops when the function is loaded: set a breakpoint like `break lib.rs:7` then, and `continue`"
            }
            Self::Lldb => {
                "`run` stops when the function is loaded: `breakpoint set -f lib.rs -l 7` then, and `continue`"
            }
        }
    }

    /// What it is told before the user gets the word, a line each.
    fn script(self, breakpoints: &[String], batch: bool) -> String {
        let mut lines: Vec<String> = match self {
            Self::Gdb => vec!["set breakpoint pending on".to_owned(), "set print thread-events off".to_owned()],
            Self::Lldb => vec!["settings set plugin.jit-loader.gdb.enable on".to_owned()],
        };
        if batch || !breakpoints.is_empty() {
            lines.push("run".to_owned());
            lines.extend(breakpoints.iter().map(|place| self.breakpoint(place)));
            lines.push("continue".to_owned());
        }
        if batch {
            lines.push(if self == Self::Gdb { GDB_BATCH } else { LLDB_BATCH }.to_owned());
        }
        lines.join("\n") + "\n"
    }

    /// Its command line.
    fn arguments(self, script: &Path, batch: bool, program: &[OsString]) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = match self {
            // Neither symbols of system libraries over the network, nor printers for the node's own Rust.
            Self::Gdb => vec!["-q".into(), "-iex".into(), "set debuginfod enabled off".into()],
            Self::Lldb => Vec::new(),
        };
        if self == Self::Gdb {
            arguments.extend(["-iex".into(), "set auto-load python-scripts off".into()]);
        }
        if batch {
            arguments.push(if self == Self::Gdb { "-batch".into() } else { "--batch".into() });
        }
        let (source, separator) = if self == Self::Gdb { ("-x", "--args") } else { ("-s", "--") };
        arguments.extend([source.into(), script.into()]);
        if !program.is_empty() {
            arguments.push(separator.into());
            arguments.extend(program.iter().cloned());
        }
        arguments
    }

    fn breakpoint(self, place: &str) -> String {
        match (self, place.rsplit_once(':')) {
            (Self::Lldb, Some((file, line))) if line.parse::<u32>().is_ok() => {
                format!("breakpoint set -f {file} -l {line}")
            }
            (Self::Lldb, _) => format!("breakpoint set -n {place}"),
            (Self::Gdb, _) => format!("break {place}"),
        }
    }
}

/// A place becomes part of a debugger's command, so it may hold nothing that begins another.
fn check_all(breakpoints: &[String]) -> Result {
    let fits = |c: char| c.is_alphanumeric() || "._-/:<>$@,*&+ ()".contains(c);
    match breakpoints.iter().find(|place| place.is_empty() || !place.chars().all(fits)) {
        Some(place) => {
            let problem = Problem::new(Code::Usage, format!("{place:?} is not a place to stop"));
            Err(problem.with_hint("write it like lib.rs:7, or the name of a function").into())
        }
        None => Ok(()),
    }
}

fn start(debugger: Debugger, arguments: &[OsString]) -> Result {
    thread::spawn(leave_interrupts_to_the_debugger);
    let mut command = Command::new(debugger.as_str());
    command.args(arguments);
    locate::keep_tokens_from(&mut command);
    let status =
        command.status().map_err(|error| Stop::new(Code::ToolMissing, format!("{}: {error}", debugger.as_str())))?;
    if status.success() { Ok(()) } else { Err(Stop::Status(FAILED)) }
}

/// Ctrl-C stops the call and gives the word to the debugger; this process, which waits for it, takes no notice.
fn leave_interrupts_to_the_debugger() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        loop {
            tokio::signal::ctrl_c().await?;
        }
    })
}

/// Logs to standard error, where a terminal may be.
struct Standard(Output);

impl LogWriter for Standard {
    fn write(&self, line: LogLine<'_>) {
        self.0.complain(format_args!("{} {}", line.level.as_str(), line.message));
    }
}

impl Run for DebugRun {
    fn run(self, session: &Session) -> Result {
        let out = session.out;
        let data = self.data.read(out)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let event = Event {
            id: "debug".to_owned(),
            source: "/debug".to_owned(),
            kind: "lighter.call".to_owned(),
            time_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            content_type: self.content_type.clone(),
            attempt: 1,
            data,
            ..Event::default()
        };
        let function = match &self.function {
            None => Function::new("debug"),
            Some(path) => {
                let bytes = fs::read(path).map_err(|error| Stop::file(path, &error))?;
                serde_json::from_slice(&bytes)
                    .map_err(|error| Stop::new(Code::ManifestValue, format!("{}: {error}", path.display())))?
            }
        };
        if let Some(symbols) = &self.symbols {
            return Ok(in_microvm(&self.image, function, event, symbols, out)?);
        }
        let prepare =
            || unit_wasm::debug::prepare(&self.image, function, self.stop_when_loaded, Arc::new(Standard(out)));
        out.made(&handling::once(prepare, event)?, "the reply")
    }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn in_microvm(
    image: &Path,
    function: Function,
    event: Event,
    symbols: &Path,
    out: Output,
) -> std::result::Result<(), Problem> {
    let mut gdb = None;
    let reply = handling::once(
        || {
            let talk = (io::stdin(), io::stdout());
            let (prepared, other_end) =
                unit_microvm::debug::prepare(image, function, symbols, Arc::new(Standard(out)), talk)?;
            gdb = Some(other_end);
            Ok(prepared)
        },
        event,
    );
    // How the call itself ends is for gdb to hear.
    match gdb {
        Some(gdb) => gdb.ended(reply),
        None => drop(reply?),
    }
    Ok(())
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn in_microvm(_: &Path, _: Function, _: Event, _: &Path, _: Output) -> std::result::Result<(), Problem> {
    Err(Problem::new(Code::KvmUnavailable, "there are no microvms on this kind of machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(debugger: Debugger, breakpoints: &[&str], batch: bool) -> String {
        let breakpoints: Vec<String> = breakpoints.iter().map(|place| (*place).to_owned()).collect();
        debugger.script(&breakpoints, batch)
    }

    #[test]
    fn breakpoints_are_set_once_the_function_is_loaded() {
        assert_eq!(
            script(Debugger::Gdb, &["lib.rs:7"], false),
            "set breakpoint pending on\nset print thread-events off\nrun\nbreak lib.rs:7\ncontinue\n"
        );
        assert_eq!(
            script(Debugger::Lldb, &["lib.rs:7", "handle"], true),
            "settings set plugin.jit-loader.gdb.enable on\nrun\nbreakpoint set -f lib.rs -l 7\nbreakpoint set -n handle\n\
             continue\nbt 8\nframe variable\ncontinue\n"
        );
        assert!(!script(Debugger::Gdb, &[], false).contains("run"), "without a breakpoint the user sets one first");
    }

    #[test]
    fn the_program_comes_last_on_the_debuggers_command_line() {
        let words = |debugger: Debugger| {
            let words = debugger.arguments(Path::new("script"), true, &["lighter".into(), "debug-run".into()]);
            words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join("|")
        };
        assert!(words(Debugger::Gdb).ends_with("|-batch|-x|script|--args|lighter|debug-run"));
        assert_eq!(words(Debugger::Lldb), "--batch|-s|script|--|lighter|debug-run");
    }

    #[test]
    fn a_microvm_is_reached_through_a_shell_that_reads_nothing_into_paths() {
        let program = ["/a b/lighter".into(), "it's $HOME".into()];
        let said = remote_script(&program, Path::new("/t/symbols"), &["lib.rs:7".to_owned()], false);
        let wanted =
            "target remote | '/a b/lighter' 'it'\\''s $HOME'\nsymbol-file \"/t/symbols\"\nbreak lib.rs:7\ncontinue\n";
        assert!(said.ends_with(wanted), "{said}");
    }

    #[test]
    fn a_breakpoint_cannot_be_another_command() {
        for bad in ["x\nshell id", "a;b", "`x`", "", "a|b", "x if $_shell(\"id\")"] {
            assert!(check_all(&[bad.to_owned()]).is_err(), "{bad:?}");
        }
        check_all(&["src/lib.rs:7".to_owned(), "hello::handle".to_owned(), "*0x12".to_owned()]).unwrap();
    }
}
