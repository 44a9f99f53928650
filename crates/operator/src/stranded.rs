//! Whether a volume can be used anywhere at all. A Pod without a node has lost its data only if its volume is tied to nodes
//! of which none is there and takes Pods; one that merely lacks processors, memory or a rule's blessing has lost nothing
//! (T27). Looked up only for Pods that have no node, and remembered for a moment.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use planner::ClusterView;
use tokio::time::Instant;

use crate::act::limited;

/// Nodes come and go slowly, beside the time a Pod is waited for.
const FRESH: Duration = Duration::from_secs(20);

/// Finds out.
pub struct Strandings {
    pub client: Client,
    known: Mutex<HashMap<String, (Instant, bool)>>,
}

impl Strandings {
    pub fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// Notes for every member whose Pod has no node whether its volume has.
    pub async fn look(&self, view: &mut ClusterView) {
        for member in &mut view.members {
            let volume = member.volume.as_ref().and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
            if let Some(volume) = volume.filter(|_| member.pod.as_ref().is_some_and(has_no_node)) {
                member.stranded = self.is_stranded(&volume).await;
            }
        }
    }

    async fn is_stranded(&self, volume: &str) -> bool {
        let now = Instant::now();
        let known = |map: &HashMap<String, (Instant, bool)>| map.get(volume).copied();
        let before = known(&self.known.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some((_, stranded)) = before.filter(|(at, _)| now.duration_since(*at) < FRESH) {
            return stranded;
        }
        let stranded = self.ask(volume).await.unwrap_or_else(|why| {
            tracing::debug!(volume, "whether it can be used on any node is not known: {why}");
            false
        });
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (at, _)| now.duration_since(*at) < FRESH);
        all.insert(volume.to_owned(), (now, stranded));
        stranded
    }

    async fn ask(&self, volume: &str) -> Result<bool, crate::act::Error> {
        let what = format!("PersistentVolume {volume}");
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let Some(found) = limited(&what, volumes.get_opt(volume)).await? else { return Ok(false) };
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = limited("the nodes", nodes.list(&ListParams::default())).await?;
        Ok(is_stranded(&found, &nodes.items))
    }
}

/// Whether the scheduler has no place for a Pod.
pub fn has_no_node(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "PodScheduled" && c.status == "False")
}

/// Whether a volume is tied to nodes, and none of these is there, ready, and takes Pods.
pub fn is_stranded(volume: &PersistentVolume, nodes: &[Node]) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    let Some(selector) = affinity else { return false };
    let usable = |node: &&Node| {
        let cordoned = node.spec.as_ref().is_some_and(|s| s.unschedulable == Some(true));
        let conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let ready = conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
        ready && !cordoned
    };
    !nodes
        .iter()
        .filter(usable)
        .any(|node| selector.node_selector_terms.iter().any(|term| matches(term, node)))
}

fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    let is_empty = labels.clone().next().is_none() && fields.clone().next().is_none();
    let label = |r: &NodeSelectorRequirement| holds(r, node.labels().get(&r.key).map(String::as_str));
    // The only field there is.
    let field = |r: &NodeSelectorRequirement| holds(r, node.metadata.name.as_deref());
    !is_empty && labels.into_iter().all(label) && fields.into_iter().all(field)
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = || value.is_some_and(|value| values.iter().any(|v| v == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = |greater: bool| match (value.and_then(number), values.first().and_then(|v| number(v))) {
        (Some(value), Some(limit)) => {
            if greater {
                value > limit
            } else {
                value < limit
            }
        }
        _ => false,
    };
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared(true),
        "Lt" => compared(false),
        // Unknown: better a member that is waited for than one that is given up.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume(terms: &serde_json::Value) -> PersistentVolume {
        serde_json::from_value(
            json!({ "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } } }),
        )
        .unwrap()
    }

    fn node(name: &str, ready: bool, cordoned: bool) -> Node {
        serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "zone": "a" } },
            "spec": { "unschedulable": cordoned },
            "status": { "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "Unknown" } }] },
        }))
        .unwrap()
    }

    #[test]
    fn t27_a_volume_is_stranded_if_no_node_it_is_tied_to_takes_pods() {
        let tied = volume(&json!([{ "matchExpressions": [
            { "key": "kubernetes.io/hostname", "operator": "In", "values": ["one"] },
        ] }]));
        assert!(!is_stranded(&tied, &[node("one", true, false)]), "its node is merely full");
        assert!(is_stranded(&tied, &[node("one", true, true), node("two", true, false)]), "cordoned");
        assert!(is_stranded(&tied, &[node("one", false, false), node("two", true, false)]), "silent");
        assert!(is_stranded(&tied, &[node("two", true, false)]), "gone");
    }

    #[test]
    fn t27_a_volume_that_can_move_is_never_stranded() {
        assert!(!is_stranded(&PersistentVolume::default(), &[]));
        let zonal =
            volume(&json!([{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] }]));
        assert!(
            !is_stranded(&zonal, &[node("one", false, false), node("two", true, false)]),
            "another node of its zone"
        );
    }
}
