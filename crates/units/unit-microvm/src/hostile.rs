//! Guests that mean harm: machine code of our own making in the place of the kernel, in real machines.
//!
//! Each is written over the instruction at which a snapshot of a good component goes on; what follows is what a
//! function could do that had broken out of its component and taken the kernel.

mod ahead;
mod racing;
mod staying;

use crate::ear::Ear;
use crate::processor::code::{self, Code};
use crate::snapshot::{Parts, Snapshot};
use crate::stock::Stock;
use crate::tender::{Clock, Recipe, Tender, What};
use crate::{MicrovmClass, vm};
use kernel_abi::exits::Exit;
use kernel_abi::{Policy, layout};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const HELLO: &[u8] = include_bytes!("../../../../guests/prebuilt/hello.wasm");

/// An artefact, and whether there is KVM at all.
fn hello() -> Option<(&'static MicrovmClass, &'static [u8])> {
    static MADE: OnceLock<Option<(MicrovmClass, Vec<u8>)>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        // The class's client for outgoing requests belongs to a runtime.
        let runtime = Box::leak(Box::new(tokio::runtime::Runtime::new().unwrap()));
        let _inside = runtime.enter();
        let class = MicrovmClass::new().unwrap();
        if let Err(problem) = class.available() {
            println!("skipped: kvm: hostile guests of microvm units: {problem}");
            return None;
        }
        let artefact = class.link(HELLO).unwrap().0;
        Some((class, artefact))
    });
    made.as_ref().map(|(class, artefact)| (class, artefact.as_slice()))
}

impl Code {
    /// A word of the call page.
    fn word(self, index: u64, value: u64) -> Self {
        self.store(layout::CALL + 8 * index, value)
    }

    fn exit(self, exit: Exit) -> Self {
        self.out(exit.port())
    }
}

/// What machines with this code in the place where they go on are made of; none where there is no KVM. The code runs
/// when an event has come, and not before.
fn recipe(code: &Code) -> Option<Arc<Recipe>> {
    recipe_of(code, false)
}

fn recipe_of(code: &Code, reads_ahead: bool) -> Option<Arc<Recipe>> {
    let (_, artefact) = hello()?;
    let mut artefact = artefact.to_vec();
    let at = {
        let parts = Parts::read(&artefact).unwrap();
        parts.place_of(parts.about.registers.pc()).unwrap()
    };
    artefact[at..at + code.0.len()].copy_from_slice(&code.0);
    let snapshot = Snapshot::lay_out(&Parts::read(&artefact).unwrap(), 16 << 20).unwrap();
    Some(Arc::new(Recipe {
        snapshot: Arc::new(snapshot),
        policy: Policy::least(),
        memory_bytes: 16 << 20,
        body_bytes: 1 << 20,
        dump: true,
        debugger: Mutex::default(),
        reads_ahead,
        ear: Ear::default(),
        rest: Ear::default(),
    }))
}

/// Waits for what is made elsewhere.
fn made<T: Send + 'static>(make: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    make(Box::new(move |made| sender.send(made).unwrap()));
    receiver.recv_timeout(Duration::from_secs(20)).unwrap()
}

/// A machine from nothing.
fn machine(code: &Code) -> Option<Tender> {
    machine_of(recipe(code)?)
}

fn machine_of(recipe: Arc<Recipe>) -> Option<Tender> {
    let stock = Stock::new(hello()?.0.shared.kvm().unwrap());
    Some(made(|done| stock.start(recipe, 1, done)).unwrap())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// What it tells next beside lines.
async fn told(tender: &mut Tender) -> What {
    let heard = async {
        loop {
            match tender.told().await.what {
                What::Lines => {}
                what => return what,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), heard).await.expect("a hostile guest is ended")
}

/// Lets it run, and says how it ended.
fn end(code: &Code) -> Option<What> {
    let mut tender = machine(code)?;
    tender.begin(b"no event".to_vec());
    Some(runtime().block_on(told(&mut tender)))
}

/// Waits until its thread has ended.
#[track_caller]
fn ends(clock: &Clock) {
    let began = Instant::now();
    while clock.is_there() {
        assert!(began.elapsed() < Duration::from_secs(10), "it is stopped");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[track_caller]
fn faults(code: Code) {
    match end(&code) {
        None => {}
        Some(What::Faulted(crash)) => {
            let dump = crash.dump.expect("a core file was asked for");
            assert!(dump.starts_with(b"\x7fELF"));
        }
        Some(other) => panic!("a fault was expected: {other:?}"),
    }
}

#[track_caller]
fn lies(code: Code) {
    match end(&code) {
        None | Some(What::Lied(_)) => {}
        Some(other) => panic!("a lie was expected: {other:?}"),
    }
}

#[test]
fn code_cannot_be_written() {
    faults(Code::default().store(layout::KERNEL, 0));
    faults(Code::default().store(layout::CODE, 0));
}

#[test]
fn data_cannot_be_executed() {
    // A return on the stack, in the inbox, in the log ring: none of it is code.
    for at in [layout::INBOX, layout::LOG + 64, layout::STACK + 64, layout::CALL + 512] {
        faults(Code::default().store(at, code::RETURN).jump(at));
    }
}

#[test]
fn nothing_else_is_mapped() {
    let nowhere =
        [0, 8, layout::PAGE_TABLES, layout::STACK - 8, layout::STACK + layout::STACK_BYTES, layout::KERNEL_END];
    for at in nowhere.into_iter().chain([1 << 30, 100 << 30, u64::MAX - 7, 1 << 47, 0xffff_8000_0000_0000]) {
        faults(Code::default().load(at));
        faults(Code::default().jump(at));
    }
}

#[test]
fn page_tables_and_the_boot_page_cannot_be_written() {
    faults(Code::default().store(layout::PAGE_TABLES, 7));
    faults(Code::default().store(layout::BOOT + 40, u64::MAX));
}

#[test]
fn what_needs_privilege_ends_the_machine() {
    code::privileged().into_iter().for_each(faults);
}

#[test]
fn ports_that_mean_nothing_are_lies() {
    for port in [0x4ff, 0x507, 0x60, 0x3f8] {
        lies(Code::default().out(port));
    }
    lies(Code::default().exit(Exit::Ready));
    lies(Code::default().word(1, layout::CODE).word(2, 4_096).exit(Exit::Publish));
    lies(Code::default().word(1, layout::STACK).word(2, 4_096).exit(Exit::Publish));
}

#[test]
fn pointers_to_what_is_not_its_own_are_lies() {
    for (at, bytes) in [(0, 8), (layout::PAGE_TABLES, 8), (u64::MAX - 3, 8), (layout::STACK, u64::MAX), (1 << 40, 8)] {
        lies(Code::default().word(1, at).word(2, bytes).exit(Exit::Receive));
        lies(Code::default().word(1, at).word(2, bytes).exit(Exit::Panic));
        lies(Code::default().word(0, 10).word(1, at).word(2, bytes).exit(Exit::Call));
    }
    for at in [layout::BOOT, layout::CALL, layout::KERNEL, layout::CODE, layout::PAGE_TABLES, 1 << 40] {
        lies(Code::default().word(3, at).word(4, 8).exit(Exit::Fetch));
    }
    // Nothing was too large, so there is nothing to fetch.
    lies(Code::default().word(3, layout::INBOX).word(4, 8).exit(Exit::Fetch));
}

#[test]
fn a_log_ring_full_of_lies_is_read_as_far_as_it_makes_sense() {
    let code = Code::default().store(layout::LOG, u64::MAX).store(layout::LOG + 8, u64::MAX).exit(Exit::Log);
    faults(code.end());
}

#[test]
fn a_loop_and_a_flood_of_exits_are_stopped() {
    let flood = Code::default().exit(Exit::Log).again();
    for code in [Code::default().spin(), flood] {
        let Some(mut tender) = machine(&code) else { return };
        tender.begin(b"no event".to_vec());
        let clock = tender.clock();
        let began = Instant::now();
        // Its messages are heard by nobody: it waits for that and uses no time, or uses it and is seen to.
        while clock.cpu() < Duration::from_millis(30) && began.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(tender);
        ends(&clock);
    }
}

#[test]
fn a_stop_is_heeded_whenever_it_comes() {
    vm::interrupt_signal();
    for wait in 0..40 {
        let Some(mut tender) = machine(&Code::default().spin()) else { return };
        tender.begin(Vec::new());
        std::thread::sleep(Duration::from_micros(wait * 25));
        let clock = tender.clock();
        drop(tender);
        ends(&clock);
    }
}

/// A client that reads slowly has the clock of a call that is long over. Memory of that call was in no budget, and
/// stayed mapped for as long as the client liked.
#[test]
fn who_still_has_the_clock_of_a_machine_keeps_no_memory_of_it() {
    let Some(mut tender) = machine(&Code::default().spin()) else { return };
    tender.begin(Vec::new());
    let clock = tender.clock();
    let memory = clock.hatch().memory();
    drop(tender);
    ends(&clock);
    assert!(memory.upgrade().is_none(), "it is given back");
}

/// What a unit says that looks for what the one before it left, and then leaves what it can: in what registers nobody
/// sets between two units, on the stack, in the inbox, behind a line of the log, at both ends of the heap, and in
/// so many pages of it.
fn litterer(heap: std::ops::Range<u64>, pages: u64) -> Code {
    let found = layout::STACK + 0x1000;
    let mut code = Code::default()
        .litter(found)
        .store(layout::STACK + 0x5000, 1)
        .store(layout::INBOX + 100, 2)
        .store(layout::LOG + 0x2000, 3)
        .store(heap.start, 4)
        .store(heap.end - 8, 5);
    for page in 0..pages {
        code = code.store(heap.start + (2 * page + 1) * layout::PAGE, 6);
    }
    let code = code.word(0, 7).word(1, found).word(2, code::FOUND_BYTES).word(3, layout::INBOX).word(4, 8);
    code.exit(Exit::Receive).end()
}

/// The next unit in a machine, and the next function's, find nothing of what a unit left, in memory and processor.
#[test]
fn what_a_unit_leaves_in_its_machine_nobody_finds() {
    let Some((class, artefact)) = hello() else { return };
    let heap = recipe(&Code::default()).unwrap().snapshot.heap();
    let stock = Stock::new(class.shared.kvm().unwrap());
    // Less than a machine keeps, and more.
    for pages in [3, 700] {
        let recipe = recipe(&litterer(heap.clone(), pages)).unwrap();
        runtime().block_on(async {
            let mut tender = made(|done| stock.start(recipe.clone(), 1, done)).unwrap();
            let fresh = tender.dump().await.unwrap();
            for number in 2..5 {
                tender.begin(b"no event".to_vec());
                let What::Replied { reply, .. } = told(&mut tender).await else { panic!("it replies") };
                assert_eq!(reply, code::untouched(), "floating point is that of a processor that was never used");
                assert!(tender.dump().await.unwrap() != fresh, "it has written");
                tender = made(|done| tender.renew(number, done));
                assert!(tender.dump().await.unwrap() == fresh, "nothing of it is left after {pages} pages");
            }
            // Used by one function, and then another's.
            tender.begin(b"no event".to_vec());
            assert!(matches!(told(&mut tender).await, What::Replied { .. }));
            let nobodys = made(|done| tender.leave(done));
            let other = self::recipe(&litterer(heap.clone(), 1)).unwrap();
            let mut others = made(|done| nobodys.become_unit(other.clone(), 9, done)).unwrap();
            let mut fresh = made(|done| stock.start(other, 10, done)).unwrap();
            assert!(others.dump().await.unwrap() == fresh.dump().await.unwrap(), "nor for another function");
            others.begin(b"no event".to_vec());
            let What::Replied { reply, .. } = told(&mut others).await else { panic!("it replies") };
            assert_eq!(reply, code::untouched());
        });
    }
    assert!(Parts::read(artefact).is_ok());
}

/// Machines that wait for any function: made when calls are over, taken, taken back, and given up after a while.
#[test]
fn the_stock_is_bounded_and_ends_with_its_idleness() {
    let Some((class, _)) = hello() else { return };
    let recipe = recipe(&Code::default().spin()).unwrap();
    let stock = Stock::new(class.shared.kvm().unwrap());
    let wait = |is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "the stock changes");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    stock.fill();
    stock.fill();
    wait(&|| stock.is_full());
    let taken: Vec<Tender> =
        (0..8).map(|number| made(|done| stock.start(recipe.clone(), number, done)).unwrap()).collect();
    assert_eq!(stock.ready(), 0);
    let clocks: Vec<_> = taken.iter().map(Tender::clock).collect();
    taken.into_iter().for_each(|machine| stock.take_back(machine));
    wait(&|| stock.ready() == 4);
    wait(&|| clocks.iter().filter(|clock| clock.is_there()).count() == 4);
    stock.sweep(Instant::now(), Duration::from_secs(60));
    assert_eq!(stock.ready(), 4);
    stock.sweep(Instant::now() + Duration::from_secs(61), Duration::from_secs(60));
    wait(&|| stock.ready() == 0 && clocks.iter().all(|clock| !clock.is_there()));
}
