//! Builders for tests: `EtcdCluster::test("ns", "my-etcd").replicas(5).formed()`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{Resource, ResourceExt};

use crate::conditions::{self, NewCondition, reason, set_condition};
use crate::{
    EtcdCluster, EtcdClusterSpec, EtcdMember, EtcdMemberSpec, ObservedSpec, StorageMedium, ids, labels, names,
};

/// The version builders use unless told otherwise.
pub const VERSION: &str = "3.6.16";
/// The moment builders say something happened.
pub const THEN: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

impl EtcdCluster {
    /// A new cluster as a user would have applied it: three members on claims, no status.
    pub fn test(namespace: &str, name: &str) -> Self {
        let spec = EtcdClusterSpec { replicas: Some(3), version: VERSION.to_owned(), ..Default::default() };
        let mut cluster = Self::new(name, spec);
        cluster.metadata.namespace = Some(namespace.to_owned());
        cluster.metadata.uid = Some(format!("uid-of-{name}"));
        cluster.metadata.generation = Some(1);
        cluster.metadata.resource_version = Some("1".to_owned());
        cluster
    }

    pub fn replicas(mut self, replicas: i32) -> Self {
        self.spec.replicas = Some(replicas);
        self
    }

    pub fn version(mut self, version: &str) -> Self {
        self.spec.version = version.to_owned();
        self
    }

    pub fn memory(mut self, size: &str) -> Self {
        self.spec.storage.medium = StorageMedium::Memory;
        self.size(size)
    }

    pub fn size(mut self, size: &str) -> Self {
        self.spec.storage.size = Quantity(size.to_owned());
        self
    }

    pub fn generation(mut self, generation: i64) -> Self {
        self.metadata.generation = Some(generation);
        self
    }

    pub fn deleting(mut self) -> Self {
        self.metadata.deletion_timestamp = Some(conditions::wire_time(THEN));
        self
    }

    /// The first reconcile is over: token and target are latched.
    pub fn latched(mut self) -> Self {
        let token = names::cluster_token(
            self.metadata.namespace.as_deref().unwrap_or_default(),
            self.metadata.name.as_deref().unwrap_or_default(),
            self.metadata.uid.as_deref().unwrap_or_default(),
        );
        let observed = ObservedSpec::from_spec(&self.spec);
        let status = self.status.get_or_insert_default();
        status.cluster_token = Some(token);
        status.observed = Some(observed);
        self
    }

    /// etcd has formed and its id is known.
    pub fn formed(self) -> Self {
        let mut cluster = self.latched();
        cluster.status.get_or_insert_default().cluster_id = Some(ids::format(0xc1));
        cluster
    }

    /// A member of this cluster, as the operator would have created it; `suffix` stands for the five random characters.
    pub fn member(&self, suffix: &str) -> EtcdMember {
        let cluster = self.name_any();
        let name = format!("{}{suffix}", names::member_prefix(&cluster));
        let token = self.status.as_ref().and_then(|status| status.cluster_token.clone());
        let spec = EtcdMemberSpec {
            cluster_name: cluster.clone(),
            version: self.spec.version.clone(),
            storage: self.spec.storage.clone(),
            cluster_token: token.unwrap_or_default(),
            replicas: Some(1),
            ..Default::default()
        };
        let mut member = EtcdMember::new(&name, spec);
        member.metadata.namespace = self.metadata.namespace.clone();
        member.metadata.uid = Some(format!("uid-of-{name}"));
        member.metadata.generation = Some(1);
        member.metadata.resource_version = Some("1".to_owned());
        member.metadata.labels = Some(labels::for_member(&cluster, &name));
        member.metadata.owner_references = self.controller_owner_ref(&()).map(|owner| vec![owner]);
        member.metadata.finalizers = Some(vec![labels::FINALIZER.to_owned()]);
        member
    }
}

impl EtcdMember {
    /// The member the cluster was started with.
    pub fn seed(mut self) -> Self {
        self.spec.bootstrap = true;
        let name = self.name_any();
        let namespace = self.namespace().unwrap_or_default();
        let url = names::peer_url(false, &name, &self.spec.cluster_name, &namespace);
        self.spec.initial_cluster = format!("{name}={url}");
        self.status.get_or_insert_default().is_voter = true;
        self
    }

    pub fn initial_cluster(mut self, initial_cluster: &str) -> Self {
        self.spec.initial_cluster = initial_cluster.to_owned();
        self
    }

    pub fn dormant(mut self) -> Self {
        self.spec.dormant = true;
        self
    }

    pub fn id(mut self, id: u64) -> Self {
        self.status.get_or_insert_default().member_id = Some(ids::format(id));
        self
    }

    pub fn voter(mut self) -> Self {
        self.status.get_or_insert_default().is_voter = true;
        self
    }

    pub fn ready(mut self) -> Self {
        let name = self.name_any();
        let generation = self.metadata.generation;
        let memory = self.spec.storage.medium.is_memory();
        let status = self.status.get_or_insert_default();
        status.pod_uid = Some(format!("uid-of-pod-{name}"));
        status.pvc_name = (!memory).then(|| names::pvc(&name));
        status.pod_name = Some(name);
        status.replicas = 1;
        let ready =
            NewCondition::new(conditions::READY, true, reason::POD_READY, "etcd member is ready", generation);
        set_condition(&mut status.conditions, ready, THEN);
        self
    }

    pub fn deleting(mut self) -> Self {
        self.metadata.deletion_timestamp = Some(conditions::wire_time(THEN));
        self
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        self
    }
}
