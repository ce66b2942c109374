//! The audit: who changed or read what, and who failed to log in. Durable, bounded, and without any secret.
//!
//! ```text
//!   DATA/audit/changes.jsonl   what holders of tokens did: each entry synced before the answer goes out
//!   DATA/audit/logins.jsonl    failed logins by door, address, user of MQTT and minute: apart, so that a stranger pushes no
//!                              change out
//! ```
//! A full file becomes the previous one (`.1`), and the file before that is removed. The new file begins with the
//! number of entries that were removed.

use api_types::AuditEntry;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// Followers of the audit at once. The next one is refused.
pub const FOLLOWERS_MAX: usize = 16;

/// Entries that wait for a follower; a slower one misses the oldest, and learns how many.
const WAITING_MAX: usize = 1_024;

/// Entries and bytes of one file. Two are kept of each kind.
const CHANGES_MAX: Bounds = Bounds { entries: 10_000, bytes: 4 << 20 };
const LOGINS_MAX: Bounds = Bounds { entries: 2_000, bytes: 1 << 20 };

/// Failed logins that are counted apart within a minute. The others are one entry for each door.
const APART_MAX: usize = 100;

/// Of these, how many may name a user. Beyond it a login is counted only by its address, so that somebody who tries all
/// users takes no other address's entry.
const APART_BY_USER_MAX: usize = 50;
const MINUTE_MS: u64 = 60_000;

/// Characters of what an entry is about; the rest is cut off.
const TEXT_CHARACTERS_MAX: usize = 256;

#[derive(Clone, Copy)]
struct Bounds {
    entries: usize,
    bytes: u64,
}

/// Where somebody can log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Door {
    Api,
    Gate,
    Mqtt,
}

pub struct Audit {
    changes: Mutex<Book>,
    logins: Mutex<Logins>,
    followers: Followers,
}

/// Who is told of each new entry, until the node stops.
#[derive(Clone)]
struct Followers(Arc<Mutex<Option<broadcast::Sender<AuditEntry>>>>);

/// New entries, from the moment it was made.
pub struct Follower(broadcast::Receiver<AuditEntry>);

struct Logins {
    book: Book,
    followers: Followers,
    /// The minute that is counted, in minutes since 1970.
    minute: u64,
    failed: BTreeMap<Failed, u64>,
}

/// What failed logins have in common that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Failed {
    door: Door,
    /// None stands for all that found no room.
    address: Option<IpAddr>,
    /// A user that there is. What strangers call themselves is not kept.
    user: Option<Arc<str>>,
}

/// One kind of entries, in two files.
struct Book {
    path: PathBuf,
    file: File,
    bounds: Bounds,
    entries: usize,
    bytes: u64,
    /// The last line may have no end: its write has failed.
    is_torn: bool,
}

/// Whether `code` is the answer to a wrong token. Those beyond the rate of wrong ones are counted like the rest, or a
/// flood from one address would hide what another tries meanwhile.
pub fn is_failed_login(code: Code) -> bool {
    matches!(code, Code::TokenInvalid | Code::RateExceeded)
}

impl Audit {
    /// # Errors
    /// The files cannot be opened.
    pub fn open(data: &Path) -> Result<Arc<Self>, Problem> {
        let folder = data.join("audit");
        let open = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let changes = Book::open(folder.join("changes.jsonl"), CHANGES_MAX)?;
            let book = Book::open(folder.join("logins.jsonl"), LOGINS_MAX)?;
            let followers = Followers(Arc::new(Mutex::new(Some(broadcast::Sender::new(WAITING_MAX)))));
            let logins = Logins { book, followers: followers.clone(), minute: 0, failed: BTreeMap::new() };
            Ok(Arc::new(Self { changes: Mutex::new(changes), logins: Mutex::new(logins), followers }))
        };
        open().map_err(|error: io::Error| {
            Problem::new(Code::DataUnusable, format!("the audit in {}: {error}", folder.display()))
        })
    }

    /// Keeps an entry; durable when it returns. What cannot be kept is told of in the node's log, with the entry.
    pub fn keep(&self, mut entry: AuditEntry) {
        entry.target = shown(&entry.target);
        let mut changes = self.changes.lock();
        if let Err(error) = changes.append(&entry, true) {
            tracing::error!(?entry, "the audit cannot be written: {error}");
        }
        // Under the lock, so that a follower who looks back hears of it once.
        self.followers.tell(&entry);
    }

    /// Counts a failed login, as `user` if there is one of that name. Written when the minute is over.
    pub fn failed_login(&self, door: Door, address: IpAddr, user: Option<&Arc<str>>, now_ms: u64) {
        let mut logins = self.logins.lock();
        logins.turn(now_ms);
        let address = Some(network(address));
        let exactly = user.map(|user| (Failed { door, address, user: Some(user.clone()) }, APART_BY_USER_MAX));
        let by_address = (Failed { door, address, user: None }, APART_MAX);
        let apart = exactly.into_iter().chain([by_address]).find_map(|(failed, apart_max)| {
            (logins.failed.len() < apart_max || logins.failed.contains_key(&failed)).then_some(failed)
        });
        *logins.failed.entry(apart.unwrap_or(Failed { door, address: None, user: None })).or_default() += 1;
    }

    /// Writes what was counted in minutes that are over. Called every few seconds.
    pub fn sweep(&self, now_ms: u64) {
        self.logins.lock().turn(now_ms);
    }

    /// Writes what was counted until now: the node ends.
    pub fn end(&self) {
        self.logins.lock().write();
    }

    /// The newest entries of both kinds, the oldest of them first.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn newest(&self, count: usize) -> Result<Vec<AuditEntry>, Problem> {
        let (changes, logins) = (self.changes.lock(), self.logins.lock());
        // What is still counted is shown and not yet written: who looks often makes no more entries than who does not.
        read(&changes, &logins, logins.entries(), count)
    }

    /// The same without what is still counted, and then each new entry: failed logins when their minute is over.
    ///
    /// # Errors
    /// Too many follow already; the files cannot be read.
    pub fn follow(&self, count: usize) -> Result<(Vec<AuditEntry>, Follower), Problem> {
        let (changes, logins) = (self.changes.lock(), self.logins.lock());
        let follower = self.followers.add()?;
        Ok((read(&changes, &logins, std::iter::empty(), count)?, follower))
    }

    /// The node stops: followers have heard all.
    pub fn close(&self) {
        *self.followers.0.lock() = None;
    }
}

fn read(
    changes: &Book,
    logins: &Logins,
    counted: impl Iterator<Item = AuditEntry>,
    count: usize,
) -> Result<Vec<AuditEntry>, Problem> {
    let failed = |error: io::Error| Problem::new(Code::DataUnusable, format!("the audit cannot be read: {error}"));
    let mut entries = changes.read().map_err(failed)?;
    entries.extend(logins.book.read().map_err(failed)?);
    entries.extend(counted);
    entries.sort_by_key(|entry| entry.time_ms);
    Ok(entries.split_off(entries.len().saturating_sub(count)))
}

impl Followers {
    fn add(&self) -> Result<Follower, Problem> {
        let sender = self.0.lock();
        let sender = sender.as_ref().ok_or_else(|| Problem::new(Code::Draining, "the node is shutting down"))?;
        if sender.receiver_count() >= FOLLOWERS_MAX {
            let detail = format!("{FOLLOWERS_MAX} followers read the audit already");
            return Err(Problem::new(Code::ConcurrencyExceeded, detail).with_hint("end one of them"));
        }
        Ok(Follower(sender.subscribe()))
    }

    fn tell(&self, entry: &AuditEntry) {
        if let Some(sender) = &*self.0.lock() {
            // Nobody may be listening.
            sender.send(entry.clone()).ok();
        }
    }
}

impl Follower {
    /// The next entry; none once the node stops.
    pub async fn next(&mut self) -> Option<AuditEntry> {
        match self.0.recv().await {
            Ok(entry) => Some(entry),
            Err(RecvError::Closed) => None,
            Err(RecvError::Lagged(missed)) => {
                let time_ms = crate::clock::now_ms();
                Some(forgotten("entries that came too fast for this reader", missed, time_ms))
            }
        }
    }
}

/// What stands in the place of entries that are gone.
fn forgotten(target: &str, count: u64, time_ms: u64) -> AuditEntry {
    let (action, outcome) = ("forget".to_owned(), "done".to_owned());
    AuditEntry { time_ms, action, token: None, peer: None, target: target.to_owned(), outcome, count }
}

impl Logins {
    /// Ends the minute that is counted, if it is over.
    fn turn(&mut self, now_ms: u64) {
        let minute = now_ms / MINUTE_MS;
        if minute != self.minute {
            self.write();
            self.minute = minute;
        }
    }

    /// Of the minute that is counted.
    fn entries(&self) -> impl Iterator<Item = AuditEntry> {
        self.failed.iter().map(|(Failed { door, address, user }, count)| AuditEntry {
            time_ms: self.minute * MINUTE_MS,
            action: "login".to_owned(),
            token: None,
            peer: address.map(|address| address.to_string()),
            target: user
                .as_ref()
                .map_or_else(|| door.word().to_owned(), |user| shown(&format!("{}: {user}", door.word()))),
            outcome: "failed".to_owned(),
            count: *count,
        })
    }

    fn write(&mut self) {
        let entries: Vec<AuditEntry> = self.entries().collect();
        self.failed.clear();
        for entry in entries {
            if let Err(error) = self.book.append(&entry, false) {
                tracing::warn!(?entry, "the audit cannot be written: {error}");
            }
            self.followers.tell(&entry);
        }
    }
}

impl Door {
    fn word(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Gate => "gate",
            Self::Mqtt => "mqtt",
        }
    }
}

impl Book {
    fn open(path: PathBuf, bounds: Bounds) -> io::Result<Self> {
        let mut file = begin(&path, false)?;
        let kept = fs::read(&path)?;
        // An entry that a crash has torn is an end of its line, and no entry.
        if kept.last().is_some_and(|last| *last != b'\n') {
            file.write_all(b"\n")?;
        }
        let entries = kept.iter().filter(|byte| **byte == b'\n').count();
        Ok(Self { bytes: kept.len() as u64, path, file, bounds, entries, is_torn: false })
    }

    fn before(&self) -> PathBuf {
        self.path.with_extension("jsonl.1")
    }

    fn append(&mut self, entry: &AuditEntry, is_synced: bool) -> io::Result<()> {
        if self.entries >= self.bounds.entries || self.bytes >= self.bounds.bytes {
            self.turn_over(entry.time_ms)?;
        }
        self.write(entry)?;
        if is_synced { self.file.sync_data() } else { Ok(()) }
    }

    fn write(&mut self, entry: &AuditEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry).expect("an entry has only texts and numbers");
        line.push(b'\n');
        if std::mem::replace(&mut self.is_torn, true) {
            self.file.write_all(b"\n")?;
        }
        self.file.write_all(&line)?;
        self.is_torn = false;
        self.entries += 1;
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn turn_over(&mut self, time_ms: u64) -> io::Result<()> {
        let gone = fs::read(self.before()).map_or(0, |kept| kept.iter().filter(|byte| **byte == b'\n').count());
        let gone = match fs::rename(&self.path, self.before()) {
            // It went the last time, and nothing could be begun then.
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            renamed => renamed.map(|()| gone)?,
        };
        self.file = begin(&self.path, true)?;
        (self.entries, self.bytes, self.is_torn) = (0, 0, false);
        self.write(&forgotten("the oldest entries", gone as u64, time_ms))
    }

    fn read(&self) -> io::Result<Vec<AuditEntry>> {
        let mut entries = Vec::new();
        for path in [self.before(), self.path.clone()] {
            let kept = match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                read => read?,
            };
            entries.extend(kept.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()));
        }
        Ok(entries)
    }
}

fn begin(path: &Path, is_new: bool) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).create_new(is_new).mode(0o600).open(path)
}

/// One machine: of IPv6 the network that a machine chooses its addresses from.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// A text with nothing in it that a terminal would obey, and that turns no other text around.
fn shown(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let visible = |c: char| if c.is_control() || turns(c) { c.escape_unicode().collect() } else { c.to_string() };
    text.chars().take(TEXT_CHARACTERS_MAX).map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(target: &str) -> AuditEntry {
        AuditEntry {
            time_ms: 1,
            action: "rm".to_owned(),
            token: Some("ci".to_owned()),
            peer: Some("192.0.2.7:1".to_owned()),
            target: target.to_owned(),
            outcome: "done".to_owned(),
            count: 1,
        }
    }

    #[test]
    fn entries_are_there_after_a_restart_and_a_torn_one_hides_no_other() {
        let data = tempfile::tempdir().unwrap();
        let audit = Audit::open(data.path()).unwrap();
        audit.keep(entry("first"));
        drop(audit);
        let path = data.path().join("audit/changes.jsonl");
        let mut kept = fs::read(&path).unwrap();
        kept.extend(b"{\"time_ms\":2,\"act");
        fs::write(&path, kept).unwrap();
        let audit = Audit::open(data.path()).unwrap();
        audit.keep(entry("second"));
        let targets: Vec<String> = audit.newest(10).unwrap().into_iter().map(|entry| entry.target).collect();
        assert_eq!(targets, ["first", "second"]);
    }

    #[test]
    fn a_book_that_could_not_be_begun_is_begun_later_and_a_torn_line_ends_before_the_next() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("changes.jsonl");
        let mut book = Book::open(path.clone(), Bounds { entries: 3, bytes: 1 << 20 }).unwrap();
        (0..3).for_each(|number| book.append(&entry(&number.to_string()), false).unwrap());
        // The old one has gone, and there was no file for the new one.
        fs::rename(&path, book.before()).unwrap();
        book.append(&entry("3"), false).unwrap();
        book.file.write_all(b"{\"time_ms\":2,\"act").unwrap();
        book.is_torn = true;
        book.append(&entry("4"), false).unwrap();
        let mut targets: Vec<String> = book.read().unwrap().into_iter().map(|entry| entry.target).collect();
        targets.retain(|target| target != "the oldest entries");
        assert_eq!(targets, ["0", "1", "2", "3", "4"]);
    }

    #[test]
    fn the_oldest_go_and_how_many_is_said() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("changes.jsonl");
        let mut book = Book::open(path, Bounds { entries: 4, bytes: 1 << 20 }).unwrap();
        (0..20).for_each(|number| book.append(&entry(&number.to_string()), false).unwrap());
        let entries = book.read().unwrap();
        assert!((5..=8).contains(&entries.len()), "{}", entries.len());
        assert_eq!(entries.last().unwrap().target, "19");
        let forgot: Vec<u64> =
            entries.iter().filter(|entry| entry.action == "forget").map(|entry| entry.count).collect();
        assert_eq!(forgot, [4, 4]);
        let mut small = Book::open(data.path().join("small.jsonl"), Bounds { entries: 1_000, bytes: 1_000 }).unwrap();
        (0..100).for_each(|number| small.append(&entry(&number.to_string()), false).unwrap());
        assert!(small.bytes < 1_200 && fs::metadata(small.before()).unwrap().len() < 1_200);
    }

    #[test]
    fn failed_logins_are_one_entry_a_minute_and_address_and_push_no_change_out() {
        let data = tempfile::tempdir().unwrap();
        let audit = Audit::open(data.path()).unwrap();
        audit.keep(entry("a change"));
        let minute = |minute: u64| minute * MINUTE_MS + 5;
        for address in ["192.0.2.7", "192.0.2.7", "2001:db8::1", "2001:db8::2"] {
            audit.failed_login(Door::Api, address.parse().unwrap(), None, minute(1));
        }
        for number in 0..10_000_u32 {
            audit.failed_login(Door::Gate, IpAddr::from(number.to_be_bytes()), None, minute(2));
        }
        for _ in 0..3 {
            // Looking makes no entries.
            audit.newest(10).unwrap();
        }
        audit.sweep(minute(3));
        let entries = audit.newest(usize::MAX).unwrap();
        let failed = |minute: u64| {
            let of = entries.iter().filter(move |entry| entry.action == "login" && entry.time_ms / MINUTE_MS == minute);
            of.map(|entry| (entry.peer.as_deref(), entry.count)).collect::<Vec<_>>()
        };
        assert_eq!(failed(1), [(Some("192.0.2.7"), 2), (Some("2001:db8::"), 2)]);
        assert_eq!((failed(2).len(), failed(2)[0]), (APART_MAX + 1, (None, 9_900)));
        assert_eq!(entries.iter().filter(|entry| entry.target == "a change").count(), 1);
    }

    #[test]
    fn failed_logins_of_mqtt_name_the_user_and_a_flood_of_them_takes_no_other_address_its_entry() {
        let data = tempfile::tempdir().unwrap();
        let audit = Audit::open(data.path()).unwrap();
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        for number in 0..100_000_u32 {
            let user: Arc<str> = format!("meter-{}", number % 1_000).into();
            audit.failed_login(Door::Mqtt, address(1), Some(&user), 5);
        }
        audit.failed_login(Door::Mqtt, address(2), Some(&"meter-1\u{1b}".into()), 5);
        audit.failed_login(Door::Api, address(3), None, 5);
        audit.end();
        drop(audit);
        let entries = Audit::open(data.path()).unwrap().newest(usize::MAX).unwrap();
        let count = |target: &str, last: u8| {
            let peer = address(last).to_string();
            let of = entries.iter().filter(|entry| entry.target == target && entry.peer.as_ref() == Some(&peer));
            of.map(|entry| entry.count).sum::<u64>()
        };
        assert_eq!(entries.len(), APART_BY_USER_MAX + 3);
        assert_eq!((count("mqtt: meter-0", 1), count("mqtt", 1)), (100, 95_000));
        assert_eq!((count("mqtt", 2), count("api", 3)), (1, 1));
    }

    #[tokio::test]
    async fn who_follows_hears_of_each_entry_once_and_is_told_what_was_missed() {
        let data = tempfile::tempdir().unwrap();
        let audit = Audit::open(data.path()).unwrap();
        audit.keep(entry("before"));
        let (begin, mut follower) = audit.follow(10).unwrap();
        assert_eq!(begin.len(), 1);
        audit.keep(entry("after"));
        audit.failed_login(Door::Api, IpAddr::from([192, 0, 2, 7]), None, 5);
        audit.sweep(2 * MINUTE_MS);
        let (first, second) = (follower.next().await.unwrap(), follower.next().await.unwrap());
        assert_eq!((first.target.as_str(), second.action.as_str()), ("after", "login"));
        let more: Vec<_> = (1..FOLLOWERS_MAX).map(|_| audit.follow(1).unwrap()).collect();
        assert_eq!(audit.follow(1).err().map(|problem| problem.code), Some(Code::ConcurrencyExceeded));
        drop(more);
        audit.follow(1).unwrap();
        (0..WAITING_MAX as u64 + 5).for_each(|_| audit.followers.tell(&entry("many")));
        let missed = follower.next().await.unwrap();
        assert_eq!((missed.action.as_str(), missed.count), ("forget", 5));
        audit.close();
        let mut rest = 0;
        while follower.next().await.is_some() {
            rest += 1;
        }
        assert_eq!(rest, WAITING_MAX);
    }

    #[test]
    fn what_a_terminal_would_obey_is_made_visible_and_long_texts_are_cut() {
        assert_eq!(shown("a\u{1b}[31m\u{202e}ö\n"), "a\\u{1b}[31m\\u{202e}ö\\u{a}");
        assert_eq!(shown(&"x".repeat(1_000)).len(), TEXT_CHARACTERS_MAX);
    }
}
