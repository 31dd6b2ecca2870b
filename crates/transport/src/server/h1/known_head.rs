//! The last head of a connection, by which the next one is recognised.
//!
//! A client sends the same head with every request of a connection. Only the length of the body
//! differs. Such a head is compared with the known one and not parsed again, and its requests share
//! one [`RequestHead`](crate::server::RequestHead).

use bytes::{Buf as _, BytesMut};

use super::head::{ReceivedHead, parse_length, read_usual_head};
use crate::server::limits::HttpLimits;

/// A longer head is not kept.
const MAX_KNOWN_BYTES: usize = 4 << 10;

/// The last head that arrived in one piece.
#[derive(Default)]
pub(super) struct KnownHead {
    /// Bytes as they were received, without the length.
    bytes: Vec<u8>,
    /// Position of the length.
    length_at: usize,
    head: Option<ReceivedHead>,
}

impl KnownHead {
    /// Takes a head that is complete. Declines any head that needs a closer look: see
    /// [`read_usual_head`].
    pub(super) fn take(
        &mut self,
        read: &mut BytesMut,
        limits: &HttpLimits,
    ) -> Option<ReceivedHead> {
        let (head, end) = match self.recognise(read, limits) {
            Some(recognised) => recognised,
            None => {
                let (head, end) = read_usual_head(read, limits)?;
                self.remember(read.get(..end)?, &head);
                (head, end)
            }
        };
        read.advance(end);
        Some(head)
    }

    /// Returns the head and its end if it differs from the known one in its length alone.
    fn recognise(&self, read: &[u8], limits: &HttpLimits) -> Option<(ReceivedHead, usize)> {
        let known = self.head.as_ref()?;
        let (before, after) = self.bytes.split_at_checked(self.length_at)?;
        let rest = read.strip_prefix(before)?;
        let (head, rest) = match known.length {
            None => (known.clone(), rest),
            Some(_) => {
                let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let (digits, rest) = rest.split_at_checked(digits)?;
                (known.with_length(parse_length(digits)?), rest)
            }
        };
        let end = read.len() - rest.strip_prefix(after)?.len();
        (end <= limits.header_bytes).then_some((head, end))
    }

    fn remember(&mut self, bytes: &[u8], head: &ReceivedHead) {
        let end = bytes.len();
        let (start, stop) =
            head.length_span.map_or((end, end), |(start, stop)| (start as usize, stop as usize));
        self.bytes.clear();
        self.head = None;
        if let (Some(before), Some(after)) = (bytes.get(..start), bytes.get(stop..))
            && end <= MAX_KNOWN_BYTES
        {
            self.bytes.extend_from_slice(before);
            self.bytes.extend_from_slice(after);
            self.length_at = start;
            self.head = Some(head.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::head::tests::LIMITS;
    use super::*;
    use std::sync::Arc;

    const HEADS: [&str; 5] = [
        "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nA: b\r\n\r\n",
        "POST /v1/messages?a=b HTTP/1.1\r\nHost: a\r\nA: b\r\nContent-Length: 0\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
        "POST /x HTTP/1.0\r\ncontent-length:5\r\nexpect: 100-continue\r\n\r\n",
    ];

    /// Returns the fields of a head, the rest of the bytes, and the head as handlers see it.
    fn taken(known: &mut KnownHead, bytes: &[u8]) -> Option<String> {
        let mut read = BytesMut::from(bytes);
        let head = known.take(&mut read, &LIMITS)?;
        let ReceivedHead { length, framing, is_http10, expects_continue, keep_alive, .. } = head;
        let facts = format!(
            "{length:?} {framing:?} {is_http10} {expects_continue} {keep_alive} {:?} {:?} {read:?}",
            head.head,
            head.head.headers().to_map(),
        );
        Some(facts)
    }

    /// Law: a connection reads a head as if it were its first one.
    #[test]
    fn a_head_is_read_as_without_a_known_one() {
        let pieces =
            ["", "1", "0", "18446744073709551616", "\r\n", "\r", " ", "x", ":", "A: b\r\n"];
        let (mut read, mut declined) = (0, 0);
        for (first, second) in HEADS.iter().flat_map(|a| HEADS.map(|b| (*a, b))) {
            for at in 0..=second.len() {
                for (piece, skipped) in pieces.iter().flat_map(|piece| [(piece, 0), (piece, 1)]) {
                    let rest = second.as_bytes().get(at + skipped..).unwrap_or_default();
                    let bytes =
                        [&second.as_bytes()[..at], piece.as_bytes(), rest, b"77 body"].concat();
                    let mut known = KnownHead::default();
                    assert!(taken(&mut known, first.as_bytes()).is_some(), "{first}");
                    let expected = taken(&mut KnownHead::default(), &bytes);
                    *if expected.is_some() { &mut read } else { &mut declined } += 1;
                    assert_eq!(taken(&mut known, &bytes), expected, "{first:?} {bytes:?}");
                }
            }
        }
        assert!(read > 1_000 && declined > 1_000, "{read} {declined}");
    }

    #[test]
    fn heads_that_differ_in_the_length_share_one_head() {
        let mut known = KnownHead::default();
        let mut take = |text: &str| known.take(&mut BytesMut::from(text), &LIMITS).unwrap();
        let head = HEADS[0];
        let first = take(head);
        let longer = take(&head.replace(": 5", ": 1234"));
        assert!(Arc::ptr_eq(&first.head, &longer.head));
        assert_eq!((first.length, longer.length), (Some(5), Some(1234)));
        let other = take(&head.replace("A: b", "A: c"));
        assert!(!Arc::ptr_eq(&first.head, &other.head));
        let long = "x".repeat(MAX_KNOWN_BYTES);
        let long = take(&head.replace("A: b", &format!("A: {long}")));
        assert!(!Arc::ptr_eq(&other.head, &take(head).head));
        assert_eq!(long.length, Some(5));
    }
}
