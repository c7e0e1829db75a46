//! Profiles are compared with the processor clocks of the profiled threads.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::graph::GraphError;
use super::*;

/// Enough samples for the tolerance of the tests, even on a busy machine.
const SAMPLES_MIN: u64 = 600;

/// Returns the processor time used by the calling thread.
fn own_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap()
}

/// Long compared with reading the clock between two turns.
fn turn(state: u64) -> u64 {
    (0..100_000).fold(state, |state, step| black_box(state.rotate_left(5) ^ step))
}

#[inline(never)]
fn burn_much(until_ns: u64) -> u64 {
    let mut state = 1;
    while own_cpu_ns() < until_ns {
        state = turn(black_box(state));
    }
    black_box(state)
}

#[inline(never)]
fn burn_little(until_ns: u64) -> u64 {
    let mut state = 2;
    while own_cpu_ns() < until_ns {
        state = turn(black_box(state));
    }
    black_box(state)
}

/// Runs `work` repeatedly on a thread of that name while `observe` runs; also returns the last
/// result of `work`.
fn alongside<W, O>(
    name: &str,
    mut work: impl FnMut() -> W + Send,
    observe: impl FnOnce() -> O,
) -> (W, O)
where
    W: Send,
{
    let stop = AtomicBool::new(false);
    let (running, runs) = mpsc::channel();
    thread::scope(|scope| {
        let worker = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, || {
            let _ = running.send(());
            loop {
                let done = work();
                if stop.load(Ordering::Relaxed) {
                    return done;
                }
            }
        });
        runs.recv().unwrap();
        let observed = observe();
        stop.store(true, Ordering::Relaxed);
        (worker.unwrap().join().unwrap(), observed)
    })
}

/// Returns `None` and logs it if the kernel forbids profiling here.
fn permitted(result: Result<Profile, ProfileError>) -> Option<Profile> {
    match result {
        Ok(profile) => Some(profile),
        Err(error @ (ProfileError::Forbidden { .. } | ProfileError::Unsupported)) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn only(thread: &str) -> Options {
    Options { thread: Some(thread.to_owned()), ..Options::default() }
}

/// Profiles that thread of this process until there are `SAMPLES_MIN` samples.
fn profile_of(thread: &str) -> Option<Profile> {
    let mut sum = Profile::default();
    while sum.samples < SAMPLES_MIN {
        let part = record(std::process::id(), Duration::from_millis(400), &only(thread));
        let part = permitted(part)?;
        sum.samples += part.samples;
        sum.lost += part.lost;
        sum.cpu_ns += part.cpu_ns;
        sum.threads = part.threads;
        for (stack, count) in part.stacks {
            *sum.stacks.entry(stack).or_default() += count;
        }
    }
    Some(sum)
}

fn share_of(profile: &Profile, function: &str) -> f64 {
    shares(&profile.folded())
        .iter()
        .filter(|share| share.function.ends_with(function))
        .map(|share| share.relative_with_callees)
        .sum()
}

/// Computes for `much_ms` in one function, then for `little_ms` in another; returns the total time
/// of each.
fn burner(much_ms: u64, little_ms: u64) -> impl FnMut() -> (u64, u64) + Send {
    let mut used = (0, 0);
    move || {
        let start = own_cpu_ns();
        burn_much(start + much_ms * 1_000_000);
        let middle = own_cpu_ns();
        burn_little(middle + little_ms * 1_000_000);
        used.0 += middle - start;
        used.1 += own_cpu_ns() - middle;
        used
    }
}

#[test]
#[allow(clippy::cast_precision_loss)]
fn shares_are_those_of_the_threads_own_clock() {
    let ((much_ns, little_ns), profile) =
        alongside("three-to-one", burner(17, 6), || profile_of("three-to-one"));
    let Some(profile) = profile else { return };
    let expected = much_ns as f64 / (much_ns + little_ns) as f64;
    // Five standard deviations of this many independent samples.
    let tolerance = 5.0 * (expected * (1.0 - expected) / profile.samples as f64).sqrt();
    let found = share_of(&profile, "::burn_much");
    assert!((found - expected).abs() < tolerance, "{found} instead of {expected}: {profile:#?}");
    let rest = share_of(&profile, "::burn_little");
    assert!((rest - (1.0 - expected)).abs() < tolerance, "{rest}: {profile:#?}");

    let stacks = profile.stacks.keys();
    assert!(stacks.clone().all(|stack| stack.starts_with("three-to-one;")), "{profile:#?}");
    let due = profile.cpu_ns as f64 * 999e-9;
    let taken = (profile.samples + profile.lost) as f64;
    assert!((taken / due - 1.0).abs() < 0.2, "{taken} samples, {due} were due");
}

#[test]
fn a_thread_that_sleeps_has_no_samples() {
    let (wake, woken) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let sleeper = thread::Builder::new().name("sleeper".to_owned());
        sleeper.spawn_scoped(scope, move || woken.recv()).unwrap();
        let profile = loop {
            // The thread sets its name after it has started.
            match record(std::process::id(), Duration::from_millis(300), &only("sleeper")) {
                Err(ProfileError::NoThread { .. }) => thread::yield_now(),
                result => break permitted(result),
            }
        };
        drop(wake);
        let Some(profile) = profile else { return };
        assert!(profile.samples <= 3, "{profile:#?}");
        assert_eq!(profile.threads, 1);
    });
}

#[test]
fn the_difference_of_two_profiles_is_the_changed_function() {
    let (_, before) = alongside("burner", burner(17, 6), || profile_of("burner"));
    let (_, after) = alongside("burner", burner(6, 17), || profile_of("burner"));
    let (Some(before), Some(after)) = (before, after) else { return };
    let (before, after) = (before.folded(), after.folded());
    let svg = difference(&before, &after, &Labels::default()).unwrap();
    let title = |function: &str, sign: char| {
        svg.lines().any(|line| line.contains(function) && line.contains(&format!("; {sign}")))
    };
    assert!(title("::burn_little", '+') && title("::burn_much", '-'), "{svg}");
}

#[test]
fn flame_graphs_are_svg_with_every_function() {
    let svg = flame_graph(
        "r;a;b<c> 3\nr;a 1\n",
        &Labels { title: "A & B".to_owned(), subtitle: String::new() },
    )
    .unwrap();
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("b&lt;c&gt; (3 samples, 75.00%)"), "{svg}");
    assert!(svg.contains("A &amp; B"));
    assert!(!svg.contains("src=\"http"));
    assert!(matches!(flame_graph("", &Labels::default()), Err(GraphError::Empty)));
    assert!(matches!(flame_graph("a b\n", &Labels::default()), Err(GraphError::NotFolded)));
}

#[test]
fn a_process_that_ends_meanwhile_ends_its_profile() {
    let (pid, result) = loop {
        let mut child = Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 1000000 ]; do i=$((i + 1)); done"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let result = record(child.id(), Duration::from_mins(50), &Options::default());
        child.wait().unwrap();
        // On a busy machine the process may have exited before sampling starts: try another one.
        if !matches!(result, Err(ProfileError::Ended { .. })) {
            break (child.id(), result);
        }
    };
    let Some(profile) = permitted(result) else { return };
    assert!(profile.notes.iter().any(|note| note.starts_with("the process exited after")));
    assert!(profile.folded().contains("sh;"), "{profile:#?}");

    let no_process = record(pid, Duration::from_secs(1), &Options::default()).unwrap_err();
    assert_eq!(no_process.to_string(), format!("process {pid} does not exist"));
}

#[test]
fn a_thread_that_is_not_there_is_said_beside_those_that_are() {
    let result = record(std::process::id(), Duration::from_secs(1), &only("missing"));
    let text = result.unwrap_err().to_string();
    assert!(text.contains("has no thread named missing; it has "), "{text}");
}

#[test]
fn threads_of_a_pool_have_one_name() {
    for (thread, name) in [("r00", "r"), ("worker-12", "worker"), ("main", "main"), ("7", "7")] {
        assert_eq!(pool(thread), name);
    }
}
