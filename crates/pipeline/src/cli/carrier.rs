//! `myriad pipeline carrier`: one end of a path through a message broker.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result, anyhow, ensure};
use lexopt::{Arg, Parser, ValueExt};

use super::arguments::parse_address;
use super::{Job, log_to_stderr, printing, stop_on_signals};
use crate::carrier::{self, CarrierOptions, PLACES_MAX, Place};

const HELP: &str = "\
Usage: myriad pipeline carrier --broker HOST:PORT (--offer|--serve NAME=HOST:PORT)...

Carries connections of the pipeline through a message broker (NATS), where parts cannot reach each
other: a connection to a place that one carrier offers is forwarded to where another one serves it.

      --broker <HOST:PORT>       Where the broker is
      --offer <NAME=HOST:PORT>   Take connections in there
      --serve <NAME=HOST:PORT>   Carry them there
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
                offered.push(parse_place(&parser.value()?.string()?).context("--offer")?);
            }
            Arg::Long("serve") => {
                served.push(parse_place(&parser.value()?.string()?).context("--serve")?);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let broker = broker.ok_or_else(|| anyhow!("--broker is missing; see --help"))?;
    let places = offered.len() + served.len();
    ensure!(places > 0, "--offer or --serve is missing; see --help");
    ensure!(places <= PLACES_MAX, "--offer, --serve: {places} places, at most {PLACES_MAX}");
    Ok(Box::new(move || run(broker, offered, served)))
}

fn run(broker: SocketAddr, offered: Vec<Place>, served: Vec<Place>) -> Result<()> {
    log_to_stderr()?;
    let listen = |place: Place| -> Result<(TcpListener, Place)> {
        let listener = TcpListener::bind(place.address)
            .with_context(|| format!("listen on {}", place.address))?;
        Ok((listener, place))
    };
    let offered = offered.into_iter().map(listen).collect::<Result<_>>()?;
    let stop = stop_on_signals()?;
    carrier::run(&CarrierOptions { broker, offered, served }, &stop)
}

/// `generator=127.0.0.1:25522`.
fn parse_place(text: &str) -> Result<Place> {
    let parts = text.split_once('=');
    let (name, address) = parts.ok_or_else(|| anyhow!("{text:?} is not NAME=HOST:PORT"))?;
    Place::new(name, parse_address(address)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_name_and_an_address() {
        assert_eq!(parse_place("collector=127.0.0.1:7").unwrap().address.port(), 7);
        for wrong in ["collector", "=127.0.0.1:7", "a b=127.0.0.1:7", "collector=7"] {
            assert!(parse_place(wrong).is_err(), "{wrong}");
        }
        let refused = |words: &[&str]| match read(&mut Parser::from_args(words)) {
            Ok(_) => panic!("{words:?} is accepted"),
            Err(error) => format!("{error:#}"),
        };
        assert!(refused(&["--offer", "a=127.0.0.1:0"]).contains("--broker is missing"));
        assert!(refused(&["--broker", "127.0.0.1:1"]).contains("--offer or --serve is missing"));
        assert!(refused(&["--serve", "a"]).contains("--serve: \"a\" is not NAME=HOST:PORT"));
    }
}
