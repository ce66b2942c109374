//! What this machine lacks for an isolation class is said by the deployment, before anything is made for it.

use crate::process::bundle;
use crate::support::{Node, PROGRAM};
use rustix::process::geteuid;
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use unit_process::bundle::Contract;

/// A user who owns nothing.
const NOBODY: u32 = 65_534;

/// A node of a user without rights: of the one who runs the tests, unless that is root.
fn rootless(folder: &Path) -> Option<Node> {
    let data = folder.join("data");
    fs::create_dir(&data).unwrap();
    if !geteuid().is_root() {
        return Some(Node::start_in(&data, &[]));
    }
    if Command::new("setpriv").arg("--version").output().is_err() {
        println!("skipped: setpriv: a node without rights, as root");
        return None;
    }
    // It may not look into the folders of the one who builds.
    let program = folder.join("lighter");
    fs::copy(PROGRAM, &program).unwrap();
    for path in [folder, &program] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
    let nobody = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups", "--inh-caps=-all"]).arg(program);
    Some(Node::try_start_by(&mut command, &data, &[]).unwrap_or_else(|said| panic!("the node did not start: {said}")))
}

#[test]
fn a_jail_with_fewer_walls_is_refused_before_a_base_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let Some(node) = rootless(folder.path()) else { return };
    let missing = node.api("GET", "/v1/node", &[]).json()["missing_protections"].clone();
    if missing.as_array().unwrap().is_empty() {
        println!("skipped: lesser-jail: a jail with fewer walls: this user's jails lack nothing");
        return;
    }
    let image = node.upload_bytes(&bundle(Contract::Event, "", "def work(event): return 'here'"));
    let last = node.deploy(json!({ "f": { "image": image, "isolation": "process" } }));
    let problem = &last["problem"];
    assert_eq!(problem["code"], "L6008", "{last}");
    assert!(problem["hint"].as_str().unwrap().contains("--allow-weaker-jail") || missing[0]["protection"] == "jail");
    let first = missing[0]["why"].as_str().unwrap();
    assert!(problem["detail"].as_str().unwrap().contains(first), "{last}");
    let bases = fs::read_dir(node.data.join("bases")).unwrap().flatten();
    let made: Vec<_> = bases.filter(|entry| entry.path().join("venv").exists()).collect();
    assert!(made.is_empty(), "{made:?}");
    assert_eq!(node.api("GET", "/v1/functions/f", &[]).code(), "L2001");
}

/// A node that may not open `/dev/kvm`: it sees the device as one on a file system whose devices are not to be used.
#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn without_rights_on_kvm_a_microvm_function_is_refused_and_the_rest_runs() {
    const HIDE: &str = "mount --bind /dev/kvm /dev/kvm && mount -o remount,bind,nodev /dev/kvm && exec \"$@\"";
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let node = match Path::new("/dev/kvm").exists() {
        false => Node::start_in(&data, &[]),
        true => {
            let namespaces = if geteuid().is_root() { "-m" } else { "-rm" };
            let mut command = Command::new("unshare");
            command.args([namespaces, "sh", "-c", HIDE, "sh", PROGRAM]);
            match Node::try_start_by(&mut command, &data, &[]) {
                Ok(node) => node,
                Err(said) => {
                    println!("skipped: mount: a node without rights on KVM: {said}");
                    return;
                }
            }
        }
    };
    let last = node.deploy(json!({ "vm": { "image": node.upload("hello"), "isolation": "microvm" } }));
    let problem = &last["problem"];
    assert_eq!(problem["code"], "L6010", "{last}");
    assert!(problem["detail"].as_str().unwrap().contains("/dev/kvm cannot be opened"), "{last}");
    assert!(problem["hint"].as_str().unwrap().contains("isolation = \"wasm\""), "{last}");
    assert_eq!(node.api("GET", "/v1/functions/vm", &[]).code(), "L2001");
    node.deploy_one("hello", "hello", json!({}));
    assert_eq!(node.call("hello", "").text(), "hello, world\n");
}
