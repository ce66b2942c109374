//! A large reply that its unit does not send but lends: the unit says where the frame lies in its memory, and the node
//! copies it.
//!
//! ```text
//!   unit ── [[address, bytes], …] ──▶ node ── reads ──▶ unit's memory ──▶ the frame, as if it had come by the socket
//! ```
//! This is one copy instead of two. The frame belongs to the unit and may change meanwhile, just as anything it sends
//! may be wrong: it is copied once, and only the copy is read. The node asks a unit for this only where the system lets
//! it read (`Zygote::can_read`); the unit keeps the memory until it is ended.

use crate::child::Life;
use crate::turn::{TURN_BYTES, Turn};
use crate::wire::Broken;
use bytes::Bytes;
use frame::Value;
use unit_host::calls::Nonsense;

/// Pieces of one reply.
const PIECES_MAX: usize = 64;

/// Where a reply lies, in order.
#[derive(Debug, PartialEq, Eq)]
pub struct Pieces(Vec<(u64, u64)>);

impl Pieces {
    /// Reads what a unit says.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn read(said: &Value<'_>) -> Result<Self, Nonsense> {
        let wrong = |what: &str| Nonsense(format!("where a reply lies in memory: {what}"));
        let Value::List(said) = said else { return Err(wrong("no list")) };
        if said.len() > PIECES_MAX {
            return Err(wrong("too many pieces"));
        }
        let mut pieces = Vec::with_capacity(said.len());
        let mut bytes_all = 0_u64;
        for piece in said {
            let pair = match piece {
                Value::List(pair) => pair.as_slice(),
                _ => &[],
            };
            let [Value::I64(address), Value::I64(bytes)] = pair else { return Err(wrong("a piece is two numbers")) };
            let (Ok(address), Ok(bytes)) = (u64::try_from(*address), u64::try_from(*bytes)) else {
                return Err(wrong("a number below zero"));
            };
            bytes_all = bytes_all.checked_add(bytes).ok_or_else(|| wrong("more bytes than there are"))?;
            pieces.push((address, bytes));
        }
        Ok(Self(pieces))
    }

    /// Bytes of all pieces together.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Copies what lies there; its size was compared with the limit before.
    ///
    /// # Errors
    /// [`Broken::Garbled`]: there is nothing. [`Broken::Ended`]: there is no unit any more.
    pub async fn copy(&self, life: &Life) -> Result<Bytes, Broken> {
        let beyond = |_| Broken::Garbled("a reply beyond memory".to_owned());
        let mut data = Vec::new();
        data.try_reserve_exact(usize::try_from(self.bytes()).map_err(beyond)?)
            .map_err(|_| Broken::Garbled("a reply beyond memory".to_owned()))?;
        let mut turn = Turn::default();
        for (address, bytes) in &self.0 {
            let (mut address, mut left) = (*address, usize::try_from(*bytes).map_err(beyond)?);
            while left > 0 {
                let step = left.min(TURN_BYTES);
                life.read_memory(address, step, &mut data).map_err(|error| match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => Broken::Ended,
                    _ => Broken::Garbled(format!("the reply is not where the unit says: {error}")),
                })?;
                // Cannot pass the end of what was read just now.
                address = address.saturating_add(step as u64);
                left -= step;
                turn.moved(step).await;
            }
        }
        Ok(data.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(address: i64, bytes: i64) -> Value<'static> {
        Value::List(vec![Value::I64(address), Value::I64(bytes)])
    }

    #[test]
    fn places_are_pairs_of_numbers() {
        let found = Pieces::read(&Value::List(vec![pair(4_096, 10), pair(16, 0)])).unwrap();
        assert_eq!((found.bytes(), found), (10, Pieces(vec![(4_096, 10), (16, 0)])));
    }

    /// Numbers drawn from those at which sums overflow: what is read says the sum that there is.
    #[test]
    fn whatever_is_said_is_refused_or_adds_up() {
        let mut state = 7_u64;
        let mut draw = |count: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % count
        };
        let numbers = [i64::MIN, -1, 0, 1, 4_096, 1 << 32, i64::MAX / 2, i64::MAX - 1, i64::MAX];
        for _ in 0..20_000 {
            let mut sum = Some(0_u64);
            let said = (0..draw(70)).map(|_| {
                let (address, bytes) = (numbers[draw(9)], numbers[draw(9)]);
                let bytes_here = u64::try_from(bytes).ok().filter(|_| address >= 0);
                sum = sum.zip(bytes_here).and_then(|(sum, bytes)| sum.checked_add(bytes));
                pair(address, bytes)
            });
            let said: Vec<_> = said.collect();
            let wanted = sum.filter(|_| said.len() <= PIECES_MAX);
            assert_eq!(Pieces::read(&Value::List(said)).ok().map(|pieces| pieces.bytes()), wanted);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for memory in [
            Value::Null,
            Value::I64(1),
            Value::List(vec![Value::I64(1)]),
            Value::List(vec![Value::List(vec![Value::I64(1)])]),
            Value::List(vec![Value::List(vec![Value::I64(1), Value::Str("x")])]),
            Value::List(vec![pair(-1, 1)]),
            Value::List(vec![pair(1, -1)]),
            Value::List(vec![pair(1, i64::MAX), pair(1, i64::MAX), pair(1, i64::MAX)]),
            Value::List((0..65).map(|_| pair(0, 0)).collect()),
        ] {
            assert!(Pieces::read(&memory).is_err(), "{memory:?}");
        }
    }
}
