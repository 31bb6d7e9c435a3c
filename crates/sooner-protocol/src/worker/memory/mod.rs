//! Memory that is short, as the processes see it: blocks that their node wants back, and tasks that it
//! stopped.

mod relinquishing;
mod stopped;
