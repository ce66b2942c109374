//! Results of calls that are answered later: kept durable for a while, and read by callers that know the id.
//!
//! ```text
//!   request ─▶ 202, id ─┬─▶ event, with the id ─▶ handling ─▶ commit: ack + reply ─┐
//!                       └─▶ pending ────────────────────────────────────────────────▶ done
//! ```
//! A result is written in the transaction that acks the event (or makes it a dead letter), so there is never one
//! without the other. It is written only while it is waited for: an attribute that was copied from another event does
//! nothing.
//!
//! Each function has a bucket of its own for them, so a flood of calls fills the share of the function that was
//! flooded.

use bytes::Bytes;
use event::Event;
use gate_http::problem_reply;
use handling::WholeReply;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use manifest::Name;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use state::{BucketConfig, State, StoreError, Ticket, Transaction, VALUE_BYTES_MAX};
use std::time::Duration;

/// Buckets of the node's own: this and the function's name. Results by id.
const BUCKETS: &str = ".results.";

/// Attribute of an event whose result is waited for: the id of the result.
pub const ATTRIBUTE: &str = "resultid";

/// Results of a function kept at once, those that are pending among them; while there are as many, no call of it is
/// taken.
const RESULTS_MAX: u64 = 100_000;

/// Bytes of all of them, and of their ids.
const RESULTS_BYTES_MAX: u64 = 64 << 20;

/// How long the result of a call is waited for. The event is handled all the same.
const PENDING: Duration = Duration::from_secs(24 * 3_600);

/// How long a result can be read once it is there.
const KEPT: Duration = Duration::from_secs(3_600);

/// Bytes of one reply; of a larger one only its size is kept.
const REPLY_BYTES_MAX: usize = VALUE_BYTES_MAX - (64 << 10);

/// Table and key of the number that makes ids unpredictable.
pub const SECRETS: &str = "results";
const SECRET: &str = "secret";

const ID_BYTES: usize = 16;

/// Makes ids of results.
pub struct ResultIds {
    secret: [u8; 32],
}

impl ResultIds {
    /// Reads the number they are made with; the first start of a node makes it up.
    pub async fn open(state: &State) -> Result<Self, Problem> {
        let records = state.records(SECRETS);
        if let Some(secret) = records.get(SECRET)?.and_then(|secret| secret.try_into().ok()) {
            return Ok(Self { secret });
        }
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)
            .map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
        records.put(&[(SECRET, &secret)]).await?;
        Ok(Self { secret })
    }

    /// The id of the result of this event: 32 hexadecimal digits, the same whenever the event comes again.
    pub fn of(&self, function: &str, event: &Event) -> String {
        let mut hash = Sha256::new();
        hash.update(self.secret);
        for part in [function, &event.id_giver(), &event.id] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize()[..ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Gives a function its share: to be called when it may have results, at each start.
pub fn bound(state: &State, function: &Name) -> Result<(), Problem> {
    let share = BucketConfig { keys_max: Some(RESULTS_MAX), bytes_max: Some(RESULTS_BYTES_MAX), ttl: Some(KEPT) };
    state.configure_bucket(&bucket(function), share)
}

/// The function is no more. Its results can be read again if it comes back before they expire; then nothing of it is
/// left.
pub fn release(state: &State, function: &Name) {
    state.configure_bucket(&bucket(function), BucketConfig::default()).expect("a function's name fits");
}

/// The event's result is waited for from now on, unless it is there already.
///
/// # Errors
/// [`StoreError::BucketFull`]: the function has as many as it may, which [`full`] tells a caller. The commit may say so
/// too.
pub fn expect(transaction: &mut Transaction, function: &Name, id: &str) -> Result<(), StoreError> {
    transaction.set_with_ttl(&bucket(function), id, Kept::Pending.encode(), PENDING)
}

/// Whether the result of this id is there, or waited for.
pub fn is_kept(transaction: &mut Transaction, function: &Name, id: &str) -> Result<bool, StoreError> {
    Ok(transaction.get(&bucket(function), id)?.is_some())
}

/// Why a call of the function is not taken.
pub fn full(function: &Name) -> Problem {
    let detail = format!(
        "function {:?} takes no call now: its results are {RESULTS_MAX}, or take {} MiB, which is its share",
        function.as_str(),
        RESULTS_BYTES_MAX >> 20
    );
    Problem::new(Code::ResultsFull, detail)
}

/// Keeps what a handling replied, if somebody waits for it.
pub fn keep_reply(
    transaction: &mut Transaction,
    function: &Name,
    event: &Event,
    reply: &WholeReply,
) -> Result<(), Problem> {
    let Some(id) = waited_for(transaction, function, event)? else { return Ok(()) };
    let kept = match reply {
        WholeReply::Bytes(bytes) if bytes.len() <= REPLY_BYTES_MAX => Kept::Bytes(bytes.clone()),
        WholeReply::Http(reply) if reply.body().len() <= REPLY_BYTES_MAX => Kept::http(reply),
        WholeReply::Bytes(bytes) => Kept::too_large(bytes.len()),
        WholeReply::Http(reply) => Kept::too_large(reply.body().len()),
    };
    keep(transaction, function, id, &kept)
}

/// Keeps why there will never be a reply, if somebody waits for one.
pub fn keep_failure(
    transaction: &mut Transaction,
    function: &Name,
    event: &Event,
    why: &Problem,
) -> Result<(), Problem> {
    let Some(id) = waited_for(transaction, function, event)? else { return Ok(()) };
    keep(transaction, function, id, &Kept::Failure(why.clone()))
}

/// Where there is no room for the result, there may be for why there is none; what the function did matters more than
/// either.
fn keep(transaction: &mut Transaction, function: &Name, id: &str, kept: &Kept) -> Result<(), Problem> {
    let bucket = bucket(function);
    let record = kept.encode();
    let record_bytes = record.len();
    let mut written = transaction.set_with_ttl(&bucket, id, record, KEPT);
    if let Err(StoreError::BucketFull(_)) = written {
        written = transaction.set_with_ttl(&bucket, id, Kept::no_room(function, record_bytes).encode(), KEPT);
    }
    match written {
        Err(StoreError::BucketFull(_)) => Ok(transaction.delete(&bucket, id)?),
        written => Ok(written?),
    }
}

/// The id of the result, if it is pending.
fn waited_for<'a>(
    transaction: &mut Transaction,
    function: &Name,
    event: &'a Event,
) -> Result<Option<&'a str>, Problem> {
    let Some(id) = event.attribute(ATTRIBUTE).filter(|id| is_id(id)) else { return Ok(None) };
    let known = transaction.get(&bucket(function), id)?;
    Ok(known.is_some_and(|known| known == Kept::Pending.encode()).then_some(id))
}

/// The answer to who asks for a result, and what has to be durable before it is given.
///
/// `whole`: whether they may read all of why there is no reply.
///
/// # Errors
/// [`Code::EventUnknown`]: there is none of this id, or no longer.
pub fn read(
    state: &State,
    function: &Name,
    id: &str,
    reply_type: &HeaderValue,
    whole: impl FnOnce() -> bool,
) -> Result<(Response<Bytes>, Ticket), Problem> {
    let mut transaction = state.begin();
    let known = match is_id(id) {
        true => transaction.get(&bucket(function), id)?,
        false => None,
    };
    let unknown = || Problem::new(Code::EventUnknown, format!("function {:?} has no such result", function.as_str()));
    let known = known.ok_or_else(|| unknown().with_hint("a result is kept for an hour"))?;
    let corrupt = || Problem::new(Code::StateCorrupt, "a result cannot be read");
    let kept = match Kept::decode(&known).ok_or_else(corrupt)? {
        Kept::Failure(why) if !whole() => Kept::Failure(why.for_strangers()),
        kept => kept,
    };
    Ok((kept.reply(reply_type), transaction.seen()))
}

fn bucket(function: &Name) -> String {
    format!("{BUCKETS}{}", function.as_str())
}

fn is_id(id: &str) -> bool {
    id.len() == 2 * ID_BYTES && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// A result as it is stored: a letter, and what belongs to it.
#[derive(Debug, PartialEq)]
enum Kept {
    Pending,
    /// What a handler returned.
    Bytes(Bytes),
    Http(KeptHead, Bytes),
    Failure(Problem),
}

/// Status and headers of an HTTP reply.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct KeptHead {
    status: u16,
    headers: Vec<(String, String)>,
}

impl Kept {
    fn http(reply: &Response<Bytes>) -> Self {
        let headers = reply.headers().iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        Self::Http(KeptHead { status: reply.status().as_u16(), headers: headers.collect() }, reply.body().clone())
    }

    fn too_large(bytes: usize) -> Self {
        let detail =
            format!("the function has done its work; its reply has {bytes} bytes, {REPLY_BYTES_MAX} can be kept");
        Self::Failure(Problem::new(Code::ReplyTooLarge, detail).with_hint("keep large results in the store"))
    }

    fn no_room(function: &Name, bytes: usize) -> Self {
        let detail = format!(
            "the function has done its work; its reply of {bytes} bytes finds no room among the results of {:?}, which may take {} MiB",
            function.as_str(),
            RESULTS_BYTES_MAX >> 20
        );
        Self::Failure(Problem::new(Code::ResultsFull, detail))
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Pending => b"p".to_vec(),
            Self::Bytes(bytes) => [b"b", &bytes[..]].concat(),
            Self::Http(head, body) => {
                let head = serde_json::to_vec(head).expect("a head is texts and a number");
                [b"h", &head[..], b"\n", body].concat()
            }
            Self::Failure(problem) => [b"f", &problem.to_json()[..]].concat(),
        }
    }

    fn decode(record: &[u8]) -> Option<Self> {
        let (letter, rest) = record.split_first()?;
        match letter {
            b'p' if rest.is_empty() => Some(Self::Pending),
            b'b' => Some(Self::Bytes(Bytes::copy_from_slice(rest))),
            b'h' => {
                // JSON on one line holds no line feed.
                let end = rest.iter().position(|byte| *byte == b'\n')?;
                Some(Self::Http(serde_json::from_slice(&rest[..end]).ok()?, Bytes::copy_from_slice(&rest[end + 1..])))
            }
            b'f' => Problem::from_json(rest).map(Self::Failure),
            _ => None,
        }
    }

    fn reply(self, reply_type: &HeaderValue) -> Response<Bytes> {
        match self {
            Self::Pending => {
                let mut reply = Response::new(Bytes::from_static(b"{\"state\":\"pending\"}\n"));
                *reply.status_mut() = StatusCode::ACCEPTED;
                reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
                reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                reply
            }
            Self::Bytes(bytes) => {
                let mut reply = Response::new(bytes);
                reply.headers_mut().insert(CONTENT_TYPE, reply_type.clone());
                reply
            }
            Self::Http(head, body) => {
                let mut reply = Response::new(body);
                *reply.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
                *reply.headers_mut() = header_map(head.headers);
                reply
            }
            Self::Failure(problem) => problem_reply(&problem),
        }
    }
}

fn header_map(pairs: Vec<(String, String)>) -> HeaderMap {
    let pairs = pairs.into_iter().filter_map(|(name, value)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    });
    let mut headers = HeaderMap::new();
    pairs.for_each(|(name, value)| _ = headers.append(name, value));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_reads_back() {
        let http =
            Response::builder().status(404).header("x-a", "1").header("x-a", "2").body(Bytes::from("a\nb")).unwrap();
        let failure = Problem::new(Code::UnitInvalid, "no");
        for kept in [
            Kept::Pending,
            Kept::Bytes(Bytes::new()),
            Kept::Bytes("p".into()),
            Kept::http(&http),
            Kept::Failure(failure),
        ] {
            assert_eq!(Kept::decode(&kept.encode()).as_ref(), Some(&kept));
        }
        for bad in [&b""[..], b"px", b"h{}\n", b"h", b"f{}", b"?"] {
            assert_eq!(Kept::decode(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_reply_is_what_it_would_have_been() {
        let http =
            Response::builder().status(404).header("x-a", "1").header("x-a", "2").body(Bytes::from("body")).unwrap();
        let reply = Kept::http(&http).reply(&HeaderValue::from_static("text/plain"));
        assert_eq!((reply.status(), reply.headers(), reply.body()), (http.status(), http.headers(), http.body()));
        let reply = Kept::Failure(Problem::new(Code::UnitInvalid, "no")).reply(&HeaderValue::from_static("text/plain"));
        assert_eq!(
            (reply.status().as_u16(), &reply.headers()["content-type"]),
            (422, &HeaderValue::from_static("application/problem+json"))
        );
        assert_eq!(Kept::Bytes("x".into()).reply(&HeaderValue::from_static("a/b")).headers()["content-type"], "a/b");
    }

    #[tokio::test]
    async fn ids_are_the_same_after_a_restart_and_differ_between_nodes_functions_and_events() {
        let folder = tempfile::tempdir().unwrap();
        let id = |ids: &ResultIds, function: &str, id: &str| {
            ids.of(function, &Event { id: id.into(), source: "/a".into(), ..Event::default() })
        };
        let ids = {
            let state = State::open(folder.path(), state::Options::default()).unwrap();
            ResultIds::open(&state).await.unwrap()
        };
        let again = ResultIds::open(&State::open(folder.path(), state::Options::default()).unwrap()).await.unwrap();
        assert_eq!(id(&ids, "f", "1"), id(&again, "f", "1"));
        let other = tempfile::tempdir().unwrap();
        let other = ResultIds::open(&State::open(other.path(), state::Options::default()).unwrap()).await.unwrap();
        let all = [id(&ids, "f", "1"), id(&ids, "f", "2"), id(&ids, "g", "1"), id(&other, "f", "1")];
        assert!(all.iter().all(|id| is_id(id)));
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 4);
    }

    #[tokio::test]
    async fn a_result_is_kept_only_while_it_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path(), state::Options::default()).unwrap();
        let (function, other): (Name, Name) = ("f".parse().unwrap(), "g".parse().unwrap());
        let id = "0".repeat(32);
        let event = Event { attributes: vec![(ATTRIBUTE.to_owned(), id.clone())], ..Event::default() };
        let text = HeaderValue::from_static("text/plain");
        let status = |function: &Name| {
            read(&state, function, &id, &text, || true)
                .map(|(reply, _)| reply.status().as_u16())
                .map_err(|problem| problem.code)
        };
        let write = |write: &dyn Fn(&mut Transaction) -> Result<(), Problem>| {
            let mut transaction = state.begin();
            write(&mut transaction).unwrap();
            let _visible = transaction.commit().unwrap();
        };
        let reply = |text: &str| WholeReply::Bytes(Bytes::copy_from_slice(text.as_bytes()));
        write(&|transaction| keep_reply(transaction, &function, &event, &reply("early")));
        assert_eq!(status(&function), Err(Code::EventUnknown));
        write(&|transaction| Ok(expect(transaction, &function, &id)?));
        write(&|transaction| keep_reply(transaction, &other, &event, &reply("stray")));
        assert_eq!((status(&function), status(&other)), (Ok(202), Err(Code::EventUnknown)));
        write(&|transaction| keep_reply(transaction, &function, &event, &reply("first")));
        write(&|transaction| keep_failure(transaction, &function, &event, &Problem::new(Code::UnitFatal, "late")));
        assert_eq!(status(&function), Ok(200));
        assert_eq!(read(&state, &function, &id, &text, || true).unwrap().0.body(), "first");
        assert_eq!(read(&state, &function, "../x", &text, || true).unwrap_err().code, Code::EventUnknown);
    }

    /// Once every function's results lay in one bucket, and one public route could take the room of all of them.
    #[tokio::test]
    async fn a_function_fills_its_own_share_alone_and_what_finds_no_room_says_so() {
        const PIECE_BYTES: usize = 900_000;
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path(), state::Options::default()).unwrap();
        let (flooded, neighbour): (Name, Name) = ("f".repeat(63).parse().unwrap(), "g".parse().unwrap());
        for function in [&flooded, &neighbour] {
            bound(&state, function).unwrap();
        }
        let text = HeaderValue::from_static("text/plain");
        let call = async |function: &Name, number: u64, bytes: usize| {
            let id = format!("{number:032x}");
            let event = Event { attributes: vec![(ATTRIBUTE.to_owned(), id.clone())], ..Event::default() };
            let mut transaction = state.begin();
            expect(&mut transaction, function, &id)?;
            keep_reply(&mut transaction, function, &event, &WholeReply::Bytes(vec![0; bytes].into())).unwrap();
            // Waited for, or more waits in memory than the disk takes away.
            state.durable(transaction.commit().unwrap()).await.unwrap();
            Ok::<_, StoreError>(read(&state, function, &id, &text, || true).unwrap().0.status().as_u16())
        };
        let fit = RESULTS_BYTES_MAX / PIECE_BYTES as u64;
        for number in 0..fit {
            assert_eq!(call(&flooded, number, PIECE_BYTES).await, Ok(200));
        }
        let status = Code::ResultsFull.status();
        assert_eq!(call(&flooded, fit, PIECE_BYTES).await, Ok(status), "why it is not there is kept in its place");
        assert_eq!(call(&neighbour, 0, PIECE_BYTES).await, Ok(200));
        let left = RESULTS_BYTES_MAX - state.bucket_counts(&bucket(&flooded)).bytes;
        assert_eq!(call(&flooded, fit + 1, usize::try_from(left).unwrap() - 33).await, Ok(200), "to the last byte");
        assert!(matches!(call(&flooded, fit + 2, 0).await, Err(StoreError::BucketFull(_))));
        assert_eq!(call(&neighbour, 1, 0).await, Ok(200));
        release(&state, &flooded);
        let kept = read(&state, &flooded, &"0".repeat(32), &text, || true).unwrap();
        assert_eq!(kept.0.status(), 200, "until they expire");
    }
}
