//! The files of the dashboard, packed into the program: what the API serves at `/`.
//!
//! ```text
//!  files/*.{html,css,js,svg} ──build.rs: modules joined, gzip──▶ FILES ──▶ api ──▶ a browser
//! ```
//! No tool but the build of the program: what stands in `files` is what runs, but for comments and indents, and that
//! its modules travel as one, behind the one that asks for data. With `lighter up --dashboard DIR` a folder is served
//! instead, as it is.
#![forbid(unsafe_code)]

use std::borrow::Cow;

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The file that stands for all: it is served at `/`.
pub const INDEX: &str = "index.html";

/// Bytes of the head and the tail that gzip puts around the packed bytes.
const HEAD_BYTES: usize = 10;
const TAIL_BYTES: usize = 8;

/// A file as it travels.
#[derive(Debug)]
pub struct Packed {
    pub name: &'static str,
    /// Of its content, as HTTP writes it.
    pub etag: &'static str,
    pub gzip: &'static [u8],
}

impl Packed {
    /// The file of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        FILES.iter().find(|file| file.name == name)
    }

    /// Its content, if the client takes no gzip.
    ///
    /// # Panics
    /// Never: the program was built with it.
    pub fn content(&self) -> Cow<'static, [u8]> {
        let deflated = &self.gzip[HEAD_BYTES..self.gzip.len() - TAIL_BYTES];
        miniz_oxide::inflate::decompress_to_vec(deflated).expect("the build packed it").into()
    }
}

/// What the name of a file says of its type. None: no such file is served.
pub fn media_type(name: &str) -> Option<&'static str> {
    match name.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

/// Whether this can be the name of a file: a plain word that leads nowhere else.
pub fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// What a browser loads before it shows anything, all of it.
    const GZIP_BYTES_MAX: usize = 30_000;

    #[test]
    fn what_is_packed_is_what_stands_in_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("files");
        let text = |name: &str| String::from_utf8(Packed::find(name).unwrap().content().into()).unwrap();
        let modules = text("main.js");
        for entry in fs::read_dir(&folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(is_name(&name) && media_type(&name).is_some(), "{name}");
            let is_module = name.ends_with(".js") && name != "first.js";
            let packed = if is_module { modules.clone() } else { text(&name) };
            // Each line is there, in order, but for those that only say something to its reader and those that join.
            let mut packed = packed.lines();
            for line in fs::read_to_string(folder.join(&name)).unwrap().lines().map(str::trim_start) {
                let is_said = line.is_empty() || ["//", "/*", "* ", "*/"].iter().any(|start| line.starts_with(start));
                let joins = is_module && line.starts_with("import ");
                let line = line.strip_prefix("export ").filter(|_| is_module).unwrap_or(line);
                assert!(is_said || joins || packed.any(|packed| packed == line), "{name}: {line}");
            }
        }
        assert!(
            Packed::find(INDEX).is_some() && Packed::find("other.js").is_none() && Packed::find("dom.js").is_none()
        );
        for word in ["import ", "export "] {
            let mut left = modules.lines().filter(|line| line.starts_with(word));
            assert!(left.all(|line| line == "import * as $first from './first.js';"), "a module is not joined: {word}");
        }
    }

    #[test]
    fn it_is_small() {
        let bytes: usize = FILES.iter().map(|file| file.gzip.len()).sum();
        assert!(bytes <= GZIP_BYTES_MAX, "{bytes}");
    }

    /// The policy that is sent with it would refuse these too; here the line is named.
    #[test]
    fn no_file_makes_markup_of_text_or_asks_another_host() {
        for file in FILES {
            let text = String::from_utf8(file.content().into()).unwrap();
            for (number, line) in text.lines().enumerate() {
                for word in
                    ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "//cdn"]
                {
                    assert!(!line.contains(word), "{}:{}: {word}", file.name, number + 1);
                }
                let names = line.replace("http://www.w3.org/2000/svg", "");
                assert!(!names.contains("http://") && !names.contains("https://"), "{}:{}", file.name, number + 1);
            }
        }
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        for name in ["", ".", "..", ".hidden", "a/b", "..%2f", "A.js", "a\\b", "a\0"] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(is_name("main.js") && media_type("main.js").is_some() && media_type("main.rs").is_none());
    }
}
