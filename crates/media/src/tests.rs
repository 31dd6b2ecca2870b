//! Files of every recognised kind, from the inputs that are kept for fuzzing.

use crate::*;

fn kept(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/media/");
    std::fs::read(format!("{folder}{name}")).unwrap()
}

#[test]
fn every_kind_is_measured() {
    for (name, want) in [
        // The frames tell 0.05 and 0.08 seconds, and every started second counts.
        ("sound.wav", Some(MediaSize::Sound(1))),
        ("sound.mp3", Some(MediaSize::Sound(1))),
        ("sound.aac", Some(MediaSize::Sound(1))),
        ("sound.opus", Some(MediaSize::Sound(1))),
        ("sound.flac", Some(MediaSize::Sound(2))),
        // The samples take six seconds, and the header tells five.
        ("video.mp4", Some(MediaSize::Video(6))),
        // A block may be 32 seconds after the cluster at its begin.
        ("video.webm", Some(MediaSize::Video(33))),
        ("text.csv", Some(MediaSize::Text(25))),
        ("packed.pdf", Some(MediaSize::Pages { pages: 2, text: 0 })),
    ] {
        assert_eq!(media_size(&kept(name)), want, "{name}");
    }
    let Some(MediaSize::Pages { pages: 2, text }) = media_size(&kept("document.pdf")) else {
        panic!("two pages");
    };
    assert!((30..60).contains(&text), "{text}");
    for unknown in [&b"PK\x03\x04"[..], &[0, 1, 2, 3], &[0xff; 90], b"OggS", b"fLaC"] {
        assert_eq!(media_size(unknown), None, "{unknown:?}");
    }
}

/// Two seconds in a header, and megabytes behind it.
#[test]
fn a_duration_that_cannot_be_is_none() {
    let file = [kept("sound.flac"), vec![0; 8 << 20]].concat();
    assert_eq!(media_size(&file), None);
    let mut wav = kept("sound.wav");
    // The declared rate is that of the samples or less.
    wav.get_mut(28..32).unwrap().copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(media_size(&wav), Some(MediaSize::Sound(1)));
    wav.get_mut(28..32).unwrap().copy_from_slice(&100_u32.to_le_bytes());
    assert_eq!(media_size(&wav), Some(MediaSize::Sound(8)));
}

/// A document in a picture is a document: readers accept what is before its first line.
#[test]
fn a_document_behind_something_else_is_found() {
    let file = [b"\x89PNG\r\n\x1a\n".to_vec(), kept("packed.pdf")].concat();
    assert_eq!(media_size(&file), Some(MediaSize::Pages { pages: 2, text: 0 }));
}

/// Bytes of a WAVE file: the fields of its format, and half a megabyte of samples.
fn wave(format: &[u8]) -> Vec<u8> {
    let length = u32::try_from(format.len()).unwrap().to_le_bytes();
    let head = [&b"RIFF\0\0\0\0WAVEfmt "[..], &length, format, b"data\0\0\0\0"].concat();
    [head, vec![0; 480_000]].concat()
}

/// Codec, channels, samples per second, bytes per second, bytes and bits of a sample.
fn wave_format(codec: u16, rate: u32, bytes: u32, block: u16, bits: u16) -> Vec<u8> {
    let mut format = [codec.to_le_bytes(), 1_u16.to_le_bytes()].concat();
    format.extend_from_slice(&[rate.to_le_bytes(), bytes.to_le_bytes()].concat());
    format.extend_from_slice(&[block.to_le_bytes(), bits.to_le_bytes()].concat());
    format
}

/// Readers take the length of a file from different fields, so the longest counts.
#[test]
fn sound_is_as_long_as_its_fields_let_it_be() {
    let fair = wave_format(1, 24_000, 48_000, 2, 16);
    assert_eq!(media_size(&wave(&fair)), Some(MediaSize::Sound(10)));
    let block = wave_format(1, 24_000, 48_000, 1, 16);
    assert_eq!(media_size(&wave(&block)), Some(MediaSize::Sound(20)));
    // A codec that packs, in the open or behind the mark of an extension.
    assert_eq!(media_size(&wave(&wave_format(0x55, 24_000, 48_000, 2, 16))), None);
    for (codec, want) in [(1, Some(MediaSize::Sound(10))), (0x55, None)] {
        let mut format = wave_format(0xfffe, 24_000, 48_000, 2, 16);
        format.extend_from_slice(&[22, 0, 16, 0, 0, 0, 0, 0, codec, 0]);
        assert_eq!(media_size(&wave(&format)), want, "{codec}");
    }
    // The samples of FLAC frames, which the header of the file does not tell.
    let frame = [&[0xff, 0xf8, 0xc9, 0x18][..], &[0; 600]].concat();
    let mut flac = kept("sound.flac");
    flac.get_mut(21..26).unwrap().fill(0);
    let flac = [flac, frame.repeat(100)].concat();
    let Some(MediaSize::Sound(seconds)) = media_size(&flac) else { panic!("sound") };
    assert!((9..=60).contains(&seconds), "{seconds}");
    // The position of the last page.
    let mut opus = kept("sound.opus");
    let page = memchr::memmem::rfind(&opus, b"OggS").unwrap();
    opus.get_mut(page + 6..page + 14).unwrap().copy_from_slice(&480_000_u64.to_le_bytes());
    assert_eq!(media_size(&opus), Some(MediaSize::Sound(10)));
    // Frames that a tag in the first one tells, and frames of a form that is not read.
    let mp3 = kept("sound.mp3");
    let tag = [&b"VBRI"[..], &[0; 10], &10_000_u32.to_be_bytes()].concat();
    let mut tagged = mp3.clone();
    tagged.get_mut(36..54).unwrap().copy_from_slice(&tag);
    let Some(MediaSize::Sound(seconds)) = media_size(&tagged) else { panic!("sound") };
    assert!(seconds > 200, "{seconds}");
    assert_eq!(media_size(&[mp3, vec![1; 70_000]].concat()), None);
    // A text of 16-bit units.
    let text: Vec<u8> = "\u{feff}Words.".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(media_size(&text.repeat(9)), None);
}

fn mp4_box(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 8).unwrap().to_be_bytes();
    [&length[..], kind, content].concat()
}

#[test]
fn video_is_as_long_as_its_boxes_let_it_be() {
    let header = |scale: u32, length: u32| {
        [&[0; 12][..], &scale.to_be_bytes(), &length.to_be_bytes(), &[0; 80]].concat()
    };
    let start = mp4_box(b"ftyp", b"isom\0\0\0\0");
    let data = mp4_box(b"mdat", &[0; 64]);
    let movie = mp4_box(b"moov", &mp4_box(b"mvhd", &header(1_000, 9_000)));
    for file in [[&start[..], &movie, &data].concat(), [&start[..], &data, &movie].concat()] {
        assert_eq!(media_size(&file), Some(MediaSize::Video(9)));
    }
    // Fragments have durations of their own.
    let fragment = mp4_box(b"moof", &[]);
    assert_eq!(media_size(&[&start[..], &movie, &fragment, &data].concat()), None);
    // Of two scales of a track, the one with the longer seconds.
    let samples =
        mp4_box(b"stts", &[&[0; 8][..], &60_u32.to_be_bytes(), &1_000_u32.to_be_bytes()].concat());
    for scales in [[1_000, 90_000], [90_000, 1_000]] {
        let headers = scales.map(|scale| mp4_box(b"mdhd", &header(scale, 0))).concat();
        let track = mp4_box(b"trak", &mp4_box(b"mdia", &[headers, samples.clone()].concat()));
        let movie = mp4_box(b"moov", &track);
        assert_eq!(media_size(&[&start[..], &movie].concat()), Some(MediaSize::Video(60)));
    }
    // A picture in the same container, and a sequence of pictures.
    for brand in [b"heic", b"mif1", b"avif"] {
        let start = mp4_box(b"ftyp", &[&brand[..], &[0; 4]].concat());
        let meta = mp4_box(b"meta", &[0; 64]);
        assert_eq!(media_size(&[&start[..], &meta].concat()), Some(MediaSize::Image(None)));
        assert_eq!(media_size(&[&start[..], &movie].concat()), Some(MediaSize::Video(9)));
    }
}

/// A browser records no duration, and a second header may tell another scale.
#[test]
fn clusters_tell_the_time_of_a_recording() {
    let start = [0x1a, 0x45, 0xdf, 0xa3, 0x80];
    let info = |scale: [u8; 3]| {
        [&[0x15, 0x49, 0xa9, 0x66, 0x87, 0x2a, 0xd7, 0xb1, 0x83][..], &scale].concat()
    };
    let cluster = [0x1f, 0x43, 0xb6, 0x75, 0x85, 0xe7, 0x83, 0x01, 0x86, 0xa0];
    let (usual, tiny) = (info([0x0f, 0x42, 0x40]), info([0, 0, 1]));
    let want = Some(MediaSize::Video(133));
    assert_eq!(media_size(&[&start[..], &usual, &cluster].concat()), want);
    for infos in [[&usual, &tiny], [&tiny, &usual]] {
        assert_eq!(media_size(&[&start[..], infos[0], infos[1], &cluster].concat()), want);
    }
    assert_eq!(media_size(&[&start[..], &usual].concat()), None);
}
