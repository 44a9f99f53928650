//! The kinds of objects that passes read and write, each declared once: from the Rust type follow its group, its scope and its
//! name.

use std::any::TypeId;
use std::fmt;

use api::{EtcdCluster, EtcdDefrag, EtcdMember, EtcdSnapshot};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use kube::core::ApiResource;
use serde::{Deserialize, Serialize};

/// A type of objects that has its [`Kind`].
pub trait Declared: Resource<DynamicType = ()> {
    /// The kind of all objects of this type.
    const KIND: Kind;
}

macro_rules! kinds {
    ($($kind:ident: $type:ty),+ $(,)?) => {
        /// A kind of objects, as a value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Kind {
            $(#[doc = concat!("`", stringify!($type), "`")] $kind),+
        }

        impl Kind {
            /// How its objects are asked for.
            pub fn resource(self) -> ApiResource {
                match self {
                    $(Self::$kind => ApiResource::erase::<$type>(&())),+
                }
            }

            /// Whether its objects are in a namespace.
            pub fn is_namespaced(self) -> bool {
                let scope = match self {
                    $(Self::$kind => TypeId::of::<<$type as Resource>::Scope>()),+
                };
                scope == TypeId::of::<NamespaceResourceScope>()
            }
        }

        impl fmt::Display for Kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&match self {
                    $(Self::$kind => <$type>::kind(&())),+
                })
            }
        }

        $(
            impl Declared for $type {
                const KIND: Kind = Kind::$kind;
            }
        )+
    };
}

kinds! {
    Cluster: EtcdCluster,
    Member: EtcdMember,
    Pod: Pod,
    Claim: PersistentVolumeClaim,
    Service: Service,
    Budget: PodDisruptionBudget,
    Volume: PersistentVolume,
    Node: Node,
    Snapshot: EtcdSnapshot,
    Defrag: EtcdDefrag,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_follows_from_its_type() {
        assert_eq!(Kind::Claim.to_string(), "PersistentVolumeClaim");
        assert_eq!(Kind::Budget.resource().api_version, "policy/v1");
        assert!(Kind::Member.is_namespaced() && Kind::Pod.is_namespaced());
        assert!(!Kind::Node.is_namespaced() && !Kind::Volume.is_namespaced());
    }
}
