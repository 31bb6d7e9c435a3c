//! The shell of the control service, and the stores for what must survive it.
//!
//! [`store`] defines what a store can do, which is what etcd can. [`memory`] and [`embedded`] are the two
//! stores inside the process, based on [`contents`]. [`records`] is what a head finds there. [`service`] is
//! the thread that decides; [`commit`] writes from a thread of its own, many batches at a time.

pub mod commit;
pub mod contents;
pub mod embedded;
pub mod memory;
pub mod records;
pub mod service;
pub mod store;
