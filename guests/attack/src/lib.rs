//! A function that misbehaves as its data says, to show that a node and its neighbours do not care.
//!
//! The data is `WORD` or `WORD NUMBER`. An empty or unknown word is answered with the list of words. This one is
//! built with debug information, so that its traps show source lines and a debugger can step through it.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../contracts/wit", generate_all });

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use exports::lighter::unit::handler::{Event, Failure, Guest};
use lighter::unit::queue::Outgoing;
use lighter::unit::types::Error;
use lighter::unit::{clock, log, queue, random, store};

/// The queue it pushes to and pops from.
const OUT: &str = "attacked";

const WORDS: &str = "loop recurse memory log-flood log-line-big panic unreachable out-of-bounds big-reply random-huge \
    clock-loop remember store-flood store-set store-set-then-trap invalid retry fatal failure-big count push \
    push-then-trap push-then-retry push-big push-flood pop pop-then-trap";

/// Calls this unit has served: more than 1 only in a unit that is used again.
static CALLS: AtomicU64 = AtomicU64::new(0);

struct Attack;

impl Guest for Attack {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        std::panic::set_hook(Box::new(|panic| log::write(log::Level::Error, &panic.to_string())));
        let data = String::from_utf8_lossy(&event.data);
        let mut words = data.split_whitespace();
        let word = words.next().unwrap_or("");
        let number: Option<u64> = words.next().and_then(|number| number.parse().ok());
        match word {
            "loop" => spin(),
            "recurse" => Ok(recurse(1).to_string().into_bytes()),
            "memory" => exhaust_memory(),
            "log-flood" => flood_log(number.unwrap_or(u64::MAX)),
            "log-line-big" => {
                log::write(log::Level::Info, &"x".repeat(size(number, 16 << 20)));
                Ok(Vec::new())
            }
            "panic" => panic!("asked to panic"),
            "unreachable" => core::arch::wasm32::unreachable(),
            "out-of-bounds" => read_out_of_bounds(),
            "big-reply" => Ok(vec![b'x'; size(number, 64 << 20)]),
            "random-huge" => Ok(random::bytes(size(number, 1 << 30) as u32)),
            "clock-loop" => loop {
                black_box(clock::now_ms());
            },
            "remember" => Ok((CALLS.fetch_add(1, Ordering::Relaxed) + 1).to_string().into_bytes()),
            "store-flood" => flood_store(number.unwrap_or(u64::MAX)),
            "store-set" => set("written").map(|()| b"written".to_vec()),
            "store-set-then-trap" => {
                set("must never be seen")?;
                core::arch::wasm32::unreachable()
            }
            "invalid" => Err(Failure::Invalid("asked to be invalid".into())),
            "retry" => Err(Failure::Retry(format!("asked to be retried, attempt {}", event.attempt))),
            "fatal" => Err(Failure::Fatal("asked to be fatal".into())),
            "failure-big" => Err(Failure::Fatal("x".repeat(size(number, 16 << 20)))),
            "count" => store::increment("attack", "count", 1).map(|sum| sum.to_string().into_bytes()).map_err(refused),
            "push" => push(number.unwrap_or(1)),
            "push-then-trap" => {
                push(number.unwrap_or(1))?;
                core::arch::wasm32::unreachable()
            }
            "push-then-retry" => {
                push(number.unwrap_or(1))?;
                Err(Failure::Retry("asked to be retried".into()))
            }
            "push-big" => {
                queue::push(OUT, &outgoing(vec![b'x'; size(number, 16 << 20)])).map(|()| Vec::new()).map_err(refused)
            }
            "push-flood" => loop {
                queue::push(OUT, &outgoing(vec![b'x'; 64 << 10])).map_err(refused)?;
            },
            "pop" => pop(),
            "pop-then-trap" => {
                pop()?;
                core::arch::wasm32::unreachable()
            }
            _ => Err(Failure::Invalid(format!("the data is one of: {WORDS}"))),
        }
    }
}

/// The number asked for, or else the default, as a size in bytes.
fn size(number: Option<u64>, default: usize) -> usize {
    number.map_or(default, |number| usize::try_from(number).unwrap_or(usize::MAX))
}

/// Uses its CPU for ever, with no call to the host in which it could be stopped.
#[inline(never)]
fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns).wrapping_add(1);
    }
}

/// Calls itself until the stack is used up.
#[inline(never)]
#[expect(unconditional_recursion, reason = "what this function is for")]
fn recurse(depth: u64) -> u64 {
    recurse(depth + 1) + black_box(depth)
}

/// Takes memory, and touches all of it, until there is none.
#[inline(never)]
fn exhaust_memory() -> ! {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        taken.push(black_box(vec![1; 1 << 20]));
    }
}

/// Writes lines to the log as fast as it can.
#[inline(never)]
fn flood_log(lines: u64) -> Result<Vec<u8>, Failure> {
    for line in 0..lines {
        log::write(log::Level::Info, &format!("line {line} of a flood {}", "x".repeat(200)));
    }
    Ok(Vec::new())
}

/// Writes ever more keys in one handling.
#[inline(never)]
fn flood_store(keys: u64) -> Result<Vec<u8>, Failure> {
    let value = vec![b'x'; 64 << 10];
    for key in 0..keys {
        let written = store::set("attack", &format!("flood/{key}"), &value);
        written.map_err(|error| Failure::Fatal(format!("write {key}: {error:?}")))?;
    }
    Ok(Vec::new())
}

fn set(value: &str) -> Result<(), Failure> {
    store::set("attack", "key", value.as_bytes()).map_err(refused)
}

/// What the host refused; as it should be told to a queue.
fn refused(error: Error) -> Failure {
    match error {
        Error::Unavailable(why) => Failure::Retry(why),
        Error::Denied(why) | Error::Invalid(why) => Failure::Fatal(why),
    }
}

/// Writes to the store, and pushes so many events: the first by itself, the others together.
fn push(count: u64) -> Result<Vec<u8>, Failure> {
    set("pushed")?;
    let mut events = (1..=count).map(|number| outgoing(number.to_string().into_bytes()));
    if let Some(first) = events.next() {
        queue::push(OUT, &first).map_err(refused)?;
    }
    queue::push_all(OUT, &events.collect::<Vec<_>>()).map_err(refused)?;
    Ok(b"pushed".to_vec())
}

fn outgoing(data: Vec<u8>) -> Outgoing {
    Outgoing {
        type_: "attack.pushed".into(),
        subject: Some("attack".into()),
        content_type: Some("text/plain".into()),
        attributes: vec![("partitionkey".into(), "a".into())],
        data,
        delay_ms: None,
        ttl_ms: None,
    }
}

/// Takes an event, and says what its data is.
fn pop() -> Result<Vec<u8>, Failure> {
    Ok(queue::pop(OUT).map_err(refused)?.map_or_else(|| b"nothing".to_vec(), |event| event.data))
}

/// Reads the last word of the address space, where no memory is.
#[inline(never)]
fn read_out_of_bounds() -> ! {
    let nowhere = black_box(0xffff_fff0_usize) as *const u32;
    // SAFETY: not safe at all, on purpose: the read is outside of this guest's memory, so the engine traps.
    let word = unsafe { nowhere.read_volatile() };
    panic!("read {word} where no memory is")
}

export!(Attack);
