//! Why a member is not there yet, in one clause that names the object: for conditions, where people look first.

use api::names;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::healing::has_ended;
use crate::pod::etcd_status;
use crate::sightings::unschedulable;
use crate::view::{Assessed, MemberView, Scene};

/// Longest text that is passed on from somebody else.
const LONGEST: usize = 300;

/// What the first member that is not ready waits for; or what was refused of the cluster's own objects.
pub(crate) fn first(scene: &Scene<'_>) -> Option<String> {
    let mut waiting = scene.running().filter(|m| !m.is_ready());
    waiting.find_map(|m| of(scene, m)).or_else(|| refused(scene))
}

/// Something of the cluster's own that the API server does not take.
fn refused(scene: &Scene<'_>) -> Option<String> {
    scene.view.refused.values().next().map(|why| cut(why))
}

fn of(scene: &Scene<'_>, member: &Assessed<'_>) -> Option<String> {
    let (name, claim) = (member.name(), names::pvc(member.name()));
    let about = |object: String| scene.view.refused.get(&object).map(|why| cut(why));
    if let Some(why) = about(format!("PersistentVolumeClaim {claim}"))
        .or_else(|| about(format!("Pod {name}")))
        .or_else(|| about(format!("EtcdMember {name}")))
    {
        return Some(why);
    }
    let pod = member.pod.as_ref().filter(|p| member.owns(&p.metadata))?;
    pod_waits(member, pod).map(|why| format!("waiting for Pod {name}: {why}"))
}

fn pod_waits(member: &MemberView, pod: &Pod) -> Option<String> {
    if has_ended(pod) {
        let status = pod.status.as_ref()?;
        let why = status.reason.as_deref().or(status.message.as_deref()).unwrap_or("it has ended");
        return Some(cut(why));
    }
    if let Some(condition) = unschedulable(pod) {
        let why = condition.message.as_deref().unwrap_or("no node can run it");
        return Some(format!("Unschedulable, {}{}", cut(why), unbound(member, why)));
    }
    let etcd = etcd_status(pod)?;
    let waiting = etcd.state.as_ref()?.waiting.as_ref()?;
    let reason =
        waiting.reason.as_deref().filter(|r| !matches!(*r, "ContainerCreating" | "PodInitializing"))?;
    let last = last_words(etcd).or_else(|| waiting.message.as_deref().map(cut));
    let restarts = if etcd.restart_count > 0 {
        format!(" after {} restarts", etcd.restart_count)
    } else {
        String::new()
    };
    let image = if reason.contains("Image") {
        format!(" (etcd {})", member.member.spec.version)
    } else {
        String::new()
    };
    Some(match last {
        Some(words) => format!("{reason}{restarts}{image}, {words}"),
        None => format!("{reason}{restarts}{image}"),
    })
}

/// The claim that keeps the Pod from a node, where the scheduler says that it is a claim: it says neither which one nor
/// from which class. Where it is something else, a claim may wait for the Pod instead.
fn unbound(member: &MemberView, why: &str) -> String {
    let volume = member.volume.as_ref().filter(|_| why.contains("PersistentVolumeClaim"));
    if volume.is_none_or(|claim| claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some())) {
        return String::new();
    }
    let class = match member.member.spec.storage.storage_class_name.as_deref() {
        None => "of the default StorageClass".to_owned(),
        Some("") => "without a StorageClass".to_owned(),
        Some(class) => format!("of StorageClass {class}"),
    };
    format!("; PersistentVolumeClaim {} {class} is not bound", names::pvc(member.name()))
}

/// What etcd said last before it died: the end of its log, which the kubelet keeps as the termination message.
fn last_words(etcd: &ContainerStatus) -> Option<String> {
    let ended = etcd.last_state.as_ref()?.terminated.as_ref()?;
    let line = ended.message.as_deref()?.lines().rev().find(|line| !line.trim().is_empty())?;
    // etcd logs JSON; the sentence in it is what counts.
    let said = serde_json::from_str::<serde_json::Value>(line).ok();
    let text = said.as_ref().map(|json| {
        let part = |key: &str| json[key].as_str().filter(|text| !text.is_empty());
        match (part("msg"), part("error")) {
            (Some(msg), Some(error)) => format!("{msg}: {error}"),
            (Some(msg), None) => msg.to_owned(),
            _ => line.to_owned(),
        }
    });
    Some(format!("etcd said: {}", cut(&text.unwrap_or_else(|| line.to_owned()))))
}

fn cut(text: &str) -> String {
    let text = text.trim().replace('\n', " ");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use api::{EtcdCluster, conditions};
    use k8s_openapi::api::core::v1::PodCondition;

    use crate::fixtures::World;

    #[test]
    fn a_pod_without_a_node_names_the_claim_that_is_not_bound() {
        let mut cluster = EtcdCluster::test("ns", "c").replicas(1);
        cluster.spec.storage.storage_class_name = Some("no-such-class".to_owned());
        let mut world = World::new(cluster);
        while world.view.members.first().is_none_or(|m| m.pod.is_none()) {
            world.pass();
        }
        world.silence_etcd();
        let member = world.member(0);
        let claim = api::names::pvc(member.name());
        let spec = member.volume.as_mut().unwrap().spec.get_or_insert_default();
        spec.volume_name = None;
        let status = member.pod.as_mut().unwrap().status.get_or_insert_default();
        status.container_statuses = None;
        status.conditions = Some(vec![PodCondition {
            type_: "PodScheduled".into(),
            status: "False".into(),
            reason: Some("Unschedulable".into()),
            message: Some(
                "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.".into(),
            ),
            ..PodCondition::default()
        }]);
        let message = |world: &World| {
            let status = world.status();
            conditions::find(&status.conditions, conditions::PROGRESSING).unwrap().message.clone()
        };
        let told = message(&world);
        for words in ["Unschedulable, 0/3 nodes", &claim, "of StorageClass no-such-class is not bound"] {
            assert!(told.contains(words), "{told}");
        }
        let conditions = world.member(0).pod.as_mut().unwrap().status.as_mut().unwrap().conditions.as_mut();
        conditions.unwrap()[0].message = Some("0/3 nodes are available: 3 Insufficient cpu.".into());
        assert!(
            !message(&world).contains(&claim),
            "the claim waits for the Pod, and not the other way round"
        );
    }
}
