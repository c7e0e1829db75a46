//! Resource usage of whole processes.

use std::fs;
use std::io;

use super::threads::malformed;

/// Returns the resident memory of a process; 0 for a zombie.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    parse_resident(&fs::read_to_string(format!("/proc/{pid}/status"))?)
}

/// Returns a process and its descendants in the order of their ids. Takes about 10 us for each
/// process of the machine.
pub fn process_tree(pid: u32) -> io::Result<Vec<u32>> {
    let pairs: Vec<(u32, u32)> =
        processes()?.into_iter().map(|process| (process.pid, process.parent)).collect();
    Ok(tree_of(pid, &pairs))
}

/// Builds the tree from pairs of process and parent.
fn tree_of(pid: u32, pairs: &[(u32, u32)]) -> Vec<u32> {
    let mut tree = vec![pid];
    let mut looked_at = 0;
    while let Some(&parent) = tree.get(looked_at) {
        // A process id may be reused in between: avoid duplicates.
        let children = pairs.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child);
        let new: Vec<u32> = children.filter(|child| !tree.contains(child)).collect();
        tree.extend(new);
        looked_at += 1;
    }
    tree[1..].sort_unstable();
    tree
}

// Source: proc_pid_status(5), VmRSS
fn parse_resident(text: &str) -> io::Result<u64> {
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmRSS:")) else {
        return Ok(0);
    };
    let kib = line.trim().strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| malformed("status"))?.saturating_mul(1024))
}

/// One sample of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) name: String,
    pub(super) is_kernel_thread: bool,
    /// Processor time, including exited threads, in hundredths of a second.
    pub(super) ticks: u64,
}

/// Returns all processes except processes that exit during the call. Takes about 10 us for each.
pub(super) fn processes() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may exit between listing and reading; the file is otherwise readable.
        if let Ok(text) = fs::read_to_string(entry.path().join("stat")) {
            found.push(parse_stat(pid, &text)?);
        }
    }
    Ok(found)
}

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The name in brackets may contain blanks and brackets; fields are counted from its end.
// Source: proc_pid_stat(5), fields 2 (comm), 4 (ppid), 9 (flags), 14 (utime) and 15 (stime)
fn parse_stat(pid: u32, text: &str) -> io::Result<Process> {
    let (head, fields) = text.rsplit_once(')').ok_or_else(|| malformed("stat"))?;
    let (_, name) = head.split_once('(').ok_or_else(|| malformed("stat"))?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |number: usize| {
        let text = fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
        text.ok_or_else(|| malformed("stat"))
    };
    Ok(Process {
        pid,
        parent: u32::try_from(field(4)?).map_err(|_| malformed("stat"))?,
        name: name.to_owned(),
        is_kernel_thread: field(9)? & KERNEL_THREAD != 0,
        ticks: field(14)? + field(15)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_by_name() {
        let text = "Name:\tx\nVmHWM:\t  90 kB\nVmRSS:\t   56 kB\nThreads:\t1\n";
        assert_eq!(parse_resident(text).unwrap(), 56 << 10);
        assert_eq!(parse_resident("Name:\tzombie\n").unwrap(), 0);
        assert!(parse_resident("VmRSS:\t 5 MB\n").is_err());
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
    }

    #[test]
    fn names_may_be_strange() {
        let text = "7 (a) b (c) R 1 7 7 0 -1 2129984 0 0 0 0 21 43 0 0 20 0 1 0 11 31 39";
        let process = parse_stat(7, text).unwrap();
        assert_eq!((process.name.as_str(), process.ticks), ("a) b (c", 64));
        assert_eq!(process.parent, 1);
        assert!(process.is_kernel_thread);
        assert!(parse_stat(7, "7 (a) R 1").is_err());
    }

    #[test]
    fn a_tree_has_children_and_theirs() {
        let pairs = [(9, 3), (4, 3), (3, 1), (5, 9), (8, 1), (1, 0)];
        assert_eq!(tree_of(3, &pairs), [3, 4, 5, 9]);
        assert_eq!(tree_of(8, &pairs), [8]);
        assert_eq!(tree_of(7, &[(7, 7)]), [7]);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tree = process_tree(std::process::id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(tree[0], std::process::id());
        assert!(tree.contains(&child.id()), "{tree:?}");
    }

    #[test]
    fn we_are_among_the_processes() {
        let processes = processes().unwrap();
        let us = processes.iter().find(|process| process.pid == std::process::id()).unwrap();
        assert!(!us.is_kernel_thread);
    }
}
