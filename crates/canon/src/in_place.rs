//! Boxes whose content is made where it stays.

/// Boxes a value without a copy of it.
///
/// `Box::new` makes the value on the stack, reserves memory and copies all bytes of the value there. The
/// compiler does not remove the copy, because the reservation may unwind in between. For a future the copy is
/// mostly of bytes that nobody has written yet, as many as all later states of the future need.
#[inline]
pub fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    let room = Box::new_uninit();
    Box::write(room, make())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_box_has_the_value() {
        let text = String::from("kept");
        assert_eq!(*boxed(|| [text.clone(), text]), ["kept", "kept"]);
    }
}
