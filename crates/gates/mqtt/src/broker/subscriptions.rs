//! What one client has subscribed to, by filter: few mostly, so a list in order that has no room for more.

use super::session::Subscription;

#[derive(Debug, Default)]
pub struct Subscriptions(Vec<(Box<str>, Subscription)>);

impl Subscriptions {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn contains(&self, filter: &str) -> bool {
        self.place(filter).is_ok()
    }

    /// Adds or replaces one.
    pub fn insert(&mut self, filter: Box<str>, subscription: Subscription) {
        match self.place(&filter) {
            Ok(place) => self.0[place].1 = subscription,
            Err(place) => {
                if self.0.len() < 4 {
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (filter, subscription));
            }
        }
    }

    /// Says whether there was one.
    pub fn remove(&mut self, filter: &str) -> bool {
        let place = self.place(filter);
        if let Ok(place) = place {
            self.0.remove(place);
        }
        place.is_ok()
    }

    pub fn filters(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(filter, _)| &**filter)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Subscription)> {
        self.0.iter().map(|(filter, subscription)| (&**filter, *subscription))
    }

    fn place(&self, filter: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(filter))
    }
}
