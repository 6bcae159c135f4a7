//! Tokio as openraft's runtime, with one difference: its randomness can be seeded per thread.
//!
//! openraft draws election time-outs from the runtime. A simulator that must repeat a run to the byte seeds the
//! thread it runs on with [`seed_randomness`]; a server never does, and then the operating system is the source.
//! Everything else is handed to openraft's own tokio runtime.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use openraft::OptionalSend;
use openraft::async_runtime::AsyncRuntime;
use openraft::impls::TokioRuntime;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng, TryRng};

thread_local! {
    static SEEDED: RefCell<Option<StdRng>> = const { RefCell::new(None) };
}

/// Makes every random choice of Raft on this thread follow from `seed`. For simulations only.
pub fn seed_randomness(seed: u64) {
    SEEDED.with_borrow_mut(|seeded| *seeded = Some(StdRng::seed_from_u64(seed)));
}

/// A random number from the seeded source of this thread, or from the operating system.
pub(crate) fn random_u128() -> u128 {
    let mut source = Randomness;
    (u128::from(source.next_u64()) << 64) | u128::from(source.next_u64())
}

/// The seeded generator of this thread, or the operating system's.
#[derive(Debug)]
pub(crate) struct Randomness;

impl Randomness {
    fn with<T>(pick: impl FnOnce(&mut dyn Rng) -> T) -> T {
        SEEDED.with_borrow_mut(|seeded| match seeded {
            Some(seeded) => pick(seeded),
            None => pick(&mut rand::rng()),
        })
    }
}

impl TryRng for Randomness {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(Self::with(|source| source.next_u32()))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(Self::with(|source| source.next_u64()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        Self::with(|source| source.fill_bytes(bytes));
        Ok(())
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Runtime(TokioRuntime);

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = Randomness;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Randomness {
        Randomness
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_choices() {
        let draw = |seed| {
            seed_randomness(seed);
            [random_u128(), random_u128(), random_u128()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
