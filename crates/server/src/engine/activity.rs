//! What each reactor runs at this moment, for threads that watch the reactors.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::engine::requests::{RequestId, RequestKinds};

/// Maximum length of a script's name that is kept.
const SCRIPT_NAME_BYTES_MAX: usize = 128;

/// The activity of one reactor. On its own cache lines: it is written once per command.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Activity {
    /// Number of the running request plus one; 0: none.
    request: AtomicU32,
    runs_script: AtomicBool,
    /// Name of the running script, or of the last one.
    script: Mutex<Vec<u8>>,
}

/// The activities of all reactors.
#[derive(Debug)]
pub(crate) struct Activities(Box<[Activity]>);

/// What a reactor runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    /// Name of the request in INFO.
    pub(crate) request: &'static str,
    /// Name of the script that the request runs.
    pub(crate) script: Option<String>,
}

impl Activities {
    pub(crate) fn new(reactors: usize) -> Activities {
        Activities((0..reactors).map(|_| Activity::default()).collect())
    }

    /// Records that a reactor begins a request.
    #[inline]
    pub(crate) fn begin(&self, reactor: usize, request: RequestId) {
        self.0[reactor].request.store(u32::from(request) + 1, Ordering::Relaxed);
    }

    /// Records that a reactor has served its requests.
    #[inline]
    pub(crate) fn end(&self, reactor: usize) {
        self.0[reactor].request.store(0, Ordering::Relaxed);
    }

    pub(crate) fn begin_script(&self, reactor: usize, name: &[u8]) {
        let mut script = self.0[reactor].script.lock();
        script.clear();
        script.extend_from_slice(&name[..name.len().min(SCRIPT_NAME_BYTES_MAX)]);
        self.0[reactor].runs_script.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end_script(&self, reactor: usize) {
        self.0[reactor].runs_script.store(false, Ordering::Relaxed);
    }

    /// Returns what a reactor runs; `None` if it is not in a request.
    pub(crate) fn of(&self, reactor: usize, kinds: &RequestKinds) -> Option<Running> {
        let activity = &self.0[reactor];
        let id = activity.request.load(Ordering::Relaxed).checked_sub(1)?;
        let request = kinds.name(usize::try_from(id).unwrap_or(usize::MAX));
        let runs_script = activity.runs_script.load(Ordering::Relaxed);
        let script =
            runs_script.then(|| String::from_utf8_lossy(&activity.script.lock()).into_owned());
        Some(Running { request, script })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ClientProtocol;

    #[test]
    fn the_running_request_and_its_script_are_named() {
        let kinds = RequestKinds::new(ClientProtocol::ALL.map(|_| vec!["eval", "get"]));
        let activities = Activities::new(2);
        assert_eq!(activities.of(1, &kinds), None);
        activities.begin(1, 1);
        let running = |request, script: Option<&str>| {
            Some(Running { request, script: script.map(str::to_owned) })
        };
        assert_eq!(activities.of(1, &kinds), running("get", None));
        activities.begin(1, 0);
        activities.begin_script(1, b"f_1");
        assert_eq!(activities.of(1, &kinds), running("eval", Some("f_1")));
        assert_eq!(activities.of(0, &kinds), None);
        activities.end_script(1);
        assert_eq!(activities.of(1, &kinds), running("eval", None));
        activities.end(1);
        assert_eq!(activities.of(1, &kinds), None);
    }
}
