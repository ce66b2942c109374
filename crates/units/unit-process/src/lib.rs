//! Process units: native code in a Linux jail, a fresh process for each call, a millisecond to start (Java: thirty).
//!
//! ```text
//!   bundle ──check──▶ what it is                     (bundle.rs, tar.rs)
//!          ──compile─▶ its base is made, it fits      (base/)
//!          ──load────▶ ready                          (prepared.rs)
//!   first call ──▶ zygote: a jail, the function loaded in it        (zygote.rs, spawn.rs, jail/, cgroup/)
//!                ──▶ now and then: what it uses beside its calls        (allowance.rs)
//!   each call  ──▶ child: forked ahead of need, used once           (child.rs)
//!              ──▶ frames on one socket, limits watched, output logged   (attempt.rs, wire.rs, arena.rs, lent.rs, pump.rs)
//! ```
//! What a unit can reach is its own scratch folder, the read-only base, and what its host answers on the socket; the
//! answers ask the function's grants first, and are the same for every class of units (`unit-host`).

mod allowance;
mod android;
mod arena;
mod attach;
mod attempt;
mod base;
mod building;
pub mod bundle;
mod cgroup;
mod child;
mod convert;
mod descriptors;
pub mod jail;
mod jar;
mod keeper;
mod lent;
mod loading;
mod prepared;
mod process;
mod pump;
mod rack;
mod region;
mod sealed;
mod slot;
mod spawn;
mod tar;
mod turn;
mod users;
mod wire;
mod zygote;

pub use base::Lock;
pub use base::ready;
use base::{Base, Bases, JavaBases};
use bundle::{Bundle, Runtime};
use cgroup::Groups;
use convert::Converter;
use futures_util::future::BoxFuture;
use jail::Missing;
pub use lent::Pieces;
use manifest::Isolation;
use problem::{Code, Problem};
use sha2::{Digest, Sha256};
use spawn::Spawner;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tokio::sync::OnceCell;
use unit::{Artefact, Contract, Deployed, IsolationClass, Prepared, Shape};
use users::Users;

/// What a node chooses.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where bases are kept; the folder is this node's alone.
    pub folder: PathBuf,
    /// The interpreter to make bases of, in the place of `python3`.
    pub python: Option<PathBuf>,
    /// The home of the Java to make bases of, or its program `java`, in the place of the one on the path.
    pub java: Option<PathBuf>,
    /// Goes on where this system refuses a protection.
    pub allow_weaker: bool,
    /// Memory of all units together, where the kernel counts it.
    pub units_bytes_max: u64,
    /// Arguments by which this program becomes a jail (see [`jail::main`]).
    pub jail: Vec<String>,
}

/// The class. One for the node; cheap to clone.
#[derive(Clone)]
pub struct ProcessClass {
    shared: Arc<ProcessInner>,
    fingerprint: Arc<str>,
}

/// What all functions share.
pub struct ProcessInner {
    bases: Bases,
    java_bases: JavaBases,
    converter: Converter,
    users: Users,
    units_bytes_max: u64,
    spawner: Spawner,
    /// Made for the first jail, with what this system refuses of them.
    groups: OnceLock<(Groups, Vec<Missing>)>,
    /// All that it refuses, once a jail was built.
    missing: OnceCell<Vec<Missing>>,
    allow_weaker: bool,
    number: AtomicU64,
}

/// What the node says of its base.
#[derive(Debug, Clone, PartialEq)]
pub struct Python {
    pub version: String,
    pub implementation: String,
    pub numpy: String,
    /// Versions by name.
    pub packages: BTreeMap<String, String>,
    pub speed: f64,
}

impl ProcessClass {
    /// Makes nothing yet but folders: a node without Python or jails starts all the same.
    ///
    /// # Errors
    /// The folder cannot be used, or there is no thread to be had.
    pub fn new(config: Config) -> Result<Self, Problem> {
        let Config { folder, python, java, allow_weaker, units_bytes_max, jail } = config;
        let bases = Bases::open(&folder, python)?;
        let java_bases = JavaBases::new(bases.folder(), java);
        let spawner = Spawner::start(&jail)
            .map_err(|error| Problem::new(Code::Internal, format!("starting threads: {error}")))?;
        Groups::remove_left(&group_name(&bases.folder()));
        let shared = ProcessInner {
            users: Users::of(&folder)?,
            units_bytes_max,
            bases,
            java_bases,
            converter: Converter::default(),
            spawner,
            groups: OnceLock::new(),
            missing: OnceCell::new(),
            allow_weaker,
            number: AtomicU64::new(0),
        };
        Ok(Self { shared: Arc::new(shared), fingerprint: base::fingerprint().into() })
    }

    /// The protections this system refuses, found out the first time it is asked.
    ///
    /// # Errors
    /// There can be no jail at all.
    pub async fn missing(&self) -> Result<Vec<Missing>, Problem> {
        let shared = &self.shared;
        let found = shared.missing.get_or_try_init(|| async {
            let jail = building::probe(shared).await?;
            Ok(shared.groups().1.iter().cloned().chain(jail).collect())
        });
        found.await.cloned()
    }

    /// Memory of all units together, as the kernel counts it; none where it does not, or where no unit was started yet.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.shared.groups.get()?.0.memory_bytes()
    }

    /// The most they may have.
    pub fn memory_bytes_max(&self) -> u64 {
        self.shared.units_bytes_max
    }

    /// The base, if it was made already.
    pub fn python(&self) -> Option<Python> {
        let base = self.shared.bases.there()?;
        let base::Description { python, implementation, numpy, packages, speed, .. } = base.description.clone();
        Some(Python { version: python, implementation, numpy, packages, speed })
    }

    /// Makes the base now, and not with the first deployment.
    ///
    /// # Errors
    /// [`Code::BaseUnavailable`].
    pub fn make_base(&self) -> Result<(), Problem> {
        self.shared.bases.get(None).map(drop)
    }

    /// Makes the base for Java now, and not with the first deployment.
    ///
    /// # Errors
    /// [`Code::BaseUnavailable`].
    pub fn make_java_base(&self) -> Result<(), Problem> {
        self.shared.java_bases.get().map(drop)
    }
}

/// The name of the control group of the node with these bases.
pub fn group_name(folder: &Path) -> String {
    let hash = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    hash.iter().take(6).fold(cgroup::NAME_PREFIX.to_owned(), |name, byte| name + &format!("{byte:02x}"))
}

impl ProcessInner {
    fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Relaxed) + 1
    }

    /// # Errors
    /// [`Code::JailIncomplete`] names what is missing, unless the node was told to go on.
    fn allow(&self, jail: &[Missing]) -> Result<(), Problem> {
        self.allow_without(self.groups().1.iter().chain(jail))
    }

    fn allow_without<'a>(&self, missing: impl Iterator<Item = &'a Missing>) -> Result<(), Problem> {
        let missing: Vec<String> = missing.map(|one| format!("{} ({})", one.protection.as_str(), one.why)).collect();
        if missing.is_empty() || self.allow_weaker {
            return Ok(());
        }
        Err(Problem::new(Code::JailIncomplete, format!("this system refuses {}", missing.join(", "))))
    }

    fn groups(&self) -> &(Groups, Vec<Missing>) {
        self.groups.get_or_init(|| Groups::open(&group_name(&self.bases.folder()), self.units_bytes_max))
    }

    fn base(&self, bundle: &Bundle<'_>) -> Result<Arc<dyn Base>, Problem> {
        let base: Arc<dyn Base> = match bundle.about.runtime {
            Runtime::Python => self.bases.get(bundle.lock())?,
            Runtime::Java => self.java_bases.get()?,
            Runtime::Android => self.java_bases.android()?,
        };
        base.fits(&bundle.about)?;
        Ok(base)
    }
}

impl IsolationClass for ProcessClass {
    fn isolation(&self) -> Isolation {
        Isolation::Process
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// A jail is built for nobody, the first time.
    fn usable(&self) -> BoxFuture<'_, Result<(), Problem>> {
        Box::pin(async { self.shared.allow_without(self.missing().await?.iter()) })
    }

    fn check(&self, image: &[u8]) -> Result<Shape, Problem> {
        let bundle = Bundle::read(image)?;
        let contract = match bundle.about.contract {
            bundle::Contract::Event => Contract::Unit,
            bundle::Contract::Call => Contract::Call,
        };
        Ok(Shape { contract, imports: Vec::new() })
    }

    /// Makes the base the bundle needs, if it is not there, and checks that the bundle fits it. What is for Android is
    /// converted.
    fn compile(&self, image: &[u8]) -> Result<Vec<u8>, Problem> {
        let bundle = Bundle::read(image)?;
        if bundle.about.runtime == Runtime::Android {
            return convert::converted(&self.shared, &bundle, image);
        }
        self.shared.base(&bundle)?;
        Ok(image.to_vec())
    }

    fn load(&self, artefact: Artefact, function: Deployed) -> Result<Arc<dyn Prepared>, Problem> {
        let corrupt = |error: std::io::Error| {
            Problem::new(Code::ArtefactCorrupt, format!("the artefact cannot be read: {error}"))
        };
        let mut code: File = artefact.file;
        let mut bytes = Vec::new();
        code.rewind().map_err(corrupt)?;
        code.read_to_end(&mut bytes).map_err(corrupt)?;
        let bundle = Bundle::read(&bytes)?;
        let asked = function.function.base.map(|base| match base {
            manifest::Base::Python => Runtime::Python,
            manifest::Base::Java => Runtime::Java,
            manifest::Base::Android => Runtime::Android,
        });
        if asked.is_some_and(|asked| asked != bundle.about.runtime) {
            let detail = "the manifest names another base than the one its bundle was made for";
            return Err(Problem::new(Code::BaseMismatch, detail));
        }
        if bundle.about.runtime == Runtime::Android {
            convert::check(&self.shared, &bundle.about)?;
        }
        let base = self.shared.base(&bundle)?;
        let recipe = zygote::Recipe { deployed: Arc::new(function), about: bundle.about, base, code };
        building::check(&self.shared, &recipe)?;
        Ok(prepared::PreparedProcess::new(self.shared.clone(), recipe))
    }
}
