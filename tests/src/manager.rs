//! An operator of the test's own: a process on this machine, beside or instead of the installed one, that can be frozen,
//! killed and led to the API server by a way of its own.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{AuthInfo, Kubeconfig};
use kube::{Api, Client};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::command::run;
use crate::operator::{DEPLOYMENT, NAMESPACE, PODS};
use crate::proxy::Proxy;
use crate::wait::{SHORT, wait_for};

/// The lease that decides which operator acts.
const LEASE: &str = "aa20b3a9.etcd-operator.cozystack.io";

/// The installed operator, sent away until this is dropped.
pub struct Leave;

impl Leave {
    pub async fn begin(client: &Client) -> Result<Self> {
        let leave = Self;
        scale(client, 0).await?;
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), NAMESPACE);
        wait_for("the installed operator to leave", SHORT, async || {
            let left = pods.list(&ListParams::default().labels(PODS)).await?.items.len();
            ensure!(left == 0, "{left} Pods are still there");
            Ok(())
        })
        .await?;
        Ok(leave)
    }

    /// Has it back, ready.
    pub async fn end(self, client: &Client) -> Result<()> {
        scale(client, 1).await?;
        crate::operator::wait_until_available(client).await
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let back = ["scale", "--replicas=1", "--namespace", NAMESPACE, "deployment", DEPLOYMENT];
        if !std::process::Command::new("kubectl").args(back).output().is_ok_and(|o| o.status.success()) {
            eprintln!("the installed operator could not be called back");
        }
    }
}

async fn scale(client: &Client, replicas: i32) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments.patch_scale(DEPLOYMENT, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// A running operator.
pub struct Manager {
    name: String,
    process: Child,
    kubeconfig: PathBuf,
}

impl Manager {
    /// Starts one. With a proxy, that is its only way to the API server.
    pub fn start(name: &str, proxy: Option<&Proxy>, flags: &[&str]) -> Result<Self> {
        Self::start_with(name, kubeconfig(name, proxy, None)?, flags)
    }

    /// Starts one that is whoever has this token, and may do no more.
    pub fn start_as(name: &str, token: &str, flags: &[&str]) -> Result<Self> {
        Self::start_with(name, kubeconfig(name, None, Some(token))?, flags)
    }

    fn start_with(name: &str, kubeconfig: PathBuf, flags: &[&str]) -> Result<Self> {
        let process = Command::new(binary()?)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect"])
            .args(flags)
            .env("HOSTNAME", name)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the operator")?;
        Ok(Self { name: name.to_owned(), process, kubeconfig })
    }

    /// Waits until this one holds the lease.
    pub async fn leads(&self, client: &Client) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
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

/// A kubeconfig like the test's own, in the namespace of the lease, by way of the proxy, for the one who has the token.
fn kubeconfig(name: &str, proxy: Option<&Proxy>, token: Option<&str>) -> Result<PathBuf> {
    let mut config = Kubeconfig::read()?;
    for context in config.contexts.iter_mut().filter_map(|named| named.context.as_mut()) {
        context.namespace = Some(NAMESPACE.to_owned());
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
