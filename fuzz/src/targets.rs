//! The targets.

use bytes::Bytes;
use dialects::Dialect;
use dialects::images::ImageRequestForm;
use ledger::{Disk as _, MemoryDisk, OpenCalls, TestClock};
use std::sync::Arc;

use crate::entry;

/// A target's name and function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, by the name of its folder in `corpus/`.
pub const ALL: &[Target] = &[
    ("frames", frames),
    ("requests", requests),
    ("answers", answers),
    ("streams", streams),
    ("multipart", multipart),
    ("event_stream", event_stream),
    ("journal", journal),
    ("media", media),
    ("http_requests", http_requests),
    ("http_answers", http_answers),
];

/// The first byte picks the wire format.
fn with_format(input: &[u8], run: impl Fn(&dyn Dialect, &[u8])) {
    if let Some((which, body)) = input.split_first()
        && let Some(dialect) = dialects::all().nth(usize::from(*which) % 4)
    {
        run(dialect, body);
    }
}

/// Server-sent events, split at the place the first byte names.
pub fn frames(input: &[u8]) {
    if let Some((at, bytes)) = input.split_first() {
        entry::cut(bytes, usize::from(*at));
    }
}

/// A request: checked, patched, read, and translated into every other format.
pub fn requests(input: &[u8]) {
    with_format(input, entry::cross);
}

/// A whole answer or an error of a provider, translated for callers of every format.
pub fn answers(input: &[u8]) {
    with_format(input, entry::answer);
}

/// A stream of a provider, metered and translated for callers of every format.
pub fn streams(input: &[u8]) {
    with_format(input, entry::stream);
}

/// A form with files. Its boundary is `b`.
pub fn multipart(input: &[u8]) {
    let form = ImageRequestForm::MultipartEdit { boundary: "b".to_owned() };
    let body = Bytes::copy_from_slice(input);
    if let Ok(order) = form.read(&body) {
        form.patch(&body, &order, "another-model");
    }
    let _ = dialects::images::boundary(&String::from_utf8_lossy(input));
}

/// An AWS event stream: the input as it is, and as the inside of a frame with good checksums.
pub fn event_stream(input: &[u8]) {
    let Some((at, bytes)) = input.split_first() else { return };
    let at = usize::from(*at);
    for stream in [bytes.to_vec(), aws_frame(bytes, at)] {
        let whole = transport::fuzz::event_stream(&[&stream]);
        let (front, back) = stream.split_at(at.min(stream.len()));
        assert_eq!(transport::fuzz::event_stream(&[front, back]), whole);
    }
}

/// A frame whose first `headers` bytes are its headers.
fn aws_frame(inside: &[u8], headers: usize) -> Vec<u8> {
    let headers = u32::try_from(headers.min(inside.len())).unwrap_or_default();
    let length = u32::try_from(inside.len() + 16).unwrap_or(u32::MAX);
    let mut frame = [length.to_be_bytes(), headers.to_be_bytes()].concat();
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame.extend(inside);
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame
}

/// A journal after a crash: the input as a segment, and as the inside of a record with a good
/// checksum. Opening it twice finds the same.
pub fn journal(input: &[u8]) {
    let length = u32::try_from(input.len()).unwrap_or(u32::MAX).to_le_bytes();
    let record = [&length[..], &crc32fast::hash(input).to_le_bytes(), input].concat();
    for segment in [input, &record, &[&record[..], input].concat()] {
        let disk = Arc::new(MemoryDisk::default());
        if disk.create().and_then(|file| file.append(segment)).is_err() {
            continue;
        }
        let open = |disk: &Arc<MemoryDisk>| {
            let disk = Arc::new(disk.after_crash());
            OpenCalls::open(Arc::new(TestClock::default()), disk).map(|opened| opened.found).ok()
        };
        let (once, twice) = (open(&disk), open(&disk));
        assert_eq!(once, twice);
        assert!(once.is_none_or(|found| found.torn <= segment.len()));
    }
}

/// A media file of a caller: measured within bounds, and the same every time.
pub fn media(input: &[u8]) {
    let size = media::media_size(input);
    assert_eq!(size, media::media_size(input));
    if let Some(media::MediaSize::Text(bytes)) = size {
        assert_eq!(bytes, input.len() as u64);
    }
    size.map(|size| catalog::MediaTokens::USUAL.of_file(size, None));
    let text = String::from_utf8_lossy(input);
    media::inline_file(&text, || true);
    media::inline_file(&media::encode_base64(input), || true);
}

/// HTTP/1 requests as the server reads them: heads, lengths, chunks, trailers. The first byte says
/// where the bytes are split, which must not change what is read.
pub fn http_requests(input: &[u8]) {
    same_however_split(input, transport::fuzz::requests);
}

/// HTTP/1 answers as the client reads them, split in the same way.
pub fn http_answers(input: &[u8]) {
    same_however_split(input, transport::fuzz::answers);
}

fn same_however_split(input: &[u8], read: fn(&[&[u8]]) -> Vec<transport::fuzz::Message>) {
    let Some((at, bytes)) = input.split_first() else { return };
    let whole = read(&[bytes]);
    let (front, back) = bytes.split_at(usize::from(*at).min(bytes.len()));
    assert_eq!(read(&[front, back]), whole);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(&single), whole);
}
