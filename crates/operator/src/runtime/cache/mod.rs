//! What a controller knows of the API server, grouped by the key of what it looks after. Fed by watches and by the answers to
//! our own writes, so that a pass always sees what the pass before it did.
//!
//! Newer versions win, and what was deleted stays deleted; but a full listing replaces all that is known of its kind and
//! its scope. Only what we wrote since it began is newer than the listing, whatever the numbers say: in an API server that
//! was restored from a backup they go back.

mod group;
mod listing;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use planner::Kind;

pub use group::{Cached, Group, Known, Visitor, itself, labelled};
pub use listing::Listing;
pub use stored::Entry;

use listing::{Source, Verdict};
use stored::{Form, Shelf, Slot, State, Stored};

/// An answer to a write can arrive after the watch has told of the object's deletion, but not minutes after.
const TOMBSTONE_LIFETIME: Duration = Duration::from_secs(300);

/// What a controller looks after, by namespace and name, whether it still exists or not.
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

/// The objects of one [`Group`] of kinds.
pub struct Cache<G> {
    inner: RwLock<Inner>,
    keeps_whole: bool,
    group: PhantomData<fn() -> G>,
}

impl<G> Default for Cache<G> {
    fn default() -> Self {
        Self { inner: RwLock::default(), keeps_whole: false, group: PhantomData }
    }
}

#[derive(Default)]
struct Inner {
    shelves: HashMap<Key, Shelf>,
    /// By [`id`]: the name of the key in whose shelf an object lies. It can change, with a label.
    homes: HashMap<Box<str>, Box<str>>,
    /// By [`id`]: objects that can not be read.
    malformed: BTreeMap<String, Malformed>,
    /// By UID: when the end of an object was told, and at which version.
    deleted: HashMap<Box<str>, (Instant, Option<u64>)>,
    /// Keys that lost an object to another one by a write of ours; told with the next event of a watch.
    moved_from: Vec<Key>,
}

/// An object that can not be read.
struct Malformed {
    /// Its kind and name, for messages.
    object: String,
    why: String,
    /// The keys it may belong to: by its label, and by its last version that could be read.
    keys: HashSet<Key>,
    /// The listing that showed it last.
    listing: u64,
}

impl<G: Group> Cache<G> {
    /// One that does not fold: for simulations, which have more memory than time.
    pub fn whole() -> Self {
        Self { keeps_whole: true, ..Self::default() }
    }

    /// Takes in what a watch shows after a listing. Returns the keys to look at, if this was news.
    pub fn seen<K: Cached<G>>(&self, object: K, after: &Listing) -> Vec<Key> {
        self.put(object, Source::Watch(after))
    }

    /// Takes in what a listing shows. Returns the keys to look at, if this was news.
    pub fn shown<K: Cached<G>>(&self, object: K, by: &Listing) -> Vec<Key> {
        self.put(object, Source::Listing(by))
    }

    /// Takes in the answer to one of our own writes. If that took away the last thing the end of the object waited for,
    /// it is gone.
    pub fn wrote<K: Cached<G>>(&self, object: K) {
        if has_ended(object.meta()) {
            self.deleted(&object);
        } else {
            self.put(object, Source::Answer);
        }
    }

    fn put<K: Cached<G>>(&self, mut object: K, source: Source<'_>) -> Vec<Key> {
        let Some(key) = object.key() else { return vec![] };
        prune_metadata(&mut object);
        object.prune();
        let (state, name) = (State::of(object.meta()), object.name_any());
        let id = id(K::KIND, &key.namespace, &name);
        let mut inner = self.write();
        let mut touched = match source {
            Source::Answer => vec![],
            Source::Watch(_) | Source::Listing(_) => {
                let mut touched = std::mem::take(&mut inner.moved_from);
                touched.extend(inner.readable(&id));
                touched
            }
        };
        if inner.is_deleted(&state, source) {
            return touched;
        }
        let home = inner.home(&id, &key.namespace);
        let known = home.as_ref().and_then(|home| inner.slot(K::KIND, home)?.get(&name).cloned());
        let verdict = known.as_ref().map_or(Verdict::Replace, |known| source.judge(known, &state));
        let listing = known.as_ref().map_or(0, |known| known.listing).max(source.listing());
        if let (Some(home), Verdict::Keep) = (&home, &verdict) {
            drop(known);
            inner.amend(K::KIND, home, &name, |known| known.listing = listing);
            return touched;
        }

        let form = match self.fold(object) {
            Ok(form) => form,
            Err(error) => {
                touched.extend(inner.note(id, (K::KIND, &name), error.to_string(), [key].into(), listing));
                return touched;
            }
        };
        let written = matches!(source, Source::Answer).then(Instant::now);
        let mut new = Arc::new(Stored { form, state, listing, written, outdone: None });
        match (&home, known, source, verdict) {
            (Some(home), _, _, Verdict::SetAside) => {
                inner.amend(K::KIND, home, &name, |known| known.outdone = Some(new));
                return touched;
            }
            (_, Some(known), Source::Listing(by), _) => {
                let outdone = known.outdone.clone().filter(|ours| ours.is_written_since(by.began));
                if let Some(mut ours) = outdone.filter(|ours| new.state.is_older_than(&ours.state)) {
                    Arc::make_mut(&mut ours).listing = listing;
                    new = ours;
                }
                let is_news = known.state != new.state || known.form.differs_from(&new.form);
                touched.extend(is_news.then(|| key.clone()));
            }
            _ => touched.push(key.clone()),
        }
        if let Some(home) = home.filter(|home| *home != key) {
            inner.remove(K::KIND, &home, &name);
            match source {
                Source::Answer => inner.moved_from.push(home),
                Source::Watch(_) | Source::Listing(_) => touched.push(home),
            }
        }
        inner.homes.insert(id.into(), key.name.as_str().into());
        inner.shelves.entry(key).or_default().slot(K::KIND).insert(name, new);
        touched
    }

    fn fold<K: Cached<G>>(&self, object: K) -> Result<Form, serde_json::Error> {
        if self.keeps_whole {
            return Ok(Form::Whole(Arc::new(object)));
        }
        serde_json::to_vec(&object).map(|json| Form::Json(json.into_boxed_slice()))
    }

    /// Takes an object out that was found to be gone, or that we have just deleted for good.
    pub fn gone<K: Cached<G>>(&self, key: &Key, name: &str, uid: &str) {
        let known = self.stored::<K>(&key.namespace, name);
        let known = known.filter(|known| known.state.uid.as_deref() == Some(uid));
        if let Some(Ok(object)) = known.map(|known| known.unfold::<K>()) {
            self.deleted(&object);
        }
    }

    /// Takes an object out that a watch has shown deleted. Returns the keys to look at.
    pub fn deleted<K: Cached<G>>(&self, object: &K) -> Vec<Key> {
        self.take_out::<K>(object.meta(), object.key())
    }

    /// The same for an object that can not be read.
    pub fn deleted_unread<K: Cached<G>>(&self, metadata: &ObjectMeta) -> Vec<Key> {
        self.take_out::<K>(metadata, K::key_of_unreadable(metadata))
    }

    fn take_out<K: Cached<G>>(&self, metadata: &ObjectMeta, key: Option<Key>) -> Vec<Key> {
        let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else { return vec![] };
        let (state, id) = (State::of(metadata), id(K::KIND, namespace, name));
        let mut inner = self.write();
        if let Some(uid) = state.uid.clone() {
            let now = Instant::now();
            inner.deleted.retain(|_, (at, _)| now.duration_since(*at) < TOMBSTONE_LIFETIME);
            inner.deleted.insert(uid, (now, state.version));
        }
        let mut touched: Vec<Key> = inner.readable(&id).into_iter().chain(key).collect();
        if let Some(home) = inner.home(&id, namespace) {
            let known = inner.slot(K::KIND, &home).and_then(|slot| slot.get(name));
            // A successor of the same name may already be known.
            if known.is_none_or(|known| known.state.uid == state.uid) {
                inner.homes.remove(&*id);
                inner.remove(K::KIND, &home, name);
            }
            touched.push(home);
        }
        touched
    }

    /// Ends a full listing: what it did not show, where it looked, is gone. Returns the keys that lost something.
    pub fn listed<K: Cached<G>>(&self, listing: &Listing) -> HashSet<Key> {
        let mut lost = HashSet::new();
        let mut inner = self.write();
        let Inner { shelves, homes, malformed, .. } = &mut *inner;
        for (key, shelf) in shelves.iter_mut().filter(|(key, _)| listing.covers(&key.namespace)) {
            shelf.slot(K::KIND).retain(|name, known| {
                let stays = known.listing >= listing.number || known.is_written_since(listing.began);
                if !stays {
                    homes.remove(&*id(K::KIND, &key.namespace, name));
                    lost.insert(key.clone());
                }
                stays
            });
        }
        let kind = format!("{}/", K::KIND);
        malformed.retain(|id, note| {
            let covered = id.starts_with(&kind) && note.keys.iter().any(|key| listing.covers(&key.namespace));
            let stays = !covered || note.listing >= listing.number;
            if !stays {
                lost.extend(note.keys.iter().cloned());
            }
            stays
        });
        for key in &lost {
            inner.drop_if_empty(key);
        }
        lost
    }

    /// Notes that an object can not be read, as a listing or the watch after it has shown. Returns the keys to look at.
    pub fn unreadable<K: Cached<G>>(
        &self,
        metadata: &ObjectMeta,
        why: String,
        listing: &Listing,
    ) -> Vec<Key> {
        let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else { return vec![] };
        let id = id(K::KIND, namespace, name);
        let mut inner = self.write();
        let keys = K::key_of_unreadable(metadata).into_iter().chain(inner.home(&id, namespace));
        inner.note(id, (K::KIND, name), why, keys.collect(), listing.number)
    }

    /// Everything known of one key, at one moment.
    pub fn entry(&self, key: &Key) -> Entry<G> {
        let inner = self.read();
        let shelf = inner.shelves.get(key).cloned().unwrap_or_default();
        let notes = inner.malformed.values().filter(|note| note.keys.contains(key));
        let malformed = notes.map(|note| (note.object.clone(), note.why.clone())).collect();
        Entry::new(shelf, malformed)
    }

    /// The newest known version of an object.
    pub fn latest<K: Cached<G>>(&self, namespace: &str, name: &str) -> Option<serde_json::Value> {
        let known: K = self.stored::<K>(namespace, name)?.unfold().ok()?;
        serde_json::to_value(known).ok()
    }

    fn stored<K: Cached<G>>(&self, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        let mut inner = self.write();
        let home = inner.home(&id(K::KIND, namespace, name), namespace)?;
        inner.slot(K::KIND, &home)?.get(name).cloned()
    }

    /// Number of keys known.
    pub fn len(&self) -> usize {
        self.read().shelves.len()
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
    /// loses our label is deleted, and one that gets it again is new. What a listing shows that began later is there,
    /// whatever its version: it came back from a backup.
    fn is_deleted(&mut self, state: &State, source: Source<'_>) -> bool {
        let Some(uid) = &state.uid else { return false };
        let Some((at, last)) = self.deleted.get(uid) else { return false };
        if let Source::Listing(listing) = source
            && *at < listing.began
        {
            self.deleted.remove(uid);
            return false;
        }
        state.version.zip(*last).is_none_or(|(new, last)| new <= last)
    }

    fn home(&self, id: &str, namespace: &str) -> Option<Key> {
        let name = self.homes.get(id)?;
        Some(Key { namespace: namespace.to_owned(), name: name.to_string() })
    }

    fn slot(&mut self, kind: Kind, home: &Key) -> Option<&mut Slot> {
        self.shelves.get_mut(home).map(|shelf| shelf.slot(kind))
    }

    fn amend(&mut self, kind: Kind, home: &Key, name: &str, change: impl FnOnce(&mut Stored)) {
        if let Some(known) = self.slot(kind, home).and_then(|slot| slot.get_mut(name)) {
            change(Arc::make_mut(known));
        }
    }

    fn remove(&mut self, kind: Kind, home: &Key, name: &str) {
        self.slot(kind, home).and_then(|slot| slot.remove(name));
        self.drop_if_empty(home);
    }

    /// Notes that an object can not be read; nothing, if nobody knows whose it is. It may be anybody's it ever was.
    fn note(
        &mut self,
        id: String,
        (kind, name): (Kind, &str),
        why: String,
        mut keys: HashSet<Key>,
        listing: u64,
    ) -> Vec<Key> {
        if let Some(before) = self.malformed.remove(&id) {
            keys.extend(before.keys);
        }
        let touched = keys.iter().cloned().collect();
        if !keys.is_empty() {
            let object = format!("{kind} {name}");
            self.malformed.insert(id, Malformed { object, why, keys, listing });
        }
        touched
    }

    /// Forgets that an object could not be read. Returns the keys that waited for that.
    fn readable(&mut self, id: &str) -> HashSet<Key> {
        self.malformed.remove(id).map(|note| note.keys).unwrap_or_default()
    }

    fn drop_if_empty(&mut self, key: &Key) {
        if self.shelves.get(key).is_some_and(Shelf::is_empty) {
            self.shelves.remove(key);
        }
    }
}

/// `Pod/default/my-etcd-abcde`: an object, whatever key it belongs to.
fn id(kind: Kind, namespace: &str, name: &str) -> String {
    format!("{kind}/{namespace}/{name}")
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
