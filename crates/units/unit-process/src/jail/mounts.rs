//! The jail's own root: a small read-only tmpfs with what it may read bound into it, and scratch folders of a fixed
//! size.

use super::inside::Failed;
use super::{Bind, CODE, SCRATCH, Settings, USER};
use crate::bundle::Bundle;
use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// Files of the root beside the code: folders to mount on.
const ROOT_FILES_MAX: usize = 2_000;
/// Files of one scratch folder.
const SCRATCH_FILES_MAX: u32 = 10_000;
/// Device files that a program may expect; they hold nothing.
const DEVICES: [&str; 4] = ["null", "zero", "urandom", "random"];

/// No source.
const NONE: Option<&Path> = None;

/// Builds the root and enters it.
pub fn build(settings: &Settings, code: &[u8]) -> Result<(), Failed> {
    let root = &settings.staging;
    // SAFETY: a plain number; the process has one thread.
    #[expect(unsafe_code, reason = "what is made here is for the jail's user to read")]
    unsafe {
        libc::umask(0o022);
    }
    mount(NONE, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE, "").map_err(Failed::at("mount namespace"))?;
    let bytes = 2 * code.len() + (12 << 20);
    let options = format!("mode=0755,size={bytes},nr_inodes={}", ROOT_FILES_MAX + 2 * crate::bundle::FILES_MAX);
    mount(Some("tmpfs"), root, Some("tmpfs"), libc::MS_NOSUID | libc::MS_NODEV, &options)
        .map_err(Failed::at("root"))?;
    for bind in &settings.binds {
        bring(root, bind)?;
    }
    for device in DEVICES {
        let path = Path::new("/dev").join(device);
        bind_to(&path, &inside(root, &path), libc::MS_NOEXEC).map_err(Failed::at(format!("/dev/{device}")))?;
    }
    processes(root);
    if !settings.probe {
        unpack(root, code)?;
    }
    scratch(root, settings)?;
    enter(root).map_err(Failed::at("entering the root"))?;
    // What is mounted below keeps its own flags.
    let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
    mount(NONE, Path::new("/"), None, flags, "").map_err(Failed::at("making the root read-only"))
}

fn bring(root: &Path, bind: &Bind) -> Result<(), Failed> {
    match bind {
        Bind::Path { source, target } => {
            bind_to(source, &inside(root, target), libc::MS_NODEV).map_err(Failed::at(source.display().to_string()))
        }
        Bind::Link { at, to } => {
            let at = inside(root, at);
            let make = || {
                at.parent().map_or(Ok(()), folder)?;
                symlink(to, &at)
            };
            make().map_err(Failed::at(at.display().to_string()))
        }
    }
}

/// Binds a file or folder, read-only.
fn bind_to(source: &Path, target: &Path, flags: libc::c_ulong) -> io::Result<()> {
    if fs::metadata(source)?.is_dir() {
        folder(target)?;
    } else {
        target.parent().map_or(Ok(()), folder)?;
        File::create(target)?;
    }
    mount(Some(source), target, None, libc::MS_BIND | libc::MS_REC, "")?;
    seal(target, flags)
}

/// Makes a mount and all below it read-only, by the newer call if the kernel has it, which reaches those below too.
fn seal(target: &Path, flags: libc::c_ulong) -> io::Result<()> {
    /// `AT_RECURSIVE`
    const RECURSIVE: libc::c_uint = 0x8000;
    let mut set = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID;
    if flags & libc::MS_NODEV != 0 {
        set |= libc::MOUNT_ATTR_NODEV;
    }
    if flags & libc::MS_NOEXEC != 0 {
        set |= libc::MOUNT_ATTR_NOEXEC;
    }
    let attributes = [set, 0, 0, 0];
    let path = text(target);
    // SAFETY: the path ends with a NUL, and the four numbers are the kernel's `struct mount_attr`.
    #[expect(unsafe_code, reason = "no safe call changes a mount and those below")]
    let changed = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            RECURSIVE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    if changed == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::ENOSYS) {
        return Err(error);
    }
    let flags = flags | libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID;
    mount(NONE, target, None, flags, "")
}

/// A `/proc` of its own with its own processes in it, if the system allows one; programs do without.
fn processes(root: &Path) {
    let target = root.join("proc");
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
    if folder(&target).is_ok() {
        let mounted = mount(Some("proc"), &target, Some("proc"), flags, "hidepid=2,subset=pid");
        // A kernel before 5.8 has no part of /proc alone, and the whole one says more than a unit should know.
        drop(mounted);
    }
}

fn unpack(root: &Path, code: &[u8]) -> Result<(), Failed> {
    let bundle =
        Bundle::read(code).map_err(|problem| Failed { step: "bundle".into(), why: problem.detail.into_owned() })?;
    let home = inside(root, Path::new(CODE));
    let write = |name: &str, content: &[u8]| {
        let path = home.join(name);
        path.parent().map_or(Ok(()), folder)?;
        fs::write(path, content)
    };
    folder(&home).map_err(Failed::at(CODE))?;
    for (name, content) in &bundle.files {
        write(name, content).map_err(Failed::at(name.as_str()))?;
    }
    Ok(())
}

/// One folder of a fixed size for each child that may live at once.
fn scratch(root: &Path, settings: &Settings) -> Result<(), Failed> {
    let home = inside(root, Path::new(SCRATCH));
    folder(&home).map_err(Failed::at(SCRATCH))?;
    let user = settings.outer_user.unwrap_or(USER);
    let bytes = settings.scratch_bytes;
    let options = format!("mode=0700,uid={user},gid={user},size={bytes},nr_inodes={SCRATCH_FILES_MAX}");
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    for slot in 0..settings.slots {
        let target = home.join(slot.to_string());
        let made = folder(&target).and_then(|()| mount(Some("tmpfs"), &target, Some("tmpfs"), flags, &options));
        made.map_err(Failed::at(format!("{SCRATCH}/{slot}")))?;
    }
    Ok(())
}

/// Makes `root` the root, and lets go of the old one.
fn enter(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    // SAFETY: both paths are "." with a NUL. The new root is put on top of the old one, which is then let go.
    #[expect(unsafe_code, reason = "no safe call changes the root")]
    unsafe {
        let here = c".".as_ptr();
        if libc::syscall(libc::SYS_pivot_root, here, here) != 0 || libc::umount2(here, libc::MNT_DETACH) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    std::env::set_current_dir("/")
}

fn mount(
    source: Option<impl AsRef<Path>>,
    target: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
    options: &str,
) -> io::Result<()> {
    let source = source.map(|source| text(source.as_ref()));
    let (target, kind) = (text(target), kind.map(|kind| text(Path::new(kind))));
    let options = text(Path::new(options));
    let pointer = |text: Option<&CString>| text.map_or(std::ptr::null(), |text| CStr::as_ptr(text));
    // SAFETY: each text ends with a NUL and lives until the call returns; the kernel takes null for what is not given.
    #[expect(unsafe_code, reason = "mounting")]
    let mounted = unsafe {
        libc::mount(pointer(source.as_ref()), target.as_ptr(), pointer(kind.as_ref()), flags, options.as_ptr().cast())
    };
    if mounted == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `/a/b` below `root`.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Makes a folder and those above it, readable for the jail's user.
fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}
