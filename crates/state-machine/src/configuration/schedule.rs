//! Time-of-day profiles: rows that change options of a strategy, or suspend its cluster, on some days at some times.
//!
//! `weekdays 08:00-18:00 size=200cc min_replicas=3; weekends suspended`
//!
//! A row says when and what: days (`daily`, `weekdays`, `weekends`, `mon`, `mon-thu`, `mon,wed,fri`, `2026-12-24`,
//! `2026-12-24..2027-01-01`; none: daily), then times of the day (none: all of it; an end that is not after its begin is on the next
//! day), then options as `name=value`, or `suspended`. Of several rows that hold, the first one counts, so exceptions come first.
//!
//! What a wall clock in the zone shows is what counts. A time that the clocks skip is the moment at which they do; one that comes
//! twice begins a profile the first time and ends it the second. All of it follows from the time in the log and the zone
//! database that is compiled in, so every node changes profiles at the same index, and a new leader has nothing to resume.
//!
//! Not here: what a strategy makes of its profile (`strategies::chain`).

use jiff::Timestamp;
use jiff::civil::{Date, Time as Clock, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use super::options::{OptionKind, Options, option_definition, read_option};
use super::tracking::unfit;
use super::{Configuration, ConfigurationProblem, StrategyKind};
use crate::Time;
use crate::names::shortened;
use crate::table::Key;

pub(crate) const SCHEDULE: &str = "schedule";
pub(crate) const TIME_ZONE: &str = "time_zone";

const ROWS_MAX: usize = 24;
const DAY_MINUTES: u16 = 24 * 60;
/// How far ahead, and back, it is looked for the next change: every day of the week, and those on both sides of it.
const DAYS_LOOKED_AT: i64 = 8;

/// The profiles of one strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    zone: TimeZone,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    when: When,
    /// As it was written.
    text: Key,
    profile: Profile,
}

/// What holds while a row does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The strategy wants no replica at all.
    pub suspended: bool,
    pub configuration: Configuration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct When {
    days: Days,
    /// Minutes from midnight.
    from: u16,
    /// At most two days after midnight of the first.
    until: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Days {
    /// A bit for each day, Monday the lowest.
    OfTheWeek(u8),
    Between(Date, Date),
}

/// The row that holds at a moment, and from when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding<'a> {
    /// Nothing: the options as they are.
    pub row: Option<(&'a Key, &'a Profile)>,
    /// When another one, or none, does.
    pub until: Option<Time>,
    /// When a row ended that had the cluster suspended, if that is what came before.
    pub woken_at: Option<Time>,
}

pub(super) fn read(
    kind: StrategyKind,
    options: &Options,
    rows: &str,
    zone: Option<&str>,
) -> Result<Schedule, ConfigurationProblem> {
    let name = zone.unwrap_or("UTC");
    let zone = TimeZoneDatabase::bundled().get(name).map_err(|_| {
        unfit(TIME_ZONE, format!("{name:?} is no time zone; write one such as Europe/Berlin, America/New_York or UTC"))
    })?;
    let texts: Vec<&str> = rows.split([';', '\n']).map(str::trim).filter(|row| !row.is_empty()).collect();
    if texts.is_empty() || texts.len() > ROWS_MAX {
        return Err(unfit(SCHEDULE, format!("one to {ROWS_MAX} rows, such as 'weekdays 08:00-18:00 size=200cc'")));
    }
    let mut rows = Vec::with_capacity(texts.len());
    for (text, number) in texts.iter().zip(1..) {
        let wrong = |problem: String| unfit(SCHEDULE, format!("row {number}, {:?}: {problem}", shortened(text)));
        rows.push(read_row(kind, options, text).map_err(wrong)?);
    }
    Ok(Schedule { zone, rows })
}

fn read_row(kind: StrategyKind, options: &Options, text: &str) -> Result<Row, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_what = |word: &&str| word.contains('=') || word.eq_ignore_ascii_case("suspended");
    let place = words.iter().position(is_what).ok_or_else(|| {
        "it changes nothing; write options such as size=200cc or min_replicas=3 at its end, or suspended".to_owned()
    })?;
    let when = read_when(&words[..place])?;
    let mut change = Options::default();
    let mut suspended = false;
    for word in &words[place..] {
        if word.eq_ignore_ascii_case("suspended") {
            suspended = true;
            continue;
        }
        let Some((name, value)) = word.split_once('=') else {
            return Err(format!(
                "{word:?} is not understood; behind the times come options such as size=200cc, or suspended"
            ));
        };
        let known = option_definition(kind, name).ok_or_else(|| format!("{kind} has no option {name:?}"))?;
        if [SCHEDULE, TIME_ZONE].contains(&known.key) || matches!(known.kind, OptionKind::Rows(_)) {
            return Err(format!("{name:?} cannot change with the time"));
        }
        let (key, value) = read_option(kind, name, value);
        if change.get(&key).is_some() {
            return Err(format!("{name:?} is there twice"));
        }
        change.set(&key, value);
    }
    if suspended && !change.is_empty() {
        return Err("where there is no replica, no option has any effect; write suspended alone".to_owned());
    }
    let reset = [SCHEDULE.to_owned(), TIME_ZONE.to_owned()];
    let configuration =
        Configuration::read(kind, &options.changed(&change, &reset)).map_err(|problem| match problem {
            ConfigurationProblem::Invalid { option, value } => {
                let expected = option_definition(kind, &option).map(|known| known.kind.expected()).unwrap_or_default();
                format!("{value:?} is not a value for option {option}; write {expected}")
            }
            other => other.to_string(),
        })?;
    Ok(Row { when, text: text.into(), profile: Profile { suspended, configuration } })
}

fn read_when(words: &[&str]) -> Result<When, String> {
    const RIGHT: &str = "write days (daily, weekdays, weekends, mon-fri, mon,wed, 2026-12-24 or 2026-12-24..2027-01-01), then, if \
                         wanted, times such as 08:00-18:00";
    let every_day = Days::OfTheWeek(0b111_1111);
    let (days, times) = match words {
        [] => return Err(RIGHT.to_owned()),
        [one] if read_times(one).is_some() => (every_day, Some(*one)),
        [days] => (read_days(days).ok_or_else(|| format!("{days:?} are no days; {RIGHT}"))?, None),
        [days, times] => (read_days(days).ok_or_else(|| format!("{days:?} are no days; {RIGHT}"))?, Some(*times)),
        [_, _, more, ..] => return Err(format!("{more:?} is not understood; {RIGHT}")),
    };
    let (from, until) = match times {
        None => (0, DAY_MINUTES),
        Some(times) => read_times(times).ok_or_else(|| {
            format!("{times:?} are no times of the day; write 08:00-18:00, or 22:00-06:00 over midnight")
        })?,
    };
    Ok(When { days, from, until })
}

fn read_days(text: &str) -> Option<Days> {
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "daily" => return Some(Days::OfTheWeek(0b111_1111)),
        "weekdays" => return Some(Days::OfTheWeek(0b001_1111)),
        "weekends" => return Some(Days::OfTheWeek(0b110_0000)),
        _ => {}
    }
    if lower.starts_with(|first: char| first.is_ascii_digit()) {
        let (first, last) = lower.split_once("..").unwrap_or((&lower, &lower));
        let (first, last): (Date, Date) = (first.parse().ok()?, last.parse().ok()?);
        return (first <= last).then_some(Days::Between(first, last));
    }
    let mut all = 0_u8;
    for part in lower.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day_of_the_week(first)?, day_of_the_week(last)?);
        // From Friday to Monday is over the end of the week.
        let mut day = first;
        loop {
            all |= 1 << day;
            if day == last {
                break;
            }
            day = (day + 1) % 7;
        }
    }
    Some(Days::OfTheWeek(all))
}

fn day_of_the_week(name: &str) -> Option<u8> {
    const NAMES: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let place = NAMES.iter().position(|full| *full == name || full[..3] == *name)?;
    u8::try_from(place).ok()
}

fn read_times(text: &str) -> Option<(u16, u16)> {
    let minutes = |clock: &str| {
        let (hours, minutes) = clock.split_once(':')?;
        let number = |digits: &str| (digits.len() == 2).then(|| digits.parse::<u16>().ok()).flatten();
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let all = hours * 60 + minutes;
        (minutes < 60 && all <= DAY_MINUTES).then_some(all)
    };
    let (from, until) = text.split_once('-')?;
    let (from, until) = (minutes(from)?, minutes(until)?);
    if from == DAY_MINUTES {
        return None;
    }
    Some((from, if until > from { until } else { until + DAY_MINUTES }))
}

impl Days {
    fn contain(&self, date: Date) -> bool {
        match self {
            Self::OfTheWeek(bits) => bits & (1 << weekday_number(date.weekday())) != 0,
            Self::Between(first, last) => (*first..=*last).contains(&date),
        }
    }
}

fn weekday_number(day: Weekday) -> u8 {
    u8::try_from(day.to_monday_zero_offset()).unwrap_or(0)
}

impl Schedule {
    /// The configurations of all rows.
    pub(crate) fn configurations(&self) -> impl Iterator<Item = &Configuration> {
        self.rows.iter().map(|row| &row.profile.configuration)
    }

    /// Which row holds at a moment. Nothing changes beyond the end of the calendar.
    pub fn at(&self, now: Time) -> Holding<'_> {
        let nothing = Holding { row: None, until: None, woken_at: None };
        let Some(today) = timestamp(now).map(|at| at.to_zoned(self.zone.clone()).date()) else { return nothing };
        let place = self.place(now);
        let mut changes = self.boundaries(today);
        changes.sort_unstable();
        changes.dedup();
        let until = changes.iter().copied().find(|at| *at > now && self.place(*at) != place);
        let before = changes.iter().rev().filter(|at| **at <= now && at.as_millis() > 0).find_map(|at| {
            let before = self.place(Time::from_millis(at.as_millis() - 1));
            (before != place).then_some((*at, before))
        });
        let suspended = |place: Option<usize>| place.is_some_and(|place| self.rows[place].profile.suspended);
        let woken_at = before.filter(|(_, row)| suspended(*row) && !suspended(place)).map(|(at, _)| at);
        Holding { row: place.map(|place| (&self.rows[place].text, &self.rows[place].profile)), until, woken_at }
    }

    /// The first row that holds.
    fn place(&self, now: Time) -> Option<usize> {
        let today = timestamp(now)?.to_zoned(self.zone.clone()).date();
        // What began yesterday may go on, over midnight or over an hour that comes twice.
        let days = [today.yesterday().ok(), Some(today)];
        self.rows.iter().position(|row| {
            days.into_iter().flatten().filter(|day| row.when.days.contain(*day)).any(|day| {
                let from = self.moment(day, row.when.from, false);
                let until = self.moment(day, row.when.until, true);
                from.zip(until).is_some_and(|(from, until)| from <= now && now < until)
            })
        })
    }

    /// The moments around a day at which any row may begin or end.
    fn boundaries(&self, today: Date) -> Vec<Time> {
        let mut moments = Vec::new();
        for row in &self.rows {
            let mut add = |day: Date| {
                moments.extend(self.moment(day, row.when.from, false));
                moments.extend(self.moment(day, row.when.until, true));
            };
            let mut day = plus(today, -DAYS_LOOKED_AT);
            while let Some(date) = day.filter(|date| plus(today, DAYS_LOOKED_AT).is_none_or(|last| *date <= last)) {
                if row.when.days.contain(date) {
                    add(date);
                }
                day = date.tomorrow().ok();
            }
            // A day that is far away may be the next one.
            if let Days::Between(first, _) = row.when.days
                && first > today
            {
                add(first);
            }
        }
        moments
    }

    /// When the wall clock shows so many minutes after midnight of a day.
    fn moment(&self, day: Date, minutes: u16, ends: bool) -> Option<Time> {
        let day = plus(day, i64::from(minutes / DAY_MINUTES))?;
        let minutes = minutes % DAY_MINUTES;
        let clock = Clock::new(i8::try_from(minutes / 60).ok()?, i8::try_from(minutes % 60).ok()?, 0, 0).ok()?;
        let shown = day.to_datetime(clock);
        let at = match self.zone.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(shown).ok()?,
            AmbiguousOffset::Fold { before, after } => {
                if ends {
                    after.to_timestamp(shown).ok()?
                } else {
                    before.to_timestamp(shown).ok()?
                }
            }
            AmbiguousOffset::Gap { after, .. } => {
                let early = after.to_timestamp(shown).ok()?;
                self.zone.following(early).next().map_or(early, |jump| jump.timestamp())
            }
        };
        u64::try_from(at.as_millisecond()).ok().map(Time::from_millis)
    }
}

fn plus(day: Date, days: i64) -> Option<Date> {
    day.checked_add(jiff::Span::new().days(days)).ok()
}

fn timestamp(at: Time) -> Option<Timestamp> {
    i64::try_from(at.as_millis()).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options() -> Options {
        Options::from([("size", "100cc"), ("signals", "load average 1")]).with("max_replicas", 9)
    }

    fn schedule(zone: &str, rows: &str) -> Result<Schedule, String> {
        read(StrategyKind::TargetTracking, &options(), rows, Some(zone)).map_err(|problem| problem.to_string())
    }

    fn time(text: &str) -> Time {
        Time::from_millis(u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap())
    }

    /// At that moment, this row holds until that moment.
    #[track_caller]
    fn check(schedule: &Schedule, now: &str, row: &str, until: &str) {
        let holding = schedule.at(time(now));
        assert_eq!(holding.row.map_or("", |(text, _)| text), row, "at {now}");
        assert_eq!(holding.until, Some(time(until)), "at {now}, until {:?}", holding.until.map(|it| it.to_string()));
    }

    #[test]
    fn days_and_times_are_those_of_the_zone() {
        let day = "weekdays 08:00-18:00 size=200cc";
        let weekend = "weekends suspended";
        let all = schedule("Europe/Berlin", &format!("{day}; {weekend}")).unwrap();
        // 2026-11-16 is a Monday; Berlin is an hour ahead.
        check(&all, "2026-11-16T06:59:59.999Z", "", "2026-11-16T07:00:00Z");
        check(&all, "2026-11-16T07:00:00Z", day, "2026-11-16T17:00:00Z");
        check(&all, "2026-11-16T17:00:00Z", "", "2026-11-17T07:00:00Z");
        check(&all, "2026-11-20T17:00:00Z", "", "2026-11-20T23:00:00Z");
        check(&all, "2026-11-20T23:00:00Z", weekend, "2026-11-22T23:00:00Z");
        assert_eq!(all.at(time("2026-11-22T23:00:00Z")).woken_at, Some(time("2026-11-22T23:00:00Z")));
        assert_eq!(all.at(time("2026-11-23T06:00:00Z")).woken_at, Some(time("2026-11-22T23:00:00Z")));
        assert_eq!(all.at(time("2026-11-23T08:00:00Z")).woken_at, None, "another row came between");
    }

    #[test]
    fn an_end_before_its_begin_is_on_the_next_day() {
        let night = "mon-fri 22:00-06:00 min_replicas=3";
        let all = schedule("UTC", night).unwrap();
        check(&all, "2026-11-16T23:00:00Z", night, "2026-11-17T06:00:00Z");
        check(&all, "2026-11-17T05:59:59Z", night, "2026-11-17T06:00:00Z");
        check(&all, "2026-11-17T06:00:00Z", "", "2026-11-17T22:00:00Z");
        check(&all, "2026-11-21T05:00:00Z", night, "2026-11-21T06:00:00Z");
        check(&all, "2026-11-22T23:00:00Z", "", "2026-11-23T22:00:00Z");
    }

    #[test]
    fn the_first_row_that_holds_counts_and_a_day_far_away_is_seen() {
        let (feast, day) = ("2026-12-24..2026-12-26 suspended", "daily 08:00-18:00 size=200cc");
        let all = schedule("UTC", &format!("{feast}; {day}")).unwrap();
        check(&all, "2026-12-23T12:00:00Z", day, "2026-12-23T18:00:00Z");
        check(&all, "2026-12-23T20:00:00Z", "", "2026-12-24T00:00:00Z");
        check(&all, "2026-12-25T12:00:00Z", feast, "2026-12-27T00:00:00Z");
        let all = schedule("UTC", "2027-06-01 min_replicas=2").unwrap();
        check(&all, "2026-11-16T12:00:00Z", "", "2027-06-01T00:00:00Z");
        assert_eq!(all.at(time("2027-06-02T00:00:00Z")).until, None, "it was once");
        let all = schedule("UTC", "daily size=200cc").unwrap();
        assert_eq!(all.at(time("2026-11-16T12:00:00Z")).until, None, "it is always so");
    }

    #[test]
    fn clocks_that_go_forward_skip_to_the_moment_at_which_they_do() {
        // In Berlin, 02:00 becomes 03:00 at 01:00Z on 2026-03-29.
        let row = "daily 02:30-05:00 size=200cc";
        let all = schedule("Europe/Berlin", row).unwrap();
        check(&all, "2026-03-29T00:59:59Z", "", "2026-03-29T01:00:00Z");
        check(&all, "2026-03-29T01:00:00Z", row, "2026-03-29T03:00:00Z");
        check(&all, "2026-03-28T01:00:00Z", "", "2026-03-28T01:30:00Z");
        let row = "daily 01:00-02:30 size=200cc";
        check(&schedule("Europe/Berlin", row).unwrap(), "2026-03-29T00:30:00Z", row, "2026-03-29T01:00:00Z");
        // A whole day of 23 hours.
        let row = "2026-03-29 size=200cc";
        check(&schedule("Europe/Berlin", row).unwrap(), "2026-03-28T23:00:00Z", row, "2026-03-29T22:00:00Z");
        // Where they go forward at midnight, the day begins at one.
        let row = "2026-09-06 size=200cc";
        check(&schedule("America/Santiago", row).unwrap(), "2026-09-06T04:00:00Z", row, "2026-09-07T03:00:00Z");
    }

    #[test]
    fn an_hour_that_comes_twice_begins_the_first_time_and_ends_the_second() {
        // In Berlin, 03:00 becomes 02:00 at 01:00Z on 2026-10-25.
        let row = "daily 02:30-05:00 size=200cc";
        let all = schedule("Europe/Berlin", row).unwrap();
        check(&all, "2026-10-25T00:00:00Z", "", "2026-10-25T00:30:00Z");
        check(&all, "2026-10-25T00:30:00Z", row, "2026-10-25T04:00:00Z");
        let row = "daily 01:00-02:30 size=200cc";
        let all = schedule("Europe/Berlin", row).unwrap();
        check(&all, "2026-10-24T23:30:00Z", row, "2026-10-25T01:30:00Z");
        check(&all, "2026-10-25T00:45:00Z", row, "2026-10-25T01:30:00Z");
        let row = "2026-10-25 size=200cc";
        check(&schedule("Europe/Berlin", row).unwrap(), "2026-10-24T22:00:00Z", row, "2026-10-25T23:00:00Z");
    }

    #[test]
    fn what_is_wrong_with_a_row_is_said_with_the_row_and_what_is_right() {
        for (rows, expected) in [
            ("", "one to 24 rows"),
            ("weekdays 08:00-18:00", "row 1, \"weekdays 08:00-18:00\": it changes nothing"),
            (
                "weekends suspended; someday size=200cc",
                "row 2, \"someday size=200cc\": \"someday\" are no days; write days",
            ),
            ("weekdays 8-18 size=200cc", "\"8-18\" are no times of the day; write 08:00-18:00"),
            ("weekdays 08:00-25:00 size=200cc", "are no times of the day"),
            ("2026-02-30 suspended", "\"2026-02-30\" are no days"),
            ("2026-12-26..2026-12-24 suspended", "are no days"),
            ("daily idle_after=5m", "target_tracking has no option \"idle_after\""),
            ("daily signals=x", "\"signals\" cannot change with the time"),
            ("daily schedule=x", "cannot change with the time"),
            ("daily min_replicas=some", "\"some\" is not a value for option min_replicas; write a whole number"),
            ("daily min_replicas=10", "10 is more than max_replicas, 9"),
            ("daily suspended size=200cc", "write suspended alone"),
            ("daily size=1 size=2", "\"size\" is there twice"),
            ("daily 08:00-18:00 now size=1", "\"now\" is not understood"),
        ] {
            let problem = schedule("UTC", rows).expect_err(rows);
            assert!(problem.contains(expected), "{rows}: {problem}");
        }
        let problem = schedule("Berlin", "daily suspended").expect_err("a city is no zone");
        assert!(problem.contains("\"Berlin\" is no time zone; write one such as Europe/Berlin"), "{problem}");
    }

    proptest! {
        #[test]
        fn a_row_holds_exactly_until_the_moment_it_says(secs in 1_700_000_000..1_900_000_000_u64, zone in 0..4_usize) {
            let zone = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"][zone];
            let rows = "2026-12-24 suspended; mon,wed 01:30-02:30 min_replicas=2; fri-sun 22:00-06:00 suspended; 02:00-03:00 size=1";
            let all = schedule(zone, rows).unwrap();
            let now = Time::from_millis(secs * 1_000);
            let holding = all.at(now);
            let until = holding.until.expect("there is always another one");
            prop_assert!(until > now);
            let last = Time::from_millis(until.as_millis() - 1);
            prop_assert_eq!(all.place(now), all.place(last));
            prop_assert_ne!(all.place(now), all.place(until));
        }
    }
}
