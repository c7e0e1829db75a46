//! `myriad pipeline carrier`: one end of a path through a message broker.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result, anyhow, ensure};
use lexopt::{Arg, Parser, ValueExt};

use super::arguments::parse_address;
use super::{Job, log_to_stderr, printing, stop_on_signals};
use crate::carrier::{self, CarrierOptions, SERVICES_MAX, Service};

const HELP: &str = "\
Usage: myriad pipeline carrier --broker HOST:PORT (--offer|--serve NAME=HOST:PORT)...

Carries connections of the pipeline through a message broker (NATS), where parts cannot reach each
other directly: one carrier offers a service, and another one that serves it forwards connections.

      --broker <HOST:PORT>       Address of the broker
      --offer <NAME=HOST:PORT>   Accept connections here
      --serve <NAME=HOST:PORT>   Forward connections here
  -h, --help                     Print this
";

pub(super) fn read(parser: &mut Parser) -> Result<Job> {
    let (mut broker, mut offered, mut served) = (None, Vec::new(), Vec::new());
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(printing(HELP)),
            Arg::Long("broker") => {
                let text = parser.value()?.string()?;
                broker = Some(parse_address(&text).context("--broker")?);
            }
            Arg::Long("offer") => {
                offered.push(parse_service(&parser.value()?.string()?).context("--offer")?);
            }
            Arg::Long("serve") => {
                served.push(parse_service(&parser.value()?.string()?).context("--serve")?);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let broker = broker.ok_or_else(|| anyhow!("missing --broker; see --help"))?;
    let services = offered.len() + served.len();
    ensure!(services > 0, "missing --offer or --serve; see --help");
    ensure!(services <= SERVICES_MAX, "{services} services exceed the limit of {SERVICES_MAX}");
    Ok(Box::new(move || run(broker, offered, served)))
}

fn run(broker: SocketAddr, offered: Vec<Service>, served: Vec<Service>) -> Result<()> {
    log_to_stderr()?;
    let listen = |service: Service| -> Result<(TcpListener, Service)> {
        let listener = TcpListener::bind(service.address)
            .with_context(|| format!("could not listen on {}", service.address))?;
        Ok((listener, service))
    };
    let offered = offered.into_iter().map(listen).collect::<Result<_>>()?;
    let stop = stop_on_signals()?;
    carrier::run(&CarrierOptions { broker, offered, served }, &stop)
}

/// Parses `generator=127.0.0.1:25522`.
fn parse_service(text: &str) -> Result<Service> {
    let parts = text.split_once('=');
    let (name, address) = parts.ok_or_else(|| anyhow!("{text:?} is not NAME=HOST:PORT"))?;
    Service::new(name, parse_address(address)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_a_name_and_an_address() {
        assert_eq!(parse_service("collector=127.0.0.1:7").unwrap().address.port(), 7);
        for wrong in ["collector", "=127.0.0.1:7", "a b=127.0.0.1:7", "collector=7"] {
            assert!(parse_service(wrong).is_err(), "{wrong}");
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
