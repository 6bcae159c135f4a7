//! A receiver for the webhook backend, to try it out and to read: what it does is in `src/backends/webhook/receiver`.
//!
//! ```console
//! $ LOADLINE_WEBHOOK_SECRET=$(openssl rand -hex 32) cargo run -p loadline-executor --features testing \
//!       --example webhook_receiver -- 127.0.0.1:8080 books.json
//! ```

use std::path::PathBuf;

use loadline_executor::backends::settings::Secret;
use loadline_executor::backends::webhook::receiver::{Receiver, ReceiverOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let file = arguments.next().map(PathBuf::from);
    let secret = std::env::var("LOADLINE_WEBHOOK_SECRET")
        .map_err(|_| "set LOADLINE_WEBHOOK_SECRET to the secret that Loadline signs with")?;
    // The one before, for as long as some nodes still sign with it.
    let previous = std::env::var("LOADLINE_WEBHOOK_PREVIOUS_SECRET").ok();
    let secrets = std::iter::once(secret).chain(previous).map(Secret::new).collect();

    let receiver = Receiver::open(ReceiverOptions { secrets, fences: true, file })?;
    let listener = tokio::net::TcpListener::bind(&listen).await?;
    axum::serve(listener, receiver.router()).await?;
    Ok(())
}
