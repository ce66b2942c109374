//! A list whose places are used again.

/// Values under small numbers.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(key) = self.free.pop() {
            self.places[key as usize] = Some(value);
            return key;
        }
        self.places.push(Some(value));
        u32::try_from(self.places.len() - 1).expect("connections and sessions are bounded far below")
    }

    pub fn remove(&mut self, key: u32) -> Option<T> {
        let removed = self.places.get_mut(key as usize)?.take();
        if removed.is_some() {
            self.free.push(key);
        }
        removed
    }

    pub fn get(&self, key: u32) -> Option<&T> {
        self.places.get(key as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.places.get_mut(key as usize)?.as_mut()
    }

    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub fn keys(&self) -> impl Iterator<Item = u32> {
        self.places.iter().enumerate().filter(|(_, place)| place.is_some()).map(|(key, _)| key as u32)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().enumerate().filter_map(|(key, place)| place.as_ref().map(|value| (key as u32, value)))
    }
}
