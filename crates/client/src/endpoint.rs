//! Where nodes listen: parsing what a user wrote, and the connections that were made.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tonic::transport::Channel;

use crate::call::Backoff;
use crate::surroundings::Surroundings;
use crate::writes::{Asks, WriteStream};

/// The gRPC listener of one node, as `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint(String);

/// What is wrong with an endpoint that a user wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("no endpoint was given; an endpoint is host:port, such as 127.0.0.1:7701")]
    None,
    #[error("endpoint '{given}': nodes do not speak TLS; write it as http://host:port or host:port")]
    Tls { given: String },
    #[error("endpoint '{given}' is not host:port, such as 127.0.0.1:7701")]
    Malformed { given: String },
}

impl Endpoint {
    /// `host:port`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(given: &str) -> Result<Endpoint, EndpointError> {
        let malformed = || EndpointError::Malformed { given: given.to_owned() };
        let text = given.trim();
        if text.starts_with("https://") {
            return Err(EndpointError::Tls { given: given.to_owned() });
        }
        let address = text.strip_prefix("http://").unwrap_or(text);
        let address = address.strip_suffix('/').unwrap_or(address);
        let (host, port) = address.rsplit_once(':').ok_or_else(malformed)?;
        // An IPv6 address has colons of its own, so it stands in brackets.
        let bare_colon = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        let strange = |c: char| c.is_whitespace() || c.is_control() || "/?#@,".contains(c);
        if host.is_empty() || bare_colon || host.contains(strange) {
            return Err(malformed());
        }
        match port.parse::<u16>() {
            Ok(number) if number > 0 => Ok(Endpoint(format!("{host}:{number}"))),
            _ => Err(malformed()),
        }
    }
}

/// At least one endpoint, in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints(Vec<Endpoint>);

impl Endpoints {
    /// Each item is an endpoint or several with commas between them. Repeats are dropped.
    pub fn parse<I>(given: I) -> Result<Endpoints, EndpointError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for item in given {
            for part in item.as_ref().split(',').map(str::trim).filter(|part| !part.is_empty()) {
                let endpoint: Endpoint = part.parse()?;
                if !endpoints.contains(&endpoint) {
                    endpoints.push(endpoint);
                }
            }
        }
        if endpoints.is_empty() { Err(EndpointError::None) } else { Ok(Endpoints(endpoints)) }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Endpoint> {
        self.0.iter()
    }
}

impl From<Endpoint> for Endpoints {
    fn from(endpoint: Endpoint) -> Endpoints {
        Endpoints(vec![endpoint])
    }
}

/// A connection was not made, so nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotConnected(pub(crate) String);

/// The endpoints, which of them is in use, and the connections so far. Shared by the clones of a client.
#[derive(Debug, Clone)]
pub(crate) struct Pool(Arc<PoolInner>);

/// By endpoint and by who writes.
type WriteStreams = BTreeMap<Endpoint, BTreeMap<Arc<Asks>, WriteStream>>;

#[derive(Debug)]
struct PoolInner {
    endpoints: Vec<Endpoint>,
    /// Counts up; modulo the number of endpoints it is the one in use.
    turn: AtomicUsize,
    channels: Mutex<BTreeMap<Endpoint, Channel>>,
    writes: Mutex<WriteStreams>,
    connect_timeout: Duration,
    surroundings: Arc<dyn Surroundings>,
}

/// An idle connection is probed this often, so that a node that vanished without a word is noticed.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

impl Pool {
    pub(crate) fn new(endpoints: Endpoints, connect_timeout: Duration, surroundings: Arc<dyn Surroundings>) -> Pool {
        Pool(Arc::new(PoolInner {
            endpoints: endpoints.0,
            turn: AtomicUsize::new(0),
            channels: Mutex::new(BTreeMap::new()),
            writes: Mutex::new(BTreeMap::new()),
            connect_timeout,
            surroundings,
        }))
    }

    pub(crate) fn surroundings(&self) -> &Arc<dyn Surroundings> {
        &self.0.surroundings
    }

    /// Pauses for one logical request over these endpoints.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.len(), Arc::clone(&self.0.surroundings))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.endpoints.len()
    }

    pub(crate) fn all(&self) -> &[Endpoint] {
        &self.0.endpoints
    }

    /// The endpoint in use, and the turn to hand to [`Pool::rotate`] when it fails.
    pub(crate) fn current(&self) -> (usize, &Endpoint) {
        let turn = self.0.turn.load(Ordering::Relaxed);
        (turn, &self.0.endpoints[turn % self.0.endpoints.len()])
    }

    /// Moves on from the endpoint of `turn`, unless another call already did.
    pub(crate) fn rotate(&self, turn: usize) {
        let _ = self.0.turn.compare_exchange(turn, turn.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A connection to `endpoint`: the one there is, or a new one.
    pub(crate) async fn channel(&self, endpoint: &Endpoint) -> Result<Channel, NotConnected> {
        if let Some(channel) = self.channels().get(endpoint) {
            return Ok(channel.clone());
        }
        let builder = Channel::from_shared(format!("http://{endpoint}"))
            .map_err(|error| NotConnected(format!("not an address: {error}")))?
            .connect_timeout(self.0.connect_timeout)
            .http2_keep_alive_interval(KEEPALIVE_EVERY)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        // The limit is on the whole way, name lookup and HTTP/2 greeting included: the one in the builder covers only
        // the TCP handshake.
        let connecting = tokio::time::timeout(self.0.connect_timeout, self.0.surroundings.connect(builder));
        let channel = match connecting.await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(NotConnected(innermost(&error))),
            Err(_) => return Err(NotConnected(format!("no connection within {:?}", self.0.connect_timeout))),
        };
        // Two calls may connect at once; the second connection replaces the first, which ends with its last call.
        self.channels().insert(endpoint.clone(), channel.clone());
        Ok(channel)
    }

    /// Drops the connection to a node that did not answer, so that the next call does not wait on it again.
    pub(crate) fn forget(&self, endpoint: &Endpoint) {
        self.channels().remove(endpoint);
        self.writes().remove(endpoint);
    }

    /// The stream of writes to `endpoint` that there is.
    pub(crate) fn write_stream(&self, endpoint: &Endpoint, asks: &Arc<Asks>) -> Option<WriteStream> {
        let writes = self.writes();
        let stream = writes.get(endpoint)?.get(asks)?;
        (!stream.is_over()).then(|| stream.clone())
    }

    /// The same, or a new one over `channel`: somebody else may have opened one meanwhile.
    pub(crate) fn open_write_stream(&self, endpoint: &Endpoint, asks: &Arc<Asks>, channel: Channel) -> WriteStream {
        let mut writes = self.writes();
        let streams = writes.entry(endpoint.clone()).or_default();
        streams.retain(|_, stream| !stream.is_over());
        streams.entry(Arc::clone(asks)).or_insert_with(|| WriteStream::open(channel, asks)).clone()
    }

    fn writes(&self) -> std::sync::MutexGuard<'_, WriteStreams> {
        // As of the other map.
        self.0.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn channels(&self) -> std::sync::MutexGuard<'_, BTreeMap<Endpoint, Channel>> {
        // The map is whole between any two statements, so a panic elsewhere does not make it wrong.
        self.0.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cause at the bottom, such as "Connection refused (os error 111)": the layers above only say "transport error".
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_host_and_port_however_it_is_written() {
        for (given, expected) in [
            ("127.0.0.1:7701", "127.0.0.1:7701"),
            ("http://127.0.0.1:7701", "127.0.0.1:7701"),
            ("http://node-1.loadline:7701/", "node-1.loadline:7701"),
            (" [::1]:7701 ", "[::1]:7701"),
        ] {
            assert_eq!(given.parse::<Endpoint>().map(|e| e.to_string()), Ok(expected.to_owned()), "{given}");
        }
    }

    #[test]
    fn what_is_not_an_endpoint_is_refused_with_the_right_form() {
        for given in
            ["localhost", "::1:7701", ":7701", "host:0", "host:99999", "host:port", "http://host:1/path", "a b:1"]
        {
            let error = given.parse::<Endpoint>().expect_err(given);
            assert!(error.to_string().contains("host:port"), "{given}: {error}");
        }
        assert_eq!("https://a:1".parse::<Endpoint>(), Err(EndpointError::Tls { given: "https://a:1".into() }));
    }

    #[test]
    fn a_list_takes_commas_and_drops_repeats_but_must_not_be_empty() {
        let endpoints = Endpoints::parse(["a:1, b:2", "http://a:1", ""]).expect("two endpoints");
        assert_eq!(endpoints.iter().map(Endpoint::as_str).collect::<Vec<_>>(), ["a:1", "b:2"]);
        assert_eq!(Endpoints::parse([""]), Err(EndpointError::None));
    }

    #[test]
    fn of_two_calls_that_fail_at_one_endpoint_only_the_first_moves_on() {
        let pool = Pool::new(
            Endpoints::parse(["a:1,b:2,c:3"]).expect("endpoints"),
            Duration::from_secs(1),
            Arc::new(crate::Machine),
        );
        let (turn, first) = pool.current();
        assert_eq!(first.as_str(), "a:1");
        pool.rotate(turn);
        pool.rotate(turn);
        assert_eq!(pool.current().1.as_str(), "b:2");
    }
}
