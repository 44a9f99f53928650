//! The few questions the lab's commands ask the API server. Commands are plain sequential programs, so this
//! wraps the asynchronous client in blocking calls.

use std::{
    fmt,
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, PersistentVolumeClaim, Pod},
};
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::runtime::Runtime;

use crate::paths::Paths;

pub struct Cluster {
    runtime: Runtime,
    client: Client,
}

/// Why the API server is not ready.
#[derive(Debug)]
pub struct NotReady {
    /// A component that ended meanwhile.
    pub dead: Option<&'static str>,
    last: String,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dead {
            Some(name) => write!(f, "{name} ended"),
            None => write!(f, "{}", self.last),
        }
    }
}

/// A client with the administrator's credentials; says nothing to the server yet.
pub fn connect(paths: &Paths) -> Result<Cluster> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(client(paths))?;
    Ok(Cluster { runtime, client })
}

pub async fn client(paths: &Paths) -> Result<Client> {
    let file = paths.admin_kubeconfig();
    let config = Kubeconfig::read_from(&file)
        .with_context(|| format!("cannot read {}: is the lab up?", file.display()))?;
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(Client::try_from(config)?)
}

impl Cluster {
    fn ask<T>(&self, question: impl Future<Output = kube::Result<T>>) -> Result<T> {
        self.runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(10), question)
                .await
                .context("the API server did not answer within 10 s (`lab status` shows what runs)")?
                .map_err(Into::into)
        })
    }

    /// Waits for the API server; gives up early when `dead` names a component that ended.
    pub fn await_ready(
        &self,
        limit: Duration,
        dead: impl Fn() -> Option<&'static str>,
    ) -> Result<(), NotReady> {
        let deadline = Instant::now() + limit;
        loop {
            let request = http_get("/readyz");
            let last = match request.and_then(|r| self.ask(self.client.request_text(r))) {
                Ok(_) => return Ok(()),
                Err(error) => format!("{error:#}"),
            };
            let dead = dead();
            if dead.is_some() || Instant::now() > deadline {
                return Err(NotReady { dead, last });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn version(&self) -> Result<String> {
        Ok(self.ask(self.client.apiserver_version())?.git_version)
    }

    pub fn nodes(&self) -> Result<Vec<Node>> {
        let api: Api<Node> = Api::all(self.client.clone());
        Ok(self.ask(api.list(&ListParams::default()))?.items)
    }

    /// Waits until all of `names` are ready; otherwise tells which are not.
    pub fn await_nodes(&self, names: &[String], limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let nodes = self.nodes().unwrap_or_default();
            let ready = |name: &String| {
                nodes.iter().any(|n| n.metadata.name.as_ref() == Some(name) && node_is_ready(n))
            };
            let waiting: Vec<_> = names.iter().filter(|name| !ready(name)).cloned().collect();
            if waiting.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "{} did not become ready within {} s: see `lab logs {}-kubelet`",
                    waiting.join(", "),
                    limit.as_secs(),
                    waiting[0]
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until every replica of a Deployment is available.
    pub fn await_deployment(&self, namespace: &str, name: &str, limit: Duration) -> Result<()> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let deadline = Instant::now() + limit;
        loop {
            let deployment = self.ask(api.get(name))?;
            let wanted = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
            let status = deployment.status.unwrap_or_default();
            let current = status.observed_generation == deployment.metadata.generation;
            let updated = status.updated_replicas.unwrap_or(0);
            if current && updated >= wanted && status.available_replicas.unwrap_or(0) >= wanted {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "Deployment {namespace}/{name} is not available after {} s: \
                     see `kubectl -n {namespace} describe deployment {name}`",
                    limit.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn pod(&self, namespace: &str, name: &str) -> Result<Pod> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        match self.ask(api.get_opt(name))? {
            Some(pod) => Ok(pod),
            None => bail!("there is no Pod {namespace}/{name}"),
        }
    }

    pub fn claim(&self, namespace: &str, name: &str) -> Result<PersistentVolumeClaim> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        match self.ask(api.get_opt(name))? {
            Some(claim) => Ok(claim),
            None => bail!("there is no PersistentVolumeClaim {namespace}/{name}"),
        }
    }
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

pub fn node_is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}
