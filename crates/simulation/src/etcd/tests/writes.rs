//! Users' reads and writes.

use super::*;

#[test]
fn writes_are_acknowledged_by_every_voter_and_read_everywhere() {
    let mut world = World::of(&["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        let (key, result) = world.put(name);
        assert_eq!(result, PutResult::Acknowledged);
        for name in ["a", "b", "c"] {
            assert_eq!(world.get(name, key, true), GetResult::Found);
        }
    }
}

#[test]
fn an_acknowledged_write_is_on_a_bare_majority_until_the_next_heartbeat() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    let (key, _) = world.put(&leader);
    let copies = |world: &World| world.etcds.processes.iter().filter(|p| p.data.holds(key)).count();
    assert_eq!(copies(&world), 2);
    world.pass(100);
    assert_eq!(copies(&world), 3);
}

#[test]
fn a_write_without_a_leader_fails() {
    let mut world = World::of(&["a", "b", "c"]);
    let [one, two] = <[String; 2]>::try_from(world.followers()).unwrap();
    let leader = world.leader().unwrap();
    world.kill(&leader);
    assert_eq!(world.put(&one).1, PutResult::Unknown, "it was sent to a leader that is gone");
    world.kill(&two);
    world.pass(SETTLED);
    assert_eq!(world.put(&one).1, PutResult::Failed);
    assert_eq!(world.get(&one, 1, true), GetResult::Failed);
}

#[test]
fn t18_a_full_database_raises_no_space_in_the_whole_cluster() {
    let mut world = World::of(&["a", "b", "c"]);
    world.etcds.fill(&disk("b"));
    assert_eq!(world.put("a").1, PutResult::Acknowledged);
    assert_eq!(world.put("b").1, PutResult::Failed);
    world.pass(200);
    assert_eq!(world.put("a").1, PutResult::Failed);
    assert!(world.status("a").unwrap().errors[0].contains("NOSPACE"));
    let process = world.process("a");
    assert!(!world.etcds.healthy(&process) && world.etcds.healthy_excluding_no_space(&process));
    assert!(world.members("a").is_ok());
    world.add("a", "d").unwrap();
    world.etcds.make_room(&disk("b"));
    assert!(world.etcds.disarm(world.now, &process));
    assert_eq!(world.put("a").1, PutResult::Acknowledged);
}

#[test]
fn keys_are_kept_as_ranges() {
    let mut keys = Keys::default();
    for key in [5, 7, 6, 1, 2, 9, 0, 6, u64::MAX] {
        keys.insert(key);
    }
    assert_eq!(keys.iter().collect::<Vec<_>>(), [0, 1, 2, 5, 6, 7, 9, u64::MAX]);
    assert!(keys.contains(6) && !keys.contains(8) && !keys.contains(3));
    let mut more = keys.clone();
    more.insert(8);
    assert!(keys.is_subset(&more) && !more.is_subset(&keys));
}

/// The world calls `tick` all the time: it must cost next to nothing.
#[test]
fn a_tick_is_cheap() {
    let mut world = World::of(&["a", "b", "c"]);
    let began = std::time::Instant::now();
    for _ in 0..10_000 {
        world.pass(100);
    }
    let each = began.elapsed() / 10_000;
    assert!(each < std::time::Duration::from_micros(500), "{each:?} a tick, unoptimised");
}
