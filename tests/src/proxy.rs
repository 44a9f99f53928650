//! A way to the API server that can be slow, closed, or full of holes, for one operator only: everybody else, the test
//! included, has the direct way.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What the way is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weather {
    Fair,
    /// Whatever is sent arrives that much later, in both directions.
    Slow(Duration),
    /// Every connection ends after that time, whatever is under way: requests are carried out and their answers lost.
    Stormy(Duration),
    /// Connections are taken and nothing ever comes of them.
    Silent,
}

/// Listens until it is dropped.
pub struct Proxy {
    pub address: SocketAddr,
    weather: watch::Sender<Weather>,
    listener: JoinHandle<()>,
}

impl Proxy {
    pub async fn to(upstream: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (weather, now) = watch::channel(Weather::Fair);
        let upstream = upstream.to_owned();
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, upstream.clone(), now.clone()));
            }
        });
        Ok(Self { address, weather, listener })
    }

    /// Connections from before end: what they carried is lost.
    pub fn turn(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn carry(client: TcpStream, upstream: String, mut weather: watch::Receiver<Weather>) {
    let now = *weather.borrow_and_update();
    let traffic = async {
        let delay = match now {
            Weather::Silent => return std::future::pending().await,
            Weather::Slow(delay) => delay,
            Weather::Fair | Weather::Stormy(_) => Duration::ZERO,
        };
        let server = TcpStream::connect(&upstream).await.context("the API server is not there")?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            ended = pump(from_client, to_server, delay) => ended,
            ended = pump(from_server, to_client, delay) => ended,
        }
    };
    let end = async {
        match now {
            Weather::Stormy(lifetime) => sleep(lifetime).await,
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = traffic => {}
        () = end => {}
        _ = weather.changed() => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: Duration,
) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        sleep(delay).await;
        to.write_all(&buffer[..count]).await?;
    }
}
