//! Facts that follow from the head of a request alone.

use access::keys::KnownKey;
use relay::{CallHead, ErrorFormat};
use std::sync::Arc;
use transport::RequestHead;

use crate::routes::{RouteHandler, RouteTable};

/// Facts that follow from the head of a request alone. A connection keeps them, because its next request
/// usually has the same head.
pub(crate) struct HeadFacts {
    pub(crate) head: Arc<RequestHead>,
    /// Format of errors.
    pub(crate) format: ErrorFormat,
    pub(crate) route: RouteMatch,
    /// Key that the head names, once it was authenticated.
    pub(crate) key: KnownKey,
    /// Facts of the head about a call.
    pub(crate) call: Arc<CallHead>,
}

/// Entry of the route table for a head.
#[derive(Clone, Copy)]
pub(crate) enum RouteMatch {
    /// The path is not in the table: a page.
    Page,
    /// The path is in the table without the method.
    WrongMethod,
    /// The handler.
    Handler(RouteHandler),
}

impl HeadFacts {
    /// Derives the facts of a head.
    pub(crate) fn new(head: &Arc<RequestHead>, routes: &RouteTable) -> Self {
        let route = match routes.find(head.path()) {
            None => RouteMatch::Page,
            Some(methods) => {
                methods.handler(head.method()).map_or(RouteMatch::WrongMethod, RouteMatch::Handler)
            }
        };
        Self {
            head: Arc::clone(head),
            format: ErrorFormat::for_path(head.path(), |name| head.headers().contains(name)),
            route,
            key: KnownKey::default(),
            call: Arc::default(),
        }
    }

    /// Returns true if these are the facts of that head.
    pub(crate) fn is_of(&self, head: &Arc<RequestHead>) -> bool {
        Arc::ptr_eq(&self.head, head)
    }
}
