use std::fs;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{ServerName, UnixTime};
use tokio_rustls::TlsAcceptor;

use super::super::testing::shake_hands;
use super::*;

/// The certificate that a caller gets to see.
async fn shown(certificates: &Arc<Certificates>) -> CertificateDer<'static> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let acceptor = TlsAcceptor::from(certificates.current().await);
    let (client, server) = tokio::join!(shake_hands(&TLS13, near), acceptor.accept(far));
    server.unwrap();
    client.unwrap().get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

/// Whether somebody who trusts it accepts it as localhost, at that time.
fn is_valid(certificate: &CertificateDer<'static>, at: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().try_into().unwrap()));
    let name = ServerName::try_from("localhost").unwrap();
    verifier.verify_server_cert(certificate, &[], &name, &[], at).is_ok()
}

fn write(folder: &Path, name: &str) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(folder.join(CHAIN), certificate.pem()).unwrap();
    fs::write(folder.join(KEY), key.serialize_pem()).unwrap();
}

fn in_days(days: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(24 * days)
}

async fn later() {
    tokio::time::advance(LOOK).await;
}

#[tokio::test(start_paused = true)]
async fn without_files_it_makes_a_certificate_and_renews_it_before_it_ends() {
    let certificates = Arc::new(Certificates::open(None).unwrap());
    let first = shown(&certificates).await;
    assert!(is_valid(&first, in_days(0)) && is_valid(&first, in_days(DAYS - 1)));
    assert!(!is_valid(&first, in_days(DAYS)));
    for days in [0, 1, RENEWED_AFTER - 1] {
        certificates.look(in_days(days));
        assert_eq!(shown(&certificates).await, first, "on day {days}");
    }
    certificates.look(in_days(RENEWED_AFTER));
    let second = shown(&certificates).await;
    assert_ne!(second, first);
    assert!(
        is_valid(&second, in_days(RENEWED_AFTER)) && is_valid(&second, in_days(RENEWED_AFTER + DAYS - 1))
    );
    assert_eq!(shown(&certificates).await, second);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_gets_a_certificate_that_is_good_then() {
    let certificates = Arc::new(Certificates::open(None).unwrap());
    certificates.look(in_days(-400));
    assert!(is_valid(&shown(&certificates).await, in_days(-400)));
}

#[test]
fn a_clock_that_shows_nonsense_is_an_error_and_no_panic() {
    for wrong in [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH - SignedDuration::from_hours(9999)] {
        assert!(make(wrong).is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn files_that_change_are_in_use_soon_after() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "one");
    let certificates = Arc::new(Certificates::open(Some(folder.path().to_owned())).unwrap());
    let first = shown(&certificates).await;
    write(folder.path(), "two");
    assert_eq!(shown(&certificates).await, first, "files are not read for each connection");
    later().await;
    let second = shown(&certificates).await;
    assert_ne!(second, first);
    let config = certificates.current().await;
    later().await;
    assert!(Arc::ptr_eq(&config, &certificates.current().await), "nothing is made anew at rest");
}

#[tokio::test(start_paused = true)]
async fn files_that_can_not_be_used_leave_the_certificate_that_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "one");
    let certificates = Arc::new(Certificates::open(Some(folder.path().to_owned())).unwrap());
    let first = shown(&certificates).await;

    // Half of a change: this certificate and the key of the other.
    let key = fs::read(folder.path().join(KEY)).unwrap();
    write(folder.path(), "two");
    let second_key = fs::read(folder.path().join(KEY)).unwrap();
    fs::write(folder.path().join(KEY), key).unwrap();
    later().await;
    assert_eq!(shown(&certificates).await, first);
    assert!(certificates.state().trouble.as_ref().is_some_and(|t| t.contains("do not go together")));

    fs::remove_file(folder.path().join(KEY)).unwrap();
    later().await;
    assert_eq!(shown(&certificates).await, first);

    fs::write(folder.path().join(KEY), second_key).unwrap();
    later().await;
    assert_ne!(shown(&certificates).await, first);
    assert_eq!(certificates.state().trouble, None);
}

#[test]
fn a_folder_that_can_not_be_used_at_the_start_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let error = || format!("{:#}", Certificates::open(Some(folder.path().to_owned())).err().unwrap());
    assert!(error().contains("tls.crt: No such file"), "{}", error());
    fs::write(folder.path().join(CHAIN), "").unwrap();
    assert!(error().contains("tls.key: No such file"), "{}", error());
    fs::write(folder.path().join(KEY), "").unwrap();
    assert!(error().contains("tls.crt has no certificate"), "{}", error());
    write(folder.path(), "one");
    fs::write(folder.path().join(KEY), "nonsense").unwrap();
    assert!(error().contains("tls.key is not PEM"), "{}", error());
}
