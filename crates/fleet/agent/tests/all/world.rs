//! Nodes for tests. Each has a folder, and an address that it keeps when it starts again.

use fleet_agent::{Agent, Row, Settings, Status};
use fleet_trust::Clock;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::time::sleep;

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Machine {
    pub home: TempDir,
    pub name: Option<String>,
    /// Whom it asks for anchors.
    pub seek: Vec<SocketAddr>,
    /// The first start takes any free one.
    pub listen: SocketAddr,
}

impl Machine {
    pub fn new(name: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        Self { home, name: Some(name.to_owned()), seek: Vec::new(), listen: ([127, 0, 0, 1], 0).into() }
    }

    /// One with the same data folder, as a copy of a card has.
    pub fn copied(&self) -> Self {
        let copy = Self { listen: ([127, 0, 0, 1], 0).into(), ..Self::new(self.name.as_deref().unwrap()) };
        std::fs::create_dir(copy.home.path().join("fleet")).unwrap();
        for file in std::fs::read_dir(self.home.path().join("fleet")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.home.path().join("fleet").join(file.file_name())).unwrap();
        }
        copy
    }

    pub fn folder(&self) -> std::path::PathBuf {
        self.home.path().join("fleet")
    }

    pub async fn start(&self) -> Agent {
        self.start_as(|own| own).await
    }

    /// Starts it with other settings.
    pub async fn start_as(&self, change: impl FnOnce(Settings) -> Settings) -> Agent {
        let seek = Some(self.seek.clone());
        let own = Settings { seek, ..settings(&self.folder(), self.listen, self.name.clone()) };
        let agent = Agent::new(change(own));
        // What listened there before has ended, and its socket is closed soon.
        let deadline = Instant::now() + PATIENCE;
        while let Err(problem) = agent.open().await {
            assert!(problem.code == problem::Code::ListenFailed && Instant::now() < deadline, "{problem}");
            sleep(Duration::from_millis(20)).await;
        }
        agent
    }

    /// From now on it listens where it does now.
    pub fn stays(&mut self, agent: &Agent) {
        let own = agent.status().unwrap().rows.remove(0);
        self.listen = own.record.address.unwrap().to_string().parse().unwrap();
    }
}

pub fn settings(folder: &Path, listen: SocketAddr, name: Option<String>) -> Settings {
    let (folder, version) = (folder.to_owned(), "0.1.0".to_owned());
    let (clock, seek) = (Clock::system(0), Some(Vec::new()));
    Settings { folder, listen, address: None, name, version, clock, seek, outward: fleet_agent::outward }
}

/// A fleet of an anchor and two members.
pub async fn campus() -> [(Machine, Agent); 3] {
    let mut machines = ["server-1", "pi-7", "pi-8"].map(Machine::new);
    let anchor = machines[0].start().await;
    anchor.found("campus").await.unwrap();
    let token = anchor.invite(2, 3_600).await.unwrap();
    let (one, other) = (machines[1].start().await, machines[2].start().await);
    one.join(&token).await.unwrap();
    other.join(&token).await.unwrap();
    let agents = [anchor, one, other];
    machines.iter_mut().zip(&agents).for_each(|(machine, agent)| machine.stays(agent));
    let mut agents = agents.into_iter();
    machines.map(|machine| (machine, agents.next().unwrap()))
}

/// Waits until a node sees its fleet so.
pub async fn until(agent: &Agent, is_so: impl Fn(&Status) -> bool) -> Status {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // There is none for a moment while a node takes its part in the fleet anew.
        let status = agent.status();
        if status.as_ref().is_ok_and(&is_so) {
            return status.unwrap();
        }
        assert!(Instant::now() < deadline, "{status:#?}");
        sleep(Duration::from_millis(20)).await;
    }
}

pub fn names(status: &Status) -> Vec<&str> {
    let mut names: Vec<&str> = status.rows.iter().map(|row| row.record.name.as_str()).collect();
    names.sort_unstable();
    names
}

/// Heard of in the last seconds: a link says hello every three.
pub fn is_heard(row: &Row) -> bool {
    row.heard.is_some_and(|heard| heard < Duration::from_secs(20))
}

/// All three, and all heard of.
pub fn is_whole(status: &Status) -> bool {
    names(status) == ["pi-7", "pi-8", "server-1"] && status.rows.iter().all(is_heard)
}
