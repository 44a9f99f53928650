//! Live looks: what a plan rests on, asked of the API server itself right before it is acted on. What is looked at, and
//! what it must show, is [`planner::Look`]'s to say.

use api::{EtcdCluster, EtcdMember, labels};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use planner::{Contradiction, Kind, Look, Which};
use serde_json::{Value, json};

use crate::act::{Error, is_reason, limited};

/// Takes them.
#[derive(Clone)]
pub struct Looks {
    pub client: Client,
}

impl Looks {
    /// Looks, and says whether it showed what it must.
    pub async fn take(&self, namespace: &str, look: &Look) -> Result<(), Error> {
        let what = look.what();
        let (client, resource) = (self.client.clone(), resource(look.kind));
        let api: Api<DynamicObject> = if look.kind.is_namespaced() {
            Api::namespaced_with(client, namespace, &resource)
        } else {
            Api::all_with(client, &resource)
        };
        let found: Vec<DynamicObject> = match &look.which {
            Which::Named(name) => limited(&what, api.get_opt(name)).await?.into_iter().collect(),
            Which::Labelled(cluster) => {
                let of = ListParams::default().labels(&format!("{}={cluster}", labels::CLUSTER));
                limited(&what, api.list(&of)).await?.items
            }
        };
        let found: Vec<Value> = found.iter().filter_map(|object| serde_json::to_value(object).ok()).collect();
        match look.judge(&found) {
            Ok(()) => Ok(()),
            Err(Contradiction::Stale(what)) => Err(Error::Stale(what)),
            Err(Contradiction::Refused(why)) => Err(Error::Refused(why)),
            Err(Contradiction::Unlabelled { uid, labels }) => {
                let name = found.first().and_then(|o| o["metadata"]["name"].as_str()).unwrap_or_default();
                let patch = Patch::Merge(json!({ "metadata": { "uid": uid, "labels": labels } }));
                match limited(&what, api.patch(name, &PatchParams::default(), &patch)).await {
                    Err(Error::Api { source, .. }) if !is_reason(&source, "NotFound") => {
                        Err(Error::Api { object: what, source })
                    }
                    Ok(_) => Err(Error::Relabelled(what)),
                    Err(_) => Err(Error::Stale(what)),
                }
            }
        }
    }
}

fn resource(kind: Kind) -> ApiResource {
    match kind {
        Kind::Cluster => ApiResource::erase::<EtcdCluster>(&()),
        Kind::Member => ApiResource::erase::<EtcdMember>(&()),
        Kind::Pod => ApiResource::erase::<Pod>(&()),
        Kind::Claim => ApiResource::erase::<PersistentVolumeClaim>(&()),
        Kind::Service => ApiResource::erase::<Service>(&()),
        Kind::Budget => ApiResource::erase::<PodDisruptionBudget>(&()),
        Kind::Volume => ApiResource::erase::<PersistentVolume>(&()),
        Kind::Node => ApiResource::erase::<Node>(&()),
    }
}
