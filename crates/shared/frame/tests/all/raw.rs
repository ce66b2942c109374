//! Writes frames by hand, right or wrong, with the checksums a hostile writer would make for them.

use frame::crc32;

#[derive(Clone)]
pub struct Raw {
    pub magic: [u8; 4],
    pub version: u8,
    pub kind: u8,
    pub flags: u16,
    /// None: as many as there are.
    pub total_bytes: Option<u64>,
    pub meta_bytes: Option<u32>,
    pub buffers: Option<u32>,
    pub bulk_checksum: u32,
    pub reserved: u8,
    pub table: Vec<[u8; 16]>,
    pub meta: Vec<u8>,
    /// All that follows the meta.
    pub tail: Vec<u8>,
    /// XORed to what is right.
    pub header_checksum_error: u32,
    pub front_checksum_error: u32,
}

impl Raw {
    /// A call with this meta and no buffers.
    pub fn meta(meta: &[u8]) -> Self {
        Self {
            magic: *b"\x8cLFR",
            version: 1,
            kind: 1,
            flags: 0,
            total_bytes: None,
            meta_bytes: None,
            buffers: None,
            bulk_checksum: 0,
            reserved: 0,
            table: Vec::new(),
            meta: meta.to_vec(),
            tail: Vec::new(),
            header_checksum_error: 0,
            front_checksum_error: 0,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let front: Vec<u8> = self.table.iter().flatten().chain(&self.meta).copied().collect();
        let all = 64 + front.len() + self.tail.len();
        let mut bytes = Vec::with_capacity(all);
        bytes.extend_from_slice(&self.magic);
        bytes.extend_from_slice(&[self.version, self.kind]);
        bytes.extend_from_slice(&self.flags.to_le_bytes());
        bytes.extend_from_slice(&self.total_bytes.unwrap_or(all as u64).to_le_bytes());
        bytes.extend_from_slice(&0_u64.to_le_bytes());
        bytes.extend_from_slice(&self.meta_bytes.unwrap_or(self.meta.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.buffers.unwrap_or(self.table.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(crc32(&front) ^ self.front_checksum_error).to_le_bytes());
        bytes.extend_from_slice(&self.bulk_checksum.to_le_bytes());
        bytes.extend_from_slice(&[self.reserved; 20]);
        let checksum = crc32(&bytes) ^ self.header_checksum_error;
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(&front);
        bytes.extend_from_slice(&self.tail);
        bytes
    }
}
