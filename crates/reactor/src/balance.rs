//! Load of a reactor, and the decision to move connections away from it.

use base::time::MonoNs;

/// Load is measured over windows of this length.
pub(crate) const WINDOW_NS: u64 = 100_000_000;
/// Share of the old value that one window keeps, in percent: half of a change shows after two
/// windows.
const KEEP_PERCENT: u64 = 70;
/// Load below which no connection moves: 10 %.
const OVERLOAD_PPM_MIN: u64 = 100_000;
/// An overloaded reactor is at least 25 % busier than the least busy one...
const OVERLOAD_PERCENT: u64 = 125;
/// ...by at least 5 percentage points...
const OVERLOAD_GAP_PPM: u64 = 50_000;
/// ...for this many windows. After the first one, work is counted per connection.
const OVERLOAD_WINDOWS: u32 = 3;
/// Connections moved at once.
pub(crate) const TRANSFERS_MAX: usize = 16;

/// Shares of a reactor's time, smoothed, in parts per million.
///
/// A reactor is busier than another only if both measures agree. Where cores are shared with other
/// reactors or programs, the first alone reflects only how the kernel scheduled them: 16 reactors
/// on one core moved connections continuously between equally busy reactors. The second alone makes
/// a reactor that shares its core look as if it had less to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Time from the end of a wait to the next one.
    pub(crate) busy_ppm: u32,
    /// The part of it during which the reactor had a core.
    pub(crate) used_ppm: u32,
}

impl Load {
    /// How much this load exceeds the other one.
    fn above(self, other: Load) -> u64 {
        let busy_ppm = self.busy_ppm.saturating_sub(other.busy_ppm);
        u64::from(busy_ppm.min(self.used_ppm.saturating_sub(other.used_ppm)))
    }

    fn exceeds_percent(self, other: Load, percent: u64) -> bool {
        let exceeds = |mine: u32, its: u32| u64::from(mine) * 100 > u64::from(its) * percent;
        exceeds(self.busy_ppm, other.busy_ppm) && exceeds(self.used_ppm, other.used_ppm)
    }
}

/// Measures the load of a reactor.
#[derive(Debug, Default)]
pub(crate) struct LoadMeter {
    window_start: MonoNs,
    busy_ns: u64,
    /// The thread's processor time when the window began.
    cpu_ns: u64,
    load: Load,
}

impl LoadMeter {
    pub(crate) fn add_busy(&mut self, ns: u64) {
        self.busy_ns += ns;
    }

    /// The new load if a window ends at `now`. After sleeping through several windows, the old
    /// value decays several times. `cpu_ns` reads the thread's processor time, once per window;
    /// `None`: no other thread uses the core.
    pub(crate) fn end_window(
        &mut self,
        now: MonoNs,
        cpu_ns: impl FnOnce() -> Option<u64>,
    ) -> Option<Load> {
        let elapsed = now.since(self.window_start);
        if elapsed < WINDOW_NS {
            return None;
        }
        let cpu_ns = cpu_ns();
        // Processor time above the busy time was spent in waits: a reactor that polls in its waits
        // is idle.
        let used_ns = cpu_ns
            .map_or(self.busy_ns, |total| total.saturating_sub(self.cpu_ns).min(self.busy_ns));
        let windows = (elapsed / WINDOW_NS).min(32);
        let keep_ppm = (0..windows).fold(1_000_000, |keep, _| keep * KEEP_PERCENT / 100);
        let smoothed = |old_ppm: u32, ns: u64| {
            let share_ppm = scale(ns, 1_000_000, elapsed).min(1_000_000);
            let sum = u64::from(old_ppm) * keep_ppm + share_ppm * (1_000_000 - keep_ppm);
            u32::try_from(sum / 1_000_000).unwrap_or(u32::MAX)
        };
        self.load = Load {
            busy_ppm: smoothed(self.load.busy_ppm, self.busy_ns),
            used_ppm: smoothed(self.load.used_ppm, used_ns),
        };
        self.busy_ns = 0;
        self.cpu_ns = cpu_ns.unwrap_or(0);
        self.window_start = now;
        Some(self.load)
    }

    /// The thread's processor time when the last window ended.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Deadline of the window, even without events, so that the published load falls.
    pub(crate) fn deadline(&self) -> Option<MonoNs> {
        (self.load.busy_ppm > 1000).then_some(MonoNs(self.window_start.0 + WINDOW_NS))
    }
}

/// Load to move to another reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) to: usize,
    /// How much load should move.
    pub(crate) load_ppm: u64,
    /// Moving more than this at once would only shift the overload.
    pub(crate) load_ppm_max: u64,
}

/// Decides at the end of each window.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    overloaded_windows: u32,
}

/// Decision at the end of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Nothing,
    /// Overload begins: count work per connection from now on.
    Measure,
    Give(Transfer),
}

impl Balance {
    /// `loads` are those of all reactors, as far as they are known; `own` is this one's position.
    pub(crate) fn decide(&mut self, own: usize, loads: &[Option<Load>]) -> Decision {
        let Some(transfer) = transfer(own, loads) else {
            self.overloaded_windows = 0;
            return Decision::Nothing;
        };
        self.overloaded_windows += 1;
        match self.overloaded_windows {
            1 => Decision::Measure,
            OVERLOAD_WINDOWS => {
                self.overloaded_windows = 0;
                Decision::Give(transfer)
            }
            _ => Decision::Nothing,
        }
    }
}

/// The reactor's excess over the mean goes to the least busy one. If all overloaded reactors do the
/// same at once, the receiver ends at the mean.
fn transfer(own: usize, loads: &[Option<Load>]) -> Option<Transfer> {
    let mine = loads[own]?;
    let known = || loads.iter().enumerate().filter_map(|(index, load)| Some((index, (*load)?)));
    let (to, least) = known().max_by_key(|(_, load)| mine.above(*load))?;
    let gap_ppm = mine.above(least);
    let used_ppm = u64::from(mine.used_ppm);
    let is_overloaded = used_ppm >= OVERLOAD_PPM_MIN
        && mine.exceeds_percent(least, OVERLOAD_PERCENT)
        && gap_ppm >= OVERLOAD_GAP_PPM;
    let sum: u64 = known().map(|(_, load)| u64::from(load.used_ppm)).sum();
    let mean = sum / known().count() as u64;
    if !is_overloaded || used_ppm <= mean {
        return None;
    }
    Some(Transfer { to, load_ppm: used_ppm - mean, load_ppm_max: gap_ppm * 9 / 10 })
}

/// Chooses the connections to move: positions in `costs` (work per connection, which together
/// caused `load_ppm`), the largest that fit first.
pub(crate) fn choose(costs: &[u64], load_ppm: u64, transfer: Transfer) -> Vec<usize> {
    let total: u64 = costs.iter().sum();
    if total == 0 {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..costs.len()).filter(|&index| costs[index] > 0).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(costs[index]));
    let mut given = 0;
    let mut chosen = Vec::new();
    for index in order {
        let load = scale(costs[index], load_ppm, total);
        let fits = if chosen.is_empty() { transfer.load_ppm_max } else { transfer.load_ppm };
        if given + load <= fits {
            given += load;
            chosen.push(index);
        }
        if given >= transfer.load_ppm || chosen.len() == TRANSFERS_MAX {
            break;
        }
    }
    chosen
}

/// `value * numerator / denominator` without intermediate overflow.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads of reactors on dedicated cores.
    fn loads<const COUNT: usize>(ppm: [u32; COUNT]) -> [Option<Load>; COUNT] {
        ppm.map(|ppm| Some(Load { busy_ppm: ppm, used_ppm: ppm }))
    }

    #[test]
    fn load_follows_the_busy_share_and_falls_in_sleep() {
        let mut meter = LoadMeter::default();
        let mut now = MonoNs(0);
        for _ in 0..20 {
            meter.add_busy(WINDOW_NS / 2);
            now.0 += WINDOW_NS;
            meter.end_window(now, || None).unwrap();
        }
        assert!((490_000..=500_000).contains(&meter.load.busy_ppm), "{:?}", meter.load);
        assert_eq!(meter.load.used_ppm, meter.load.busy_ppm);
        assert_eq!(meter.end_window(now, || unreachable!("within a window")), None);
        assert!(meter.deadline().is_some());
        now.0 += 40 * WINDOW_NS;
        assert!(meter.end_window(now, || None).unwrap().busy_ppm < 1000);
        assert_eq!(meter.deadline(), None);
    }

    #[test]
    fn core_time_of_other_threads_is_not_used() {
        let mut meter = LoadMeter::default();
        let (mut now, mut cpu_ns) = (MonoNs(0), 0);
        for _ in 0..20 {
            meter.add_busy(WINDOW_NS);
            now.0 += WINDOW_NS;
            cpu_ns += WINDOW_NS / 4;
            meter.end_window(now, || Some(cpu_ns)).unwrap();
        }
        assert!((990_000..=1_000_000).contains(&meter.load.busy_ppm), "{:?}", meter.load);
        assert!((245_000..=250_000).contains(&meter.load.used_ppm), "{:?}", meter.load);
        // A wait that polls uses its core, but is not busy.
        for _ in 0..20 {
            meter.add_busy(WINDOW_NS / 10);
            now.0 += WINDOW_NS;
            cpu_ns += WINDOW_NS;
            meter.end_window(now, || Some(cpu_ns)).unwrap();
        }
        assert!((100_000..=102_000).contains(&meter.load.used_ppm), "{:?}", meter.load);
    }

    #[test]
    fn load_moves_only_after_lasting_overload() {
        let loads = loads([900_000, 100_000]);
        let mut balance = Balance::default();
        assert_eq!(balance.decide(0, &loads), Decision::Measure);
        assert_eq!(balance.decide(0, &loads), Decision::Nothing);
        let transfer = Transfer { to: 1, load_ppm: 400_000, load_ppm_max: 720_000 };
        assert_eq!(balance.decide(0, &loads), Decision::Give(transfer));
        assert_eq!(balance.decide(0, &loads), Decision::Measure);
        assert_eq!(balance.decide(0, &self::loads([500_000, 490_000])), Decision::Nothing);
        assert_eq!(balance.decide(0, &loads), Decision::Measure);
    }

    #[test]
    fn small_or_similar_loads_stay() {
        assert_eq!(transfer(0, &loads([90_000, 0])), None);
        assert_eq!(transfer(0, &loads([600_000, 500_000])), None);
        assert_eq!(transfer(1, &loads([900_000, 100_000])), None);
        assert_eq!(transfer(0, &loads([900_000])), None);
        // A load that is not known is neither a target nor in the mean.
        let [mine, least] = loads([450_000, 100_000]);
        assert_eq!(transfer(0, &[mine, None, least]).map(|found| found.to), Some(2));
        assert_eq!(transfer(0, &[mine, None]), None);
    }

    #[test]
    fn a_reactor_waiting_for_a_core_neither_gives_nor_receives() {
        let load = |busy_ppm, used_ppm| Some(Load { busy_ppm, used_ppm });
        // Both share a core, and the first got less of it.
        assert_eq!(transfer(0, &[load(900_000, 300_000), load(400_000, 300_000)]), None);
        // The second shares its core with another program, and has no time left.
        assert_eq!(transfer(0, &[load(950_000, 950_000), load(950_000, 450_000)]), None);
        // It has time left, whatever shares the first one's core.
        let found = transfer(0, &[load(1_000_000, 600_000), load(200_000, 200_000)]);
        assert_eq!(found, Some(Transfer { to: 1, load_ppm: 200_000, load_ppm_max: 360_000 }));
    }

    #[test]
    fn large_connections_move_but_not_the_whole_overload() {
        let transfer = Transfer { to: 1, load_ppm: 400_000, load_ppm_max: 720_000 };
        assert_eq!(choose(&[10], 900_000, transfer), Vec::<usize>::new());
        assert_eq!(choose(&[10, 10], 900_000, transfer), [0]);
        assert_eq!(choose(&[0, 0], 900_000, transfer), Vec::<usize>::new());
        assert_eq!(choose(&[1; 100], 900_000, transfer).len(), TRANSFERS_MAX);
        assert_eq!(choose(&[6, 2, 1], 900_000, transfer), [0]);
    }
}
