use std::net::SocketAddr;

use axum::routing::get;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::testing::{FakeApi, Mood, request, shake_hands};
use super::*;

/// A server on a port of this machine.
struct Running {
    address: SocketAddr,
    task: JoinHandle<io::Result<()>>,
}

impl Running {
    async fn start(api: &FakeApi) -> Self {
        let router = Router::new().route(PATH, get(async || "etcd_operator_clusters 7\n"));
        let server = MetricsServer::new(api.client(), router, None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { address, task: tokio::spawn(server.serve(listener)) }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn ask(&self, path: &str, headers: &str) -> String {
        let stream = shake_hands(&TLS13, self.connect().await).await.unwrap();
        let text = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        request(stream, &text).await.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn metrics_are_for_those_whose_token_may_get_them() {
    let server = Running::start(&FakeApi::default()).await;
    let answer = server.ask(PATH, "Authorization: Bearer scraper\r\n").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("etcd_operator_clusters 7\n"),
        "{answer}"
    );

    for headers in ["", "Authorization: Basic c2NyYXBlcg==\r\n", "Authorization: Bearer stranger\r\n"] {
        let answer = server.ask(PATH, headers).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(answer.to_lowercase().contains("www-authenticate: bearer\r\n"), "{answer}");
        assert!(!answer.contains("etcd_operator"), "{answer}");
    }
    let answer = server.ask(PATH, "Authorization: Bearer guest\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && !answer.contains("etcd_operator"), "{answer}");
}

#[tokio::test]
async fn nobody_is_let_in_while_the_api_server_can_not_be_asked() {
    let api = FakeApi::default();
    api.turn(Mood::Absent);
    let server = Running::start(&api).await;
    let answer = server.ask(PATH, "Authorization: Bearer scraper\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && !answer.contains("etcd_operator"), "{answer}");
    assert!(answer.contains("the API server can not be asked"), "{answer}");
}

#[tokio::test]
async fn what_else_there_is_stays_behind_the_same_door() {
    let server = Running::start(&FakeApi::default()).await;
    assert!(server.ask("/debug", "").await.starts_with("HTTP/1.1 401 "));
    assert!(server.ask("/debug", "Authorization: Bearer scraper\r\n").await.starts_with("HTTP/1.1 404 "));
}

#[tokio::test]
async fn plain_text_gets_no_answer_of_http() {
    let server = Running::start(&FakeApi::default()).await;
    let answer = request(server.connect().await, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(!answer.unwrap_or_default().contains("HTTP/"));
}

#[tokio::test]
async fn tls_1_2_is_spoken_as_well() {
    let server = Running::start(&FakeApi::default()).await;
    let stream = shake_hands(&TLS12, server.connect().await).await.unwrap();
    let text =
        "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer scraper\r\nConnection: close\r\n\r\n";
    assert!(request(stream, text).await.unwrap().starts_with("HTTP/1.1 200 "));
}

/// A ClientHello of TLS 1.1, by hand: rustls does not speak it.
#[tokio::test]
async fn older_versions_of_tls_are_refused() {
    let server = Running::start(&FakeApi::default()).await;
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    // No session, one suite (TLS_RSA_WITH_AES_128_CBC_SHA), no compression.
    hello.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    let mut stream = server.connect().await;
    stream.write_all(&record).await.unwrap();
    let mut answer = vec![];
    stream.read_to_end(&mut answer).await.unwrap();
    // A fatal alert: protocol_version, or handshake_failure.
    assert!(matches!(answer[..], [21, 3, _, 0, 2, 2, 70 | 40]), "{answer:?}");
}

#[tokio::test]
async fn headers_have_a_limit() {
    let server = Running::start(&FakeApi::default()).await;
    let answer = server.ask(PATH, &format!("X: {}\r\n", "x".repeat(http::HEADERS_SIZE))).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer:.100}");
    let answer = server.ask(PATH, &"X: x\r\n".repeat(http::HEADERS_COUNT + 1)).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer:.100}");
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another() {
    let api = FakeApi::default();
    let server = Running::start(&api).await;
    let mut stream = shake_hands(&TLS13, server.connect().await).await.unwrap();
    let text = "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer scraper\r\n\r\n";
    for _ in 0..3 {
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        while !answer.ends_with("clusters 7\n") {
            let mut chunk = [0; 1024];
            let read = stream.read(&mut chunk).await.unwrap();
            answer.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
        }
    }
    assert_eq!(api.asked().len(), 2, "both questions once");
}

/// The clock is stopped, so a wait takes no time; sockets are real, and callers are served in between.
#[tokio::test(start_paused = true)]
async fn who_says_nothing_or_too_little_is_hung_up_on() {
    let server = Running::start(&FakeApi::default()).await;
    let began = Instant::now();
    let mut silent = server.connect().await;
    let mut chunk = [0; 64];
    assert_eq!(silent.read(&mut chunk).await.unwrap(), 0, "no handshake");
    assert!(began.elapsed() <= HANDSHAKE + Duration::from_secs(1), "{:?}", began.elapsed());

    let mut slow = shake_hands(&TLS13, server.connect().await).await.unwrap();
    let began = Instant::now();
    slow.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
    let mut answer = vec![];
    let _ = slow.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains(" 200 "));
    assert!(began.elapsed() <= http::HEADERS_TIMEOUT + Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_calls_and_hangs_up_is_not_served_at_its_own_pace() {
    let server = Running::start(&FakeApi::default()).await;
    let began = Instant::now();
    for _ in 0..3 * CONNECTIONS {
        drop(server.connect().await);
    }
    let answer = server.ask(PATH, "Authorization: Bearer scraper\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let took = began.elapsed();
    assert!((3 * AT_LEAST..4 * AT_LEAST).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_says_nothing_keeps_nobody_out_for_long() {
    let server = Running::start(&FakeApi::default()).await;
    let mut crowd = vec![];
    for _ in 0..CONNECTIONS {
        crowd.push(server.connect().await);
    }
    let began = Instant::now();
    let answer = server.ask(PATH, "Authorization: Bearer scraper\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(began.elapsed() >= HANDSHAKE, "somebody more was let in: {:?}", began.elapsed());
    assert!(began.elapsed() <= 2 * HANDSHAKE, "{:?}", began.elapsed());
}
