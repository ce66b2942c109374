//! Makes releases as `tools/release` and minisign do, for tests. It is no feature of the crate: with one, tests would
//! compile other crates than the program, and everything above them twice.

use super::blake2b;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use miniz_oxide::deflate::compress_to_vec;
use ring::signature::{Ed25519KeyPair, KeyPair};

/// A key with which tests sign.
pub struct Signer {
    pair: Ed25519KeyPair,
    id: [u8; 8],
}

impl Signer {
    /// The same seed gives the same key.
    pub fn new(seed: u8) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a seed has 32 bytes");
        Self { pair, id: [seed; 8] }
    }

    /// The file of the public key.
    pub fn key(&self) -> String {
        let bytes = [b"Ed", &self.id[..], self.pair.public_key().as_ref()].concat();
        format!("untrusted comment: a key of tests\n{}\n", STANDARD.encode(bytes))
    }

    /// The `.minisig` file of the content.
    pub fn sign(&self, content: &[u8], comment: &str) -> String {
        let of_file = self.pair.sign(&blake2b::hash(content));
        let of_comment = self.pair.sign(&[of_file.as_ref(), comment.as_bytes()].concat());
        let bytes = [b"ED", &self.id[..], of_file.as_ref()].concat();
        let (file, comment_signed) = (STANDARD.encode(bytes), STANDARD.encode(of_comment.as_ref()));
        format!("untrusted comment: lighter\n{file}\ntrusted comment: {comment}\n{comment_signed}\n")
    }
}

/// The tar of a release with this program.
pub fn release(version: &str, processor: &str, program: &[u8]) -> Vec<u8> {
    let folder = format!("lighter-{version}-{processor}-linux");
    let inside = |path: &str| format!("{folder}/{path}");
    gzip(&tar(&[
        (&folder, b'5', &[]),
        (&inside("bin"), b'5', &[]),
        (&inside("bin/lighter"), b'0', program),
        (&inside("share/doc/lighterage/LICENSE"), b'0', b"licence"),
    ]))
}

/// Files by path, type and content.
pub fn tar(files: &[(&str, u8, &[u8])]) -> Vec<u8> {
    let mut whole = Vec::new();
    for (path, kind, content) in files {
        whole.extend(header(path, *kind, content.len() as u64));
        whole.extend_from_slice(content);
        whole.resize(whole.len().next_multiple_of(512), 0);
    }
    whole.resize((whole.len() + 1_024).next_multiple_of(20 * 512), 0);
    whole
}

/// The block before a file.
pub fn header(path: &str, kind: u8, bytes: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, path);
    put(100, "0000755\0");
    put(124, &format!("{bytes:011o}\0"));
    put(148, "        ");
    put(257, "ustar\x0000");
    block[156] = kind;
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Packed as quickly as can be.
pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    packed.extend(compress_to_vec(content, 1));
    packed.extend([0; 8]);
    packed
}
