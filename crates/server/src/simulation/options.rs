//! Effects of options that need a simulated clock. `myriad` observes those of all other options.

use super::world::{Plan, World};

const MINUTE_NS: u64 = 60_000_000_000;
const MS_NS: u64 = 1_000_000;

/// OBJECT FREQ of a new key, which begins at 5, ten minutes after it was written.
fn frequency_of_an_old_key(lfu_decay_time: &str) -> Vec<u8> {
    let options = vec![
        ("maxmemory-policy", "allkeys-lfu".to_owned()),
        ("lfu-decay-time", lfu_decay_time.to_owned()),
    ];
    let mut world = World::new(1, Plan { reactors: 1, options, ..Plan::default() });
    assert_eq!(world.ask(b"SET text0 v\r\n"), b"+OK\r\n");
    world.advance(10 * MINUTE_NS);
    world.ask(b"OBJECT FREQ text0\r\n")
}

#[test]
fn lfu_decay_time_is_the_time_after_which_a_counter_falls() {
    assert_eq!(frequency_of_an_old_key("1"), b":0\r\n");
    assert_eq!(frequency_of_an_old_key("4"), b":3\r\n");
    assert_eq!(frequency_of_an_old_key("0"), b":5\r\n");
}

/// DBSIZE 40 ms after the only key has expired, without a request that names it.
fn keys_soon_after_expiry(hz: &str) -> Vec<u8> {
    let options = vec![("hz", hz.to_owned())];
    let mut world = World::new(1, Plan { reactors: 1, options, ..Plan::default() });
    assert_eq!(world.ask(b"SET text0 v PX 10\r\n"), b"+OK\r\n");
    for _ in 0..50 {
        world.advance(MS_NS);
        world.step(0);
    }
    world.ask(b"DBSIZE\r\n")
}

#[test]
fn hz_is_the_number_of_rounds_per_second() {
    assert_eq!(keys_soon_after_expiry("200"), b":0\r\n");
    assert_eq!(keys_soon_after_expiry("1"), b":1\r\n");
}
