//! Handlers in Python: what they use that a process unit does not have.

use super::{Code, Problem, Result, Script, native};
use std::collections::BTreeSet;
use std::path::Path;

pub const ENDS: &[&str] = &["py"];

pub fn begins(line: &str, function: &str) -> bool {
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("def ").and_then(|rest| rest.strip_prefix(function)).is_some_and(|rest| rest.starts_with('('))
}

pub fn lacks(folder: &Path) -> Result<BTreeSet<String>> {
    if let Some(native) = native(folder, &["so", "pyd", "dylib"]) {
        let detail = format!("{} is native code, which a bundle cannot hold", native.display());
        let hint = "name its package in requirements.lock: the node installs wheels into the function's base";
        return Err(Problem::new(Code::BundleInvalid, detail).with_hint(hint).into());
    }
    let mut lacks = super::lacks_of(folder, Script::Python, of_line);
    lacks.retain(|lack| !lack.starts_with("lighter_from.py:"));
    if folder.join("requirements.txt").exists() && !folder.join("requirements.lock").exists() {
        let what =
            "requirements.txt: packages come from requirements.lock alone; `pip-compile --generate-hashes` makes it";
        lacks.insert(what.to_owned());
    }
    Ok(lacks)
}

/// What one line of Python asks for and does not get.
fn of_line(line: &str) -> Vec<String> {
    let code = line.split('#').next().unwrap_or_default().trim();
    let mut lacks = Vec::new();
    let mut lack = |what: &str| lacks.push(what.to_owned());
    if let Some(package) = imported(code) {
        match package {
            "boto3" | "botocore" | "aws_xray_sdk" | "aws_lambda_powertools" => {
                lack("services of AWS are not here: lighterage.unit has store, queue and http");
            }
            "requests" | "urllib3" | "httpx" | "aiohttp" | "socket" | "smtplib" => {
                lack("a unit has no network: lighterage.unit.http reaches hosts of grants.hosts");
            }
            _ => {}
        }
    }
    if code.contains("urllib.request") || code.contains("http.client") {
        lack("a unit has no network: lighterage.unit.http reaches hosts of grants.hosts");
    }
    if code.contains("statusCode") {
        lack("statusCode is not passed on: below 400 the reply is 200, else a failure (422, 500 or 503)");
    }
    if code.contains("\"headers\":") || code.contains("'headers':") {
        lack("headers of the reply are left out: `reply_type` of the route says its media type");
    }
    if ["context.identity", "context.client_context"].iter().any(|field| code.contains(field)) {
        lack("the context has no identity and no client: it is None");
    }
    if code.contains("os.environ") || code.contains("os.getenv") {
        lack("environment variables come from [function.NAME.environment] in lighter.toml");
    }
    if code.contains("\"/tmp") || code.contains("'/tmp") {
        lack("files are gone after the call: keep what is to stay in lighterage.unit.store");
    }
    lacks
}

/// The package that a line imports.
fn imported(code: &str) -> Option<&str> {
    let rest = code.strip_prefix("import ").or_else(|| code.strip_prefix("from "))?;
    rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next().filter(|name| !name.is_empty())
}
