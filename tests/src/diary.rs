//! Everything a cluster said about itself, in order: what was true only for a moment is in there, too.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::{EtcdCluster, conditions};
use futures::TryStreamExt as _;
use kube::api::{WatchEvent, WatchParams};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::{Cluster, condition};

/// One thing the cluster said.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at: Instant,
    pub ready_members: i32,
    /// `True/QuorumHealthy`.
    pub available: String,
}

/// Watches a cluster until it is dropped.
pub struct Diary {
    entries: Arc<Mutex<Vec<Entry>>>,
    writer: JoinHandle<()>,
}

impl Diary {
    /// Begins with what the cluster says now.
    pub fn of(cluster: &Cluster) -> Self {
        let entries = Arc::default();
        let writer = tokio::spawn(write(cluster.clone(), Arc::clone(&entries)));
        Self { entries, writer }
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Diary {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

async fn write(cluster: Cluster, entries: Arc<Mutex<Vec<Entry>>>) {
    let only = WatchParams::default().fields(&format!("metadata.name={}", cluster.name));
    let mut version = "0".to_owned();
    loop {
        let watched = async {
            let mut events = Box::pin(cluster.arena.api::<EtcdCluster>().watch(&only, &version).await?);
            while let Some(event) = events.try_next().await? {
                let (WatchEvent::Added(seen) | WatchEvent::Modified(seen)) = event else { continue };
                version = seen.metadata.resource_version.clone().unwrap_or_default();
                let status = seen.status.unwrap_or_default();
                entries.lock().unwrap_or_else(PoisonError::into_inner).push(Entry {
                    at: Instant::now(),
                    ready_members: status.ready_members,
                    available: condition(&status.conditions, conditions::AVAILABLE),
                });
            }
            Ok::<_, kube::Error>(())
        };
        if watched.await.is_err() {
            // The version may be too old; what is said now is always to be had.
            version = "0".to_owned();
            sleep(Duration::from_millis(200)).await;
        }
    }
}
