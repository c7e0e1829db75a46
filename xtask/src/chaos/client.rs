//! What writers do, in either protocol. Each writer has values of its own, which only grow, so that
//! what the servers have at the end shows which writes are missing.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::time::Duration;

use anyhow::Result;
use rand::rngs::SmallRng;

use super::cql_client::CqlClient;
use super::resp_client::RespClient;
use super::server::Addresses;

/// Stopped servers continue before; a reply that waits longer is given up.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// The reply of a server that refuses requests for a while: it is not the master, has no replicas,
/// or its data is incomplete.
#[derive(Debug)]
pub(super) struct Unavailable(pub(super) String);

impl Display for Unavailable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "the server is unavailable: {}", self.0)
    }
}

impl Error for Unavailable {}

/// Whether a disturbance explains the error: the connection broke, timed out, or the server is
/// unavailable. Everything else is a fault.
pub(super) fn is_expected(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<io::Error>() || cause.is::<Unavailable>())
}

/// A connection of one writer.
pub(super) trait Client {
    fn set(&mut self, register: u64, value: u64) -> Result<()>;
    fn get(&mut self, register: u64) -> Result<Option<u64>>;
    fn append(&mut self, list: u64, value: u64) -> Result<()>;
    fn list(&mut self, list: u64) -> Result<Vec<u64>>;
    fn increment(&mut self) -> Result<()>;
    fn count(&mut self) -> Result<u64>;
    /// Sets two values atomically.
    fn set_pair(&mut self, value: u64) -> Result<()>;
    fn pair(&mut self) -> Result<[Option<u64>; 2]>;
    /// Changes something that all writers change.
    fn change_shared(&mut self, random: &mut SmallRng) -> Result<()>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Resp,
    Cql,
}

/// A writer's number, and how it connects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    pub(super) number: u64,
    pub(super) protocol: Protocol,
    pub(super) durability: &'static str,
}

impl Account {
    pub(super) fn connect(self, addresses: &Addresses) -> Result<Box<dyn Client>> {
        Ok(match self.protocol {
            Protocol::Resp => Box::new(RespClient::open(&addresses.resp, self, REPLY_TIMEOUT)?),
            Protocol::Cql => Box::new(CqlClient::open(&addresses.cql, self, REPLY_TIMEOUT)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn only_broken_connections_and_refusals_are_expected() {
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        assert!(is_expected(&Err::<(), _>(broken).context("read reply").unwrap_err()));
        let refusal = Unavailable("READONLY".to_owned());
        assert!(is_expected(&Err::<(), _>(refusal).context("SET").unwrap_err()));
        assert!(!is_expected(&anyhow!("a row is torn")));
    }
}
