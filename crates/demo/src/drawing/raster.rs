//! Pixels in memory: a picture, and the few operations the demo models need.
//!
//! The `image` crate offers all of this, but compiles a colour management library with it: over a
//! minute of CPU time of a release build.

/// Red, green, blue and opacity of one pixel.
pub(crate) type Rgba = [u8; 4];

/// A picture as rows of pixels from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raster {
    width: u32,
    height: u32,
    pixels: Vec<Rgba>,
}

impl Raster {
    /// Returns a picture of one colour.
    pub(crate) fn filled(width: u32, height: u32, colour: Rgba) -> Self {
        Self { width, height, pixels: vec![colour; index(width) * index(height)] }
    }

    /// Returns `None` if the number of pixels does not fit the size.
    pub(super) fn from_pixels(width: u32, height: u32, pixels: Vec<Rgba>) -> Option<Self> {
        let fits = index(width).checked_mul(index(height)) == Some(pixels.len());
        (fits && !pixels.is_empty()).then_some(Self { width, height, pixels })
    }

    pub(super) fn width(&self) -> u32 {
        self.width
    }

    pub(super) fn height(&self) -> u32 {
        self.height
    }

    /// Width and height.
    pub(super) fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    pub(super) fn pixels(&self) -> &[Rgba] {
        &self.pixels
    }

    pub(super) fn pixels_mut(&mut self) -> &mut [Rgba] {
        &mut self.pixels
    }

    /// Every pixel with its column and row.
    pub(super) fn places_mut(&mut self) -> impl Iterator<Item = (u32, u32, &mut Rgba)> {
        let rows = self.pixels.chunks_exact_mut(index(self.width).max(1));
        (0..).zip(rows).flat_map(|(y, row)| (0..).zip(row).map(move |(x, pixel)| (x, y, pixel)))
    }

    #[cfg(test)]
    pub(super) fn pixel(&self, x: u32, y: u32) -> Rgba {
        assert!(x < self.width);
        self.pixels[index(y) * index(self.width) + index(x)]
    }

    /// The pixel of a column and row inside the picture.
    pub(super) fn pixel_mut(&mut self, x: u32, y: u32) -> Option<&mut Rgba> {
        let at = index(y) * index(self.width) + index(x);
        self.pixels.get_mut(at).filter(|_| x < self.width)
    }

    /// The picture with every pixel repeated that many times in both directions.
    pub(crate) fn enlarged(&self, scale: u32) -> Self {
        let repeat = index(scale);
        let mut pixels = Vec::with_capacity(self.pixels.len() * repeat * repeat);
        for row in self.pixels.chunks_exact(index(self.width).max(1)) {
            let start = pixels.len();
            for pixel in row {
                pixels.extend(std::iter::repeat_n(*pixel, repeat));
            }
            let end = pixels.len();
            for _ in 1..repeat {
                pixels.extend_from_within(start..end);
            }
        }
        Self { width: self.width * scale, height: self.height * scale, pixels }
    }

    /// The picture in another size, each new pixel the mean of those it covers, weighted by
    /// distance (a triangle filter).
    pub(super) fn resized(&self, width: u32, height: u32) -> Self {
        if self.size() == (width, height) {
            return self.clone();
        }
        let (columns, rows) = (weights(self.width, width), weights(self.height, height));
        let mut narrow = Vec::with_capacity(index(width) * index(self.height));
        for row in self.pixels.chunks_exact(index(self.width).max(1)) {
            let row: Vec<[f32; 4]> = row.iter().map(|pixel| pixel.map(f32::from)).collect();
            let mean = |column: &Weights| column.mean(row.iter().skip(column.first));
            narrow.extend(columns.iter().map(mean));
        }
        let mut pixels = Vec::with_capacity(index(width) * index(height));
        for row in &rows {
            for x in 0..index(width) {
                let column = narrow.get(row.first * index(width) + x..).unwrap_or_default();
                let mean = row.mean(column.iter().step_by(index(width).max(1)));
                pixels.push(mean.map(|channel| channel.round() as u8));
            }
        }
        Self { width, height, pixels }
    }
}

/// The source pixels of one target pixel along one axis.
struct Weights {
    first: usize,
    shares: Vec<f32>,
}

impl Weights {
    /// The weighted mean of the pixels from the first one on.
    fn mean<'p>(&self, pixels: impl Iterator<Item = &'p [f32; 4]>) -> [f32; 4] {
        let mut mean = [0.0; 4];
        for (pixel, share) in pixels.zip(&self.shares) {
            for (sum, channel) in mean.iter_mut().zip(pixel) {
                *sum += channel * share;
            }
        }
        mean
    }
}

/// The weights of every target pixel along an axis that goes from `old` to `new` pixels.
fn weights(old: u32, new: u32) -> Vec<Weights> {
    let ratio = old as f32 / new.max(1) as f32;
    // Enlarging mixes the two nearest pixels, shrinking all that fall into the new one.
    let reach = ratio.max(1.0);
    let of = |at: u32| {
        let centre = (at as f32 + 0.5) * ratio - 0.5;
        let first = (centre - reach).ceil().max(0.0) as u32;
        let last = ((centre + reach).floor() as u32).min(old.saturating_sub(1)).max(first);
        let share = |pixel: u32| (1.0 - (pixel as f32 - centre).abs() / reach).max(0.0);
        let shares: Vec<f32> = (first..=last).map(share).collect();
        let sum: f32 = shares.iter().sum();
        Weights { first: index(first), shares: shares.iter().map(|share| share / sum).collect() }
    };
    (0..new).map(of).collect()
}

fn index(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pixel_is_repeated() {
        let (one, two) = ([1, 2, 3, 4], [5, 6, 7, 8]);
        let picture = Raster::from_pixels(2, 1, vec![one, two]).unwrap();
        let row = [one, one, two, two];
        assert_eq!(picture.enlarged(2).size(), (4, 2));
        assert_eq!(picture.enlarged(2).pixels(), [row, row].concat());
    }

    #[test]
    fn one_colour_stays_in_every_size() {
        let colour = [12, 200, 7, 130];
        let picture = Raster::filled(40, 30, colour);
        for (width, height) in [(1, 1), (7, 90), (40, 30), (120, 3), (333, 217)] {
            assert_eq!(picture.resized(width, height), Raster::filled(width, height, colour));
        }
    }

    #[test]
    fn halves_stay_on_their_sides() {
        let (black, white) = ([0, 0, 0, 255], [255; 4]);
        let mut picture = Raster::filled(64, 2, black);
        for (x, _, pixel) in picture.places_mut() {
            *pixel = if x < 32 { black } else { white };
        }
        for width in [8, 200] {
            let resized = picture.resized(width, 5);
            assert_eq!(resized.pixel(0, 4), black);
            assert_eq!(resized.pixel(width - 1, 0), white);
            let row: Vec<u8> = (0..width).map(|x| resized.pixel(x, 2)[0]).collect();
            assert!(row.is_sorted(), "{row:?}");
        }
    }
}
