//! Where the tests of `wasi:http` functions play: one function of a prebuilt image, with a store and a log.
#![allow(dead_code, reason = "not every test uses all of it")]

use budget::Budget;
use bytes::Bytes;
use handling::{Call, Caller, Content, Ended, Handler, Work};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use manifest::{Function, Name};
use problem::{Code, Problem};
use state::Leased;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use unit::{Artefact, Body, BodyError, Deployed, IsolationClass, LogLine, LogWriter, Prepared};

pub struct Stage {
    pub prepared: Arc<dyn Prepared>,
    pub state: state::State,
    pub handler: Handler,
    pub log: Arc<Lines>,
    pub ended: Watcher,
    _folder: TempDir,
}

#[derive(Default)]
pub struct Lines(pub Mutex<Vec<String>>);

impl LogWriter for Lines {
    fn write(&self, line: LogLine<'_>) {
        self.0.lock().unwrap().push(line.message.to_owned());
    }
}

#[derive(Clone, Default)]
pub struct Watcher(pub Arc<Mutex<Option<Ended>>>);

impl Caller for Watcher {
    fn ended(self, ended: Ended) {
        *self.0.lock().unwrap() = Some(ended);
    }
}

pub fn image(name: &str) -> Vec<u8> {
    std::fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../guests/prebuilt").join(name)).unwrap()
}

pub fn stage(name: &str, change: impl FnOnce(&mut Function)) -> Stage {
    stage_of(name, &image(name), change)
}

/// A stage for an image that is not among the prebuilt ones as it is.
pub fn stage_of(name: &str, image: &[u8], change: impl FnOnce(&mut Function)) -> Stage {
    stage_beside(&crate::class(), name, image, change)
}

/// A stage whose function shares the class with others.
pub fn stage_beside(
    class: &impl IsolationClass,
    name: &str,
    image: &[u8],
    change: impl FnOnce(&mut Function),
) -> Stage {
    stage_in(class, Arc::new(state::RealDisk), name, image, &Budget::unbounded(), change)
}

/// A stage whose state is on this disk.
pub fn stage_on(disk: Arc<dyn state::Disk>, name: &str, image: &[u8], change: impl FnOnce(&mut Function)) -> Stage {
    stage_in(&crate::class(), disk, name, image, &Budget::unbounded(), change)
}

/// A stage whose node has no more memory than this.
pub fn stage_within(name: &str, image: &[u8], budget: &Arc<Budget>, change: impl FnOnce(&mut Function)) -> Stage {
    stage_in(&crate::class(), Arc::new(state::RealDisk), name, image, budget, change)
}

/// A stage of this class, this disk and this much memory.
pub fn stage_in(
    class: &impl IsolationClass,
    disk: Arc<dyn state::Disk>,
    name: &str,
    image: &[u8],
    budget: &Arc<Budget>,
    change: impl FnOnce(&mut Function),
) -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let shape = class.check(image).unwrap();
    let path = folder.path().join("artefact");
    std::fs::write(&path, class.compile(image).unwrap()).unwrap();
    let mut function = Function::new(name);
    change(&mut function);
    let log = Arc::new(Lines::default());
    let state =
        state::State::open(&folder.path().join("state"), state::Options { disk, ..Default::default() }).unwrap();
    let deployed = Deployed {
        name: Name::try_from("function".to_owned()).unwrap(),
        version: 1,
        function: Arc::new(function),
        contract: shape.contract,
        secrets: Arc::default(),
        log: log.clone(),
        budget: budget.clone(),
    };
    let prepared = class.load(Artefact { file: File::open(&path).unwrap(), path }, deployed).unwrap();
    let handler = Handler::new(state.clone());
    Stage { prepared, state, handler, log, ended: Watcher::default(), _folder: folder }
}

pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub fn full(text: &str) -> Body {
    Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {}).boxed_unsync()
}

impl Stage {
    pub async fn send(&self, request: Request<Body>, time: Duration) -> Result<Response<Body>, Problem> {
        self.call(request, time, self.ended.clone(), None).await
    }

    pub async fn call(
        &self,
        request: Request<Body>,
        time: Duration,
        caller: impl Caller,
        lease: Option<Arc<Leased>>,
    ) -> Result<Response<Body>, Problem> {
        let deadline = Instant::now() + time;
        let call = Call { request_id: "test".into(), work: Work::Http(request), deadline, lease };
        match self.handler.handle(self.prepared.clone(), call, caller).await?.content {
            Content::Http(response) => Ok(response),
            Content::Bytes(_) => panic!("a wasi:http function replies with a response"),
        }
    }

    pub async fn request(&self, method: &str, path: &str, body: Body) -> Result<Response<Body>, Problem> {
        let request = Request::builder().method(method).uri(format!("http://localhost{path}")).body(body).unwrap();
        self.send(request, Duration::from_secs(60)).await
    }

    pub async fn text(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let response = self.request(method, path, full(body)).await;
        let response = response.unwrap_or_else(|problem| panic!("{problem}: {:?}", self.log.0.lock().unwrap()));
        let status = response.status().as_u16();
        (status, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }

    /// The code of what must go wrong, before the head or in the body.
    pub async fn fails(&self, path: &str, time: Duration) -> Code {
        let request = Request::get(format!("http://localhost{path}")).body(empty()).unwrap();
        match self.send(request, time).await {
            Err(problem) => problem.code,
            Ok(response) => match response.into_body().collect().await {
                Err(BodyError::Unit(problem)) => problem.code,
                Err(other) => panic!("{path}: {other}"),
                Ok(body) => panic!("{path} replied {} bytes", body.to_bytes().len()),
            },
        }
    }

    /// Waits until no unit is left; a test that hangs here has failed.
    pub async fn is_empty(&self) {
        while !self.prepared.units().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    pub async fn end(&self) -> Result<(), Code> {
        loop {
            if let Some(ended) = self.ended.0.lock().unwrap().take() {
                return ended.result.map_err(|problem| problem.code);
            }
            tokio::task::yield_now().await;
        }
    }
}
