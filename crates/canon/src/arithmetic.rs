//! Arithmetic that newtypes of `i64` share.

/// Gives a newtype of `i64` sums and differences that never wrap around.
macro_rules! bounded_arithmetic {
    ($name:ident) => {
        impl $name {
            /// Returns the sum, or the nearest value that fits.
            #[must_use]
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// Returns the difference, or the nearest value that fits.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
    };
}

pub(crate) use bounded_arithmetic;
