//! Who looks on: a watch that lives through the whole run, whichever node answers it.

use std::time::Duration;

use loadline_client::{Client, WatchEvent, WatchOptions};

use crate::record::{Record, Seen};

/// One message of a watch, as its user got it.
#[derive(Debug, Clone)]
pub struct Watched {
    pub watcher: String,
    pub event: Told,
}

#[derive(Debug, Clone)]
pub enum Told {
    Event(WatchEvent),
    /// The watch ended; the next one begins where it was, or with a snapshot.
    Ended(String),
}

impl Watched {
    pub fn words(&self) -> String {
        match &self.event {
            Told::Event(WatchEvent::Snapshot { revision, resources }) => {
                format!("snapshot of {} at {revision}", resources.len())
            }
            Told::Event(WatchEvent::Changes { revision, changes, .. }) => {
                format!("{} changes at {revision}", changes.len())
            }
            Told::Event(WatchEvent::Progress { revision }) => format!("nothing up to {revision}"),
            Told::Ended(why) => format!("ended: {why}"),
        }
    }
}

/// Watches everything, for ever.
pub async fn watch(watcher: String, client: Client, record: Record) {
    let mut from = 0;
    loop {
        let options =
            WatchOptions { from_revision: from, outage_max: Duration::from_secs(600), ..WatchOptions::default() };
        let mut watch = client.watch(options);
        loop {
            let (event, over) = match watch.next().await {
                Ok(event) => (Told::Event(event), false),
                Err(error) => (Told::Ended(error.to_string()), true),
            };
            record.see(Seen::Watched(Watched { watcher: watcher.clone(), event }));
            if over {
                // What was missed is gone; only a snapshot helps.
                from = 0;
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
