//! Reads the form of sources: how long functions are, how many parameters they have, which types they show to others,
//! which files comments name. The claims about this repository are in `tests/tree.rs`.
//!
//! It reads text as rustfmt leaves it and knows no grammar: a function begins at its signature and ends at the first
//! brace with the same indentation.

#![forbid(unsafe_code)]

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// The number of its first line, from 1.
    pub line: usize,
    /// From the signature to the closing brace, both included.
    pub lines: usize,
    /// Without `self`.
    pub parameters: usize,
}

/// The functions of a source, in its order.
pub fn functions(source: &str) -> Vec<Function> {
    let lines: Vec<&str> = source.lines().collect();
    lines.iter().enumerate().filter_map(|(at, _)| function_at(&lines, at)).collect()
}

fn function_at(lines: &[&str], at: usize) -> Option<Function> {
    let line = lines[at];
    let code = line.trim_start();
    let name = name_of(code)?;
    let indentation = &line[..line.len() - code.len()];
    let end = format!("{indentation}}}");
    let length = match code.ends_with('}') {
        true => 1,
        // What ends with a semicolon at this depth is a declaration.
        false => lines[at..].iter().position(|line| *line == end || *line == format!("{indentation});"))? + 1,
    };
    let is_declared = lines[at..at + length].iter().find(|line| line.ends_with(['{', ';', '}']))?.ends_with(';');
    let function =
        Function { name, line: at + 1, lines: length, parameters: parameters(&lines[at..at + length].concat()) };
    (!is_declared).then_some(function)
}

/// The name, if a function's signature begins here.
fn name_of(code: &str) -> Option<String> {
    let (words, rest) = code.split_at(code.find("fn ")?);
    let is_signature = words.split_whitespace().all(|word| {
        let word = word.split('(').next().unwrap_or_default();
        matches!(word, "pub" | "async" | "const" | "unsafe" | "extern" | "\"C\"" | "crate)" | "super)")
    });
    let name: String = rest[3..].chars().take_while(|one| one.is_alphanumeric() || *one == '_').collect();
    (is_signature && !name.is_empty()).then_some(name)
}

/// Commas between the parentheses of a signature, outside of all other brackets.
fn parameters(signature: &str) -> usize {
    let mut inside = signature[signature.find("fn ").unwrap_or(0)..].chars().peekable();
    let (mut angles, mut depth, mut count, mut word) = (0_i32, 0_u32, 0, String::new());
    while let Some(one) = inside.next() {
        match one {
            '-' if inside.peek() == Some(&'>') => _ = inside.next(),
            '<' => angles += 1,
            '>' => angles -= 1,
            '(' | '[' if depth > 0 => depth += 1,
            '(' if angles == 0 => depth = 1,
            ')' | ']' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return count + usize::from(is_parameter(&word));
                }
            }
            ',' if depth == 1 && angles == 0 => {
                count += usize::from(is_parameter(&word));
                word.clear();
            }
            _ if depth > 0 => word.push(one),
            _ => {}
        }
    }
    count
}

fn is_parameter(word: &str) -> bool {
    let name = word.trim().trim_start_matches(['&', '\'']);
    !name.is_empty() && name != "self" && !name.ends_with(" self") && !name.starts_with("self:")
}

/// Names of the types that a source shows beyond its own file, with the numbers of their lines.
pub fn public_types(source: &str) -> Vec<(usize, String)> {
    let defined = source.lines().enumerate().filter_map(|(at, line)| Some((at + 1, public_type(line.trim_start())?)));
    defined.collect()
}

fn public_type(code: &str) -> Option<String> {
    let (visibility, definition) = code.split_once(' ')?;
    let is_public = matches!(visibility, "pub" | "pub(crate)" | "pub(super)");
    let definition = definition.strip_prefix("unsafe ").unwrap_or(definition);
    let (kind, name) = definition.split_once(' ')?;
    let is_type = matches!(kind, "struct" | "enum" | "trait" | "type" | "union");
    (is_public && is_type).then(|| name.chars().take_while(|one| one.is_alphanumeric() || *one == '_').collect())
}

/// Names of files that comments of a source name, with the numbers of their lines.
pub fn files_named(source: &str) -> Vec<(usize, String)> {
    const ENDINGS: [&str; 5] = [".rs", ".py", ".md", ".wit", ".toml"];
    let comments =
        source.lines().enumerate().filter_map(|(at, line)| Some((at + 1, line.trim_start().strip_prefix("//")?)));
    let words = comments.flat_map(|(line, comment)| {
        comment.split(|one: char| !(one.is_alphanumeric() || "_-./{}*".contains(one))).map(move |word| (line, word))
    });
    words
        .map(|(line, word)| (line, word.trim_end_matches('.')))
        .filter(|(_, word)| ENDINGS.iter().any(|ending| word.len() > ending.len() && word.ends_with(ending)))
        .map(|(line, word)| (line, word.to_owned()))
        .collect()
}

/// What the first column of a Markdown table of words defines, lower case, with the numbers of their lines.
pub fn words_defined(glossary: &str) -> Vec<(usize, String)> {
    let rows = glossary.lines().enumerate().filter_map(|(at, line)| Some((at + 1, line.strip_prefix("| ")?)));
    let words = rows.filter_map(|(line, row)| Some((line, row.split(" |").next()?.trim().to_lowercase())));
    words.filter(|(_, word)| word != "word" && !word.starts_with("--")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
impl One {
    pub(crate) async fn first<T: Fn(u8) -> u8>(&mut self, a: Map<u8, u8>, b: (u8, u8)) -> Result<(), u8> {
        inner(|x| x);
        fn inner(_: u8) {}
    }

    fn declared(&self);
}

/// See `later.rs` and crates/one/two.rs, not that.
fn last(
    one: u8,
    two: impl Fn(u8, u8) -> u8,
) {
}
";

    #[test]
    fn functions_are_measured() {
        let found: Vec<_> =
            functions(SOURCE).into_iter().map(|one| (one.name, one.line, one.lines, one.parameters)).collect();
        let expected = [("first", 2, 4, 2), ("inner", 4, 1, 1), ("last", 11, 5, 2)];
        assert_eq!(found, expected.map(|(name, line, lines, count)| (name.to_owned(), line, lines, count)));
    }

    #[test]
    fn types_are_public_if_others_see_them() {
        let source =
            "struct Own;\npub struct First<T> {\n    pub(crate) enum Second {\npub fn none() {}\npub type T = u8;\n";
        let expected = [(2, "First"), (3, "Second"), (5, "T")];
        assert_eq!(public_types(source), expected.map(|(line, name)| (line, name.to_owned())));
    }

    #[test]
    fn files_in_comments_are_found() {
        let expected = [(10, "later.rs".to_owned()), (10, "crates/one/two.rs".to_owned())];
        assert_eq!(files_named(SOURCE), expected);
    }

    #[test]
    fn words_are_read() {
        assert_eq!(
            words_defined("| word | meaning |\n|---|---|\n| Dead letter | an event |\n"),
            [(3, "dead letter".to_owned())]
        );
    }
}
