//! Callers that each ask again as soon as they are answered, for some time.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::figures::Sample;
use crate::exit::{Exit, Failed};

/// Before anything counts: connections, caches and the first leader's batches settle.
const WARM_UP_SHARE: u32 = 5;

/// So many callers, for so long. `ask` is given the number of the caller and how often it has asked. What ends outside of the
/// time that counts is not counted.
pub(super) async fn closed_loop<A, F>(callers: usize, lasts: Duration, ask: A) -> Result<Sample, Failed>
where
    A: Fn(usize, u64) -> F + Clone + Send + 'static,
    F: Future<Output = Result<(), Failed>> + Send,
{
    let counts_from = Instant::now() + lasts / WARM_UP_SHARE;
    let counts_until = counts_from + lasts;
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let ask = ask.clone();
        tasks.spawn(async move {
            let mut took = Vec::new();
            for number in 0.. {
                let began = Instant::now();
                ask(caller, number).await?;
                let ended = Instant::now();
                if ended >= counts_until {
                    break;
                }
                if ended >= counts_from {
                    took.push(ended - began);
                }
            }
            Ok::<_, Failed>(took)
        });
    }
    let mut all = Vec::new();
    while let Some(task) = tasks.join_next().await {
        let took = task.map_err(|error| Failed::new(Exit::Failure, format!("a caller broke down: {error}")))??;
        all.extend(took);
    }
    Ok(Sample::new(all, lasts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn callers_ask_side_by_side_and_only_for_as_long_as_it_counts() {
        let asked = |_, _| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(())
        };
        let sample = closed_loop(4, Duration::from_millis(200), asked).await.expect("measured");
        assert_eq!(sample.elapsed, Duration::from_millis(200));
        // Each takes ten milliseconds or more, and what ends in the warm-up or afterwards does not count.
        assert!((1..=4 * 20).contains(&sample.took.len()), "{}", sample.took.len());
        assert!(sample.took.iter().all(|took| *took >= Duration::from_millis(10)));
    }

    #[tokio::test]
    async fn a_call_that_fails_ends_the_measurement() {
        let broken =
            |_, number| async move { if number == 3 { Err(Failed::new(Exit::Failure, "no more")) } else { Ok(()) } };
        assert!(closed_loop(2, Duration::from_secs(60), broken).await.is_err());
    }
}
