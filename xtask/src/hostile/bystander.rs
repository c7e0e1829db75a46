//! A well-behaved client that must be served throughout an attack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail, ensure};

use super::ask::{expect_bulk, expect_integer, expect_simple};
use super::until;
use crate::cql::connection::{Connection as CqlConnection, Manner};
use crate::resp::Connection;

/// Its requests, which it repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    /// SET and GET of its own key: the written value must be there.
    Writes,
    /// PING and ECHO: for checks in which the data is flushed, evicted or read-only.
    Talks,
    /// INSERT and SELECT by CQL, in its own table.
    Queries,
}

/// A client on its own connection and thread.
#[derive(Debug)]
pub(super) struct Bystander {
    state: Arc<State>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug, Default)]
struct State {
    completed: AtomicU64,
    stopping: AtomicBool,
}

impl Bystander {
    pub(super) fn start(address: &str, habit: Habit) -> Result<Bystander> {
        let mut connection = Line::open(address, habit)?;
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || {
            let mut round = 0_u64;
            while !shared.stopping.load(Ordering::Relaxed) {
                round += 1;
                one_round(&mut connection, habit, round)
                    .with_context(|| format!("the bystander, after {round} rounds"))?;
                shared.completed.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let bystander = Bystander { state, thread: Some(thread) };
        bystander.completes(1)?;
        Ok(bystander)
    }

    /// Rounds so far.
    pub(super) fn completed(&self) -> u64 {
        self.state.completed.load(Ordering::Relaxed)
    }

    /// Waits for `rounds` further rounds.
    pub(super) fn completes(&self, rounds: u64) -> Result<()> {
        let wanted = self.completed() + rounds;
        let result =
            until(
                "the bystander is served",
                || Ok(self.completed() >= wanted || self.has_failed()),
            );
        if self.has_failed() {
            bail!("the bystander has failed");
        }
        result
    }

    /// Ends it; an error if a request was not served.
    pub(super) fn stop(mut self) -> Result<u64> {
        self.state.stopping.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("stopped once")?;
        thread.join().ok().context("the bystander panicked")??;
        Ok(self.completed())
    }

    fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

/// Its connection.
enum Line {
    Resp(Connection),
    Cql(CqlConnection),
}

impl Line {
    fn open(address: &str, habit: Habit) -> Result<Line> {
        if habit != Habit::Queries {
            return Ok(Line::Resp(open_on_regular_reactor(address)?));
        }
        let mut connection = CqlConnection::open(address)?;
        connection.must(
            "CREATE KEYSPACE bystander WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
        )?;
        connection.must("CREATE TABLE bystander.t (k int PRIMARY KEY, v bigint)")?;
        Ok(Line::Cql(connection))
    }
}

/// Connects. The first request for data moves the connection from the spare reactor, which may have
/// accepted it, to the reactor under attack; PING alone would be served there.
pub(super) fn open_on_regular_reactor(address: &str) -> Result<Connection> {
    let mut connection = Connection::open(address)?;
    expect_integer(&connection.call(&["EXISTS", "absent"])?, 0)?;
    Ok(connection)
}

fn one_round(line: &mut Line, habit: Habit, round: u64) -> Result<()> {
    let connection = match line {
        Line::Resp(connection) => connection,
        Line::Cql(connection) => {
            connection.must(&format!("INSERT INTO bystander.t (k, v) VALUES (1, {round})"))?;
            let select = "SELECT v FROM bystander.t WHERE k = 1";
            let found = connection.query(select, Manner::default())?;
            ensure!(found.get(1) == Some(&round.to_string()), "found {found:?}, not {round}");
            return Ok(());
        }
    };
    let round = round.to_string();
    match habit {
        Habit::Writes | Habit::Queries => {
            expect_simple(&connection.call(&["SET", "bystander", &round])?, "OK")?;
            expect_bulk(&connection.call(&["GET", "bystander"])?, round.as_bytes())
        }
        Habit::Talks => {
            expect_simple(&connection.call(&["PING"])?, "PONG")?;
            expect_bulk(&connection.call(&["ECHO", &round])?, round.as_bytes())
        }
    }
}
