//! The classes this node offers, each with its units and the shelf of its artefacts.

use crate::class::Class;
use manifest::Isolation;
use problem::{Code, Problem};
use std::sync::Arc;
use unit::IsolationClass;
use warehouse::{Shelf, Warehouse};

pub struct OfferedClasses {
    classes: Vec<OfferedClass>,
}

#[derive(Clone)]
pub struct OfferedClass {
    pub class: Arc<dyn Class>,
    pub units: Arc<dyn IsolationClass>,
    pub shelf: Shelf,
}

impl OfferedClasses {
    /// # Errors
    /// A shelf cannot be opened.
    pub fn open(classes: Vec<Arc<dyn Class>>, warehouse: &Warehouse) -> Result<Self, Problem> {
        let offered = classes.into_iter().map(|class| {
            let units = class.units();
            let shelf = warehouse.shelf(units.isolation().as_str(), units.fingerprint())?;
            Ok(OfferedClass { class, units, shelf })
        });
        Ok(Self { classes: offered.collect::<Result<_, Problem>>()? })
    }

    /// # Errors
    /// [`Code::IsolationUnknown`], with the classes there are.
    pub fn get(&self, isolation: Isolation) -> Result<&OfferedClass, Problem> {
        self.classes.iter().find(|offered| offered.units.isolation() == isolation).ok_or_else(|| {
            let (wanted, offered) = (isolation.as_str(), self.words().join(", "));
            Problem::new(
                Code::IsolationUnknown,
                format!("this node has no isolation class {wanted:?}; it has {offered}"),
            )
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = &OfferedClass> {
        self.classes.iter()
    }

    /// The words for them in manifests.
    pub fn words(&self) -> Vec<String> {
        self.iter().map(|offered| offered.units.isolation().as_str().to_owned()).collect()
    }

    /// What their artefacts depend on.
    pub fn fingerprints(&self) -> String {
        let each = self
            .iter()
            .map(|offered| format!("{}-{}", offered.units.isolation().as_str(), offered.units.fingerprint()));
        each.collect::<Vec<_>>().join(" ")
    }
}
