//! Makes the bytes, a piece at a time, and sums them up.

use crate::{END, ENTRIES, FORMAT, HEAD, Head, IMAGE, IMAGE_BYTES, MAGIC, PIECE_BYTES_MAX, SEALED, entries};
use ring::digest::{Context, SHA256};

/// Writes one backup. Each call returns the bytes that come next.
pub struct BackupWriter {
    hash: Context,
}

impl Default for BackupWriter {
    fn default() -> Self {
        Self { hash: Context::new(&SHA256) }
    }
}

impl BackupWriter {
    /// The first line and the head; to be called once, before all others.
    pub fn begin(&mut self, head: &Head) -> Vec<u8> {
        let mut bytes = format!("{MAGIC}{FORMAT}\n").into_bytes();
        self.hash.update(&bytes);
        bytes.extend(self.piece(HEAD, &serde_json::to_vec(head).expect("it is made of plain data")));
        bytes
    }

    /// Entries of one part of the database, which the caller has given a number.
    pub fn entries(&mut self, part: u8, all: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut content = vec![part];
        all.iter().for_each(|(key, value)| entries::put(&mut content, key, value));
        self.piece(ENTRIES, &content)
    }

    /// An image whose bytes follow.
    pub fn image(&mut self, hash: &[u8; 32], bytes: u64) -> Vec<u8> {
        self.piece(IMAGE, &[&hash[..], &bytes.to_le_bytes()].concat())
    }

    /// The next bytes of the image.
    pub fn image_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.piece(IMAGE_BYTES, bytes)
    }

    /// What [`crate::Passphrase::seal`] has made.
    pub fn sealed(&mut self, sealed: &[u8]) -> Vec<u8> {
        self.piece(SEALED, sealed)
    }

    /// The end: nothing may follow.
    pub fn end(mut self) -> Vec<u8> {
        let hash = self.hash.clone().finish();
        self.piece(END, hash.as_ref())
    }

    fn piece(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        assert!(content.len() <= PIECE_BYTES_MAX, "pieces are cut smaller");
        let length = u32::try_from(content.len()).expect("a piece is not as large");
        let mut bytes = Vec::with_capacity(content.len() + 5);
        bytes.push(kind);
        bytes.extend(length.to_le_bytes());
        bytes.extend(content);
        self.hash.update(&bytes);
        bytes
    }
}
