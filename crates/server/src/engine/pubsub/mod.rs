//! Publish and subscribe: messages to the connections that are subscribed at that moment.
//!
//! Reading order: `message` (encoded once for all receivers), `directory` (shared by the reactors: how many
//! connections of each are subscribed to what, and a queue of messages into each reactor; `table` has its
//! names), `outbox` (messages about changes of the data), `desk` (of one reactor: which of its connections
//! get what), `subscriptions` (of one connection).
//!
//! A publisher locks the part of the directory that the channel belongs to, puts the message into the queue
//! of each reactor that has receivers, and wakes these; a reactor delivers the messages of its queue at the
//! end of its turn. So all receivers see the messages of a channel in one order, and no publisher waits for
//! a receiver. Messages about changes of the data, and of transactions, are put into the outbox under the
//! locks of the keys, so that they are in the order of the log, and reactors publish them from there in
//! parts. Requests that do not publish take none of these locks.

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
