//! Ports on 127.0.0.1: which to use, and whether they are free.

use std::net::{Ipv4Addr, TcpListener};

use crate::exit::{Exit, Failed};

/// One port that a node wants, for what, and the flag that chooses another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) port: u16,
    pub(super) what: String,
    pub(super) flag: &'static str,
}

/// Ports from `first` on, one for each node; free ones other than `spoken_for` if it is 0.
pub(super) fn series(first: u16, count: u16, flag: &str, spoken_for: &[u16]) -> Result<Vec<u16>, Failed> {
    if first == 0 {
        return free(usize::from(count), spoken_for);
    }
    (0..count).map(|number| first.checked_add(number)).collect::<Option<Vec<u16>>>().ok_or_else(|| {
        Failed::usage(format!("{flag} {first}: {count} ports from there on go beyond 65535; choose a lower one"))
    })
}

/// Ports that are free now. All are held until all are found, so that none comes twice.
fn free(count: usize, spoken_for: &[u16]) -> Result<Vec<u16>, Failed> {
    let mut held = Vec::new();
    let mut ports = Vec::new();
    while ports.len() < count {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        held.push(listener);
        if !spoken_for.contains(&port) {
            ports.push(port);
        }
    }
    Ok(ports)
}

/// An error that names every port that somebody else has, before anything is started.
pub(super) fn check(wanted: &[Wanted]) -> Result<(), Failed> {
    let mut taken: Vec<(&Wanted, std::io::Error)> = Vec::new();
    let mut held = Vec::new();
    for want in wanted {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, want.port)) {
            Ok(listener) => held.push(listener),
            Err(error) => taken.push((want, error)),
        }
    }
    if taken.is_empty() {
        return Ok(());
    }
    let each: Vec<String> = taken
        .iter()
        .map(|(want, error)| match error.kind() {
            std::io::ErrorKind::AddrInUse => format!("port {} ({}) is taken", want.port, want.what),
            _ => format!("port {} ({}) cannot be used: {error}", want.port, want.what),
        })
        .collect();
    let mut flags: Vec<&str> = taken.iter().map(|(want, _)| want.flag).collect();
    flags.dedup();
    Err(Failed::new(Exit::Failure, each.join("\n  "))
        .hint(format!("does another group run, from another folder? Choose other ports with {}", flags.join(" and "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_named_with_the_flag_that_chooses_another() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let wanted = |port| Wanted { port, what: "gRPC of n2".to_owned(), flag: "--grpc-port" };
        let failed = check(&[wanted(port)]).expect_err("taken");
        assert_eq!(failed.message, format!("port {port} (gRPC of n2) is taken"));
        assert!(failed.hints[0].contains("--grpc-port"), "{failed:?}");
        drop(listener);
        assert_eq!(check(&[wanted(port)]), Ok(()));
    }

    #[test]
    fn the_same_port_cannot_be_wanted_twice() {
        let port = free(1, &[]).expect("a port")[0];
        let wanted = |what: &str| Wanted { port, what: what.to_owned(), flag: "--http-port" };
        assert!(check(&[wanted("gRPC of n1"), wanted("HTTP of n1")]).is_err());
    }

    #[test]
    fn ports_follow_each_other_or_are_any_that_are_free() {
        assert_eq!(series(7701, 3, "--grpc-port", &[]), Ok(vec![7701, 7702, 7703]));
        let failed = series(65535, 3, "--grpc-port", &[]).expect_err("beyond");
        assert!(failed.message.contains("--grpc-port 65535"), "{failed:?}");
        let mut any = series(0, 5, "--grpc-port", &[]).expect("free ports");
        any.sort_unstable();
        any.dedup();
        assert_eq!(any.len(), 5);
    }
}
