//! The controller of kinds that have none of their own yet: an EtcdSnapshot or an EtcdDefrag says that nothing is done about it.

use std::marker::PhantomData;
use std::sync::Arc;

use api::{EtcdDefrag, EtcdSnapshot};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::pass::{Answer, Error, Request};
use planner::unsupported::{self, decline};
use tracing::{info, warn};

use crate::runtime::ambient::Ambient;
use crate::runtime::cache::{Cache, Cached, Group, Key, Visitor, itself};
use crate::runtime::controller::{Controller, Passed};
use crate::runtime::events::{Announcer, News, Tone};
use crate::runtime::requests::Network;

/// Just one kind, each object of it for itself.
pub struct Only<K>(PhantomData<fn() -> K>);

impl<K: Cached<Self>> Group for Only<K> {
    fn each(visitor: &mut impl Visitor<Self>) {
        visitor.visit::<K>();
    }
}

/// A kind with the name that the Go operator's controller of it has.
pub trait Named: Cached<Only<Self>> + unsupported::Unsupported {
    const CONTROLLER: &'static str;
}

impl Named for EtcdSnapshot {
    const CONTROLLER: &'static str = "etcdsnapshot";
}

impl Named for EtcdDefrag {
    const CONTROLLER: &'static str = "etcddefrag";
}

macro_rules! each_for_itself {
    ($($type:ty),+) => {$(
        /// CRDs that were installed with an older chart may be fewer.
        impl Cached<Only<$type>> for $type {
            const LABEL: Option<&'static str> = None;
            const OPTIONAL: bool = true;

            fn key(&self) -> Option<Key> {
                itself(&self.metadata)
            }

            fn key_of_unreadable(metadata: &ObjectMeta) -> Option<Key> {
                itself(metadata)
            }
        }
    )+};
}

each_for_itself!(EtcdSnapshot, EtcdDefrag);

/// Says of objects of a kind that nothing is done about them.
pub struct Unsupported<K: Cached<Only<K>>> {
    pub cache: Arc<Cache<Only<K>>>,
    pub network: Network,
    pub announcer: Announcer,
    pub ambient: Arc<dyn Ambient>,
}

impl<K: Named> Controller for Unsupported<K> {
    type Kinds = Only<K>;
    const NAME: &'static str = K::CONTROLLER;

    async fn pass(&self, key: &Key) -> Passed {
        let Some(object) = self.cache.entry(key).take::<K>().remove(&key.name) else { return Passed::DONE };
        let Some((told, message)) = decline(&object, self.ambient.now()) else { return Passed::DONE };
        let Some(request) = Request::replace_status(&told) else { return Passed::DONE };
        match self.network.send(&key.namespace, &request).await {
            Ok(answer) => {
                if let Answer::Object(object) = answer {
                    self.cache.wrote_as(K::KIND, &object);
                }
                info!(kind = %K::KIND, object = %key, "{message}");
                let (reason, about) = ("Unsupported".to_owned(), object.object_ref(&()));
                self.announcer.tell(News {
                    tone: Tone::Warning,
                    reason,
                    note: message,
                    about,
                    related: None,
                });
                Passed::DONE
            }
            Err(failure) => {
                let error = Error::of(request.what(), failure);
                warn!(kind = %K::KIND, object = %key, "{error}");
                Passed::FAILED
            }
        }
    }
}
