//! `lab echo`: the least that a server can do, as a bound for all others and for the generator.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use lexopt::Parser;
use reactor::{
    Config, ConnId, Connections, Context, Control, Flow, Group, Handler, Listener, Output, Peer,
};

const HELP: &str = "\
Usage: myriad lab echo [--port PORT] [--threads COUNT]

Listens on 127.0.0.1 and sends back all bytes as they come, until it gets SIGTERM or SIGINT. Arrays
of bulk strings are requests and replies at once, so a generator can take it for a server.

      --port <PORT>      0: any free one; the first line of output is the address [0]
      --threads <COUNT>  Reactors [1]
";

/// `lab echo`.
pub(crate) fn command(parser: &mut Parser) -> Result<()> {
    use lexopt::prelude::*;
    let (mut port, mut threads) = (0, 1);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("port") => port = parser.value()?.parse()?,
            Long("threads") => threads = parser.value()?.parse()?,
            Short('h') | Long("help") => return crate::cli::print(HELP),
            other => return Err(other.unexpected().into()),
        }
    }
    anyhow::ensure!((1..=256).contains(&threads), "--threads must be from 1 to 256");
    serve(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port), threads)
}

fn serve(address: SocketAddr, reactors: usize) -> Result<()> {
    let listener = Listener::bind(address, b"").with_context(|| format!("listen on {address}"))?;
    let config = Config { reactors, drain_timeout_ms: 100, ..Config::default() };
    let group = Group::start(&config, vec![listener], |_, _| Echo)?;
    for address in group.addresses() {
        crate::cli::print(&format!("{address}\n"))?;
    }
    Ok(group.run(|_| Control::Stop)?)
}

struct Echo;

impl Handler for Echo {
    type Session = ();
    type Mail = ();

    fn open(&mut self, _: &mut Context<'_, ()>, _: ConnId, _: &Peer, _: &mut Output) {}

    fn data(
        &mut self,
        _: &mut Context<'_, ()>,
        _: ConnId,
        (): &mut (),
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        out.buffer().extend_from_slice(input);
        Flow::read(input.len())
    }

    fn closed(&mut self, _: &mut Context<'_, ()>, _: ConnId, (): ()) {}

    fn mail(&mut self, _: &mut Context<'_, ()>, _: &mut Connections<'_, ()>, (): ()) {}
}
