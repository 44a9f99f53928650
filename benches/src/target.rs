//! What is measured: a Kubernetes, and the Deployment of the operator on it, ours or another one for the same API.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::wait_for;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;

/// `namespace/name` of a Deployment.
#[derive(Clone, Debug)]
pub struct DeploymentName {
    pub namespace: String,
    pub name: String,
}

impl std::str::FromStr for DeploymentName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("{text:?} is not of the form namespace/name")),
        }
    }
}

/// The operator that is measured, and the Kubernetes it runs on.
pub struct Target {
    pub client: Client,
    pub kubeconfig: PathBuf,
    pub deployment: DeploymentName,
}

impl Target {
    pub async fn connect(kubeconfig: &Path, deployment: DeploymentName) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("reading kubeconfig {}", kubeconfig.display()))?;
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        // A request that is silently repeated would be a measurement nobody understands.
        config.default_retry = false;
        let client = Client::try_from(config)?;
        client.apiserver_version().await.context("the Kubernetes of this kubeconfig does not answer")?;
        Ok(Self { client, kubeconfig: kubeconfig.to_owned(), deployment })
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.deployment.namespace)
    }

    pub async fn deployment(&self) -> Result<Deployment> {
        let DeploymentName { namespace, name } = &self.deployment;
        let found = self.deployments().get_opt(name).await?;
        found.with_context(|| {
            format!("there is no Deployment {namespace}/{name}: install the operator first, or name its Deployment")
        })
    }

    /// The image that is measured, for the record.
    pub async fn image(&self) -> Result<String> {
        let deployment = self.deployment().await?;
        let pod = deployment.spec.and_then(|spec| spec.template.spec).unwrap_or_default();
        let image = pod.containers.into_iter().next().and_then(|container| container.image);
        image.context("the operator's Deployment has no container")
    }

    /// Whose requests are counted.
    pub async fn service_account(&self) -> Result<String> {
        let pod = self.deployment().await?.spec.and_then(|spec| spec.template.spec).unwrap_or_default();
        Ok(pod.service_account_name.unwrap_or_else(|| "default".to_owned()))
    }

    /// The operator's Pod; there must be exactly one, or requests and memory would be somebody else's in part.
    pub async fn pod(&self) -> Result<Pod> {
        let selector = self.deployment().await?.spec.and_then(|spec| spec.selector.match_labels);
        let selector: Vec<_> =
            selector.iter().flatten().map(|(key, value)| format!("{key}={value}")).collect();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.deployment.namespace);
        let mut pods = pods.list(&ListParams::default().labels(&selector.join(","))).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        match <[Pod; 1]>::try_from(pods) {
            Ok([pod]) => Ok(pod),
            Err(pods) => bail!("the operator must run in one Pod to be measured, there are {}", pods.len()),
        }
    }

    /// Waits until exactly one replica of the operator is available.
    pub async fn available(&self) -> Result<()> {
        wait_for("the operator", Duration::from_secs(60), async || {
            let status = self.deployment().await?.status.unwrap_or_default();
            ensure!(status.available_replicas == Some(1), "its Deployment has no available replica");
            self.pod().await.map(drop)
        })
        .await
    }

    /// Sets the number of replicas and waits until no Pod is left, if that is zero. Returns what it was.
    pub async fn scale(&self, replicas: i32) -> Result<i32> {
        let before = self.deployment().await?.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        self.deployments().patch_scale(&self.deployment.name, &PatchParams::default(), &patch).await?;
        if replicas == 0 {
            wait_for("the installed operator to stop", Duration::from_secs(60), async || {
                match self.pod().await {
                    Ok(pod) => bail!("Pod {} is still there", pod.name_any()),
                    Err(_) => Ok(()),
                }
            })
            .await?;
        }
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_named_with_its_namespace() {
        let name: DeploymentName = "etcd-operator-system/etcd-operator".parse().unwrap();
        assert_eq!((name.namespace.as_str(), name.name.as_str()), ("etcd-operator-system", "etcd-operator"));
        for wrong in ["etcd-operator", "/x", "x/", "a/b/c"] {
            assert!(wrong.parse::<DeploymentName>().is_err(), "{wrong}");
        }
    }
}
