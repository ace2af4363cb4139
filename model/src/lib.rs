//! Nothing but a place: the model that is the code is a test, `tests/model`.
