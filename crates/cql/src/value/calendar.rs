//! Days of the calendar, in the whole range of dates and timestamps: millions of years before and
//! after the present.

/// Days of 400 years, after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;
const YEARS_PER_ERA: i64 = 400;
/// From 1 March of year 0 to 1970-01-01.
const DAYS_BEFORE_EPOCH: i64 = 719_468;

/// A day of the proleptic Gregorian calendar. There is a year 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CivilDay {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
}

/// Days from the start of an era to the start of one of its years.
fn days_of_years(years: i64) -> i64 {
    365 * years + years / 4 - years / 100
}

impl CivilDay {
    /// The day that is `days` days after 1970-01-01.
    pub(crate) fn after_epoch(days: i64) -> CivilDay {
        // In years that begin in March, the leap day is the last day.
        let days = days.saturating_add(DAYS_BEFORE_EPOCH);
        let (era, of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
        let leap_days = of_era / 1_460 - of_era / 36_524 + of_era / (DAYS_PER_ERA - 1);
        let years = (of_era - leap_days) / 365;
        let of_year = of_era - days_of_years(years);
        // Any five consecutive months of such a year, from March or August, have 153 days.
        let month = (5 * of_year + 2) / 153;
        let year = era * YEARS_PER_ERA + years;
        CivilDay {
            year: if month < 10 { year } else { year + 1 },
            month: if month < 10 { month + 3 } else { month - 9 },
            day: of_year - (153 * month + 2) / 5 + 1,
        }
    }

    /// Days since 1970-01-01; None for a nonexistent day. The year has at most ten digits.
    pub(crate) fn since_epoch(self) -> Option<i64> {
        if !(1..=12).contains(&self.month) || !(1..=31).contains(&self.day) {
            return None;
        }
        let year = if self.month < 3 { self.year - 1 } else { self.year };
        let month = (self.month + 9) % 12;
        let of_year = (153 * month + 2) / 5 + self.day - 1;
        let of_era = days_of_years(year.rem_euclid(YEARS_PER_ERA)) + of_year;
        let days = year.div_euclid(YEARS_PER_ERA) * DAYS_PER_ERA + of_era - DAYS_BEFORE_EPOCH;
        // A day beyond the end of its month is normalized to a day of the next month.
        (CivilDay::after_epoch(days) == self).then_some(days)
    }

    /// Reads `2011-02-03`, `-0001-12-31` and `+10000-01-01`: a year has four digits, or a sign and
    /// up to ten.
    // Source: java.time.format.DateTimeFormatter, ISO_LOCAL_DATE
    pub(crate) fn parse(text: &str) -> Option<CivilDay> {
        let sign = text.chars().next().filter(|first| ['-', '+'].contains(first));
        let mut parts = text[usize::from(sign.is_some())..].splitn(3, '-');
        let mut part = |digits: std::ops::RangeInclusive<usize>| {
            let part = parts.next().filter(|part| digits.contains(&part.len()))?;
            let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
            let number: Option<i64> = part.parse().ok().filter(|_| is_number);
            number
        };
        let year = match sign {
            None => part(4..=4)?,
            Some('+') => part(5..=10)?,
            Some(_) => -part(4..=10).filter(|year| *year > 0)?,
        };
        let day = CivilDay { year, month: part(2..=2)?, day: part(2..=2)? };
        day.since_epoch().map(|_| day)
    }

    /// The format that [`CivilDay::parse`] reads.
    pub(crate) fn text(self) -> String {
        self.text_with_year(self.year)
    }

    /// With years counted from 1 in both directions, without the era's name.
    // Source: java.time.format.DateTimeFormatter, pattern yyyy: the year of the era
    pub(crate) fn text_of_era(self) -> String {
        self.text_with_year(if self.year > 0 { self.year } else { 1 - self.year })
    }

    fn text_with_year(self, year: i64) -> String {
        let CivilDay { month, day, .. } = self;
        let sign = match year {
            ..0 => "-",
            10_000.. => "+",
            _ => "",
        };
        format!("{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn days_have_their_texts() {
        for (days, text, of_era) in [
            (0, "1970-01-01", "1970-01-01"),
            (-1, "1969-12-31", "1969-12-31"),
            (15_008, "2011-02-03", "2011-02-03"),
            (11_016, "2000-02-29", "2000-02-29"),
            (-719_528, "0000-01-01", "0001-01-01"),
            (-719_529, "-0001-12-31", "0002-12-31"),
            (-719_893, "-0001-01-01", "0002-01-01"),
            (2_932_896, "9999-12-31", "9999-12-31"),
            (2_932_897, "+10000-01-01", "+10000-01-01"),
            (-1 << 31, "-5877641-06-23", "+5877642-06-23"),
            ((1 << 31) - 1, "+5881580-07-11", "+5881580-07-11"),
        ] {
            let day = CivilDay::after_epoch(days);
            assert_eq!(day.text(), text);
            assert_eq!(day.text_of_era(), of_era);
            assert_eq!(CivilDay::parse(text).and_then(CivilDay::since_epoch), Some(days), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_days() {
        for text in [
            "",
            "2011",
            "2011-02",
            "2011-2-3",
            "2011-02-30",
            "1900-02-29",
            "2011-13-01",
            "2011-00-01",
            "2011-01-00",
            "2011-01-01-",
            "10000-01-01",
            "+2011-01-01",
            "-0000-01-01",
            "+10000000000-01-01",
            "x011-01-01",
            "ä",
        ] {
            assert_eq!(CivilDay::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn days_are_read_back(days in -200_000_000_000_i64..200_000_000_000) {
            let day = CivilDay::after_epoch(days);
            prop_assert_eq!(day.since_epoch(), Some(days));
            let next = CivilDay::after_epoch(days + 1);
            prop_assert!((day.year, day.month, day.day) < (next.year, next.month, next.day));
            prop_assert_eq!(CivilDay::parse(&day.text()), Some(day));
        }
    }
}
