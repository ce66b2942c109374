//! Unknown keys and words, found before anything else is read, so that the error can name the nearest known one.
//!
//! The known ones come from the JSON Schema of the types: a new field is known here as soon as it exists.

use crate::nearest::nearest;
use problem::{Code, Problem};
use serde_json::Value as Json;
use toml::{Table, Value};

pub fn check(table: &Table) -> Result<(), Problem> {
    let schema = crate::json_schema();
    walk(table, &schema, &schema, "")
}

fn walk(table: &Table, schema: &Json, root: &Json, path: &str) -> Result<(), Problem> {
    let schema = resolve(schema, root);
    let properties = schema.get("properties").and_then(Json::as_object);
    let any = schema.get("additionalProperties").filter(|any| any.is_object());
    for (key, value) in table {
        let here = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (properties.and_then(|known| known.get(key)), any) {
            (Some(inner), _) | (None, Some(inner)) => descend(value, inner, root, &here)?,
            (None, None) => {
                // Without known keys it is a free table, whose values are checked by their type.
                if let Some(known) = properties {
                    return Err(unknown(&here, key, known.keys()));
                }
            }
        }
    }
    Ok(())
}

fn descend(value: &Value, schema: &Json, root: &Json, path: &str) -> Result<(), Problem> {
    match value {
        Value::Table(table) => walk(table, choose(schema, root, "object"), root, path),
        Value::Array(items) => {
            let inner = choose(schema, root, "array").get("items").unwrap_or(&Json::Null);
            items.iter().try_for_each(|item| descend(item, inner, root, path))
        }
        Value::String(word) => check_word(word, schema, root, path),
        _ => Ok(()),
    }
}

/// The alternative of `schema` that describes a value of this type: `http` may be a route, a table or a list.
fn choose<'a>(schema: &'a Json, root: &'a Json, kind: &str) -> &'a Json {
    let schema = resolve(schema, root);
    let alternatives = schema.get("anyOf").and_then(Json::as_array).into_iter().flatten();
    let fits = |schema: &&Json| schema.get("type").and_then(Json::as_str) == Some(kind);
    alternatives.map(|inner| choose(inner, root, kind)).find(fits).unwrap_or(schema)
}

fn resolve<'a>(schema: &'a Json, root: &'a Json) -> &'a Json {
    match schema.get("$ref").and_then(Json::as_str).and_then(|path| path.strip_prefix('#')) {
        Some(pointer) => root.pointer(pointer).unwrap_or(schema),
        None => schema,
    }
}

fn unknown<'a>(path: &str, key: &str, known: impl Iterator<Item = &'a String>) -> Problem {
    let problem = Problem::new(Code::ManifestUnknownKey, format!("there is no key {path:?}"));
    match nearest(key, known.map(String::as_str)) {
        Some(near) => problem.with_hint(format!("did you mean {near:?}?")),
        None => problem,
    }
}

/// A word where the schema knows all there are.
fn check_word(word: &str, schema: &Json, root: &Json, path: &str) -> Result<(), Problem> {
    let Some(known) = words(schema, root).filter(|known| !known.is_empty() && !known.contains(&word)) else {
        return Ok(());
    };
    let all = known.iter().map(|known| format!("{known:?}")).collect::<Vec<_>>().join(", ");
    let problem = Problem::new(Code::ManifestValue, format!("{path} is {word:?}, it may be one of {all}"));
    Err(match nearest(word, known) {
        Some(near) => problem.with_hint(format!("did you mean {near:?}?")),
        None => problem,
    })
}

/// The words that fit a schema; none if others may fit too.
fn words<'a>(schema: &'a Json, root: &'a Json) -> Option<Vec<&'a str>> {
    let schema = resolve(schema, root);
    if let Some(word) = schema.get("const") {
        return Some(word.as_str().into_iter().collect());
    }
    if let Some(words) = schema.get("enum").and_then(Json::as_array) {
        return Some(words.iter().filter_map(Json::as_str).collect());
    }
    let alternatives = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Json::as_array);
    match alternatives {
        Some(alternatives) => {
            let words = alternatives.iter().map(|inner| words(inner, root)).collect::<Option<Vec<_>>>()?;
            Some(words.concat())
        }
        // What is no text at all has no words.
        None => schema.get("type").and_then(Json::as_str).filter(|kind| *kind != "string").map(|_| Vec::new()),
    }
}
