//! Guests whose memory is rewritten while somebody looks.
#![expect(unsafe_code, reason = "a thread writes to the memory of a guest while its tender looks, which no guest can")]

use super::{Code, hello, made, recipe, runtime};
use crate::guest::{EXIT_BYTES, Machine};
use crate::stock::Stock;
use crate::tender::{Ask, Recipe, TenderInner, What};
use kernel_abi::exits::{Exit, hatch};
use kernel_abi::{Policy, layout};
use kvm_ioctls::Kvm;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A guest with one processor stands still while its tender looks. Here is one that does not: a thread of ours rewrites
/// its call page and log ring all the time. What the tender believes is what it checked, so that is what comes out.
#[test]
fn a_guest_that_writes_while_its_tender_looks_gets_no_further_than_one_that_lies() {
    let Some((class, _)) = hello() else { return };
    let kvm = class.shared.kvm().unwrap();
    let began = Instant::now();
    let (mut messages, mut ends) = (0, [0; 2]);
    for turn in 0.. {
        // Long enough to have met many messages, however busy the machine is.
        let has_met = messages > 100 && ends[1] > 0;
        if began.elapsed() > Duration::from_secs(if has_met { 3 } else { 60 }) {
            break;
        }
        // There is seldom anything to fetch.
        let second = if turn % 4 == 3 { Exit::Fetch } else { Exit::Log };
        let exits = [Exit::Call, second, Exit::Receive];
        // Says whatever stands in its call page, again and again.
        let recipe = recipe(&exits.into_iter().fold(Code::default(), Code::exit).again()).unwrap();
        let (heard, lied) = race(&kvm, &recipe);
        messages += heard;
        ends[usize::from(lied)] += 1;
    }
    println!("{messages} messages; {} machines ended by what they said, {} by us", ends[1], ends[0]);
    assert!(messages > 100 && ends[1] > 0);
}

/// The same while it is heard without exits: what it counts, to which port it would write, and what is answered, are
/// rewritten too. One that makes whoever asks it wait is ended by the time of its call, here by ours.
#[test]
fn a_guest_that_writes_while_it_is_heard_gets_no_further_either() {
    let Some((class, _)) = hello() else { return };
    let exits = [Exit::Call, Exit::Log, Exit::Receive].into_iter().fold(Code::default(), Code::exit);
    let recipe = recipe(&exits.again()).unwrap();
    let stock = Stock::new(class.shared.kvm().unwrap());
    let (bytes_max, heap) = (recipe.body_bytes + EXIT_BYTES, recipe.snapshot.heap());
    let began = Instant::now();
    let (mut messages, mut lied) = (0, 0);
    while began.elapsed() < Duration::from_secs(if messages > 100 && lied > 0 { 3 } else { 60 }) {
        let mut tender = made(|done| stock.start(recipe.clone(), 1, done)).unwrap();
        let hatch = tender.clock().hatch();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let over = Over(&is_over);
            scope.spawn(|| rewrite(hatch.place(), &heap, &is_over));
            tender.begin_heard(b"no event".to_vec(), &recipe, true);
            for turn in 0..500 {
                let heard = async { tokio::time::timeout(Duration::from_millis(100), tender.told()).await };
                let Ok(told) = runtime().block_on(heard) else { break };
                messages += 1;
                match told.what {
                    What::Asks { verb, request } => {
                        assert!(Policy::least().allows(verb) && request.len() as u64 <= bytes_max);
                        tender.answer(vec![7; turn * 10]);
                    }
                    What::Replied { reply, .. } => {
                        assert!(reply.len() as u64 <= bytes_max);
                        tender.begin_heard(vec![9; turn * 140], &recipe, true);
                    }
                    What::Lines => {}
                    What::Lied(_) => {
                        lied += 1;
                        break;
                    }
                    // Its thread was told of another thing than it waited for.
                    What::Stopped | What::Failed(_) => break,
                    other => panic!("{other:?}"),
                }
            }
            drop(over);
        });
    }
    println!("{messages} messages, {lied} lies");
    assert!(messages > 100 && lied > 0);
}

/// Messages of a machine whose memory is rewritten while it runs, and whether it lied at last.
fn race(kvm: &Kvm, recipe: &Arc<Recipe>) -> (usize, bool) {
    let (ask, asked) = std::sync::mpsc::channel();
    let (tell, mut heard) = tokio::sync::mpsc::channel(4);
    let (placed, place) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut machine = Machine::new(kvm, 96 << 20, Arc::new(TenderInner::default()), tell).unwrap();
            placed.send(machine.place()).unwrap();
            machine.serve(&asked);
            // Its memory is there until nobody writes to it any more.
            let _ = gone.recv();
        });
        let place = place.recv().unwrap();
        let (become_it, became) = std::sync::mpsc::channel();
        let made = Box::new(move |made: Result<_, _>| become_it.send(made.unwrap()).unwrap());
        ask.send(Ask::Become(recipe.clone(), made)).unwrap();
        // Nothing can be written before.
        became.recv().unwrap();
        let (heap, is_over) = (recipe.snapshot.heap(), &is_over);
        let over = Over(is_over);
        scope.spawn(move || {
            rewrite(place, &heap, is_over);
            drop(go);
        });
        ask.send(Ask::Event(b"no event".to_vec())).unwrap();
        // What is too long for the function is a lie; anything else may be true.
        let bytes_max = recipe.body_bytes + EXIT_BYTES;
        let (mut messages, mut lied) = (0, false);
        while let Some(told) = heard.blocking_recv() {
            messages += 1;
            assert!(told.lines.iter().map(|(_, text)| text.len() as u64).sum::<u64>() <= layout::LOG_BYTES);
            match told.what {
                What::Asks { verb, request } => {
                    assert!(Policy::least().allows(verb) && request.len() as u64 <= bytes_max);
                    ask.send(Ask::Answer(vec![7; messages % 5_000])).unwrap();
                }
                What::Replied { reply, .. } => {
                    assert!(reply.len() as u64 <= bytes_max);
                    ask.send(Ask::Event(vec![9; messages % 70_000])).unwrap();
                }
                What::Lines => {}
                What::Lied(_) => lied = true,
                other => panic!("{other:?}"),
            }
            if lied || messages == 2_000 {
                break;
            }
        }
        drop((over, ask, heard));
        (messages, lied)
    })
}

/// Ends the writing, also where the test fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Writes what could be true, and now and then what cannot, to the words of a call page and the beginning of a log
/// ring.
fn rewrite(place: u64, heap: &std::ops::Range<u64>, is_over: &AtomicBool) {
    let likely: [&[u64]; 5] = [
        &[0, 3, 7, 10, 11],
        &[heap.start, heap.end - 4_096, layout::STACK, layout::KERNEL],
        &[0, 8, 24, 4_096],
        &[layout::INBOX, heap.start, heap.end - 4_096],
        &[8, 64, 4_096],
    ];
    let lies = [u64::MAX, heap.end - 8, layout::PAGE_TABLES, layout::CALL, 1 << 40, layout::INBOX_BYTES + 1];
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let write = |at: u64, value: u64| {
        let word = std::ptr::with_exposed_provenance_mut::<u64>(usize::try_from(place + at).unwrap());
        // SAFETY: within the machine's memory, which stays mapped until this function has returned.
        unsafe { word.write_volatile(value) };
    };
    while !is_over.load(SeqCst) {
        let index = random(5);
        let choices = likely[index];
        let value = if random(2_000) == 0 { lies[random(lies.len())] } else { choices[random(choices.len())] };
        write(layout::CALL + 8 * index as u64, value);
        match random(8) {
            0 => write(hatch::ASKED, random(4) as u64),
            1 => write(hatch::PORT, [Exit::Call, Exit::Receive, Exit::Log][random(3)].port().into()),
            2 => write(hatch::ANSWERED, random(4) as u64),
            _ => {}
        }
        let lengths = [4, 12, 40, 0x20_0000_0008, 8 << 32 | 24, u64::MAX];
        write(layout::LOG + 8 * random(6) as u64, lengths[random(lengths.len())]);
    }
}
