//! Why something is not a CloudEvent: which attribute, of which event, and what is wrong with it.

use problem::{Code, Problem};
use std::fmt;

/// What is wrong with an attribute, the data, or the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Place in a batch, from 0.
    pub index: Option<usize>,
    /// Name of the attribute; `data`, `data_base64` and `content-type` count as some, empty means the whole.
    pub attribute: String,
    pub fault: Fault,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A required attribute is not there.
    Missing,
    Empty,
    /// It is there twice, or two are there that exclude each other.
    Twice,
    /// A name is 1 to 64 of a-z and 0-9, and not `data`.
    Name,
    /// A character that the standard forbids in a text.
    Character,
    /// Bytes that are not UTF-8, as they are or once their percent signs are decoded.
    Utf8,
    /// It must be a text, or for an extension a text, a boolean or an integer of 32 bits.
    Type,
    /// Not of the form the standard wants: of a time, a URI, a media type, base64.
    Form {
        found: String,
    },
    /// A version of CloudEvents that is not spoken here.
    Version {
        found: String,
    },
    /// An event format that is not spoken here.
    Format {
        found: String,
    },
    /// Not JSON, or not an object, or not a list of objects.
    Json {
        why: String,
    },
    TooLong {
        bytes: usize,
        bytes_max: usize,
    },
    TooManyAttributes {
        count_max: usize,
    },
    TooManyEvents {
        count_max: usize,
    },
}

impl Error {
    pub(crate) fn of(attribute: &str, fault: Fault) -> Self {
        Self { index: None, attribute: attribute.to_owned(), fault }
    }

    pub(crate) fn whole(fault: Fault) -> Self {
        Self::of("", fault)
    }

    pub(crate) fn in_batch(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }
}

impl Fault {
    /// The word for it in test cases.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Empty => "empty",
            Self::Twice => "twice",
            Self::Name => "name",
            Self::Character => "character",
            Self::Utf8 => "utf8",
            Self::Type => "type",
            Self::Form { .. } => "form",
            Self::Version { .. } => "version",
            Self::Format { .. } => "format",
            Self::Json { .. } => "json",
            Self::TooLong { .. } => "too-long",
            Self::TooManyAttributes { .. } => "too-many-attributes",
            Self::TooManyEvents { .. } => "too-many-events",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(index) = self.index {
            write!(f, "event {index} of the batch: ")?;
        }
        match self.attribute.as_str() {
            "" => f.write_str("the CloudEvent ")?,
            attribute => write!(f, "the attribute {attribute:?} ")?,
        }
        match &self.fault {
            Fault::Missing => f.write_str("is missing"),
            Fault::Empty => f.write_str("is empty"),
            Fault::Twice => f.write_str("is given twice"),
            Fault::Name => f.write_str("has a name that is not 1 to 64 of a-z and 0-9"),
            Fault::Character => f.write_str("holds a control character, or another one that a text may not hold"),
            Fault::Utf8 => f.write_str("is not UTF-8"),
            Fault::Type => f.write_str("is neither a text nor a boolean nor an integer of 32 bits"),
            Fault::Form { found } => write!(f, "is {found:?}, which has not the form it must have"),
            Fault::Version { found } => write!(f, "is {found:?}, this node speaks \"1.0\""),
            Fault::Format { found } => {
                write!(f, "is {found:?}, this node speaks {:?} and {:?} in UTF-8", crate::STRUCTURED, crate::BATCHED)
            }
            Fault::Json { why } => write!(f, "is not the JSON it must be: {why}"),
            Fault::TooLong { bytes, bytes_max } => write!(f, "has {bytes} bytes, the limit is {bytes_max}"),
            Fault::TooManyAttributes { count_max } => write!(f, "has more than {count_max} attributes"),
            Fault::TooManyEvents { count_max } => write!(f, "has more than {count_max} events"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = match error.fault {
            Fault::TooLong { .. } | Fault::TooManyEvents { .. } => Code::EventTooLarge,
            _ => Code::EventInvalid,
        };
        Problem::new(code, error.to_string())
    }
}
