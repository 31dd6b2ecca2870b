//! The end of long work whose caller has left.
//!
//! Long loops count their steps: values that are parsed or written, escapes of a string. Every few steps
//! they look at the token of their caller. Work without a token, such as that on a small body, pays one
//! comparison for a step.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Steps between two looks at the token: less than a millisecond.
const STEPS_PER_LOOK: u32 = 256;

thread_local! {
    /// Steps of this thread until the next look; zero if nobody can cancel its work.
    static STEPS_LEFT: Cell<u32> = const { Cell::new(0) };
    static CURRENT: RefCell<Option<WorkToken>> = const { RefCell::new(None) };
}

/// Cancels the work of one caller. Copies share one state.
#[derive(Clone, Debug, Default)]
pub struct WorkToken(Arc<AtomicBool>);

impl WorkToken {
    /// Cancels the work.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if the work is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs work on this thread whose loops end once the token is cancelled. Its result is incomplete
    /// then, and must not be used.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _outer = OuterWork {
            token: CURRENT.replace(Some(self.clone())),
            steps: STEPS_LEFT.replace(STEPS_PER_LOOK),
        };
        work()
    }
}

/// The work around the current one, which continues when this is dropped.
struct OuterWork {
    token: Option<WorkToken>,
    steps: u32,
}

impl Drop for OuterWork {
    fn drop(&mut self) {
        CURRENT.set(self.token.take());
        STEPS_LEFT.set(self.steps);
    }
}

/// Counts one step of a long loop. Returns true if the loop must end, because nobody waits for its
/// result.
#[inline]
pub fn is_abandoned() -> bool {
    match STEPS_LEFT.get() {
        0 => false,
        1 => look(),
        left => {
            STEPS_LEFT.set(left - 1);
            false
        }
    }
}

/// Returns true if nobody waits for the result of this thread's work. For loops that count otherwise.
pub fn is_abandoned_now() -> bool {
    CURRENT.with_borrow(|token| token.as_ref().is_some_and(WorkToken::is_cancelled))
}

/// Looks at the token. After the end of the work every step looks again, so that all loops end.
#[cold]
fn look() -> bool {
    let is_cancelled = is_abandoned_now();
    if !is_cancelled {
        STEPS_LEFT.set(STEPS_PER_LOOK);
    }
    is_cancelled
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the steps of a loop that ends itself after a million.
    fn steps_until_end(mut on_step: impl FnMut(u32)) -> u32 {
        (0..1_000_000)
            .take_while(|step| {
                !is_abandoned() && {
                    on_step(*step);
                    true
                }
            })
            .count() as u32
    }

    #[test]
    fn a_loop_ends_soon_after_it_is_cancelled_and_no_other_does() {
        let (token, other) = (WorkToken::default(), WorkToken::default());
        let steps = token.scope(|| {
            let inner = other.scope(|| {
                other.cancel();
                steps_until_end(|_| ())
            });
            assert!(inner < STEPS_PER_LOOK);
            steps_until_end(|step| {
                if step == 10_000 {
                    token.cancel()
                }
            })
        });
        assert!((10_000..=10_000 + STEPS_PER_LOOK).contains(&steps), "{steps}");
        assert_eq!(
            token.scope(|| [(); 3].map(|()| steps_until_end(|_| ()) > STEPS_PER_LOOK)),
            [false; 3]
        );
        assert_eq!(steps_until_end(|_| ()), 1_000_000, "work without a token");
    }

    #[test]
    fn work_that_panics_leaves_no_token() {
        let token = WorkToken::default();
        token.cancel();
        let panicked =
            std::panic::catch_unwind(|| token.scope(|| std::panic::resume_unwind(Box::new(()))));
        assert!(panicked.is_err());
        assert_eq!(steps_until_end(|_| ()), 1_000_000);
    }
}
