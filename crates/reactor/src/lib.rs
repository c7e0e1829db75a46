//! Event loops: N reactors, each one thread with its own driver, timers, buffers and connections.
//! The crate is independent of protocols and stores; the program on top is a [`Handler`].
//!
//! A turn of a [`reactor`]: wait; read every ready socket once and pass its bytes to the handler,
//! sending permitted output at once; then process mail, timers and connections with leftover
//! requests; then call [`Handler::before_wait`]; then send output whose gate has opened. An
//! unpipelined request costs `epoll_wait`, `read` and `send`, and no other system call.
//!
//! Output may be *held*: each connection's [`Output`] carries gates, and each reactor has levels.
//! A gate is open when its level has reached it. This is how replies wait for a disk without a
//! waiting thread. Reactors may have different levels; a connection that moves waits for the level
//! of its new reactor.
//!
//! The main thread accepts connections ([`Group::run`]), assigns them to reactors by measured load
//! ([`Placement`]) and handles signals. Reactors that stay overloaded give connections away; a
//! connection moves with its socket, unread input, unsent output and session.
//!
//! A [`Listener`] may have [`Tls`]: its handler sees plain bytes, and gates, limits and moves work
//! as on any connection. A plain connection pays one branch for it per read and per write.
//!
//! [`Solo`] is one reactor on the caller's thread, whose handler accepts connections itself.
//!
//! [`Sim`] runs the same reactors on one thread with an in-memory network, seeded faults and a
//! clock that the test sets.
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
mod lifecycle;
mod limits;
mod listener;
mod mailbox;
mod output;
mod peer;
mod placement;
mod reactor;
mod serve;
mod signals;
mod sim;
mod solo;
mod stats;
mod timers;
mod tls;
mod tls_io;
mod token;
mod unix_socket;

pub use acceptor::Control;
pub use connection::{CONNECTION_BYTES, ConnInfo, Connections};
pub use context::{Context, Links};
pub use credentials::{Pem, TlsClients, TlsError, TlsPart, TlsRules, TlsVersions, tls_client};
pub use driver::{Faults, Trigger, Watcher};
pub use group::{Adopter, Config, Descriptors, Group, GroupError, GroupStopper};
pub use handler::{Flow, Handler, Next};
pub use limits::{Limit, Limits};
pub use listener::{BACKLOG, Listener, begin_listening, bind, listen};
pub use mailbox::{MAILS_MAX, Mailbox, Undelivered, Waker};
pub use output::{Level, Output};
pub use peer::{ConnId, Peer};
pub use placement::Placement;
pub use signals::{Signal, Signals, block_signals};
pub use sim::{Sim, SimClient};
pub use solo::Solo;
pub use stats::{AcceptorCounters, AcceptorStats, Counters, ReactorStats};
pub use tls::{TLS_BYTES, Tls};
pub use unix_socket::{SOCKET_PATH_BYTES_MAX, check_socket_path};
