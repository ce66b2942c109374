//! The templates of `lighter new`, and how a name gets into them.

use super::foreign::{FOLDER, HandlerName, Script};

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// Stands for the function's name, in files and in their paths.
const NAME: &str = "{{name}}";
/// The name as an identifier: `my-thing` becomes `my_thing`.
const IDENTIFIER: &str = "{{identifier}}";

/// The unit half in Java, which a compiler of Java or Kotlin needs; the node has its own.
const JAR: (&str, &[u8]) = ("sdk/lighterage-unit.jar", include_bytes!("../../../sdks/java/unit/lighterage-unit.jar"));

/// How a language is told the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// As `wit/`, of which bindings are made.
    Wit,
    /// As classes that are there already.
    Jar,
}

/// Path and content of each file of a new function: the language's template, and the contract.
pub fn files(language: &str, contract: Contract, name: &str) -> Vec<(String, Vec<u8>)> {
    let own = TEMPLATES.iter().filter_map(|(path, content)| {
        let path = path.strip_prefix(language)?.strip_prefix('/')?;
        Some((filled(path, name), filled_bytes(content, name)))
    });
    let contract: Vec<_> = match contract {
        Contract::Wit => WIT.iter().map(|(path, content)| (format!("wit/{path}"), content.to_vec())).collect(),
        Contract::Jar => vec![(JAR.0.to_owned(), JAR.1.to_vec())],
    };
    own.chain(contract).collect()
}

/// Path and content of what runs a handler of another platform.
pub fn adopting(origin: &str, handler: &HandlerName, name: &str) -> Vec<(String, String)> {
    let (folder, contract): (_, &[(&str, &[u8])]) = match handler.script {
        Script::Python => ("from-python/", &[]),
        Script::Javascript => ("from-javascript/", WIT),
    };
    let fill = |text: &str| {
        let filled = filled(text, name).replace("{{origin}}", origin);
        filled.replace("{{module}}", &handler.module).replace("{{function}}", &handler.function)
    };
    let text = |content: &[u8]| String::from_utf8_lossy(content).into_owned();
    let own = TEMPLATES.iter().filter_map(|(path, content)| Some((path.strip_prefix(folder)?, content)));
    let own = own.map(|(path, content)| (path.to_owned(), fill(&text(content))));
    own.chain(contract.iter().map(|(path, content)| (format!("{FOLDER}/wit/{path}"), text(content)))).collect()
}

fn filled(text: &str, name: &str) -> String {
    text.replace(NAME, name).replace(IDENTIFIER, &name.replace('-', "_"))
}

/// Text is filled in; what is not UTF-8 stays as it is.
fn filled_bytes(content: &[u8], name: &str) -> Vec<u8> {
    match std::str::from_utf8(content) {
        Ok(text) => filled(text, name).into_bytes(),
        Err(_) => content.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_filled_in_as_a_name_and_as_an_identifier() {
        assert_eq!(
            filled("[function.{{name}}] {{identifier}}.wasm {{other}}", "my-thing"),
            "[function.my-thing] my_thing.wasm {{other}}"
        );
        assert_eq!(filled_bytes(b"\xff{{name}}", "x"), b"\xff{{name}}");
    }

    #[test]
    fn no_placeholder_is_left_and_the_contract_goes_along() {
        let languages =
            ["rust", "javascript", "python", "go"].map(|language| (language, Contract::Wit, "wit/unit.wit"));
        let of_jars = ["java", "kotlin"].map(|language| (language, Contract::Jar, JAR.0));
        for (language, contract, file) in languages.into_iter().chain(of_jars) {
            let files = files(language, contract, "my-thing");
            assert!(files.iter().any(|(path, _)| path == file), "{language} has the contract");
            for (path, content) in files.iter().filter(|(path, _)| !path.starts_with("wit/")) {
                let text = String::from_utf8_lossy(content);
                assert!(
                    !path.contains("{{name") && !text.contains("{{name") && !text.contains("{{ident"),
                    "{language}/{path}"
                );
            }
        }
    }
}
