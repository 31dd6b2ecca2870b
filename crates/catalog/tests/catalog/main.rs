//! Tests of the embedded model directory, the bundles laid over it, the price arithmetic and the model lists.

mod bundles;
mod directory;
mod model_lists;
mod needs;
mod price_arithmetic;
