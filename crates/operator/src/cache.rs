//! What the operator knows of the API server, grouped by cluster. Fed by watches and by the answers to our own writes,
//! so that a pass always sees what the pass before it did. Newer versions win; what was deleted stays deleted.
//!
//! Objects lie here folded, as JSON: a Pod of Rust structures is several times as large, and nobody reads it between two
//! passes.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use api::{EtcdCluster, EtcdMember, labels};
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod, PodSpec, PodStatus,
    Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An answer to a write can arrive after the watch has told of the object's deletion, but not minutes after.
const TOMBSTONE_LIFETIME: Duration = Duration::from_secs(300);

/// One EtcdCluster, whether it still exists or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Everything known about one cluster, objects by name.
#[derive(Debug, Default)]
pub struct Entry {
    pub clusters: BTreeMap<String, EtcdCluster>,
    pub members: BTreeMap<String, EtcdMember>,
    pub pods: BTreeMap<String, Pod>,
    pub volumes: BTreeMap<String, PersistentVolumeClaim>,
    pub services: BTreeMap<String, Service>,
    pub budgets: BTreeMap<String, PodDisruptionBudget>,
    /// Objects that can not be read, by kind and name, and why. With one of these nothing is done: a member that can not
    /// be read still exists.
    pub malformed: BTreeMap<String, String>,
}

/// An [`Entry`] at rest.
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    clusters: Slot,
    members: Slot,
    pods: Slot,
    volumes: Slot,
    services: Slot,
    budgets: Slot,
    malformed: BTreeMap<String, String>,
}

/// Objects of one kind by name.
pub type Slot = BTreeMap<String, Arc<Stored>>;

/// An object, and where it came from.
#[derive(Clone, Debug)]
pub struct Stored {
    form: Form,
    uid: Option<Box<str>>,
    version: Option<u64>,
    created: Option<Timestamp>,
    /// The listing that showed it last.
    listing: u64,
    /// When we wrote it ourselves: a listing that began before can not know it.
    written: Option<Instant>,
}

/// How an object lies in the cache.
#[derive(Clone, Debug)]
enum Form {
    Json(Box<[u8]>),
    Whole(Arc<dyn Any + Send + Sync>),
}

impl Stored {
    fn new<K: Cached>(object: &K, form: Form, listing: u64, written: Option<Instant>) -> Self {
        let meta = object.meta();
        Self {
            form,
            uid: meta.uid.clone().map(String::into_boxed_str),
            version: version(object),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            listing,
            written,
        }
    }

    fn unfold<K: Cached>(&self) -> Result<K, serde_json::Error> {
        match &self.form {
            Form::Json(json) => serde_json::from_slice(json),
            Form::Whole(object) => object
                .downcast_ref::<K>()
                .cloned()
                .ok_or_else(|| serde::de::Error::custom("it is an object of another kind")),
        }
    }

    /// Whether `new` says more. Resource versions are decimal numbers that only grow; where one is not, the last word
    /// counts.
    fn is_older_than<K: Resource>(&self, new: &K) -> bool {
        if new.meta().uid.as_deref() != self.uid.as_deref() {
            return new.meta().creation_timestamp.as_ref().map(|time| time.0) >= self.created;
        }
        match (version(new), self.version) {
            (Some(new), Some(known)) => new > known,
            _ => true,
        }
    }
}

impl Shelf {
    fn unfold(&self) -> Entry {
        let mut malformed = self.malformed.clone();
        Entry {
            clusters: unfold(&self.clusters, &mut malformed),
            members: unfold(&self.members, &mut malformed),
            pods: unfold(&self.pods, &mut malformed),
            volumes: unfold(&self.volumes, &mut malformed),
            services: unfold(&self.services, &mut malformed),
            budgets: unfold(&self.budgets, &mut malformed),
            malformed,
        }
    }

    fn is_empty(&self) -> bool {
        let slots = [&self.clusters, &self.members, &self.pods, &self.volumes, &self.services, &self.budgets];
        slots.iter().all(|slot| slot.is_empty()) && self.malformed.is_empty()
    }
}

fn unfold<K: Cached>(slot: &Slot, malformed: &mut BTreeMap<String, String>) -> BTreeMap<String, K> {
    let mut objects = BTreeMap::new();
    for (name, stored) in slot {
        match stored.unfold() {
            Ok(object) => {
                objects.insert(name.clone(), object);
            }
            Err(error) => {
                malformed.insert(format!("{} {name}", K::kind(&())), error.to_string());
            }
        }
    }
    objects
}

/// A kind that the cache holds.
pub trait Cached:
    Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Send + Sync + 'static
{
    fn slot(shelf: &mut Shelf) -> &mut Slot;

    /// The cluster it belongs to.
    fn key(&self) -> Option<Key> {
        let namespace = self.meta().namespace.clone()?;
        let name = self.labels().get(labels::CLUSTER)?.clone();
        Some(Key { namespace, name })
    }

    /// Drops what nobody here reads; most of a Pod is that.
    fn prune(&mut self) {}
}

impl Cached for EtcdCluster {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.clusters
    }

    fn key(&self) -> Option<Key> {
        Some(Key { namespace: self.metadata.namespace.clone()?, name: self.metadata.name.clone()? })
    }
}

impl Cached for EtcdMember {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.members
    }

    fn key(&self) -> Option<Key> {
        Some(Key { namespace: self.metadata.namespace.clone()?, name: self.spec.cluster_name.clone() })
    }
}

impl Cached for Pod {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.pods
    }

    fn prune(&mut self) {
        let container = |c: Container| Container {
            name: c.name,
            image: c.image,
            command: c.command,
            args: c.args,
            ..Container::default()
        };
        let state = |c: ContainerStatus| ContainerStatus {
            name: c.name,
            ready: c.ready,
            restart_count: c.restart_count,
            state: c.state,
            last_state: c.last_state,
            ..ContainerStatus::default()
        };
        self.spec = self.spec.take().map(|spec| PodSpec {
            containers: spec.containers.into_iter().map(container).collect(),
            node_name: spec.node_name,
            ..PodSpec::default()
        });
        self.status = self.status.take().map(|status| PodStatus {
            phase: status.phase,
            pod_ip: status.pod_ip,
            conditions: status.conditions,
            container_statuses: status.container_statuses.map(|all| all.into_iter().map(state).collect()),
            ..PodStatus::default()
        });
    }
}

impl Cached for PersistentVolumeClaim {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.volumes
    }

    fn prune(&mut self) {
        self.spec = self.spec.take().map(|spec| PersistentVolumeClaimSpec {
            volume_name: spec.volume_name,
            ..PersistentVolumeClaimSpec::default()
        });
        self.status = None;
    }
}

impl Cached for Service {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.services
    }
}

impl Cached for PodDisruptionBudget {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.budgets
    }

    fn prune(&mut self) {
        self.status = None;
    }
}

/// See the module's description.
#[derive(Default)]
pub struct Cache {
    inner: RwLock<Inner>,
    keeps_whole: bool,
}

#[derive(Default)]
struct Inner {
    clusters: HashMap<Key, Shelf>,
    /// By UID: when the end of an object was told, and at which version.
    deleted: HashMap<String, (Instant, Option<u64>)>,
}

/// One full listing of one kind, while it is under way.
pub struct Listing {
    number: u64,
    began: Instant,
}

impl Listing {
    pub fn first() -> Self {
        Self { number: 1, began: Instant::now() }
    }

    pub fn next(&self) -> Self {
        Self { number: self.number + 1, began: Instant::now() }
    }
}

impl Cache {
    /// One that does not fold: for simulations, which have more memory than time.
    pub fn whole() -> Self {
        Self { keeps_whole: true, ..Self::default() }
    }

    /// Takes in what a watch or a listing shows. Returns the cluster to look at, if this was news.
    pub fn seen<K: Cached>(&self, object: K, listing: &Listing) -> Option<Key> {
        self.put(object, listing.number, None)
    }

    /// Takes in the answer to one of our own writes. If that took away the last thing the end of the object waited for,
    /// it is gone.
    pub fn wrote<K: Cached>(&self, object: K) {
        if has_ended(object.meta()) {
            self.deleted(&object);
        } else {
            self.put(object, 0, Some(Instant::now()));
        }
    }

    fn put<K: Cached>(&self, mut object: K, listing: u64, written: Option<Instant>) -> Option<Key> {
        let key = object.key()?;
        prune_metadata(&mut object);
        object.prune();
        let mut inner = self.write();
        if inner.is_deleted(&object) {
            return None;
        }
        let shelf = inner.clusters.entry(key.clone()).or_default();
        let slot = K::slot(shelf);
        let name = object.name_any();
        let mut listing = listing;
        if let Some(known) = slot.get_mut(&name) {
            listing = listing.max(known.listing);
            if !known.is_older_than(&object) {
                if known.listing != listing {
                    Arc::make_mut(known).listing = listing;
                }
                return None;
            }
        }
        let stored = |form| Arc::new(Stored::new(&object, form, listing, written));
        if self.keeps_whole {
            slot.insert(name, stored(Form::Whole(Arc::new(object.clone()))));
            return Some(key);
        }
        match serde_json::to_vec(&object) {
            Ok(json) => {
                slot.insert(name, stored(Form::Json(json.into_boxed_slice())));
            }
            Err(error) => {
                shelf.malformed.insert(format!("{} {name}", K::kind(&())), error.to_string());
            }
        }
        Some(key)
    }

    /// Takes an object out that was found to be gone, or that we have just deleted for good.
    pub fn gone<K: Cached>(&self, key: &Key, name: &str, uid: &str) {
        let known = self.stored::<K>(key, name).filter(|known| known.uid.as_deref() == Some(uid));
        if let Some(Ok(object)) = known.map(|known| known.unfold::<K>()) {
            self.deleted(&object);
        }
    }

    /// Takes an object out that a watch has shown deleted.
    pub fn deleted<K: Cached>(&self, object: &K) -> Option<Key> {
        let key = object.key()?;
        let mut inner = self.write();
        if let Some(uid) = &object.meta().uid {
            let now = Instant::now();
            inner.deleted.retain(|_, (at, _)| now.duration_since(*at) < TOMBSTONE_LIFETIME);
            inner.deleted.insert(uid.clone(), (now, version(object)));
        }
        let slot = K::slot(inner.clusters.get_mut(&key)?);
        let name = object.name_any();
        // A successor of the same name may already be known.
        if slot.get(&name).is_some_and(|known| known.uid.as_deref() == object.meta().uid.as_deref()) {
            slot.remove(&name);
        }
        inner.drop_if_empty(&key);
        Some(key)
    }

    /// Ends a full listing: what it did not show is gone. Returns the clusters that lost something.
    pub fn listed<K: Cached>(&self, listing: &Listing) -> HashSet<Key> {
        let mut lost = HashSet::new();
        let mut inner = self.write();
        for (key, shelf) in &mut inner.clusters {
            let slot = K::slot(shelf);
            let before = slot.len();
            slot.retain(|_, known| {
                known.listing >= listing.number || known.written.is_some_and(|at| at >= listing.began)
            });
            if slot.len() != before {
                lost.insert(key.clone());
            }
        }
        for key in &lost {
            inner.drop_if_empty(key);
        }
        lost
    }

    /// Notes that an object can not be read.
    pub fn malformed(&self, key: &Key, object: String, why: String) {
        self.write().clusters.entry(key.clone()).or_default().malformed.insert(object, why);
    }

    /// Notes that an object can be read again, or is gone.
    pub fn well_formed(&self, key: &Key, object: &str) {
        let mut inner = self.write();
        let removed = inner.clusters.get_mut(key).and_then(|e| e.malformed.remove(object));
        if removed.is_some() {
            inner.drop_if_empty(key);
        }
    }

    /// Everything known about one cluster, at one moment.
    pub fn entry(&self, key: &Key) -> Entry {
        let shelf = self.read().clusters.get(key).cloned();
        shelf.map(|shelf| shelf.unfold()).unwrap_or_default()
    }

    /// The newest known version of this very object: an action of the same pass may have changed it.
    pub fn latest<K: Cached>(&self, object: &K) -> Option<K> {
        let known = self.stored::<K>(&object.key()?, &object.name_any())?;
        (known.uid.as_deref() == object.meta().uid.as_deref()).then(|| known.unfold().ok())?
    }

    fn stored<K: Cached>(&self, key: &Key, name: &str) -> Option<Arc<Stored>> {
        K::slot(self.write().clusters.get_mut(key)?).get(name).cloned()
    }

    /// Number of clusters known.
    pub fn len(&self) -> usize {
        self.read().clusters.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Whether this is an older version of something that is gone. A newer one has come back: for a watch, an object that
    /// loses our label is deleted, and one that gets it again is new.
    fn is_deleted<K: Resource>(&self, object: &K) -> bool {
        let tombstone = object.meta().uid.as_ref().and_then(|uid| self.deleted.get(uid));
        tombstone.is_some_and(|(_, last)| version(object).zip(*last).is_none_or(|(new, last)| new <= last))
    }

    fn drop_if_empty(&mut self, key: &Key) {
        if self.clusters.get(key).is_some_and(Shelf::is_empty) {
            self.clusters.remove(key);
        }
    }
}

/// Whether the API server keeps an object no longer: it is deleted, and neither a finalizer nor a grace period is left.
fn has_ended(meta: &ObjectMeta) -> bool {
    let is_held = meta.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
    let has_time = meta.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0);
    meta.deletion_timestamp.is_some() && !is_held && !has_time
}

fn prune_metadata<K: Resource>(object: &mut K) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref().and_then(|v| v.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(uid: &str, version: u64) -> EtcdCluster {
        let mut cluster = EtcdCluster::test("ns", "c");
        cluster.metadata.uid = Some(uid.to_owned());
        cluster.metadata.resource_version = Some(version.to_string());
        cluster
    }

    fn stored(cache: &Cache) -> Option<String> {
        let key = Key { namespace: "ns".into(), name: "c".into() };
        let entry = cache.entry(&key);
        entry.clusters.get("c").and_then(|c| c.metadata.resource_version.clone())
    }

    #[test]
    fn a_late_event_does_not_undo_our_own_write() {
        let cache = Cache::default();
        let listing = Listing::first();
        assert!(cache.seen(cluster("u", 1), &listing).is_some());
        cache.wrote(cluster("u", 3));
        assert_eq!(cache.seen(cluster("u", 2), &listing), None, "older than what we wrote");
        assert_eq!(cache.seen(cluster("u", 3), &listing), None, "the echo of our write is no news");
        assert_eq!(stored(&cache).as_deref(), Some("3"));
    }

    #[test]
    fn a_late_answer_does_not_bring_back_what_was_deleted() {
        let cache = Cache::default();
        cache.seen(cluster("u", 1), &Listing::first());
        assert!(cache.deleted(&cluster("u", 2)).is_some());
        cache.wrote(cluster("u", 2));
        assert_eq!(stored(&cache), None);
        assert!(cache.is_empty());
    }

    #[test]
    fn what_we_deleted_ourselves_is_gone_before_the_watch_says_so() {
        let cache = Cache::default();
        let key = Key { namespace: "ns".into(), name: "c".into() };
        cache.seen(cluster("u", 1), &Listing::first());
        cache.gone::<EtcdCluster>(&key, "c", "another");
        assert!(stored(&cache).is_some(), "a successor stays");
        cache.gone::<EtcdCluster>(&key, "c", "u");
        assert_eq!(stored(&cache), None);
    }

    #[test]
    fn an_object_whose_end_waited_for_our_write_is_gone_with_the_answer() {
        let cache = Cache::default();
        let mut held = cluster("u", 1);
        held.metadata.deletion_timestamp = Some(api::conditions::wire_time(Timestamp::UNIX_EPOCH));
        held.metadata.deletion_grace_period_seconds = Some(0);
        held.metadata.finalizers = Some(vec!["ours".to_owned(), "another's".to_owned()]);
        cache.seen(held.clone(), &Listing::first());
        // The API server may answer with the version that was there before.
        held.metadata.finalizers.as_mut().unwrap().remove(0);
        cache.wrote(held.clone());
        assert!(stored(&cache).is_some(), "somebody else holds it");
        held.metadata.finalizers = None;
        cache.wrote(held.clone());
        assert_eq!(stored(&cache), None);
    }

    #[test]
    fn a_pod_that_has_time_to_end_is_not_gone_with_an_answer() {
        let mut pod = Pod::default();
        pod.metadata.deletion_timestamp = Some(api::conditions::wire_time(Timestamp::UNIX_EPOCH));
        pod.metadata.deletion_grace_period_seconds = Some(30);
        assert!(!has_ended(&pod.metadata));
    }

    #[test]
    fn an_object_that_gets_its_label_back_is_seen_again() {
        let cache = Cache::default();
        let listing = Listing::first();
        cache.seen(cluster("u", 1), &listing);
        cache.deleted(&cluster("u", 2));
        assert!(cache.seen(cluster("u", 3), &listing).is_some());
        assert_eq!(stored(&cache).as_deref(), Some("3"));
    }

    #[test]
    fn a_listing_drops_what_it_does_not_show_but_not_what_was_written_since_it_began() {
        let cache = Cache::default();
        let first = Listing::first();
        cache.seen(cluster("u", 1), &first);
        assert!(cache.listed::<EtcdCluster>(&first).is_empty());

        let second = first.next();
        cache.wrote(cluster("u", 2));
        assert!(cache.listed::<EtcdCluster>(&second).is_empty(), "the listing is older than the write");

        let third = second.next();
        std::thread::sleep(Duration::from_millis(2));
        let fourth = third.next();
        assert_eq!(cache.listed::<EtcdCluster>(&fourth).len(), 1);
        assert_eq!(stored(&cache), None);
    }

    #[test]
    fn a_successor_of_the_same_name_is_not_removed_with_its_predecessor() {
        let cache = Cache::default();
        let listing = Listing::first();
        cache.seen(cluster("old", 1), &listing);
        cache.seen(cluster("new", 5), &listing);
        cache.deleted(&cluster("old", 4));
        assert_eq!(stored(&cache).as_deref(), Some("5"));
    }
}
