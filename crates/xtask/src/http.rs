//! A small HTTP/1.1 client over one keep-alive connection. It does little, so that a load generator
//! costs little. An incomplete answer is an error.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Timeout of one I/O operation.
const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response head in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    /// Received bytes. The part before `at` has been processed.
    buffer: Vec<u8>,
    at: usize,
    chunk: Box<[u8; 32 * 1024]>,
}

/// A response without its body.
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// Arrival of the first byte of the body, or the end of the head without a body.
    pub(crate) first_byte: Instant,
}

/// Framing of a body.
#[derive(Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

impl Client {
    /// Opens a connection.
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, IO_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
        Ok(Self { stream, buffer: Vec::new(), at: 0, chunk: Box::new([0; 32 * 1024]) })
    }

    /// Sends a request and reads the complete answer into `body`.
    pub(crate) fn exchange(&mut self, request: &[u8], body: &mut Vec<u8>) -> Result<Answer> {
        body.clear();
        self.buffer.clear();
        self.at = 0;
        self.stream.write_all(request)?;
        let (status, framing) = self.head()?;
        let first_byte = match framing {
            Framing::Length(length) => self.take(length, body)?,
            Framing::Chunked => self.take_chunks(body)?,
        };
        ensure!(self.unread().is_empty(), "the answer goes on behind its end");
        Ok(Answer { status, first_byte })
    }

    fn head(&mut self) -> Result<(u16, Framing)> {
        loop {
            if let Some(end) = position(self.unread(), b"\r\n\r\n") {
                let read = read_head(self.unread().get(..end).unwrap_or_default());
                self.at += end + 4;
                return read;
            }
            ensure!(self.unread().len() < MAX_HEAD_BYTES, "a head without an end");
            self.fill()?;
        }
    }

    /// Moves `length` bytes to `body`. Returns the arrival of the first byte.
    fn take(&mut self, length: usize, body: &mut Vec<u8>) -> Result<Instant> {
        if length > 0 && self.unread().is_empty() {
            self.fill()?;
        }
        let first_byte = Instant::now();
        let mut left = length;
        while left > 0 {
            if self.unread().is_empty() {
                self.fill()?;
            }
            let now = self.unread().len().min(left);
            body.extend_from_slice(self.unread().get(..now).unwrap_or_default());
            self.at += now;
            left -= now;
        }
        Ok(first_byte)
    }

    fn take_chunks(&mut self, body: &mut Vec<u8>) -> Result<Instant> {
        let mut first_byte = None;
        loop {
            let line = self.line()?;
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let digits = std::str::from_utf8(digits)?.trim();
            let length = usize::from_str_radix(digits, 16).context("the length of a chunk")?;
            let now = self.take(length, body)?;
            let first_byte = *first_byte.get_or_insert(now);
            if length == 0 {
                // Trailers, if any, end with an empty line like a head.
                while !self.line()?.is_empty() {}
                return Ok(first_byte);
            }
            ensure!(self.line()?.is_empty(), "a chunk is longer than it said");
        }
    }

    fn line(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(end) = position(self.unread(), b"\r\n") {
                let line = self.unread().get(..end).unwrap_or_default().to_vec();
                self.at += end + 2;
                return Ok(line);
            }
            ensure!(self.unread().len() < MAX_HEAD_BYTES, "a line without an end");
            self.fill()?;
        }
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.at..).unwrap_or_default()
    }

    fn fill(&mut self) -> Result<()> {
        if self.unread().is_empty() {
            self.buffer.clear();
            self.at = 0;
        }
        let count = self.stream.read(self.chunk.as_mut_slice()).context("reading an answer")?;
        ensure!(count > 0, "the connection was closed in the middle of an answer");
        self.buffer.extend_from_slice(self.chunk.get(..count).unwrap_or_default());
        Ok(())
    }
}

fn read_head(head: &[u8]) -> Result<(u16, Framing)> {
    let head = std::str::from_utf8(head)?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status line")?;
    let status: u16 = status.parse()?;
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { bail!("not a header: {line}") };
        if name.eq_ignore_ascii_case("content-length") {
            return Ok((status, Framing::Length(value.trim().parse()?)));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            ensure!(value.trim().eq_ignore_ascii_case("chunked"), "an unknown encoding: {value}");
            return Ok((status, Framing::Chunked));
        }
    }
    ensure!(status == 204 || status == 304, "the end of the body is not told:\n{head}");
    Ok((status, Framing::Length(0)))
}

fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Returns a POST request with a JSON body.
pub(crate) fn post(address: SocketAddr, path: &str, key: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Returns the status of a `GET`; `None` if there is no answer.
pub(crate) fn status(address: SocketAddr, path: &str) -> Option<u16> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let mut client = Client::open(address).ok()?;
    Some(client.exchange(request.as_bytes(), &mut Vec::new()).ok()?.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// Returns the client's reading of these pieces, each sent separately.
    fn read(pieces: &'static [&'static str]) -> Result<(u16, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            for piece in pieces {
                stream.write_all(piece.as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut body = Vec::new();
        let answer = Client::open(address)?.exchange(b"GET / HTTP/1.1\r\n\r\n", &mut body);
        server.join().unwrap();
        Ok((answer?.status, String::from_utf8(body)?))
    }

    #[test]
    fn a_body_of_known_length_may_come_in_pieces() {
        let got = read(&["HTTP/1.1 200 OK\r\nContent-Le", "ngth: 5\r\n\r\nhe", "llo"]).unwrap();
        assert_eq!(got, (200, "hello".into()));
    }

    #[test]
    fn chunks_may_be_cut_anywhere() {
        let got = read(&[
            "HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n5",
            "\r\nhel",
            "lo\r\n1;x=y\r\n!\r",
            "\n0\r\n",
            "\r\n",
        ]);
        assert_eq!(got.unwrap(), (404, "hello!".into()));
    }

    #[test]
    fn a_truncated_answer_is_an_error() {
        for pieces in [
            &["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell"][..],
            &["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"],
            &["HTTP/1.1 200 OK\r\n"],
        ] {
            assert!(read(pieces).is_err(), "{pieces:?}");
        }
    }

    #[test]
    fn an_answer_that_is_too_long_is_an_error() {
        assert!(read(&["HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhello"]).is_err());
        let chunked =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n";
        assert!(read(Box::leak(Box::new([chunked]))).is_err());
    }
}
