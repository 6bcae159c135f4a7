//! How the calls of backends are encrypted: rustls with ring, and the certificates that the machine or the configuration trusts.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::settings::ConfigError;

/// What a client trusts: the authorities in `ca_file`, else those of the machine.
pub(crate) fn client(ca_file: Option<&Path>) -> Result<ClientConfig, ConfigError> {
    let wrong = |problem: String| ConfigError::new("ca_file", problem);
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let unreadable = |error| wrong(format!("{} cannot be read as PEM certificates: {error}", path.display()));
            for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
                let certificate = certificate.map_err(unreadable)?;
                roots.add(certificate).map_err(|error| {
                    wrong(format!("{} has a certificate that cannot be used: {error}", path.display()))
                })?;
            }
        }
        None => {
            // One authority that cannot be read is no reason to trust none of the others.
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        return Err(wrong(match ca_file {
            Some(path) => format!("{} has no certificate in it", path.display()),
            None => {
                "this machine has no certificate authorities that it trusts: install ca-certificates, or name a PEM \
                     file here"
                    .to_owned()
            }
        }));
    }
    with_roots(roots)
}

/// For clients that only ever speak without encryption, and have to be given something.
#[cfg(any(feature = "collectors", feature = "webhook"))]
pub(crate) fn trusting_nobody() -> Result<ClientConfig, ConfigError> {
    with_roots(RootCertStore::empty())
}

fn with_roots(roots: RootCertStore) -> Result<ClientConfig, ConfigError> {
    // Named here and not taken from the process: whichever library comes first would otherwise choose for everybody.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::new("ca_file", format!("no TLS version can be used: {error}")))?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
