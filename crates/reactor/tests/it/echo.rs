//! A small line protocol that exercises everything a handler can request.
//!
//! ```text
//! any line      is echoed
//! hold N        "held N" comes back when the level has reached N
//! pause         nothing more is served until mail `Resume`
//! quit          replies "bye", then the connection is closed
//! drop          the connection is closed at once
//! size N        replies N bytes 'x' and a newline
//! long N        the next N bytes are echoed as one reply
//! later         the reply and the close are triggered by mail
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::{ConnId, Connections, Context, Flow, Handler, Level, Next, Output, Peer, SimClient};

#[derive(Debug, Clone)]
pub(crate) enum Mail {
    Level(u64),
    Resume(ConnId),
    Push(ConnId, Vec<u8>),
    PushAll(Vec<u8>),
    Close(ConnId),
    TimerAt(u64, u64),
}

#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Bytes of a `long` request that have not arrived yet.
    long: usize,
    /// A reply follows by mail.
    owes: bool,
    pub(crate) moves: u32,
}

/// Counts events for the tests.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// Requests served per `data` call; 0 means no bound.
    pub(crate) budget: usize,
    pub(crate) greeting: Vec<u8>,
    pub(crate) keeps_left: bool,
    pub(crate) opened: u64,
    pub(crate) closed: u64,
    pub(crate) departed: u64,
    pub(crate) arrived: u64,
    pub(crate) data_calls: u64,
    pub(crate) draining: bool,
    pub(crate) timers: Vec<u64>,
    pub(crate) served: Vec<ConnId>,
    pub(crate) present: BTreeSet<ConnId>,
    /// Level that `before_wait` sets.
    pub(crate) level: u64,
    /// The same, but set by another thread.
    pub(crate) shared_level: Option<Arc<AtomicU64>>,
    /// A peer that must not see the end before `closed` is called.
    pub(crate) watched: Option<Arc<SimClient>>,
}

impl Echo {
    fn serve(&mut self, id: ConnId, session: &mut Session, line: &[u8], out: &mut Output) -> Next {
        self.served.push(id);
        let text = std::str::from_utf8(line).unwrap_or("").trim_end();
        let (word, number) = text.split_once(' ').unwrap_or((text, "0"));
        let number: usize = number.parse().unwrap_or(0);
        match word {
            "hold" => {
                out.hold(Level::Local, 0);
                out.buffer().extend_from_slice(format!("held {number}\n").as_bytes());
                out.hold(Level::Local, number as u64);
            }
            "pause" => return Next::Pause,
            "quit" => {
                out.buffer().extend_from_slice(b"bye\n");
                return Next::Close;
            }
            "drop" => return Next::Abort,
            "size" => {
                let buffer = out.buffer();
                buffer.resize(buffer.len() + number, b'x');
                buffer.push(b'\n');
            }
            "long" => session.long = number,
            "later" => session.owes = true,
            _ => out.buffer().extend_from_slice(line),
        }
        Next::Read { needed: session.long }
    }
}

impl Handler for Echo {
    type Session = Session;
    type Mail = Mail;

    fn open(
        &mut self,
        _cx: &mut Context<'_, Mail>,
        id: ConnId,
        _peer: &Peer,
        out: &mut Output,
    ) -> Session {
        self.opened += 1;
        self.present.insert(id);
        out.buffer().extend_from_slice(&self.greeting);
        Session::default()
    }

    fn data(
        &mut self,
        _cx: &mut Context<'_, Mail>,
        id: ConnId,
        session: &mut Session,
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        assert!(!input.is_empty());
        self.data_calls += 1;
        let mut consumed = 0;
        let mut requests = 0;
        loop {
            let rest = &input[consumed..];
            let length = if session.long > 0 {
                Some(session.long).filter(|&length| length <= rest.len())
            } else {
                rest.iter().position(|&byte| byte == b'\n').map(|at| at + 1)
            };
            let Some(length) = length else {
                return Flow { consumed, next: Next::Read { needed: session.long } };
            };
            if self.budget != 0 && requests == self.budget {
                return Flow { consumed, next: Next::Again };
            }
            requests += 1;
            consumed += length;
            if session.long > 0 {
                session.long = 0;
                out.buffer().extend_from_slice(&rest[..length]);
                continue;
            }
            let next = self.serve(id, session, &rest[..length], out);
            if !matches!(next, Next::Read { .. }) {
                return Flow { consumed, next };
            }
        }
    }

    fn closed(&mut self, _cx: &mut Context<'_, Mail>, id: ConnId, _session: Session) {
        self.closed += 1;
        assert!(self.present.remove(&id), "closed where it is");
        assert!(self.watched.as_ref().is_none_or(|peer| !peer.is_closed()), "the peer saw the end");
    }

    fn peer_left(&mut self, _id: ConnId, _session: &mut Session) -> bool {
        self.keeps_left
    }

    fn input_ended(&mut self, _id: ConnId, session: &mut Session) -> bool {
        session.owes
    }

    fn depart(&mut self, id: ConnId, session: &mut Session) {
        session.moves += 1;
        self.departed += 1;
        assert!(self.present.remove(&id), "departs from where it is");
    }

    fn arrive(&mut self, _cx: &mut Context<'_, Mail>, id: ConnId, _session: &mut Session) {
        self.arrived += 1;
        self.present.insert(id);
    }

    fn mail(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        mail: Mail,
    ) {
        match mail {
            Mail::Level(level) => cx.set_level(Level::Local, level),
            Mail::Resume(id) => cx.resume(id),
            Mail::Push(id, bytes) => {
                if let Some((_, out)) = connections.get_mut(id) {
                    out.buffer().extend_from_slice(&bytes);
                }
            }
            Mail::PushAll(bytes) => {
                for (_, _, _, out) in connections.iter() {
                    out.buffer().extend_from_slice(&bytes);
                }
            }
            Mail::Close(id) => cx.close(id),
            Mail::TimerAt(after_ns, token) => {
                let mut at = cx.now().mono;
                at.0 += after_ns;
                cx.set_timer(at, token);
            }
        }
    }

    fn timer(
        &mut self,
        _cx: &mut Context<'_, Mail>,
        _connections: &mut Connections<'_, Session>,
        token: u64,
    ) {
        self.timers.push(token);
    }

    fn before_wait(
        &mut self,
        cx: &mut Context<'_, Mail>,
        _connections: &mut Connections<'_, Session>,
    ) {
        let shared = self.shared_level.as_ref().map_or(0, |level| level.load(Ordering::Acquire));
        cx.set_level(Level::Local, self.level.max(shared));
    }

    fn draining(
        &mut self,
        cx: &mut Context<'_, Mail>,
        _connections: &mut Connections<'_, Session>,
    ) {
        assert!(cx.is_draining());
        self.draining = true;
    }
}
