//! What the audit keeps of a change, as it travels over the API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who did what on the node, or failed to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Of failed logins, when their minute began.
    pub time_ms: u64,
    /// The command's words, as `deploy` or `token create`; `login` for failed logins; `forget` where the oldest entries
    /// went.
    pub action: String,
    /// Name of the token; none if there was none.
    pub token: Option<String>,
    /// Where it came from; of a failed login the address or network, none for those that are not told apart.
    pub peer: Option<String>,
    /// What it was done to; of a login the door: `api`, `gate` or `mqtt`, and `mqtt: NAME` where NAME is a user there
    /// is.
    pub target: String,
    /// `done`, `failed`, or the code of the problem.
    pub outcome: String,
    /// How often.
    pub count: u64,
}
