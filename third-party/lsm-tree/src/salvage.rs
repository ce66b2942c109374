// Not part of the original: see ../CHANGED.md

//! Reads what is readable of a tree nobody has open, and changes nothing.

use crate::{
    coding::Decode,
    file::{read_exact, MAGIC_BYTES},
    table::{
        block::{BlockType, Header, ParsedItem},
        meta::ParsedMeta,
        regions::ParsedRegions,
        Block, BlockHandle, BlockOffset, DataBlock,
    },
    CompressionType, InternalValue, TableId, UserKey,
};
use std::{fs::File, path::Path};

/// What is looked through at once for the next block
const WINDOW_BYTES: u64 = 4_096;

/// A piece of a table.
pub enum Piece {
    /// The items of a block
    Items(Vec<InternalValue>),

    /// Here begins what cannot be read
    Hole {
        /// Where in the file
        offset: u64,
    },
}

/// The data of a table, block by block. Needs neither its index nor anything else but the blocks themselves.
pub struct Pieces {
    file: File,
    length: u64,
    offset: u64,
    done: bool,
    last_key: Option<UserKey>,
}

impl Pieces {
    /// Opens the file of a table.
    ///
    /// # Errors
    ///
    /// Will return `Err` if there is no such file.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self {
            file,
            length,
            offset: 0,
            done: false,
            last_key: last_key(path).ok(),
        })
    }

    /// The last key of the table, if that can be read.
    #[must_use]
    pub fn last_key(&self) -> Option<&UserKey> {
        self.last_key.as_ref()
    }

    fn block_at(&self, offset: u64) -> Option<(Block, u64)> {
        let header = Header::serialized_len();
        let bytes = read_exact(&self.file, offset, header).ok()?;
        let length = Header::decode_from(&mut &bytes[..]).ok()?.data_length;
        let size = u32::try_from(header).ok()?.checked_add(length)?;
        if offset + u64::from(size) > self.length {
            return None;
        }
        let handle = BlockHandle::new(BlockOffset(offset), size);
        let block = Block::from_file(&self.file, handle, CompressionType::None).ok()?;
        Some((block, u64::from(size)))
    }

    /// Where the next sound block begins, after `offset`.
    fn next_block(&self, offset: u64) -> Option<u64> {
        let mut from = offset + 1;
        while from < self.length {
            let overlap = MAGIC_BYTES.len() as u64 - 1;
            let size = (WINDOW_BYTES + overlap).min(self.length - from);
            #[expect(clippy::cast_possible_truncation, reason = "a window is small")]
            if let Ok(bytes) = read_exact(&self.file, from, size as usize) {
                let starts = bytes
                    .windows(MAGIC_BYTES.len())
                    .enumerate()
                    .filter(|(_, bytes)| *bytes == MAGIC_BYTES);
                for (at, _) in starts {
                    if self.block_at(from + at as u64).is_some() {
                        return Some(from + at as u64);
                    }
                }
            }
            from += WINDOW_BYTES;
        }
        None
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.done {
            return None;
        }
        match self.block_at(self.offset) {
            Some((block, size)) if block.header.block_type == BlockType::Data => {
                self.offset += size;
                let block = DataBlock::new(block);
                let items = block.iter().map(|x| x.materialize(block.as_slice()));
                Some(Piece::Items(items.collect()))
            }
            // Behind the data
            Some(_) => {
                self.done = true;
                None
            }
            None => {
                let offset = self.offset;
                match self.next_block(offset) {
                    Some(next) => self.offset = next,
                    None => self.done = true,
                }
                Some(Piece::Hole { offset })
            }
        }
    }
}

fn last_key(path: &Path) -> crate::Result<UserKey> {
    let mut file = File::open(path)?;
    let trailer = sfa::Reader::from_reader(&mut file)?;
    let regions = ParsedRegions::parse_from_toc(trailer.toc())?;
    let metadata = ParsedMeta::load_with_handle(&file, &regions.metadata)?;
    Ok(metadata.key_range.max().clone())
}

/// The tables a tree has, by the list that is in force.
///
/// # Errors
///
/// Will return `Err` if the list cannot be read.
pub fn table_ids(folder: &Path) -> crate::Result<Vec<TableId>> {
    let recovery = crate::version::recovery::recover(folder)?;
    let runs = recovery.table_ids.into_iter().flatten();
    Ok(runs.flatten().map(|table| table.id).collect())
}
