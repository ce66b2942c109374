//! Somebody attaches to a machine at work: it is stopped, its registers and the way it came are read, and it goes on.
//!
//! ```text
//!   attach ── Look + signal ──▶ tender's thread: the guest has left its processor ── Found ──▶ log; and it goes on
//! ```
//! Frames are found by frame pointers, which all code of components has, within the machine's own memory: what stands
//! there is the unit's word, and only shown.

use crate::core_dump;
use crate::prepared::PreparedMicrovm;
use crate::processor::Registers;
use crate::vm::Vm;
use problem::{Code, Problem};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use unit::{Prepared, Seen, ended_meanwhile};

/// How long a machine may take to stand still. One that waits for its host does so already, and is seen after it.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Return addresses that are followed.
const FRAMES: usize = 64;

/// What somebody wants to see.
pub struct Look {
    wants_core: bool,
    found: oneshot::Sender<io::Result<Found>>,
}

struct Found {
    registers: Registers,
    returns: Vec<u64>,
    core: Option<Vec<u8>>,
}

impl Look {
    /// Shows the guest, which stands still.
    pub fn show(self, vm: &Vm) {
        let found = vm.registers().and_then(|registers| {
            let core = if self.wants_core { Some(core_dump::write(vm.memory(), &registers)?) } else { None };
            Ok(Found { returns: returns(vm, &registers), registers, core })
        });
        // Whoever asked may have gone.
        drop(self.found.send(found));
    }
}

/// The return addresses on the stack, the innermost first.
fn returns(vm: &Vm, registers: &Registers) -> Vec<u64> {
    let mut frame = registers.frame();
    let mut found = Vec::new();
    while found.len() < FRAMES {
        let mut words = [0; 16];
        if vm.memory().read(frame, &mut words).is_err() {
            break;
        }
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().expect("eight of sixteen bytes"));
        let (next, back) = (word(0), word(8));
        if back == 0 {
            break;
        }
        found.push(back);
        // Frames of callers lie above.
        if next <= frame {
            break;
        }
        frame = next;
    }
    found
}

pub async fn attach(prepared: Arc<PreparedMicrovm>, unit: u64, wants_core: bool) -> Result<Seen, Problem> {
    let clock = prepared.at_work.find(unit)?;
    let (found, is_found) = oneshot::channel();
    clock.look(Look { wants_core, found });
    let Ok(answered) = tokio::time::timeout(ANSWER_WAIT, is_found).await else {
        return Err(match prepared.at_work.has(unit) {
            true => {
                unit::refused(format!("unit {unit} runs no code now: it waits for its host")).with_hint("try again")
            }
            false => ended_meanwhile(unit),
        });
    };
    let found = answered.map_err(|_| ended_meanwhile(unit))?;
    let found = found.map_err(|error| Problem::new(Code::AttachRefused, format!("KVM does not show it: {error}")))?;
    let mut lines = vec![format!("stopped at {:#x}, and gone on; its registers:", found.registers.pc())];
    lines.extend(crate::attempt::registers(&found.registers.words()).lines().map(str::to_owned));
    lines.push("it came from, the innermost first:".to_owned());
    lines.extend(found.returns.iter().map(|back| format!("  {back:#x}")));
    lines.push(format!("`lighter debug {}` shows a call of it with source lines", prepared.deployed().name));
    Ok(Seen { lines, core: found.core })
}
