//! What a kernel must never do, done on purpose. An image of a board with this instead of the serverkernel does what its
//! name in the settings says: the machine must report it and start again.
#![no_std]
#![expect(unsafe_code, reason = "mistakes are what this crate is for")]

extern crate alloc;

use alloc::vec;
use arch_metal::report::Console;
use arch_metal::{CodePages, Pages, measured, set_alarm};
use board_link::Settings;
use core::fmt::Write;
use core::hint::black_box;
use core::ptr;

#[cfg(target_arch = "aarch64")]
const RETURN: [u8; 4] = 0xd65f_03c0_u32.to_le_bytes();
#[cfg(target_arch = "x86_64")]
const RETURN: [u8; 1] = [0xc3];

const HANG_US: u64 = 300_000;

/// Does what the settings say. Who comes back to tell lived through it, which is the mistake.
pub fn commit() -> ! {
    let settings = Settings::read(arch_metal::settings()).unwrap_or_else(|fault| panic!("{fault}"));
    let _ = writeln!(Console, "faults: about to {}", settings.name);
    match settings.name.as_str() {
        "write code" => write(measured()[0].as_ptr()),
        "write constants" => write(measured()[1].as_ptr()),
        "write settings" => write(arch_metal::settings().as_ptr()),
        "write published code" => write(published().0),
        "run data" => run(vec![RETURN].leak().as_ptr().cast()),
        "run constants" => run(measured()[1].as_ptr()),
        "run unpublished code" => {
            let (start, _pages) = published();
            // It is code: this comes back.
            run(start);
            let _ = writeln!(Console, "faults: published code runs");
            Pages.unpublish(start, RETURN.len());
            run(start);
        }
        "read nothing" => read(0),
        "read beyond memory" => read(1 << 40),
        "overflow the stack" => {
            black_box(deeper(black_box(1)));
        }
        "panic" => panic!("as it was told"),
        "hang" => {
            set_alarm(HANG_US);
            loop {
                core::hint::spin_loop();
            }
        }
        other => panic!("there is no fault {other:?}"),
    }
    let _ = writeln!(Console, "faults: nothing happened");
    arch_metal::stop()
}

/// Code in pages of its own, and where it starts.
fn published() -> (*const u8, CodePages) {
    let pages = CodePages::copy(&RETURN).expect("there is room for an instruction");
    let start = pages.bytes().cast::<u8>().as_ptr().cast_const();
    Pages.publish(start, RETURN.len());
    (start, pages)
}

fn write(place: *const u8) {
    // SAFETY: it is not: the page must not take it, and what follows is a reset.
    unsafe { place.cast_mut().write_volatile(0) }
}

fn read(address: usize) {
    // SAFETY: it is not: nothing is mapped there, and what follows is a reset.
    black_box(unsafe { ptr::with_exposed_provenance::<u8>(address).read_volatile() });
}

fn run(place: *const u8) {
    // SAFETY: it is one instruction, which returns; or it is not to be run, and what follows is a reset.
    unsafe { core::mem::transmute::<*const u8, extern "C" fn()>(place)() }
}

#[expect(unconditional_recursion, reason = "until the stack ends")]
fn deeper(depth: u64) -> u64 {
    let here = black_box([depth; 64]);
    black_box(deeper(depth + 1)) + here[black_box(0)]
}
