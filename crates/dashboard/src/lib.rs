//! The files of the dashboard, packed into the program: what the API serves at `/`.
//!
//! ```text
//!  files/*.{html,css,js,svg} ──build.rs, gzip──▶ FILES ──▶ api ──▶ a browser
//! ```
//! No build of their own: what stands in `files` is what runs, but for comments and indents. With
//! `lighter up --dashboard DIR` a folder is served instead.
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
        assert_eq!(fs::read_dir(&folder).unwrap().count(), FILES.len());
        for file in FILES {
            assert!(is_name(file.name) && media_type(file.name).is_some(), "{}", file.name);
            let text = String::from_utf8(file.content().into()).unwrap();
            let mut packed = text.lines();
            // Each line is there, in order, but for those that only say something to its reader.
            let mut next = packed.next();
            for line in fs::read_to_string(folder.join(file.name)).unwrap().lines().map(str::trim_start) {
                match next == Some(line) {
                    true => next = packed.next(),
                    false => assert!(line.is_empty() || line.starts_with(['/', '*']), "{}: {line}", file.name),
                }
            }
            assert_eq!(next, None, "{}", file.name);
        }
        assert!(Packed::find(INDEX).is_some() && Packed::find("other.js").is_none());
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
