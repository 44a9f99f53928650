//! Real etcd processes on loopback, each with its own directory and ports. They end with this value, by their own pid.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use etcd::pb::cluster_client::ClusterClient;
use etcd::pb::kv_client::KvClient;
use etcd::{Endpoint, Error, Etcd, Pool, pb};
use simulation::etcd::{ClusterState, Flags, GetResult, PutResult, Request, Response};
use tempfile::TempDir;
use tonic::transport::Channel;

/// How long a user waits for a read or write.
const PATIENCE: Duration = Duration::from_secs(2);

pub struct Real {
    binary: PathBuf,
    pub version: (u8, u8, u8),
    dir: TempDir,
    pool: Pool,
    children: Vec<(String, Child)>,
    starts: u32,
}

impl Real {
    pub fn new() -> Result<Self> {
        let binary = binary()?;
        let version = version(&binary)?;
        Ok(Self {
            binary,
            version,
            dir: TempDir::new()?,
            pool: Pool::default(),
            children: Vec::new(),
            starts: 0,
        })
    }

    pub fn start(&mut self, flags: &Flags) -> Result<()> {
        self.starts += 1;
        let log = File::create(self.log(&flags.name))?;
        let state = match flags.initial_cluster_state {
            ClusterState::New => "new",
            ClusterState::Existing => "existing",
        };
        let max_learners =
            if self.version < (3, 6, 0) { "experimental-max-learners" } else { "max-learners" };
        let child = Command::new(&self.binary)
            .arg(format!("--name={}", flags.name))
            .arg(format!("--data-dir={}", self.data(&flags.name).display()))
            .arg(format!("--listen-peer-urls={}", flags.peer_url))
            .arg(format!("--listen-client-urls={}", flags.client_url))
            .arg(format!("--initial-advertise-peer-urls={}", flags.peer_url))
            .arg(format!("--advertise-client-urls={}", flags.client_url))
            .arg(format!("--initial-cluster={}", flags.initial_cluster))
            .arg(format!("--initial-cluster-state={state}"))
            .arg(format!("--initial-cluster-token={}", flags.token))
            .arg(format!("--{max_learners}={}", flags.max_learners))
            .arg("--unsafe-no-fsync")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", self.binary.display()))?;
        self.children.push((flags.name.clone(), child));
        Ok(())
    }

    /// SIGKILL.
    pub fn stop(&mut self, name: &str) -> Result<()> {
        for (_, child) in
            self.children.extract_if(.., |(known, _)| known == name).collect::<Vec<_>>().iter_mut()
        {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    pub fn wipe(&self, name: &str) -> Result<()> {
        match std::fs::remove_dir_all(self.data(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The words of a process that has ended by itself.
    pub fn ended(&mut self, name: &str) -> Result<Option<String>> {
        let Some(at) = self.children.iter().position(|(known, _)| known == name) else { return Ok(None) };
        if self.children[at].1.try_wait()?.is_none() {
            return Ok(None);
        }
        self.children.remove(at);
        Ok(Some(self.words(name)))
    }

    pub fn words(&self, name: &str) -> String {
        std::fs::read_to_string(self.log(name)).unwrap_or_default()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    fn data(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn endpoint(&self, flags: &Flags) -> Endpoint {
        let address = flags.client_url.trim_start_matches("http://").to_owned();
        // A connection belongs to a process: a restarted one gets a new one.
        let authority = format!("{}:2379", flags.name);
        Endpoint { identity: self.starts.to_string(), address, authority, cluster: None }
    }

    pub async fn call(&self, flags: &Flags, request: &Request) -> Result<Response, Error> {
        let at = self.endpoint(flags);
        match request {
            Request::Status => self.pool.status(&at).await.map(Response::Status),
            Request::Members => self.pool.members(&at).await.map(Response::Members),
            Request::AddLearner { peer_url } => {
                self.pool.add_learner(&at, peer_url).await.map(Response::Members)
            }
            Request::AddVoter { peer_url } => add_voter(flags, peer_url).await,
            Request::Promote { id } => self.pool.promote(&at, *id).await.map(Response::Members),
            Request::MoveLeader { to } => self.pool.move_leader(&at, *to).await.map(|()| Response::Done),
            Request::Remove { id } => self.pool.remove(&at, *id).await.map(|()| Response::Done),
            Request::Persist => self.pool.persist(&at).await.map(|()| Response::Done),
        }
    }

    pub async fn put(&self, flags: &Flags, key: u64) -> PutResult {
        let put = async {
            let mut client = kv(flags).await?;
            let request = pb::PutRequest { key: key.to_string().into_bytes(), ..Default::default() };
            Some(client.put(request).await.is_ok())
        };
        match tokio::time::timeout(PATIENCE, put).await {
            Ok(Some(true)) => PutResult::Acknowledged,
            Ok(_) => PutResult::Failed,
            Err(_) => PutResult::Unknown,
        }
    }

    pub async fn get(&self, flags: &Flags, key: u64, linearizable: bool) -> GetResult {
        let get = async {
            let mut client = kv(flags).await?;
            let key = key.to_string().into_bytes();
            let request = pb::RangeRequest { key, serializable: !linearizable, ..Default::default() };
            client.range(request).await.ok().map(|answer| !answer.into_inner().kvs.is_empty())
        };
        match tokio::time::timeout(PATIENCE, get).await {
            Ok(Some(true)) => GetResult::Found,
            Ok(Some(false)) => GetResult::Missing,
            Ok(None) | Err(_) => GetResult::Failed,
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            // One that is gone already needs no killing.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The operator's client has no such call, and rightly so.
async fn add_voter(flags: &Flags, peer_url: &str) -> Result<Response, Error> {
    let member = flags.name.clone();
    let request = pb::MemberAddRequest { peer_ur_ls: vec![peer_url.to_owned()], is_learner: false };
    let add = async {
        let mut client = channel(flags).await.map(ClusterClient::new)?;
        Some(client.member_add(request).await.map_err(|status| status.message().to_owned()))
    };
    match tokio::time::timeout(Duration::from_secs(5), add).await {
        Ok(Some(Ok(_))) => Ok(Response::Done),
        Ok(Some(Err(text))) if text.contains("unhealthy cluster") => Err(Error::Unhealthy),
        Ok(Some(Err(message))) => Err(Error::Refused { member, message }),
        Ok(None) => Err(Error::Unreachable { member }),
        Err(_) => Err(Error::Timeout { member, limit: Duration::from_secs(5) }),
    }
}

async fn kv(flags: &Flags) -> Option<KvClient<Channel>> {
    channel(flags).await.map(KvClient::new)
}

async fn channel(flags: &Flags) -> Option<Channel> {
    Channel::from_shared(flags.client_url.clone()).ok()?.connect().await.ok()
}

/// Whether a process answers its peers: it has booted, though it may not serve clients yet.
pub fn answers_peers(flags: &Flags) -> bool {
    let address = flags.peer_url.trim_start_matches("http://");
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        stream.write_all(format!("GET /version HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
        let mut first = [0; 4];
        stream.read_exact(&mut first)?;
        Ok(&first == b"HTTP")
    };
    ask().unwrap_or(false)
}

/// Two ports that nobody listens on.
pub fn free_ports() -> Result<[u16; 2]> {
    let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()])
}

fn binary() -> Result<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(binary) = var("ETCD_BINARY") {
        return Ok(binary);
    }
    let cache = var("ETCD_OPERATOR_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|dir| dir.join("etcd-operator")))
        .or_else(|| var("HOME").map(|dir| dir.join(".cache/etcd-operator")))
        .context("set ETCD_BINARY")?;
    let tools = cache.join("tools");
    let entries =
        std::fs::read_dir(&tools).with_context(|| format!("no lab's tools in {}", tools.display()))?;
    let newest = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let patch: u8 = name.strip_prefix("etcd-3.6.")?.split('-').next()?.parse().ok()?;
            Some((patch, entry.path().join("etcd")))
        })
        .filter(|(_, path)| path.is_file())
        .max();
    newest
        .map(|(_, path)| path)
        .ok_or_else(|| anyhow!("no etcd in {}: start the lab once, or set ETCD_BINARY", tools.display()))
}

fn version(binary: &Path) -> Result<(u8, u8, u8)> {
    let output = Command::new(binary).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words =
        text.lines().find_map(|line| line.strip_prefix("etcd Version:")).context("etcd tells no version")?;
    let mut parts = words.trim().split('.').map_while(|part| part.parse().ok());
    match (parts.next(), parts.next(), parts.next()) {
        (Some(major), Some(minor), Some(patch)) => Ok((major, minor, patch)),
        _ => Err(anyhow!("{words} is no version")),
    }
}
