//! Writes to the master of the moment, from a seed, and reads back what was acknowledged.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use rand::Rng;
use rand::rngs::SmallRng;

use super::client::{Account, Client, is_expected};
use super::ledger::{LIST_LENGTH, Ledger};
use super::server::Addresses;

/// Registers of one writer.
const REGISTERS: u64 = 30;
/// Pause after a failure: the server is starting again, or it is not the master.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause between writes, so that all servers fit on a small machine.
const INTERVAL: Duration = Duration::from_micros(500);

/// Where the master is, as writers know it.
#[derive(Debug, Default)]
pub(super) struct Place {
    server: AtomicUsize,
    /// Changes before a server becomes or ceases to be a master.
    generation: AtomicU64,
}

impl Place {
    pub(super) fn at(server: usize) -> Place {
        Place { server: AtomicUsize::new(server), generation: AtomicU64::new(0) }
    }

    /// The master is about to change.
    pub(super) fn begin_change(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn set(&self, server: usize) {
        self.server.store(server, Ordering::SeqCst);
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }
}

/// What writers share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) servers: &'a [Addresses],
    pub(super) place: &'a Place,
    pub(super) is_over: &'a AtomicBool,
}

impl Scene<'_> {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Writes until the end.
pub(super) fn write(account: Account, scene: Scene<'_>, mut random: SmallRng) -> Ledger {
    let mut ledger = Ledger::new(account);
    while !scene.is_over() {
        let server = scene.place.server.load(Ordering::SeqCst);
        let connected = account.connect(&scene.servers[server]);
        let ended = connected.and_then(|mut client| {
            Session { scene, ledger: &mut ledger, client: &mut *client, count: None }
                .run(&mut random)
        });
        if let Err(error) = ended {
            // The server was killed, or is not the master: what the last request did is unknown.
            if !is_expected(&error) {
                ledger.note_fault(&format!("{error:#}"));
            }
            std::thread::sleep(PAUSE);
        }
    }
    ledger
}

/// The use of one connection.
struct Session<'a> {
    scene: Scene<'a>,
    ledger: &'a mut Ledger,
    client: &'a mut dyn Client,
    /// The count by its last read and the increments since, unless the master may have changed.
    count: Option<(u64, u64)>,
}

impl Session<'_> {
    fn run(&mut self, random: &mut SmallRng) -> Result<()> {
        while !self.scene.is_over() {
            match random.random_range(0..10) {
                0..=2 => self.set(random.random_range(0..REGISTERS), random.random_bool(0.3))?,
                3 => self.append()?,
                4 | 5 => self.increment(random.random_bool(0.3))?,
                6 => self.set_pair()?,
                _ => self.client.change_shared(random)?,
            }
            self.ledger.acknowledged += 1;
            std::thread::sleep(INTERVAL);
        }
        Ok(())
    }

    fn next_value(&mut self) -> u64 {
        self.ledger.value += 1;
        self.ledger.value
    }

    fn set(&mut self, register: u64, reads_back: bool) -> Result<()> {
        let generation = self.scene.place.generation();
        let value = self.next_value();
        self.ledger.registers.entry(register).or_default().sent = value;
        self.client.set(register, value)?;
        self.ledger.registers.entry(register).or_default().acknowledged = value;
        if reads_back {
            let found = self.client.get(register)?;
            if found != Some(value) && self.scene.place.generation() == generation {
                self.ledger.note_fault(&format!("wrote {value} to {register}, reads {found:?}"));
            }
        }
        Ok(())
    }

    fn append(&mut self) -> Result<()> {
        let value = self.next_value();
        let list = value / LIST_LENGTH;
        self.ledger.lists.entry(list).or_default();
        self.client.append(list, value)?;
        self.ledger.lists.entry(list).or_default().push(value);
        Ok(())
    }

    fn increment(&mut self, reads_back: bool) -> Result<()> {
        let generation = self.scene.place.generation();
        self.ledger.count.sent += 1;
        self.client.increment()?;
        self.ledger.count.acknowledged += 1;
        self.count = self.count.map(|(count, since)| (count + 1, since));
        if reads_back {
            let found = self.client.count()?;
            if let Some((count, since)) = self.count
                && count != found
                && since == self.scene.place.generation()
            {
                self.ledger.note_fault(&format!("counted {count}, reads {found}"));
            }
            self.count = Some((found, generation));
        }
        Ok(())
    }

    fn set_pair(&mut self) -> Result<()> {
        let value = self.next_value();
        self.ledger.pair.sent = value;
        self.client.set_pair(value)?;
        self.ledger.pair.acknowledged = value;
        Ok(())
    }
}
