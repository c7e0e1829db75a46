//! Description of the machine: comparisons of rows from different machines are marked as such.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Build of the running program. Set once, at startup.
static BUILD: OnceLock<Build> = OnceLock::new();

/// Kernel settings that affect connection handling, memory and scheduling.
const SYSCTLS: [&str; 14] = [
    "fs/file-max",
    "kernel/sched_autogroup_enabled",
    "kernel/sched_rt_runtime_us",
    "net/core/netdev_max_backlog",
    "net/core/rmem_max",
    "net/core/somaxconn",
    "net/core/wmem_max",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_max_syn_backlog",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_tw_reuse",
    "net/ipv4/tcp_wmem",
    "vm/overcommit_memory",
];

/// Maximum number of cache types and levels per core.
const CACHES_MAX: usize = 16;

/// Build information of the lab's program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// With `-dirty` if the tree had changes; empty if unknown.
    pub commit: String,
    /// `rustc --version`; empty if unknown.
    pub rustc: String,
}

/// Properties of the machine that may affect results. Unknown ones are empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Hash of all following fields except the frequency and the build.
    pub hash: String,
    pub cpu_model: String,
    pub cpu_flags: BTreeSet<String>,
    /// Logical cores.
    pub cores: usize,
    pub threads_per_core: usize,
    /// Of the first core, at the time of the query.
    pub frequency_mhz: f64,
    /// `performance`, `powersave`, ...; empty if the machine does not control it.
    pub governor: String,
    /// Of the first core: `L1d 48K`.
    pub caches: Vec<String>,
    /// Empty on bare metal.
    pub hypervisor: String,
    pub memory_bytes: u64,
    pub kernel: String,
    pub mitigations: BTreeMap<String, String>,
    /// `always`, `madvise` or `never`.
    pub transparent_huge_pages: String,
    pub sysctls: BTreeMap<String, String>,
    /// Soft limits of this process: `open_files`; `unlimited` or a number.
    pub limits: BTreeMap<String, String>,
    pub build: Build,
}

/// Sets the build of the running program; only the first call has an effect.
pub fn set_build(build: Build) {
    BUILD.get_or_init(|| build);
}

/// Returns the build of the running program, if set.
pub fn build() -> Build {
    BUILD.get().cloned().unwrap_or_default()
}

impl Machine {
    /// Inspects this machine. Reads about 100 small files.
    pub fn detect() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let value = |name: &str| value_of(&cpuinfo, name).unwrap_or_default().to_owned();
        let flags = value("flags");
        let mut machine = Self {
            hash: String::new(),
            cpu_model: value("model name"),
            cpu_flags: flags.split_whitespace().map(String::from).collect(),
            cores: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            threads_per_core: threads_per_core(),
            frequency_mhz: value("cpu MHz").parse().unwrap_or_default(),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            caches: caches(),
            hypervisor: hypervisor(&flags),
            memory_bytes: memory_bytes(),
            kernel: read("/proc/sys/kernel/osrelease"),
            mitigations: files("/sys/devices/system/cpu/vulnerabilities"),
            transparent_huge_pages: chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            sysctls: sysctls(),
            limits: limits(),
            build: Build::default(),
        };
        machine.hash = machine.stable_hash();
        machine.build = build();
        machine
    }

    fn stable_hash(&self) -> String {
        let stable = Self {
            hash: String::new(),
            frequency_mhz: 0.0,
            build: Build::default(),
            ..self.clone()
        };
        let content = serde_json::to_vec(&stable).expect("text, numbers and maps of text");
        super::short_hash(&Sha256::digest(content))
    }
}

/// Returns the content of a small kernel file; empty if it does not exist.
fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Returns the first value in the form `name : value` or `name: value`.
fn value_of<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(found, value)| (found.trim(), value.trim()))
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value)
}

/// Returns the files of a folder with their content.
fn files(folder: &str) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.map(|name| (name.clone(), read(&format!("{folder}/{name}")))).collect()
}

fn threads_per_core() -> usize {
    let siblings = read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    siblings.split(',').map(range_len).sum::<usize>().max(1)
}

/// `0-3` is 4, `7` is 1.
fn range_len(range: &str) -> usize {
    let Some((first, last)) = range.split_once('-') else { return 1 };
    match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => last.saturating_sub(first) + 1,
        _ => 1,
    }
}

fn caches() -> Vec<String> {
    let folder = |index| format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
    (0..CACHES_MAX)
        .map(folder)
        .take_while(|folder| fs::exists(folder).unwrap_or_default())
        .map(|folder| {
            let kind = match read(&format!("{folder}/type")).as_str() {
                "Data" => "d",
                "Instruction" => "i",
                _ => "",
            };
            format!(
                "L{}{kind} {}",
                read(&format!("{folder}/level")),
                read(&format!("{folder}/size"))
            )
        })
        .collect()
}

fn hypervisor(flags: &str) -> String {
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return String::new();
    }
    match read("/sys/class/dmi/id/sys_vendor") {
        vendor if vendor.is_empty() => "unknown".into(),
        vendor => vendor,
    }
}

fn memory_bytes() -> u64 {
    let meminfo = read("/proc/meminfo");
    let kib = value_of(&meminfo, "MemTotal").and_then(|value| value.strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default().saturating_mul(1024)
}

/// Returns the word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> String {
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.map(|(word, _)| word.to_owned()).unwrap_or_default()
}

fn sysctls() -> BTreeMap<String, String> {
    let values = SYSCTLS.map(|name| (name.replace('/', "."), read(&format!("/proc/sys/{name}"))));
    values.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn limits() -> BTreeMap<String, String> {
    let resources = [
        ("open_files", Resource::Nofile),
        ("locked_memory_bytes", Resource::Memlock),
        ("processes", Resource::Nproc),
        ("stack_bytes", Resource::Stack),
    ];
    let soft = |resource| match getrlimit(resource).current {
        Some(limit) => limit.to_string(),
        None => "unlimited".to_owned(),
    };
    resources.into_iter().map(|(name, resource)| (name.to_owned(), soft(resource))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_description() {
        let machine = Machine::detect();
        assert!(machine.cores >= 1);
        assert!(machine.memory_bytes > 1 << 20);
        assert!(!machine.kernel.is_empty());
        assert!(machine.limits.contains_key("open_files"));
        assert_eq!(machine.hash.len(), 16);
    }

    #[test]
    fn the_hash_knows_what_lasts() {
        let machine = Machine { cpu_model: "A".into(), ..Machine::default() };
        let warm = Machine { frequency_mhz: 3_000.0, ..machine.clone() };
        let other = Machine { governor: "powersave".into(), ..machine.clone() };
        assert_eq!(machine.stable_hash(), warm.stable_hash());
        assert_ne!(machine.stable_hash(), other.stable_hash());
    }

    #[test]
    fn small_formats_of_the_kernel() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(range_len("0-3") + range_len("7"), 5);
        let text = "processor\t: 0\nmodel name\t: A B\nMemTotal:  5 kB\n";
        assert_eq!(value_of(text, "model name"), Some("A B"));
        assert_eq!(value_of(text, "MemTotal"), Some("5 kB"));
        assert_eq!(value_of(text, "flags"), None);
    }
}
