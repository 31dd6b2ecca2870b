//! Tests of the embedded model directory, the price arithmetic and the model lists.

mod directory;
mod model_lists;
mod needs;
mod price_arithmetic;
