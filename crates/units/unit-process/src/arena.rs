//! A large call that its unit is lent and not sent: the node writes the frame to memory that the unit maps.
//!
//! ```text
//!   node ── frame ──▶ arena ── a descriptor that only reads ──▶ unit: maps it, a page that it writes to is its own from then on
//!                       ▲                                         │ ended, with all that it has started
//!                       └── is it open anywhere else? asks the kernel ◀┘   no: the next unit's. Yes: given up
//! ```
//! It replaces two copies and the pages that a new unit would receive the frame in. Nobody but the node can write to
//! it, nor make it shorter: it is sealed before any unit sees it. What an earlier call has left is overwritten or wiped
//! before the next unit gets it. And that unit gets it only when the kernel says that no descriptor and no mapping of
//! it is left, wherever the one before may have put them.

use crate::rack::{Large, Rack};
use crate::region::Region;
use crate::sealed;
use crate::turn::{TURN_BYTES, Turn};
use budget::{Budget, Purpose, Share};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Frames smaller than this are sent: mapping costs more than copying.
pub const LENT_BYTES_MIN: usize = 1 << 20;

/// Memory that units of one function are lent, one after another.
#[derive(Debug)]
pub struct Arena {
    file: File,
    region: Region,
    /// From the start, so many bytes may be other than zero.
    written: usize,
    /// Counts all of it for as long as it is there.
    _share: Share,
}

impl Large for Arena {
    fn len(&self) -> usize {
        self.region.bytes().len()
    }
}

impl Arena {
    /// One with room for `bytes`, used before or new. None where the budget has no room for it, or the system no such
    /// memory.
    pub fn take(rack: &Rack<Self>, budget: &Arc<Budget>, bytes: usize) -> Option<Self> {
        rack.take(bytes).or_else(|| {
            let bytes = Region::rounded(bytes);
            Self::make(bytes, budget.take(Purpose::HostCalls, bytes as u64).ok()?).ok()
        })
    }

    fn make(bytes: usize, share: Share) -> io::Result<Self> {
        let file = sealed::memory(bytes)?;
        let region = Region::of_file(&file, bytes)?;
        sealed::seal(&file)?;
        Ok(Self { file, region, written: 0, _share: share })
    }

    /// Writes these pieces one after the other, and wipes what was there beyond them. Dropped before its end, it has
    /// still said how far it has written.
    pub async fn write(&mut self, pieces: impl Iterator<Item = &[u8]>) {
        let (mut at, mut turn) = (0, Turn::default());
        for piece in pieces.flat_map(|piece| piece.chunks(TURN_BYTES)) {
            self.written = self.written.max(at + piece.len());
            self.region.bytes_mut()[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
            turn.moved(piece.len()).await;
        }
        let left = &mut self.region.bytes_mut()[at..self.written];
        for piece in left.chunks_mut(TURN_BYTES) {
            piece.fill(0);
            turn.moved(piece.len()).await;
        }
        self.written = at;
    }

    /// What a unit is given to map it by.
    pub fn reader(&self) -> io::Result<File> {
        sealed::reader(&self.file)
    }

    /// The unit that was lent it has ended. Where anything is left that could read it, it is given up; its pages go
    /// with whatever that is.
    pub fn come_back(self, rack: &Rack<Self>) {
        if sealed::is_ours_alone(&self.file) {
            rack.put(self, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors as fd;
    use std::any::Any;
    use std::future::poll_fn;
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::fs::FileExt;
    use std::pin::pin;
    use std::task::Poll;

    fn arena(rack: &Rack<Arena>, budget: &Arc<Budget>) -> Arena {
        Arena::take(rack, budget, LENT_BYTES_MIN).expect("this system has sealed memory")
    }

    fn read(arena: &Arena) -> Vec<u8> {
        let mut bytes = vec![1; arena.len()];
        arena.reader().unwrap().read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn are(bytes: &[u8], value: u8) -> bool {
        bytes.iter().all(|byte| *byte == value)
    }

    #[tokio::test]
    async fn the_next_unit_sees_nothing_of_the_one_before() {
        let (rack, budget) = (Rack::default(), Budget::new(1 << 30));
        let mut first = arena(&rack, &budget);
        first.write([&[7; 900_000][..], &[8; 400_000]].into_iter()).await;
        let bytes = read(&first);
        assert!(are(&bytes[..900_000], 7) && are(&bytes[900_000..1_300_000], 8));
        first.come_back(&rack);
        let mut second = arena(&rack, &budget);
        assert_eq!((budget.total_bytes(), rack.take(0).is_none()), (second.len() as u64, true), "it is the same one");
        second.write(std::iter::once(&[9; 10][..])).await;
        let bytes = read(&second);
        assert!(are(&bytes[..10], 9) && are(&bytes[10..], 0));
        drop(second);
        assert_eq!(budget.total_bytes(), 0);
    }

    /// A call that is given up while its frame is written leaves part of it.
    #[tokio::test]
    async fn what_was_written_in_part_is_wiped_too() {
        let mut arena = arena(&Rack::default(), &Budget::unbounded());
        let large = vec![7; LENT_BYTES_MIN];
        {
            let mut writing = pin!(arena.write(std::iter::once(&large[..])));
            let polled = poll_fn(|context| Poll::Ready(writing.as_mut().poll(context))).await;
            assert!(polled.is_pending(), "others have a turn");
        }
        assert!(are(&read(&arena)[..TURN_BYTES], 7));
        arena.write(std::iter::once(&[9; 10][..])).await;
        assert!(are(&read(&arena)[10..], 0));
    }

    /// Whether an arena comes back of which this is held.
    fn comes_back(hold: impl Fn(&Arena) -> Box<dyn Any>) -> bool {
        let rack = Rack::default();
        let arena = arena(&rack, &Budget::unbounded());
        let _held = hold(&arena);
        arena.come_back(&rack);
        rack.take(0).is_some()
    }

    fn again(reader: &File) -> File {
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        File::options().read(true).write(true).open(path).unwrap()
    }

    #[test]
    fn an_arena_that_somebody_may_still_read_is_never_used_again() {
        assert!(comes_back(|arena| Box::new(drop(arena.reader()))), "what was closed is no matter");
        assert!(!comes_back(|arena| Box::new(arena.reader().unwrap())), "a descriptor");
        assert!(!comes_back(|arena| Box::new(again(&arena.reader().unwrap()))), "one that was opened again");
        let sent = |arena: &Arena| -> Box<dyn Any> {
            let (near, far) = fd::stream_pair().unwrap();
            fd::send(&near, b"x", &[arena.reader().unwrap().as_fd()]).unwrap();
            Box::new(far)
        };
        assert!(!comes_back(sent), "one on its way, whose sender has gone");
        let mapped = |arena: &Arena| -> Box<dyn Any> { Box::new(mapped(&arena.reader().unwrap())) };
        assert!(!comes_back(mapped), "a mapping without a descriptor");
    }

    /// As a unit maps it, in its own address space.
    fn mapped(reader: &File) -> Region {
        Region::of_file_to_read(reader, LENT_BYTES_MIN).unwrap()
    }

    #[test]
    fn a_unit_can_change_nothing_of_it() {
        let arena = arena(&Rack::default(), &Budget::unbounded());
        let reader = arena.reader().unwrap();
        for file in [&reader, &again(&reader)] {
            assert!(file.write_at(b"x", 0).is_err() && file.set_len(0).is_err() && file.set_len(1 << 30).is_err());
            assert!(Region::of_file(file, arena.len()).is_err(), "no mapping that writes");
        }
        assert!(are(arena.region.bytes(), 0));
    }
}
