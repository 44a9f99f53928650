//! An operator of the test's own: a process on this machine, instead of the installed one, that can be frozen, killed and
//! led to the API server by a way of its own. It looks at the test's own namespace, and has its lease there, so several such
//! tests can run at a time.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::config::{AuthInfo, Kubeconfig};
use kube::{Api, Client};
use tokio::process::{Child, Command};

use crate::Arena;
use crate::command::run;
use crate::operator::{self, DEPLOYMENT, NAMESPACE, PODS};
use crate::proxy::Proxy;
use crate::wait::{LONG, SHORT, wait_for};

/// The lease that decides which operator acts.
const LEASE: &str = "aa20b3a9.etcd-operator.cozystack.io";

/// The installed operator, sent away until this is dropped, by every test that has taken one.
pub struct Leave(());

/// How many have.
static LEAVES: Mutex<usize> = Mutex::new(0);

impl Leave {
    pub async fn begin(client: &Client) -> Result<Self> {
        let leave = Self::take()?;
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), NAMESPACE);
        wait_for("the installed operator to leave", SHORT, async || {
            let left = pods.list(&ListParams::default().labels(PODS)).await?.items.len();
            ensure!(left == 0, "{left} Pods are still there");
            Ok(())
        })
        .await?;
        Ok(leave)
    }

    /// The first one sends it away. Nobody else counts before that is done.
    fn take() -> Result<Self> {
        let mut leaves = LEAVES.lock().unwrap_or_else(PoisonError::into_inner);
        if *leaves == 0 {
            scale(0)?;
        }
        *leaves += 1;
        Ok(Self(()))
    }

    /// Whether somebody has sent it away.
    pub fn is_taken() -> bool {
        *LEAVES.lock().unwrap_or_else(PoisonError::into_inner) > 0
    }

    /// Has it back, ready, as soon as nobody else wants it away.
    pub async fn end(self, client: &Client) -> Result<()> {
        drop(self);
        wait_for("the installed operator to come back", LONG, async || operator::is_available(client).await)
            .await
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut leaves = LEAVES.lock().unwrap_or_else(PoisonError::into_inner);
        *leaves -= 1;
        if *leaves == 0
            && let Err(error) = scale(1)
        {
            eprintln!("the installed operator could not be called back: {error:#}");
        }
    }
}

/// Blocks, because a test that fails has nobody to wait for it.
fn scale(replicas: u8) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    let line = ["scale", &replicas, "--namespace", NAMESPACE, "deployment", DEPLOYMENT];
    let output = std::process::Command::new("kubectl").args(line).output().context("cannot run kubectl")?;
    ensure!(output.status.success(), "kubectl {line:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A running operator.
pub struct Manager {
    name: String,
    arena: Arena,
    process: Child,
    kubeconfig: PathBuf,
    /// There as long as the operator that needs it.
    _way: Option<Arc<Proxy>>,
}

impl Manager {
    /// Starts one for this arena. With a proxy, that is its only way to the API server.
    pub fn start(arena: &Arena, name: &str, proxy: Option<&Arc<Proxy>>, flags: &[&str]) -> Result<Self> {
        Self::start_with(arena, name, kubeconfig(arena, name, proxy, None)?, proxy, flags)
    }

    /// Starts one that is whoever has this token, and may do no more.
    pub fn start_as(arena: &Arena, name: &str, token: &str, flags: &[&str]) -> Result<Self> {
        Self::start_with(arena, name, kubeconfig(arena, name, None, Some(token))?, None, flags)
    }

    fn start_with(
        arena: &Arena,
        name: &str,
        kubeconfig: PathBuf,
        proxy: Option<&Arc<Proxy>>,
        flags: &[&str],
    ) -> Result<Self> {
        let process = Command::new(binary()?)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect"])
            .arg(format!("--watch-namespace={}", arena.namespace))
            .args(flags)
            .env("HOSTNAME", name)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the operator")?;
        Ok(Self { name: name.to_owned(), arena: arena.clone(), process, kubeconfig, _way: proxy.cloned() })
    }

    /// Waits until this one holds the lease.
    pub async fn leads(&self) -> Result<()> {
        let leases: Api<Lease> = self.arena.api();
        wait_for(&format!("{} to lead", self.name), SHORT, async || {
            let holder =
                leases.get_opt(LEASE).await?.and_then(|l| l.spec?.holder_identity).unwrap_or_default();
            ensure!(holder.starts_with(&format!("{}_", self.name)), "{holder:?} does");
            Ok(())
        })
        .await
    }

    /// Stops it where it is, in the middle of whatever it does.
    pub async fn freeze(&self) -> Result<()> {
        self.signal("-STOP").await
    }

    pub async fn thaw(&self) -> Result<()> {
        self.signal("-CONT").await
    }

    async fn signal(&self, signal: &str) -> Result<()> {
        let id = self.process.id().with_context(|| format!("{} has ended", self.name))?;
        run("kill", &[signal, &id.to_string()]).await?;
        Ok(())
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> Result<()> {
        let ended = tokio::time::timeout(SHORT, self.process.wait()).await;
        ended.with_context(|| format!("{} still runs", self.name))??;
        Ok(())
    }

    /// Ends it without a farewell.
    pub async fn kill(mut self) -> Result<()> {
        self.process.kill().await.with_context(|| format!("cannot end {}", self.name))
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// The operator's binary, beside the tests' own.
fn binary() -> Result<PathBuf> {
    let tests = std::env::current_exe()?;
    let binary = tests.ancestors().nth(2).context("tests run from a target directory")?.join("manager");
    ensure!(
        binary.exists(),
        "there is no operator at {} (`cargo build --workspace` makes it)",
        binary.display()
    );
    Ok(binary)
}

/// A kubeconfig like the test's own, in the arena's namespace, by way of the proxy, for the one who has the token.
fn kubeconfig(arena: &Arena, name: &str, proxy: Option<&Arc<Proxy>>, token: Option<&str>) -> Result<PathBuf> {
    let mut config = Kubeconfig::read()?;
    for context in config.contexts.iter_mut().filter_map(|named| named.context.as_mut()) {
        context.namespace = Some(arena.namespace.clone());
    }
    if let Some(proxy) = proxy {
        for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
            let server: http::Uri = cluster.server.as_deref().unwrap_or_default().parse()?;
            cluster.tls_server_name = server.host().map(str::to_owned);
            cluster.server = Some(format!("https://{}", proxy.address));
        }
    }
    if let Some(token) = token {
        for user in &mut config.auth_infos {
            user.auth_info = Some(AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() });
        }
    }
    let file = std::env::temp_dir().join(format!("{}.kubeconfig", crate::unique(name)));
    std::fs::write(&file, serde_norway::to_string(&config)?)?;
    Ok(file)
}

/// Host and port of the API server that the test itself talks to.
pub fn api_server() -> Result<String> {
    let config = Kubeconfig::read()?;
    let cluster = config.clusters.first().and_then(|named| named.cluster.as_ref());
    let server: http::Uri =
        cluster.and_then(|c| c.server.as_deref()).context("no server in KUBECONFIG")?.parse()?;
    Ok(server.authority().context("no server in KUBECONFIG")?.to_string())
}
