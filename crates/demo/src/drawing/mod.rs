//! Images of the demo models: a landscape derived from the prompt, with the prompt as a caption.
//! The same request gives the same image, bit for bit.

mod files;
mod letters;
mod raster;
mod scene;

use letters::TextBlock;

pub(crate) use files::{decode, encode};
pub(crate) use raster::{Raster, Rgba};

/// Maximum side length in pixels that is drawn or read.
const MAX_SIDE_PIXELS: u32 = 8_192;

/// Description of an image to draw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sketch {
    /// Caption. Together with the seed it determines the landscape.
    pub(crate) text: String,
    /// Distinguishes images of the same text.
    pub(crate) seed: u64,
    /// Width and height.
    pub(crate) size: (u32, u32),
    /// Number of ranges of hills.
    pub(crate) detail: u32,
    /// True if the sky is transparent.
    pub(crate) transparent: bool,
    /// Input images.
    pub(crate) inputs: Vec<Raster>,
    /// Mask of the first input image. Its transparent pixels may be changed.
    pub(crate) mask: Option<Raster>,
}

/// Draws the image.
pub(crate) fn draw(sketch: &Sketch) -> Raster {
    let size = (sketch.size.0.clamp(1, MAX_SIDE_PIXELS), sketch.size.1.clamp(1, MAX_SIDE_PIXELS));
    let mut picture = scene::draw(sketch, size);
    if let Some(first) = sketch.inputs.first() {
        let first = first.resized(size.0, size.1);
        match &sketch.mask {
            Some(mask) => keep_masked(&mut picture, &first, mask),
            None => blend_input(&mut picture, &first),
        }
        draw_thumbnails(&mut picture, sketch.inputs.get(1..).unwrap_or_default());
    }
    caption(&mut picture, sketch);
    picture
}

/// Blends a colour over a pixel with the opacity `share`.
fn blend_pixel(pixel: &mut Rgba, ink: Rgba, share: f32) {
    let [r, g, b, a] = *pixel;
    let [ir, ig, ib, ia] = ink;
    let share = (share * f32::from(ia) / 255.0).clamp(0.0, 1.0);
    // A transparent pixel has no colour to mix with.
    let own = f32::from(a) / 255.0 * (1.0 - share);
    let all = own + share;
    if all <= 0.0 {
        return;
    }
    let mix = |one: u8, other: u8| {
        ((f32::from(one) * own + f32::from(other) * share) / all).round() as u8
    };
    *pixel = [mix(r, ir), mix(g, ig), mix(b, ib), (all * 255.0).round() as u8];
}

/// Keeps the input wherever the mask is opaque.
fn keep_masked(picture: &mut Raster, input: &Raster, mask: &Raster) {
    let mask = mask.resized(picture.width(), picture.height());
    let masked = input.pixels().iter().zip(mask.pixels());
    for (pixel, (input, [_, _, _, opaque])) in picture.pixels_mut().iter_mut().zip(masked) {
        blend_pixel(pixel, *input, f32::from(*opaque) / 255.0);
    }
}

/// Blends the input into the landscape, which replaces it towards the bottom.
fn blend_input(picture: &mut Raster, input: &Raster) {
    let height = picture.height().max(1) as f32;
    for ((_, y, pixel), input) in picture.places_mut().zip(input.pixels()) {
        let share = (1.6 - 1.8 * y as f32 / height).clamp(0.0, 1.0);
        blend_pixel(pixel, *input, share);
    }
}

/// Shows further inputs small, in a row at the top.
fn draw_thumbnails(picture: &mut Raster, inputs: &[Raster]) {
    let side = (picture.width().min(picture.height()) / 8).max(1);
    let gap = side / 6;
    for (number, input) in (0_u32..).zip(inputs) {
        let small = input.resized(side, side);
        let left = gap + number * (side + gap);
        overlay(picture, small, left, gap);
    }
}

/// Blends a small image over another, its upper left corner at that place.
fn overlay(picture: &mut Raster, mut small: Raster, left: u32, top: u32) {
    for (x, y, ink) in small.places_mut() {
        if let Some(pixel) = picture.pixel_mut(left + x, top + y) {
            blend_pixel(pixel, *ink, 1.0);
        }
    }
}

/// Draws the caption on a shade that keeps it readable on any background.
fn caption(picture: &mut Raster, sketch: &Sketch) {
    let (width, height) = (picture.width() as f32, picture.height() as f32);
    let edited = !sketch.inputs.is_empty();
    let room = (width * 0.78, height * if edited { 0.22 } else { 0.5 });
    let block = TextBlock::fit(sketch.text.trim(), room, width.min(height) / 9.0, 9.0);
    let (across, down) = block.size();
    let middle = if edited { height * 0.82 } else { height * 0.42 };
    let margin = width.min(height) / 28.0;
    let (left, top) = (width / 2.0 - across / 2.0 - margin, middle - down / 2.0 - margin);
    let (right, below) = (width - left, top + down + 2.0 * margin);
    for (x, y, pixel) in picture.places_mut() {
        let (x, y) = (x as f32 + 0.5, y as f32 + 0.5);
        // Distance to a box with round corners.
        let dx = (left + margin - x).max(x - right + margin).max(0.0);
        let dy = (top + margin - y).max(y - below + margin).max(0.0);
        let inside = (margin - dx.hypot(dy) + 0.5).clamp(0.0, 1.0);
        if inside > 0.0 {
            blend_pixel(pixel, [12, 16, 32, 118], inside);
        }
    }
    let drop = (margin / 10.0).max(1.0);
    let top = middle - down / 2.0;
    block.write(picture, width / 2.0 + drop, top + drop, [0, 0, 0, 130]);
    block.write(picture, width / 2.0, top, [255, 255, 255, 255]);
}

/// Returns a partial image. Earlier ones are coarser.
pub(crate) fn draft(picture: &Raster, number: u32, of: u32) -> Raster {
    let coarse = 4_u32 << (of.saturating_sub(number)).min(4);
    let small = |side: u32| (side / coarse).max(1);
    let (width, height) = picture.size();
    let tiny = picture.resized(small(width), small(height));
    tiny.resized(width, height)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(text: &str, size: (u32, u32)) -> Sketch {
        Sketch { text: text.to_owned(), size, detail: 3, ..Sketch::default() }
    }

    #[test]
    fn the_same_order_gives_the_same_picture() {
        let one = draw(&sketch("a lighthouse at dawn", (160, 96)));
        assert_eq!(one.size(), (160, 96));
        assert_eq!(one, draw(&sketch("a lighthouse at dawn", (160, 96))));
        assert_ne!(one, draw(&sketch("a lighthouse at dusk", (160, 96))));
        let other = Sketch { seed: 1, ..sketch("a lighthouse at dawn", (160, 96)) };
        assert_ne!(one, draw(&other));
    }

    #[test]
    fn every_format_is_read_back() {
        let picture = draw(&sketch("a cat", (64, 48)));
        for format in ["png", "webp"] {
            assert_eq!(decode(&encode(&picture, format, 90)).unwrap(), picture, "{format}");
        }
        assert_eq!(decode(&encode(&picture, "jpeg", 90)).unwrap().size(), (64, 48));
        assert!(decode(b"<svg/>").is_none());
    }

    #[test]
    fn a_mask_says_where_the_input_stays() {
        let red = Raster::filled(64, 64, [255, 0, 0, 255]);
        let mut mask = Raster::filled(64, 64, [0, 0, 0, 255]);
        for y in 0..32 {
            for x in 0..64 {
                *mask.pixel_mut(x, y).unwrap() = [0; 4];
            }
        }
        let order = Sketch { inputs: vec![red], mask: Some(mask), ..sketch("sky", (64, 64)) };
        let picture = draw(&order);
        assert_eq!(picture.pixel(2, 60), [255, 0, 0, 255]);
        assert_ne!(picture.pixel(2, 4), [255, 0, 0, 255]);
    }

    #[test]
    fn a_sky_left_out_can_be_seen_through() {
        let order = Sketch { transparent: true, ..sketch("hills", (64, 64)) };
        let picture = draw(&order);
        assert_eq!(picture.pixel(0, 0)[3], 0);
        assert_eq!(picture.pixel(0, 63)[3], 255);
        assert_eq!(decode(&encode(&picture, "png", 90)).unwrap(), picture);
    }

    #[test]
    fn drafts_become_finer() {
        let picture = draw(&sketch("a cat", (128, 128)));
        let far = |draft: &Raster| -> u64 {
            let pairs = draft.pixels().iter().zip(picture.pixels());
            pairs.map(|(one, two)| u64::from(one[0].abs_diff(two[0]))).sum()
        };
        assert!(far(&draft(&picture, 0, 3)) > far(&draft(&picture, 2, 3)));
    }
}
