//! The certificate that the metrics are served with: one of the operator's own making, or one from files, as a mounted
//! Secret has them. It is looked after when somebody connects, and not by a timer: a renewed one is in use from the next
//! connection on, without a restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use ring::digest::{Digest, SHA256};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};
use tokio::time::Instant;
use tracing::{info, warn};

/// Names of the files, those of a Secret of type kubernetes.io/tls.
const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
/// How long after a change of the files the old certificate may be in use.
const LOOK: Duration = Duration::from_secs(10);
/// How long one of our own is good for, and when it is made anew. Both in days: a certificate begins at midnight.
const DAYS: i64 = 90;
const RENEWED_AFTER: i64 = 60;

/// Where certificates come from.
pub struct Certificates {
    folder: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    current: Certificate,
    looked: Instant,
    /// What was wrong at the last look.
    trouble: Option<String>,
}

struct Certificate {
    config: Arc<ServerConfig>,
    origin: Origin,
}

enum Origin {
    /// Ours, good from then and made anew then.
    Own { begins: Timestamp, renewed: Timestamp },
    /// From files with this content.
    Files(Digest),
}

impl Certificates {
    /// From the files of a folder, or of our own making.
    pub fn open(folder: Option<PathBuf>) -> anyhow::Result<Self> {
        let current = match &folder {
            Some(folder) => read(folder)?,
            None => make(Timestamp::now())?,
        };
        let state = State { current, looked: Instant::now(), trouble: None };
        Ok(Self { folder, state: Mutex::new(state) })
    }

    /// What a connection is to be made with.
    pub async fn current(self: &Arc<Self>) -> Arc<ServerConfig> {
        if self.is_due() {
            let this = self.clone();
            // Reading files and making a key both take their time.
            let looked = tokio::task::spawn_blocking(move || this.look(Timestamp::now())).await;
            drop(looked);
        }
        self.state().current.config.clone()
    }

    /// Whether it is time for a look. Only one caller is told so.
    fn is_due(&self) -> bool {
        let mut state = self.state();
        let due = state.looked.elapsed() >= LOOK;
        if due {
            state.looked = Instant::now();
        }
        due
    }

    /// Takes up what has changed. What can not be used changes nothing: the old certificate is better than none.
    fn look(&self, now: Timestamp) {
        let found = match &self.folder {
            Some(folder) => read(folder).map(Some),
            None if self.is_good(now) => Ok(None),
            None => make(now).map(Some),
        };
        let mut state = self.state();
        match found {
            Ok(found) => {
                state.trouble = None;
                let Some(found) = found.filter(|found| !found.is_the_same_as(&state.current)) else { return };
                info!("a new certificate for /metrics is in use");
                state.current = found;
            }
            Err(error) => {
                let trouble = format!("{error:#}");
                if state.trouble.as_ref() != Some(&trouble) {
                    warn!(
                        error = trouble,
                        "the certificate for /metrics can not be renewed; the old one stays"
                    );
                    state.trouble = Some(trouble);
                }
            }
        }
    }

    fn is_good(&self, now: Timestamp) -> bool {
        match self.state().current.origin {
            // A clock that was set back makes it one of the future.
            Origin::Own { begins, renewed } => (begins..renewed).contains(&now),
            Origin::Files(_) => true,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Certificate {
    fn is_the_same_as(&self, other: &Self) -> bool {
        match (&self.origin, &other.origin) {
            (Origin::Files(these), Origin::Files(those)) => these.as_ref() == those.as_ref(),
            _ => false,
        }
    }
}

fn read(folder: &Path) -> anyhow::Result<Certificate> {
    let load = |name| {
        let path = folder.join(name);
        std::fs::read(&path).with_context(|| format!("can not read {}", path.display()))
    };
    let (chain, key) = (load(CHAIN)?, load(KEY)?);
    let mut content = ring::digest::Context::new(&SHA256);
    content.update(&chain);
    content.update(&key);

    let unreadable = |name| format!("{} is not PEM of the right kind", folder.join(name).display());
    let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>();
    let chain = chain.with_context(|| unreadable(CHAIN))?;
    ensure!(!chain.is_empty(), "{} has no certificate", folder.join(CHAIN).display());
    let key = PrivateKeyDer::from_pem_slice(&key).with_context(|| unreadable(KEY))?;
    let config = config(chain, key)
        .with_context(|| format!("{CHAIN} and {KEY} in {} do not go together", folder.display()))?;
    Ok(Certificate { config, origin: Origin::Files(content.finish()) })
}

/// One that nobody has to trust: callers are known by their tokens, and whoever wants to know the operator as well gives it
/// files.
fn make(now: Timestamp) -> anyhow::Result<Certificate> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut params = rcgen::CertificateParams::new(names)?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "etcd-operator metrics");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    // Clocks of callers may be behind ours.
    let (first, renewed, last) = (day(now, -1)?, day(now, RENEWED_AFTER)?, day(now, DAYS)?);
    let midnight = |day: Date| {
        rcgen::date_time_ymd(day.year().into(), day.month().cast_unsigned(), day.day().cast_unsigned())
    };
    (params.not_before, params.not_after) = (midnight(first), midnight(last));
    let key = rcgen::KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = config(vec![certificate.der().clone()], key.into())?;
    let begins = |day: Date| TimeZone::UTC.to_timestamp(day.at(0, 0, 0, 0));
    Ok(Certificate { config, origin: Origin::Own { begins: begins(first)?, renewed: begins(renewed)? } })
}

/// The day so many days from now.
fn day(now: Timestamp, days: i64) -> anyhow::Result<Date> {
    let then = now.checked_add(SignedDuration::from_hours(24 * days))?;
    let day = TimeZone::UTC.to_datetime(then).date();
    // Others can not be written down, and rcgen panics over them.
    ensure!((1970..=9000).contains(&day.year()), "the clock of this machine is wrong: it shows {now}");
    Ok(day)
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12])?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests;
