//! How much of a JetStream stream a consumer has not dealt with, asked of a NATS server.
//!
//! The client protocol of NATS is lines of text, and one question is four of them: `CONNECT`, `SUB`, `PUB` and the `MSG` that comes
//! back. So it is spoken here by hand. A client library would bring reconnecting tasks of its own, which outlive a leadership,
//! and signing of keys that nobody here uses. Deliberately absent: nkeys and credential files, and reading messages.

use std::path::Path;
use std::sync::Arc;

use loadline_state_machine::Options;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::meaning::Sample;
use super::secret::Secrets;
use super::{required, text};
use crate::backends::tls;

const PORT_DEFAULT: u16 = 4222;
/// A server's greeting, which names every server of its cluster.
const LINE_BYTES_MAX: u64 = 64 << 10;
const MESSAGE_BYTES_MAX: usize = 1 << 20;
const INBOX: &str = "_INBOX.loadline.1";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Info {
    tls_required: bool,
    auth_required: bool,
    headers: bool,
}

#[derive(Debug, Deserialize)]
struct ConsumerInfo {
    error: Option<ApiError>,
    num_pending: Option<u64>,
    num_ack_pending: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct ApiError {
    code: u32,
    #[serde(default)]
    description: String,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(super) async fn ask(options: &Options, secrets: &mut Secrets) -> Result<Sample, String> {
    let url = required(options, "url")?;
    let (stream, consumer) = (required(options, "stream")?, required(options, "consumer")?);
    let (encrypted, address) = match url.split_once("://") {
        Some(("tls", address)) => (true, address),
        Some((_, address)) => (false, address),
        None => return Err("url: expected nats://HOST:PORT".to_owned()),
    };
    let (host, port) = host_and_port(address.trim_end_matches('/'))?;
    let tcp =
        TcpStream::connect((host, port)).await.map_err(|error| format!("no connection to {host}:{port}: {error}"))?;
    let mut wire = Wire { stream: BufReader::new(Box::new(tcp) as Box<dyn Stream>) };

    let greeting = wire.line().await?;
    let info = greeting.strip_prefix("INFO ").ok_or_else(|| format!("{host}:{port} does not speak NATS"))?;
    let info: Info =
        serde_json::from_str(info).map_err(|error| format!("{host}:{port} does not speak NATS: {error}"))?;
    if encrypted || info.tls_required {
        wire = wire.encrypted(host, text(options, "ca_file")).await?;
    }

    let mut connect = json!({
        "verbose": false, "pedantic": false, "lang": "rust", "name": "loadline",
        "version": env!("CARGO_PKG_VERSION"), "headers": info.headers, "no_responders": info.headers, "protocol": 1,
    });
    if let Some(reference) = text(options, "token") {
        connect["auth_token"] = secrets.read(reference).await?.reveal().into();
    }
    if let (Some(user), Some(reference)) = (text(options, "username"), text(options, "password")) {
        connect["user"] = user.into();
        connect["pass"] = secrets.read(reference).await?.reveal().into();
    } else if info.auth_required && text(options, "token").is_none() {
        return Err("the server wants a login: say USERNAME and PASSWORD, or TOKEN".to_owned());
    }
    let subject = format!("$JS.API.CONSUMER.INFO.{stream}.{consumer}");
    wire.say(&format!("CONNECT {connect}\r\nPING\r\nSUB {INBOX} 1\r\nPUB {subject} {INBOX} 0\r\n\r\n")).await?;
    let answer = wire.message().await?;
    lag(&answer, stream, consumer, text(options, "ack_pending") != Some("false"))
}

fn lag(answer: &[u8], stream: &str, consumer: &str, ack_pending: bool) -> Result<Sample, String> {
    let info: ConsumerInfo =
        serde_json::from_slice(answer).map_err(|error| format!("this is not the answer of JetStream: {error}"))?;
    if let Some(ApiError { code, description }) = info.error {
        return Err(format!("consumer {consumer} of stream {stream}: {description} ({code})"));
    }
    let missing = || "the answer of JetStream does not say what is pending".to_owned();
    let waiting = info.num_pending.ok_or_else(missing)?;
    let delivered = if ack_pending { info.num_ack_pending.ok_or_else(missing)? } else { 0 };
    let total = waiting.checked_add(delivered).and_then(|total| total.checked_mul(1_000));
    let total = total.and_then(|total| i64::try_from(total).ok());
    total.map(Sample::One).ok_or_else(|| "more is pending than can be kept".to_owned())
}

fn host_and_port(address: &str) -> Result<(&str, u16), String> {
    let wrong = || "url: expected nats://HOST:PORT".to_owned();
    // An address of IPv6 stands in brackets.
    if let Some(rest) = address.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, port.parse().map_err(|_| wrong())?)),
            None => Ok((host, PORT_DEFAULT)),
        };
    }
    match address.split_once(':') {
        Some((host, port)) => Ok((host, port.parse().map_err(|_| wrong())?)),
        None => Ok((address, PORT_DEFAULT)),
    }
}

/// A connection, line by line.
struct Wire {
    stream: BufReader<Box<dyn Stream>>,
}

impl Wire {
    async fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LINE_BYTES_MAX);
        limited.read_until(b'\n', &mut line).await.map_err(|error| format!("the connection broke: {error}"))?;
        if !line.ends_with(b"\n") {
            return Err("the connection was closed in the middle of an answer".to_owned());
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    async fn say(&mut self, text: &str) -> Result<(), String> {
        let said = async {
            self.stream.write_all(text.as_bytes()).await?;
            self.stream.flush().await
        };
        said.await.map_err(|error| format!("the connection broke: {error}"))
    }

    /// The next message; whatever else the server says in between is answered or passed over.
    async fn message(&mut self) -> Result<Vec<u8>, String> {
        loop {
            let line = self.line().await?;
            let mut words = line.split_ascii_whitespace();
            match words.next().map(str::to_ascii_uppercase).as_deref() {
                Some("PING") => self.say("PONG\r\n").await?,
                Some("-ERR") => return Err(format!("the server says {}", line.trim_start_matches("-ERR").trim())),
                Some("MSG") => {
                    let (_, body) = self.body(0, last(&line)?).await?;
                    return Ok(body);
                }
                Some("HMSG") => {
                    let mut sizes = words.rev();
                    let total = size(sizes.next())?;
                    let (headers, body) = self.body(size(sizes.next())?, total).await?;
                    // A status without a message: nobody listens to this subject.
                    if headers.starts_with(b"NATS/1.0 503") {
                        return Err("JetStream is not enabled on this server, or not for this account".to_owned());
                    }
                    return Ok(body);
                }
                _ => {}
            }
        }
    }

    async fn body(&mut self, headers: usize, total: usize) -> Result<(Vec<u8>, Vec<u8>), String> {
        if total > MESSAGE_BYTES_MAX || headers > total {
            return Err("the server announces a message that cannot be".to_owned());
        }
        let mut bytes = vec![0; total + 2];
        self.stream.read_exact(&mut bytes).await.map_err(|error| format!("the connection broke: {error}"))?;
        bytes.truncate(total);
        let body = bytes.split_off(headers);
        Ok((bytes, body))
    }

    async fn encrypted(self, host: &str, ca_file: Option<&str>) -> Result<Wire, String> {
        let config = tls::client(ca_file.map(Path::new)).map_err(|error| error.to_string())?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} is no name for TLS"))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, self.stream.into_inner()).await;
        let stream = stream.map_err(|error| format!("no encryption with {host}: {error}"))?;
        Ok(Wire { stream: BufReader::new(Box::new(stream)) })
    }
}

fn last(line: &str) -> Result<usize, String> {
    size(line.split_ascii_whitespace().next_back())
}

fn size(word: Option<&str>) -> Result<usize, String> {
    word.and_then(|word| word.parse().ok()).ok_or_else(|| "the server announces a message without a size".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_and_what_is_delivered_is_the_lag() {
        let answer = br#"{"type":"x","num_pending":7,"num_ack_pending":3}"#;
        assert_eq!(lag(answer, "s", "c", true), Ok(Sample::One(10_000)));
        assert_eq!(lag(answer, "s", "c", false), Ok(Sample::One(7_000)));
        let missing = br#"{"error":{"code":404,"err_code":10014,"description":"consumer not found"}}"#;
        assert!(lag(missing, "s", "c", true).unwrap_err().contains("consumer not found"));
        assert!(lag(b"{}", "s", "c", true).is_err(), "silence is no zero");
        let many = format!(r#"{{"num_pending":{},"num_ack_pending":1}}"#, u64::MAX);
        assert!(lag(many.as_bytes(), "s", "c", true).is_err());
    }

    #[test]
    fn an_address_has_a_port_or_the_usual_one() {
        for (address, expected) in [
            ("host", ("host", 4222)),
            ("host:14222", ("host", 14_222)),
            ("127.0.0.1:1", ("127.0.0.1", 1)),
            ("[::1]:5", ("::1", 5)),
            ("[::1]", ("::1", 4222)),
        ] {
            assert_eq!(host_and_port(address), Ok(expected));
        }
        assert!(host_and_port("host:port").is_err());
    }

    async fn message(bytes: &'static [u8]) -> Result<Vec<u8>, String> {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        far.write_all(bytes).await.unwrap();
        drop(far);
        Wire { stream: BufReader::new(Box::new(near)) }.message().await
    }

    #[tokio::test]
    async fn whatever_a_server_says_there_is_a_message_or_a_reason() {
        assert_eq!(message(b"PONG\r\n+OK\r\nMSG _INBOX.loadline.1 1 2\r\n{}\r\n").await, Ok(b"{}".to_vec()));
        let with_headers = b"HMSG _INBOX.loadline.1 1 12 14\r\nNATS/1.0\r\n\r\n{}\r\n";
        assert_eq!(message(with_headers).await, Ok(b"{}".to_vec()));
        let nobody = b"HMSG _INBOX.loadline.1 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n";
        assert!(message(nobody).await.unwrap_err().contains("JetStream is not enabled"));
        assert!(message(b"-ERR 'Authorization Violation'\r\n").await.unwrap_err().contains("Authorization"));
        assert!(message(b"MSG a 1 99999999999\r\n").await.is_err());
        assert!(message(b"MSG a 1 5\r\nab").await.is_err());
        assert!(message(b"HMSG a 1 9 5\r\n12345\r\n").await.is_err());
        assert!(message(b"").await.is_err());
    }
}
