//! `lighter deploy`: everything is checked here, then sent, then checked and compiled there, then swapped in.

use super::client::{Client, announced, json};
use super::deployment::{self, Deployer};
use super::foreign::{self, Script};
use super::images::{self, Project};
use super::progress::Progress;
use super::stop::Result;
use super::{Session, build, flow, ls, words};
use api_types::{DeployStep, FunctionInfo};
use clap::Args;
use fleet_deploy::Wish;
use manifest::{Function, Manifest, Name};
use problem::{Code, Problem};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;
use ureq::SendBody;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_TYPE};

#[derive(Debug, Args)]
pub struct Deploy {
    /// Folder with lighter.toml, or the manifest itself
    #[arg(default_value = ".", hide_default_value = true)]
    dir: PathBuf,
    /// Build first, as `lighter build` does
    #[arg(long, short)]
    build: bool,
    /// Put the functions on the nodes of the fleet that `place` names, and wait until all reachable ones have them
    #[arg(long)]
    fleet: bool,
    /// Name of the deployment in the fleet [default: that of the folder]
    #[arg(long, value_name = "NAME", requires = "fleet")]
    name: Option<String>,
    #[command(flatten)]
    deployer: Deployer,
}

impl Deploy {
    pub fn run(&self, session: &Session) -> Result {
        let project = images::project(&self.dir, &session.brought.images)?;
        flow::warn_of(session, &project);
        name_lacks(session, &project)?;
        let client = session.client()?;
        if self.build {
            build::build(&project, session.out)?;
        }
        if self.fleet {
            let name = deployment::name(self.name.as_deref(), &project.folder)?;
            let manifest = sent(&project, &client, &session.out.progress())?;
            return deployment::order(session, &self.deployer, &name, Wish::Deploy(Box::new(manifest)));
        }
        let functions = deploy(&project, &client, &session.out.progress())?;
        match session.out.json {
            true => session.out.json(&functions),
            false => session.out.table(&ls::urls(&functions)),
        }
    }
}

/// Names what handlers of other platforms do not have here.
fn name_lacks(session: &Session, project: &Project) -> Result {
    for (name, function) in &project.manifest.function {
        let Some(script) = foreign::adopted(function) else { continue };
        let folder = match script {
            Script::Python => project.image_path(function),
            Script::Javascript => project.folder.join("."),
        };
        for lack in foreign::lacks(&folder, script)? {
            let code = Code::HandlerForeign;
            session.out.advise(format!("function {:?}: not carried over ({code}): {lack}", name.as_str()));
        }
    }
    Ok(())
}

/// Deploys a project and returns its functions as they are now.
pub fn deploy(project: &Project, client: &Client, progress: &Progress) -> Result<Vec<FunctionInfo>> {
    let manifest = sent(project, client, progress)?;
    progress.step("waiting for the node");
    let request = client.request("POST", "/v1/deployments").header(CONTENT_TYPE, "application/json");
    let response = client.succeeded(client.exchange(request, json(&manifest))?)?;
    for step in client.lines::<DeployStep>(response) {
        match step? {
            DeployStep::Done { functions } => {
                progress.end();
                return Ok(functions);
            }
            DeployStep::Failed { problem } => {
                let problem = Problem::from_json(&json(&problem));
                return Err(problem
                    .unwrap_or_else(|| Problem::new(Code::Unknown, "the node refused the deployment"))
                    .into());
            }
            step => match words_for(&step) {
                Some(Words::Begun(text)) => progress.step(text),
                Some(Words::Finished(text)) => progress.done(text),
                None => {}
            },
        }
    }
    Err(client.broken(&io::Error::other("the deployment was cut off; `lighter ls` shows what runs")))
}

/// The manifest with hashes in the place of paths; the images are on the node.
fn sent(project: &Project, client: &Client, progress: &Progress) -> Result<Manifest> {
    let (manifest, images) = hashed(project, progress)?;
    for (hash, upload) in &images {
        if !is_there(client, hash)? {
            send(project, client, hash, upload, progress)?;
        }
    }
    Ok(manifest)
}

/// An image, by the function it was first seen in. Its bytes are read when they are sent: a project may have many.
struct Upload {
    name: Name,
    function: Function,
}

/// The manifest with hashes in the place of paths, and the images by hash.
fn hashed(project: &Project, progress: &Progress) -> Result<(Manifest, BTreeMap<String, Upload>)> {
    let mut manifest = project.manifest.clone();
    let mut images = BTreeMap::new();
    let mut hashes = BTreeMap::new();
    for (name, function) in &mut manifest.function {
        // A bundle is made of files and of which function in them is called.
        let made_of = (project.image_path(function), function.isolation, function.entry.clone());
        if !hashes.contains_key(&made_of) {
            progress.step(format!("reading {}", made_of.0.display()));
            let hash = images::hash(&images::image(project, name, function)?.bytes);
            let upload = Upload { name: name.clone(), function: function.clone() };
            images.entry(hash.clone()).or_insert(upload);
            hashes.insert(made_of.clone(), hash);
        }
        function.image.clone_from(&hashes[&made_of]);
        // How it is built is nothing the node needs to know.
        (function.build, function.entry) = (None, None);
    }
    Ok((manifest, images))
}

fn is_there(client: &Client, hash: &str) -> Result<bool> {
    let response = client.exchange(client.request("HEAD", &format!("/v1/images/{hash}")), ())?;
    match response.status().as_u16() {
        200 => Ok(true),
        404 => Ok(false),
        // The answer to HEAD has no body to tell the problem, so ask in a way that has.
        _ => client.ask("GET", &format!("/v1/images/{hash}"), ()).map(|_| true),
    }
}

fn send(project: &Project, client: &Client, hash: &str, upload: &Upload, progress: &Progress) -> Result {
    let bytes = images::image(project, &upload.name, &upload.function)?.bytes;
    let size = bytes.len();
    let text = |sent: usize| {
        format!("sending the image of {} ({} of {})", upload.name, words::bytes(sent as u64), words::bytes(size as u64))
    };
    progress.step(text(0));
    let kind = project.images.of(upload.function.isolation).map_or("application/wasm", |makes| makes.media_type());
    let sent = Cell::new(0);
    let mut reader =
        Counted { left: &bytes, heard: |count| progress.update(text(sent.replace(sent.get() + count) + count)) };
    let request = announced(client.request("PUT", &format!("/v1/images/{hash}")), size);
    let request = request.header(CONTENT_TYPE, kind).header(CONTENT_LENGTH, size);
    let response = client.exchange(request, SendBody::from_reader(&mut reader))?;
    client.succeeded(response).map_err(|stop| stop.about(&upload.name))?;
    progress.done(format!("sent the image of {} ({})", upload.name, words::bytes(size as u64)));
    Ok(())
}

/// Bytes that say how many of them were read.
struct Counted<'a, F> {
    left: &'a [u8],
    heard: F,
}

impl<F: FnMut(usize)> Read for Counted<'_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.left.read(buffer)?;
        (self.heard)(count);
        Ok(count)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Words {
    Begun(String),
    Finished(String),
}

/// What a step is called; the last one, which has the result, is called nothing.
fn words_for(step: &DeployStep) -> Option<Words> {
    Some(match step {
        DeployStep::Checked { function, contract } => {
            Words::Finished(format!("{function}: fits the contract {contract}"))
        }
        DeployStep::Compiling { function, image_bytes } => {
            Words::Begun(format!("{function}: compiling {}", words::bytes(*image_bytes)))
        }
        DeployStep::Compiled { function, kept: true, .. } => Words::Finished(format!("{function}: compiled before")),
        DeployStep::Compiled { function, milliseconds, artefact_bytes, .. } => Words::Finished(format!(
            "{function}: compiled in {} to {}",
            words::duration(Duration::from_millis(*milliseconds)),
            words::bytes(*artefact_bytes)
        )),
        DeployStep::Started { function, microseconds } => {
            Words::Finished(format!("{function}: a unit starts in {}", words::microseconds(*microseconds as f64)))
        }
        DeployStep::Unchanged { function, version } => {
            Words::Finished(format!("{function}: unchanged, version {version}"))
        }
        DeployStep::Configured { kind, name } if kind == "workflow" => Words::Finished(format!("{name}: goes on")),
        DeployStep::Configured { kind, name } => Words::Finished(format!("{kind} {name}: configured")),
        DeployStep::Done { .. } | DeployStep::Failed { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_read_as_sentences() {
        let function = || "hello".to_owned();
        let compiling = DeployStep::Compiling { function: function(), image_bytes: 13_000_000 };
        assert_eq!(words_for(&compiling), Some(Words::Begun("hello: compiling 13.0 MB".into())));
        let compiled = DeployStep::Compiled {
            function: function(),
            milliseconds: 18_100,
            artefact_bytes: 40_000_000,
            kept: false,
        };
        assert_eq!(words_for(&compiled), Some(Words::Finished("hello: compiled in 18.1 s to 40.0 MB".into())));
        let started = DeployStep::Started { function: function(), microseconds: 17 };
        assert_eq!(words_for(&started), Some(Words::Finished("hello: a unit starts in 17 µs".into())));
    }

    #[test]
    fn functions_that_share_an_image_send_it_once() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f.wasm"), b"\0asm\x0d\0\x01\0").unwrap();
        let text = "[function.a]\nimage = \"f.wasm\"\nbuild = \"true\"\n[function.b]\nimage = \"./f.wasm\"\n";
        std::fs::write(folder.path().join("lighter.toml"), text).unwrap();
        let project = images::project(folder.path(), &crate::Images::default()).unwrap();
        let (manifest, images) = hashed(&project, &Progress::new(true, false)).unwrap();
        assert_eq!(images.len(), 1);
        let hash = images.keys().next().unwrap();
        assert!(manifest.function.values().all(|function| function.image == *hash && function.build.is_none()));
        manifest.check().unwrap();
    }
}
