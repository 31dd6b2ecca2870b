//! `POST /v1/images/generations`: the door is there, so that a wrong key or a wrong model is told
//! as everywhere else; behind it no image model is served.

use axum::response::Response;
use canon::{Fault, Trouble};
use catalog::Kind;
use dialects::{Target, chat::Chat};
use serde::Deserialize;

use super::Asked;
use crate::flow::{Call, find_kind};

#[derive(Deserialize)]
struct Head {
    model: Option<String>,
}

pub(super) async fn create(asked: Asked) -> Result<Response, Fault> {
    // Its errors have the shape of chat's.
    let call = Call::read(asked, &Chat, Target::default()).await?;
    let head: Head = serde_json::from_slice(&call.body)
        .map_err(|e| Fault::invalid("", format!("the body is not a JSON object: {e}")))?;
    let Some(model) = head.model.filter(|model| !model.is_empty()) else {
        return Err(Fault::invalid("model", "`model` is required"));
    };
    find_kind(&call, &model, Kind::Image)?;
    let say = format!("`{model}` is an image model, and this version serves none");
    Err(Fault::new(Trouble::NoModel, say))
}
