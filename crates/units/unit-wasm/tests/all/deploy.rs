//! What is found of an image before anybody calls it.

use super::stage::{image, stage};
use problem::Code;
use unit::IsolationClass;
use unit_wasm::{Config, WasmClass};

#[test]
fn images_that_do_not_fit_are_refused_before_they_are_compiled() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let class = WasmClass::new(Config { units_max: 1 }).unwrap();
    let code = |name: &str| class.check(&image(name)).unwrap_err().code;
    assert_eq!(code("core-module.wasm"), Code::ImageNotWasm);
    assert_eq!(code("wrong-world.wasm"), Code::WorldMismatch);
    assert_eq!(code("unknown-import.wasm"), Code::ImportUnknown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_traps_or_loops_is_found_at_deploy() {
    let starts = [
        ("start-trap.wasm", Code::UnitTrapped),
        ("start-loop.wasm", Code::CpuExceeded),
        ("start-calls.wasm", Code::CpuExceeded),
    ];
    for (name, code) in starts {
        let stage = stage(name, |function| function.limits.cpu_ms = 50);
        assert_eq!(stage.handler.try_start(&stage.prepared).await.unwrap_err().code, code, "{name}");
    }
}
