//! Sealed files: segments of 64 KiB that open one by one, so that a range needs only its own.
//!
//! A file begins with a header: magic bytes, id of the data key, random salt, size of the content.
//! Its key is derived from the data key, the header and the name. Each segment is sealed with
//! AES-256-GCM-SIV (RFC 8452). Its number is the nonce, because no other file has the same key.
//! Name, number and the mark of the last segment are bound to it: a segment opens in its own place
//! only, and a file that was cut off has no last one.

use std::fmt;
use std::ops::Range;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use store::{DATA_KEY_ID_BYTES, DataKey, DataKeyId};

const MAGIC: &[u8; 8] = b"\xa6\xdbPTF1\r\n";
const SALT_BYTES: usize = 16;
/// Length of the header.
pub(super) const HEADER_BYTES: usize = MAGIC.len() + DATA_KEY_ID_BYTES + SALT_BYTES + 8;
const SEGMENT_BYTES: u64 = 64 << 10;
const TAG_BYTES: u64 = 16;
const STORED_SEGMENT_BYTES: u64 = SEGMENT_BYTES + TAG_BYTES;

/// Damage of a file whose parts do not fit together.
pub(super) const CHANGED_FILE: &str = "it was changed, or is another file";

/// Bytes of a file as they arrive.
pub(super) type FileStream = BoxStream<'static, object_store::Result<Bytes>>;

/// Header of a sealed file.
pub(super) struct FileHeader {
    bytes: [u8; HEADER_BYTES],
    /// The data key that the key of the file is derived from.
    pub(super) data_key: DataKeyId,
    /// Size of the content.
    pub(super) size: u64,
}

impl FileHeader {
    fn new(data_key: &DataKey, size: u64) -> Option<Self> {
        let mut salt = [0; SALT_BYTES];
        rand::fill(&mut salt).ok()?;
        let id = data_key.id().as_slice();
        Self::parse(&[MAGIC, id, &salt, &size.to_be_bytes()].concat())
    }

    /// Reads a header; `None` if the bytes are none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = <[u8; HEADER_BYTES]>::try_from(bytes).ok()?;
        let (data_key, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
        let size = u64::from_be_bytes(*rest.last_chunk()?);
        Some(Self { bytes, data_key: *data_key, size })
    }

    /// Size of the whole sealed file; `None` for a size that no file has.
    fn stored_bytes(&self) -> Option<u64> {
        let tags = segment_count(self.size).checked_mul(TAG_BYTES)?;
        self.size.checked_add(tags)?.checked_add(HEADER_BYTES as u64)
    }
}

/// An empty file has one segment too.
fn segment_count(size: u64) -> u64 {
    size.div_ceil(SEGMENT_BYTES).max(1)
}

/// Seals and opens the segments of one file.
pub(super) struct FileCipher {
    key: LessSafeKey,
    name: String,
    /// Size of the content.
    pub(super) size: u64,
}

impl FileCipher {
    fn new(data_key: &DataKey, header: &FileHeader, name: &str) -> Option<Self> {
        let key = data_key.derive_file_key(&[&header.bytes, name.as_bytes()].concat());
        let key = UnboundKey::new(&AES_256_GCM_SIV, key.as_ref()).ok()?;
        Some(Self { key: LessSafeKey::new(key), name: name.to_owned(), size: header.size })
    }

    /// Returns the cipher of a stored file; `None` if its size is not that of its header.
    pub(super) fn open(
        data_key: &DataKey,
        header: &FileHeader,
        name: &str,
        stored_bytes: u64,
    ) -> Option<Self> {
        let whole = header.stored_bytes() == Some(stored_bytes);
        Self::new(data_key, header, name).filter(|_| whole)
    }

    fn nonce(number: u64) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        for (to, from) in nonce.iter_mut().rev().zip(number.to_le_bytes()) {
            *to = from;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    fn bound(&self, number: u64) -> Aad<Vec<u8>> {
        let last = if number + 1 == segment_count(self.size) { "last" } else { "more" };
        Aad::from(format!("portunus file 1\0{}\0{number}\0{last}", self.name).into_bytes())
    }

    /// Returns the stored length of a segment.
    fn stored_length(&self, number: u64) -> u64 {
        let left = self.size.saturating_sub(number.saturating_mul(SEGMENT_BYTES));
        left.min(SEGMENT_BYTES) + TAG_BYTES
    }

    fn open_segment(&self, number: u64, mut segment: BytesMut) -> Option<Bytes> {
        let bound = self.bound(number);
        let length = self.key.open_in_place(Self::nonce(number), bound, &mut segment).ok()?.len();
        segment.truncate(length);
        Some(segment.freeze())
    }

    /// Returns the stored bytes that hold a part of the content.
    pub(super) fn stored_range(&self, part: &Range<u64>) -> Range<u64> {
        let (first, end) = segments_of(part);
        let last = end.saturating_sub(1);
        let start = |number: u64| HEADER_BYTES as u64 + number * STORED_SEGMENT_BYTES;
        start(first)..start(last) + self.stored_length(last)
    }

    /// Opens a part of the content. `stored` begins with `head`, at the first segment of the part.
    /// The segments of the first `opened_bytes` are opened at once, and one in any case, so that a
    /// changed file is an error and no body that breaks off.
    pub(super) async fn open_part(
        self,
        part: Range<u64>,
        stored: FileStream,
        head: BytesMut,
        opened_bytes: u64,
    ) -> object_store::Result<FileStream> {
        let (next, end) = segments_of(&part);
        let mut reader = SegmentReader { cipher: self, part, stored, buffer: head, next, end };
        let (mut opened, mut bytes) = (Vec::new(), 0);
        while let Some((segment, rest)) = reader.read_next().await? {
            bytes += segment.len() as u64;
            opened.push(Ok(segment));
            reader = rest;
            if bytes >= opened_bytes {
                let rest = stream::try_unfold(reader, SegmentReader::read_next);
                return Ok(stream::iter(opened).chain(rest).boxed());
            }
        }
        Ok(stream::iter(opened).boxed())
    }
}

/// Returns the numbers of the segments that hold a part; the second one is behind the last.
fn segments_of(part: &Range<u64>) -> (u64, u64) {
    let first = part.start / SEGMENT_BYTES;
    (first, part.end.div_ceil(SEGMENT_BYTES).max(first + 1))
}

/// Seals the content of a file. Fails only if the system has no randomness.
pub(super) fn seal_file(data_key: &DataKey, name: &str, content: &[u8]) -> Option<Vec<u8>> {
    let header = FileHeader::new(data_key, content.len() as u64)?;
    let cipher = FileCipher::new(data_key, &header, name)?;
    let mut out = Vec::with_capacity(usize::try_from(header.stored_bytes()?).ok()?);
    out.extend_from_slice(&header.bytes);
    let mut rest = content;
    for number in 0..segment_count(header.size) {
        let (segment, more) = rest.split_at_checked(SEGMENT_BYTES as usize).unwrap_or((rest, &[]));
        rest = more;
        let start = out.len();
        out.extend_from_slice(segment);
        let bound = cipher.bound(number);
        let tag = cipher.key.seal_in_place_separate_tag(
            FileCipher::nonce(number),
            bound,
            out.get_mut(start..)?,
        );
        out.extend_from_slice(tag.ok()?.as_ref());
    }
    Some(out)
}

/// Reads exactly so many bytes from the begin of a file. The rest of what arrived stays in
/// `buffer`.
pub(super) async fn take_bytes(
    name: &str,
    stored: &mut FileStream,
    buffer: &mut BytesMut,
    length: usize,
) -> object_store::Result<BytesMut> {
    while buffer.len() < length {
        let more = stored.try_next().await?;
        let more = more.ok_or_else(|| DamagedFile::report(name, "it is cut off"))?;
        buffer.extend_from_slice(&more);
    }
    Ok(buffer.split_to(length))
}

/// Error of a file that is not the one that was stored. No retry can help.
#[derive(Debug)]
pub(super) struct DamagedFile(&'static str);

impl DamagedFile {
    /// Logs the damage. A body that breaks off shows its reader no reason.
    pub(super) fn report(name: &str, why: &'static str) -> object_store::Error {
        tracing::error!(file.name = name, "the stored file {name} cannot be opened: {why}");
        object_store::Error::Generic { store: "files", source: Box::new(Self(why)) }
    }

    /// Returns the damage that caused an error.
    pub(super) fn in_error(error: &object_store::Error) -> Option<&Self> {
        match error {
            object_store::Error::Generic { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for DamagedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for DamagedFile {}

struct SegmentReader {
    cipher: FileCipher,
    part: Range<u64>,
    stored: FileStream,
    buffer: BytesMut,
    next: u64,
    end: u64,
}

impl SegmentReader {
    async fn read_next(mut self) -> object_store::Result<Option<(Bytes, Self)>> {
        if self.next >= self.end {
            return Ok(None);
        }
        let number = self.next;
        self.next += 1;
        let length = usize::try_from(self.cipher.stored_length(number)).unwrap_or(usize::MAX);
        let name = &self.cipher.name;
        let segment = take_bytes(name, &mut self.stored, &mut self.buffer, length).await?;
        let open = self.cipher.open_segment(number, segment);
        let open = open.ok_or_else(|| DamagedFile::report(name, CHANGED_FILE))?;
        let start = number * SEGMENT_BYTES;
        let place = |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
        let (from, to) = (place(self.part.start), place(self.part.end).min(open.len()));
        Ok(Some((open.slice(from.min(to)..to), self)))
    }
}
