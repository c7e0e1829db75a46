//! INFO server, memory, cpu: the process.

use base::units::human_bytes;

use super::{Page, ratio};
use crate::commands::connection::REDIS_VERSION;
use crate::commands::debug::lru_clock;
use crate::commands::memory::{MemoryReport, STARTUP_BYTES, allocator_shares};
use crate::config::machine_memory_bytes;
use crate::engine::process::{ProcessMemory, cpu_time};

pub(super) fn server(page: &mut Page<'_, '_>) {
    let cx = page.cx;
    let (identity, settings) = (&cx.shared.identity, &cx.reactor.settings);
    let system = rustix::system::uname();
    let texts = [system.sysname(), system.release(), system.machine()];
    let os = texts.map(|text| text.to_string_lossy()).join(" ");
    let uptime_s = cx.now.mono.since(identity.started.mono) / 1_000_000_000;
    let addresses = identity.addresses.get().map_or(&[][..], Vec::as_slice);
    page.field("redis_version", REDIS_VERSION);
    page.field("myriad_version", env!("CARGO_PKG_VERSION"));
    page.field("redis_mode", if settings.cluster_view { "cluster" } else { "standalone" });
    page.field("os", os);
    page.field("arch_bits", usize::BITS);
    page.field("monotonic_clock", "POSIX clock_gettime");
    page.field("multiplexing_api", "epoll");
    page.field("process_supervised", "no");
    page.field("process_id", std::process::id());
    page.field("run_id", &identity.run_id);
    page.field("tcp_port", addresses.first().map_or(0, std::net::SocketAddr::port));
    page.field("server_time_usec", crate::engine::clock::unix_micros());
    page.field("uptime_in_seconds", uptime_s);
    page.field("uptime_in_days", uptime_s / 86_400);
    page.field("hz", settings.hz);
    page.field("configured_hz", settings.hz);
    page.field("lru_clock", lru_clock(cx.unix(), 0));
    page.field("executable", &identity.executable);
    let file = cx.shared.config.lock().file().map(|path| path.display().to_string());
    page.field("config_file", file.unwrap_or_default());
    for (index, (endpoint, address)) in settings.endpoints().zip(addresses).enumerate() {
        // Redis uses the same word for both: it has one protocol.
        let name = if endpoint.is_tls { "tls" } else { "tcp" };
        let value = format!("name={name},bind={},port={}", address.ip(), address.port());
        page.field(&format!("listener{index}"), value);
    }
    if !settings.unixsocket.as_os_str().is_empty() {
        let value = format!("name=unix,bind={}", settings.unixsocket.display());
        page.field(&format!("listener{}", addresses.len()), value);
    }
    page.field("io_threads_active", 0);
    page.field("reactors", cx.shared.reactors.regular);
}

pub(super) fn memory(page: &mut Page<'_, '_>) {
    let report = MemoryReport::of(page.cx, page.data());
    used(page, &report);
    if let Some(bytes) = machine_memory_bytes() {
        amount(page, "total_system_memory", bytes);
    }
    let settings = &page.cx.reactor.settings;
    let policy = settings.maxmemory_policy.word();
    amount(page, "maxmemory", settings.maxmemory_bytes);
    page.field("maxmemory_policy", policy);
    scripts(page);
    if report.resident_bytes.is_some() {
        page.field("mem_fragmentation_ratio", format!("{:.2}", report.fragmentation()));
        page.field("mem_fragmentation_bytes", report.kept_bytes());
    }
    page.field("mem_untracked", report.untracked_bytes);
    page.field("mem_clients_normal", report.clients_bytes);
    page.field("mem_aof_buffer", report.log_bytes);
    page.field("mem_allocator", "mimalloc");
    let (shared, baseline) = (page.cx.shared, page.cx.shared.baseline.load());
    page.field("lazyfree_pending_objects", shared.free_thread.pending());
    page.field("lazyfreed_objects", baseline.freed(&shared.free_thread));
    trackers(page);
}

/// Memory of scripts and functions.
fn scripts(page: &mut Page<'_, '_>) {
    let (scripts, script_bytes) = page.cx.shared.scripts.stats();
    let libraries = page.cx.shared.functions.current();
    let text_bytes = script_bytes + libraries.bytes() as u64;
    let interpreter_bytes =
        page.cx.shared.memory.scripts.current_bytes().saturating_sub(text_bytes);
    amount(page, "used_memory_lua", interpreter_bytes);
    page.field("used_memory_vm_eval", interpreter_bytes);
    page.field("used_memory_scripts_eval", script_bytes);
    page.field("number_of_cached_scripts", scripts);
    page.field("number_of_functions", libraries.functions());
    page.field("number_of_libraries", libraries.iter().len());
    // Scripts and functions run in the same interpreters.
    page.field("used_memory_vm_functions", 0);
    amount(page, "used_memory_vm_total", interpreter_bytes);
    page.field("used_memory_functions", libraries.bytes());
    amount(page, "used_memory_scripts", text_bytes);
}

fn trackers(page: &mut Page<'_, '_>) {
    for state in page.cx.shared.memory.server.tree() {
        let limit = state.limit_bytes.unwrap_or(0);
        let value =
            format!("current={},peak={},limit={limit}", state.current_bytes, state.peak_bytes);
        page.field(&format!("tracker_{}", state.path), value);
    }
}

fn used(page: &mut Page<'_, '_>, report: &MemoryReport) {
    amount(page, "used_memory", report.used_bytes);
    let process = ProcessMemory::read();
    if let Some(bytes) = process.resident_bytes() {
        amount(page, "used_memory_rss", bytes);
    }
    amount(page, "used_memory_peak", report.peak_bytes);
    page.field("used_memory_peak_perc", percent(report.used_bytes, report.peak_bytes));
    page.field("used_memory_overhead", report.overhead_bytes());
    page.field("used_memory_startup", STARTUP_BYTES);
    page.field("used_memory_dataset", report.dataset_bytes);
    page.field("used_memory_dataset_perc", percent(report.dataset_bytes, report.used_bytes));
    if let Some(bytes) = process.resident_peak_bytes() {
        amount(page, "used_memory_rss_peak", bytes);
    }
    if let (Some(allocator), Some(resident)) = (process.anonymous_bytes(), report.resident_bytes) {
        let allocated = report.allocated_bytes(allocator);
        page.field("allocator_allocated", allocated);
        page.field("allocator_active", allocator);
        page.field("allocator_resident", allocator);
        let shares = allocator_shares(allocated, allocator, resident);
        for (name, share) in ["allocator_frag", "allocator_rss", "rss_overhead"].iter().zip(shares)
        {
            page.field(&format!("{name}_ratio"), format!("{:.2}", share.ratio));
            page.field(&format!("{name}_bytes"), share.bytes);
        }
    }
    page.zeros(&ABSENT);
}

/// Memory of features that do not exist here.
const ABSENT: [&str; 6] = [
    "mem_not_counted_for_evict",
    "mem_replication_backlog",
    "mem_total_replication_buffers",
    "mem_clients_slaves",
    "mem_cluster_links",
    "active_defrag_running",
];

/// Writes a number and its human-readable form.
fn amount(page: &mut Page<'_, '_>, name: &str, bytes: u64) {
    page.field(name, bytes);
    page.field(&format!("{name}_human"), human_bytes(bytes));
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", 100.0 * ratio(part, whole))
}

pub(super) fn cpu(page: &mut Page<'_, '_>) {
    if let Some(time) = cpu_time() {
        page.field("used_cpu_sys", seconds(time.system_us));
        page.field("used_cpu_user", seconds(time.user_us));
    }
    // The server starts no child processes.
    page.field("used_cpu_sys_children", seconds(0));
    page.field("used_cpu_user_children", seconds(0));
}

fn seconds(us: i64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}
