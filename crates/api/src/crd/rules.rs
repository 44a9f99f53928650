//! The admission rules, in CEL, as the API server evaluates them.
//!
//! Where a field must not appear or vanish, the rule sits on its parent: a transition rule on an optional field is
//! skipped when the field is not there on both sides. Every access to an optional field is guarded by `has()`, and every
//! quantity goes through `string()`, because YAML may have made an integer of it.

use serde_json::{Value, json};

use super::schema::at;

/// One rule and the places it holds.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Kind and dotted path of every schema that carries the rule.
    pub places: &'static [(&'static str, &'static str)],
    pub rule: &'static str,
    pub message: &'static str,
}

const CLUSTER: &[(&str, &str)] = &[("EtcdCluster", "spec")];
const CLIENT_TLS: &[(&str, &str)] = &[("EtcdCluster", "spec.tls.client")];
const PEER_TLS: &[(&str, &str)] = &[("EtcdCluster", "spec.tls.peer")];
const RESTORE: &[(&str, &str)] = &[("EtcdCluster", "spec.bootstrap.restore"), ("EtcdMember", "spec.restore")];
const SIZE: &[(&str, &str)] = &[
    ("EtcdCluster", "spec.storage.size"),
    ("EtcdCluster", "status.observed.storage.size"),
    ("EtcdMember", "spec.storage.size"),
];
const MEDIUM: &[(&str, &str)] = &[
    ("EtcdCluster", "spec.storage.medium"),
    ("EtcdCluster", "status.observed.storage.medium"),
    ("EtcdMember", "spec.storage.medium"),
];

/// The rules of the Go operator, in the order of its API.
const SHARED: &[Rule] = &[
    Rule {
        places: CLUSTER,
        rule: "!has(self.replicas) || self.replicas != 0 || !has(self.storage) || !has(self.storage.medium) || self.storage.medium != 'Memory'",
        message: "spec.replicas=0 with spec.storage.medium=Memory is unsupported: a paused Memory cluster loses its data and cannot be resumed; delete the cluster and create it again instead",
    },
    Rule {
        places: CLUSTER,
        rule: "!has(self.storage) || !has(self.storage.medium) || self.storage.medium != 'Memory' || !isQuantity(string(self.storage.size)) || quantity(string(self.storage.size)).isGreaterThan(quantity('0'))",
        message: "spec.storage.size must be > 0 with spec.storage.medium=Memory: it is the limit of the member's tmpfs",
    },
    Rule {
        places: CLUSTER,
        rule: "has(self.tls) == has(oldSelf.tls)",
        message: "spec.tls cannot be added to or removed from an existing cluster: create a new cluster with the TLS you want",
    },
    Rule {
        places: CLUSTER,
        rule: "!has(self.tls) || !has(oldSelf.tls) || self.tls == oldSelf.tls",
        message: "spec.tls is immutable: change the contents of the Secrets, not their names, or create a new cluster",
    },
    Rule {
        places: CLUSTER,
        rule: "(has(self.storage) && has(self.storage.storageClassName)) == (has(oldSelf.storage) && has(oldSelf.storage.storageClassName))",
        message: "spec.storage.storageClassName cannot be added to or removed from an existing cluster",
    },
    Rule {
        places: CLUSTER,
        rule: "!has(self.storage) || !has(self.storage.storageClassName) || !has(oldSelf.storage) || !has(oldSelf.storage.storageClassName) || self.storage.storageClassName == oldSelf.storage.storageClassName",
        message: "spec.storage.storageClassName is immutable: create a new cluster to use another class",
    },
    Rule {
        places: CLUSTER,
        rule: "has(self.auth) == has(oldSelf.auth)",
        message: "spec.auth cannot be added to or removed from an existing cluster",
    },
    Rule {
        places: CLUSTER,
        rule: "!has(self.auth) || !has(oldSelf.auth) || self.auth == oldSelf.auth",
        message: "spec.auth is immutable post-create: create a new cluster with the authentication you want",
    },
    Rule {
        places: CLUSTER,
        rule: "!has(self.auth) || !has(self.auth.enabled) || !self.auth.enabled || (has(self.tls) && has(self.tls.client))",
        message: "spec.auth.enabled requires spec.tls.client (auth credentials must not cross a plaintext connection)",
    },
    Rule {
        places: CLUSTER,
        rule: "!has(self.auth) || !has(self.auth.enabled) || !self.auth.enabled || has(self.auth.rootCredentialsSecretRef)",
        message: "spec.auth.enabled requires spec.auth.rootCredentialsSecretRef: name the Secret that holds the password of root",
    },
    Rule {
        places: CLUSTER,
        rule: "has(self.bootstrap) == has(oldSelf.bootstrap)",
        message: "spec.bootstrap cannot be added to or removed from an existing cluster: it is read only when a cluster is made",
    },
    Rule {
        places: CLUSTER,
        rule: "!has(self.bootstrap) || !has(oldSelf.bootstrap) || self.bootstrap == oldSelf.bootstrap",
        message: "spec.bootstrap is immutable: create a new cluster to restore another snapshot",
    },
    Rule {
        places: CLUSTER,
        rule: "!has(self.bootstrap) || !has(self.bootstrap.restore) || !has(self.storage) || !has(self.storage.medium) || self.storage.medium != 'Memory'",
        message: "spec.bootstrap.restore is unsupported with spec.storage.medium=Memory: restore into a cluster on volumes",
    },
    Rule {
        places: SIZE,
        rule: "!isQuantity(string(oldSelf)) || (isQuantity(string(self)) && quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0)",
        message: "spec.storage.size cannot be shrunk: keep it or make it larger",
    },
    Rule {
        places: MEDIUM,
        rule: "self == oldSelf",
        message: "spec.storage.medium is immutable: create a new cluster to change it",
    },
    Rule {
        places: CLIENT_TLS,
        rule: "has(self.serverSecretRef) != has(self.certManager)",
        message: "exactly one of spec.tls.client.serverSecretRef or spec.tls.client.certManager must be set",
    },
    Rule {
        places: CLIENT_TLS,
        rule: "!has(self.operatorClientSecretRef) || !has(self.certManager)",
        message: "spec.tls.client.operatorClientSecretRef cannot be combined with certManager: use certManager.operatorClientIssuerRef",
    },
    Rule {
        places: PEER_TLS,
        rule: "has(self.secretRef) != has(self.certManager)",
        message: "exactly one of spec.tls.peer.secretRef or spec.tls.peer.certManager must be set",
    },
    Rule {
        places: RESTORE,
        rule: "!has(self.source.s3) || (has(self.source.s3.key) && self.source.s3.key != '')",
        message: "a restore from s3 needs the exact (non-empty) object key in source.s3.key",
    },
    Rule {
        places: RESTORE,
        rule: "!has(self.source.pvc) || (has(self.source.pvc.subPath) && self.source.pvc.subPath != '')",
        message: "a restore from a claim needs the exact (non-empty) snapshot file path in source.pvc.subPath",
    },
    Rule {
        places: &[("EtcdCluster", "spec.bootstrap.restore.source")],
        rule: "has(self.s3) != has(self.pvc)",
        message: "spec.bootstrap.restore.source needs one place to restore from, s3 or pvc (as a snapshot needs exactly one of destination.s3 or destination.pvc)",
    },
    Rule {
        places: &[("EtcdMember", "spec.restore.source")],
        rule: "has(self.s3) != has(self.pvc)",
        message: "spec.restore.source needs one place to restore from, s3 or pvc (as a snapshot needs exactly one of destination.s3 or destination.pvc)",
    },
    Rule {
        places: &[("EtcdSnapshot", "spec.destination")],
        rule: "has(self.s3) != has(self.pvc)",
        message: "exactly one of destination.s3 or destination.pvc must be set",
    },
];

/// What the Go operator says with a regular expression, in words.
const SPELLING: &[Rule] = &[
    Rule {
        places: &[("EtcdCluster", "spec.version"), ("EtcdMember", "spec.version")],
        rule: "self.matches('^[0-9]+[.][0-9]+[.][0-9]+$')",
        message: "spec.version must be three numbers like 3.6.16, without a leading v and without a suffix",
    },
    // The pattern of a quantity, which every Kubernetes has for it, stands beside this.
    Rule {
        places: &[
            ("EtcdCluster", "spec.storage.size"),
            ("EtcdDefrag", "spec.rule.freeSpaceAbove"),
            ("EtcdDefrag", "spec.rule.minReclaim"),
        ],
        rule: "isQuantity(string(self))",
        message: "must be a quantity like 1Gi or 500Mi: a number and one of Ki, Mi, Gi, Ti or k, M, G, T, without a B",
    },
];

/// Rules of EtcdDefrag, as in the Go operator.
const DEFRAG: &[Rule] = &[
    Rule {
        places: &[("EtcdDefrag", "spec.clusterRef")],
        rule: "has(self.name) && self.name != ''",
        message: "spec.clusterRef.name must not be empty: name the EtcdCluster to defragment",
    },
    Rule {
        places: &[("EtcdDefrag", "spec.rule")],
        rule: "!has(self.all) || !self.all || (!has(self.freeSpaceAbove) && !has(self.quotaUsageAbove) && !has(self.minReclaim))",
        message: "spec.rule.all excludes freeSpaceAbove, quotaUsageAbove and minReclaim: set all or the others",
    },
    Rule {
        places: &[("EtcdDefrag", "spec.rule.freeSpaceAbove")],
        rule: "!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",
        message: "spec.rule.freeSpaceAbove must be greater than 0; use all: true to defragment every member",
    },
    Rule {
        places: &[("EtcdDefrag", "spec.rule.minReclaim")],
        rule: "!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",
        message: "spec.rule.minReclaim must be greater than 0; use all: true to defragment every member",
    },
    Rule {
        places: &[("EtcdDefrag", "spec.rule")],
        rule: "!has(self.minReclaim) || has(self.quotaUsageAbove)",
        message: "spec.rule.minReclaim only works with quotaUsageAbove: set that too, or use freeSpaceAbove alone",
    },
    Rule {
        places: &[("EtcdDefrag", "spec.rule")],
        rule: "!has(self.minReclaim) || !has(self.freeSpaceAbove) || !isQuantity(string(self.minReclaim)) || !isQuantity(string(self.freeSpaceAbove)) || quantity(string(self.minReclaim)).compareTo(quantity(string(self.freeSpaceAbove))) <= 0",
        message: "spec.rule.minReclaim must be at most freeSpaceAbove: a member above freeSpaceAbove is always defragmented",
    },
];

/// Where we are stricter than the Go operator: objects it admits and cannot handle.
///
/// None of them may stand in the way of an object that is stored already. Each sits as deep as it can, because the API
/// server does not ask again about a value that did not change. The root changes with every write: the rules on names
/// ask for `status` instead, which the API server drops from new objects and which every object the operator has ever
/// looked at has.
const STRICTER: &[Rule] = &[
    Rule {
        places: &[("EtcdCluster", "")],
        rule: "has(self.spec)",
        message: "spec is required: say at least which version of etcd you want, for example spec.version: 3.6.16",
    },
    Rule {
        places: &[("EtcdMember", ""), ("EtcdSnapshot", ""), ("EtcdDefrag", "")],
        rule: "has(self.spec)",
        message: "spec is required",
    },
    Rule {
        places: &[("EtcdCluster", "")],
        rule: "has(self.status) || !self.metadata.name.contains('.')",
        message: "metadata.name must not contain dots: it becomes the name of a Service; use '-' instead",
    },
    Rule {
        places: &[("EtcdCluster", "")],
        rule: "has(self.status) || self.metadata.name.size() <= 56",
        message: "metadata.name must have at most 56 characters: the Service <name>-client must fit into 63; choose a shorter name",
    },
    Rule {
        places: &[("EtcdCluster", "")],
        rule: "has(self.status) || self.metadata.name.size() <= 48 || !has(self.spec) || !has(self.spec.tls) || !has(self.spec.tls.client) || !has(self.spec.tls.client.certManager) || !has(self.spec.tls.client.certManager.operatorClientIssuerRef)",
        message: "metadata.name must have at most 48 characters with spec.tls.client.certManager.operatorClientIssuerRef: the certificate's common name <name>-operator-client must fit into 64; choose a shorter name",
    },
    Rule {
        places: &[("EtcdCluster", "spec.storage")],
        rule: "(has(self.medium) && self.medium == 'Memory') || !isQuantity(string(self.size)) || quantity(string(self.size)).isGreaterThan(quantity('0'))",
        message: "spec.storage.size must be > 0: no volume can be empty; leave it out for 1Gi",
    },
    // A volume may be larger than its claim, or not limited at all. A tmpfs is exactly as large as it says.
    Rule {
        places: &[("EtcdCluster", "spec.storage")],
        rule: "!has(self.medium) || self.medium != 'Memory' || !isQuantity(string(self.size)) || !quantity(string(self.size)).isGreaterThan(quantity('0')) || quantity(string(self.size)).isGreaterThan(quantity('64M'))",
        message: "spec.storage.size must be more than 64M with spec.storage.medium=Memory: etcd takes 64 MB for its log before it starts; 256Mi is a good beginning",
    },
    // Not on EtcdMember: a cluster that was stored before must be able to replace its members.
    Rule {
        places: &[("EtcdCluster", "spec.version")],
        rule: "!self.matches('^([0-2][.][0-9]+|3[.][0-4])[.][0-9]+$')",
        message: "spec.version must be 3.5.0 or newer: the operator does not support older versions of etcd",
    },
    Rule {
        places: &[("EtcdCluster", "spec.replicas")],
        rule: "self <= 31",
        message: "spec.replicas must be at most 31: every member takes part in every write; etcd recommends 3, 5 or 7",
    },
    // etcd takes the duration for that many nanoseconds, and these for revisions: it would never compact.
    Rule {
        places: &[("EtcdCluster", "spec.options")],
        rule: "!has(self.autoCompactionMode) || self.autoCompactionMode != 'revision' || !has(self.autoCompactionRetention) || self.autoCompactionRetention.matches('^[0-9]+$')",
        message: "spec.options.autoCompactionRetention must be a number of revisions like 1000 with autoCompactionMode: revision; durations like 5m go with autoCompactionMode: periodic",
    },
    Rule {
        places: &[("EtcdCluster", "spec.auth")],
        rule: "!has(self.enabled) || !self.enabled || !has(self.rootCredentialsSecretRef) || self.rootCredentialsSecretRef.name != ''",
        message: "spec.auth.rootCredentialsSecretRef.name must not be empty: name the Secret that holds the password of root",
    },
    Rule {
        places: &[("EtcdCluster", "spec.tls.client.serverSecretRef")],
        rule: "self.name != ''",
        message: "spec.tls.client.serverSecretRef.name must not be empty: name the Secret, or leave spec.tls.client out for plaintext",
    },
    Rule {
        places: &[("EtcdCluster", "spec.tls.client.operatorClientSecretRef")],
        rule: "self.name != ''",
        message: "spec.tls.client.operatorClientSecretRef.name must not be empty: name the Secret, or leave it out for TLS without client certificates",
    },
    Rule {
        places: &[("EtcdCluster", "spec.tls.peer.secretRef")],
        rule: "self.name != ''",
        message: "spec.tls.peer.secretRef.name must not be empty: name the Secret, or leave spec.tls.peer out for plaintext",
    },
    Rule {
        places: &[
            ("EtcdCluster", "spec.bootstrap.restore.source.s3.credentialsSecretRef"),
            ("EtcdSnapshot", "spec.destination.s3.credentialsSecretRef"),
        ],
        rule: "self.name != ''",
        message: "s3.credentialsSecretRef.name must not be empty: name the Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    },
    Rule {
        places: &[("EtcdSnapshot", "spec.clusterRef")],
        rule: "self.name != ''",
        message: "spec.clusterRef.name must not be empty: name the EtcdCluster to take a snapshot of",
    },
    Rule {
        places: &[("EtcdSnapshot", "spec")],
        rule: "self == oldSelf",
        message: "spec is immutable: create another EtcdSnapshot",
    },
];

/// Every rule there is.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    SHARED.iter().chain(SPELLING).chain(DEFRAG).chain(STRICTER)
}

/// Adds the rules of `kind` to its schema.
pub(super) fn add(kind: &str, root: &mut Value) {
    for rule in all() {
        for (_, path) in rule.places.iter().filter(|(of, _)| *of == kind) {
            let Some(schema) = at(root, path) else { continue };
            let rules = schema.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
            if let Some(rules) = rules.as_array_mut() {
                rules.push(json!({"rule": rule.rule, "message": rule.message}));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_lands_in_a_schema() {
        let manifests = super::super::all().unwrap();
        for rule in all() {
            for (kind, path) in rule.places {
                let manifest = manifests.iter().find(|m| m.kind == *kind).unwrap();
                let mut root =
                    manifest.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
                let schema = at(&mut root, path).unwrap_or_else(|| panic!("{kind} has no {path}"));
                let rules = schema["x-kubernetes-validations"].as_array().unwrap();
                assert!(rules.iter().any(|r| r["rule"] == rule.rule), "{kind} {path}: {}", rule.message);
            }
        }
    }

    #[test]
    fn quantities_are_always_made_strings_first() {
        for rule in all() {
            for (at, _) in rule.rule.match_indices("uantity(") {
                let argument = &rule.rule[at + "uantity(".len()..];
                assert!(argument.starts_with("string(") || argument.starts_with('\''), "{}", rule.rule);
            }
        }
    }

    #[test]
    fn the_docs_list_where_we_are_stricter() {
        let docs = include_str!("../../../../docs/api.md");
        for rule in STRICTER {
            assert!(docs.contains(rule.message), "docs/api.md does not say: {}", rule.message);
        }
    }
}
