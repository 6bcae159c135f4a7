//! A client that wants its statement to end opens a second connection and says which: by a number and a secret that only the
//! first one was told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use pgwire::api::cancel::CancelHandler;
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::startup::SecretKey;

/// By process id and secret, whether it was asked to end.
type Flags = HashMap<(i32, Vec<u8>), Arc<AtomicBool>>;

/// The statements under way, by the number and the secret of their connection.
#[derive(Debug, Default)]
pub(crate) struct Cancelling {
    under_way: Mutex<Flags>,
}

impl Cancelling {
    /// Can be cancelled until the answer is dropped.
    pub(super) fn begin(self: &Arc<Self>, process: i32, secret: &SecretKey) -> UnderWay {
        let key = (process, secret.to_bytes().to_vec());
        let cancelled = Arc::new(AtomicBool::new(false));
        self.lock().insert(key.clone(), Arc::clone(&cancelled));
        UnderWay { cancelling: Arc::clone(self), key, cancelled }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Flags> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One statement that can be cancelled.
#[derive(Debug)]
pub(super) struct UnderWay {
    cancelling: Arc<Cancelling>,
    key: (i32, Vec<u8>),
    pub(super) cancelled: Arc<AtomicBool>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut under_way = self.cancelling.lock();
        // The next statement of this connection may be there already.
        if under_way.get(&self.key).is_some_and(|it| Arc::ptr_eq(it, &self.cancelled)) {
            under_way.remove(&self.key);
        }
    }
}

#[async_trait]
impl CancelHandler for Cancelling {
    async fn on_cancel_request(&self, request: CancelRequest) {
        let key = (request.pid, request.secret_key.to_bytes().to_vec());
        if let Some(cancelled) = self.lock().get(&key) {
            cancelled.store(true, Ordering::Relaxed);
        }
    }
}
