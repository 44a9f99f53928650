//! A list of members is believed if nobody contradicts it (T28). A seed that was made by another operator can come back
//! without its data as a cluster of one under the same ids, and vouches for a list that has nobody else in it.

use api::conditions;
use etcd::Status;
use jiff::SignedDuration;

use crate::view::MemberView;
use crate::{ClusterView, command};

/// How long two members may both say that they lead. The old leader of a cluster that has elected another one steps down
/// within an election timeout, because it hears of no quorum.
const DISPUTE: SignedDuration = SignedDuration::from_secs(10);

/// Why there are two clusters where there should be one; `None` while nothing says so.
pub(crate) fn find(view: &ClusterView, members: &[&MemberView]) -> Option<String> {
    if let Some(why) = ahead(view, members).or_else(|| unsettled(view, members)) {
        return Some(why);
    }
    // What is on its way out has been told to leave etcd, and may serve for a moment after that.
    let serving: Vec<_> =
        members.iter().filter(|m| !m.is_deleting()).filter_map(|m| Some((*m, m.serving()?))).collect();
    unlisted(view, &serving)
        .or_else(|| forgotten(view, members))
        .or_else(|| bereft(view, members))
        .or_else(|| begun_anew(view, members))
        .or_else(|| disputed(view, &serving))
}

/// Somebody who serves is not on the list.
fn unlisted(view: &ClusterView, serving: &[(&MemberView, &Status)]) -> Option<String> {
    let seen = view.etcd.membership.as_ref()?;
    let listed = |id: u64| seen.fact.members.iter().any(|row| row.id == id);
    let (missing, _) = serving.iter().find(|(_, status)| !listed(status.member_id))?;
    Some(format!("member {} serves, but the list that {} gives does not have it", missing.name(), seen.from))
}

/// Somebody who is not on the list has applied more than who gave it: whoever was taken out stays behind the others.
fn ahead(view: &ClusterView, members: &[&MemberView]) -> Option<String> {
    let seen = view.etcd.membership.as_ref()?;
    let speaker = view.members.iter().find(|m| m.name() == seen.from)?.serving()?;
    let unlisted = |s: &Status| !seen.fact.members.iter().any(|row| row.id == s.member_id);
    let ahead = |m: &&&MemberView| {
        m.serving().is_some_and(|s| unlisted(s) && s.raft_applied_index > speaker.raft_applied_index)
    };
    let member = members.iter().find(ahead)?;
    Some(format!("member {} has seen more than {}, whose list does not have it", member.name(), seen.from))
}

/// Once it was told that there are two clusters, a list is believed again only if all who serve follow one leader. Silence
/// settles nothing: who is silent now may hold the data of the right one.
fn unsettled(view: &ClusterView, members: &[&MemberView]) -> Option<String> {
    let status = view.cluster.as_ref()?.status.as_ref()?;
    let told = conditions::find(&status.conditions, conditions::AVAILABLE)
        .is_some_and(|c| c.reason == conditions::reason::MEMBERS_DISAGREE);
    if !told {
        return None;
    }
    if view.etcd.membership.is_none() {
        return Some(
            "members contradicted each other, and nobody has given a list of all of them since".to_owned(),
        );
    }
    let following = |m: &&&MemberView| m.serving().is_some_and(|s| s.leader != 0) && !is_given_up(view, m);
    let mut following = members.iter().filter(following);
    let first = following.next()?;
    let leader = |m: &MemberView| m.serving().map(|s| s.leader);
    let other = following.find(|m| leader(m) != leader(first))?;
    Some(format!("members {} and {} still follow different leaders", first.name(), other.name()))
}

/// Of the voters on record, no quorum is on the list. Nobody takes them out that way: they leave one by one, and their
/// objects are deleted before.
fn forgotten(view: &ClusterView, members: &[&MemberView]) -> Option<String> {
    let seen = view.etcd.membership.as_ref()?;
    let votes = |m: &&&MemberView| {
        let status = m.member.status.as_ref();
        !m.is_deleting() && status.is_some_and(|s| s.is_voter && s.member_id.is_some())
    };
    let voters: Vec<_> = members.iter().filter(votes).collect();
    let missing = voters.iter().filter(|m| m.row_in(&seen.fact).is_none()).count();
    (missing > 0 && voters.len() - missing < etcd::quorum(voters.len())).then(|| {
        format!("{missing} of {} voters on record are not on the list that {} gives", voters.len(), seen.from)
    })
}

/// Somebody is alone on the list, and somebody who had joined is not on it, although nobody took them out. That goes on
/// record before it is done, where a list of one is left.
fn bereft(view: &ClusterView, members: &[&MemberView]) -> Option<String> {
    let seen = view.etcd.membership.as_ref()?;
    let [_] = seen.fact.members.as_slice() else { return None };
    let speaker = view.members.iter().find(|m| m.name() == seen.from)?;
    // Another operator may have taken somebody out before it handed over, and did not write that down.
    let inherited = speaker.pod.as_ref().is_some_and(command::is_anothers) && !speaker.may_turn_impostor();
    let missing = |m: &&&MemberView| {
        let out = m.is_told_to_leave() || (m.is_deleting() && inherited);
        m.has_joined() && m.row_in(&seen.fact).is_none() && !out
    };
    let missing = members.iter().find(missing)?;
    Some(format!("{} is alone on its list, and nobody has taken {} out", seen.from, missing.name()))
}

/// A seed that begins anew whenever it has lost its data has done so, as far as this process remembers.
fn begun_anew(view: &ClusterView, members: &[&MemberView]) -> Option<String> {
    let anew = |m: &&&MemberView| m.may_turn_impostor() && m.seen.regressed && !is_given_up(view, m);
    let member = members.iter().find(anew)?;
    Some(format!("member {} has less than it had before, and has begun anew without its data", member.name()))
}

/// Whether its user has deleted a member, and others have it on their list: then it leaves by their vote, whatever it says.
fn is_given_up(view: &ClusterView, member: &MemberView) -> bool {
    let others = |seen: &&crate::Seen<etcd::Membership>| seen.from != member.name();
    let list = view.etcd.membership.as_ref().filter(others);
    member.is_deleting() && list.is_some_and(|seen| member.row_in(&seen.fact).is_some())
}

/// What only two clusters can say, for longer than an election takes: two that lead, or different leaders in one term. What
/// etcd calls its term is that of the last entry it has applied, so that right after an election both can be true of one.
fn disputed(view: &ClusterView, serving: &[(&MemberView, &Status)]) -> Option<String> {
    view.etcd.disputed_for.filter(|lasts| *lasts > DISPUTE)?;
    contradiction(serving)
}

/// Whether members contradict each other about who leads.
pub(crate) fn is_disputed(view: &ClusterView) -> bool {
    let serving = view.members.iter().filter(|m| !m.is_deleting()).filter_map(|m| Some((m, m.serving()?)));
    contradiction(&serving.collect::<Vec<_>>()).is_some()
}

fn contradiction(serving: &[(&MemberView, &Status)]) -> Option<String> {
    let leads = |(m, s): &(&MemberView, &Status)| {
        (s.leader != 0 && s.leader == s.member_id).then(|| m.name().to_owned())
    };
    let leaders: Vec<_> = serving.iter().filter_map(leads).collect();
    if leaders.len() > 1 {
        return Some(format!("members {} all say that they lead", leaders.join(" and ")));
    }
    let led: Vec<_> = serving.iter().filter(|(_, s)| s.leader != 0).collect();
    led.iter().enumerate().find_map(|(index, (one, a))| {
        let (other, b) =
            led[index + 1..].iter().find(|(_, b)| a.raft_term == b.raft_term && a.leader != b.leader)?;
        let (term, one, other) = (a.raft_term, one.name(), other.name());
        Some(format!(
            "members {one} and {other} follow the leaders {:x} and {:x} in the same term {term}",
            a.leader, b.leader
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::World;
    use crate::{Action, Release};
    use api::EtcdCluster;

    fn silence(member: &mut MemberView) {
        member.etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
    }

    fn released(world: &World) -> bool {
        let out = |a: &Action| matches!(a, Action::ReleaseMember { because: Release::OutOfEtcd, .. });
        world.plan().actions.iter().any(out)
    }

    fn delete(member: &mut MemberView) {
        member.member.metadata.deletion_timestamp = Some(conditions::wire_time(crate::fixtures::now()));
    }

    /// As the Go operator makes a seed.
    fn fix_flags(member: &mut MemberView) {
        let pod = member.pod.as_mut().unwrap();
        pod.metadata.annotations = None;
        let flags = pod.spec.as_mut().unwrap().containers[0].command.as_mut().unwrap();
        flags.retain(|flag| !flag.starts_with("--initial-cluster"));
        flags.push("--initial-cluster-state=new".into());
    }

    /// Two members, of which the first gives a list of its own, and the second serves beside it.
    fn disagreeing() -> World {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(2));
        world.rows().truncate(1);
        world
    }

    #[test]
    fn t28_a_list_is_not_believed_again_because_who_contradicted_it_fell_silent() {
        let mut world = disagreeing();
        assert_eq!(world.condition(conditions::AVAILABLE), "False/MembersDisagree");
        world.pass();
        silence(world.member(1));
        delete(world.member(1));
        assert!(!released(&world), "it may hold the data of the right one");
        let list = world.view.etcd.membership.take();
        world.pass();
        assert_eq!(world.condition(conditions::AVAILABLE), "False/MembersDisagree", "also without any list");
        world.view.etcd.membership = list;
        assert!(!released(&world));
        world.view.members.truncate(1);
        assert_ne!(world.condition(conditions::AVAILABLE), "False/MembersDisagree", "its user gave it up");
    }

    #[test]
    fn t28_a_list_of_one_from_a_seed_with_fixed_flags_takes_nobody_out_who_was_not_told_to_leave() {
        let fixed = |told: bool| {
            let mut world = disagreeing();
            fix_flags(world.member(0));
            silence(world.member(1));
            delete(world.member(1));
            if told {
                world.member(1).member.status.as_mut().unwrap().role = Some("leaving".into());
            }
            world
        };
        assert!(!released(&fixed(false)));
        assert_eq!(fixed(false).condition(conditions::AVAILABLE), "False/MembersDisagree");
        assert!(released(&fixed(true)));
    }

    #[test]
    fn t28_who_leaves_beside_such_a_seed_is_put_on_record_first() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        delete(world.member(2));
        assert!(matches!(&world.plan().actions[..], [Action::RemoveFromEtcd { .. }]));
        fix_flags(world.member(0));
        assert_eq!(world.pass(), []);
        assert!(matches!(&world.plan().actions[..], [Action::RemoveFromEtcd { .. }]));
    }

    #[test]
    fn t28_a_seed_with_fixed_flags_that_has_less_than_before_has_begun_anew() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        let mut watchman = crate::Watchman::default();
        let applied = |world: &mut World, index: u64| {
            if let Some(Ok(status)) = &mut world.member(0).etcd {
                status.raft_applied_index = index;
            }
        };
        let mut look = |world: &mut World| {
            watchman.look(&mut world.view, std::time::Duration::from_secs(1));
            world.condition(conditions::AVAILABLE)
        };
        applied(&mut world, 500);
        assert_eq!(look(&mut world), "True/QuorumHealthy");
        applied(&mut world, 5);
        assert_eq!(look(&mut world), "True/QuorumHealthy", "one of ours can not begin anew");
        fix_flags(world.member(0));
        assert_eq!(look(&mut world), "False/MembersDisagree");
        applied(&mut world, 501);
        assert_eq!(look(&mut world), "False/MembersDisagree", "it has grown since, and is no better for it");
        world.member(0).pod.as_mut().unwrap().metadata.uid = Some("another".into());
        assert_eq!(look(&mut world), "True/QuorumHealthy");
    }

    #[test]
    fn t28_who_has_begun_anew_leaves_when_its_user_deletes_it_and_the_others_list_it() {
        for regressed in [true, false] {
            let mut world = World::settled(EtcdCluster::test("ns", "c"));
            fix_flags(world.member(0));
            let other = world.view.members[1].name().to_owned();
            world.view.etcd.membership.as_mut().unwrap().from = other;
            world.member(0).seen.regressed = true;
            world.pass();
            assert_eq!(world.condition(conditions::AVAILABLE), "False/MembersDisagree");
            // Another operator process does not remember.
            world.member(0).seen.regressed = regressed;
            if let Some(Ok(status)) = &mut world.member(0).etcd {
                (status.leader, status.raft_term) = (status.member_id, 2);
            }
            delete(world.member(0));
            world.pass();
            let actions = world.plan().actions;
            assert!(actions.iter().any(|a| matches!(a, Action::RemoveFromEtcd { .. })), "{actions:?}");
        }
    }

    #[test]
    fn t28_a_leader_that_has_just_been_elected_is_no_second_cluster() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        if let Some(Ok(status)) = &mut world.member(2).etcd {
            status.leader = status.member_id;
        }
        assert!(is_disputed(&world.view), "the term is that of the last entry applied");
        assert_eq!(world.condition(conditions::AVAILABLE), "True/QuorumHealthy");
        world.view.etcd.disputed_for = Some(SignedDuration::from_secs(11));
        assert_eq!(world.condition(conditions::AVAILABLE), "False/MembersDisagree");
    }

    #[test]
    fn t28_a_removal_that_another_operator_left_half_done_is_finished() {
        let mut world = disagreeing();
        silence(world.member(1));
        delete(world.member(1));
        assert!(!released(&world), "our own would be on record");
        fix_flags(world.member(0));
        assert!(!released(&world), "a seed of another's may have begun anew");
        let pod = world.member(0).pod.as_mut().unwrap();
        let flags = pod.spec.as_mut().unwrap().containers[0].command.as_mut().unwrap();
        flags.retain(|flag| flag != "--initial-cluster-state=new");
        flags.push("--initial-cluster-state=existing".into());
        assert!(released(&world), "a joiner of another's can not");
    }
}
