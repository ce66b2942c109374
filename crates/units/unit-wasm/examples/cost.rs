//! Where a call's time goes: `cargo run --release -p unit-wasm --example cost -- IMAGE [CALLS [REUSE [DATA]]]`.
//!
//! Prints percentiles of start and run in microseconds, and calls a second, for fresh units on one thread.

use handling::{Call, Content, Handler, Work};
use http_body_util::{BodyExt, Empty};
use manifest::{Function, Name};
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit::{Artefact, Body, Contract, Deployed, IsolationClass, LogLine, LogWriter};

struct Silent;

impl LogWriter for Silent {
    fn write(&self, line: LogLine<'_>) {
        eprintln!("{} {}", line.level.as_str(), line.message);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let image = std::fs::read(arguments.next().expect("an image"))?;
    let calls: usize = arguments.next().map_or(20_000, |text| text.parse().expect("a number"));
    let reuse: u32 = arguments.next().map_or(1, |text| text.parse().expect("a number"));
    let data = arguments.next().unwrap_or_else(|| "world".to_owned());
    let class = unit_wasm::WasmClass::new(unit_wasm::Config::default())?;
    let shape = class.check(&image)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("artefact");
    let began = Instant::now();
    std::fs::write(&path, class.compile(&image)?)?;
    println!("compile {:.2?}, artefact {} kB", began.elapsed(), std::fs::metadata(&path)?.len() / 1_000);
    let mut function = Function::new("image");
    function.units.reuse_calls = reuse;
    let deployed = Deployed {
        name: Name::try_from("cost".to_owned()).expect("a name"),
        version: 1,
        function: Arc::new(function),
        contract: shape.contract,
        secrets: Arc::default(),
        log: Arc::new(Silent),
        budget: budget::Budget::unbounded(),
    };
    let handler = Handler::new(state::State::open(&folder.path().join("state"), state::Options::default())?);
    let began = Instant::now();
    let prepared = class.load(Artefact { file: File::open(&path)?, path }, deployed)?;
    println!("load {:.1?}", began.elapsed());
    let (mut start, mut run, mut total) = (vec![], vec![], vec![]);
    let began = Instant::now();
    for _ in 0..calls {
        let call_began = Instant::now();
        let work = match shape.contract {
            Contract::Unit | Contract::Call => {
                Work::Event(event::Event { data: data.clone().into_bytes(), ..Default::default() })
            }
            Contract::WasiHttp => {
                let body: Body = Empty::new().map_err(|never| match never {}).boxed_unsync();
                Work::Http(http::Request::get("http://localhost/hello").body(body)?)
            }
        };
        let deadline = call_began + Duration::from_secs(10);
        let call = Call { request_id: "r".into(), work, deadline, lease: None };
        let reply = handler.handle(prepared.clone(), call, ()).await?;
        if let Content::Http(response) = reply.content {
            response.into_body().collect().await?;
        }
        start.push(reply.timing.start);
        run.push(reply.timing.run);
        total.push(call_began.elapsed());
    }
    println!("{:.0} calls/s", calls as f64 / began.elapsed().as_secs_f64());
    for (what, mut times) in [("start", start), ("run", run), ("total", total)] {
        times.sort();
        let at = |share: f64| times[(times.len() as f64 * share) as usize].as_nanos() as f64 / 1e3;
        println!("{what}: least {:.1} us, p50 {:.1}, p90 {:.1}, p99 {:.1}", at(0.0), at(0.5), at(0.9), at(0.99));
    }
    Ok(())
}
