//! How the node shares out the files it may open: it keeps some back, and the gates have the rest.
//!
//! Every connection is an open file, and so are tables of the state, pipes to units and connections of theirs. Idle
//! connections, which cost nothing else, must not take the last of them: without a file no table can be written.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Files kept back for the state, for units and for what they connect to: half of all, but no more than this.
const KEPT_MAX: u64 = 1_024;
/// The share of the connections that the API has at most: one of so many.
const API_SHARE: u64 = 8;
/// The part of the files kept back that the state keeps open for reading: one of so many.
const STATE_SHARE: u64 = 4;

/// What each may have open at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Tables of the state.
    pub state: usize,
    /// Connections.
    pub api: u32,
    pub gate: u32,
    pub mqtt: usize,
}

impl Shares {
    /// Shares out `limit` files. Nobody has more than in `wanted`.
    pub fn of(limit: u64, wanted: Self) -> Self {
        let kept = (limit / 2).min(KEPT_MAX);
        let connections = limit - kept;
        let api = u64::from(wanted.api).min(connections / API_SHARE).max(1);
        let (gate, mqtt) = (u64::from(wanted.gate), wanted.mqtt as u64);
        let left = (connections - api.min(connections)).max(2);
        let (gate, mqtt) = match gate + mqtt <= left {
            true => (gate, mqtt),
            // Each its half, and what the other one does not want.
            false => {
                let half = left / 2;
                (gate.min(half.max(left.saturating_sub(mqtt))), mqtt.min(half.max(left.saturating_sub(gate))))
            }
        };
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let state = wanted.state.min((kept / STATE_SHARE) as usize);
        Self { state, api: narrow(api), gate: narrow(gate), mqtt: mqtt as usize }
    }
}

/// Raises the limit to the most there may be, for the usual 1,024 are for programs that cannot handle more, and shares
/// it out. Says it in the log where somebody gets less than is wanted.
pub fn share(wanted: Shares) -> Shares {
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of open files stays as it is: {error}");
        limit.current = before;
    }
    let files = limit.current.unwrap_or(u64::MAX);
    let shares = Shares::of(files, wanted);
    if shares != wanted {
        let Shares { api, gate, mqtt, .. } = shares;
        tracing::warn!(
            files,
            api,
            gate,
            mqtt,
            "this process may open {files} files only, so there are fewer connections at once: \
             {gate} of the HTTP gate, {mqtt} of MQTT, {api} of the API; raise the limit with ulimit -n or LimitNOFILE"
        );
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Shares = Shares { state: 128, api: 256, gate: 10_000, mqtt: 10_000 };

    #[test]
    fn where_there_are_enough_each_has_what_it_wants() {
        assert_eq!(Shares::of(65_536, WANTED), WANTED);
        assert_eq!(Shares::of(u64::MAX, WANTED), WANTED);
    }

    #[test]
    fn where_there_are_few_half_is_kept_back_and_the_gates_have_equal_parts() {
        assert_eq!(Shares::of(1_024, WANTED), Shares { state: 128, api: 64, gate: 224, mqtt: 224 });
        assert_eq!(Shares::of(256, WANTED), Shares { state: 32, api: 16, gate: 56, mqtt: 56 });
        let without = Shares { mqtt: 0, ..WANTED };
        assert_eq!(Shares::of(1_024, without), Shares { state: 128, api: 64, gate: 448, mqtt: 0 });
        let small = Shares { mqtt: 100, ..WANTED };
        assert_eq!(Shares::of(1_024, small), Shares { state: 128, api: 64, gate: 348, mqtt: 100 });
    }

    #[test]
    fn all_of_them_together_never_take_what_is_kept_back() {
        for limit in 64..30_000_u64 {
            let Shares { api, gate, mqtt, .. } = Shares::of(limit, WANTED);
            let taken = u64::from(api) + u64::from(gate) + mqtt as u64;
            assert!(taken <= limit - (limit / 2).min(KEPT_MAX), "{limit}: {taken}");
            assert!(api > 0 && gate > 0 && mqtt > 0, "{limit}");
        }
    }
}
