//! Signatures in minisign's format: Ed25519 over the BLAKE2b hash of a file, and a comment that is signed as well.
//!
//! ```text
//!  key        untrusted comment: …            file.minisig   untrusted comment: …
//!             base64 of "Ed" id(8) key(32)                   base64 of "ED" id(8) signature(64)
//!                                                            trusted comment: TEXT
//!                                                            base64 of the signature(64) of signature and TEXT
//! ```
//! The older form without the hash ("Ed" in a signature) is refused: nothing of ours was ever signed so.

use super::blake2b;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use problem::{Code, Problem};
use ring::signature::{ED25519, UnparsedPublicKey};

/// Bytes of a key's or signature's file; a larger one is none.
pub const TEXT_BYTES_MAX: u64 = 4 << 10;

/// Who signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    id: [u8; 8],
    key: [u8; 32],
}

impl PublicKey {
    /// Reads a key's file, or its second line alone. None of another text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let first = lines.next()?;
        let line = if first.starts_with("untrusted comment:") { lines.next()? } else { first };
        let bytes: [u8; 42] = decoded(line)?;
        let is_all = lines.next().is_none() && bytes.starts_with(b"Ed");
        is_all.then(|| Self { id: part(&bytes, 2), key: part(&bytes, 10) })
    }

    /// As minisign shows it.
    pub fn id(&self) -> String {
        shown(self.id)
    }
}

/// What stands in a `.minisig` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    id: [u8; 8],
    of_file: [u8; 64],
    comment: String,
    of_comment: [u8; 64],
}

impl Signature {
    /// # Errors
    /// `SignatureWrong`: it is no signature of minisign.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let read = || {
            let mut lines = text.lines();
            lines.next().filter(|line| line.starts_with("untrusted comment:"))?;
            let bytes: [u8; 74] = decoded(lines.next()?)?;
            let comment = lines.next()?.strip_prefix("trusted comment: ")?.to_owned();
            let of_comment = decoded(lines.next()?)?;
            let is_all = bytes.starts_with(b"ED") && lines.all(|line| line.trim().is_empty());
            is_all.then(|| Self { id: part(&bytes, 2), of_file: part(&bytes, 10), comment, of_comment })
        };
        read().ok_or_else(|| Problem::new(Code::SignatureWrong, "the signature is none of minisign's"))
    }

    /// The comment that was signed, if the signature is the key's and of this content.
    ///
    /// # Errors
    /// `SignatureWrong`.
    pub fn verify(&self, key: &PublicKey, content: &[u8]) -> Result<&str, Problem> {
        if self.id != key.id {
            let (theirs, wanted) = (shown(self.id), key.id());
            let detail = format!("the release was signed with the key {theirs}, and is to be signed with {wanted}");
            return Err(Problem::new(Code::SignatureWrong, detail));
        }
        let ed25519 = UnparsedPublicKey::new(&ED25519, key.key);
        let is_of_file = ed25519.verify(&blake2b::hash(content), &self.of_file).is_ok();
        let signed = [&self.of_file[..], self.comment.as_bytes()].concat();
        if is_of_file && ed25519.verify(&signed, &self.of_comment).is_ok() {
            return Ok(&self.comment);
        }
        let what = if is_of_file { "the signature's comment was changed" } else { "the signature is of another file" };
        Err(Problem::new(Code::SignatureWrong, what))
    }
}

fn decoded<const N: usize>(line: &str) -> Option<[u8; N]> {
    STANDARD.decode(line.trim()).ok()?.try_into().ok()
}

/// `N` bytes from `from` on, which are there.
fn part<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    bytes[from..from + N].try_into().expect("the length was checked")
}

fn shown(id: [u8; 8]) -> String {
    format!("{:016X}", u64::from_le_bytes(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::making::Signer;

    #[test]
    fn what_minisign_itself_has_signed_is_right() {
        // By `minisign -G -W` and `minisign -S -t "a comment"` of Debian 12.
        let key = PublicKey::parse(include_str!("../tests/key.pub")).unwrap();
        let signature = Signature::parse(include_str!("../tests/content.minisig")).unwrap();
        let content = include_bytes!("../tests/content");
        assert_eq!(signature.verify(&key, content).unwrap(), "a comment");
        assert_eq!(signature.verify(&key, b"other").unwrap_err().code, Code::SignatureWrong);
    }

    #[test]
    fn a_changed_signature_key_or_content_is_wrong() {
        let (signer, other) = (Signer::new(7), Signer::new(8));
        let key = PublicKey::parse(&signer.key()).unwrap();
        let text = signer.sign(b"content", "name");
        assert_eq!(Signature::parse(&text).unwrap().verify(&key, b"content").unwrap(), "name");
        let wrong = |text: &str, content: &[u8]| {
            let checked = Signature::parse(text).and_then(|signature| signature.verify(&key, content).map(drop));
            assert_eq!(checked.unwrap_err().code, Code::SignatureWrong, "{text}");
        };
        wrong(&text, b"contents");
        wrong(&text.replace("trusted comment: name", "trusted comment: other"), b"content");
        wrong(&other.sign(b"content", "name"), b"content");
        wrong(&text.replace("comment", ""), b"content");
        wrong(&format!("{text}more\n"), b"content");
        for length in 0..text.trim_end().len() {
            wrong(&text[..length], b"content");
        }
    }

    #[test]
    fn a_key_is_read_with_its_comment_or_without() {
        let text = Signer::new(7).key();
        let key = PublicKey::parse(&text).unwrap();
        assert_eq!(PublicKey::parse(text.lines().nth(1).unwrap()), Some(key.clone()));
        assert_eq!(key.id().len(), 16);
        for bad in ["", "untrusted comment: x", "AAAA", &format!("{text}AAAA"), &text.replace("RW", "AA")] {
            assert_eq!(PublicKey::parse(bad), None, "{bad}");
        }
    }
}
