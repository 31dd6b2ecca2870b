//! Pictures as files: PNG, JPEG and WebP.

use std::io::Cursor;

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::MAX_SIDE_PIXELS;
use super::raster::{Raster, Rgba};

/// The most memory a decoder may take.
const MAX_DECODED_BYTES: usize = 256 << 20;

/// The file of a picture: `png`, `jpeg` or `webp`, the last without loss.
pub(crate) fn encode(picture: &Raster, format: &str, quality: u8) -> Vec<u8> {
    let written = match format {
        "jpeg" => encode_jpeg(picture, quality.clamp(1, 100)),
        "webp" => encode_webp(picture),
        _ => encode_png(picture),
    };
    // Only memory is written to, and every size that is drawn is one the formats can hold.
    written.unwrap_or_default()
}

fn encode_png(picture: &Raster) -> Option<Vec<u8>> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, picture.width(), picture.height());
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    // A picture without transparent parts has no alpha channel.
    let opaque = picture.pixels().iter().all(|[_, _, _, alpha]| *alpha == u8::MAX);
    let samples: Vec<u8> = if opaque {
        encoder.set_color(png::ColorType::Rgb);
        picture.pixels().iter().flat_map(|[r, g, b, _]| [*r, *g, *b]).collect()
    } else {
        encoder.set_color(png::ColorType::Rgba);
        picture.pixels().as_flattened().to_vec()
    };
    encoder.write_header().ok()?.write_image_data(&samples).ok()?;
    Some(file)
}

fn encode_jpeg(picture: &Raster, quality: u8) -> Option<Vec<u8>> {
    let mut file = Vec::new();
    let (width, height) = (picture.width().try_into().ok()?, picture.height().try_into().ok()?);
    jpeg_encoder::Encoder::new(&mut file, quality)
        .encode(picture.pixels().as_flattened(), width, height, jpeg_encoder::ColorType::Rgba)
        .ok()?;
    Some(file)
}

fn encode_webp(picture: &Raster) -> Option<Vec<u8>> {
    let mut file = Vec::new();
    let (width, height) = picture.size();
    image_webp::WebPEncoder::new(&mut file)
        .encode(picture.pixels().as_flattened(), width, height, image_webp::ColorType::Rgba8)
        .ok()?;
    Some(file)
}

/// Reads a picture. Returns `None` for other files, and for pictures above the size limits.
pub(crate) fn decode(file: &[u8]) -> Option<Raster> {
    match file {
        [0x89, b'P', b'N', b'G', ..] => decode_png(file),
        [0xff, 0xd8, ..] => decode_jpeg(file),
        [b'R', b'I', b'F', b'F', ..] => decode_webp(file),
        _ => None,
    }
}

fn decode_png(file: &[u8]) -> Option<Raster> {
    let limits = png::Limits { bytes: MAX_DECODED_BYTES };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(file), limits);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let header = decoder.read_header_info().ok()?;
    check_size(header.width, header.height)?;
    let mut reader = decoder.read_info().ok()?;
    let mut samples = vec![0; reader.output_buffer_size()?];
    let frame = reader.next_frame(&mut samples).ok()?;
    samples.truncate(frame.buffer_size());
    raster(frame.width, frame.height, &samples, frame.color_type.samples())
}

fn decode_jpeg(file: &[u8]) -> Option<Raster> {
    let side = usize::try_from(MAX_SIDE_PIXELS).ok()?;
    let options =
        DecoderOptions::default().set_strict_mode(false).set_max_width(side).set_max_height(side);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().ok()?;
    let grey = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let (colours, channels) = if grey { (ColorSpace::Luma, 1) } else { (ColorSpace::RGB, 3) };
    decoder.set_options(options.jpeg_set_out_colorspace(colours));
    let samples = decoder.decode().ok()?;
    let (width, height) = decoder.dimensions()?;
    raster(width.try_into().ok()?, height.try_into().ok()?, &samples, channels)
}

fn decode_webp(file: &[u8]) -> Option<Raster> {
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(file)).ok()?;
    decoder.set_memory_limit(MAX_DECODED_BYTES);
    let (width, height) = decoder.dimensions();
    check_size(width, height)?;
    let mut samples = vec![0; decoder.output_buffer_size()?];
    decoder.read_image(&mut samples).ok()?;
    raster(width, height, &samples, if decoder.has_alpha() { 4 } else { 3 })
}

fn check_size(width: u32, height: u32) -> Option<()> {
    (width.max(height) <= MAX_SIDE_PIXELS).then_some(())
}

/// A picture of samples with that many channels: grey, grey and alpha, colours, colours and alpha.
fn raster(width: u32, height: u32, samples: &[u8], channels: usize) -> Option<Raster> {
    let pixel = |samples: &[u8]| -> Option<Rgba> {
        Some(match *samples {
            [grey] => [grey, grey, grey, u8::MAX],
            [grey, alpha] => [grey, grey, grey, alpha],
            [r, g, b] => [r, g, b, u8::MAX],
            [r, g, b, alpha] => [r, g, b, alpha],
            _ => return None,
        })
    };
    let pixels = samples.chunks_exact(channels).map(pixel).collect::<Option<Vec<_>>>()?;
    Raster::from_pixels(width, height, pixels)
}
