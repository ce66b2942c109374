//! What a unit may ask of its host: the verbs of `contracts/wit/unit.wit` and of WASI, each with its number.
//!
//! A unit's imports are resolved to these numbers once, when it is linked. A call is a frame (`contracts/frame.md`)
//! `{op, args}` that travels with its number; the kernel refuses numbers outside of the unit's [`Policy`], and the host
//! asks again.

/// One verb. The number is the index in [`Verb::ALL`]; new ones are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Verb {
    StoreGet,
    StoreSet,
    StoreSetWithTtl,
    StoreDelete,
    StoreIncrement,
    StoreCompareAndSet,
    StoreList,
    QueuePush,
    QueuePushAll,
    QueuePop,
    RandomBytes,
    ConfigGet,
    HttpSend,
    EnvironmentAll,
    ClockSleep,
    ConfigAll,
    StoreOpen,
    HttpHead,
    HttpRefuse,
    HttpRead,
    HttpWait,
    HttpWrite,
    HttpFinish,
    HttpAbort,
    HttpFetch,
    HttpFetched,
    HttpDrop,
}

impl Verb {
    pub const ALL: [Self; 27] = [
        Self::StoreGet,
        Self::StoreSet,
        Self::StoreSetWithTtl,
        Self::StoreDelete,
        Self::StoreIncrement,
        Self::StoreCompareAndSet,
        Self::StoreList,
        Self::QueuePush,
        Self::QueuePushAll,
        Self::QueuePop,
        Self::RandomBytes,
        Self::ConfigGet,
        Self::HttpSend,
        Self::EnvironmentAll,
        Self::ClockSleep,
        Self::ConfigAll,
        Self::StoreOpen,
        Self::HttpHead,
        Self::HttpRefuse,
        Self::HttpRead,
        Self::HttpWait,
        Self::HttpWrite,
        Self::HttpFinish,
        Self::HttpAbort,
        Self::HttpFetch,
        Self::HttpFetched,
        Self::HttpDrop,
    ];

    pub const fn number(self) -> u32 {
        self as u32
    }

    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Whether it is about an exchange over HTTP, whose host is the class and not the unit's host.
    pub const fn is_of_exchange(self) -> bool {
        Self::HttpHead as u32 <= self as u32 && self as u32 <= Self::HttpDrop as u32
    }

    /// `op` of its frames.
    pub const fn op(self) -> &'static str {
        match self {
            Self::StoreGet => "store.get",
            Self::StoreSet => "store.set",
            Self::StoreSetWithTtl => "store.set-with-ttl",
            Self::StoreDelete => "store.delete",
            Self::StoreIncrement => "store.increment",
            Self::StoreCompareAndSet => "store.compare-and-set",
            Self::StoreList => "store.list",
            Self::QueuePush => "queue.push",
            Self::QueuePushAll => "queue.push-all",
            Self::QueuePop => "queue.pop",
            Self::RandomBytes => "random.bytes",
            Self::ConfigGet => "config.get",
            Self::HttpSend => "http.send",
            Self::EnvironmentAll => "environment.all",
            Self::ClockSleep => "clock.sleep",
            Self::ConfigAll => "config.all",
            Self::StoreOpen => "store.open",
            Self::HttpHead => "http.head",
            Self::HttpRefuse => "http.refuse",
            Self::HttpRead => "http.read",
            Self::HttpWait => "http.wait",
            Self::HttpWrite => "http.write",
            Self::HttpFinish => "http.finish",
            Self::HttpAbort => "http.abort",
            Self::HttpFetch => "http.fetch",
            Self::HttpFetched => "http.fetched",
            Self::HttpDrop => "http.drop",
        }
    }

    /// The grant of a manifest without which it is never allowed; none if it needs none.
    pub const fn grant(self) -> Option<&'static str> {
        match self {
            Self::StoreGet
            | Self::StoreSet
            | Self::StoreSetWithTtl
            | Self::StoreDelete
            | Self::StoreIncrement
            | Self::StoreCompareAndSet
            | Self::StoreList
            | Self::StoreOpen => Some("stores"),
            Self::QueuePush | Self::QueuePushAll => Some("push"),
            Self::QueuePop => Some("pop"),
            Self::HttpSend => Some("hosts"),
            // The host of an exchange asks for the grant of each request: it knows where that goes.
            Self::HttpHead
            | Self::HttpRefuse
            | Self::HttpRead
            | Self::HttpWait
            | Self::HttpWrite
            | Self::HttpFinish
            | Self::HttpAbort
            | Self::HttpFetch
            | Self::HttpFetched
            | Self::HttpDrop => None,
            Self::RandomBytes | Self::ConfigGet | Self::ConfigAll | Self::EnvironmentAll | Self::ClockSleep => None,
        }
    }
}

/// The verbs a unit may use: a bit for each number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy(pub u64);

impl Policy {
    /// What needs no grant.
    pub fn least() -> Self {
        Verb::ALL.into_iter().filter(|verb| verb.grant().is_none()).fold(Self(0), Self::with)
    }

    #[must_use]
    pub const fn with(self, verb: Verb) -> Self {
        Self(self.0 | 1 << verb.number())
    }

    pub const fn allows(self, verb: Verb) -> bool {
        self.0 >> verb.number() & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places_in_the_table() {
        for (index, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!(verb.number() as usize, index);
            assert_eq!(Verb::of(verb.number()), Some(verb));
        }
        assert_eq!(Verb::of(Verb::ALL.len() as u32), None);
        assert_eq!(Verb::of(u32::MAX), None);
    }

    #[test]
    fn a_policy_allows_what_it_was_given() {
        let policy = Policy::least().with(Verb::StoreGet);
        assert!(policy.allows(Verb::StoreGet) && policy.allows(Verb::RandomBytes));
        assert!(!policy.allows(Verb::StoreSet) && !policy.allows(Verb::HttpSend));
    }
}
