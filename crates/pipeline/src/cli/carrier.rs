//! `myriad pipeline carrier`: one end of a path through a message broker.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result, ensure};
use lexopt::Parser;
use options::Change::Start;
use options::{OptionText, Section, Value, ValueError, option, settings, texts, value};

use super::{Job, job, log_to_stderr, stop_on_signals};
use crate::carrier::{self, CarrierOptions, SERVICES_MAX, Service};

const ABOUT: &str = "\
Carries connections of the pipeline through a message broker (NATS), where parts cannot reach each
other directly: one carrier offers a service, and another one that serves it forwards connections.";

settings! {
    struct Carried {
        broker: Option<SocketAddr> = None,
        offer: Vec<Service> = Vec::new(),
        serve: Vec<Service> = Vec::new(),
    }
}

#[rustfmt::skip]
const TABLE: &[Section<Carried>] = &[Section { title: "Options", rows: &[
    option("broker", value!(Text, "HOST:PORT", broker), Start,
        "Address of the broker."),
    option("offer", value!(Repeated, "NAME=HOST:PORT", offer), Start,
        "Accept connections here; repeatable."),
    option("serve", value!(Repeated, "NAME=HOST:PORT", serve), Start,
        "Forward connections here; repeatable."),
] }];

pub(super) fn options() -> Vec<OptionText> {
    texts(TABLE)
}

pub(super) fn read(parser: &mut Parser) -> Result<Job> {
    job(parser, "carrier", ABOUT, TABLE, check, |loaded| run(loaded.settings))
}

fn check(carried: &Carried) -> Result<()> {
    ensure!(carried.broker.is_some(), "missing --broker; see --help");
    let services = carried.offer.len() + carried.serve.len();
    ensure!(services > 0, "missing --offer or --serve; see --help");
    ensure!(services <= SERVICES_MAX, "{services} services exceed the limit of {SERVICES_MAX}");
    Ok(())
}

fn run(Carried { broker, offer, serve }: Carried) -> Result<()> {
    let broker = broker.context("missing --broker")?;
    log_to_stderr()?;
    let listen = |service: Service| -> Result<(TcpListener, Service)> {
        let listener = TcpListener::bind(service.address)
            .with_context(|| format!("could not listen on {}", service.address))?;
        Ok((listener, service))
    };
    let offered = offer.into_iter().map(listen).collect::<Result<_>>()?;
    let stop = stop_on_signals()?;
    carrier::run(&CarrierOptions { broker, offered, served: serve }, &stop)
}

/// `generator=127.0.0.1:25522`.
impl Value for Service {
    fn read(text: &str) -> Result<Service, ValueError> {
        let wrong = || ValueError::Explained(format!("{text:?} is not NAME=HOST:PORT"));
        let (name, address) = text.split_once('=').ok_or_else(wrong)?;
        Service::new(name, Value::read(address)?).map_err(ValueError::explained)
    }

    fn text(&self) -> String {
        format!("{}={}", self.name, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_a_name_and_an_address() {
        assert_eq!(Service::read("collector=127.0.0.1:7").unwrap().address.port(), 7);
        for wrong in ["collector", "=127.0.0.1:7", "a b=127.0.0.1:7", "collector=7"] {
            assert!(Service::read(wrong).is_err(), "{wrong}");
        }
        let refused = |words: &[&str]| match read(&mut Parser::from_args(words)) {
            Ok(_) => panic!("{words:?} is accepted"),
            Err(error) => format!("{error:#}"),
        };
        assert!(refused(&["--offer", "a=127.0.0.1:0"]).contains("missing --broker"));
        assert!(refused(&["--broker", "127.0.0.1:1"]).contains("missing --offer or --serve"));
        assert!(refused(&["--serve", "a"]).contains("--serve: \"a\" is not NAME=HOST:PORT"));
    }
}
