//! Guests that have replied where they are, and do not leave.

use super::{Code, ends, hello, made, recipe, runtime, told};
use crate::stock::Stock;
use crate::tender::{TOLD_MAX, Tender, What};
use kernel_abi::exits::{Exit, hatch};
use kernel_abi::layout;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

impl Code {
    /// What a reply says, of eight bytes.
    fn reply(self) -> Self {
        [7, layout::STACK + 0x1000, 8, layout::INBOX, 8]
            .into_iter()
            .zip(0..)
            .fold(self, |code, (word, at)| code.word(at, word))
    }

    /// Replies to the first event as it should, and to the second one without leaving.
    fn stays() -> Self {
        let code = Self::default().reply().exit(Exit::Receive).reply();
        code.store(hatch::PORT, Exit::Receive.port().into()).store(hatch::ASKED, u64::MAX)
    }
}

/// A machine that was heard to reply and has not left. On a busy system it is heard in time only now and then, and a
/// function that was not heard is listened to more seldom: so each try has a function of its own.
fn stayed(stock: &Arc<Stock>, code: &Code) -> Tender {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        let recipe = &recipe(code).unwrap();
        let mut tender = made(|done| stock.start(recipe.clone(), 1, done)).unwrap();
        let is_heard = runtime().block_on(async {
            tender.begin_heard(b"no event".to_vec(), recipe, true);
            assert!(matches!(told(&mut tender).await, What::Replied { .. }));
            tender.begin_heard(b"no event".to_vec(), recipe, true);
            // Nobody listens for longer than a moment, and this one says nothing else.
            let heard = tokio::time::timeout(Duration::from_millis(5), tender.told()).await;
            heard.is_ok_and(|told| matches!(told.what, What::Replied { .. }))
        });
        if is_heard {
            return tender;
        }
    }
    panic!("it is never heard in time");
}

#[test]
fn a_guest_that_stays_is_called_out_for_whatever_is_next() {
    let Some((class, _)) = hello() else { return };
    let stock = Stock::new(class.shared.kvm().unwrap());
    let code = Code::stays().spin();
    let mut dumped = stayed(&stock, &code);
    let dump = async { tokio::time::timeout(Duration::from_secs(20), dumped.dump()).await };
    assert!(runtime().block_on(dump).expect("it is dumped").is_ok());
    let renewed: Tender = made(|done| stayed(&stock, &code).renew(2, done));
    assert!(renewed.obeys());
    let nobodys: Tender = made(|done| stayed(&stock, &code).leave(done));
    let again = made(|done| nobodys.become_unit(recipe(&code).unwrap(), 3, done)).unwrap();
    assert!(again.obeys());
}

#[test]
fn a_guest_that_is_kept_and_stays_takes_no_other_call() {
    let Some((class, _)) = hello() else { return };
    let stock = Stock::new(class.shared.kvm().unwrap());
    let mut kept = stayed(&stock, &Code::stays().spin());
    kept.is_kept();
    assert!(kept.obeys(), "it may rest for a moment");
    std::thread::sleep(Duration::from_millis(2_100));
    assert!(!kept.obeys());
}

#[test]
fn a_guest_that_is_kept_and_faults_takes_no_other_call() {
    let Some((class, _)) = hello() else { return };
    let stock = Stock::new(class.shared.kvm().unwrap());
    let mut kept = stayed(&stock, &Code::stays().end());
    kept.is_kept();
    ends(&kept.clock());
    assert!(!kept.obeys());
}

/// What it says then would be heard by whoever has the machine next.
#[test]
fn a_guest_that_says_more_after_its_reply_is_ended_unheard() {
    let Some((class, _)) = hello() else { return };
    let stock = Stock::new(class.shared.kvm().unwrap());
    let tender = stayed(&stock, &Code::stays().exit(Exit::Log).exit(Exit::Log).spin());
    let clock = tender.clock();
    let (sender, receiver) = std::sync::mpsc::channel();
    tender.renew(2, move |tender| sender.send(tender).unwrap());
    assert!(receiver.recv_timeout(Duration::from_secs(20)).is_err(), "it is not made anew");
    ends(&clock);
}

/// Its thread waited with the end until there was room for it, and who was to make room waited for the thread:
/// machine and memory stayed for good.
#[test]
fn a_guest_that_says_too_much_before_its_reply_and_faults_is_ended() {
    let Some((class, _)) = hello() else { return };
    let stock = Stock::new(class.shared.kvm().unwrap());
    let code = (0..TOLD_MAX).fold(Code::default(), |code, _| code.exit(Exit::Log)).reply();
    let code = code.store(hatch::PORT, Exit::Receive.port().into()).store(hatch::ASKED, u64::MAX).end();
    let recipe = recipe(&code).unwrap();
    let mut tender = made(|done| stock.start(recipe, 1, done)).unwrap();
    let clock = tender.clock();
    tender.begin(b"no event".to_vec());
    // Heard past what its thread has told.
    let (hatch, began) = (clock.hatch(), Instant::now());
    while !matches!(hatch.take().map(|told| told.what), Some(What::Replied { .. })) {
        assert!(began.elapsed() < Duration::from_secs(10), "it replies");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(hatch);
    let (sender, receiver) = std::sync::mpsc::channel();
    tender.renew(2, move |tender| sender.send(tender).unwrap());
    assert_eq!(receiver.recv_timeout(Duration::from_secs(10)).err(), Some(RecvTimeoutError::Disconnected));
    ends(&clock);
}
