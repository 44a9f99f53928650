//! etcd's alarms as conditions. They appear when first raised and stay, False, after they are gone.

use api::EtcdClusterStatus;
use api::conditions::{self, reason};

use crate::view::Scene;

pub(crate) fn judge(scene: &Scene<'_>, status: &mut EtcdClusterStatus) {
    // Silence is no all-clear.
    if scene.members.iter().all(|m| m.serving().is_none()) {
        return;
    }
    let no_space = "the database has reached its quota and etcd refuses writes: compact, defragment, then disarm the alarm";
    let corrupt =
        "etcd found a member whose data differs from the others'; do not write, compare the members";
    for (alarm, condition, message) in
        [("NOSPACE", conditions::NO_SPACE, no_space), ("CORRUPT", conditions::CORRUPT, corrupt)]
    {
        if is_raised(scene, alarm) {
            scene.set_condition(status, condition, true, reason::ALARM_RAISED, message);
        } else if conditions::find(&status.conditions, condition).is_some() {
            scene.set_condition(status, condition, false, reason::NO_ALARM, "");
        }
    }
}

/// Every member reports the alarms of all, as `memberID:… alarm:NOSPACE`.
pub(crate) fn is_raised(scene: &Scene<'_>, alarm: &str) -> bool {
    let wanted = format!("alarm:{alarm}");
    let mut complaints = scene.members.iter().filter_map(|m| m.serving()).flat_map(|s| &s.errors);
    complaints.any(|text| text.split_whitespace().any(|word| word == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::World;
    use api::EtcdCluster;

    fn complain(world: &mut World, text: &str) {
        if let Some(Ok(status)) = &mut world.member(0).etcd {
            status.errors = vec![text.to_owned()];
        }
    }

    #[test]
    fn t18_alarms_are_conditions_and_do_not_make_members_unready() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        assert_eq!(world.condition(conditions::NO_SPACE), "", "never raised, never mentioned");
        complain(&mut world, "memberID:13803658152347727308 alarm:NOSPACE ");
        world.pass();
        assert_eq!(world.condition(conditions::NO_SPACE), "True/AlarmRaised");
        assert_eq!(world.condition(conditions::CORRUPT), "");
        assert_eq!(world.condition(conditions::AVAILABLE), "True/QuorumHealthy");
        complain(&mut world, "");
        assert_eq!(world.condition(conditions::NO_SPACE), "False/NoAlarm");
    }

    #[test]
    fn silence_is_no_all_clear() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        complain(&mut world, "memberID:1 alarm:CORRUPT ");
        world.pass();
        world.silence_etcd();
        assert_eq!(world.condition(conditions::CORRUPT), "True/AlarmRaised");
    }
}
