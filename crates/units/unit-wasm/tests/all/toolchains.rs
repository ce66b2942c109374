//! `wasi:http` components that the toolchains of other languages made run as they are, with fresh memory and used
//! again.
//!
//! The big ones: what they import beside `wasi:http`, how they start and what their runtimes keep from call to call is
//! theirs. One test for all, since compiling them takes most of its time.

use super::stage::{Stage, image, stage_of};
use std::io::Read;

pub fn unpacked(name: &str) -> Vec<u8> {
    let packed = image(name);
    let mut bytes = Vec::new();
    lzma_rust2::XzReader::new(&packed[..], false).read_to_end(&mut bytes).unwrap();
    bytes
}

impl Stage {
    async fn greeting(&self) -> (u16, String) {
        let greeting = self.text("POST", "/hello?name=you", "you").await;
        self.end().await.unwrap();
        greeting
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_of_three_other_toolchains_run_as_they_are() {
    // A second call in the same unit is more than the runtime of componentize-js can do.
    for (name, reuse_calls) in [("hello-js.wasm.xz", 1), ("hello-py.wasm.xz", 2), ("hello-go.wasm.xz", 2)] {
        println!("{name}");
        let stage = stage_of(name, &unpacked(name), |function| function.units.reuse_calls = reuse_calls);
        stage.handler.try_start(&stage.prepared).await.unwrap();
        let first = stage.greeting().await;
        assert!(first.0 == 200 && first.1.starts_with("hello from ") && first.1.ends_with("you\n"), "{first:?}");
        for _ in 1..reuse_calls {
            let kept = stage.prepared.units().iter().map(|unit| unit.calls).collect::<Vec<_>>();
            assert_eq!(kept, [1], "its unit waits for another call");
            assert_eq!(stage.greeting().await, first, "the same unit again");
        }
        assert!(stage.prepared.units().is_empty(), "after {reuse_calls} calls it is gone");
        assert_eq!(stage.greeting().await, first, "and a fresh one");
    }
}
