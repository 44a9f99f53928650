//! Objects that are none of the operator's business: Secrets, ConfigMaps, and Pods that nobody schedules.

use anyhow::Result;
use e2e::Arena;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::progress::Step;

const AT_ONCE: usize = 32;

/// `count` of each kind, in a namespace of their own.
pub struct Foreign {
    arena: Arena,
}

impl Foreign {
    pub async fn make(client: &Client, count: usize) -> Result<Self> {
        let step = Step::begin(format!("{count} foreign Secrets, ConfigMaps and Pods"));
        let namespace = e2e::create_namespace(client, "bench-foreign").await?;
        let foreign = Self { arena: Arena { client: client.clone(), namespace } };
        // As large as those of a Helm release or a certificate.
        let data = json!({ "data": "x".repeat(2048) });
        foreign.fill::<Secret>(count, &json!({ "stringData": data })).await?;
        step.far("Secrets made");
        foreign.fill::<ConfigMap>(count, &json!({ "data": data })).await?;
        step.far("ConfigMaps made");
        let containers = json!([{ "name": "none", "image": "none" }]);
        let spec = json!({ "schedulerName": "nobody", "containers": containers });
        foreign.fill::<Pod>(count, &json!({ "spec": spec })).await?;
        step.done("made");
        Ok(foreign)
    }

    async fn fill<K>(&self, count: usize, body: &Value) -> Result<()>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
    {
        let api = self.arena.api::<K>();
        let params = PostParams::default();
        let make = async |number: usize| {
            let mut body = body.clone();
            body["metadata"] = json!({ "name": format!("foreign-{number}"), "labels": { "app": "foreign" } });
            api.create(&params, &serde_json::from_value(body)?).await?;
            anyhow::Ok(())
        };
        stream::iter((0..count).map(make)).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    pub async fn remove(self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.arena.client.clone());
        namespaces.delete(&self.arena.namespace, &DeleteParams::default()).await?;
        Ok(())
    }
}
