//! Code that is interrupted again and again, in the middle of its loops, computes what native code does.

use super::stage::{image, stage_of};
use event::Event;
use handling::{Call, Content, Work};
use std::time::{Duration, Instant};

/// Long enough for many slices to end, with whole and broken numbers in all registers.
const KERNELS: [(&str, u32); 8] = [
    ("fibonacci", 400),
    ("matrix", 60),
    ("sha256", 150),
    ("nbody", 200),
    ("json", 30),
    ("sort", 15),
    ("regex", 300),
    ("image", 1_500),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_that_end_change_no_result() {
    assert_eq!(KERNELS.map(|(name, _)| name), guest_kernels::NAMES);
    let stage = stage_of("compute", &image("compute.wasm"), |_| {});
    for (name, rounds) in KERNELS {
        let data = format!("{name} {rounds}");
        let event = Event { kind: "test".into(), attempt: 1, data: data.into(), ..Event::default() };
        let deadline = Instant::now() + Duration::from_secs(60);
        let call = Call { request_id: "test".into(), work: Work::Event(event), deadline, lease: None };
        let reply = stage.handler.handle(stage.prepared.clone(), call, stage.ended.clone()).await.unwrap();
        let Content::Bytes(bytes) = reply.content else { panic!("a function that takes events replies with bytes") };
        assert_eq!(bytes, guest_kernels::run(name, rounds).unwrap().to_string().into_bytes(), "{name}");
    }
}
