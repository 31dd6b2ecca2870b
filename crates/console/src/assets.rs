//! The embedded stylesheet and scripts. Their paths change with their content, so browsers may
//! cache them without limit. An import names the path of another module, so the hash of a module
//! covers those it imports.

use std::borrow::Cow;
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
    text: Cow<'static, str>,
}

impl StaticAsset {
    fn new(stem: &str, ending: &str, text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let hash: String = random::hex(&random::digest(&text)).chars().take(16).collect();
        let name = format!("{stem}-{hash}.{ending}");
        let mime = if ending == "css" {
            "text/css; charset=utf-8"
        } else {
            "text/javascript; charset=utf-8"
        };
        Self { path: format!("/assets/{name}"), name, mime, text }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

static STYLE: LazyLock<StaticAsset> =
    LazyLock::new(|| StaticAsset::new("console", "css", include_str!("../assets/console.css")));
static SCRIPT: LazyLock<StaticAsset> =
    LazyLock::new(|| StaticAsset::new("console", "js", include_str!("../assets/console.js")));
static PLAYGROUND_STYLE: LazyLock<StaticAsset> = LazyLock::new(|| {
    StaticAsset::new("playground", "css", include_str!("../assets/playground.css"))
});

/// Modules of the playground, each after those it imports.
const PLAYGROUND_MODULES: [(&str, &str); 12] = [
    ("dom", include_str!("../assets/dom.js")),
    ("markdown-inline", include_str!("../assets/markdown-inline.js")),
    ("markdown", include_str!("../assets/markdown.js")),
    ("formats", include_str!("../assets/formats.js")),
    ("code", include_str!("../assets/code.js")),
    ("json-text", include_str!("../assets/json-text.js")),
    ("record", include_str!("../assets/record.js")),
    ("store", include_str!("../assets/store.js")),
    ("share", include_str!("../assets/share.js")),
    ("settings", include_str!("../assets/settings.js")),
    ("columns", include_str!("../assets/columns.js")),
    ("kept", include_str!("../assets/kept.js")),
];

/// The modules of the playground, with the page's own module last.
static PLAYGROUND: LazyLock<Vec<StaticAsset>> = LazyLock::new(|| {
    let page = ("playground", include_str!("../assets/playground.js"));
    let mut assets: Vec<StaticAsset> = Vec::new();
    let mut stems: Vec<&str> = Vec::new();
    for (stem, text) in PLAYGROUND_MODULES.into_iter().chain([page]) {
        let text = stems.iter().zip(&assets).fold(text.to_owned(), |text, (stem, asset)| {
            text.replace(&format!("\"./{stem}.js\""), &format!("\"./{}\"", asset.name))
        });
        assets.push(StaticAsset::new(stem, "js", text));
        stems.push(stem);
    }
    assets
});

/// The modules of the playground. The page loads the last one, which imports the others.
pub(crate) fn playground() -> &'static [StaticAsset] {
    &PLAYGROUND
}

pub(crate) fn playground_style() -> &'static StaticAsset {
    &PLAYGROUND_STYLE
}

pub(crate) fn style() -> &'static StaticAsset {
    &STYLE
}

pub(crate) fn script() -> &'static StaticAsset {
    &SCRIPT
}

/// `GET /assets/{name}`
pub(crate) async fn serve(Path(name): Path<String>) -> Result<Response, PageError> {
    let single = [style(), script(), playground_style()];
    let asset = single.into_iter().chain(playground()).find(|asset| asset.name == name);
    let asset = asset.ok_or(PageError::NotFound)?;
    let headers = [
        (header::CONTENT_TYPE, asset.mime),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    Ok((headers, &*asset.text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_import_names_a_served_module() {
        for asset in playground() {
            for line in asset.text.lines().filter(|line| line.starts_with("import ")) {
                let named = line.split('"').nth(1).and_then(|path| path.strip_prefix("./"));
                let served = playground().iter().any(|other| Some(other.name.as_str()) == named);
                assert!(served, "{}: {line}", asset.name);
            }
        }
    }
}
