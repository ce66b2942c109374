//! `lighter schema`: the JSON Schema of `lighter.toml`, for editors and for people.

use super::Session;
use super::stop::Result;

pub fn run(session: &Session) -> Result {
    session.out.json(&manifest::json_schema())
}
