//! Publish and subscribe: messages to whoever has asked for them at that moment.
//!
//! Reading order: `message` (written once for all who get it), `directory` (what reactors share: how many
//! connections of each have subscribed to what, and a queue of messages into each reactor; `table` keeps
//! its names; `outbox` keeps messages that changes of the data have left), `desk` (a reactor's own: which of its connections get what), `subscriptions` (what one
//! connection has asked for).
//!
//! Who publishes locks the part of the directory that the channel belongs to, puts the message into the
//! queue of each reactor that has receivers, and wakes these; a reactor hands out what is in its queue at
//! the end of its turn. So all receivers see the messages of a channel in one order, and nobody waits for
//! a receiver. Messages about changes of the data, and of transactions, are put off: who has made the changes
//! puts them into the outbox under the locks of the keys, so that they are in the order of the log, and
//! reactors take them from there in pieces. Requests that have nothing to do with messages take no lock of these.

mod desk;
mod directory;
mod message;
mod outbox;
mod subscriptions;
mod table;

pub(crate) use desk::{Desk, Place};
pub(crate) use directory::{Backlog, Directory, Refusal};
pub(crate) use message::{Kind, Message, Name, Post, Way};
pub(crate) use subscriptions::Subscriptions;
