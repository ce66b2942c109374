//! Opens the kinds of units: a new isolation class is one more line here, and a word in `manifest::Isolation`.
//!
//! Where the API or the command line treats one class differently, it names that class itself.

use super::config::Config;
use manifest::Isolation;
use problem::{Code, Problem};
use std::sync::Arc;
use unit::UnitKind;
use unit_metal::MetalKind;
use unit_process::ProcessKind;
use warehouse::{Shelf, Warehouse};

/// The kinds this node offers, each with the shelf of its artefacts.
pub struct Kinds {
    kinds: Vec<Kind>,
    /// What the node says of itself is partly this kind's to say.
    pub process: ProcessKind,
    /// And what it says of boards this one's.
    pub metal: MetalKind,
}

#[derive(Clone)]
pub struct Kind {
    pub units: Arc<dyn UnitKind>,
    pub shelf: Shelf,
}

impl Kinds {
    /// # Errors
    /// A kind cannot work on this machine, or its shelf cannot be opened.
    pub fn open(config: &Config, jail: &str, warehouse: &Warehouse) -> Result<Self, Problem> {
        let process = ProcessKind::new(unit_process::Config {
            folder: config.data.join("bases"),
            python: config.python.clone(),
            allow_weaker: config.allow_weaker_jail,
            units_bytes_max: budget::Purpose::Units.part_of(config.memory_bytes_max),
            jail: vec![jail.to_owned()],
        })?;
        let metal = MetalKind::new(&config.data.join("boards"))?;
        let kinds: Vec<Arc<dyn UnitKind>> = vec![
            Arc::new(unit_wasm::WasmKind::new(unit_wasm::Config { units_max: config.units_max })?),
            Arc::new(process.clone()),
            #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
            Arc::new(unit_microvm::MicrovmKind::new()?),
            Arc::new(metal.clone()),
        ];
        Self::with(kinds, process, metal, warehouse)
    }

    fn with(
        kinds: impl IntoIterator<Item = Arc<dyn UnitKind>>,
        process: ProcessKind,
        metal: MetalKind,
        warehouse: &Warehouse,
    ) -> Result<Self, Problem> {
        let kinds = kinds.into_iter().map(|units| {
            let shelf = warehouse.shelf(units.isolation().as_str(), units.fingerprint())?;
            Ok(Kind { units, shelf })
        });
        Ok(Self { kinds: kinds.collect::<Result<_, Problem>>()?, process, metal })
    }

    /// # Errors
    /// [`Code::IsolationUnknown`], with the classes there are.
    pub fn get(&self, isolation: Isolation) -> Result<&Kind, Problem> {
        self.kinds.iter().find(|kind| kind.units.isolation() == isolation).ok_or_else(|| {
            let (wanted, offered) = (isolation.as_str(), self.words().join(", "));
            Problem::new(
                Code::IsolationUnknown,
                format!("this node has no isolation class {wanted:?}; it has {offered}"),
            )
        })
    }

    /// The words for them in manifests.
    pub fn words(&self) -> Vec<String> {
        self.kinds.iter().map(|kind| kind.units.isolation().as_str().to_owned()).collect()
    }

    /// What their artefacts depend on.
    pub fn fingerprints(&self) -> String {
        let each =
            self.kinds.iter().map(|kind| format!("{}-{}", kind.units.isolation().as_str(), kind.units.fingerprint()));
        each.collect::<Vec<_>>().join(" ")
    }
}
