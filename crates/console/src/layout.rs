//! Layout of the pages: header, navigation and footer.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, html};

use crate::acting_for::PageViewer;
use crate::state::ConsoleState;
use crate::{assets, nav};
use admin::{AlertView, is_gateway_admin, names};

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
/// Powers of the browser: passkeys on our own pages, and nothing else
/// (<https://www.w3.org/TR/permissions-policy/>).
const PERMISSIONS: &str = "publickey-credentials-get=(self), publickey-credentials-create=(self), \
    camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()";

/// Allows only our own styles, scripts and forms, and no framing.
const SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
    img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
    connect-src 'self'";

const FAVICON_DATA_URL: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' \
    viewBox='0 0 32 32'%3E%3Cpath fill='%230b5d66' d='M4 30V14a12 12 0 0 1 24 0v16z'/%3E\
    %3Cpath fill='%23f3d9a4' d='M16 9a4 4 0 0 1 1.8 7.6L19 24h-6l1.2-7.4A4 4 0 0 1 16 9z'/%3E\
    %3C/svg%3E";

tokio::task_local! {
    /// Configured name of the gateway during one request.
    static GATEWAY_NAME: String;
    /// Events of the gateway that last, during one request for a page of administration.
    static LASTING_EVENTS: Vec<String>;
}

/// Events that the banner names. The page of alerts has all.
const MAX_BANNER_EVENTS: usize = 5;

/// Middleware that makes the gateway's name, and on pages of administration its events, available to the layout.
pub(crate) async fn with_gateway_name(
    State(state): State<Arc<ConsoleState>>,
    request: Request,
    next: Next,
) -> Response {
    if request.uri().path().starts_with("/assets/") {
        return next.run(request).await;
    }
    let name = names::gateway_name(&state.store).await;
    let events = match nav::is_administration(request.uri().path()) {
        true => lasting_events(&state).await,
        false => Vec::new(),
    };
    let page = LASTING_EVENTS.scope(events, next.run(request));
    GATEWAY_NAME.scope(name, page).await
}

/// Returns the sentences of the events that last. A page says itself that the database does not answer.
async fn lasting_events(state: &ConsoleState) -> Vec<String> {
    let Ok(open) = state.store.open_alerts().await else { return Vec::new() };
    let views = AlertView::load(&state.store, open).await.unwrap_or_default();
    views.iter().map(AlertView::sentence).collect()
}

/// Renders the events of the gateway that last, on pages of administration.
fn event_banner(viewer: PageViewer<'_>, nav_path: &str) -> Markup {
    let events = LASTING_EVENTS.try_with(Clone::clone).unwrap_or_default();
    let is_shown = nav::is_administration(nav_path) && is_gateway_admin(viewer.account);
    html! {
        @if is_shown && !events.is_empty() {
            div.notice.events role="status" {
                ul { @for event in events.iter().take(MAX_BANNER_EVENTS) { li { bdi { (event) } } } }
                p {
                    @if events.len() > MAX_BANNER_EVENTS {
                        (events.len() - MAX_BANNER_EVENTS) " more. "
                    }
                    a href="/console/alerts" { "Show alerts" }
                }
            }
        }
    }
}

/// Name of the gateway; `Portunus` outside a request.
pub(crate) fn gateway_name() -> String {
    GATEWAY_NAME.try_with(Clone::clone).unwrap_or_else(|_| "Portunus".to_owned())
}

/// Section of the site a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteSection {
    Front,
    Models,
    Reference,
    Console,
    Elsewhere,
}

/// Layout of one page.
pub(crate) struct Layout<'a> {
    title: &'a str,
    section: SiteSection,
    viewer: Option<PageViewer<'a>>,
    nav_path: &'static str,
}

impl<'a> Layout<'a> {
    /// A public page, the same for everyone.
    pub(crate) fn public(title: &'a str, section: SiteSection) -> Self {
        Self { title, section, viewer: None, nav_path: "" }
    }

    /// A page for users who are not signed in.
    pub(crate) fn signed_out(title: &'a str) -> Self {
        Self { title, section: SiteSection::Elsewhere, viewer: None, nav_path: "" }
    }

    /// A page for a signed-in user.
    pub(crate) fn signed_in(title: &'a str, viewer: impl Into<PageViewer<'a>>) -> Self {
        Self { title, section: SiteSection::Console, viewer: Some(viewer.into()), nav_path: "" }
    }

    /// Marks the page's entry in the navigation.
    pub(crate) fn with_nav(self, here: &'static str) -> Self {
        Self { nav_path: here, ..self }
    }
}

/// Renders a page.
pub(crate) fn page(status: StatusCode, layout: &Layout<'_>, body: &Markup) -> Response {
    let Layout { title, section, viewer, nav_path } = layout;
    let name = gateway_name();
    let here = |this: SiteSection| (*section == this).then_some("page");
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · " (name) }
                link rel="icon" href=(FAVICON_DATA_URL);
                link rel="stylesheet" href=(assets::style().path());
                script src=(assets::script().path()) defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    div.bar {
                        a.brand href="/" aria-current=[here(SiteSection::Front)] { (logo()) bdi { (name) } }
                        nav aria-label="Main" {
                            a href="/models" aria-current=[here(SiteSection::Models)] { "Models" }
                            a href="/docs" aria-current=[here(SiteSection::Reference)] { "API" }
                            a href="/console" aria-current=[here(SiteSection::Console)] { "Console" }
                            @if let Some(PageViewer { account, .. }) = viewer {
                                form.out method="post" action="/logout" {
                                    span.who { bdi { (account.username) } }
                                    button.link type="submit" { "Sign out" }
                                }
                            }
                        }
                    }
                }
                @if let Some(viewer) = viewer { (nav::render_nav(*viewer, nav_path)) (viewer.team_switch(nav_path)) }
                main #main {
                    @if let Some(viewer) = viewer { (event_banner(*viewer, nav_path)) }
                    (body)
                }
                footer {
                    p { "Portunus · one key, every model, exact money" }
                }
            }
        }
    };
    (status, markup).into_response()
}

/// Returns the policy of a page whose form may lead to another origin as well.
pub(crate) fn policy_with_form_target(origin: &str) -> String {
    // A policy cannot name an IPv6 address, so its scheme is allowed.
    let target = if origin.contains('[') { "http:" } else { origin };
    SECURITY_POLICY.replace("form-action 'self'", &format!("form-action 'self' {target}"))
}

/// Renders a page with status 200.
pub(crate) fn ok_page(layout: &Layout<'_>, body: &Markup) -> Response {
    page(StatusCode::OK, layout, body)
}

/// Lets caches store a public page, but makes them revalidate it.
pub(crate) fn with_revalidation(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Adds the security headers every response carries. Headers set by the page are kept.
pub(crate) fn with_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    set_default_header(headers, header::CONTENT_SECURITY_POLICY, SECURITY_POLICY);
    set_default_header(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // `same-origin` tells other sites nothing, like `no-referrer`. But `no-referrer` makes browsers
    // send `Origin: null` with our own forms. Over plain HTTP they send no `Sec-Fetch-Site` either,
    // and the CSRF check could not recognise our forms. See
    // <https://www.w3.org/TR/referrer-policy/>.
    set_default_header(headers, header::REFERRER_POLICY, "same-origin");
    set_default_header(headers, header::CACHE_CONTROL, "no-store");
    // Pages of other sites get no handle of our window and cannot load our replies as parts of
    // theirs (<https://html.spec.whatwg.org/#the-coop-headers>,
    // <https://fetch.spec.whatwg.org/#cross-origin-resource-policy-header>).
    set_default_header(headers, OPENER_POLICY, "same-origin");
    set_default_header(headers, RESOURCE_POLICY, "same-origin");
    set_default_header(headers, PERMISSIONS_POLICY, PERMISSIONS);
    response
}

fn set_default_header(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    headers.entry(name).or_insert(HeaderValue::from_static(value));
}

fn logo() -> Markup {
    html! {
        svg.mark viewBox="0 0 32 32" width="26" height="26" aria-hidden="true" {
            path.door d="M4 30V14a12 12 0 0 1 24 0v16z" {}
            path.hole d="M16 9a4 4 0 0 1 1.8 7.6L19 24h-6l1.2-7.4A4 4 0 0 1 16 9z" {}
        }
    }
}
