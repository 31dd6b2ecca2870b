//! Duration of sound files. Where a header tells it, the frames are counted as well.

use memchr::memmem;

use crate::{MediaDuration, array, number};

/// Bytes between frames, such as tags. More of them may be frames of a form that is not read.
const MAX_SKIPPED_BYTES: usize = 64 << 10;

/// Returns the duration of a sound file; `None` if it is none that is recognised. A duration that
/// cannot be told is infinite.
pub(super) fn duration(file: &[u8]) -> Option<MediaDuration> {
    let seconds = match file {
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => wav(file),
        [b'f', b'L', b'a', b'C', ..] => flac(file),
        [b'O', b'g', b'g', b'S', ..] => opus(file),
        [b'I', b'D', b'3', ..] => frames(file),
        // A text of 16-bit units begins with the next two bytes.
        [0xff, 0xfe, ..] => return None,
        [0xff, second, ..] if second & 0xe0 == 0xe0 => frames(file),
        _ => return None,
    };
    let seconds = seconds.unwrap_or(f64::INFINITY);
    Some(MediaDuration { seconds, is_video: false, bytes: file.len() })
}

/// <https://www.mmsp.ece.mcgill.ca/Documents/AudioFormats/WAVE/WAVE.html>
fn wav(file: &[u8]) -> Option<f64> {
    let mut at = 12;
    let mut rate: Option<u64> = None;
    loop {
        let (kind, length) = (array::<4>(file, at)?, u32::from_le_bytes(array(file, at + 4)?));
        at += 8;
        match &kind {
            b"fmt " => {
                let word =
                    |from: usize| Some(u64::from(u16::from_le_bytes(array(file, at + from)?)));
                let double = |from| Some(u64::from(u32::from_le_bytes(array(file, at + from)?)));
                // Samples of one size each: integers, floats and the two laws. An extension tells
                // which of them behind the usual fields.
                let codec = if word(0)? == 0xfffe { word(24)? } else { word(0)? };
                if !matches!(codec, 1 | 3 | 6 | 7) {
                    return None;
                }
                let samples = double(4)?.checked_mul(word(2)?)?.checked_mul(word(14)?)? / 8;
                let blocks = double(4)?.checked_mul(word(12)?)?;
                let least = samples.min(blocks).min(double(8)?);
                rate = Some(rate.map_or(least, |rate| rate.min(least))).filter(|rate| *rate > 0);
                rate?;
            }
            // Readers take what comes, whatever length is declared.
            b"data" => return Some(file.len().saturating_sub(at) as f64 / rate? as f64),
            _ => {}
        }
        // Chunks have an even length.
        at = at.checked_add(usize::try_from(length).ok()?.next_multiple_of(2))?;
    }
}

/// RFC 9639, section 8.2. A file may have more samples than its header tells, so the marks of frames
/// count as well.
fn flac(file: &[u8]) -> Option<f64> {
    let rate = number(file, 18, 3)? >> 4;
    let samples = number(file, 21, 5)? & 0xf_ffff_ffff;
    let marks = memchr::memchr_iter(0xff, file);
    let marked: u64 = marks.filter_map(|at| flac_block(array(file, at)?)).sum();
    let samples = samples.max(marked);
    (rate > 0 && samples > 0).then(|| samples as f64 / rate as f64)
}

/// Returns the samples of the block whose header stands there: RFC 9639, section 9.1.
fn flac_block(head: [u8; 4]) -> Option<u64> {
    let [0xff, second, third, fourth] = head else { return None };
    let has_reserved = second & 0xfe != 0xf8 || fourth >> 4 > 10 || fourth & 1 == 1;
    if has_reserved || third & 0xf == 0xf {
        return None;
    }
    match third >> 4 {
        0 => None,
        1 => Some(192),
        code @ 2..=5 => Some(576 << (code - 2)),
        6 => Some(256),
        7 => Some(65_536),
        code => Some(256 << (code - 8)),
    }
}

/// Sums the packets of an Opus file: RFC 3533, section 6, and RFC 6716, section 3.1.
fn opus(file: &[u8]) -> Option<f64> {
    const FRAME_MILLIS: [f64; 32] = [
        10.0, 20.0, 40.0, 60.0, 10.0, 20.0, 40.0, 60.0, 10.0, 20.0, 40.0, 60.0, 10.0, 20.0, 10.0,
        20.0, 2.5, 5.0, 10.0, 20.0, 2.5, 5.0, 10.0, 20.0, 2.5, 5.0, 10.0, 20.0, 2.5, 5.0, 10.0,
        20.0,
    ];
    memmem::find(file.get(..64)?, b"OpusHead")?;
    let (mut at, mut packets, mut millis, mut last) = (0_usize, 0_u64, 0.0_f64, 0_u64);
    while at < file.len() {
        if file.get(at..at + 4)? != b"OggS" {
            return None;
        }
        let is_continued = file.get(at + 5)? & 1 == 1;
        // The position of a page without the end of a packet has all bits set.
        let position = u64::from_le_bytes(array(file, at + 6)?);
        last = last.max(if position == u64::MAX { 0 } else { position });
        let table = file.get(at + 27..)?.get(..usize::from(*file.get(at + 26)?))?;
        let mut data = at + 27 + table.len();
        let mut is_new = !is_continued;
        for length in table {
            if is_new && *length > 0 {
                let head = *file.get(data)?;
                let frames = match head & 3 {
                    0 => 1,
                    1 | 2 => 2,
                    _ => file.get(data + 1)? & 0x3f,
                };
                // The first two packets are headers (RFC 7845, section 3).
                packets += 1;
                if packets > 2 {
                    millis += FRAME_MILLIS.get(usize::from(head >> 3))? * f64::from(frames);
                }
            }
            data += usize::from(*length);
            is_new = *length < 255;
        }
        at = data;
    }
    Some((millis / 1_000.0).max(last as f64 / 48_000.0))
}

/// Sums the frames of MPEG sound: MP3 (ISO 11172-3, section 2.4.2.3) and AAC (ISO 13818-7, section 6.2).
fn frames(file: &[u8]) -> Option<f64> {
    let mut at = match file {
        [b'I', b'D', b'3', ..] => {
            let size = file.get(6..10)?.iter().fold(0, |sum, byte| sum << 7 | usize::from(*byte));
            size.checked_add(10)?
        }
        _ => 0,
    };
    let (mut seconds, mut declared, mut skipped) = (0.0_f64, 0.0_f64, 0_usize);
    while let Some(head) = array::<7>(file, at) {
        let Some((length, time)) = aac_frame(head).or_else(|| mp3_frame(head)) else {
            at += 1;
            skipped += 1;
            continue;
        };
        // The first frame may tell how many follow.
        if seconds <= 0.0
            && let Some(frame) = file.get(at..at + length.min(file.len() - at))
        {
            declared = declared_frames(frame).unwrap_or_default() as f64 * time;
        }
        seconds += time;
        at += length;
    }
    // Sound without frames is none, or of a form that is not read.
    (seconds > 0.0 && skipped <= MAX_SKIPPED_BYTES).then_some(seconds.max(declared))
}

/// Number of frames in the tag of a first frame:
/// <https://www.codeproject.com/Articles/8295/MPEG-Audio-Frame-Header>.
fn declared_frames(frame: &[u8]) -> Option<u64> {
    if let Some(tag) = memmem::find(frame, b"VBRI") {
        return number(frame, tag + 14, 4);
    }
    let tag = memmem::find(frame, b"Xing").or_else(|| memmem::find(frame, b"Info"))?;
    let has_frames = number(frame, tag + 4, 4)? & 1 == 1;
    number(frame, tag + 8, 4).filter(|_| has_frames)
}

/// Returns length and duration of a frame.
fn mp3_frame(head: [u8; 7]) -> Option<(usize, f64)> {
    const KILOBITS: [[u64; 15]; 5] = [
        [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
        [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
        [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
        [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
        [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
    ];
    let [0xff, second, third, ..] = head else { return None };
    let (version, layer) = (second >> 3 & 3, second >> 1 & 3);
    if second & 0xe0 != 0xe0 || version == 1 {
        return None;
    }
    // Version 3 is MPEG 1; layer 3 is the first, 2 the second, 1 the third.
    let (row, samples) = match (version == 3, layer) {
        (_, 0) => return None,
        (true, 3) => (0, 384),
        (true, 2) => (1, 1_152),
        (true, _) => (2, 1_152),
        (false, 3) => (3, 384),
        (false, 2) => (4, 1_152),
        (false, _) => (4, 576),
    };
    let kilobits = KILOBITS.get(row)?.get(usize::from(third >> 4)).copied()?;
    let rate = [44_100, 48_000, 32_000].get(usize::from(third >> 2 & 3)).copied()?;
    let rate: u64 = match version {
        3 => rate,
        2 => rate / 2,
        _ => rate / 4,
    };
    let slot = if layer == 3 { 4 } else { 1 };
    let padding = u64::from(third >> 1 & 1);
    let length = (samples / 8 / slot * kilobits * 1_000 / rate + padding) * slot;
    let length = usize::try_from(length).ok().filter(|length| *length > 4)?;
    Some((length, samples as f64 / rate as f64))
}

fn aac_frame(head: [u8; 7]) -> Option<(usize, f64)> {
    const RATES: [f64; 13] = [
        96_000.0, 88_200.0, 64_000.0, 48_000.0, 44_100.0, 32_000.0, 24_000.0, 22_050.0, 16_000.0,
        12_000.0, 11_025.0, 8_000.0, 7_350.0,
    ];
    let [0xff, second, third, fourth, fifth, sixth, seventh] = head else { return None };
    if second & 0xf6 != 0xf0 {
        return None;
    }
    let rate = RATES.get(usize::from(third >> 2 & 0xf))?;
    let length = usize::from(fourth & 3) << 11 | usize::from(fifth) << 3 | usize::from(sixth >> 5);
    let blocks = f64::from(seventh & 3) + 1.0;
    (length >= 7).then(|| (length, blocks * 1_024.0 / rate))
}
