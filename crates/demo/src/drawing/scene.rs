//! A landscape: sky, sun, and ranges of hills, in colours that go together.

use super::raster::{Raster, Rgba};
use super::{Sketch, blend_pixel};
use crate::seeded_random::{self, SeededRandom};

/// Colour scheme: the sky above and below, the sun, and the hills from far to near.
struct ColourScheme {
    sky: [Rgba; 2],
    sun: Rgba,
    hills: [Rgba; 2],
}

const fn tone(colour: u32) -> Rgba {
    let [_, r, g, b] = colour.to_be_bytes();
    [r, g, b, 255]
}

const fn tones(above: u32, below: u32, sun: u32, far: u32, near: u32) -> ColourScheme {
    ColourScheme { sky: [tone(above), tone(below)], sun: tone(sun), hills: [tone(far), tone(near)] }
}

const COLOUR_SCHEMES: [ColourScheme; 8] = [
    tones(0x1b_2a_5e, 0xf2_9c_7a, 0xff_e3_b0, 0xb5_6a_86, 0x23_1f_4a),
    tones(0x2f_6d_a8, 0xd9_ee_f5, 0xff_f6_c8, 0x7f_b2_b8, 0x1f_4d_4f),
    tones(0x0b_10_26, 0x3d_3a_73, 0xf4_f1_de, 0x4b_4f_8f, 0x0d_12_2b),
    tones(0xf7_b7_33, 0xfc_e3_a1, 0xff_ff_ff, 0xd9_83_4a, 0x5a_2a_27),
    tones(0x3a_1c_71, 0xff_af_7b, 0xff_e9_a8, 0xd7_6d_77, 0x2a_12_4a),
    tones(0x13_4e_5e, 0xa8_e0_a0, 0xf4_ff_d8, 0x5d_a5_80, 0x0e_33_33),
    tones(0x5b_7f_c7, 0xf8_d5_e8, 0xff_ff_f0, 0xa9_8c_c9, 0x3b_2f_63),
    tones(0x87_2f_4b, 0xf8_a5_6b, 0xff_d2_7d, 0xbf_4a_5a, 0x35_12_2c),
];

fn mixed(one: Rgba, other: Rgba, share: f32) -> Rgba {
    let mut mixed = one;
    blend_pixel(&mut mixed, other, share);
    mixed
}

/// One range of hills: its height at each column, and its colour.
struct HillRange {
    tops: Vec<f32>,
    colour: Rgba,
}

/// Returns a number between two others.
fn between(random: &mut SeededRandom, low: f32, high: f32) -> f32 {
    let part = (random.next_number() >> 40) as f32 / (1_u32 << 24) as f32;
    low + (high - low) * part
}

pub(super) fn draw(sketch: &Sketch, (width, height): (u32, u32)) -> Raster {
    let seed = seeded_random::join(seeded_random::hash(sketch.text.as_bytes()), sketch.seed);
    let mut random = SeededRandom::new(seed);
    let at =
        usize::try_from(random.next_number() % COLOUR_SCHEMES.len() as u64).unwrap_or_default();
    let [first, ..] = &COLOUR_SCHEMES;
    let ColourScheme { sky, sun, hills } = COLOUR_SCHEMES.get(at).unwrap_or(first);
    let (w, h) = (width as f32, height as f32);
    let short = w.min(h);
    let centre = (w * between(&mut random, 0.2, 0.8), h * between(&mut random, 0.2, 0.5));
    let radius = short * between(&mut random, 0.09, 0.16);
    let count = sketch.detail.clamp(1, 8);
    let ranges: Vec<HillRange> = (0..count)
        .map(|number| {
            let near = (number as f32 + 1.0) / count as f32;
            let base = h * (0.52 + 0.36 * (near - 1.0 / count as f32));
            let lift = h * between(&mut random, 0.03, 0.08);
            let waves: Vec<(f32, f32, f32)> = (0..3)
                .map(|wave| {
                    let finer = 1.0 + wave as f32 * 1.7;
                    let length = between(&mut random, 1.2, 2.6) * finer;
                    (lift / finer, length, between(&mut random, 0.0, 6.3))
                })
                .collect();
            let top = |x: u32| {
                let along = x as f32 / short * std::f32::consts::TAU;
                let rise = |(lift, length, phase): &(f32, f32, f32)| {
                    lift * (along * length * 0.4 + phase).sin()
                };
                base + waves.iter().map(rise).sum::<f32>()
            };
            let [far, close] = hills;
            HillRange {
                tops: (0..width).map(top).collect(),
                colour: mixed(*far, *close, near * near),
            }
        })
        .collect();
    let mut picture = Raster::filled(width, height, [0; 4]);
    for (x, y, pixel) in picture.places_mut() {
        let column = usize::try_from(x).unwrap_or_default();
        let down = y as f32 + 0.5;
        if !sketch.transparent {
            let [above, below] = sky;
            *pixel = mixed(*above, *below, (down / (h * 0.75)).min(1.0));
            let away = (x as f32 + 0.5 - centre.0).hypot(down - centre.1);
            if away < radius * 5.0 {
                let glow = (1.0 - away / (radius * 5.0)).powi(2) * 0.5;
                blend_pixel(pixel, *sun, glow);
                blend_pixel(pixel, *sun, (radius - away + 0.5).clamp(0.0, 1.0));
            }
        }
        for range in &ranges {
            let top = range.tops.get(column).copied().unwrap_or(h);
            let inside = (down - top + 0.5).clamp(0.0, 1.0);
            if inside > 0.0 {
                // Adds a little mist to every valley.
                let mist = ((down - top) / (h * 0.35)).clamp(0.0, 1.0) * 0.18;
                let [_, below] = sky;
                blend_pixel(pixel, mixed(range.colour, *below, mist), inside);
            }
        }
    }
    picture
}
