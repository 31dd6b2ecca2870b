//! Duration of video files, and of sound in their containers.

use memchr::memmem;

use crate::{MediaDuration, array, number};

/// Returns the duration of a file in a container of video; `None` if it is none that is recognised. A
/// duration that cannot be told is infinite.
pub(super) fn duration(file: &[u8]) -> Option<MediaDuration> {
    let (seconds, is_video) = match file {
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => mp4(file),
        [0x1a, 0x45, 0xdf, 0xa3, ..] => (webm(file), true),
        _ => return None,
    };
    Some(MediaDuration { seconds: seconds.unwrap_or(f64::INFINITY), is_video, bytes: file.len() })
}

/// Returns true for a picture in this container, HEIF or AVIF, that is no sequence.
pub(super) fn is_picture(file: &[u8]) -> bool {
    const BRANDS: [&[u8; 4]; 5] = [b"heic", b"heix", b"heim", b"mif1", b"avif"];
    let brand = array::<4>(file, 8).filter(|_| array(file, 4) == Some(*b"ftyp"));
    brand.is_some_and(|brand| BRANDS.contains(&&brand)) && memmem::find(file, b"moov").is_none()
}

/// Longest duration that the boxes of a file tell (ISO 14496-12, section 8), and false if it has only
/// sound.
fn mp4(file: &[u8]) -> (Option<f64>, bool) {
    let mut boxes = Mp4Boxes::default();
    let is_read = boxes.read(file, 0).is_some() && boxes.longest > 0.0;
    (is_read.then_some(boxes.longest), boxes.has_pictures || !boxes.has_sound)
}

#[derive(Default)]
struct Mp4Boxes {
    scale: Option<f64>,
    track_scale: Option<f64>,
    longest: f64,
    has_pictures: bool,
    has_sound: bool,
}

impl Mp4Boxes {
    const MAX_DEPTH: u32 = 6;

    fn read(&mut self, mut bytes: &[u8], depth: u32) -> Option<()> {
        while bytes.len() >= 8 {
            let (size, kind) = (number(bytes, 0, 4)?, array::<4>(bytes, 4)?);
            let (head, size) = match size {
                0 => (8, bytes.len()),
                1 => (16, usize::try_from(number(bytes, 8, 8)?).ok()?),
                size => (8, usize::try_from(size).ok()?),
            };
            // A file may be cut within its last box.
            let size = size.min(bytes.len());
            self.read_box(&kind, bytes.get(head..size)?, depth)?;
            bytes = bytes.get(size..)?;
        }
        Some(())
    }

    fn read_box(&mut self, kind: &[u8; 4], content: &[u8], depth: u32) -> Option<()> {
        match kind {
            // The parts of a file in fragments have durations of their own.
            b"moof" | b"mvex" => return None,
            b"moov" | b"trak" | b"mdia" | b"minf" | b"stbl" | b"edts" => {
                if kind == b"trak" {
                    self.track_scale = None;
                }
                if depth >= Self::MAX_DEPTH {
                    return None;
                }
                self.read(content, depth + 1)?;
            }
            b"mvhd" => {
                let scale = self.read_header(content)?;
                self.scale = Some(self.scale.map_or(scale, |own| own.min(scale)));
            }
            b"mdhd" => {
                let scale = self.read_header(content)?;
                self.track_scale = Some(self.track_scale.map_or(scale, |own| own.min(scale)));
            }
            b"hdlr" => {
                self.has_pictures |= content.get(8..12)? == b"vide";
                self.has_sound |= content.get(8..12)? == b"soun";
            }
            // Durations of the samples, and of the shown parts.
            b"stts" => {
                let pairs = content.get(8..)?.chunks_exact(8);
                let sum = pairs.filter_map(|pair| {
                    Some(number(pair, 0, 4)?.saturating_mul(number(pair, 4, 4)?))
                });
                let sum = sum.fold(0, u64::saturating_add);
                self.note(sum as f64 / self.track_scale?);
            }
            b"elst" => {
                let width = if content.first()? == &1 { 8 } else { 4 };
                let rows = content.get(8..)?.chunks_exact(width * 2 + 4);
                let sum = rows.filter_map(|row| number(row, 0, width));
                let sum = sum.fold(0, u64::saturating_add);
                self.note(sum as f64 / self.scale?);
            }
            _ => {}
        }
        Some(())
    }

    /// Reads a header of the file or of a track, and returns its units per second.
    fn read_header(&mut self, content: &[u8]) -> Option<f64> {
        let (scale, duration) = match content.first()? {
            1 => (number(content, 20, 4)?, number(content, 24, 8)?),
            _ => (number(content, 12, 4)?, number(content, 16, 4)?),
        };
        let scale = Some(scale as f64).filter(|scale| *scale > 0.0)?;
        // All bits set means an unknown duration, which the samples tell.
        if duration != u64::from(u32::MAX) && duration != u64::MAX {
            self.note(duration as f64 / scale);
        }
        Some(scale)
    }

    fn note(&mut self, seconds: f64) {
        self.longest = self.longest.max(seconds);
    }
}

/// Duration of a Matroska file: the one of its header, or the time of its last cluster. Files that a
/// browser records have only clusters (RFC 9559, sections 5.1.2 and 5.1.3).
fn webm(file: &[u8]) -> Option<f64> {
    const CLUSTER: [u8; 4] = [0x1f, 0x43, 0xb6, 0x75];
    /// Blocks are up to this many units after their cluster.
    const MAX_BLOCK_UNITS: f64 = 32_768.0;
    const INFO: [u8; 4] = [0x15, 0x49, 0xa9, 0x66];
    let (mut scale, mut longest) = (0.0_f64, 0.0_f64);
    for info in memmem::find_iter(file, &INFO) {
        let (mut rest, _) = element(file.get(info + 4..)?)?;
        let mut own_scale = 1_000_000.0;
        while !rest.is_empty() {
            let id_length = rest.first()?.leading_zeros() as usize + 1;
            let (id, (content, behind)) =
                (number(rest, 0, id_length)?, element(rest.get(id_length..)?)?);
            match (id, content.len()) {
                (0x2a_d7b1, length) => own_scale = number(content, 0, length.min(8))? as f64,
                (0x4489, 4) => {
                    longest = longest.max(f64::from(f32::from_be_bytes(array(content, 0)?)));
                }
                (0x4489, 8) => longest = longest.max(f64::from_be_bytes(array(content, 0)?)),
                _ => {}
            }
            rest = behind;
        }
        scale = scale.max(own_scale);
    }
    for at in memmem::find_iter(file, &CLUSTER) {
        let cluster = file.get(at + 4..)?;
        let length = cluster.first()?.leading_zeros() as usize + 1;
        // The time is the first element of a cluster.
        let [0xe7, rest @ ..] = cluster.get(length..)? else { return None };
        let (time, _) = element(rest)?;
        let time = number(time, 0, time.len().min(8))? as f64;
        longest = longest.max(time + MAX_BLOCK_UNITS);
    }
    Some(longest * scale / 1e9).filter(|seconds| *seconds > 0.0)
}

/// Returns the content of an element behind its id, and the bytes behind it.
fn element(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = bytes.first()?.leading_zeros() as usize + 1;
    if length > 8 {
        return None;
    }
    let size = number(bytes, 0, length)? & ((1 << (7 * length)) - 1);
    bytes.get(length..)?.split_at_checked(usize::try_from(size).ok()?)
}
