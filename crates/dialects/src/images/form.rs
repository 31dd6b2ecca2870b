//! Body formats of an image request: read, checked, and passed through.

use bytes::Bytes;
use canon::Fault;

use super::names::{EDITS_PATH, GENERATIONS_PATH};
use super::parsed_request::Order;
use super::provider::Written;
use super::{read_request, rules};
use crate::Outgoing;
use crate::json::{self, Edit, Segments};

/// Body formats of an image request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// `POST /v1/images/generations`.
    Generate,
    /// `POST /v1/images/edits` as JSON.
    Edit,
    /// `POST /v1/images/edits` as `multipart/form-data`.
    Upload {
        /// Boundary between its parts.
        boundary: String,
    },
}

impl Form {
    /// Returns true if the request has input images.
    pub const fn is_edit(&self) -> bool {
        match self {
            Self::Generate => false,
            Self::Edit | Self::Upload { .. } => true,
        }
    }

    /// Returns the content type of the body.
    pub fn content_type(&self) -> String {
        match self {
            Self::Generate | Self::Edit => "application/json".to_owned(),
            Self::Upload { boundary } => format!("multipart/form-data; boundary={boundary}"),
        }
    }

    /// Reads a request and applies the rules that hold for all models.
    pub fn read(&self, body: &Bytes) -> Result<Order, Fault> {
        let order = match self {
            Self::Generate => read_request::json(body, false)?,
            Self::Edit => read_request::json(body, true)?,
            Self::Upload { boundary } => read_request::form(body, boundary)?,
        };
        rules::check(&order.picture)?;
        Ok(order)
    }

    /// Returns the caller's body with the provider's model name. Parts for the gateway are removed
    /// from a form. In JSON, the caller of this function removes them as the provider requires.
    pub fn patch(&self, body: &Bytes, order: &Order, model: &str) -> Written {
        let mut edits: Vec<Edit> = order
            .gateway_parts
            .iter()
            .map(|at| Edit { at: at.clone(), with: Bytes::new() })
            .collect();
        if let Some(at) = order.model_range.clone().filter(|_| order.picture.model != model) {
            let with = match self {
                Self::Generate | Self::Edit => json::quoted(model),
                Self::Upload { .. } => Bytes::from(model.to_owned()),
            };
            edits.push(Edit { at, with });
        }
        let path = if self.is_edit() { EDITS_PATH } else { GENERATIONS_PATH };
        let outgoing = Outgoing { path: path.to_owned(), body: Segments::edited(body, edits) };
        let kind = matches!(self, Self::Upload { .. }).then(|| self.content_type());
        Written { kind, ..Written::json(outgoing) }
    }
}
