//! A real etcd, kube-apiserver and, on demand, kube-controller-manager: processes on loopback ports nobody uses, in a
//! directory of their own, gone when this value is dropped. The programs are those the lab has built.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::{Client, Config};
use rcgen::KeyPair;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::sleep;

const START_LIMIT: Duration = Duration::from_secs(120);
const TOKEN: &str = "conformance";

pub struct ControlPlane {
    dir: TempDir,
    url: String,
    processes: Vec<Process>,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl ControlPlane {
    pub async fn start() -> Result<Self> {
        let (etcd, peer, api) = (free_port()?, free_port()?, free_port()?);
        let url = format!("https://127.0.0.1:{api}");
        let mut plane = Self { dir: tempfile::tempdir()?, url, processes: vec![] };
        plane.write_secrets()?;
        plane.run("etcd-3.6", "etcd", &plane.etcd(etcd, peer))?;
        plane.run("kube-apiserver-", "kube-apiserver", &plane.api_server(etcd, api))?;
        plane.await_ready().await?;
        Ok(plane)
    }

    /// The collector works from now on.
    pub fn start_garbage_collector(&mut self) -> Result<()> {
        let args = [
            format!("--kubeconfig={}", self.path("kubeconfig").display()),
            "--controllers=garbage-collector-controller,persistentvolumeclaim-protection-controller".into(),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
            "--kube-api-qps=200".into(),
            "--kube-api-burst=400".into(),
        ];
        self.run("kube-controller-manager-", "kube-controller-manager", &args)
    }

    pub fn client(&self) -> Result<Client> {
        let mut config = Config::new(self.url.parse()?);
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(TOKEN.to_owned().into());
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write_secrets(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        fs::write(self.path("accounts.key"), key.serialize_pem())?;
        fs::write(self.path("accounts.pub"), key.public_key_pem())?;
        fs::write(self.path("tokens"), format!("{TOKEN},admin,admin,system:masters\n"))?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": self.url, "insecure-skip-tls-verify": true } }],
            "users": [{ "name": "u", "user": { "token": TOKEN } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        });
        Ok(fs::write(self.path("kubeconfig"), kubeconfig.to_string())?)
    }

    fn etcd(&self, client: u16, peer: u16) -> Vec<String> {
        let client = format!("http://127.0.0.1:{client}");
        let peer = format!("http://127.0.0.1:{peer}");
        vec![
            format!("--data-dir={}", self.path("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ]
    }

    fn api_server(&self, etcd: u16, port: u16) -> Vec<String> {
        vec![
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", self.path("certs").display()),
            format!("--token-auth-file={}", self.path("tokens").display()),
            "--authorization-mode=AlwaysAllow".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", self.path("accounts.pub").display()),
            format!("--service-account-signing-key-file={}", self.path("accounts.key").display()),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            "--endpoint-reconciler-type=none".into(),
            // Its accounts are made by a controller that does not run here.
            "--disable-admission-plugins=ServiceAccount".into(),
        ]
    }

    fn run(&mut self, tool: &str, program: &str, args: &[String]) -> Result<()> {
        let path = find_tool(tool, program)?;
        let log = File::create(self.path(&format!("{program}.log")))?;
        let mut command = Command::new(&path);
        command.args(args).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", path.display()))?;
        self.processes.push(Process(child));
        Ok(())
    }

    async fn await_ready(&mut self) -> Result<()> {
        let client = self.client()?;
        let began = Instant::now();
        loop {
            let request = http::Request::get("/readyz").body(vec![])?;
            if client.request_text(request).await.is_ok_and(|text| text == "ok") {
                return Ok(());
            }
            for process in &mut self.processes {
                if let Some(status) = process.0.try_wait()? {
                    bail!("a process ended with {status}: {}", self.last_words());
                }
            }
            if began.elapsed() > START_LIMIT {
                bail!("the API server is not ready after {START_LIMIT:?}: {}", self.last_words());
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    fn last_words(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
        let text = format!("{}\n{}", read("etcd.log"), read("kube-apiserver.log"));
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// The lab keeps its programs below directories named by content; the newest is taken.
fn find_tool(prefix: &str, program: &str) -> Result<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = var("ETCD_OPERATOR_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|dir| dir.join("etcd-operator")))
        .or_else(|| var("HOME").map(|dir| dir.join(".cache/etcd-operator")))
        .context("no cache of tools: set ETCD_OPERATOR_CACHE or HOME")?;
    let tools = cache.join("tools");
    let missing = || format!("{program} is not in {}: `lab up` builds it", tools.display());
    let entries = fs::read_dir(&tools).with_context(missing)?;
    let named = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    let found = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| named(path));
    let newest = found.map(|path| path.join(program)).filter(|path| path.is_file()).max();
    newest.with_context(missing)
}
