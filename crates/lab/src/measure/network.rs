//! The kernel's TCP counters, of the whole machine.

use std::collections::BTreeMap;
use std::fs;
use std::io;

/// Counters that explain a slow or lossy run.
const NAMES: [&str; 12] = [
    "ActiveOpens",
    "AttemptFails",
    "EstabResets",
    "ListenDrops",
    "ListenOverflows",
    "OutRsts",
    "PassiveOpens",
    "RetransSegs",
    "TCPReqQFullDrop",
    "TCPSynRetrans",
    "TCPTimeouts",
    "TW",
];

/// Totals since boot, with the kernel's names.
pub fn tcp_counters() -> io::Result<BTreeMap<String, u64>> {
    let mut all = parse(&fs::read_to_string("/proc/net/snmp")?);
    all.extend(parse(&fs::read_to_string("/proc/net/netstat")?));
    Ok(all)
}

/// Returns the increase since `earlier`.
pub fn added(
    later: &BTreeMap<String, u64>,
    earlier: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let before = |name| earlier.get(name).copied().unwrap_or_default();
    later.iter().map(|(name, count)| (name.clone(), count.saturating_sub(before(name)))).collect()
}

/// Lines are pairs with the same first word: names, then values.
// Source: Documentation/networking/snmp_counter.rst
fn parse(text: &str) -> BTreeMap<String, u64> {
    let lines: Vec<&str> = text.lines().collect();
    let mut counters = BTreeMap::new();
    for pair in lines.chunks_exact(2) {
        let (names, values) = (pair[0].split_whitespace(), pair[1].split_whitespace());
        if !matches!(names.clone().next(), Some("Tcp:" | "TcpExt:")) {
            continue;
        }
        let wanted = names.zip(values).filter(|(name, _)| NAMES.contains(name));
        let numbers =
            wanted.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
        counters.extend(numbers);
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_lines_are_joined() {
        let text = "Ip: Forwarding OutRsts\nIp: 1 9\nTcp: MaxConn ActiveOpens RetransSegs\n\
                    Tcp: -1 12 3\nTcpExt: ListenOverflows\nTcpExt: 4\n";
        let found = parse(text);
        let expected = [("ActiveOpens", 12), ("ListenOverflows", 4), ("RetransSegs", 3)];
        assert_eq!(found, expected.map(|(name, count)| (name.to_owned(), count)).into());
        let mut later = found.clone();
        later.insert("RetransSegs".into(), 10);
        assert_eq!(added(&later, &found)["RetransSegs"], 7);
        assert_eq!(added(&later, &found)["ActiveOpens"], 0);
    }

    #[test]
    fn a_connection_is_counted() {
        let before = tcp_counters().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let added = added(&tcp_counters().unwrap(), &before);
        assert!(added["ActiveOpens"] >= 1, "{added:?}");
    }
}
