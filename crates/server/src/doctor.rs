//! `myriad doctor`: checks the machine for settings that make the server slow or unreliable.
//!
//! Reads `/proc` and `/sys` below a root, so that tests can provide other ones.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use base::units::human_bytes;

use crate::config::{Config, Settings};

/// Syncs that are measured; the median counts.
const SYNCS: usize = 21;
/// A slower sync limits a client that waits for each write to 200 of them in a second.
const SYNC_SLOW: Duration = Duration::from_millis(5);
/// A block of the log.
const BLOCK_BYTES: usize = 4096;
/// Descriptors besides those of the clients, and for each reactor.
const DESCRIPTORS_BASE: usize = 128;
const DESCRIPTORS_PER_REACTOR: usize = 2;
/// Part of the memory that `maxmemory` may take, in percent: the rest is for buffers and the kernel.
const MEMORY_PERCENT_MAX: u64 = 80;
const TEMPORARY_NAME: &str = "doctor.tmp";

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    subject: &'static str,
    state: String,
    advice: Option<Advice>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Advice {
    reason: &'static str,
    /// A command, or what to do.
    action: String,
}

impl Finding {
    fn new(subject: &'static str, state: impl Into<String>) -> Finding {
        Finding { subject, state: state.into(), advice: None }
    }

    fn advise_if(mut self, is_bad: bool, reason: &'static str, action: &str) -> Finding {
        self.advice = is_bad.then(|| Advice { reason, action: action.to_owned() });
        self
    }
}

/// Checks the machine for a server with this configuration, and prints what it finds. Fails if
/// something needs an action.
pub fn examine(config: &Config, out: &mut impl Write) -> anyhow::Result<()> {
    let findings = findings(Path::new("/"), config.settings());
    for Finding { subject, state, advice } in &findings {
        let word = if advice.is_some() { "WARN" } else { "ok" };
        writeln!(out, "{word:<5}{subject}: {state}")?;
        if let Some(Advice { reason, action }) = advice {
            writeln!(out, "       {reason}\n       {action}")?;
        }
    }
    let count = findings.iter().filter(|one| one.advice.is_some()).count();
    if count > 0 {
        bail!("{count} of {} checks have a warning", findings.len());
    }
    Ok(())
}

fn findings(root: &Path, settings: &Settings) -> Vec<Finding> {
    let machine = Machine { root };
    let mut findings = vec![
        machine.huge_pages(),
        machine.listen_queue(settings.tcp_backlog),
        machine.descriptors(settings.maxclients, settings.reactor_count()),
        machine.clock(),
        machine.swap(),
        machine.memory(settings.maxmemory_bytes),
    ];
    findings.extend(disk(&settings.dir));
    findings
}

/// The files of the kernel.
struct Machine<'r> {
    root: &'r Path,
}

impl Machine<'_> {
    /// The contents of a file, without white space around them; `None` if it cannot be read.
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// A field of `/proc/meminfo` in bytes.
    fn meminfo(&self, name: &str) -> Option<u64> {
        let text = self.read("proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
        kib.checked_mul(1024)
    }

    fn huge_pages(&self) -> Finding {
        let text = self.read("sys/kernel/mm/transparent_hugepage/enabled");
        let chosen = text.as_deref().and_then(|text| text.split(['[', ']']).nth(1));
        Finding::new("transparent huge pages", chosen.unwrap_or("not supported")).advise_if(
            chosen == Some("always"),
            "the kernel may stall the server to make huge pages, and memory that is freed in small \
             parts stays in use",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    }

    fn listen_queue(&self, backlog: usize) -> Finding {
        let path = "proc/sys/net/core/somaxconn";
        let Some(limit) = self.number(path) else { return unknown("listen queue", path) };
        Finding::new("listen queue", format!("somaxconn {limit}, tcp-backlog {backlog}")).advise_if(
            limit < backlog as u64,
            "the kernel drops connections that arrive faster than they are accepted",
            &format!("sysctl -w net.core.somaxconn={backlog}"),
        )
    }

    fn descriptors(&self, clients: usize, reactors: usize) -> Finding {
        let path = "proc/self/limits";
        let text = self.read(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
        // The server raises the first number, the soft limit, to the second one.
        let limit = line.and_then(|line| line.split_whitespace().nth(1));
        let Some(limit) = limit else { return unknown("open files", path) };
        let needed = clients + DESCRIPTORS_BASE + DESCRIPTORS_PER_REACTOR * reactors;
        let is_low = limit.parse().is_ok_and(|limit: usize| limit < needed);
        let state = format!("limit {limit}, needed for {clients} clients: {needed}");
        Finding::new("open files", state).advise_if(
            is_low,
            "the server cannot serve maxclients clients",
            &format!("set LimitNOFILE={needed} in the unit, or ulimit -Hn {needed}"),
        )
    }

    fn clock(&self) -> Finding {
        let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        let Some(source) = self.read(path) else { return unknown("clock source", path) };
        let is_slow = ["hpet", "acpi_pm", "jiffies", "xen"].contains(&source.as_str());
        Finding::new("clock source", source).advise_if(
            is_slow,
            "each reading of the clock is a system call, several of them for each turn of a reactor",
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, if \
             available_clocksource lists it",
        )
    }

    fn swap(&self) -> Finding {
        let Some(total) = self.meminfo("SwapTotal") else {
            return unknown("swap", "proc/meminfo");
        };
        let state = if total == 0 { "none".to_owned() } else { human_bytes(total) };
        Finding::new("swap", state).advise_if(
            total > 0,
            "a request for data in swap waits for the disk, and all clients of its reactor with it",
            "swapoff -a, and remove it from /etc/fstab; or MemorySwapMax=0 in the unit",
        )
    }

    /// The memory that the process may use: that of the machine, or of a control group around it.
    fn available(&self) -> Option<u64> {
        let groups = self.read("proc/self/cgroup").unwrap_or_default();
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let base = PathBuf::from("sys/fs/cgroup");
        let own = base.join(own);
        let groups = own.ancestors().take_while(|path| path.starts_with(&base));
        let limits = groups.filter_map(|group| self.number(group.join("memory.max").to_str()?));
        limits.chain(self.meminfo("MemTotal")).min()
    }

    fn memory(&self, maxmemory: u64) -> Finding {
        let Some(available) = self.available() else { return unknown("memory", "proc/meminfo") };
        let shown = human_bytes(available);
        let most = available / 100 * MEMORY_PERCENT_MAX;
        if maxmemory == 0 {
            return Finding::new("memory", format!("{shown}, maxmemory is not set")).advise_if(
                true,
                "the data may grow until the kernel ends the server",
                &format!("set maxmemory to at most {}", human_bytes(most)),
            );
        }
        let state = format!("{shown}, maxmemory {}", human_bytes(maxmemory));
        Finding::new("memory", state).advise_if(
            maxmemory > most,
            "buffers of clients, the log and the kernel need memory besides the data",
            &format!("set maxmemory to at most {}", human_bytes(most)),
        )
    }
}

fn unknown(subject: &'static str, path: &str) -> Finding {
    Finding::new(subject, format!("unknown: /{path} cannot be read"))
}

/// Removes the file of the checks.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // Another start of the checks truncates it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Measures the disk of the data directory.
fn disk(dir: &Path) -> Vec<Finding> {
    let path = dir.join(TEMPORARY_NAME);
    let mut options = OpenOptions::new();
    let made = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
    let file = match made {
        Ok(file) => file,
        Err(error) => {
            let state = format!("{} cannot be written: {error}", dir.display());
            return vec![Finding::new("data directory", state).advise_if(
                true,
                "the server stores its log and snapshots there",
                "create it, owned by the user of the server, or choose another one by --dir",
            )];
        }
    };
    let temporary = Temporary(path);
    vec![sync_time(&file), direct_writes(&temporary.0)]
}

fn sync_time(file: &File) -> Finding {
    let sync = |round: usize| -> io::Result<Duration> {
        file.write_all_at(&[1; BLOCK_BYTES], (round * BLOCK_BYTES) as u64)?;
        let began = Instant::now();
        file.sync_data()?;
        Ok(began.elapsed())
    };
    let times: io::Result<Vec<Duration>> = (0..SYNCS).map(sync).collect();
    let mut times = match times {
        Ok(times) => times,
        Err(error) => {
            return Finding::new("disk sync", format!("failed: {error}")).advise_if(
                true,
                "no write can be acknowledged",
                "check the disk and the messages of the kernel (dmesg)",
            );
        }
    };
    times.sort_unstable();
    let median = times[SYNCS / 2];
    let state = format!("median {median:.1?}, longest {:.1?}", times[SYNCS - 1]);
    Finding::new("disk sync", state).advise_if(
        median >= SYNC_SLOW,
        "with durability always, each client waits that long for a write",
        "use a disk with power-loss protection, or durability interval where a loss is acceptable",
    )
}

fn direct_writes(path: &Path) -> Finding {
    let flags = rustix::fs::OFlags::DIRECT.bits();
    let opened = i32::try_from(flags)
        .map_err(io::Error::other)
        .and_then(|flags| OpenOptions::new().write(true).custom_flags(flags).open(path));
    let state = if opened.is_ok() { "supported" } else { "not supported" };
    Finding::new("direct writes", state).advise_if(
        opened.is_err(),
        "the log goes through the page cache, which other files compete for",
        "put the data directory on ext4, xfs or btrfs",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up machine.
    struct Tree(PathBuf);

    impl Tree {
        fn new(label: &str, files: &[(&str, &str)]) -> Tree {
            let name = format!("myriad-doctor-{label}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&root);
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            fs::create_dir_all(root.join("data")).unwrap();
            Tree(root)
        }

        fn findings(&self, maxmemory_bytes: u64) -> Vec<Finding> {
            let dir = self.0.join("data");
            let settings = Settings { dir, maxmemory_bytes, ..Settings::default() };
            findings(&self.0, &settings)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn warned(findings: &[Finding]) -> Vec<&'static str> {
        let warned = findings.iter().filter(|one| one.advice.is_some());
        // Those of the disk depend on the machine of the test.
        warned.map(|one| one.subject).filter(|one| !one.starts_with("di")).collect()
    }

    const GROUP: &str = "sys/fs/cgroup/system.slice";

    #[test]
    fn a_good_machine_has_no_warnings() {
        let tree = Tree::new(
            "good",
            &[
                ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
                ("proc/sys/net/core/somaxconn", "4096\n"),
                ("proc/self/limits", "Max open files            1024      20000     files\n"),
                ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
                ("proc/meminfo", "MemTotal:  8388608 kB\nSwapTotal:  0 kB\n"),
            ],
        );
        let findings = tree.findings(6 << 30);
        assert_eq!(warned(&findings), [""; 0], "{findings:?}");
        assert_eq!(findings.len(), 8);
        assert!(findings[6].state.starts_with("median "), "{findings:?}");
        assert_eq!(fs::read_dir(tree.0.join("data")).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn each_bad_setting_is_found() {
        let tree = Tree::new(
            "bad",
            &[
                ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
                ("proc/sys/net/core/somaxconn", "128\n"),
                ("proc/self/limits", "Max open files            1024      4096      files\n"),
                ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
                ("proc/meminfo", "MemTotal:  8388608 kB\nSwapTotal:  1024 kB\n"),
                ("proc/self/cgroup", "0::/system.slice/myriad.service\n"),
                // The limit of a group around that of the process counts, too.
                (&format!("{GROUP}/memory.max"), "1073741824\n"),
                (&format!("{GROUP}/myriad.service/memory.max"), "max\n"),
            ],
        );
        let all = [
            "transparent huge pages",
            "listen queue",
            "open files",
            "clock source",
            "swap",
            "memory",
        ];
        assert_eq!(warned(&tree.findings(1 << 30)), all);
        assert_eq!(warned(&tree.findings(800 << 20)), all[..5], "80 % of 1 GiB are enough");
        assert_eq!(warned(&tree.findings(0)), all, "no maxmemory");
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let tree = Tree::new("none", &[]);
        fs::remove_dir(tree.0.join("data")).unwrap();
        let findings = tree.findings(1);
        assert_eq!(warned(&findings), ["data directory"]);
        let unknown = findings.iter().filter(|one| one.state.starts_with("unknown: /"));
        assert_eq!(unknown.count(), 5);
    }
}
