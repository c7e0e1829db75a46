//! Event loops: N reactors, each one thread with its own driver, timers, buffers and connections.
//! Knows no protocol and no store; what is served is a [`Handler`].
//!
//! A turn of a [`reactor`]: wait; read every ready socket once and show its bytes to the handler,
//! sending at once what may leave; then mail, timers, connections that were not finished; then
//! [`Handler::before_wait`]; then output whose gate has opened. An unpipelined request costs
//! `epoll_wait`, `read` and `send`, and nothing else reaches the kernel.
//!
//! Output may be *held*: each connection's [`Output`] carries gates, and each reactor a level. A
//! gate is open when the level has reached it. That is how replies wait for a disk while no
//! thread does. Levels of the reactors may differ; a connection that moves waits for the level
//! of its new reactor.
//!
//! The main thread accepts ([`Group::run`]), places connections by measured load
//! ([`Placement`]) and takes signals. Reactors that stay overloaded give connections away; a
//! connection moves with its socket, unread input, unsent output and session.
//!
//! A [`Listener`] may have [`Tls`]: its handler sees plain bytes, and gates, limits and moves are those of
//! any connection. A connection without pays a branch for it per read and per write.
//!
//! [`Solo`] is one reactor on the caller's thread, whose handler accepts by itself.
//!
//! [`Sim`] runs the same reactors on one thread with a network in memory, seeded faults and a
//! clock that is a value.
#![forbid(unsafe_code)]

mod acceptor;
mod balance;
mod connection;
mod context;
mod credentials;
mod driver;
mod group;
mod handler;
mod handshakes;
mod input;
mod limits;
mod listener;
mod mailbox;
mod output;
mod peer;
mod placement;
mod reactor;
mod residence;
mod sealed;
mod serve;
mod signals;
mod sim;
mod solo;
mod stats;
mod timers;
mod tls;
mod token;

pub use acceptor::Control;
pub use connection::{CONNECTION_BYTES, ConnInfo, Connections};
pub use context::{Context, Links};
pub use credentials::{Pem, TlsClients, TlsError, TlsPart, TlsRules, TlsVersions};
pub use driver::{Faults, Trigger, Watcher};
pub use group::{Adopter, Config, Descriptors, Group, GroupError, GroupStopper};
pub use handler::{Flow, Handler, Next};
pub use limits::{Limit, Limits};
pub use listener::{BACKLOG, Listener, begin_listening, bind, listen};
pub use mailbox::{MAILS_MAX, Mailbox, Undelivered, Waker};
pub use output::Output;
pub use peer::{ConnId, Peer};
pub use placement::Placement;
pub use signals::{Signal, Signals, block_signals};
pub use sim::{Sim, SimClient};
pub use solo::Solo;
pub use stats::{AcceptorCounters, AcceptorStats, Counters, ReactorStats};
pub use tls::{TLS_BYTES, Tls};
