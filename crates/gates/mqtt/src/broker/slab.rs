//! A list whose places are used again.

/// Places of one piece. A list in one piece would be copied as a whole when it grows, and keep room for as much again.
const PIECE: usize = 64;

/// Values under small numbers.
#[derive(Debug)]
pub struct Slab<T> {
    pieces: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    count: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { pieces: Vec::new(), free: Vec::new(), count: 0 }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, value: T) -> u32 {
        self.count += 1;
        if let Some(key) = self.free.pop() {
            *self.place(key).expect("it was there") = Some(value);
            return key;
        }
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        let before = PIECE * (self.pieces.len() - 1);
        let piece = self.pieces.last_mut().expect("just seen or made");
        piece.push(Some(value));
        u32::try_from(before + piece.len() - 1).expect("connections and sessions are bounded far below")
    }

    pub fn remove(&mut self, key: u32) -> Option<T> {
        let removed = self.place(key)?.take();
        if removed.is_some() {
            self.free.push(key);
            self.count -= 1;
        }
        removed
    }

    pub fn get(&self, key: u32) -> Option<&T> {
        self.pieces.get(key as usize / PIECE)?.get(key as usize % PIECE)?.as_ref()
    }

    pub fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.place(key)?.as_mut()
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn keys(&self) -> impl Iterator<Item = u32> {
        self.iter().map(|(key, _)| key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let places = self.pieces.iter().flatten().enumerate();
        places.filter_map(|(key, place)| place.as_ref().map(|value| (key as u32, value)))
    }

    fn place(&mut self, key: u32) -> Option<&mut Option<T>> {
        self.pieces.get_mut(key as usize / PIECE)?.get_mut(key as usize % PIECE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_numbers_and_places_are_used_again() {
        let mut slab = Slab::default();
        let keys: Vec<u32> = (0..200).map(|value| slab.insert(value)).collect();
        assert_eq!(keys, (0..200).collect::<Vec<u32>>());
        assert_eq!((slab.remove(70), slab.remove(70), slab.remove(200)), (Some(70), None, None));
        assert_eq!((slab.len(), slab.get(70), slab.get(71)), (199, None, Some(&71)));
        assert!(slab.keys().eq((0..200).filter(|key| *key != 70)));
        assert_eq!(slab.insert(1_000), 70);
        *slab.get_mut(199).unwrap() += 1;
        assert_eq!((slab.len(), slab.get(70), slab.get(199)), (200, Some(&1_000), Some(&200)));
    }
}
