//! Starting from copied files, and from incomplete files.

use binlog::{Disk, Faults};

use super::world::{Plan, World};
use crate::engine::snapshot_taker::Progress;

/// Stripes that a snapshot step takes between two writes.
const STEPS: usize = 40;
const KEYS: usize = 2_000;

fn set(world: &mut World, prefix: &str, count: usize) {
    let mut requests = Vec::new();
    for number in 0..count {
        let key = format!("{prefix}{number}");
        wire::resp::encode_request(&[b"SET", key.as_bytes(), b"v"], &mut requests);
    }
    let answers = world.ask(&requests);
    assert_eq!(answers, b"+OK\r\n".repeat(count), "{}", String::from_utf8_lossy(&answers));
}

fn count(world: &mut World, prefix: &str, count: usize) -> usize {
    let mut requests = Vec::new();
    for number in 0..count {
        let key = format!("{prefix}{number}");
        wire::resp::encode_request(&[b"EXISTS", key.as_bytes()], &mut requests);
    }
    let answers = world.ask(&requests);
    answers.chunks(4).filter(|answer| *answer == b":1\r\n").count()
}

/// Takes a snapshot while keys are written, so that its blocks have many different positions.
fn snapshot_under_load(world: &mut World) {
    world.begin_snapshot();
    let mut round = 0;
    loop {
        set(world, &format!("during{round}-"), 3);
        round += 1;
        match world.go_on_with_snapshot(STEPS) {
            Progress::Idle => break,
            Progress::More | Progress::WaitsForLog => {}
        }
    }
    assert!(round > 50, "the snapshot took {round} steps");
}

#[test]
fn a_snapshot_alone_is_a_complete_backup() {
    let mut world = World::new(5, Plan::default());
    set(&mut world, "old", KEYS);
    snapshot_under_load(&mut world);
    world.restore_snapshot_alone();
    assert_eq!(count(&mut world, "old", KEYS), KEYS);
    let during = count(&mut world, "during0-", 3);
    set(&mut world, "new", KEYS);
    // Neither a restart nor another snapshot loses data.
    for _ in 0..2 {
        crash_and_count(&mut world);
        assert_eq!(count(&mut world, "during0-", 3), during);
        snapshot_under_load(&mut world);
    }
    crash_and_count(&mut world);
}

fn crash_and_count(world: &mut World) {
    world.restart().unwrap();
    assert_eq!(count(world, "old", KEYS), KEYS);
    assert_eq!(count(world, "new", KEYS), KEYS, "acknowledged after the restore");
}

/// The start is refused with an error that names a file and a remedy.
#[track_caller]
fn check_refused(world: &mut World, file: &str) {
    let error = world.restart().unwrap_err();
    let text = format!("{error:#}");
    for part in [file, "repair"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn a_snapshot_whose_log_is_missing_or_too_short_is_refused() {
    let start = || {
        let mut world = World::new(6, Plan::default());
        set(&mut world, "old", KEYS);
        snapshot_under_load(&mut world);
        set(&mut world, "new", 10);
        world
    };
    let segments = |world: &World| -> Vec<String> {
        let mut names = world.disk.list().unwrap();
        names.retain(|name| name.starts_with("log-"));
        names.sort_unstable();
        names
    };
    let mut world = start();
    for name in segments(&world) {
        world.disk.remove(&name).unwrap();
    }
    check_refused(&mut world, "log-");

    // The log ends between the first and the last position of the snapshot's blocks.
    let mut world = start();
    let names = segments(&world);
    world.disk.remove("log.manifest").unwrap();
    let first = world.disk.contents(&names[0]).unwrap();
    let mut cut = first.clone();
    cut[4096 + 2000..].fill(0);
    for name in &names[1..] {
        world.disk.remove(name).unwrap();
    }
    world.disk.put(&names[0], &cut);
    check_refused(&mut world, &names[0]);

    // The snapshot and the beginning of the log are missing.
    let mut world = World::new(7, Plan { segment_bytes: 8192, ..Plan::default() });
    set(&mut world, "old", KEYS);
    snapshot_under_load(&mut world);
    set(&mut world, "new", 10);
    let names = world.disk.list().unwrap();
    let snapshot = names.into_iter().find(|name| name.starts_with("snapshot-")).unwrap();
    world.disk.remove(&snapshot).unwrap();
    let first = segments(&world)[0].clone();
    check_refused(&mut world, &first);
}

/// A full disk: writes are refused or wait, reads continue, and everything acknowledged survives.
#[test]
fn a_disk_without_room_for_a_segment_loses_nothing_and_recovers() {
    let mut world = World::new(8, Plan { segment_bytes: 32 * 1024, ..Plan::default() });
    set(&mut world, "old", 100);
    let used: usize = {
        let names = world.disk.list().unwrap();
        names.iter().map(|name| world.disk.contents(name).unwrap().len()).sum()
    };
    let capacity_bytes = Some(used as u64 + 10_000);
    world.disk.set_faults(Faults { capacity_bytes, ..Faults::default() });
    let mut acknowledged = Vec::new();
    for number in 0..2_000 {
        let mut request = Vec::new();
        let key = format!("full{number}");
        wire::resp::encode_request(&[b"SET", key.as_bytes(), &[b'x'; 100]], &mut request);
        match world.ask(&request).as_slice() {
            b"+OK\r\n" => acknowledged.push(number),
            b"" => {}
            other => assert!(other.starts_with(b"-MISCONF"), "{}", String::from_utf8_lossy(other)),
        }
        if world.shared().log.stall().is_some() && acknowledged.len() + 5 < number {
            break;
        }
    }
    assert!(world.shared().log.stall().is_some(), "the disk never got full");
    assert!(!world.log_failed());
    assert_eq!(world.ask(b"EXISTS full0\r\n"), b":1\r\n", "reads continue");
    world.disk.set_faults(Faults::default());
    // The log retries after a tenth of a second.
    (0..10).for_each(|_| world.settle());
    assert!(world.shared().log.stall().is_none());
    set(&mut world, "after", 10);
    world.restart().unwrap();
    for number in acknowledged {
        let request = format!("EXISTS full{number}\r\n");
        assert_eq!(world.ask(request.as_bytes()), b":1\r\n", "full{number}");
    }
    assert_eq!(count(&mut world, "after", 10), 10);
}
