//! Load of a reactor, and when it gives connections away.

use base::time::MonoNs;

/// Load is measured over windows of this length.
pub(crate) const WINDOW_NS: u64 = 100_000_000;
/// What one window keeps of the old value, in percent: half of a change shows after two windows.
const KEEP_PERCENT: u64 = 70;
/// Below this nothing is worth moving: 10 %.
const OVERLOAD_PPM_MIN: u64 = 100_000;
/// An overloaded reactor is at least 25 % busier than the least busy one...
const OVERLOAD_PERCENT: u64 = 125;
/// ...by at least 5 percentage points...
const OVERLOAD_GAP_PPM: u64 = 50_000;
/// ...for this many windows. The first one starts the count of work per connection.
const OVERLOAD_WINDOWS: u32 = 3;
/// Connections given away at once.
pub(crate) const GIFTS_MAX: usize = 16;

/// Busy share of the reactor's time, smoothed, in parts per million.
#[derive(Debug, Default)]
pub(crate) struct LoadMeter {
    window_start: MonoNs,
    busy_ns: u64,
    load_ppm: u64,
}

impl LoadMeter {
    pub(crate) fn add_busy(&mut self, ns: u64) {
        self.busy_ns += ns;
    }

    /// The new load if a window ends at `now`. A reactor that slept through several windows
    /// forgets several times.
    pub(crate) fn end_window(&mut self, now: MonoNs) -> Option<u32> {
        let elapsed = now.since(self.window_start);
        if elapsed < WINDOW_NS {
            return None;
        }
        let share_ppm = scale(self.busy_ns, 1_000_000, elapsed).min(1_000_000);
        let windows = (elapsed / WINDOW_NS).min(32);
        let keep_ppm = (0..windows).fold(1_000_000, |keep, _| keep * KEEP_PERCENT / 100);
        self.load_ppm = (self.load_ppm * keep_ppm + share_ppm * (1_000_000 - keep_ppm)) / 1_000_000;
        self.busy_ns = 0;
        self.window_start = now;
        Some(u32::try_from(self.load_ppm).unwrap_or(u32::MAX))
    }

    /// When the window has to end even if nothing happens, so that the load seen by others falls.
    pub(crate) fn deadline(&self) -> Option<MonoNs> {
        (self.load_ppm > 1000).then_some(MonoNs(self.window_start.0 + WINDOW_NS))
    }
}

/// Load to be given to another reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gift {
    pub(crate) to: usize,
    /// How much load should go.
    pub(crate) load_ppm: u64,
    /// Giving more than this at once would only move the overload.
    pub(crate) load_ppm_max: u64,
}

/// Decides at the end of each window.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    overloaded_windows: u32,
}

/// What the balance wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Nothing,
    /// Overload begins: count work per connection from now on.
    Measure,
    Give(Gift),
}

impl Balance {
    /// `loads` are those of all reactors, `own` is this one's position.
    pub(crate) fn decide(&mut self, own: usize, loads: &[u64]) -> Decision {
        let Some(gift) = gift(own, loads) else {
            self.overloaded_windows = 0;
            return Decision::Nothing;
        };
        self.overloaded_windows += 1;
        match self.overloaded_windows {
            1 => Decision::Measure,
            OVERLOAD_WINDOWS => {
                self.overloaded_windows = 0;
                Decision::Give(gift)
            }
            _ => Decision::Nothing,
        }
    }
}

/// The reactor's excess over the mean goes to the least busy one. If all overloaded reactors do
/// the same at once, the receiver ends at the mean.
fn gift(own: usize, loads: &[u64]) -> Option<Gift> {
    let mine = loads[own];
    let (to, &least) = loads.iter().enumerate().min_by_key(|(_, load)| **load)?;
    let is_overloaded = mine >= OVERLOAD_PPM_MIN
        && mine * 100 > least * OVERLOAD_PERCENT
        && mine - least >= OVERLOAD_GAP_PPM;
    let mean = loads.iter().sum::<u64>() / loads.len() as u64;
    if !is_overloaded || mine <= mean {
        return None;
    }
    Some(Gift { to, load_ppm: mine - mean, load_ppm_max: (mine - least) * 9 / 10 })
}

/// Chooses what to give: positions in `costs` (work per connection; all of it made `load_ppm`),
/// the largest that fit first.
pub(crate) fn choose(costs: &[u64], load_ppm: u64, gift: Gift) -> Vec<usize> {
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
        let fits = if chosen.is_empty() { gift.load_ppm_max } else { gift.load_ppm };
        if given + load <= fits {
            given += load;
            chosen.push(index);
        }
        if given >= gift.load_ppm || chosen.len() == GIFTS_MAX {
            break;
        }
    }
    chosen
}

/// `value * numerator / denominator` without overflow in between.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_follows_the_busy_share_and_falls_in_sleep() {
        let mut meter = LoadMeter::default();
        let mut now = MonoNs(0);
        for _ in 0..20 {
            meter.add_busy(WINDOW_NS / 2);
            now.0 += WINDOW_NS;
            meter.end_window(now).unwrap();
        }
        assert!((490_000..=500_000).contains(&meter.load_ppm), "{}", meter.load_ppm);
        assert_eq!(meter.end_window(now), None);
        assert!(meter.deadline().is_some());
        now.0 += 40 * WINDOW_NS;
        assert!(meter.end_window(now).unwrap() < 1000);
        assert_eq!(meter.deadline(), None);
    }

    #[test]
    fn gives_only_after_lasting_overload() {
        let loads = [900_000, 100_000];
        let mut balance = Balance::default();
        assert_eq!(balance.decide(0, &loads), Decision::Measure);
        assert_eq!(balance.decide(0, &loads), Decision::Nothing);
        let gift = Gift { to: 1, load_ppm: 400_000, load_ppm_max: 720_000 };
        assert_eq!(balance.decide(0, &loads), Decision::Give(gift));
        assert_eq!(balance.decide(0, &loads), Decision::Measure);
        assert_eq!(balance.decide(0, &[500_000, 490_000]), Decision::Nothing);
        assert_eq!(balance.decide(0, &loads), Decision::Measure);
    }

    #[test]
    fn small_or_similar_loads_stay() {
        assert_eq!(gift(0, &[90_000, 0]), None);
        assert_eq!(gift(0, &[600_000, 500_000]), None);
        assert_eq!(gift(1, &[900_000, 100_000]), None);
        assert_eq!(gift(0, &[900_000]), None);
    }

    #[test]
    fn gives_large_connections_but_not_the_whole_overload() {
        let gift = Gift { to: 1, load_ppm: 400_000, load_ppm_max: 720_000 };
        assert_eq!(choose(&[10], 900_000, gift), Vec::<usize>::new());
        assert_eq!(choose(&[10, 10], 900_000, gift), [0]);
        assert_eq!(choose(&[0, 0], 900_000, gift), Vec::<usize>::new());
        assert_eq!(choose(&[1; 100], 900_000, gift).len(), GIFTS_MAX);
        assert_eq!(choose(&[6, 2, 1], 900_000, gift), [0]);
    }
}
