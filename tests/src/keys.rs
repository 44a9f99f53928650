//! A client that keeps writing while things happen, and remembers what etcd acknowledged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::wait::{SHORT, wait_for};
use crate::{Cluster, unique};

const PREFIX: &str = "key-";
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Writes `key-000001`, `key-000002`, … through one ready member after the other until it is told to stop. A write that
/// fails may have happened or not; it is neither repeated nor remembered.
pub struct Keys {
    cluster: Cluster,
    acknowledged: Arc<Mutex<BTreeMap<String, String>>>,
    writer: JoinHandle<()>,
}

impl Keys {
    /// Starts writing and returns once the first keys are acknowledged.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let acknowledged = Arc::default();
        let writer = tokio::spawn(write(cluster.clone(), Arc::clone(&acknowledged)));
        let keys = Self { cluster: cluster.clone(), acknowledged, writer };
        keys.advance().await?;
        Ok(keys)
    }

    pub fn count(&self) -> usize {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The first key that was acknowledged.
    pub fn first(&self) -> Option<String> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).keys().next().cloned()
    }

    /// Waits until another handful of writes is acknowledged: the cluster serves, now.
    pub async fn advance(&self) -> Result<()> {
        let before = self.count();
        wait_for("a client to get its writes acknowledged", SHORT, async || {
            let more = self.count() - before;
            ensure!(more >= 10, "{more} writes were acknowledged, {before} before that");
            Ok(())
        })
        .await
    }

    /// Stops writing and checks that every acknowledged key is there, through every voter. Returns how many there are; can
    /// be asked again later.
    pub async fn all_there(&self) -> Result<usize> {
        self.writer.abort();
        let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for voter in self.cluster.voters().await? {
            let stored = wait_for(&format!("{} to answer", voter.member), SHORT, async || {
                voter.with_prefix(PREFIX).await
            })
            .await?;
            let lost: Vec<_> =
                acknowledged.iter().filter(|(key, value)| stored.get(*key) != Some(*value)).collect();
            ensure!(
                lost.is_empty(),
                "{} of {} acknowledged writes are not readable through {}, the first ones: {:?}",
                lost.len(),
                acknowledged.len(),
                voter.member,
                &lost[..lost.len().min(5)]
            );
        }
        Ok(acknowledged.len())
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

async fn write(cluster: Cluster, acknowledged: Arc<Mutex<BTreeMap<String, String>>>) {
    let mut doors = Vec::new();
    for number in 1_usize.. {
        if doors.is_empty() {
            doors = cluster.doors().await.unwrap_or_default();
        }
        let (key, value) = (format!("{PREFIX}{number:06}"), unique("value"));
        let written = match doors.get(number % doors.len().max(1)) {
            Some(door) => door.put(&key, &value).await,
            None => Err(anyhow::anyhow!("no Pod is ready")),
        };
        if written.is_ok() {
            acknowledged.lock().unwrap_or_else(PoisonError::into_inner).insert(key, value);
            sleep(PAUSE).await;
        } else {
            // Members may have come or gone.
            doors.clear();
            sleep(PAUSE_AFTER_FAILURE).await;
        }
    }
}
