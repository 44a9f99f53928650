//! The membership protocol alone, as a state machine small enough to be searched exhaustively.
