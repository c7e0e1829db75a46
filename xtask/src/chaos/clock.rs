//! The wall clock of one process, set some seconds ahead or back.
//!
//! Linux has one wall clock for all processes, and programs read it without a system call, by code
//! that the kernel maps into each of them (the vDSO, `vdso(7)`). This code is replaced by code that
//! makes the system call and adds seconds, so that the unchanged program runs with another time.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSymbol as _};
use rustix::process::{Pid, Signal, kill_process};

/// The function of the vDSO.
const FUNCTION: &str = "__vdso_clock_gettime";
/// Time for all threads to stop outside the function.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_micros(200);

/// Whether clocks can be set: the code is for x86-64.
pub(super) fn is_possible() -> bool {
    cfg!(target_arch = "x86_64")
}

/// Sets the wall clock of a process this many seconds ahead of the machine's.
pub(super) fn set(pid: Pid, seconds: i64) -> Result<()> {
    let memory = File::options()
        .read(true)
        .write(true)
        .open(proc_path(pid, "mem"))
        .context("open the memory of a server")?;
    let function = find_function(pid, &memory)?;
    let code = code(seconds);
    ensure!(function.end - function.start >= code.len() as u64, "{FUNCTION} is too short");
    let halted = halt_outside(pid, &function);
    let write = || memory.write_all_at(&code, function.start);
    let written = halted.and_then(|()| write().context("write to the vDSO of a server"));
    kill_process(pid, Signal::CONT)?;
    written
}

fn proc_path(pid: Pid, name: &str) -> String {
    format!("/proc/{}/{name}", pid.as_raw_nonzero())
}

/// `clock_gettime(clock, time)` with the arguments in `edi` and `rsi`.
fn code(seconds: i64) -> Vec<u8> {
    let mut code = vec![
        0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228: the system call clock_gettime
        0x0f, 0x05, // syscall
        0x09, 0xc7, // or edi, eax: 0 if it has succeeded for CLOCK_REALTIME
        0x75, 0x0d, // jne to the end
        0x48, 0xb9, // movabs rcx, seconds
    ];
    code.extend(seconds.to_le_bytes());
    code.extend([
        0x48, 0x01, 0x0e, // add [rsi], rcx
        0xc3, // ret
    ]);
    code
}

/// The addresses of the function in the process.
fn find_function(pid: Pid, memory: &File) -> Result<Range<u64>> {
    let maps = fs::read_to_string(proc_path(pid, "maps"))?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let bounds = line.and_then(|line| line.split_once(' ')?.0.split_once('-'));
    let (start, end) = bounds.context("the process has no vDSO")?;
    let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
    let mut image = vec![0; usize::try_from(end - start)?];
    memory.read_exact_at(&mut image, start).context("read the vDSO of a server")?;
    let image = ElfFile64::<object::Endianness>::parse(&*image).context("parse the vDSO")?;
    let mut symbols = image.dynamic_symbols();
    let symbol = symbols.find(|symbol| symbol.name() == Ok(FUNCTION));
    let symbol = symbol.with_context(|| format!("the vDSO has no {FUNCTION}"))?;
    let address = start + symbol.address();
    Ok(address..address + symbol.size())
}

/// Halts a process so that no thread is in the function.
fn halt_outside(pid: Pid, function: &Range<u64>) -> Result<()> {
    let started = Instant::now();
    loop {
        kill_process(pid, Signal::STOP)?;
        while !all_threads(pid, is_halted)? {
            ensure!(started.elapsed() < STOP_TIMEOUT, "the server does not halt");
            std::thread::sleep(POLL);
        }
        if all_threads(pid, |task| Ok(!function.contains(&instruction(task)?)))? {
            return Ok(());
        }
        kill_process(pid, Signal::CONT)?;
        ensure!(started.elapsed() < STOP_TIMEOUT, "a thread does not leave {FUNCTION}");
        std::thread::sleep(POLL);
    }
}

/// Whether it is so for all threads. `check` has the thread's folder in `/proc`.
fn all_threads(pid: Pid, check: impl Fn(&str) -> Result<bool>) -> Result<bool> {
    for task in fs::read_dir(proc_path(pid, "task"))? {
        let folder = task?.path();
        match check(&folder.to_string_lossy()) {
            Ok(false) => return Ok(false),
            Err(error) if folder.exists() => return Err(error),
            // It is so, or the thread has ended.
            Ok(true) | Err(_) => {}
        }
    }
    Ok(true)
}

fn is_halted(task: &str) -> Result<bool> {
    let stat = fs::read_to_string(format!("{task}/stat"))?;
    // The name before the last bracket may have any character.
    let (_, rest) = stat.rsplit_once(')').context("a stat without a name")?;
    Ok(rest.trim_start().starts_with('T'))
}

/// Address of the next instruction of a halted thread.
fn instruction(task: &str) -> Result<u64> {
    let call = fs::read_to_string(format!("{task}/syscall"))?;
    let Some(address) = call.trim().rsplit_once(" 0x").map(|(_, address)| address) else {
        bail!("{task}/syscall has no address: {call:?}");
    };
    Ok(u64::from_str_radix(address, 16)?)
}
