//! What the two disks promise, and that the model is as unkind as it says.

mod model;
mod read_only;
mod real;
