//! The kinds this API server knows, and how they differ where the API server treats them differently.

/// One kind of object, by its place in the REST API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// Has the subresource `status`.
    pub status: bool,
    /// Has the subresource `scale`.
    pub scale: bool,
}

pub const ETCD_CLUSTER: Kind = ours("etcdclusters", "EtcdCluster", true);
pub const ETCD_MEMBER: Kind = ours("etcdmembers", "EtcdMember", true);
pub const ETCD_SNAPSHOT: Kind = ours("etcdsnapshots", "EtcdSnapshot", false);
pub const ETCD_DEFRAG: Kind = ours("etcddefrags", "EtcdDefrag", false);
pub const POD: Kind = Kind { status: true, ..core("pods", "Pod") };
pub const CLAIM: Kind = Kind { status: true, ..core("persistentvolumeclaims", "PersistentVolumeClaim") };
pub const VOLUME: Kind =
    Kind { status: true, namespaced: false, ..core("persistentvolumes", "PersistentVolume") };
pub const SERVICE: Kind = Kind { status: true, ..core("services", "Service") };
pub const SECRET: Kind = core("secrets", "Secret");
pub const NODE: Kind = Kind { status: true, namespaced: false, ..core("nodes", "Node") };
pub const BUDGET: Kind =
    Kind { group: "policy", status: true, ..core("poddisruptionbudgets", "PodDisruptionBudget") };
pub const LEASE: Kind = Kind { group: "coordination.k8s.io", ..core("leases", "Lease") };
pub const EVENT: Kind = Kind { group: "events.k8s.io", ..core("events", "Event") };

/// All of them.
pub const ALL: [Kind; 13] = [
    ETCD_CLUSTER,
    ETCD_MEMBER,
    ETCD_SNAPSHOT,
    ETCD_DEFRAG,
    POD,
    CLAIM,
    VOLUME,
    SERVICE,
    SECRET,
    NODE,
    BUDGET,
    LEASE,
    EVENT,
];

const fn core(plural: &'static str, kind: &'static str) -> Kind {
    Kind { group: "", version: "v1", plural, kind, namespaced: true, status: false, scale: false }
}

const fn ours(plural: &'static str, kind: &'static str, scale: bool) -> Kind {
    Kind { group: api::GROUP, version: api::VERSION, plural, kind, namespaced: true, status: true, scale }
}

impl Kind {
    /// As it stands in an object.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// As it stands in messages: `pods`, `etcdmembers.etcd-operator.cozystack.io`.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Defined by a CRD.
    pub fn is_custom(&self) -> bool {
        self.group == api::GROUP
    }

    pub(super) fn by_plural(group: &str, version: &str, plural: &str) -> Option<Self> {
        ALL.into_iter().find(|k| k.group == group && k.version == version && k.plural == plural)
    }

    /// By what an owner reference says.
    pub(super) fn by_name(api_version: &str, kind: &str) -> Option<Self> {
        ALL.into_iter().find(|k| k.kind == kind && k.api_version() == api_version)
    }

    /// Counts changes of its spec in `metadata.generation`.
    pub(super) fn has_generation(&self) -> bool {
        self.is_custom() || [POD, BUDGET].contains(self)
    }

    /// A replace without a resourceVersion is taken as "whatever is there".
    pub(super) fn may_update_blindly(&self) -> bool {
        [POD, CLAIM, VOLUME, SERVICE, SECRET, NODE, EVENT].contains(self)
    }

    /// A replace of what is not there creates it; who names the one that was there is told of a conflict.
    pub(super) fn is_created_by_update(&self) -> bool {
        [SERVICE, LEASE, EVENT].contains(self)
    }

    /// A delete that takes effect at once answers with the object, not with a Status.
    pub(super) fn returns_deleted(&self) -> bool {
        [POD, CLAIM, VOLUME, SERVICE].contains(self)
    }
}
