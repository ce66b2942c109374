//! The nodes that a function should be near: one of them by its name, or all that have a label.
//!
//! ```toml
//! [function.plate.place]
//! near = "site=harbour"
//! within = "20ms"
//! copies = 2
//! ```

use crate::place::label_with_values;
use crate::queue::is_node_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which nodes are meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Near {
    /// One node, by its name or id.
    Node(String),
    /// All nodes with one of these values of a label.
    Label { key: String, values: Vec<String> },
}

impl TryFrom<String> for Near {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.contains('=') {
            let label = label_with_values(&text).map(|(key, values)| Self::Label { key, values });
            return label.ok_or_else(|| format!("{text:?} is not a label: write site=harbour|bridge"));
        }
        if is_node_name(&text) {
            return Ok(Self::Node(text));
        }
        let what = "write a node's name or id (pi-7), or a label that nodes have (site=harbour)";
        Err(format!("{text:?} names no node: {what}"))
    }
}

impl From<Near> for String {
    fn from(near: Near) -> Self {
        near.to_string()
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => f.write_str(name),
            Self::Label { key, values } => write!(f, "{key}={}", values.join("|")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Near, String> {
        Near::try_from(text.to_owned())
    }

    #[test]
    fn a_node_or_a_label_reads_back_as_it_is_written() {
        for text in ["pi-7", "3fa2c915", "site=harbour", "site=harbour|bridge"] {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        assert_eq!(read("pi-7"), Ok(Near::Node("pi-7".to_owned())));
        let values = vec!["harbour".to_owned()];
        assert_eq!(read("site=harbour"), Ok(Near::Label { key: "site".to_owned(), values }));
    }

    #[test]
    fn what_names_no_node_is_refused() {
        let long = "a".repeat(33);
        for text in ["", "pi 7", "!site=harbour", "site=", "=harbour", "Site=a", "site=a||b", "Pi-7", &long] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
