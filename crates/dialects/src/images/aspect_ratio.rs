//! Conversion of sizes for families that use an aspect ratio and a size class.

use canon::{ApiError, ImageRequest, ImageSize};

use crate::checks::invalid_field;

/// Aspect ratios of the native format.
pub(super) const NATIVE_RATIOS: [&str; 10] =
    ["1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9"];

/// Parses an aspect ratio. The inner `None` stands for `auto`, the outer one for a malformed ratio.
#[expect(clippy::option_option, reason = "`auto` is a ratio that names no number")]
pub(super) fn read_ratio(word: &str) -> Option<Option<f64>> {
    if word == "auto" {
        return Some(None);
    }
    let (width, height) = word.split_once(':')?;
    let side = |word: &str| -> Option<f64> {
        let plain = word.len() <= 5 && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        plain.then(|| word.parse::<f64>().ok()).flatten().filter(|side| *side > 0.0)
    };
    Some(Some(side(width)? / side(height)?))
}

/// Returns true if two ratios are nearly equal.
pub(super) fn is_near(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < 0.04
}

/// Returns the known ratio that matches the request. `None` if none was requested, `Err` if none
/// matches.
pub(super) fn ratio_of<'a>(
    picture: &'a ImageRequest,
    known: &[&'a str],
) -> Result<Option<&'a str>, ApiError> {
    if let Some(word) = &picture.aspect_ratio {
        return Ok(Some(word));
    }
    let ImageSize::Pixels(width, height) = picture.size else { return Ok(None) };
    let requested = f64::from(width) / f64::from(height);
    let fits =
        |word: &&&str| read_ratio(word).flatten().is_some_and(|ratio| is_near(ratio, requested));
    known.iter().find(fits).map(|word| Some(*word)).ok_or_else(|| {
        let why = "has an aspect ratio this model does not support; supported:";
        invalid_field("size", &format!("{why} {}", known.join(", ")))
    })
}

/// Returns the smallest size class that covers the request. `None` if no size was requested.
pub(super) fn class_of(extent: &ImageSize) -> Option<String> {
    if let ImageSize::Class(word) = extent {
        return Some(word.clone());
    }
    // A class is roughly a square of that side. Wide images have slightly more pixels.
    let word = match extent.max_pixels()? {
        ..=1_700_000 => "1K",
        1_700_001..=6_800_000 => "2K",
        _ => "4K",
    };
    Some(word.to_owned())
}

/// Returns true if a class gives exactly that size.
pub(super) fn is_exact(extent: &ImageSize) -> bool {
    let is_class = |width: u32, height| width == height && matches!(width, 1_024 | 2_048 | 4_096);
    !matches!(*extent, ImageSize::Pixels(width, height) if !is_class(width, height))
}
