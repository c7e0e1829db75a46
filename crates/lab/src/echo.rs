//! `myriad-lab echo`: a minimal server, as an upper limit for all others and for the generator;
//! with a configured cost, a server whose cost is known.

use std::hint;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use reactor::{
    Config, ConnId, Connections, Context, Control, Flow, Group, Handler, Listener, Output, Peer,
};

use crate::command_line::{CommandLine, Job, printing};

const HELP: &str = "\
Usage: myriad-lab echo [--port PORT] [--threads COUNT] [--read-cost-ns NS]

Listens on 127.0.0.1 and echoes all bytes as they arrive, until SIGTERM or SIGINT. Arrays
of bulk strings are valid requests and replies, so a generator can use it as a server.

      --port <PORT>      0: any free port; the first line of output is the address [0]
      --threads <COUNT>  Reactors [1]
      --read-cost-ns <NS>  Keep the core busy for this long at each read, up to 1 s [0]
";

/// A second per read: larger values are probably in the wrong unit.
const READ_COST_NS_MAX: u64 = 1_000_000_000;

/// `myriad-lab echo`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    use lexopt::prelude::*;
    let (mut port, mut threads, mut read_cost_ns) = (0, 1, 0);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("port") => port = parser.value()?,
            Long("threads") => threads = parser.value()?,
            Long("read-cost-ns") => read_cost_ns = parser.value()?,
            Short('h') | Long("help") => return Ok(printing(HELP)),
            other => return Err(other.unexpected().into()),
        }
    }
    anyhow::ensure!((1..=256).contains(&threads), "--threads must be from 1 to 256");
    anyhow::ensure!(
        read_cost_ns <= READ_COST_NS_MAX,
        "--read-cost-ns must be at most {READ_COST_NS_MAX}"
    );
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let read_cost = Duration::from_nanos(read_cost_ns);
    Ok(Box::new(move || serve(address, threads, read_cost)))
}

fn serve(address: SocketAddr, reactors: usize, read_cost: Duration) -> Result<()> {
    let listener =
        Listener::bind(address, b"").with_context(|| format!("could not listen on {address}"))?;
    let config = Config { reactors, drain_timeout_ms: 100, ..Config::default() };
    let group = Group::start(&config, vec![listener], move |_, _| Echo { read_cost })?;
    for address in group.addresses() {
        crate::command_line::print(&format!("{address}\n"))?;
    }
    Ok(group.run(|_| Control::Stop)?)
}

struct Echo {
    read_cost: Duration,
}

impl Echo {
    /// By the clock instead of a step count, because the time per step depends on the machine.
    fn spend(&self) {
        if self.read_cost.is_zero() {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < self.read_cost {
            hint::spin_loop();
        }
    }
}

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
        self.spend();
        out.buffer().extend_from_slice(input);
        Flow::read(input.len())
    }

    fn closed(&mut self, _: &mut Context<'_, ()>, _: ConnId, (): ()) {}

    fn mail(&mut self, _: &mut Context<'_, ()>, _: &mut Connections<'_, ()>, (): ()) {}
}
