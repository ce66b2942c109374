//! `lighter version`: of this program, and of the node if one answers.

use super::Session;
use super::stop::Result;
use api_types::NodeInfo;
use serde_json::json;

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub fn run(session: &Session) -> Result {
    let node = session
        .client()
        .ok()
        .and_then(|client| Some((client.get::<NodeInfo>("/v1/node").ok()?, client.url().to_owned())));
    let machine = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    if session.out.json {
        let node = node.map(|(info, url)| {
            json!({ "version": info.version, "url": url, "architecture": info.architecture, "engine": info.engine,
            "python": info.python, "missing_protections": info.missing_protections })
        });
        return session.out.json(&json!({ "version": VERSION, "machine": machine,
            "state_format": session.brought.state_format, "node": node }));
    }
    session.out.line(format!("lighter {VERSION} ({machine})"))?;
    let Some((info, url)) = node else { return session.out.line("node    none answers") };
    session.out.line(format!("node    {} ({}) at {url}", info.version, info.architecture))?;
    if let Some(python) = &info.python {
        session.out.line(format!("python  {} with numpy {}", python.version, python.numpy))?;
    }
    for missing in &info.missing_protections {
        session.out.line(format!("missing {}: {}", missing.protection, missing.why))?;
    }
    Ok(())
}
