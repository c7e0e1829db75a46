//! Publish and subscribe: messages to the connections that are subscribed at that moment.
//!
//! Reading order: `message` (encoded once for all receivers), `directory` (shared by the reactors:
//! counts of each reactor's subscribers by name, and a message queue into each reactor; `table`
//! stores its names), `outbox` (messages about data changes), `table` (one reactor: the subscribers
//! among its connections), `subscriptions` (one connection).
//!
//! A publisher locks the channel's part of the directory, adds the message to the queue of each
//! reactor that has receivers, and wakes these; a reactor delivers its queued messages at the end
//! of its turn. Therefore all receivers see the messages of a channel in the same order, and no
//! publisher waits for a receiver. Messages about data changes, and of transactions, are added to
//! the outbox under the key locks, so that they are in log order; reactors publish them from there
//! in parts. Requests that do not publish take none of these locks.

mod directory;
mod message;
mod outbox;
mod subscriber_table;
mod subscriptions;
mod table;

pub(crate) use directory::{Backlog, Directory, Refusal};
pub(crate) use message::{Kind, MatchedSubscription, Message, Name, Publication};
pub(crate) use subscriber_table::{Place, SubscriberTable};
pub(crate) use subscriptions::Subscriptions;
