//! A client that sends exactly the given bytes and shows exactly what comes back.

use serde_json::Value;
use std::time::Duration;
use testkit::TestGateway;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than anything here takes: a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(90);

pub(crate) const CHAT: &str = "/v1/chat/completions";

/// One connection.
pub(crate) struct Caller {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

/// One answer, as it was on the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (own, value) = line.split_once(": ")?;
            own.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Caller {
    pub(crate) async fn to(gateway: &TestGateway) -> Self {
        Self::at(gateway.url.trim_start_matches("http://")).await
    }

    pub(crate) async fn at(address: &str) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        Self { stream, read: Vec::new() }
    }

    /// Sends bytes; that the other end has closed already is no failure here.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// The next answer. `None` when the connection is closed instead.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        tokio::time::timeout(LONG, self.next()).await.expect("an answer in time")
    }

    async fn next(&mut self) -> Option<Answer> {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break end;
            }
            self.more().await?;
        };
        let head = String::from_utf8(self.read.drain(..end + 4).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: Vec::new() };
        if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().unwrap();
            while self.read.len() < length {
                self.more().await?;
            }
            answer.body = self.read.drain(..length).collect();
        } else if answer.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk().await? {
                answer.body.extend(chunk);
            }
        } else if status != 100 {
            while self.more().await.is_some() {}
            answer.body = std::mem::take(&mut self.read);
        }
        Some(answer)
    }

    /// The next chunk; `Some(None)` for the last one, `None` when the connection closed before it.
    pub(crate) async fn chunk(&mut self) -> Option<Option<Vec<u8>>> {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n") {
                break end;
            }
            self.more().await?;
        };
        let size = std::str::from_utf8(&self.read[..end]).unwrap().to_owned();
        let size = usize::from_str_radix(&size, 16).unwrap();
        while self.read.len() < end + 2 + size + 2 {
            self.more().await?;
        }
        let mut chunk: Vec<u8> = self.read.drain(..end + 2 + size + 2).skip(end + 2).collect();
        assert_eq!(chunk.split_off(size), b"\r\n");
        Some((size > 0).then_some(chunk))
    }

    /// The head of a streamed answer.
    pub(crate) async fn head(&mut self) -> String {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break end;
            }
            tokio::time::timeout(LONG, self.more()).await.unwrap().unwrap();
        };
        String::from_utf8(self.read.drain(..end + 4).collect()).unwrap()
    }

    async fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 8192];
        match self.stream.read(&mut buffer).await {
            Ok(0) | Err(_) => None,
            Ok(count) => {
                self.read.extend_from_slice(&buffer[..count]);
                Some(())
            }
        }
    }

    /// Returns true if the other end closes without sending anything more.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let closed = tokio::time::timeout(LONG, self.more()).await.expect("an end in time");
        closed.is_none() && self.read.is_empty()
    }

    /// Everything until the other end closes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let reading = async { while self.more().await.is_some() {} };
        tokio::time::timeout(LONG, reading).await.expect("an end in time");
        std::mem::take(&mut self.read)
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// A call of that model with these headers besides, as bytes.
pub(crate) fn call(gateway: &TestGateway, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\n{headers}\r\n",
        gateway.key
    );
    [head.as_bytes(), body].concat()
}

pub(crate) fn hello(model: &str, stream: bool) -> Vec<u8> {
    let message = serde_json::json!({ "role": "user", "content": "Hello!" });
    serde_json::json!({ "model": model, "stream": stream, "messages": [message] })
        .to_string()
        .into_bytes()
}
