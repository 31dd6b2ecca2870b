//! Positions on a screen in the measures of two formats.
//!
//! Messages and responses count pixels. The native format has a grid of 1000 by 1000 cells for a screen of
//! any size: <https://ai.google.dev/gemini-api/docs/computer-use#supported-actions>.

use serde_json::{Value, json};

/// Number of columns and rows that positions are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DisplaySize {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl DisplaySize {
    /// The grid of the native format.
    pub(super) const GRID: Self = Self { width: 1000, height: 1000 };

    /// Returns the size; `None` for an empty one and for one that no screen has.
    pub(super) fn new(width: u64, height: u64) -> Option<Self> {
        let side = |pixels: u64| u32::try_from(pixels).ok().filter(|pixels| *pixels > 0);
        Some(Self { width: side(width)?, height: side(height)? })
    }
}

/// Returns the cell of `to` cells that has the centre of a cell of `from` cells. A position outside the
/// screen becomes one at its edge.
///
/// The way to a finer measure and back leads to the same cell. The way to a coarser measure and back leads
/// to a cell that is at most one coarse cell away.
pub(super) fn scale_position(at: i64, from: u32, to: u32) -> i64 {
    let (from, to) = (u128::from(from.max(1)), u128::from(to.max(1)));
    let at = u128::try_from(at).unwrap_or(0).min(from - 1);
    let scaled = (2 * at + 1) * to / (2 * from);
    i64::try_from(scaled.min(to - 1)).unwrap_or(i64::MAX)
}

/// Returns a distance in another measure, rounded away from zero so that a movement stays one.
pub(super) fn scale_distance(distance: i64, from: u32, to: u32) -> i64 {
    let (from, to) = (u128::from(from.max(1)), u128::from(to.max(1)));
    let scaled = (u128::from(distance.unsigned_abs()) * to).div_ceil(from);
    let scaled = i64::try_from(scaled).unwrap_or(i64::MAX);
    if distance < 0 { -scaled } else { scaled }
}

/// Scales the positions and distances of an action in the words of the responses format.
pub(super) fn scale_action(action: &mut Value, from: DisplaySize, to: DisplaySize) {
    for (name, from, to) in [("x", from.width, to.width), ("y", from.height, to.height)] {
        let Some(action) = action.as_object_mut() else { return };
        if let Some(at) = action.get(name).and_then(Value::as_i64) {
            action.insert(name.to_owned(), scale_position(at, from, to).into());
        }
        let turn = format!("scroll_{name}");
        if let Some(distance) = action.get(&turn).and_then(Value::as_i64) {
            action.insert(turn, scale_distance(distance, from, to).into());
        }
    }
    let path = action.get_mut("path").and_then(Value::as_array_mut);
    for point in path.into_iter().flatten() {
        let at = |name: &str| point.get(name).and_then(Value::as_i64).unwrap_or(0);
        let x = scale_position(at("x"), from.width, to.width);
        let y = scale_position(at("y"), from.height, to.height);
        *point = json!({"x": x, "y": y});
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn side() -> impl Strategy<Value = u32> {
        prop_oneof![1..5_000_u32, Just(1000), any::<u32>()]
    }

    proptest! {
        #[test]
        fn a_position_is_never_outside(at in any::<i64>(), from in side(), to in side()) {
            let scaled = scale_position(at, from, to);
            prop_assert!((0..i64::from(to.max(1))).contains(&scaled));
        }

        #[test]
        fn a_finer_measure_loses_nothing((from, to, at) in side().prop_flat_map(|a| {
            (side(), 0..i64::from(a.max(1))).prop_map(move |(b, at)| (a.max(1), b.max(a.max(1)), at))
        })) {
            prop_assert_eq!(scale_position(scale_position(at, from, to), to, from), at);
        }

        #[test]
        fn a_coarser_measure_is_off_by_one_of_its_cells((from, to, at) in side().prop_flat_map(|a| {
            (side(), 0..i64::from(a.max(1))).prop_map(move |(b, at)| (a.max(1), b.clamp(1, a.max(1)), at))
        })) {
            let back = scale_position(scale_position(at, from, to), to, from);
            let cell = i64::from(from.div_ceil(to));
            prop_assert!((back - at).abs() <= cell, "{at} of {from} by {to}: {back}");
        }

        /// Usual screens are not finer than two pixels a cell.
        #[test]
        fn the_grid_hits_the_pixel_or_its_neighbour(width in 1..=2000_u32, at in 0..2000_i64) {
            let at = at.min(i64::from(width) - 1);
            let back = scale_position(scale_position(at, width, 1000), 1000, width);
            prop_assert!((back - at).abs() <= 1);
            let cell = at.min(999);
            let again = scale_position(scale_position(cell, 1000, width.max(1000)), width.max(1000), 1000);
            prop_assert_eq!(again, cell);
        }

        #[test]
        fn order_is_kept(at in 0..5_000_i64, from in side(), to in side()) {
            prop_assert!(scale_position(at, from, to) <= scale_position(at + 1, from, to));
        }

        #[test]
        fn a_distance_keeps_its_direction(by in any::<i64>(), from in side(), to in side()) {
            prop_assert_eq!(scale_distance(by, from, to).signum(), by.signum());
        }
    }

    #[test]
    fn corners_stay_corners() {
        for (at, to) in [(0, 0), (999, 1919), (500, 960), (-5, 0), (5_000, 1919)] {
            assert_eq!(scale_position(at, 1000, 1920), to, "{at}");
        }
        assert_eq!(DisplaySize::new(0, 5), None);
        assert_eq!(DisplaySize::new(5, u64::MAX), None);
        let mut action = json!({"type": "drag", "path": [{"x": 0, "y": 0}, {"x": 999, "y": 999}]});
        let screen = DisplaySize { width: 2000, height: 500 };
        scale_action(&mut action, DisplaySize::GRID, screen);
        assert_eq!(action["path"], json!([{"x": 1, "y": 0}, {"x": 1999, "y": 499}]));
    }
}
