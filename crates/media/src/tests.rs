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
