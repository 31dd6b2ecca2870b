//! Answers where there is nothing to serve.

use http::Method;
use testkit::TestGateway;

use super::{check, plain};

#[tokio::test]
async fn unknown_addresses() {
    let gateway = TestGateway::start().await;
    for (name, path) in [
        ("unknown_chat_404", "/v1/nothing"),
        ("unknown_messages_404", "/v1/messages/nothing"),
        ("unknown_native_404", "/v1beta/nothing"),
        ("unknown_api_404", "/api/nothing"),
    ] {
        check(name, plain(&gateway, Method::GET, path)).await;
    }
    let page = plain(&gateway, Method::GET, "/nothing").without_key().header("accept", "text/html");
    check("unknown_page_404", page).await;
    let page = plain(&gateway, Method::GET, "/console").without_key();
    check("page_without_session_303", page).await;
}
