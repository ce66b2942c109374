//! Real gdb: on a unit at work, and on the core file of one that crashed.
//!
//! Skipped without KVM or gdb; a line then says so.

use event::Event;
use manifest::Function;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use unit::{LogLine, LogWriter};
use unit_microvm::{MicrovmClass, debug};

const ATTACK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../guests/prebuilt/attack.wasm");

/// A register that a function may change.
const FIRST: &str = if cfg!(target_arch = "x86_64") { "rax" } else { "x0" };

struct Silent;

impl LogWriter for Silent {
    fn write(&self, _: LogLine<'_>) {}
}

fn is_possible() -> bool {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let kvm = MicrovmClass::new().unwrap().available();
    let gdb = Command::new("gdb").arg("--version").output();
    match (&kvm, &gdb) {
        (Err(problem), _) => println!("skipped: kvm: the debugger of microvm units: {problem}"),
        (_, Err(error)) => println!("skipped: gdb: the debugger of microvm units: {error}"),
        _ => {}
    }
    kvm.is_ok() && gdb.is_ok()
}

/// What gdb prints for these commands.
fn gdb(commands: &[String]) -> String {
    let mut line = Command::new("timeout");
    line.args(["60", "gdb", "-q", "-nx", "-batch", "-iex", "set debuginfod enabled off"]);
    for command in commands {
        line.args(["-ex", command]);
    }
    let output = line.output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A session with one call of `attack` with this data: what gdb prints.
fn session(data: &str, commands: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (socket, symbols) = (folder.path().join("gdb"), folder.path().join("symbols"));
    let listener = UnixListener::bind(&socket).unwrap();
    let mut all = vec![
        "set remotetimeout 60".to_owned(),
        format!("target remote {}", socket.display()),
        format!("file {}", symbols.display()),
    ];
    all.extend(commands.iter().map(|command| (*command).to_owned()));
    let event = Event { kind: "debug".into(), attempt: 1, data: data.into(), ..Event::default() };
    thread::scope(|scope| {
        scope.spawn(|| {
            let stream = listener.accept().unwrap().0;
            // Written to as a file: behind its filter the tender sends nothing by sockets.
            let out = File::from(OwnedFd::from(stream.try_clone().unwrap()));
            let line = (stream, out);
            let mut gdb = None;
            let reply = handling::once(
                || {
                    let (image, function) = (Path::new(ATTACK), Function::new("debug"));
                    let (prepared, other_end) = debug::prepare(image, function, &symbols, Arc::new(Silent), line)?;
                    gdb = Some(other_end);
                    Ok(prepared)
                },
                event,
            );
            gdb.unwrap().ended(reply);
        });
        let said = gdb(&all);
        std::fs::copy(&symbols, "/tmp/syms").unwrap();
        said
    })
}

#[test]
fn breakpoints_registers_memory_and_steps() {
    if !is_possible() {
        return;
    }
    let said = session(
        "recurse",
        &[
            "break attack::recurse",
            "continue",
            "info registers pc sp",
            "x/2i $pc",
            "stepi",
            "info symbol $pc",
            &format!("set $saved = ${FIRST}"),
            &format!("set ${FIRST} = 0x1234"),
            &format!("print/x ${FIRST}"),
            &format!("set ${FIRST} = $saved"),
            "x/1gx 0x100000",
            "set {int}($sp - 64) = 77",
            "print {int}($sp - 64)",
            "backtrace 3",
            "continue",
            "delete",
            "continue",
            "print $_exitcode",
        ],
    );
    println!("{said}");
    for wanted in
        ["Breakpoint 1, ", "attack::recurse", "lib.rs:", "0x1234", "0x0072657468676", "= 77", "#1 ", "exited", "L3005"]
    {
        assert!(said.contains(wanted), "{wanted}");
    }
}

#[test]
fn a_line_is_stopped_at_and_a_call_ends_well() {
    if !is_possible() {
        return;
    }
    const SOURCE: &str = include_str!("../../../../guests/attack/src/lib.rs");
    let line = SOURCE.lines().position(|line| line.starts_with("fn flood_log(")).unwrap() + 1;
    let place = format!("lib.rs:{line}");
    let commands = [&*format!("break {place}"), "continue", "next", "delete", "continue", "print $_exitcode"];
    let said = session("log-flood 2", &commands);
    println!("{said}");
    for wanted in ["Breakpoint 1, attack::flood_log", &*place, "exited normally", "= 0"] {
        assert!(said.contains(wanted), "{wanted}");
    }
}

#[test]
fn a_loop_is_interrupted_and_a_debugger_that_leaves_ends_its_unit() {
    if !is_possible() {
        return;
    }
    // The session's thread ends as well: the test does.
    let said = session("loop", &["break attack::spin", "continue", "stepi", "stepi", "kill"]);
    println!("{said}");
    assert!(said.contains("Breakpoint 1, attack::spin") && said.contains("killed"), "{said}");
}
