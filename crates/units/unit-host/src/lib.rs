//! What a handling asks of its host, the same for every kind of unit.
//!
//! ```text
//!   kind ──▶ rerun::call ──▶ attempt: the kind starts a unit and hands it the event
//!                 ▲               │ what the unit asks meanwhile
//!                 │               ├─▶ Handling   store and queue: one transaction
//!                 │conflict       ├─▶ Requests   outgoing HTTP, asked for a grant first
//!                 │               ├─▶ values     config and secrets
//!                 │               └─▶ Output     log lines, bounded
//!                 └── settle: commit, ack, durable
//! ```
//! A kind whose units are on the other side of a wire begins at `handle`, which makes each attempt's [`Meter`] and
//! [`calls::Host`]. Here is no word of how a unit is kept apart; a kind turns these types into its own.
#![forbid(unsafe_code)]

mod attempt;
pub mod calls;
pub mod egress;
mod handling;
pub mod http;
pub mod kernel;
mod meter;
mod output;
pub mod pool;
mod rerun;
mod roster;
mod values;

pub use attempt::{Attempt, handle};
pub use handling::{Handling, Refusal, bucket_denied};
pub use meter::{Meter, time_exceeded};
pub use output::{Output, cut};
pub use rerun::{Handled, RERUNS_MAX, Spending, Spent, call};
pub use roster::{Entry, Roster};
pub use values::{random, unix_ms, value, values};

use event::Failure;
use problem::{Code, Problem};
use unit::Level;

/// Bytes of a handler's own words that travel in the problem; the log has more of them.
const WORDS_BYTES_MAX: usize = 4 << 10;

/// What the handler itself says went wrong.
pub fn said(failure: Failure, output: &Output) -> Problem {
    let (code, why) = match failure {
        Failure::Invalid(why) => (Code::UnitInvalid, why),
        Failure::Retry(why) => (Code::UnitRetry, why),
        Failure::Fatal(why) => (Code::UnitFatal, why),
    };
    output.note(Level::Warn, &format!("{}: {why}", code.title()));
    Problem::new(code, cut(&why, WORDS_BYTES_MAX).to_owned())
}

/// # Errors
/// [`Code::ReplyTooLarge`]: the reply is over `limits.body_bytes`.
pub fn check_reply(bytes: u64, limits: &manifest::Limits) -> Result<(), Problem> {
    let bytes_max = limits.body_bytes;
    if bytes > bytes_max {
        let detail = format!("the reply has {bytes} bytes, limits.body_bytes is {bytes_max}");
        return Err(Problem::new(Code::ReplyTooLarge, detail));
    }
    Ok(())
}
