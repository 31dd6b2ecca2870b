//! The embedded stylesheet and scripts. Their paths change with their content, so browsers may
//! cache them without limit.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::header;

use crate::page_error::PageError;
use admin::random;

/// A file embedded in the binary.
pub(crate) struct StaticAsset {
    name: String,
    path: String,
    mime: &'static str,
    text: &'static str,
}

impl StaticAsset {
    fn new(stem: &str, ending: &str, mime: &'static str, text: &'static str) -> Self {
        let hash: String = random::hex(&random::digest(text)).chars().take(16).collect();
        let name = format!("{stem}-{hash}.{ending}");
        Self { path: format!("/assets/{name}"), name, mime, text }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

static STYLE: LazyLock<StaticAsset> = LazyLock::new(|| {
    StaticAsset::new(
        "console",
        "css",
        "text/css; charset=utf-8",
        include_str!("../assets/console.css"),
    )
});
static SCRIPT: LazyLock<StaticAsset> = LazyLock::new(|| {
    let text = include_str!("../assets/console.js");
    StaticAsset::new("console", "js", "text/javascript; charset=utf-8", text)
});

static PLAYGROUND: LazyLock<StaticAsset> = LazyLock::new(|| {
    let text = include_str!("../assets/playground.js");
    StaticAsset::new("playground", "js", "text/javascript; charset=utf-8", text)
});

pub(crate) fn playground() -> &'static StaticAsset {
    &PLAYGROUND
}

pub(crate) fn style() -> &'static StaticAsset {
    &STYLE
}

pub(crate) fn script() -> &'static StaticAsset {
    &SCRIPT
}

/// `GET /assets/{name}`
pub(crate) async fn serve(Path(name): Path<String>) -> Result<Response, PageError> {
    let asset = [style(), script(), playground()].into_iter().find(|asset| asset.name == name);
    let asset = asset.ok_or(PageError::NotFound)?;
    let headers = [
        (header::CONTENT_TYPE, asset.mime),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    Ok((headers, asset.text).into_response())
}
