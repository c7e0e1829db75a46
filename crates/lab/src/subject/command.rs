//! Starts processes: program, cores, and termination together with the lab.

use std::env;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::SubjectError;
use super::spec::{Kind, Place, SubjectSpec};

/// All parameters of a server's start.
#[derive(Debug)]
pub(super) struct Launch {
    program: PathBuf,
    arguments: Vec<String>,
    /// Port 0 until the server has reported its port.
    pub(super) address: SocketAddr,
}

impl Launch {
    pub(super) fn new(spec: &SubjectSpec, program: &Path, directory: &Path) -> io::Result<Self> {
        let port = if spec.kind.announces() { 0 } else { free_port()? };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let is_root = rustix::process::geteuid().is_root();
        let directory = directory.display().to_string();
        let place = Place { directory: &directory, address, is_root };
        let arguments = spec.kind.arguments(place, &spec.options);
        Ok(Self { program: program.to_owned(), arguments, address })
    }

    pub(super) fn command(&self) -> Command {
        ending_with_us(&self.program, &self.arguments)
    }

    /// Returns the command line for rows.
    pub(super) fn words(&self) -> Vec<String> {
        let program = self.program.display().to_string();
        [vec![program], self.arguments.clone()].concat()
    }
}

/// Creates a command whose process is killed by the kernel when the thread that starts it ends. It
/// has a separate process group, so that a Ctrl-C on the terminal only reaches the lab.
///
/// The process itself must request this; `setpriv` does it. If it is not installed, processes of a
/// killed lab keep running.
pub(crate) fn ending_with_us(program: &Path, arguments: &[String]) -> Command {
    let mut command = match find_program("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(arguments).process_group(0);
    command
}

/// Returns a port that was free a moment ago.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Resolves the program of a subject: a path is used as given, a name is searched on PATH, `myriad`
/// is used for Myriad and its web server, and this program for an echo. On Debian, nginx is only on
/// root's PATH.
pub(super) fn program(spec: &SubjectSpec) -> Result<PathBuf, SubjectError> {
    let found = match &spec.binary {
        Some(path) if path.components().count() > 1 => {
            path.is_file().then(|| env::current_dir().map(|here| here.join(path)).ok()).flatten()
        }
        Some(name) => find_program(&name.to_string_lossy()),
        None if spec.kind.is_of_myriad() => return myriad(),
        None if spec.kind == Kind::Echo => env::current_exe().ok(),
        None if spec.kind == Kind::Nginx => {
            let debian = PathBuf::from("/usr/sbin/nginx");
            find_program(spec.kind.program()).or_else(|| debian.is_file().then_some(debian))
        }
        None => find_program(spec.kind.program()),
    };
    found.ok_or(SubjectError::NotInstalled(spec.kind))
}

/// Returns `myriad`, which is built into the folder of this program.
pub(crate) fn myriad() -> Result<PathBuf, SubjectError> {
    let this = env::current_exe().map_err(|source| SubjectError::Prepare {
        what: "the path of this program".into(),
        source,
    })?;
    let path = this.with_file_name(Kind::Myriad.program());
    if path.is_file() { Ok(path) } else { Err(SubjectError::NotBuilt(path)) }
}

/// Searches an executable file on PATH.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns the first line of the program's version output; empty if there is none.
pub(super) fn version(program: &Path, kind: Kind) -> String {
    let flag = match kind {
        Kind::Memcached => "-V",
        Kind::Nginx => "-v",
        _ => "--version",
    };
    let output = Command::new(program).arg(flag).output();
    // nginx prints it to standard error.
    let text = |output: Output| match kind {
        Kind::Nginx => output.stderr,
        _ => output.stdout,
    };
    let text = output.map(|output| String::from_utf8_lossy(&text(output)).into_owned());
    let line = text.unwrap_or_default();
    line.lines().next().unwrap_or_default().trim().to_owned()
}

/// Returns the elements of `cpus` that this thread may use; empty means no pinning.
pub(crate) fn available_cpus(cpus: &[usize]) -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    let is_there = |cpu: &usize| *cpu < CpuSet::MAX_CPU && allowed.is_set(*cpu);
    cpus.iter().copied().filter(is_there).collect()
}

/// Starts a child that may use only `cpus` (all, if empty). Pins the calling thread temporarily,
/// because a child inherits the affinity of its parent.
pub(crate) fn spawn_pinned(command: &mut Command, cpus: &[usize]) -> io::Result<Child> {
    if cpus.is_empty() {
        return command.spawn();
    }
    let before = sched_getaffinity(None)?;
    let mut pinned = CpuSet::new();
    for cpu in cpus {
        pinned.set(*cpu);
    }
    sched_setaffinity(None, &pinned)?;
    let child = command.spawn();
    sched_setaffinity(None, &before)?;
    child
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn allowed_cpus_of_child(cpus: &[usize]) -> String {
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]).stdout(Stdio::piped());
        let output = spawn_pinned(&mut command, cpus).unwrap().wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().nth(1).unwrap().to_owned()
    }

    #[test]
    fn a_child_is_pinned_and_we_are_not() {
        let before = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap();
        assert_eq!(allowed_cpus_of_child(&[first]), first.to_string());
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn an_error_explains_how_to_build_a_missing_server() {
        let error = myriad().unwrap_err().to_string();
        assert!(
            error
                .ends_with("/myriad does not exist: build it with cargo build --release -p myriad")
        );
    }

    #[test]
    fn cores_that_are_not_there_are_left_out() {
        assert_eq!(available_cpus(&[CpuSet::MAX_CPU + 1]), Vec::<usize>::new());
    }

    #[test]
    fn arguments_reach_the_program_behind_its_guard() {
        let mut command = ending_with_us(Path::new("echo"), &["--a".into(), "b c".into()]);
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "--a b c\n");
    }
}
