//! `myriad pipeline carrier`: one end of the way by a message broker.

use std::net::TcpListener;

use anyhow::{Context, Result, anyhow};
use lexopt::{Arg, Parser, ValueExt};

use super::arguments::parse_address;
use super::{log_to_stderr, print, stop_on_signals};
use crate::carrier::{self, CarrierOptions, Place};

const HELP: &str = "\
Usage: myriad pipeline carrier --broker HOST:PORT (--offer|--serve NAME=HOST:PORT)...

Carries connections of the pipeline by way of a message broker (NATS), where parts cannot reach each
other: whoever connects to a place that one carrier offers comes to where another one serves it.

      --broker <HOST:PORT>       Where the broker is
      --offer <NAME=HOST:PORT>   Take connections in there
      --serve <NAME=HOST:PORT>   Carry them there
  -h, --help                     Print this
";

pub(super) fn run(parser: &mut Parser) -> Result<()> {
    let (mut broker, mut offered, mut served) = (None, Vec::new(), Vec::new());
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return print(HELP),
            Arg::Long("broker") => broker = Some(parse_address(&parser.value()?.string()?)?),
            Arg::Long("offer") => offered.push(parse_place(&parser.value()?.string()?)?),
            Arg::Long("serve") => served.push(parse_place(&parser.value()?.string()?)?),
            other => return Err(other.unexpected().into()),
        }
    }
    let broker = broker.ok_or_else(|| anyhow!("--broker is missing; see --help"))?;
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
    let (name, address) = parts.ok_or_else(|| anyhow!("{text:?} is no NAME=HOST:PORT"))?;
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
        let refused = |words: &[&str]| run(&mut Parser::from_args(words)).unwrap_err().to_string();
        assert!(refused(&["--offer", "a=127.0.0.1:0"]).contains("--broker is missing"));
        assert!(refused(&["--serve", "a"]).contains("NAME=HOST:PORT"));
    }
}
