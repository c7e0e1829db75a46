//! Background work on one server of a group while another one writes: no job is a client's write.
//! A third server, on its own, runs the same requests: what it has, the group must have.

use binlog::Faults;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use store::DATABASES;

use super::cql_client::with_options;
use super::hub::{Group, conflicts, number, plan, shown};
use super::replication::{TABLE, ask, query, take_snapshot, turn};
use super::roles::login;
use super::tests::{Announce, seeds};
use super::world::World;

/// Seeds per `cargo test`.
const SEEDS: u64 = 6;
const ROUNDS: usize = 80;
const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * SECOND_NS;
const KEYS: usize = 3;

const WRITER: usize = 0;
const OTHER: usize = 1;

/// What a server does without a client that writes. Each runs on the server that takes no writes.
#[derive(Debug, Clone, Copy)]
enum Job {
    /// Keys, fields of hashes and points of series expire.
    Expire,
    /// Reads find expired keys and fields, and delete them.
    Read,
    Snapshot,
    /// Replays the log and writes the rows of the server's own schema.
    Crash,
    PowerCut,
    /// Purges tables and forgets deletions, in all stripes. All writes were received before: a
    /// server that was away for longer must be emptied.
    Purge,
}

const JOBS: [Job; 6] =
    [Job::Expire, Job::Read, Job::Snapshot, Job::Crash, Job::PowerCut, Job::Purge];

struct Run {
    group: Group,
    /// Runs the requests of the writer, and follows no server.
    alone: World,
    random: SmallRng,
    /// Of the clock of all servers.
    seconds: u64,
    points: usize,
}

impl Run {
    fn new(seed: u64) -> Run {
        let group = Group::new(seed, &[(WRITER, OTHER), (OTHER, WRITER)], None);
        let mut alone = World::new(seed, plan(number(OTHER + 1), false));
        let seconds = alone.sim().now().unix.0 / 1000;
        let random = SmallRng::seed_from_u64(seed);
        let mut run = Run { group, alone, random, seconds, points: 0 };
        run.query(TABLE);
        // One tick a second, which does as much as ten.
        ask(&mut run.group.worlds[OTHER], "CONFIG SET hz 1|");
        run.query("CREATE TABLE ks.t (k int PRIMARY KEY, v int, w int) WITH gc_grace_seconds = 0");
        run.group.settle();
        run
    }

    fn ask(&mut self, requests: &str) {
        let reply = ask(&mut self.group.worlds[WRITER], requests);
        assert!(!reply.contains("-ERR"), "{requests}: {reply}");
        assert_eq!(ask(&mut self.alone, requests), reply, "{requests}");
    }

    fn query(&mut self, statement: &str) {
        query(&mut self.group.worlds[WRITER], &[statement]);
        query(&mut self.alone, &[statement]);
    }

    fn advance(&mut self, seconds: u64) {
        self.seconds += seconds;
        for world in self.group.worlds.iter_mut().chain([&mut self.alone]) {
            world.advance(seconds * SECOND_NS);
        }
    }

    /// A write of a client. Times at which keys expire are in the middle of seconds, so that the
    /// servers agree on them at each request.
    fn write(&mut self) {
        let key = self.random.random_range(0..KEYS);
        let value = self.random.random_range(0..1000);
        let at_ms = (self.seconds + self.random.random_range(1..20)) * 1000 + 500;
        self.points += 1;
        let point = self.points;
        match self.random.random_range(0..14) {
            0 => self.ask(&format!("SET s{key} {value}|")),
            1 => self.ask(&format!("SET s{key} {value} PXAT {at_ms}|")),
            2 => self.ask(&format!("APPEND s{key} {value}|")),
            3 => self.ask(&format!("HSET h{key} f{value} 1 g {value} kept 1|")),
            4 | 5 => self.ask(&format!("HPEXPIREAT h{key} {at_ms} FIELDS 1 g|")),
            6 | 7 => self.ask(&format!("TSADD r{key} -{point} short EXPIRE_IN 2|")),
            8 => self.ask(&format!("TSADD r{key} {point} kept|")),
            9 => self.ask(&format!("ZADD z{key} {value} m|PEXPIREAT z{key} {at_ms}|")),
            10 => self.ask(&format!("DEL s{key} r{key}|")),
            11 => self.ask(&format!("SELECT 3|SET s{key} {value} PXAT {at_ms}|")),
            12 => {
                let ttl = self.random.random_range(1..9);
                self.query(&format!("UPDATE ks.t USING TTL {ttl} SET v = {value} WHERE k = {key}"));
                self.query(&format!("UPDATE ks.t SET w = {value} WHERE k = {key}"));
            }
            _ if self.random.random_bool(0.2) => self.ask("SELECT 3|FLUSHDB|"),
            _ => self.query(&format!("DELETE v FROM ks.t WHERE k = {key}")),
        }
    }

    fn run_job(&mut self, job: Job) {
        let other = &mut self.group.worlds[OTHER];
        match job {
            Job::Expire => {
                self.advance(3);
                turn(&mut self.group.worlds[OTHER]);
            }
            Job::Read => {
                ask(other, "DEBUG SET-ACTIVE-EXPIRE 0|");
                self.advance(3);
                let keys = (0..KEYS).map(|key| format!("GET s{key}|HGETALL h{key}|ZCARD z{key}|"));
                let keys: String = keys.collect();
                let reads = format!("{keys}SCAN 0 COUNT 1000|DEBUG SET-ACTIVE-EXPIRE 1|");
                ask(&mut self.group.worlds[OTHER], &reads);
            }
            Job::Snapshot => take_snapshot(other),
            Job::Crash => other.die(false, Faults::default()),
            Job::PowerCut => other.die(true, Faults::default()),
            Job::Purge => self.purge(),
        }
    }

    fn purge(&mut self) {
        self.group.settle();
        self.advance(11 * DAY_NS / SECOND_NS);
        self.write();
        // A scan takes a minute, of which each tick does a part.
        for _ in 0..70 {
            self.advance(1);
            turn(&mut self.group.worlds[OTHER]);
        }
        self.group.settle();
    }

    /// No key has a version of the server that wrote nothing.
    fn check_versions(&self) {
        let other = &self.group.worlds[OTHER];
        let keyspace = &other.shared().keyspace;
        for kind in ["s", "h", "r", "z"] {
            for (db, key) in (0..u8::try_from(DATABASES).unwrap())
                .flat_map(|db| (0..KEYS).map(move |key| (db, format!("{kind}{key}"))))
            {
                let key = keyspace.key(key.as_bytes());
                let given = keyspace.lock_one(key.hash, &other.params()).given(db, key);
                assert_ne!(given.version.server, number(OTHER), "{key:?} of database {db}");
            }
        }
    }

    fn finish(&mut self) {
        self.group.settle();
        self.advance(100);
        let worlds = self.group.worlds.iter_mut().chain([&mut self.alone]);
        let shown: Vec<String> = worlds
            .map(|world| {
                turn(world);
                shown(world) + &query(world, &["SELECT k, v, w FROM ks.t"])
            })
            .collect();
        assert_eq!(shown[WRITER], shown[2], "a write was lost on its writer");
        assert_eq!(shown[OTHER], shown[2], "a write was lost on the other server");
        let found = [WRITER, OTHER].map(|at| conflicts(&mut self.group.worlds[at]).0);
        assert_eq!(found, [0, 0], "conflicts with a server that has written nothing");
        self.check_versions();
    }
}

/// What the jobs of the other server removed.
#[derive(Debug, Default)]
struct Removed {
    keys: u64,
    fields: u64,
    deletions: u64,
}

fn run(seed: u64, removed: &mut Removed) {
    let _announce = Announce(seed);
    let mut run = Run::new(seed);
    for _ in 0..ROUNDS {
        match run.random.random_range(0..10) {
            0..=5 => run.write(),
            6 | 7 => {
                let frames = run.random.random_range(1..6);
                let ends =
                    if run.random.random_bool(0.7) { (WRITER, OTHER) } else { (OTHER, WRITER) };
                run.group.follow(ends, Some(frames));
            }
            _ => {
                let job = JOBS[run.random.random_range(0..JOBS.len())];
                run.run_job(job);
                let totals = run.group.worlds[OTHER].shared().totals();
                removed.keys += totals.expired_keys;
                removed.fields += totals.expired_fields;
                removed.deletions += u64::from(matches!(job, Job::Purge));
            }
        }
    }
    run.finish();
}

#[test]
fn background_work_of_one_server_loses_no_write_of_another() {
    let mut removed = Removed::default();
    seeds(SEEDS).for_each(|seed| run(seed, &mut removed));
    let Removed { keys, fields, deletions } = removed;
    assert!(keys > 0 && fields > 0 && deletions > 0, "{removed:?}");
}

/// The purge of points between a write of the other server and its arrival.
#[test]
fn a_purge_of_points_does_not_replace_a_write_on_its_way() {
    let mut group = Group::new(21, &[(WRITER, OTHER), (OTHER, WRITER)], None);
    ask(&mut group.worlds[WRITER], "TSADD r1 -1 short EXPIRE_IN 1|");
    group.settle();
    ask(&mut group.worlds[WRITER], "TSADD r1 1 kept|");
    group.worlds[OTHER].advance(3 * SECOND_NS);
    turn(&mut group.worlds[OTHER]);
    group.settle();
    group.worlds[WRITER].advance(3 * SECOND_NS);
    turn(&mut group.worlds[WRITER]);
    for at in [WRITER, OTHER] {
        let points = ask(&mut group.worlds[at], "TSRANGEBYTIME r1 -inf +inf|");
        assert_eq!(points, "*2\r\n$1\r\n1\r\n$4\r\nkept\r\n", "server {at}");
        assert_eq!(conflicts(&mut group.worlds[at]).0, 0);
    }
}

/// A server creates its superuser at its first start, later than the group has changed its password.
#[test]
fn the_first_role_of_a_new_server_replaces_no_role_of_its_group() {
    let options =
        [("server-id", "1"), ("cql-authenticator", "password"), ("requirepass", "secret")];
    let mut member = World::new(22, with_options(&options));
    let mut client = login(&mut member, "cassandra", "secret");
    super::roles::run(&mut member, &mut client, "ALTER ROLE cassandra WITH PASSWORD = 'changed'");
    let mut new = World::new(23, with_options(&[("server-id", "2")]));
    // The thread that hashes passwords reads the real clock: later than that.
    new.advance(100 * 365 * DAY_NS);
    new.plan.options.extend(options[1..].iter().map(|(name, value)| (*name, (*value).to_owned())));
    new.restart().unwrap();
    for (world, peer) in [(&mut member, 2), (&mut new, 1)] {
        // The links of this test send no password.
        let add = format!("AUTH secret|HUB ADD {peer} peer 1|CONFIG SET requirepass ''|");
        assert_eq!(ask(world, &add), "+OK\r\n".repeat(3));
    }
    for _ in 0..2 {
        super::hub::follow(&mut new, &mut member, (1, 0), None);
        super::hub::follow(&mut member, &mut new, (0, 1), None);
    }
    login(&mut member, "cassandra", "changed");
    login(&mut new, "cassandra", "changed");
}
