//! What a request path means: one meaning, or the request is refused.
//!
//! A path that two programs can read in two ways is how a request slips past the route meant for it. So a path with a
//! part `.` or `..`, an empty part (`//`), a backslash, or an encoded slash, backslash or control character is refused
//! with 400. Every other encoded character (`%61` for `a`) is decoded before routes are compared, because a function
//! may decode it too. The function gets the path as it was sent.

use memchr::memchr;
use std::borrow::Cow;

/// The path that routes are compared with, or why the path is refused. Borrows unless something was encoded.
///
/// # Errors
/// Says what is wrong, to be shown to the client.
pub fn canonical(path: &str) -> Result<Cow<'_, str>, &'static str> {
    let bytes = path.as_bytes();
    if bytes.first() != Some(&b'/') {
        return Err("the path does not begin with /");
    }
    if memchr(b'%', bytes).is_none() {
        check_parts(bytes)?;
        return Ok(Cow::Borrowed(path));
    }
    let decoded = decode(bytes)?;
    check_parts(&decoded)?;
    // Routes are ASCII: what is not UTF-8 matches none of their parts, whatever stands in its place.
    Ok(Cow::Owned(String::from_utf8_lossy(&decoded).into_owned()))
}

fn check_parts(bytes: &[u8]) -> Result<(), &'static str> {
    let mut before = b'/';
    let mut part_dots = 0;
    let mut part_bytes = 0;
    for &byte in &bytes[1..] {
        match byte {
            b'/' if before == b'/' => return Err("the path has an empty part (//)"),
            b'/' => {
                if part_dots == part_bytes && part_bytes <= 2 {
                    return Err("the path has a part . or ..");
                }
                (part_dots, part_bytes) = (0, 0);
            }
            b'\\' => return Err("the path has a backslash"),
            0..=0x1f | 0x7f => return Err("the path has a control character"),
            _ => {
                part_dots += usize::from(byte == b'.');
                part_bytes += 1;
            }
        }
        before = byte;
    }
    if part_bytes > 0 && part_dots == part_bytes && part_bytes <= 2 {
        return Err("the path has a part . or ..");
    }
    Ok(())
}

fn decode(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            decoded.push(byte);
            rest = after;
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|b| char::from(*b).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err("the path has a % without two hexadecimal digits");
        };
        match u8::try_from(high * 16 + low).expect("two hexadecimal digits are a byte") {
            b'/' => return Err("the path has an encoded slash"),
            b'\\' => return Err("the path has an encoded backslash"),
            value => decoded.push(value),
        }
        rest = &after[2..];
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_is_itself() {
        for path in ["/", "/a", "/a/", "/a/b.c", "/...", "/a..b", "/.well-known/x", "/a/.b", "/a:b@c;d=e,f", "/~a"] {
            assert!(matches!(canonical(path), Ok(Cow::Borrowed(same)) if same == path), "{path}");
        }
    }

    #[test]
    fn encoded_characters_are_decoded_once() {
        for (path, meaning) in
            [("/%61dmin", "/admin"), ("/a%3Ab", "/a:b"), ("/a%3ab", "/a:b"), ("/%2561", "/%61"), ("/%C3%A4", "/ä")]
        {
            assert_eq!(canonical(path).unwrap(), meaning);
        }
        assert_eq!(canonical("/%ff").unwrap(), "/\u{fffd}");
    }

    #[test]
    fn a_path_with_two_meanings_is_refused() {
        for path in [
            "",
            "a",
            "*",
            "//",
            "/a//b",
            "//a",
            "/a//",
            "/.",
            "/..",
            "/./a",
            "/../a",
            "/a/.",
            "/a/..",
            "/a/./b",
            "/a/../b",
            "/%2e",
            "/%2E%2e/a",
            "/.%2e/a",
            "/a/%2e%2E",
            "/a%2fb",
            "/a%2Fb",
            "/a\\b",
            "/a%5cb",
            "/a%5Cb",
            "/a%00",
            "/%0d%0a",
            "/%7f",
            "/a%",
            "/a%1",
            "/a%zz",
            "/a%+1",
            "/%2f..%2fadmin",
            "/%2e%2e%2fadmin",
        ] {
            assert!(canonical(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn whatever_is_accepted_has_one_meaning() {
        // A small deterministic generator over the characters that matter.
        let alphabet = ["/", ".", "%2e", "%2f", "%5c", "\\", "a", "%61", "%", "%00", "%25", "2e"];
        let mut state = 7_u64;
        for _ in 0..200_000 {
            let mut path = String::from("/");
            for _ in 0..6 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                path += alphabet[(state >> 33) as usize % alphabet.len()];
            }
            if let Ok(meaning) = canonical(&path) {
                assert!(!meaning.contains("//") && !meaning.contains('\\') && !meaning.contains('\0'), "{path}");
                assert!(!meaning.split('/').any(|part| part == "." || part == ".."), "{path}");
                let slashes = |text: &str| text.bytes().filter(|b| *b == b'/').count();
                assert_eq!(slashes(&meaning), slashes(&path), "decoding made a slash: {path}");
            }
        }
    }
}
