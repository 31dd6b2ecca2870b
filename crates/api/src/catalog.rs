//! `GET /api/models`: the public catalog.

use axum::body::Body;
use axum::response::Response;
use canon::ApiError;
use catalog::{ModelFilter, ModelListing};
use http::Request;
use serde_json::json;
use std::sync::Arc;

use super::query::query_pairs;
use crate::state::ApiState;
use relay::json_response;

/// Size of a page without `page_size`, and the largest one.
const MAX_PAGE_SIZE: usize = 100;
/// Largest number of a page.
const MAX_PAGE: usize = 1_000_000;
const MAX_FILTER_BYTES: usize = 200;

pub(super) async fn list(
    state: Arc<ApiState>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let mut filter = ModelFilter::default();
    let (mut page, mut page_size) = (None, None);
    let query = request.uri().query().unwrap_or_default();
    for (name, value) in query_pairs(query) {
        match name.as_str() {
            "page" => page = Some(parse_count("page", &value, MAX_PAGE)?),
            "page_size" => page_size = Some(parse_count("page_size", &value, MAX_PAGE_SIZE)?),
            "provider" => filter.provider = Some(check_length("provider", value)?),
            "model_type" => filter.model_type = Some(check_length("model_type", value)?),
            "feature" => filter.feature = Some(check_length("feature", value)?),
            "q" => filter.text = Some(check_length("q", value)?),
            _ => {}
        }
    }
    let config = state.config();
    // A caller that knows of no pages gets all models on one.
    let whole = config.catalog.len();
    let default_size = if page.is_some() { MAX_PAGE_SIZE } else { whole };
    let found = config.catalog.list(&filter, page.unwrap_or(1), page_size.unwrap_or(default_size));
    let data: Vec<ModelListing> =
        found.models.iter().map(|model| ModelListing::new(model, &config.public_url)).collect();
    let body = json!({
        "success": true,
        "page": found.page,
        "page_size": found.page_size,
        "total": found.total,
        "data": data,
    });
    Ok(json_response(body.to_string()))
}

fn parse_count(name: &'static str, value: &str, max: usize) -> Result<usize, ApiError> {
    match value.parse::<usize>() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(ApiError::invalid(
            name,
            format!("`{name}` must be a whole number between 1 and {max}"),
        )),
    }
}

fn check_length(name: &'static str, value: String) -> Result<String, ApiError> {
    if value.len() > MAX_FILTER_BYTES {
        return Err(ApiError::invalid(
            name,
            format!("`{name}` must be at most {MAX_FILTER_BYTES} bytes"),
        ));
    }
    Ok(value)
}
