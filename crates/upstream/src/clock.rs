//! Clock of credentials.

use canon::Micros;
use std::sync::Arc;

/// Time of day, a parameter so that a test can set it.
pub type ClockFn = Arc<dyn Fn() -> Micros + Send + Sync>;
