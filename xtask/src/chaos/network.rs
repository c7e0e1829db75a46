//! Network namespaces: one of the clients, with a bridge of the servers and one of the clients, and
//! one of each server, with a link to both. Links are cut, also between two servers only, and made
//! slow. Interfaces of the machine itself do not change: browsers, for example, end all requests
//! when they do.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::{self, Command, Stdio};

use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Removed when the value is dropped.
#[derive(Debug)]
pub(super) struct Network {
    servers: usize,
    /// The namespace of the clients.
    name: String,
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
    /// Name of the bridge.
    fn bridge(self) -> &'static str {
        match self {
            Side::Servers => "servers",
            Side::Clients => "clients",
        }
    }

    /// Name of a server's device.
    fn device(self) -> &'static str {
        match self {
            Side::Servers => "s",
            Side::Clients => "c",
        }
    }

    /// Name of the link of a server's device to the bridge.
    fn link(self, number: usize) -> String {
        format!("{}{number}", self.device())
    }

    /// A private address. The clients have the first of each network.
    fn address(self, last: usize) -> String {
        match self {
            Side::Servers => format!("10.213.0.{last}"),
            Side::Clients => format!("10.214.0.{last}"),
        }
    }
}

/// Where `ip` mounts namespaces.
const NAMESPACES: &str = "/run/netns";
/// The last number of the first server's address.
const FIRST: usize = 10;
/// A link-layer address that no link has: what is sent there is lost.
const NOWHERE: &str = "02:00:00:00:00:01";

/// Whether namespaces can be created.
pub(super) fn is_possible() -> bool {
    let name = format!("{}-test", clients_namespace());
    if ip(&format!("netns add {name}")).is_err() {
        return false;
    }
    let has_link = ip(&format!("-n {name} link add one type veth peer name other"));
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

/// Name of the namespace of the clients.
fn clients_namespace() -> String {
    format!("myriad-chaos-{}", process::id())
}

/// Where the other servers reach one.
pub(super) fn server_address(number: usize) -> String {
    Side::Servers.address(FIRST + number)
}

/// Where clients reach a server.
pub(super) fn client_address(number: usize, port: u16) -> String {
    format!("{}:{port}", Side::Clients.address(FIRST + number))
}

impl Network {
    /// Moves the calling thread, and so the threads and processes that it starts later, into the
    /// namespace of the clients.
    pub(super) fn enter(servers: usize) -> Result<Network> {
        let name = clients_namespace();
        ip(&format!("netns add {name}"))?;
        let network = Network { servers, name, can_delay: Cell::new(true) };
        network.ip("link set lo up")?;
        for side in SIDES {
            let bridge = side.bridge();
            network.ip(&format!("link add {bridge} type bridge"))?;
            network.ip(&format!("link set {bridge} up"))?;
            network.ip(&format!("address add {}/24 dev {bridge}", side.address(1)))?;
        }
        for number in 0..servers {
            let namespace = network.namespace(number);
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
            for side in SIDES {
                let (here, there) = (side.link(number), side.device());
                let address = side.address(FIRST + number);
                let peer = format!("type veth peer name {there} netns {namespace}");
                network.ip(&format!("link add {here} {peer}"))?;
                network.ip(&format!("link set {here} master {} up", side.bridge()))?;
                ip(&format!("-n {namespace} address add {address}/24 dev {there}"))?;
                ip(&format!("-n {namespace} link set {there} up"))?;
            }
        }
        let path = format!("{NAMESPACES}/{}", network.name);
        let namespace = File::open(&path).with_context(|| format!("open {path}"))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("enter {path}"))?;
        Ok(network)
    }

    /// In the namespace of the clients.
    fn ip(&self, arguments: &str) -> Result<()> {
        ip(&format!("-n {} {arguments}", self.name))
    }

    /// In the namespace of the clients.
    fn tc(&self, arguments: &str) -> Result<Result<(), String>> {
        run("tc", &format!("-n {} {arguments}", self.name))
    }

    pub(super) fn namespace(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    /// Separates a server from the others.
    pub(super) fn cut(&self, number: usize) -> Result<()> {
        self.ip(&format!("link set {} down", Side::Servers.link(number)))
    }

    /// Separates two servers from each other, silently.
    pub(super) fn cut_between(&self, one: usize, other: usize) -> Result<()> {
        for (from, to) in [(one, other), (other, one)] {
            let (namespace, address) = (self.namespace(from), server_address(to));
            let device = Side::Servers.device();
            let place = format!("{address} dev {device}");
            ip(&format!("-n {namespace} neigh replace {place} lladdr {NOWHERE} nud permanent"))?;
        }
        Ok(())
    }

    /// Delays what a server receives of the others, and loses some of it; without netem in the
    /// kernel, its bandwidth becomes small.
    pub(super) fn slow(&self, number: usize, delay_ms: u64) -> Result<()> {
        let link = Side::Servers.link(number);
        let root = format!("qdisc replace dev {link} root");
        if self.can_delay.get() {
            if self.tc(&format!("{root} netem delay {delay_ms}ms loss 1%"))?.is_ok() {
                return Ok(());
            }
            println!("chaos: no netem: links get less bandwidth, not a delay");
            self.can_delay.set(false);
        }
        let limited = format!("{root} tbf rate 1mbit burst 16kb latency {delay_ms}ms");
        self.tc(&limited)?
            .map_err(|error| anyhow!("tc {limited}: needs netem or tbf in the kernel: {error}"))
    }

    /// Ends all that was done to links.
    pub(super) fn heal(&self) -> Result<()> {
        for number in 0..self.servers {
            let link = Side::Servers.link(number);
            self.ip(&format!("link set {link} up"))?;
            // Each fails if there is nothing to remove.
            let _ = self.tc(&format!("qdisc del dev {link} root"))?;
            let (namespace, device) = (self.namespace(number), Side::Servers.device());
            let _ = run("ip", &format!("-n {namespace} neigh flush dev {device} nud permanent"))?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // What was not created cannot be removed; the rest goes with its namespace.
        for number in 0..self.servers {
            let _ = run("ip", &format!("netns del {}", self.namespace(number)));
        }
        let _ = run("ip", &format!("netns del {}", self.name));
    }
}
