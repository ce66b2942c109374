//! Header fields and trailers: names in lower case, in the order they came.

use super::super::Handle;
use super::super::bindings::wasi::http::types::{HeaderError, HostFields};
use super::is_token;
use crate::imports::Outside;
use alloc::string::String;
use alloc::vec::Vec;
use kernel_abi::fields::{BYTES_MAX, FORBIDDEN};
use wasmtime::{Result, bail};

/// What a field takes beside its name and value.
const FIELD_BYTES: usize = 32;

#[derive(Clone, Default)]
pub struct Fields {
    pub entries: Vec<(String, Vec<u8>)>,
    bytes: usize,
    is_immutable: bool,
}

type Outcome<T> = Result<core::result::Result<T, HeaderError>>;

impl Fields {
    /// What came from outside, which the unit cannot change.
    pub fn immutable(entries: Vec<(String, Vec<u8>)>) -> Self {
        let bytes = entries.iter().map(|(name, value)| name.len() + value.len() + FIELD_BYTES).sum();
        Self { entries, bytes, is_immutable: true }
    }

    /// The same for the unit to look at.
    pub fn view(&self) -> Self {
        Self { is_immutable: true, ..self.clone() }
    }

    /// What the head promises of its body.
    pub fn content_length(&self) -> Option<u64> {
        let (_, value) = self.entries.iter().find(|(name, _)| name == "content-length")?;
        core::str::from_utf8(value).ok()?.trim().parse().ok()
    }

    fn remove(&mut self, name: &str) {
        self.entries.retain(|(other, _)| other != name);
        self.bytes = self.entries.iter().map(|(name, value)| name.len() + value.len() + FIELD_BYTES).sum();
    }

    fn add(&mut self, name: String, value: Vec<u8>) -> Result<()> {
        self.bytes += name.len() + value.len() + FIELD_BYTES;
        if self.bytes > BYTES_MAX {
            bail!("wasi:http: header fields of {} bytes, the limit is {BYTES_MAX}", self.bytes);
        }
        self.entries.push((name, value));
        Ok(())
    }
}

/// A name as it is kept.
fn name_of(name: &str) -> core::result::Result<String, HeaderError> {
    if !is_token(name) {
        return Err(HeaderError::InvalidSyntax);
    }
    let name = name.to_ascii_lowercase();
    if FORBIDDEN.contains(&name.as_str()) { Err(HeaderError::Forbidden) } else { Ok(name) }
}

fn is_value(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == b'\t' || (*byte >= 32 && *byte != 127))
}

impl Outside {
    /// The fields, if the unit may change them.
    fn changed(&mut self, fields: &Handle) -> Outcome<&mut Fields> {
        let fields = self.held.get_mut::<Fields>(fields)?;
        Ok(if fields.is_immutable { Err(HeaderError::Immutable) } else { Ok(fields) })
    }
}

impl HostFields for Outside {
    fn new(&mut self) -> Result<Handle> {
        self.held.push(Fields::default())
    }

    fn from_list(&mut self, entries: Vec<(String, Vec<u8>)>) -> Outcome<Handle> {
        let mut fields = Fields::default();
        for (name, value) in entries {
            match name_of(&name) {
                Ok(name) if is_value(&value) => fields.add(name, value)?,
                Ok(_) => return Ok(Err(HeaderError::InvalidSyntax)),
                Err(error) => return Ok(Err(error)),
            }
        }
        self.held.push(fields).map(Ok)
    }

    fn get(&mut self, fields: Handle, name: String) -> Result<Vec<Vec<u8>>> {
        let name = name.to_ascii_lowercase();
        let entries = self.held.get::<Fields>(&fields)?.entries.iter();
        Ok(entries.filter(|(other, _)| *other == name).map(|(_, value)| value.clone()).collect())
    }

    fn has(&mut self, fields: Handle, name: String) -> Result<bool> {
        let name = name.to_ascii_lowercase();
        Ok(self.held.get::<Fields>(&fields)?.entries.iter().any(|(other, _)| *other == name))
    }

    fn set(&mut self, fields: Handle, name: String, values: Vec<Vec<u8>>) -> Outcome<()> {
        let fields = match self.changed(&fields)? {
            Ok(fields) => fields,
            Err(error) => return Ok(Err(error)),
        };
        let name = match name_of(&name) {
            Ok(name) if values.iter().all(|value| is_value(value)) => name,
            Ok(_) => return Ok(Err(HeaderError::InvalidSyntax)),
            Err(error) => return Ok(Err(error)),
        };
        fields.remove(&name);
        for value in values {
            fields.add(name.clone(), value)?;
        }
        Ok(Ok(()))
    }

    fn delete(&mut self, fields: Handle, name: String) -> Outcome<()> {
        let fields = match self.changed(&fields)? {
            Ok(fields) => fields,
            Err(error) => return Ok(Err(error)),
        };
        Ok(name_of(&name).map(|name| fields.remove(&name)))
    }

    fn append(&mut self, fields: Handle, name: String, value: Vec<u8>) -> Outcome<()> {
        let fields = match self.changed(&fields)? {
            Ok(fields) => fields,
            Err(error) => return Ok(Err(error)),
        };
        match name_of(&name) {
            Ok(name) if is_value(&value) => fields.add(name, value).map(Ok),
            Ok(_) => Ok(Err(HeaderError::InvalidSyntax)),
            Err(error) => Ok(Err(error)),
        }
    }

    fn entries(&mut self, fields: Handle) -> Result<Vec<(String, Vec<u8>)>> {
        Ok(self.held.get::<Fields>(&fields)?.entries.clone())
    }

    fn clone(&mut self, fields: Handle) -> Result<Handle> {
        let fields = Fields { is_immutable: false, ..self.held.get::<Fields>(&fields)?.clone() };
        self.held.push(fields)
    }

    fn drop(&mut self, fields: Handle) -> Result<()> {
        self.held.delete::<Fields>(fields).map(drop)
    }
}
