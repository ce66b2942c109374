//! The checks of all classes, on real components in real machines.

use checks::{Images, WasiImages};
use unit_microvm::MicrovmClass;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_microvm_class_passes_every_check() {
    let class = MicrovmClass::new().unwrap();
    if let Err(problem) = class.available() {
        println!("skipped: kvm: the checks of the microvm class: {problem}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let images = Images {
        hello: include_bytes!("../../../../guests/prebuilt/hello.wasm"),
        counter: include_bytes!("../../../../guests/prebuilt/counter.wasm"),
        attack: include_bytes!("../../../../guests/prebuilt/attack.wasm"),
        attack_source: "lib.rs:",
        dumps: true,
        lacks: &[],
        wasi: Some(WasiImages {
            probe: include_bytes!("../../../../guests/prebuilt/probe.wasm"),
            start_random: include_bytes!("../../../../guests/prebuilt/start-random.wasm"),
        }),
        settles: &checks::settled,
    };
    checks::run(&class, &images, folder.path()).await;
}
