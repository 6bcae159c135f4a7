//! `wake`, `savings` and `override`: clusters that sleep while nobody uses them.

use std::collections::BTreeMap;
use std::time::Duration;

use loadline_api::scale_to_zero::{CENT_MICROS, HOUR_HUNDREDTH_MILLIS, parts_that_add_up};
use loadline_client::Sleepers;
use loadline_client::v1::{GetSavingsResponse, OverrideClusterRequest, SavingsDay, WokenCluster};
use serde::Serialize;
use tokio::time::Instant;

use super::Session;
use super::scaling::{done, millis};
use crate::exit::{Exit, Failed};
use crate::output::{Format, Lines, csv_line, json_line, pretty, yaml_documents};
use crate::sleep_args::{OverrideArgs, SavingsArgs, WakeArgs};
use crate::text::show_price;

/// How often a cluster that is waited for is looked at. Nobody notices less, and a node answers from what it has applied.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Serialize)]
struct WokenView {
    cluster: String,
    policy_id: String,
    status: String,
    reason: String,
    previous_replicas: u64,
    target_replicas: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_ready_seconds: Option<u64>,
}

impl From<&WokenCluster> for WokenView {
    fn from(woken: &WokenCluster) -> WokenView {
        WokenView {
            cluster: woken.cluster.clone(),
            policy_id: woken.strategy.clone(),
            status: woken.status.clone(),
            reason: woken.reason.clone(),
            previous_replicas: woken.previous_replicas,
            target_replicas: woken.target_replicas,
            estimated_ready_seconds: woken.estimated_ready_ms.map(|millis| millis.div_ceil(1_000)),
        }
    }
}

pub(crate) async fn wake(args: WakeArgs, session: Session<'_>) -> Result<(), Failed> {
    let sleepers = if args.all { Sleepers::All } else { Sleepers::Named(args.clusters) };
    let answer = session.client.wake(&sleepers, args.reason.as_str()).await?;
    let mut woken = answer.clusters;
    if woken.is_empty() {
        session.console.say("no cluster is at zero");
    }
    if args.wait {
        let spinner = waiting(&woken, session.console.watched);
        let waited = wait(&mut woken, &session).await;
        spinner.finish_and_clear();
        waited?;
    }
    let views: Vec<WokenView> = woken.iter().map(WokenView::from).collect();
    let text = match session.format {
        Format::Json => pretty(&views)?,
        Format::Jsonl => {
            let lines: Result<Vec<String>, Failed> = views.iter().map(json_line).collect();
            lines?.concat()
        }
        Format::Yaml => yaml_documents(&views)?,
        Format::Name => views.iter().map(|view| format!("clusters/{}\n", view.cluster)).collect(),
        _ => views.iter().map(said).collect(),
    };
    session.console.data(&text)
}

fn said(view: &WokenView) -> String {
    let replicas = if view.target_replicas == 1 { "replica" } else { "replicas" };
    let more = match (view.status.as_str(), view.estimated_ready_seconds) {
        ("waking", Some(seconds)) => format!(", {} {replicas}, ready in about {seconds}s", view.target_replicas),
        ("waking", None) => format!(", {} {replicas}", view.target_replicas),
        _ => String::new(),
    };
    format!("cluster {} {}{more}\n", view.cluster, view.status)
}

/// A sign of life on a terminal: a cold start takes a while.
fn waiting(woken: &[WokenCluster], watched: bool) -> indicatif::ProgressBar {
    let names: Vec<&str> = woken.iter().filter(|it| it.status == "waking").map(|it| it.cluster.as_str()).collect();
    if !watched || names.is_empty() {
        return indicatif::ProgressBar::hidden();
    }
    let spinner = indicatif::ProgressBar::new_spinner();
    let style = indicatif::ProgressStyle::with_template("{spinner} waiting for {msg} {elapsed}");
    let message = match names.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("{} clusters", many.len()),
    };
    let style = style.unwrap_or_else(|_| indicatif::ProgressStyle::default_spinner());
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner.with_style(style).with_message(message)
}

/// What holds a cluster that does not become ready, as far as anybody can say.
async fn held_by(cluster: &str, session: &Session<'_>) -> Option<String> {
    let explained = session.client.explain(&format!("clusters/{cluster}"), None, session.reading).await.ok()?;
    let brake = explained.decision?.brakes.into_iter().find_map(|held| held.brake)?;
    Some(brake.text)
}

/// Until all of them are ready, or the first of them has had the time that a cold start may take.
async fn wait(woken: &mut [WokenCluster], session: &Session<'_>) -> Result<(), Failed> {
    let mut give_up: Option<Instant> = None;
    loop {
        let waiting: Vec<String> =
            woken.iter().filter(|it| it.status == "waking").map(|it| it.cluster_id.clone()).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let states = session.client.idle_states(&waiting, session.reading).await?;
        for state in states.iter().filter(|state| state.ready) {
            for it in woken.iter_mut().filter(|it| it.cluster_id == state.cluster_id) {
                it.status = "ready".to_owned();
            }
        }
        let timeout = states.iter().map(|state| state.cold_start_timeout_ms).min().unwrap_or_default();
        let give_up = *give_up.get_or_insert_with(|| Instant::now() + Duration::from_millis(timeout));
        let late: Vec<&str> = woken.iter().filter(|it| it.status == "waking").map(|it| it.cluster.as_str()).collect();
        if let Some(first) = late.first().filter(|_| Instant::now() >= give_up) {
            let names = late.join(", ");
            let held = held_by(first, session).await;
            let held = held.map(|held| format!("; {first} is held: {held}")).unwrap_or_default();
            let message = format!("woken, and not ready within {:?}: {names}{held}", Duration::from_millis(timeout));
            let hint = format!("it goes on; loadline explain cluster/{first} says where it is");
            return Err(Failed::new(Exit::TimedOut, message).hint(hint));
        }
        if !late.is_empty() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

#[derive(Debug, Serialize)]
struct SavingsView {
    since: String,
    until: String,
    time_zone: String,
    tracked: bool,
    assumption: String,
    idle_hours: String,
    scaled_to_zero_hours: String,
    savings: String,
    days: Vec<DayView>,
}

#[derive(Debug, Serialize)]
struct DayView {
    date: String,
    idle_hours: String,
    scaled_to_zero_hours: String,
    savings: String,
}

#[derive(Debug, Default, Clone, Copy)]
struct Total {
    idle_ms: u64,
    zero_ms: u64,
    micros: u64,
}

impl Total {
    fn add(&mut self, day: &SavingsDay) {
        self.idle_ms += day.idle_ms;
        self.zero_ms += day.scaled_to_zero_ms;
        self.micros = self.micros.saturating_add(day.saved_micros);
    }
}

/// To a hundredth, rounded down.
fn hours(millis: u64) -> String {
    hundredths(millis / HOUR_HUNDREDTH_MILLIS)
}

/// To the cent, rounded down.
fn cents(micros: u64) -> String {
    hundredths(micros / CENT_MICROS)
}

fn hundredths(count: u64) -> String {
    format!("{}.{:02}", count / 100, count % 100)
}

/// The whole bar is the day that saved most.
fn bar(micros: u64, most: u64, width: u64) -> String {
    let cells = if most == 0 { 0 } else { (micros.saturating_mul(width)).div_ceil(most) };
    "█".repeat(usize::try_from(cells).unwrap_or_default())
}

pub(crate) async fn savings(args: &SavingsArgs, session: Session<'_>) -> Result<(), Failed> {
    let answer = session.client.savings(&args.clusters, args.since, session.reading).await?;
    let mut by_day: BTreeMap<String, Total> = BTreeMap::new();
    let mut total = Total::default();
    for day in &answer.days {
        by_day.entry(day.date.clone()).or_default().add(day);
        total.add(day);
    }
    let text = match session.format {
        Format::Json => pretty(&view(&answer, &by_day, total))?,
        Format::Jsonl => {
            let lines: Result<Vec<String>, Failed> = view(&answer, &by_day, total).days.iter().map(json_line).collect();
            lines?.concat()
        }
        Format::Yaml => yaml_documents(&[view(&answer, &by_day, total)])?,
        Format::Name => by_day.keys().map(|date| format!("{date}\n")).collect(),
        Format::Csv => {
            let lines: Result<Vec<String>, Failed> = rows(&answer).iter().map(|row| csv_line(row)).collect();
            lines?.concat()
        }
        Format::Table | Format::Wide | Format::Sql => report(&answer, &by_day, total),
    };
    session.console.data(&text)?;
    if !answer.tracked {
        session.console.say("nothing is added: the setting scale_to_zero_cost_tracking is off");
    }
    Ok(())
}

fn rows(answer: &GetSavingsResponse) -> Vec<Vec<String>> {
    let head = ["date", "cluster", "idle_seconds", "scaled_to_zero_seconds", "savings_micros"];
    let head = head.map(str::to_owned).to_vec();
    let row = |day: &SavingsDay| {
        vec![
            day.date.clone(),
            day.cluster.clone(),
            (day.idle_ms / 1_000).to_string(),
            (day.scaled_to_zero_ms / 1_000).to_string(),
            day.saved_micros.to_string(),
        ]
    };
    std::iter::once(head).chain(answer.days.iter().map(row)).collect()
}

fn view(answer: &GetSavingsResponse, by_day: &BTreeMap<String, Total>, total: Total) -> SavingsView {
    let day = |(date, of_day): (&String, &Total)| DayView {
        date: date.clone(),
        idle_hours: hours(of_day.idle_ms),
        scaled_to_zero_hours: hours(of_day.zero_ms),
        savings: show_price(of_day.micros),
    };
    SavingsView {
        since: answer.since.clone(),
        until: answer.until.clone(),
        time_zone: answer.time_zone.clone(),
        tracked: answer.tracked,
        assumption: answer.assumption.clone(),
        idle_hours: hours(total.idle_ms),
        scaled_to_zero_hours: hours(total.zero_ms),
        savings: show_price(total.micros),
        days: by_day.iter().map(day).collect(),
    }
}

const BAR_WIDTH: u64 = 24;

fn report(answer: &GetSavingsResponse, by_day: &BTreeMap<String, Total>, total: Total) -> String {
    let most = by_day.values().map(|day| day.micros).max().unwrap_or_default();
    let header = ["DATE", "IDLE HOURS", "AT ZERO", "SAVED", "SHARE"].map(str::to_owned);
    let shown = |of: fn(&Total) -> u64, unit: u64| {
        let parts = parts_that_add_up(by_day.values().map(of), unit);
        parts.into_iter().map(hundredths).collect::<Vec<String>>()
    };
    let idle = shown(|day| day.idle_ms, HOUR_HUNDREDTH_MILLIS);
    let zero = shown(|day| day.zero_ms, HOUR_HUNDREDTH_MILLIS);
    let saved = shown(|day| day.micros, CENT_MICROS);
    let columns = idle.into_iter().zip(zero).zip(saved);
    let rows: Vec<Vec<String>> = by_day
        .iter()
        .zip(columns)
        .map(|((date, day), ((idle, zero), saved))| {
            vec![date.clone(), idle, zero, saved, bar(day.micros, most, BAR_WIDTH)]
        })
        .collect();
    let (lines, first) = Lines::new(&header, &rows);
    let mut text = String::new();
    if !rows.is_empty() {
        text += &first;
        text.extend(rows.iter().map(|row| lines.line(row)));
    }
    text += &format!(
        "{} to {} ({}): idle {} hours, at zero {} hours, saved {}\n",
        answer.since,
        answer.until,
        answer.time_zone,
        hours(total.idle_ms),
        hours(total.zero_ms),
        cents(total.micros)
    );
    text += &format!("Assumed: {}.\n", answer.assumption);
    text
}

pub(crate) async fn overrides(args: OverrideArgs, mut session: Session<'_>) -> Result<(), Failed> {
    let name = format!("clusters/{}", args.cluster);
    if args.clear {
        let answer = session.client.clear_override(&args.cluster).await?;
        let changed = answer.results.first().is_some_and(|result| result.changed);
        let word = if changed { "no longer overridden" } else { "was not overridden" };
        return done(&name, word, answer.revision, false, &mut session);
    }
    let request = OverrideClusterRequest {
        options: None,
        cluster: args.cluster,
        replicas_min: args.min.unwrap_or_default(),
        size: args.size.unwrap_or_default(),
        reason: args.reason,
        expires_in_ms: args.lasts.map(millis).unwrap_or_default(),
    };
    let answer = session.client.override_cluster(request).await?;
    done(&name, "overridden", answer.revision, false, &mut session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_money_and_bars_are_never_more_than_there_is() {
        assert_eq!((hours(3_599_999), hours(59_400_000)), ("0.99".to_owned(), "16.50".to_owned()));
        assert_eq!((cents(1_659_999), cents(45_500_000)), ("1.65".to_owned(), "45.50".to_owned()));
        assert_eq!(bar(0, 10, 4), "");
        assert_eq!((bar(1, 10, 4), bar(10, 10, 4)), ("█".to_owned(), "████".to_owned()));
        assert_eq!(bar(0, 0, 4), "");
    }
}
