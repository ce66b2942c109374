//! `microvm`: components on our kernel, each in a machine of its own.

use super::{Class, Opened, kernel};
use node::config::Config;
use problem::Problem;
use std::sync::Arc;
use unit::IsolationClass;
use unit_microvm::MicrovmClass;

pub const CLASS: Class = Class {
    options: None,
    configure: |_| Ok(Box::new(open)),
    command_line: None,
    document: None,
    compiler: Some(kernel::compiler),
    program: None,
};

struct Microvm(Arc<MicrovmClass>);

fn open(_: &Config) -> Result<Opened, Problem> {
    Ok(Opened::new(Microvm(Arc::new(MicrovmClass::new()?))))
}

impl node::Class for Microvm {
    fn units(&self) -> Arc<dyn IsolationClass> {
        self.0.clone()
    }
}
