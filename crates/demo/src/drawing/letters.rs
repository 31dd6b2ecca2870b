//! Text in images: line breaking and drawing.

use std::sync::LazyLock;

use super::raster::{Raster, Rgba};

/// Coverage of each pixel of the letters, row by row. `assets/letters.md` names their source.
static SHEET: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let sheet = super::decode(include_bytes!("../../assets/letters.png"));
    sheet.iter().flat_map(Raster::pixels).map(|[ink, ..]| *ink).collect()
});

/// Size of a letter's cell on the sheet.
const CELL: (u32, u32) = (44, 43);
const CELLS_PER_ROW: u32 = 16;
const SHEET_WIDTH: u32 = CELLS_PER_ROW * CELL.0;
/// Empty pixels to the left of a letter on the sheet.
const BEARING: f32 = 2.0;

/// Width of each letter, in the order of the sheet.
const WIDTHS: [u8; 198] = [
    13, 16, 19, 30, 25, 36, 31, 11, 16, 16, 19, 30, 14, 15, 14, 13, 25, 25, 25, 25, 25, 25, 25, 25,
    25, 25, 14, 14, 30, 30, 30, 21, 36, 28, 27, 26, 30, 25, 25, 30, 30, 13, 13, 28, 23, 36, 30, 31,
    26, 31, 28, 26, 25, 29, 28, 40, 28, 26, 26, 16, 13, 16, 30, 18, 18, 24, 26, 21, 26, 24, 16, 26,
    26, 12, 12, 24, 12, 38, 26, 25, 26, 26, 18, 21, 17, 26, 23, 33, 23, 23, 21, 26, 13, 26, 30, 16,
    25, 25, 23, 25, 13, 18, 18, 36, 20, 23, 30, 36, 18, 18, 30, 16, 16, 18, 26, 23, 14, 18, 16, 20,
    23, 37, 37, 37, 21, 28, 28, 28, 28, 28, 28, 39, 26, 25, 25, 25, 25, 13, 13, 13, 13, 30, 30, 31,
    31, 31, 31, 31, 30, 31, 29, 29, 29, 29, 26, 27, 26, 24, 24, 24, 24, 24, 24, 38, 21, 24, 24, 24,
    24, 12, 12, 12, 12, 25, 26, 25, 25, 25, 25, 25, 30, 25, 26, 26, 26, 26, 23, 26, 23, 36, 18, 36,
    14, 14, 24, 24, 23, 25,
];

/// Letters beyond Latin-1, at the end of the sheet.
const MORE: &str = "…–—‘’“”•€";

/// Returns the cell of a letter. A letter outside the sheet becomes a question mark.
fn place(letter: char) -> u32 {
    let found = match letter {
        ' '..='~' => Some(letter as u32 - 0x20),
        '\u{a1}'..='\u{ac}' => Some(letter as u32 - 0xa1 + 95),
        '\u{ae}'..='\u{ff}' => Some(letter as u32 - 0xae + 107),
        _ => MORE.chars().position(|own| own == letter).and_then(|at| u32::try_from(at + 189).ok()),
    };
    found.unwrap_or('?' as u32 - 0x20)
}

fn width(letter: char) -> f32 {
    let at = usize::try_from(place(letter)).unwrap_or_default();
    f32::from(WIDTHS.get(at).copied().unwrap_or_default())
}

fn length(text: &str) -> f32 {
    text.chars().map(width).sum()
}

/// A text broken into lines, with its scale.
pub(super) struct TextBlock {
    lines: Vec<String>,
    scale: f32,
}

impl TextBlock {
    /// Lays out the text as large as it fits into the room. Text that does not fit is cut.
    pub(super) fn fit(text: &str, room: (f32, f32), largest: f32, smallest: f32) -> Self {
        let mut scale = largest / CELL.1 as f32;
        loop {
            let mut lines = broken(text, room.0 / scale);
            let fits = (room.1 / (scale * CELL.1 as f32)).floor().max(1.0) as usize;
            if lines.len() <= fits {
                return Self { lines, scale };
            }
            if scale * CELL.1 as f32 <= smallest {
                lines.truncate(fits);
                if let Some(last) = lines.last_mut() {
                    last.push('…');
                }
                return Self { lines, scale };
            }
            scale *= 0.9;
        }
    }

    /// Returns the size in pixels.
    pub(super) fn size(&self) -> (f32, f32) {
        let widest = self.lines.iter().map(|line| length(line)).fold(0.0, f32::max);
        (widest * self.scale, self.lines.len() as f32 * CELL.1 as f32 * self.scale)
    }

    /// Draws the text, each line centred.
    pub(super) fn write(&self, onto: &mut Raster, middle: f32, top: f32, ink: Rgba) {
        for (number, line) in self.lines.iter().enumerate() {
            let mut at = middle - length(line) * self.scale / 2.0;
            let top = top + number as f32 * CELL.1 as f32 * self.scale;
            for letter in line.chars() {
                self.letter(onto, letter, at, top, ink);
                at += width(letter) * self.scale;
            }
        }
    }

    fn letter(&self, onto: &mut Raster, letter: char, left: f32, top: f32, ink: Rgba) {
        let place = place(letter);
        let from =
            ((place % CELLS_PER_ROW * CELL.0) as f32, (place / CELLS_PER_ROW * CELL.1) as f32);
        let across = ((width(letter) + 2.0 * BEARING) * self.scale).ceil() as i64;
        let down = (CELL.1 as f32 * self.scale).ceil() as i64;
        let begin = ((left - BEARING * self.scale).floor() as i64, top.floor() as i64);
        for y in begin.1..=begin.1 + down {
            for x in begin.0..=begin.0 + across {
                let (Ok(to_x), Ok(to_y)) = (u32::try_from(x), u32::try_from(y)) else { continue };
                let u = (x as f32 + 0.5 - left) / self.scale + BEARING;
                let v = (y as f32 + 0.5 - top) / self.scale;
                let inside = (0.0..CELL.0 as f32).contains(&u) && (0.0..CELL.1 as f32).contains(&v);
                if let Some(pixel) = onto.pixel_mut(to_x, to_y).filter(|_| inside) {
                    super::blend_pixel(pixel, ink, ink_at(from.0 + u - 0.5, from.1 + v - 0.5));
                }
            }
        }
    }
}

/// Returns the interpolated coverage at a point of the sheet.
fn ink_at(x: f32, y: f32) -> f32 {
    let (left, top) = (x.floor().max(0.0), y.floor().max(0.0));
    let (right, below) = ((x - left).clamp(0.0, 1.0), (y - top).clamp(0.0, 1.0));
    let at = |dx: u32, dy: u32| {
        let ink = ink_of(left as u32 + dx, top as u32 + dy);
        f32::from(ink.unwrap_or_default()) / 255.0
    };
    let upper = at(0, 0) * (1.0 - right) + at(1, 0) * right;
    let lower = at(0, 1) * (1.0 - right) + at(1, 1) * right;
    upper * (1.0 - below) + lower * below
}

/// Returns the coverage of one pixel of the sheet.
fn ink_of(x: u32, y: u32) -> Option<u8> {
    let at = usize::try_from(y * SHEET_WIDTH + x).ok()?;
    SHEET.get(at).copied().filter(|_| x < SHEET_WIDTH)
}

/// Breaks a text into lines of at most that width, between words; a wider word is broken itself.
fn broken(text: &str, widest: f32) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let fits = |line: &String, word: &str| length(line) + length(" ") + length(word) <= widest;
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if fits(line, word) => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
        while let Some(line) = lines.last_mut().filter(|line| length(line) > widest) {
            let mut so_far = 0.0;
            // A line holds at least one letter.
            let cut = line.char_indices().find(|(at, letter)| {
                so_far += width(*letter);
                so_far > widest && *at > 0
            });
            let Some((at, _)) = cut else { break };
            let rest = line.split_off(at);
            lines.push(rest);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_has_its_place() {
        assert_eq!(SHEET.len(), (SHEET_WIDTH * 13 * CELL.1) as usize);
        for letter in (' '..='~').chain('\u{a1}'..='\u{ff}').chain(MORE.chars()) {
            let place = place(letter);
            if letter == '\u{ad}' {
                continue;
            }
            assert!(letter == '?' || place != '?' as u32 - 0x20, "{letter}");
            assert!((place as usize) < WIDTHS.len(), "{letter}");
            let (left, top) = (place % CELLS_PER_ROW * CELL.0, place / CELLS_PER_ROW * CELL.1);
            let inked = (0..CELL.0 * CELL.1)
                .any(|at| ink_of(left + at % CELL.0, top + at / CELL.0).unwrap() > 0);
            assert_eq!(inked, letter != ' ', "{letter}");
        }
    }

    #[test]
    fn lines_fit_their_room() {
        let text = "a few words and Donaudampfschifffahrtsgesellschaftskapitän in one line";
        for widest in [30.0, 100.0, 300.0, 5_000.0] {
            for line in broken(text, widest) {
                assert!(length(&line) <= widest || line.chars().count() == 1, "{line}");
            }
        }
        let block = TextBlock::fit(&text.repeat(100), (300.0, 100.0), 60.0, 12.0);
        assert!(block.size().1 <= 100.0);
        assert!(block.lines.last().unwrap().ends_with('…'));
    }
}
