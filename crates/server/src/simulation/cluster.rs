//! Commands about the slots of keys, with `cluster-view`.

use super::world::{Plan, World};

/// Sends a request and returns the lines of the reply.
fn ask(world: &mut World, request: &str) -> Vec<String> {
    let reply = world.ask(format!("{request}\r\n").as_bytes());
    String::from_utf8_lossy(&reply).lines().map(str::to_owned).collect()
}

/// The keys that complete scans with these options return, in order.
fn scan(world: &mut World, options: &str) -> Vec<String> {
    let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
    for _ in 0..1000 {
        let lines = ask(world, &format!("CLUSTERSCAN {cursor} {options}"));
        cursor.clone_from(&lines[2]);
        keys.extend(lines[4..].iter().skip(1).step_by(2).cloned());
        if cursor == "0" {
            keys.sort();
            keys.dedup();
            return keys;
        }
        assert!(cursor.contains("-{"), "{cursor}");
    }
    panic!("the scan does not end");
}

#[test]
fn slots_have_keys_that_can_be_listed_counted_and_removed() {
    let options = vec![("cluster-view", "yes".to_owned())];
    let mut world = World::new(1, Plan { options, ..Plan::default() });
    for number in 0..50 {
        ask(&mut world, &format!("SET {{a}}{number} v"));
        ask(&mut world, &format!("SET {{b}}{number} v"));
    }
    assert_eq!(scan(&mut world, "COUNT 7").len(), 100);
    let in_slot = scan(&mut world, "SLOT 15495 COUNT 1000");
    assert_eq!(in_slot.len(), 50);
    assert!(in_slot.iter().all(|key| key.starts_with("{a}")));
    assert_eq!(scan(&mut world, "MATCH *7").len(), 10);
    assert_eq!(scan(&mut world, "TYPE hash").len(), 0);
    for (cursor, error) in [
        ("x", "-ERR Invalid cursor"),
        ("7", "-ERR Invalid cursor"),
        ("0 SLOT 16384", "-ERR Invalid or out of range slot"),
        ("0 NONSENSE 1", "-ERR syntax error"),
    ] {
        assert_eq!(ask(&mut world, &format!("CLUSTERSCAN {cursor}")), [error]);
    }
    let stats = ask(&mut world, "CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 2");
    let expected = "*2|*2|:3300|*2|$9|key-count|:50|*2|:15495|*2|$9|key-count|:50".split('|');
    assert_eq!(stats, expected.collect::<Vec<_>>());
    assert_eq!(ask(&mut world, "CLUSTER FLUSHSLOT 15495"), ["+OK"]);
    world.die(true, binlog::Faults::default());
    assert_eq!(ask(&mut world, "DBSIZE"), [":50"], "the removal is on the log");
    assert_eq!(ask(&mut world, "CLUSTER GETSLOTMIGRATIONS"), ["*0"]);
}
