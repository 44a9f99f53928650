//! Dynamic volumes for the lab: a small controller that makes, grows and removes loop-mounted XFS images.
//!
//! It is driven by watches alone. Claims are provisioned once the scheduler has chosen a node, grown when they ask
//! for more than they have, and reclaimed when their PersistentVolume is released.

mod claims;
pub mod disk;
mod volumes;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client,
    runtime::{
        Controller,
        controller::{Action, Config},
        events::Recorder,
        watcher,
    },
};

use crate::{cluster::api, paths::Paths};

/// Name of the process in the lab's records and logs.
pub const PROCESS: &str = "provisioner";
/// Name by which a StorageClass asks for us.
pub const NAME: &str = "lab.etcd-operator/loop";
pub const STORAGE_CLASS: &str = "lab";
/// Marks a PersistentVolume as made by us; Kubernetes' own name for it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Making a file system is mostly waiting for the disk; a few at a time keep both cores free for the Pods.
const CONCURRENCY: u16 = 4;

struct Context {
    client: Client,
    events: Recorder,
    paths: Paths,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Kube(#[from] kube::Error),
    #[error("{0:#}")]
    Disk(anyhow::Error),
}

/// Runs until it is killed.
pub async fn run(paths: Paths) -> Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_env_filter("info,kube_runtime=warn").init();
    let client = api::client(&paths).await?;
    let events = Recorder::new(client.clone(), NAME.into());
    let context = Arc::new(Context { client: client.clone(), events, paths });
    let limited = || Config::default().concurrency(CONCURRENCY);
    let claims =
        Controller::new(Api::<PersistentVolumeClaim>::all(client.clone()), watcher::Config::default())
            .with_config(limited())
            .run(claims::reconcile, |claim, error, _| retry(&*claim, error), context.clone())
            .for_each(|_| async {});
    let volumes = Controller::new(Api::<PersistentVolume>::all(client), watcher::Config::default())
        .with_config(limited())
        .run(volumes::reconcile, |volume, error, _| retry(&*volume, error), context)
        .for_each(|_| async {});
    tracing::info!("provisioner {NAME} started");
    tokio::join!(claims, volumes);
    Ok(())
}

fn retry<K: kube::Resource>(object: &K, error: &Error) -> Action {
    let name = object.meta().name.as_deref().unwrap_or_default();
    tracing::warn!(name, %error, "will try again");
    Action::requeue(Duration::from_secs(1))
}

/// Runs work that blocks, such as making a file system, off the watch loop.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(Error::Disk),
        Err(panic) => Err(Error::Disk(panic.into())),
    }
}
