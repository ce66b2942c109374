//! Reads a backup, and says what is wrong with one: cut short, damaged, newer.

use crate::{
    END, ENTRIES, Entries, FORMAT, HASH_BYTES, HEAD, HEAD_BYTES_MAX, Head, IMAGE, IMAGE_BYTES, MAGIC, PIECE_BYTES_MAX,
    SEALED,
};
use problem::{Code, Problem};
use ring::digest::{Context, SHA256};
use std::io::{self, Read};

/// A piece, after the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Entries of one part of the database: [`Entries`] reads them.
    Entries {
        part: u8,
        bytes: Vec<u8>,
    },
    /// An image; all of its bytes follow in [`Piece::ImageBytes`].
    Image {
        hash: [u8; HASH_BYTES],
        bytes: u64,
    },
    ImageBytes(Vec<u8>),
    /// What only [`crate::Passphrase::open`] reads.
    Sealed(Vec<u8>),
}

/// Reads one backup from its beginning to its end.
pub struct Reader<R> {
    from: R,
    hash: Context,
    head: Head,
    /// Bytes of the present image that have not come.
    image_left: u64,
    bytes: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// `BackupNewer`; `BackupBroken` where it is no backup, cut short or damaged; `FileUnusable` where it cannot be
    /// read.
    pub fn new(from: R) -> Result<Self, Problem> {
        let head = Head::default();
        let mut reader = Self { from, hash: Context::new(&SHA256), head, image_left: 0, bytes: 0, ended: false };
        reader.first_line()?;
        let (kind, content) = reader.content()?;
        if kind != HEAD || content.len() > HEAD_BYTES_MAX {
            return Err(broken("it has no head"));
        }
        reader.head = serde_json::from_slice(&content).map_err(|error| broken(&format!("its head: {error}")))?;
        Ok(reader)
    }

    /// Where it reads from.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.from
    }

    pub fn into_inner(self) -> R {
        self.from
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next piece; none at the end, once the hash over everything was found right and nothing followed.
    ///
    /// # Errors
    /// As [`Reader::new`]. What was read before is not to be used then.
    #[expect(clippy::should_implement_trait, reason = "an iterator of results would go on after a problem")]
    pub fn next(&mut self) -> Result<Option<Piece>, Problem> {
        if self.ended {
            return Ok(None);
        }
        let before = self.hash.clone();
        let (kind, content) = self.content()?;
        if (kind == IMAGE_BYTES) != (self.image_left > 0) {
            return Err(broken("an image in it is not whole"));
        }
        match kind {
            ENTRIES => match content.split_first() {
                Some((part, bytes)) => Ok(Some(Piece::Entries { part: *part, bytes: bytes.to_vec() })),
                None => Err(broken("entries of no part")),
            },
            IMAGE => {
                let parts = content.split_first_chunk().and_then(|(hash, bytes)| Some((*hash, bytes.try_into().ok()?)));
                let (hash, bytes) = parts.ok_or_else(|| broken("an image without its length"))?;
                self.image_left = u64::from_le_bytes(bytes);
                Ok(Some(Piece::Image { hash, bytes: self.image_left }))
            }
            IMAGE_BYTES => {
                let left = self.image_left.checked_sub(content.len() as u64);
                self.image_left =
                    left.filter(|_| !content.is_empty()).ok_or_else(|| broken("an image has another length"))?;
                Ok(Some(Piece::ImageBytes(content)))
            }
            SEALED => Ok(Some(Piece::Sealed(content))),
            END if content == before.finish().as_ref() => self.end().map(|()| None),
            END => Err(broken("its bytes are not those that were written")),
            _ => Err(broken("there is a piece of no kind that is known")),
        }
    }

    fn end(&mut self) -> Result<(), Problem> {
        self.ended = true;
        match self.some(1)?.is_empty() {
            true => Ok(()),
            false => Err(broken("something follows its end")),
        }
    }

    fn first_line(&mut self) -> Result<(), Problem> {
        let magic = self.some(MAGIC.len())?;
        if magic != MAGIC.as_bytes() {
            return Err(broken("it is not a backup of a node").with_hint("`lighter backup FILE` makes one"));
        }
        let mut digits = Vec::new();
        while digits.len() < 10 {
            match self.some(1)?.first() {
                Some(b'\n') => break,
                Some(digit) if digit.is_ascii_digit() => digits.push(*digit),
                _ => return Err(broken("its first line is not whole")),
            }
        }
        let format = String::from_utf8_lossy(&digits).parse::<u32>();
        match format.map_err(|_| broken("its first line says no format"))? {
            1..=FORMAT => Ok(()),
            0 => Err(broken("its first line says no format")),
            newer => {
                let detail = format!("the backup is of format {newer}, this version reads up to {FORMAT}");
                Err(Problem::new(Code::BackupNewer, detail))
            }
        }
    }

    /// Kind and content of the next piece.
    fn content(&mut self) -> Result<(u8, Vec<u8>), Problem> {
        let begin = self.some(5)?;
        let [kind, a, b, c, d] = begin[..] else { return Err(self.cut()) };
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > PIECE_BYTES_MAX {
            return Err(broken(&format!("a piece in it would have {length} bytes, {PIECE_BYTES_MAX} at most")));
        }
        let content = self.some(length)?;
        match content.len() == length {
            true => Ok((kind, content)),
            false => Err(self.cut()),
        }
    }

    /// So many bytes, or all that are left. Memory is taken as they come.
    fn some(&mut self, length: usize) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        let read = self.from.by_ref().take(length as u64).read_to_end(&mut bytes);
        read.map_err(|error| self.unreadable(&error))?;
        self.hash.update(&bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes)
    }

    fn cut(&self) -> Problem {
        broken(&format!("it ends after {} bytes, in the middle", self.bytes))
    }

    fn unreadable(&self, error: &io::Error) -> Problem {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.cut(),
            _ => Problem::new(Code::FileUnusable, format!("the backup cannot be read: {error}")),
        }
    }
}

impl Piece {
    /// The entries of the piece; none of another kind of piece.
    pub fn entries(&self) -> Entries<'_> {
        match self {
            Self::Entries { bytes, .. } => Entries::new(bytes),
            _ => Entries::new(&[]),
        }
    }
}

pub(crate) fn broken(what: &str) -> Problem {
    Problem::new(Code::BackupBroken, format!("the backup is cut short or damaged: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BackupWriter;

    fn sample() -> Vec<u8> {
        let mut writer = BackupWriter::default();
        let mut bytes = writer.begin(&Head { version: "0.1.0".to_owned(), images: 1, ..Head::default() });
        bytes.extend(writer.entries(1, &[(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), Vec::new())]));
        bytes.extend(writer.image(&[7; 32], 5));
        bytes.extend(writer.image_bytes(b"abc"));
        bytes.extend(writer.image_bytes(b"de"));
        bytes.extend(writer.sealed(b"nobody reads this"));
        bytes.extend(writer.end());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Piece>, Problem> {
        let mut reader = Reader::new(bytes)?;
        let mut all = Vec::new();
        while let Some(piece) = reader.next()? {
            all.push(piece);
        }
        assert_eq!(reader.bytes(), bytes.len() as u64);
        Ok(all)
    }

    #[test]
    fn what_was_written_is_read() {
        let all = read(&sample()).unwrap();
        assert_eq!(all[0].entries().map(Result::unwrap).count(), 2);
        assert_eq!(all[1], Piece::Image { hash: [7; 32], bytes: 5 });
        assert_eq!(all[2..4], [Piece::ImageBytes(b"abc".to_vec()), Piece::ImageBytes(b"de".to_vec())]);
        assert_eq!(all[4..], [Piece::Sealed(b"nobody reads this".to_vec())]);
    }

    #[test]
    fn wherever_it_is_cut_it_says_so() {
        let whole = sample();
        for length in 0..whole.len() {
            let problem = read(&whole[..length]).unwrap_err();
            assert_eq!(problem.code, Code::BackupBroken, "{length}: {problem}");
        }
        let problem = read(&[&whole[..], b"x"].concat()).unwrap_err();
        assert!(problem.detail.contains("something follows"), "{problem}");
    }

    #[test]
    fn whichever_byte_is_another_it_is_noticed() {
        let whole = sample();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let problem = read(&bytes).unwrap_err();
            // The number of the format may have become a newer one.
            let expected = [Code::BackupBroken, Code::BackupNewer];
            assert!(expected.contains(&problem.code), "{at}: {problem}");
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let newer = [b"lighter backup 2\n", &sample()[17..]].concat();
        let problem = read(&newer).unwrap_err();
        assert_eq!(problem.code, Code::BackupNewer);
        assert!(problem.detail.contains("format 2"), "{problem}");
    }

    #[test]
    fn a_length_beyond_the_bound_takes_no_memory() {
        let huge = [b"lighter backup 1\n\x01", &u32::MAX.to_le_bytes()[..]].concat();
        assert!(read(&huge).unwrap_err().detail.contains("would have 4294967295 bytes"));
    }
}
