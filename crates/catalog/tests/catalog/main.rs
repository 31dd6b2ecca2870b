//! Tests of the embedded model directory, the price arithmetic and the model lists.

mod data;
mod laws;
mod listing;
