//! Whether a volume can be used anywhere at all. A Pod without a node has lost its data only if its volume is tied to nodes
//! of which none is there and takes Pods; one that merely lacks processors, memory or a rule's blessing has lost nothing
//! (T27).

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, Pod};
use kube::ResourceExt;
use serde::Deserialize as _;
use serde_json::Value;

/// Whether the scheduler has no place for a Pod.
pub(crate) fn has_no_node(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "PodScheduled" && c.status == "False")
}

/// The same for objects as they were read; one that can not be understood is not stranded.
pub(crate) fn judge(volume: &Value, nodes: &[Value]) -> bool {
    let nodes: Result<Vec<_>, _> = nodes.iter().map(Node::deserialize).collect();
    match (PersistentVolume::deserialize(volume), nodes) {
        (Ok(volume), Ok(nodes)) => is_stranded(&volume, &nodes),
        _ => false,
    }
}

/// Whether a volume is tied to nodes, and none of these is there, ready, and takes Pods.
fn is_stranded(volume: &PersistentVolume, nodes: &[Node]) -> bool {
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

    fn volume(terms: &Value) -> PersistentVolume {
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
