//! Whether the API server is still the one that the watches began with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::EtcdCluster;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::{Api, Resource};
use planner::pass::API_LIMIT;
use tokio::sync::{Notify, watch};
use tracing::warn;

use super::WATCH_TIMEOUT;

/// How long after an interruption the API server is asked how far it is.
const SETTLE_DELAY: Duration = Duration::from_secs(2);
/// How long until it is asked again if it does not say.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// What the watches of a process tell each other.
#[derive(Default)]
pub(super) struct Timeline {
    /// The highest version that an object of our own kinds was seen at.
    newest: AtomicU64,
    /// A watch was interrupted.
    pub(super) interrupted: Notify,
    /// Counts how often versions went back: with every time, all watches begin anew.
    pub(super) restores: watch::Sender<u32>,
}

impl Timeline {
    pub(super) fn note<K: Resource<DynamicType = ()>>(&self, object: &DeserializeGuard<K>) {
        if K::group(&()) == EtcdCluster::group(&()) {
            self.newest.fetch_max(version(object.meta().resource_version.as_deref()), Ordering::AcqRel);
        }
    }

    /// Looks whether the API server has gone back. One that was restored from a backup knows nothing of the versions that the
    /// watches stand at, and tells them nothing until it gets there; for what it tells them then they have missed the
    /// beginning (T31).
    pub(super) async fn watch_over(self: Arc<Self>, clusters: Api<DeserializeGuard<EtcdCluster>>) {
        loop {
            let newest = self.newest.load(Ordering::Acquire);
            let page = ListParams::default().limit(1);
            let now = match tokio::time::timeout(API_LIMIT, clusters.list(&page)).await {
                Ok(Ok(list)) => version(list.metadata.resource_version.as_deref()),
                Ok(Err(_)) | Err(_) => {
                    // The watches say what is wrong.
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                }
            };
            if (1..newest).contains(&now) {
                warn!(now, newest, "the API server has gone back in time; everything is listed anew");
                self.newest.store(now, Ordering::Release);
                self.restores.send_modify(|count| *count += 1);
            } else {
                self.newest.fetch_max(now, Ordering::AcqRel);
            }
            let life = Duration::from_secs(WATCH_TIMEOUT.into());
            if tokio::time::timeout(life, self.interrupted.notified()).await.is_ok() {
                tokio::time::sleep(SETTLE_DELAY).await;
            }
        }
    }
}

/// Resource versions are decimal numbers. One that is not says nothing, and is zero.
fn version(text: Option<&str>) -> u64 {
    text.and_then(|v| v.parse().ok()).unwrap_or_default()
}
