//! What `target_tracking` and `queue_depth` are configured with: signals and their targets, bounds, and how fast they may move.
//!
//! The names, defaults and limits are those of the Kubernetes HPA v2. Both kinds end in the same [`Tracking`]: a queue is
//! three signals with targets of their own.
//!
//! Not here: the arithmetic (`strategies::tracking`).

use super::decimal::{milli_of, show_milli};
use super::{ConfigurationProblem, Reader, missing, name_problem};
use crate::Span;
use crate::names::shortened;
use crate::signals::report::REPLICAS_MAX;
use crate::table::Key;

/// More are hard to reason about, and each is looked up at every evaluation.
const SIGNALS_MAX: usize = 16;
/// As HPA v2 has them.
const WINDOW_SECS_MAX: u64 = 3_600;
const PERIOD_SECS_MAX: u64 = 1_800;
const POLICIES_MAX: usize = 8;
const POLICY_MAX: u32 = 100_000;

/// How many replicas of one size there should be, by what signals say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracking {
    pub size: Key,
    pub replicas_min: u32,
    pub replicas_max: u32,
    pub signals: Vec<TrackedSignal>,
    /// Every signal must agree: the smallest wins, not the largest.
    pub require_all: bool,
    pub tolerance_milli: i64,
    pub up: Behavior,
    pub down: Behavior,
    pub algorithm: Algorithm,
}

/// A signal, and what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedSignal {
    /// Added up, if there are several.
    pub metrics: Vec<Key>,
    pub target: TargetKind,
    pub target_milli: i64,
    /// Where there may be no replica at all, it must be above this to ask for any. Nothing: it never asks for the first.
    pub activation_milli: Option<i64>,
    /// Of `knative`: the same over the short window. Without one, the signal itself.
    pub panic: Option<Key>,
}

impl TrackedSignal {
    /// As it was written.
    pub(crate) fn name(&self) -> Key {
        match self.metrics.as_slice() {
            [one] => one.clone(),
            several => several.join(" + ").into(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// The signal is about all replicas together; the target is what one replica takes.
    Average,
    /// The signal is already what it should be compared with: a ratio, a wait, a latency.
    Value,
}

/// How fast the number may change in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behavior {
    /// For so long, the most careful of the recommendations counts.
    pub window: Span,
    /// None: as fast as it likes.
    pub policies: Vec<Policy>,
    pub select: Select,
    /// Of `nomad`: how many at most in one change.
    pub step_max: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub amount: Amount,
    pub period: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Replicas(u32),
    Percent(u32),
}

/// Which of several policies counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The one that allows the most.
    Max,
    /// The one that allows the least.
    Min,
    /// Never in this direction.
    Disabled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Hpa,
    Knative(Knative),
    Nomad,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knative {
    /// What the short window wants against what is ready, in thousandths, from which on there is panic.
    pub panic_threshold_milli: i64,
    /// How long a panic lasts after the last reason for it.
    pub stable_window: Span,
    pub up_rate_milli: i64,
    pub down_rate_milli: i64,
}

const SCALE_UP: &str = "scale_up_policies";
const SCALE_DOWN: &str = "scale_down_policies";
const SIGNALS: &str = "signals";

pub(super) fn unfit(option: &str, problem: impl Into<String>) -> ConfigurationProblem {
    ConfigurationProblem::Unfit { option: option.to_owned(), problem: problem.into() }
}

impl Tracking {
    pub(super) fn read(reader: &Reader<'_>) -> Result<Self, ConfigurationProblem> {
        let algorithm = match reader.text("algorithm").map(str::to_ascii_lowercase).as_deref() {
            Some("knative") => Algorithm::Knative(Knative {
                panic_threshold_milli: reader.milli("panic_threshold").unwrap_or(2_000),
                stable_window: reader.span("stable_window_s").unwrap_or(Span::from_secs(60)),
                up_rate_milli: reader.milli("max_scale_up_rate").unwrap_or(1_000_000),
                down_rate_milli: reader.milli("max_scale_down_rate").unwrap_or(2_000),
            }),
            Some("nomad") => Algorithm::Nomad,
            _ => Algorithm::Hpa,
        };
        check_fits_algorithm(reader, algorithm)?;
        let text = reader.text(SIGNALS).ok_or_else(|| missing(SIGNALS))?;
        let signals = read_signals(text, algorithm)?;
        let tolerance_default = if algorithm == Algorithm::Nomad { 10 } else { 100 };
        Self::with(reader, signals, reader.milli("tolerance").unwrap_or(tolerance_default), algorithm, None)
    }

    /// The three signals of a queue: how long it is, how long the oldest has waited, how busy the workers are.
    pub(super) fn read_queue(reader: &Reader<'_>) -> Result<Self, ConfigurationProblem> {
        let named = |option: &str| {
            let Some(text) = reader.text(option) else { return Ok(None) };
            read_sum(text).map(Some).map_err(|problem| unfit(option, problem))
        };
        let (depth, wait, saturation) = (named("depth_signal")?, named("wait_signal")?, named("saturation_signal")?);
        // Whoever names none has them all under their usual names; whoever names some has only those.
        let all = depth.is_none() && wait.is_none() && saturation.is_none();
        let usual = |name: &str| all.then(|| vec![Key::from(name)]);
        let activation_milli = Some(reader.milli("activation").unwrap_or(0));
        let signal = |metrics: Option<Vec<Key>>, target, target_milli, activation_milli| {
            metrics.map(|metrics| TrackedSignal { metrics, target, target_milli, activation_milli, panic: None })
        };
        let signals = [
            signal(
                depth.or_else(|| usual("queue_depth")),
                TargetKind::Average,
                reader.milli("depth_target").unwrap_or(2_000),
                activation_milli,
            ),
            signal(
                wait.or_else(|| usual("queue_oldest_wait_seconds")),
                TargetKind::Value,
                reader.milli("wait_target").unwrap_or(30_000),
                Some(0),
            ),
            // Nobody is busy where nobody is: this one never starts the first replica.
            signal(
                saturation.or_else(|| usual("worker_saturation")),
                TargetKind::Value,
                reader.milli("saturation_target").unwrap_or(800),
                None,
            ),
        ];
        let signals = signals.into_iter().flatten().collect();
        Self::with(reader, signals, reader.milli("tolerance").unwrap_or(0), Algorithm::Hpa, Some(50))
    }

    fn with(
        reader: &Reader<'_>,
        signals: Vec<TrackedSignal>,
        tolerance_milli: i64,
        algorithm: Algorithm,
        max_default: Option<u32>,
    ) -> Result<Self, ConfigurationProblem> {
        let is_hpa = algorithm == Algorithm::Hpa;
        let replicas = |option: &str| {
            let Some(count) = reader.count(option) else { return Ok(None) };
            let fits = u32::try_from(count).ok().filter(|count| *count as usize <= REPLICAS_MAX);
            let many = || unfit(option, format!("{count} replicas are too many: a cluster has at most {REPLICAS_MAX}"));
            fits.map(Some).ok_or_else(many)
        };
        let replicas_min = replicas("min_replicas")?.unwrap_or(1);
        let replicas_max = replicas("max_replicas")?.or(max_default).ok_or_else(|| missing("max_replicas"))?;
        if replicas_min > replicas_max {
            return Err(unfit("min_replicas", format!("{replicas_min} is more than max_replicas, {replicas_max}")));
        }
        let window = |option: &str, default: u64| {
            let secs = reader.count(option).unwrap_or(if is_hpa { default } else { 0 });
            let long = || unfit(option, format!("{secs} s are too long: at most {WINDOW_SECS_MAX} s"));
            (secs <= WINDOW_SECS_MAX).then(|| Span::from_secs(secs)).ok_or_else(long)
        };
        let policies = |option: &str, default: &str| {
            let text = reader.text(option).unwrap_or(if is_hpa { default } else { "" });
            read_policies(text).map_err(|problem| unfit(option, problem))
        };
        let select = |option: &str| match reader.text(option).map(str::to_ascii_lowercase).as_deref() {
            Some("min") => Select::Min,
            Some("disabled") => Select::Disabled,
            _ => Select::Max,
        };
        let step = |option: &str| reader.count(option).and_then(|count| u32::try_from(count).ok());
        Ok(Self {
            size: reader.required("size")?,
            replicas_min,
            replicas_max,
            signals,
            require_all: reader.text("require").is_some_and(|require| require.eq_ignore_ascii_case("ALL")),
            tolerance_milli,
            up: Behavior {
                window: window("stabilization_up_s", 0)?,
                policies: policies(SCALE_UP, "4 per 15s, 100% per 15s")?,
                select: select("scale_up_select"),
                step_max: step("max_scale_up"),
            },
            down: Behavior {
                window: window("stabilization_down_s", 300)?,
                policies: policies(SCALE_DOWN, "100% per 15s")?,
                select: select("scale_down_select"),
                step_max: step("max_scale_down"),
            },
            algorithm,
        })
    }

    /// How long recommendations are needed.
    pub(crate) fn window_max(&self) -> Span {
        self.up.window.max(self.down.window)
    }

    /// How long it is needed when replicas were added and removed.
    pub(crate) fn period_max(&self) -> Span {
        let periods = self.up.policies.iter().chain(&self.down.policies).map(|policy| policy.period);
        periods.max().unwrap_or_default()
    }
}

/// An option that the chosen arithmetic does not look at is a misunderstanding, and better told than ignored.
fn check_fits_algorithm(reader: &Reader<'_>, algorithm: Algorithm) -> Result<(), ConfigurationProblem> {
    let (name, others): (&str, &[&str]) = match algorithm {
        Algorithm::Hpa => ("hpa", &["knative", "nomad"]),
        Algorithm::Knative(_) => ("knative", &["nomad"]),
        Algorithm::Nomad => ("nomad", &["knative"]),
    };
    let of = |owner: &str| -> &[&str] {
        match owner {
            "knative" => &["panic_threshold", "stable_window_s", "max_scale_up_rate", "max_scale_down_rate"],
            _ => &["max_scale_up", "max_scale_down"],
        }
    };
    for owner in others {
        if let Some(option) = of(owner).iter().find(|option| reader.options.get(option).is_some()) {
            return Err(unfit(option, format!("only algorithm '{owner}' has it, and this one is '{name}'")));
        }
    }
    if matches!(algorithm, Algorithm::Knative(_)) && reader.options.get("tolerance").is_some() {
        return Err(unfit("tolerance", "algorithm 'knative' has none: it rounds up, and holds by its window"));
    }
    Ok(())
}

/// `requests average 100; latency value 0.25 activation 0.05`: a signal in a row, rows divided by semicolons.
fn read_signals(text: &str, algorithm: Algorithm) -> Result<Vec<TrackedSignal>, ConfigurationProblem> {
    let rows: Vec<&str> = text.split([';', '\n']).map(str::trim).filter(|row| !row.is_empty()).collect();
    if rows.is_empty() || rows.len() > SIGNALS_MAX {
        return Err(unfit(SIGNALS, format!("one to {SIGNALS_MAX} signals, such as 'requests average 100'")));
    }
    let mut signals: Vec<TrackedSignal> = Vec::with_capacity(rows.len());
    for (row, number) in rows.iter().zip(1..) {
        let wrong = |problem: &str| unfit(SIGNALS, format!("row {number}, {:?}: {problem}", shortened(row)));
        let signal = read_signal(row, algorithm).map_err(|problem| wrong(&problem))?;
        if signals.iter().any(|known| known.metrics == signal.metrics) {
            return Err(wrong("the same signal is in a row before"));
        }
        signals.push(signal);
    }
    Ok(signals)
}

fn read_signal(row: &str, algorithm: Algorithm) -> Result<TrackedSignal, String> {
    const RIGHT: &str = "write a signal, average or value, and a number, such as 'requests average 100'; then, if wanted, \
                         'activation 5', or for knative 'panic requests_6s'";
    let words: Vec<&str> = row.split_whitespace().collect();
    let place = words.iter().position(|word| ["average", "value"].iter().any(|it| word.eq_ignore_ascii_case(it)));
    let (Some(place), false) = (place, words.is_empty()) else { return Err(RIGHT.to_owned()) };
    let metrics = read_sum(&words[..place].join(" "))?;
    let target = match words[place].eq_ignore_ascii_case("average") {
        true => TargetKind::Average,
        false => TargetKind::Value,
    };
    let number = |word: Option<&&str>| {
        let word = word.ok_or_else(|| RIGHT.to_owned())?;
        let milli = milli_of(word).filter(|milli| *milli >= 0);
        milli
            .ok_or_else(|| format!("{word:?} is no number; write one such as 100 or 0.25, with at most three decimals"))
    };
    let target_milli = number(words.get(place + 1))?;
    let mut signal = TrackedSignal { metrics, target, target_milli, activation_milli: Some(0), panic: None };
    let mut rest = words[place + 2..].iter();
    while let Some(word) = rest.next() {
        match word.to_ascii_lowercase().as_str() {
            "activation" => signal.activation_milli = Some(number(rest.next())?),
            "panic" => {
                let name = rest.next().ok_or_else(|| RIGHT.to_owned())?;
                signal.panic = Some(read_name(name)?);
            }
            _ => return Err(format!("{word:?} is not understood; {RIGHT}")),
        }
    }
    match algorithm {
        Algorithm::Knative(_) if target == TargetKind::Value => {
            Err("knative compares what one replica takes; write average".to_owned())
        }
        Algorithm::Nomad if target == TargetKind::Average => {
            Err("nomad compares the signal as it is; write value".to_owned())
        }
        Algorithm::Hpa | Algorithm::Nomad if signal.panic.is_some() => {
            Err("only knative has a panic signal".to_owned())
        }
        Algorithm::Hpa | Algorithm::Knative(_) if target_milli == 0 => {
            Err("a target of 0 is never reached; write one above".to_owned())
        }
        _ => Ok(signal),
    }
}

/// `stage_queue_depth + exec_queue_depth`
fn read_sum(text: &str) -> Result<Vec<Key>, String> {
    let names: Vec<Key> = text.split('+').map(|name| read_name(name.trim())).collect::<Result<_, _>>()?;
    if names.len() > SIGNALS_MAX {
        return Err(format!("at most {SIGNALS_MAX} signals are added up"));
    }
    Ok(names)
}

fn read_name(name: &str) -> Result<Key, String> {
    match name_problem(name) {
        None => Ok(name.into()),
        Some(_) => Err(format!("{name:?} is not the name of a signal: 1 to 63 letters, digits, '_', '-' or '.'")),
    }
}

/// `4 per 15s, 100% per 15s`
fn read_policies(text: &str) -> Result<Vec<Policy>, String> {
    let rows = text.split(',').map(str::trim).filter(|row| !row.is_empty());
    let policies: Vec<Policy> = rows.map(read_policy).collect::<Result<_, _>>()?;
    if policies.len() > POLICIES_MAX {
        return Err(format!("at most {POLICIES_MAX} policies"));
    }
    Ok(policies)
}

fn read_policy(row: &str) -> Result<Policy, String> {
    let wrong = || format!("{row:?} is no policy; write '4 per 15s' or '100% per 15s'");
    let words: Vec<&str> = row.split_whitespace().collect();
    let [amount, per, period] = words.as_slice() else { return Err(wrong()) };
    if !per.eq_ignore_ascii_case("per") {
        return Err(wrong());
    }
    let number = |text: &str| text.parse().ok().filter(|number| (1..=POLICY_MAX).contains(number)).ok_or_else(wrong);
    let amount = match amount.strip_suffix('%') {
        Some(percent) => Amount::Percent(number(percent)?),
        None => Amount::Replicas(number(amount)?),
    };
    let period: Span = period.parse().map_err(|_| wrong())?;
    if !(Span::from_secs(1)..=Span::from_secs(PERIOD_SECS_MAX)).contains(&period) {
        return Err(format!("{row:?}: a period is 1 s to {PERIOD_SECS_MAX} s long"));
    }
    Ok(Policy { amount, period })
}

impl std::fmt::Display for TrackedSignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.target == TargetKind::Average { "average" } else { "value" };
        write!(f, "{} {kind} {}", self.name(), show_milli(self.target_milli))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::options::Options;
    use crate::configuration::{Configuration, Rule, StrategyKind};

    fn tracking(options: &[(&str, &str)]) -> Result<Tracking, String> {
        let all = Options::from([("size", "100cc"), ("signals", "requests average 100")]).with("max_replicas", 10);
        let all = options.iter().fold(all, |all, (key, value)| match value.parse::<i64>() {
            Ok(number) => all.with(key, number),
            Err(_) => all.with(key, *value),
        });
        match Configuration::read(StrategyKind::TargetTracking, &all) {
            Ok(Configuration { rule: Rule::TargetTracking(tracking), .. }) => Ok(*tracking),
            Ok(other) => Err(format!("{other:?}")),
            Err(problem) => Err(problem.to_string()),
        }
    }

    #[test]
    fn the_defaults_are_those_of_hpa() {
        let tracking = tracking(&[]).unwrap();
        let per_15s = |amount| Policy { amount, period: Span::from_secs(15) };
        let up = Behavior {
            window: Span::default(),
            policies: vec![per_15s(Amount::Replicas(4)), per_15s(Amount::Percent(100))],
            select: Select::Max,
            step_max: None,
        };
        let down = Behavior {
            window: Span::from_secs(300),
            policies: vec![per_15s(Amount::Percent(100))],
            select: Select::Max,
            step_max: None,
        };
        assert_eq!((tracking.replicas_min, tracking.replicas_max, tracking.tolerance_milli), (1, 10, 100));
        assert_eq!((tracking.up, tracking.down, tracking.algorithm), (up, down, Algorithm::Hpa));
        assert!(!tracking.require_all, "the largest wins");
    }

    #[test]
    fn the_defaults_of_a_queue_are_its_thresholds() {
        let options = Options::from([("size", "100cc")]);
        let Rule::QueueDepth(queue) = Configuration::read(StrategyKind::QueueDepth, &options).unwrap().rule else {
            panic!("another rule");
        };
        let shown: Vec<String> = queue.signals.iter().map(ToString::to_string).collect();
        let expected = ["queue_depth average 2", "queue_oldest_wait_seconds value 30", "worker_saturation value 0.8"];
        assert_eq!(shown, expected);
        assert_eq!((queue.replicas_min, queue.replicas_max), (1, 50));
        assert_eq!((queue.down.window, queue.tolerance_milli), (Span::from_secs(300), 0));
        let options = options.with("depth_signal", "stage_queue_depth + exec_queue_depth");
        let Rule::QueueDepth(queue) = Configuration::read(StrategyKind::QueueDepth, &options).unwrap().rule else {
            panic!("another rule");
        };
        let shown: Vec<String> = queue.signals.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["stage_queue_depth + exec_queue_depth average 2"], "only what is named");
    }

    #[test]
    fn what_is_wrong_with_a_row_is_said_with_the_row() {
        for (option, value, expected) in [
            ("signals", "", "one to 16 signals"),
            ("signals", "requests 100", "row 1, \"requests 100\": write a signal, average or value"),
            ("signals", "a average 1; b value many", "row 2, \"b value many\": \"many\" is no number"),
            ("signals", "a average 0", "a target of 0"),
            ("signals", "a average 1; a value 1", "row 2, \"a value 1\": the same signal"),
            ("signals", "a average 1 panic b", "only knative"),
            ("signals", "a average 1 slowly", "\"slowly\" is not understood"),
            ("signals", "a b average 1", "\"a b\" is not the name of a signal"),
            ("scale_up_policies", "4 in 15s", "\"4 in 15s\" is no policy; write '4 per 15s'"),
            ("scale_up_policies", "4 per 2h", "1 s to 1800 s"),
            ("scale_down_policies", "0% per 15s", "is no policy"),
            ("stabilization_down_s", "3601", "3601 s are too long"),
            ("min_replicas", "11", "11 is more than max_replicas, 10"),
            ("max_replicas", "257", "257 replicas are too many"),
            ("max_scale_up", "3", "only algorithm 'nomad' has it"),
            ("panic_threshold", "2", "only algorithm 'knative' has it"),
            ("tolerance", "1.5", "tolerance"),
            ("algorithm", "guess", "algorithm"),
        ] {
            let problem = tracking(&[(option, value)]).expect_err(value);
            assert!(problem.contains(expected), "{option} = {value}: {problem}");
        }
    }
}
