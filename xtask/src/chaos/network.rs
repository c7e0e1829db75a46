//! Network namespaces, each with a link to a bridge of the servers and to one of the clients.
//! Links are cut, also between two servers only, and made slow.

use std::cell::Cell;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

/// Removed when the value is dropped.
#[derive(Debug)]
pub(super) struct Network {
    servers: usize,
    /// Distinguishes the names and addresses of runs.
    run: u32,
    /// Whether the kernel can delay packets. Otherwise the bandwidth is limited.
    can_delay: Cell<bool>,
}

/// The bridges.
const SIDES: [Side; 2] = [Side::Servers, Side::Clients];

#[derive(Debug, Clone, Copy)]
enum Side {
    Servers,
    Clients,
}

impl Side {
    fn letter(self) -> char {
        match self {
            Side::Servers => 's',
            Side::Clients => 'c',
        }
    }

    /// Private addresses, of which the clients have the first.
    fn network(self) -> u8 {
        match self {
            Side::Servers => 213,
            Side::Clients => 214,
        }
    }
}

/// Runs at the same time: the number is part of an IPv4 address.
const RUNS_MAX: u32 = 200;
/// The last number of the first server's address.
const FIRST: usize = 10;
/// A link-layer address that no link has: what is sent there is lost.
const NOWHERE: &str = "02:00:00:00:00:01";

/// Whether namespaces can be created.
pub(super) fn is_possible() -> bool {
    let (id, device) = (std::process::id(), Side::Servers.letter());
    let (name, link) = (format!("myriad-chaos-test-{id}"), format!("mcht{id}"));
    if ip(&format!("netns add {name}")).is_err() {
        return false;
    }
    let has_link = ip(&format!("link add {link} type veth peer name {device} netns {name}"));
    // Fails if there is none.
    let _ = ip(&format!("link del {link}"));
    let is_removed = ip(&format!("netns del {name}"));
    has_link.is_ok() && is_removed.is_ok()
}

/// Runs a program. An error is what it wrote to its error stream.
fn run(program: &str, arguments: &str) -> Result<Result<(), String>> {
    let mut command = Command::new(program);
    let command = command.args(arguments.split_whitespace()).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("run {program}"))?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    Ok(Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn ip(arguments: &str) -> Result<()> {
    run("ip", arguments)?.map_err(|error| anyhow!("ip {arguments}: {error}"))
}

fn bridge(run: u32, side: Side) -> String {
    format!("mcha{run}{}", side.letter())
}

/// Creates the first bridge, which reserves the number of the run: another run may have it.
fn reserve_run() -> Result<u32> {
    let first = std::process::id();
    for attempt in 0..RUNS_MAX {
        let number = first.wrapping_add(attempt) % RUNS_MAX;
        let arguments = format!("link add {} type bridge", bridge(number, SIDES[0]));
        match run("ip", &arguments)? {
            Ok(()) => return Ok(number),
            Err(error) if error.contains("File exists") => {}
            Err(error) => bail!("ip {arguments}: {error}"),
        }
    }
    bail!("{RUNS_MAX} runs have bridges: remove those of runs that have ended (ip link)")
}

impl Network {
    pub(super) fn new(servers: usize) -> Result<Network> {
        let network = Network { servers, run: reserve_run()?, can_delay: Cell::new(true) };
        ip(&format!("link add {} type bridge", network.bridge(SIDES[1])))?;
        for side in SIDES {
            let bridge = network.bridge(side);
            ip(&format!("link set {bridge} up"))?;
            ip(&format!("address add {}/24 dev {bridge}", network.address(side, 1)))?;
        }
        for number in 0..servers {
            let namespace = network.namespace(number);
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
            for side in SIDES {
                let (here, there) = (network.link(side, number), side.letter());
                let address = network.address(side, FIRST + number);
                ip(&format!("link add {here} type veth peer name {there} netns {namespace}"))?;
                ip(&format!("link set {here} master {} up", network.bridge(side)))?;
                ip(&format!("-n {namespace} address add {address}/24 dev {there}"))?;
                ip(&format!("-n {namespace} link set {there} up"))?;
            }
        }
        Ok(network)
    }

    pub(super) fn namespace(&self, number: usize) -> String {
        format!("myriad-chaos-{}-{number}", self.run)
    }

    fn bridge(&self, side: Side) -> String {
        bridge(self.run, side)
    }

    fn link(&self, side: Side, number: usize) -> String {
        format!("mcha{}{}{number}", self.run, side.letter())
    }

    fn address(&self, side: Side, last: usize) -> String {
        format!("10.{}.{}.{last}", side.network(), self.run)
    }

    /// Where the other servers reach one.
    pub(super) fn server_address(&self, number: usize) -> String {
        self.address(Side::Servers, FIRST + number)
    }

    /// Where clients reach a server.
    pub(super) fn client_address(&self, number: usize, port: u16) -> String {
        format!("{}:{port}", self.address(Side::Clients, FIRST + number))
    }

    /// Separates a server from the others.
    pub(super) fn cut(&self, number: usize) -> Result<()> {
        ip(&format!("link set {} down", self.link(Side::Servers, number)))
    }

    /// Separates two servers from each other, silently.
    pub(super) fn cut_between(&self, one: usize, other: usize) -> Result<()> {
        for (from, to) in [(one, other), (other, one)] {
            let (namespace, address) = (self.namespace(from), self.server_address(to));
            let device = Side::Servers.letter();
            let place = format!("{address} dev {device}");
            ip(&format!("-n {namespace} neigh replace {place} lladdr {NOWHERE} nud permanent"))?;
        }
        Ok(())
    }

    /// Delays what a server receives of the others, and loses some of it; without netem in the
    /// kernel, its bandwidth becomes small.
    pub(super) fn slow(&self, number: usize, delay_ms: u64) -> Result<()> {
        let link = self.link(Side::Servers, number);
        let root = format!("qdisc replace dev {link} root");
        if self.can_delay.get() {
            if run("tc", &format!("{root} netem delay {delay_ms}ms loss 1%"))?.is_ok() {
                return Ok(());
            }
            println!("chaos: no netem: links get less bandwidth, not a delay");
            self.can_delay.set(false);
        }
        let limited = format!("{root} tbf rate 1mbit burst 16kb latency {delay_ms}ms");
        run("tc", &limited)?
            .map_err(|error| anyhow!("tc {limited}: needs netem or tbf in the kernel: {error}"))
    }

    /// Ends all that was done to links.
    pub(super) fn heal(&self) -> Result<()> {
        for number in 0..self.servers {
            let link = self.link(Side::Servers, number);
            ip(&format!("link set {link} up"))?;
            // Each fails if there is nothing to remove.
            let _ = run("tc", &format!("qdisc del dev {link} root"))?;
            let (namespace, device) = (self.namespace(number), Side::Servers.letter());
            let _ = run("ip", &format!("-n {namespace} neigh flush dev {device} nud permanent"))?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // What was not created cannot be removed; the rest goes with its namespace or bridge.
        for number in 0..self.servers {
            let _ = run("ip", &format!("netns del {}", self.namespace(number)));
        }
        for side in SIDES {
            let _ = run("ip", &format!("link del {}", self.bridge(side)));
        }
    }
}
