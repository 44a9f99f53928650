//! Objects of kinds that this version does nothing about: they are told so, instead of being left in silence.

use api::conditions::{self, NewCondition, reason};
use api::{EtcdDefrag, EtcdSnapshot};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::Declared;

/// A kind that nobody works on yet.
pub trait Unsupported: Declared + Clone {
    /// The condition that says so.
    const CONDITION: &'static str;
    /// What this version does not do, after "does not".
    const DEED: &'static str;

    /// Whether it has come to its end, by the hand of another operator.
    fn is_final(&self) -> bool;

    /// Its conditions.
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;
}

impl Unsupported for EtcdSnapshot {
    const CONDITION: &'static str = conditions::READY;
    const DEED: &'static str = "take snapshots";

    fn is_final(&self) -> bool {
        self.status.as_ref().and_then(|s| s.phase).is_some_and(|phase| phase.is_final())
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.status.get_or_insert_default().conditions
    }
}

impl Unsupported for EtcdDefrag {
    const CONDITION: &'static str = conditions::DEFRAG_CHECKED;
    const DEED: &'static str = "defragment";

    fn is_final(&self) -> bool {
        self.status.as_ref().and_then(|s| s.phase).is_some_and(|phase| phase.is_final())
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.status.get_or_insert_default().conditions
    }
}

/// The object as it should be, and what it says then; `None` if it says so already, or is not to be touched.
pub fn decline<K: Unsupported>(object: &K, now: Timestamp) -> Option<(K, String)> {
    let metadata = object.meta();
    if metadata.deletion_timestamp.is_some() || object.is_final() {
        return None;
    }
    let message = format!("this version of the operator does not {} yet; nothing was done", K::DEED);
    let said =
        NewCondition::new(K::CONDITION, false, reason::UNSUPPORTED, message.clone(), metadata.generation);
    let mut told = object.clone();
    conditions::set_condition(told.conditions_mut(), said, now).then_some((told, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::now;
    use api::{EtcdSnapshotStatus, SnapshotPhase};

    #[test]
    fn an_object_that_nobody_works_on_is_told_so_once() {
        let snapshot = EtcdSnapshot::default();
        let (told, message) = decline(&snapshot, now()).unwrap();
        assert!(message.contains("does not take snapshots"), "{message}");
        let condition = &told.status.as_ref().unwrap().conditions[0];
        assert_eq!((condition.type_.as_str(), condition.reason.as_str()), ("Ready", "Unsupported"));
        assert!(decline(&told, now()).is_none());

        let (told, _) = decline(&EtcdDefrag::default(), now()).unwrap();
        assert_eq!(told.status.unwrap().conditions[0].type_, "DefragChecked");
    }

    #[test]
    fn what_has_come_to_its_end_or_is_going_is_left_as_it_is() {
        let phase = Some(SnapshotPhase::Complete);
        let mut snapshot = EtcdSnapshot {
            status: Some(EtcdSnapshotStatus { phase, ..Default::default() }),
            ..EtcdSnapshot::default()
        };
        assert!(decline(&snapshot, now()).is_none());
        snapshot.status = None;
        snapshot.metadata.deletion_timestamp = Some(conditions::wire_time(now()));
        assert!(decline(&snapshot, now()).is_none());
    }
}
