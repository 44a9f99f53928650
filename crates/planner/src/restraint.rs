//! The same deed with the same effect is done less and less often (T35): somebody undoes it, or it does not help. A webhook
//! that takes a patch back, or a kubelet that fails every Pod, would otherwise be answered at full speed for ever.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Action;

/// So often a deed is done before it is held back.
const FREE: u32 = 4;
/// So often a deed fails before that is told.
const HOPELESS: u32 = 8;
/// A deed that was not repeated for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// What was done lately, and how often. Lost with the process, which costs a few repetitions.
#[derive(Clone, Debug, Default)]
pub struct Restraint {
    deeds: BTreeMap<String, Repeated>,
}

#[derive(Clone, Debug)]
struct Repeated {
    times: u32,
    last: Duration,
}

impl Repeated {
    fn pause(&self) -> Duration {
        match self.times.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(beyond) => FIRST.saturating_mul(1 << beyond.min(10)).min(LONGEST),
        }
    }
}

impl Restraint {
    /// How long the step has to wait, if it does. `now` is a clock that only goes forward.
    pub fn holds_back(&self, action: &Action, now: Duration) -> Option<Duration> {
        let repeated = self.deeds.get(&action.deed()?)?;
        let left = (repeated.last + repeated.pause()).saturating_sub(now);
        (!left.is_zero()).then_some(left)
    }

    /// Notes that a step was refused, or that what it rests on was not so. It is tried again in its own time, however often
    /// others are taken. Returns the step when it has become plain that it can not be taken.
    pub fn refused(&mut self, action: &Action, now: Duration) -> Option<String> {
        let (deed, times) = self.note(action, now)?;
        (times == HOPELESS).then_some(deed)
    }

    /// Notes that a step was taken. Returns what to tell about it, at the moment it begins to be held back.
    pub fn done(&mut self, action: &Action, now: Duration) -> Option<String> {
        if !action.is_progress() {
            return None;
        }
        let (deed, times) = self.note(action, now)?;
        (times == FREE).then(|| {
            format!(
                "the same step was taken {FREE} times within minutes, so it is undone by somebody or does not help; it is \
                 tried less often from now on: {deed}"
            )
        })
    }

    fn note(&mut self, action: &Action, now: Duration) -> Option<(String, u32)> {
        let deed = action.deed()?;
        self.deeds.retain(|_, repeated| now.saturating_sub(repeated.last) < FORGOTTEN);
        let repeated = self.deeds.entry(deed.clone()).or_insert(Repeated { times: 0, last: now });
        repeated.times += 1;
        repeated.last = now;
        Some((deed, repeated.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repair(name: &str) -> Action {
        Action::RepairService { name: name.into(), patch: serde_json::Value::Null }
    }

    #[test]
    fn t35_the_same_deed_is_done_less_and_less_often_and_that_is_said_once() {
        let mut restraint = Restraint::default();
        let (mut now, mut told, mut done) = (Duration::ZERO, 0, 0);
        while now < Duration::from_secs(600) {
            if restraint.holds_back(&repair("c"), now).is_none() {
                told += u32::from(restraint.done(&repair("c"), now).is_some());
                done += 1;
            }
            now += Duration::from_millis(100);
        }
        assert_eq!(told, 1);
        assert!((10..25).contains(&done), "{done} times in ten minutes");
        assert_eq!(restraint.holds_back(&repair("d"), now), None, "another deed is free");
        let later = now + FORGOTTEN;
        restraint.done(&repair("d"), later);
        assert_eq!(restraint.holds_back(&repair("c"), later), None, "what is long ago is forgotten");
    }

    #[test]
    fn what_is_ordinary_is_never_held_back() {
        let mut restraint = Restraint::default();
        for _ in 0..20 {
            assert_eq!(restraint.done(&Action::PersistMembership, Duration::ZERO), None);
        }
        assert_eq!(restraint.holds_back(&Action::PersistMembership, Duration::ZERO), None);
    }

    #[test]
    fn t35_that_a_member_has_restarted_once_more_makes_no_other_deed_of_its_replacement() {
        let replace = |restarts| Action::DeleteMember {
            name: "c-abcde".into(),
            uid: "x".into(),
            because: crate::Leaving::Broken(crate::Loss::CrashLoop { restarts }),
            permit: crate::Permit::forged(),
        };
        assert_eq!(replace(7).deed(), replace(8).deed());
    }

    #[test]
    fn t35_a_look_is_ordinary_and_what_it_has_to_repair_again_and_again_is_not() {
        let seek = Action::SeekLost { name: "c-abcde".into(), loss: crate::Loss::Volume };
        let mut restraint = Restraint::default();
        for _ in 0..20 {
            restraint.done(&seek, Duration::ZERO);
        }
        assert_eq!(restraint.holds_back(&seek, Duration::ZERO), None);
        for _ in 0..5 {
            restraint.refused(&seek, Duration::ZERO);
        }
        assert!(restraint.holds_back(&seek, Duration::ZERO).is_some());
    }
}
