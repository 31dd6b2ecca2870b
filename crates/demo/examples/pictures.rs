//! Redraws the images of `docs/images.md`: `cargo run -p demo --example pictures`.

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::error::Error;
use std::path::Path;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Returns the demo model's image for a request.
async fn picture(path: &str, order: &Value) -> Outcome<Vec<u8>> {
    let request = Request::post(path).header("host", "localhost");
    let answer = demo::serve(request.body(Bytes::from(order.to_string()))?).await;
    let body = answer.into_body().collect().await?.to_bytes();
    let body: Value = serde_json::from_slice(&body)?;
    let data = body.pointer("/data/0/b64_json").and_then(Value::as_str);
    let data = data.ok_or_else(|| format!("no picture: {body}"))?;
    Ok(media::decode_base64(data).ok_or("no base64")?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    let order = json!({ "model": "demo-image", "prompt": "A lighthouse at dawn",
        "size": "512x320", "output_format": "jpeg", "output_compression": 80 });
    let first = picture("/v1/images/generations", &order).await?;
    std::fs::write(folder.join("lighthouse.jpg"), &first)?;
    let uri = format!("data:image/jpeg;base64,{}", media::encode_base64(&first));
    let order = json!({ "model": "demo-image", "prompt": "The same by night",
        "size": "512x320", "output_format": "jpeg", "output_compression": 80,
        "images": [{ "image_url": uri }] });
    std::fs::write(folder.join("night.jpg"), picture("/v1/images/edits", &order).await?)?;
    Ok(())
}
