//! Owners of the words in a provider's text: the provider's operator, or the caller.
//!
//! Texts of a provider are read at many places, most of which know neither the provider nor the
//! request. The owners hold for all work on the current thread inside of [`scrub_for`].

use std::cell::RefCell;
use std::sync::Arc;

/// Words of one provider and of one request.
pub trait TextOwners: Send + Sync {
    /// Returns the text without any piece of the provider's credentials; `None` if it has none.
    fn hide_credentials(&self, text: &str) -> Option<String>;
    /// Returns true for the host of the provider.
    fn is_providers_host(&self, host: &str) -> bool;
    /// Returns true if the request contains a word. An implementation bounds its searches.
    fn is_in_request(&self, word: &str) -> bool;
    /// Returns the text without the longer pieces that the request contains; `None` if it has none.
    fn hide_echo(&self, text: &str) -> Option<String>;
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn TextOwners>>> = const { RefCell::new(None) };
}

/// Runs work on this thread that reads texts of a provider.
pub fn scrub_for<T>(owners: &Arc<dyn TextOwners>, work: impl FnOnce() -> T) -> T {
    let _outer = OuterOwners(CURRENT.replace(Some(Arc::clone(owners))));
    work()
}

/// Returns the owners of the current work.
pub(crate) fn current() -> Option<Arc<dyn TextOwners>> {
    CURRENT.with_borrow(Clone::clone)
}

/// The owners of the work around the current one, which continues when this is dropped.
struct OuterOwners(Option<Arc<dyn TextOwners>>);

impl Drop for OuterOwners {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}
