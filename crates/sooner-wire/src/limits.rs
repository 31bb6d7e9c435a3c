//! Limits that several rooms share, and limits on what other processes send. Each has its unit and its
//! reason; assertions check how limits relate.
//!
//! A limit that concerns one module alone stands in that module. Nothing here is read from the environment.

/// Bytes of one frame's body. Larger values travel through shared memory; this bounds what a garbled length
/// can make a reader allocate.
pub const FRAME_BODY_BYTES_MAX: usize = 512 << 20;

/// Values up to this size (bytes) travel inside messages; larger ones go to shared memory. Default; a session
/// may choose another one.
pub const INLINE_BYTES_DEFAULT: usize = 100 << 10;

/// Inline arguments of one call together (bytes); further arguments go to shared memory one by one, as larger
/// ones do. Keeps the message far from [`FRAME_BODY_BYTES_MAX`], and waiting calls from filling the heap.
pub const CALL_INLINE_BYTES_MAX: u64 = 1 << 20;

/// Inline return values of one task together (bytes), if it has several. They stay in their owner's heap: the
/// many small pieces of a shuffle must be as bounded as one value is.
pub const REPLY_INLINE_BYTES_MAX: u64 = INLINE_BYTES_DEFAULT as u64;

/// Argument values of one call (bytes) that lie in their owner's heap and travel in the call's message. They
/// have no other way, so a call with more is refused.
pub const CALL_VALUES_BYTES_MAX: u64 = FRAME_BODY_BYTES_MAX as u64 / 2;

/// But values up to this size (bytes) travel inside messages however many there are: an entry for one takes
/// half as much.
pub const SMALL_INLINE_BYTES: u64 = 512;

/// Encoded frames waiting for one socket (bytes) before task pushes to it wait in their own queue.
pub const LINK_BUFFER_BYTES_MAX: usize = 4 << 20;

/// Messages of the node that a local process has not read (bytes); a process with more is disconnected. One
/// message of any size fits, and all messages to a process that is stopped for a minute.
pub const CLIENT_UNREAD_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX + 16 * LINK_BUFFER_BYTES_MAX;

/// Work (estimated nanoseconds) pushed ahead to one leased worker. Deep enough that a worker never waits for
/// its next small task, shallow enough that a waiting task is not held up behind others for long.
pub const LEASE_BACKLOG_NANOS: u64 = 2_000_000;

/// Arguments in memory of tasks that are pushed ahead to a worker take at most one part in this many of the
/// store, and at most [`LEASE_ARGUMENT_BYTES`].
pub const LEASE_ARGUMENT_SHARE: u64 = 64;
/// See [`LEASE_ARGUMENT_SHARE`].
pub const LEASE_ARGUMENT_BYTES: u64 = 64 << 20;

/// Tasks pushed ahead to one leased worker, whatever their size.
pub const LEASE_BACKLOG_TASKS: usize = 512;

/// Calls in flight to one actor before further ones wait with their caller. At least twice the concurrency of
/// the actor is always allowed, so that calls that wait for each other cannot starve.
pub const ACTOR_CALLS_IN_FLIGHT: usize = 4096;

/// A lease without work goes back after this time (nanoseconds), or at once when the node asks for it.
pub const LEASE_IDLE_NANOS: u64 = 50_000_000;

/// A lease that other processes wait for is kept this long (nanoseconds) while it has work: long enough that
/// handing it over costs little beside the work done.
pub const LEASE_SLICE_NANOS: u64 = 10_000_000;

/// Leases one request may ask for at a time; more demand is asked for again as it is met.
pub const LEASE_DEMAND_MAX: u32 = 4096;

/// Worker processes being forked at the same time: forks compete for the same cores.
pub const WORKERS_STARTING_MAX: usize = 8;

/// Worker processes of one node. A process costs several MiB; a program that needs more has a runaway
/// recursion, and an error serves it better than a machine without memory.
pub const WORKERS_MAX: usize = 4000;

/// How long work waits for a worker that cannot be started, while nothing that could make room for one ends
/// (nanoseconds).
pub const START_PATIENCE_NANOS: u64 = 15_000_000_000;

/// How long a node that could start no workers for a request is not asked again, from the last refusal of any
/// node on (nanoseconds): longer than the next node takes to refuse, too, so that what no node can begin
/// fails.
pub const REFUSAL_NANOS: u64 = 2 * START_PATIENCE_NANOS;

/// The longest pause before a worker start that lacked a resource of the machine is tried again
/// (nanoseconds): resources that become free must be used soon.
pub const START_PAUSE_NANOS_MAX: u64 = 1_000_000_000;

/// Pause before a task whose worker crashed twice is tried again (nanoseconds); it doubles with each further
/// crash.
pub const RETRY_PAUSE_NANOS: u64 = 50_000_000;

/// The longest such pause (nanoseconds): a task that may be retried for ever costs a process every so often.
pub const RETRY_PAUSE_NANOS_MAX: u64 = 5_000_000_000;

/// How often a task is executed again after its node stopped it because memory ran out. With the pauses
/// between them that is most of a minute, in which other work may end.
pub const MEMORY_RETRIES_MAX: u8 = 15;

/// A raised memory reservation is a multiple of one part in this many of the node's memory: as many more
/// shapes there can be.
pub const MEMORY_RESERVATION_STEPS: u64 = 16;

/// Functions whose tasks' peak memory a node remembers.
pub const MEMORY_PEAKS_MAX: usize = 4096;

/// An idle pooled worker beyond the number of CPUs ends after this time (nanoseconds).
pub const WORKER_IDLE_NANOS: u64 = 2_000_000_000;

/// Blocks of shared memory that one process keeps for itself after freeing them (bytes): warm pages to reuse
/// without asking the node.
pub const BLOCK_CACHE_BYTES: u64 = 64 << 20;

/// Blocks that a process may request ahead, together with one that it needs now: their number, and their
/// bytes. Together they are a small part of [`BLOCK_CACHE_BYTES`].
pub const ALLOCATE_AHEAD_MAX: usize = 64;
/// See [`ALLOCATE_AHEAD_MAX`].
pub const ALLOCATE_AHEAD_BYTES: u64 = BLOCK_CACHE_BYTES / 8;

/// Size (bytes) up to which spilled objects are fused into one file: long enough for a disk to write and read
/// at its full speed, short enough that rewriting one, when most of it is dead, takes a fraction of a second.
pub const SPILL_FILE_BYTES: u64 = 100 << 20;

/// Spill files of one node, each with an open descriptor: half of what a process may usually have open
/// (1024).
pub const SPILL_FILES_MAX: usize = 512;

/// The largest object that is spilled (bytes): the checksums of its chunks fill the buffer that they are read
/// into.
pub const SPILL_OBJECT_BYTES_MAX: u64 = 1 << 40;
/// The smallest limit that a node's store may have (bytes).
pub const STORE_BYTES_MIN: u64 = 1 << 20;

/// Memory that the store leaves to the machine, or control group, when it reserves pages (bytes): processes
/// need memory to go on.
pub const STORE_SPARE_BYTES: u64 = 64 << 20;

/// Pages of a store that are reserved at a time (bytes), if there are as many: small values share one call.
pub const STORE_EXTENT_BYTES: u64 = 8 << 20;

/// Pages that an idle store keeps, warm for the next values (bytes).
pub const STORE_WARM_BYTES: u64 = 256 << 20;

/// Further pages go back to the machine when they were not needed for this time (nanoseconds), or up to twice
/// this time.
pub const STORE_IDLE_NANOS: u64 = 10_000_000_000;

/// Pages that are given back, or reserved, in one call (bytes): some 20 ms of the node's loop.
pub const STORE_RELEASE_BYTES: u64 = 64 << 20;

/// Pages that are reserved in one round of the node's loop (bytes), some 100 ms: for more, the process that
/// creates the object asks again.
pub const STORE_RESERVE_BYTES: u64 = 256 << 20;

/// Processes that an error about a full store names.
pub const HOLDERS_NAMED_MAX: usize = 5;

/// Bytes of a process's title in such an error.
pub const HOLDER_TITLE_BYTES_MAX: usize = 80;

/// Tasks and calls that one process may have pending before its submissions wait, unless the session says
/// otherwise. Each takes about 650 bytes and its arguments.
pub const PENDING_TASKS_DEFAULT: usize = 2_000_000;

/// How long a submission beyond that waits while no task ends (nanoseconds). Then it goes through, and with
/// it one part in [`PENDING_STEP`] of the limit, at least [`PENDING_STEP`]: pending tasks may wait for what
/// the submitting thread does next.
pub const PENDING_PATIENCE_NANOS: u64 = 10_000_000_000;
/// See [`PENDING_PATIENCE_NANOS`].
pub const PENDING_STEP: usize = 16;

const _: () = assert!(STORE_RELEASE_BYTES <= STORE_RESERVE_BYTES && STORE_EXTENT_BYTES < STORE_RESERVE_BYTES);
const _: () = assert!(STORE_EXTENT_BYTES <= STORE_RELEASE_BYTES && STORE_RELEASE_BYTES <= STORE_WARM_BYTES);

/// Progress cells at the start of the arena: one per worker slot.
pub const PROGRESS_CELLS: usize = WORKERS_MAX + 96;

/// How long an actor waits for its replies to leave before it takes a checkpoint (nanoseconds). If a caller
/// reads nothing for that long, the checkpoint is taken later, so that other callers are not held up.
pub const CHECKPOINT_FLUSH_NANOS: u64 = 1_000_000_000;

/// Longest chain of names, messages and the like in error texts (bytes).
pub const ERROR_TEXT_BYTES_MAX: usize = 64 << 10;

/// Functions and classes whose code one process keeps, because it may be asked for the code at any time. At
/// the next one, the user is warned that the program makes ever new ones.
pub const FUNCTIONS_TOLD: usize = 10_000;

/// Bytes of the names that the events of one process refer to: one part in this many of the events' own
/// bound.
pub const EVENT_NAMES_SHARE: usize = 8;

/// Rows per table and process in one answer about state: about 30 MB, and some 50 ms of the asked process.
pub const REPORT_ROWS_MAX: u32 = 100_000;

/// Questions about state that one node works on at a time.
pub const INSPECTIONS_MAX: usize = 64;

/// How long a process may take to answer a question about its state (nanoseconds).
pub const INSPECTION_NANOS: u64 = 600_000_000;

/// How long another node may take to answer such a question with all its processes (nanoseconds).
pub const INSPECTION_NODES_NANOS: u64 = 750_000_000;

/// Other nodes that one question is passed on to.
pub const INSPECTED_NODES_MAX: usize = 1024;

/// Rows per table and process, and events per process, in an answer to another node: they hold up the link.
pub const REPORT_ROWS_AWAY_MAX: u32 = 10_000;
/// See [`REPORT_ROWS_AWAY_MAX`].
pub const REPORT_EVENTS_AWAY_MAX: u32 = 100_000;

/// Waiting messages to another node (bytes); with more, processes' answers to its questions are left out.
pub const REPORT_AWAY_BYTES_MAX: usize = 32 << 20;

/// Files that one answer lists, bytes of one file, and bytes of all its files.
pub const REPORT_FILES_MAX: usize = 10_000;
/// See [`REPORT_FILES_MAX`].
pub const REPORT_FILE_BYTES_MAX: u64 = 256 << 10;
/// See [`REPORT_FILES_MAX`].
pub const REPORT_FILES_BYTES_MAX: u64 = 4 << 20;

const _: () = assert!(INSPECTION_NANOS < INSPECTION_NODES_NANOS);

/// Time between two reports of one process's metrics (nanoseconds).
pub const METRICS_NANOS: u64 = 1_000_000_000;

/// Series (metrics with their tags) that one node keeps: a tag with ever new values must not fill its memory.
pub const METRIC_SERIES_MAX: usize = 10_000;

/// Ended processes that are remembered with the reason, and as many ended actors.
pub const ENDED_MAX: usize = 256;

/// Descriptions of finished tasks that a process keeps so that their results can be computed again (bytes),
/// unless the session says otherwise: a million small ones.
pub const LINEAGE_BYTES: usize = 1 << 30;

/// Bytes of a new connection that are looked at to learn its addressee. A hello of sooner takes about 300.
pub const PEEK_BYTES: usize = 4 << 10;

/// How long a new connection may take to name its addressee (nanoseconds).
pub const PEEK_NANOS: u64 = 1_000_000_000;

/// New connections that have not named their addressee yet; one more closes the oldest.
pub const PEEKS_MAX: usize = 64;

/// How long two processes may take to authenticate each other (nanoseconds): the dialled one may be busy with
/// a task.
pub const HANDSHAKE_NANOS: u64 = 10_000_000_000;

/// Connections of a head, and of a node, whose peers have not authenticated yet; one more closes the oldest.
/// As many again from addresses where a peer has authenticated before.
pub const HANDSHAKES_MAX: usize = 64;

/// How many of them one address may have before a further one closes its own oldest.
pub const HANDSHAKES_OF_ADDRESS_MAX: usize = 16;

/// Addresses that are remembered because a peer there has proved to be of the cluster.
pub const PROVEN_MAX: usize = 4096;

/// Lines about strangers, and other lines that outsiders can cause, within a second in a node's log; the rest
/// is counted.
pub const NOTES_MAX: u32 = 10;

/// Time in which the head must answer a node that joins (nanoseconds).
pub const JOIN_NANOS: u64 = 10_000_000_000;

/// How long a probe of a node's port waits for an answer (nanoseconds).
pub const PROBE_NANOS: u64 = 1_000_000_000;

/// Pause before an unreachable head is dialled again: the first, and the longest (nanoseconds).
pub const REDIAL_NANOS: u64 = 50_000_000;
/// See [`REDIAL_NANOS`].
pub const REDIAL_NANOS_MAX: u64 = 1_000_000_000;

/// Longest version of Python that a peer may claim to run (bytes).
pub const PYTHON_VERSION_BYTES_MAX: usize = 32;

const _: () = assert!(PEEK_NANOS < HANDSHAKE_NANOS);

/// Bytes received over a session before they are acknowledged at once: a small part of what the sender may
/// retain.
pub const ACK_BYTES: u64 = 256 << 10;

/// How long received bytes wait for their acknowledgement (nanoseconds): long enough that an answer and an
/// acknowledgement are not two messages each, short enough that a flush that waits for it is not felt.
pub const ACK_NANOS: u64 = 20_000_000;

/// A connection between machines ends when nothing was received from the peer for this time (nanoseconds):
/// short enough that waiting processes resume soon after an outage of some seconds, long enough for a very
/// busy machine.
pub const SILENCE_NANOS: u64 = 2_000_000_000;

/// The kernel probes a connection after this much silence (nanoseconds), and again after as long.
pub const PROBE_IDLE_NANOS: u64 = 1_000_000_000;

/// A session without a connection ends after this time (nanoseconds), although both nodes live: every wait
/// ends. With [`SILENCE_NANOS`] before and [`SEVERED_NANOS`] after it, no process waits for longer than 30 s.
pub const LINK_PATIENCE_NANOS: u64 = 25_000_000_000;

/// How long a process whose session with a peer has ended waits for the message that the peer is dead
/// (nanoseconds), before it treats the peer as dead.
pub const SEVERED_NANOS: u64 = 2_000_000_000;

/// Pause before a connection is dialled again (nanoseconds); it doubles with each failure.
pub const REDIAL_PAUSE_NANOS: u64 = 10_000_000;

/// The longest such pause (nanoseconds). A connection that stood for so long counts as a good one.
pub const REDIAL_PAUSE_NANOS_MAX: u64 = 1_000_000_000;

/// Bytes that all sessions of one process retain together before each is held to its share.
pub const LINKS_BUFFER_BYTES_MAX: u64 = 256 << 20;

/// Bytes that a session may retain in any case: no session stands still because others are slow.
pub const LINK_SHARE_BYTES: u64 = 64 << 10;

const _: () = assert!(2 * ACK_BYTES <= LINK_BUFFER_BYTES_MAX as u64);
const _: () = assert!(LINK_SHARE_BYTES < LINK_BUFFER_BYTES_MAX as u64);
const _: () = assert!(HANDSHAKE_NANOS < LINK_PATIENCE_NANOS);
const _: () = assert!(SILENCE_NANOS + LINK_PATIENCE_NANOS + SEVERED_NANOS <= 30_000_000_000);
const _: () = assert!(PROBE_IDLE_NANOS < SILENCE_NANOS && SILENCE_NANOS < HEALTH_TIMEOUT_NANOS);
const _: () = assert!(ACK_NANOS < CHECKPOINT_FLUSH_NANOS);

// Processes of different nodes.

/// Processes of other nodes that one node grants leases to.
pub const ASKERS_MAX: usize = 65_536;

/// Pairs of a process and a node that learns of its end, in one node.
pub const WATCHES_MAX: usize = 1 << 20;

/// Settled deaths that a node, or the control service, remembers: the latest.
pub const DEATHS_MAX: usize = 4096;

/// Entries about settled deaths that a node could report again, in all.
pub const HELD_MAX: usize = 1 << 16;

/// Leases and actors that wait in one node until it knows their jobs.
pub const GUEST_ORDERS_MAX: usize = 1024;

/// How long they wait (nanoseconds): the control service may be starting again.
pub const GUEST_JOB_NANOS: u64 = 30_000_000_000;

/// How long a question to an unreachable control service waits (nanoseconds).
pub const CONTROL_AWAY_NANOS: u64 = 30_000_000_000;

/// Waiting messages to an unreachable control service (bytes): beyond, questions to it get an error.
pub const CONTROL_BUFFER_BYTES_MAX: usize = 4 << 20;

/// Connections that one node dials for its processes at a time, and how long each may take (nanoseconds).
pub const DIALS_MAX: usize = 256;
/// See [`DIALS_MAX`].
pub const DIAL_NANOS: u64 = 2_000_000_000;

/// Connections of one process to processes of other nodes: each costs two descriptors and a share of memory.
pub const REMOTE_LINES_MAX: usize = 2048;

/// How long the node's messages wait for a dead process's connection to be read to its end (nanoseconds):
/// what the process sent before its end counts.
pub const HOLD_NANOS: u64 = 200_000_000;

/// Messages of one node to another without a connection yet (bytes): beyond, requests for leases are given
/// up.
pub const NODE_QUEUE_BYTES_MAX: usize = 1 << 20;

/// How long a request waits on another node before it is refused or taken back (nanoseconds).
pub const LENT_NANOS: u64 = 100_000_000;

/// Output of one job's workers on one node that the driver's node has not taken (bytes); with more, the
/// workers wait.
pub const LINES_UNTAKEN_BYTES_MAX: u64 = 1 << 20;

const _: () = assert!(HOLD_NANOS < LINK_PATIENCE_NANOS);
const _: () = assert!(DIAL_NANOS < HANDSHAKE_NANOS);

// Nodes and the control service.

/// Nodes of one cluster, together with the drivers that are nodes of their own.
pub const NODES_MAX: usize = 10_000;

/// Dead nodes that a node lists in answers about the state: the latest.
pub const NODES_DEAD_LISTED_MAX: usize = 100;

/// Dead nodes that are remembered by their ids.
pub const NODES_DEAD_MAX: usize = 10_000;

/// Time between two heartbeats of a node (nanoseconds).
pub const HEARTBEAT_NANOS: u64 = 500_000_000;

/// Silence after which a node is declared dead (nanoseconds), unless the cluster is set up otherwise: nine
/// heartbeats may be lost.
pub const HEALTH_TIMEOUT_NANOS: u64 = 5_000_000_000;

/// The shortest and the longest such silence that a cluster may be set up with (nanoseconds).
pub const HEALTH_TIMEOUT_NANOS_MIN: u64 = 1_000_000_000;
/// See [`HEALTH_TIMEOUT_NANOS_MIN`].
pub const HEALTH_TIMEOUT_NANOS_MAX: u64 = 60_000_000_000;

/// How long a node that cannot be dialled may be without a connection (nanoseconds).
pub const RESUME_GRACE_NANOS: u64 = 2_000_000_000;

/// A node that lags this far behind (nanoseconds) in [`SLOW_BEATS`] heartbeats in a row is called slow, until
/// it does not in as many.
pub const SLOW_LAG_NANOS: u64 = 1_000_000_000;
/// See [`SLOW_LAG_NANOS`].
pub const SLOW_BEATS: u8 = 3;

/// Blocks in one message that hands them over.
pub const HAND_OVER_MAX: usize = 4096;

/// How long a node that is to end waits for the head's message on what to move (nanoseconds): the head may be
/// unreachable.
pub const DRAIN_MESSAGE_NANOS: u64 = 500_000_000;

/// The longest time that a node may take to drain (nanoseconds).
pub const DRAIN_NANOS_MAX: u64 = 3_600_000_000_000;

/// Time between two messages of the same kind about nodes, and between a node's own reports (nanoseconds):
/// changes in between are sent once.
pub const VIEW_NANOS: u64 = 50_000_000;

/// Up to this many nodes, each node is sent the free resources of all; above, nodes ask.
pub const VIEW_NODES_MAX: usize = 64;

/// Nodes in one answer to `FindNodes`.
pub const CANDIDATES_MAX: usize = 16;

/// Pause before a node asks again which nodes could serve what it has no room for (nanoseconds). It doubles
/// each time, up to [`FIND_NODES_NANOS_MAX`]: not all nodes of a full cluster ask all the time.
pub const FIND_NODES_NANOS: u64 = 100_000_000;

/// The longest time between two such questions (nanoseconds).
pub const FIND_NODES_NANOS_MAX: u64 = 1_600_000_000;

/// How long such an answer counts (nanoseconds): no message corrects it.
pub const CANDIDATES_NANOS: u64 = 1_000_000_000;

/// Nodes that are looked at for such an answer (about 100 us); more only if too few of them are free.
pub const CANDIDATES_SCANNED_MAX: usize = 1024;

/// Bundles of placement groups in one report of a node: free resources of the rest are left out.
pub const BUNDLES_REPORTED_MAX: usize = 256;

/// How long an actor may wait on a node that had room before it is recalled (nanoseconds): as long as a lease
/// that was asked for there.
pub const RECALL_NANOS: u64 = 100_000_000;

/// Pause before an actor is recalled again that its node neither gave back nor began (nanoseconds).
pub const RECALL_AGAIN_NANOS: u64 = 1_000_000_000;

/// Waiting shapes in one report of a node; those with the lowest demand are left out.
pub const DEMAND_SHAPES_MAX: usize = 64;

/// Bytes of a node's name: it is a label of a DNS name.
pub const NODE_NAME_BYTES_MAX: usize = 63;
/// Bytes of a label's value, and of its key without the domain: what Kubernetes allows, so that labels can be
/// taken from there.
pub const LABEL_BYTES_MAX: usize = 63;
/// Bytes of the domain in a label's key: as much as DNS allows.
pub const LABEL_PREFIX_BYTES_MAX: usize = 253;
/// Labels of a node.
pub const LABELS_MAX: usize = 64;
/// Bytes of a resource's name: 1,024 characters, as front ends allow, and what names of bundles add.
pub const RESOURCE_NAME_BYTES_MAX: usize = (4 << 10) + 128;
/// Resources of a node, those that stand for bundles of placement groups included.
pub const RESOURCES_MAX: usize = 4096;
/// The largest amount of one resource (in ten-thousandths): 100 TB of memory.
pub const RESOURCE_AMOUNT_MAX: u64 = 1 << 60;
/// Bytes of what a node says about itself in words: machine, versions, address.
pub const NODE_TEXT_BYTES_MAX: usize = 256;

/// Bytes of a key and of a value in the control store. Both fit into what etcd takes by default.
pub const STORE_KEY_BYTES_MAX: usize = 1024;
/// See [`STORE_KEY_BYTES_MAX`].
pub const STORE_VALUE_BYTES_MAX: usize = 1 << 20;

/// Operations and conditions in one batch of writes: what etcd takes by default.
pub const STORE_BATCH_MAX: usize = 128;

/// Pieces of [`STORE_VALUE_BYTES_MAX`] in which an actor's creation message is stored: with its other records
/// they are one batch. Larger arguments are put into shared memory.
pub const CREATION_PIECES_MAX: u32 = 64;

/// Changes that the control store remembers for its watchers; a watcher further behind begins anew.
pub const STORE_HISTORY_MAX: usize = 4096;

/// Batches that wait to be written; further writers wait, or learn that the store cannot follow.
pub const STORE_QUEUE_MAX: usize = 65_536;

/// Batches in one commit: it holds up the next one for some milliseconds at most.
pub const STORE_GROUP_MAX: usize = 1024;

/// Pause before a store that could not write tries again (nanoseconds).
pub const STORE_RETRY_NANOS: u64 = 1_000_000_000;

const _: () = assert!(HEARTBEAT_NANOS * 2 <= HEALTH_TIMEOUT_NANOS_MIN);
const _: () = assert!(HEALTH_TIMEOUT_NANOS_MIN <= HEALTH_TIMEOUT_NANOS);
const _: () = assert!(HEALTH_TIMEOUT_NANOS <= HEALTH_TIMEOUT_NANOS_MAX);
const _: () = assert!(VIEW_NANOS < HEARTBEAT_NANOS);
const _: () = assert!(CANDIDATES_MAX <= VIEW_NODES_MAX);
const _: () = assert!(FIND_NODES_NANOS <= FIND_NODES_NANOS_MAX);
const _: () = assert!(CREATION_PIECES_MAX as usize * 2 <= STORE_BATCH_MAX);
const _: () = assert!(STORE_GROUP_MAX <= STORE_QUEUE_MAX);
const _: () = assert!(STORE_VALUE_BYTES_MAX < FRAME_BODY_BYTES_MAX);
const _: () = assert!(MOVES_PAUSE_NANOS < PULL_AGAIN_NANOS && 32 * PULL_AGAIN_NANOS < PULL_ROOM_NANOS);
const _: () = assert!(SPILL_RETRY_NANOS <= SPILL_RETRY_NANOS_MAX);

/// A value of another node that finds no room in the store is given up when nothing was freed for this time
/// (nanoseconds).
pub const PULL_ROOM_NANOS: u64 = 30_000_000_000;

/// How long a process that creates a value waits for the node's answer at most while room is on its way
/// (nanoseconds).
pub const CREATION_WAIT_NANOS: u64 = 100_000_000;

/// Pause before a pull that found no room is tried again while values are being moved elsewhere
/// (nanoseconds).
pub const MOVES_PAUSE_NANOS: u64 = 20_000_000;

/// The same pause while no values are being moved, although nothing was freed: a reader may have ended
/// (nanoseconds).
pub const PULL_AGAIN_NANOS: u64 = 500_000_000;

/// How long a store whose values cannot go elsewhere may free nothing (nanoseconds) before values go to the
/// file behind it: most tasks are shorter, and memory is faster than a file.
pub const STUCK_NANOS: u64 = 1_000_000_000;
/// The same while values are on their way elsewhere: a disk may be slow.
pub const STUCK_MOVING_NANOS: u64 = 10_000_000_000;
const _: () = assert!(STUCK_NANOS < STUCK_MOVING_NANOS && STUCK_MOVING_NANOS < PULL_ROOM_NANOS);

/// The first pause before a failed write to disk is repeated (nanoseconds).
pub const SPILL_RETRY_NANOS: u64 = 1_000_000_000;

/// The longest such pause (nanoseconds).
pub const SPILL_RETRY_NANOS_MAX: u64 = 30_000_000_000;

/// Values on their way from other nodes may take one part in this many of a node's store.
pub const PULL_SHARE: u64 = 4;

/// Bytes of a value in one chunk: it holds up everything else on its connection.
pub const CHUNK_BYTES_MAX: u32 = 256 << 10;

/// Bytes of a value that are requested at a time over one connection.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Pieces that are requested at a time over one connection, so that it is not idle between two; as many more
/// of each copy that may still be arriving at the sender.
pub const PIECES_ASKED: usize = 2;

/// Pieces that a peer may ask for at a time over one connection; with more it is broken.
pub const PIECES_MAX: usize = 64;

/// Values from this length on (bytes) come over several connections from a far node.
pub const WIDE_BYTES: u64 = 16 << 20;

/// Data connections from one far node.
pub const DATA_CONNECTIONS: usize = 4;

/// A node is far if a round trip takes this long (nanoseconds): the kernel keeps about 4 MB of a connection
/// in flight, which is less than a fast network carries meanwhile.
pub const FAR_NANOS: u64 = 10_000_000;

/// Data connections that a node accepts from all others.
pub const DATA_CONNECTIONS_MAX: usize = 4096;

/// A data connection without values ends after this time (nanoseconds).
pub const DATA_IDLE_NANOS: u64 = 10_000_000_000;

/// A node that cannot be reached for this long (nanoseconds) is taken not to have the values wanted from it.
pub const DATA_PATIENCE_NANOS: u64 = 30_000_000_000;

/// Longest message on a data connection (bytes), those that carry values excepted.
pub const DATA_MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Bytes of a value that are lent at a time. Two threads copy so much, and whoever closes the value waits for
/// that.
pub const LENT_BYTES: u64 = 16 << 20;

/// Connections over which a node lends its memory at a time: over further ones it sends the bytes.
pub const LENDING_CELLS: usize = 512;

/// Bytes of the name by which two nodes find that they share a machine.
pub const MACHINE_BYTES_MAX: usize = 256;

const _: () = assert!(2 * PIECES_ASKED <= PIECES_MAX);
const _: () = assert!(DATA_CONNECTIONS <= DATA_CONNECTIONS_MAX);
const _: () = assert!(WIDE_BYTES >= 2 * PIECE_BYTES);

/// Values whose copies and receivers one owner directs at a time; the others are pulled from the place they
/// were made at.
pub const BROADCASTS_MAX: usize = 1 << 16;

/// A complete copy of a value up to this size (bytes) is sent to several receivers at once, because a chain
/// of them would cost more in latency than it saves in bandwidth.
pub const BROADCAST_SMALL_BYTES: u64 = 256 << 10;

/// Receivers of such a copy at once.
pub const BROADCAST_SMALL_RECEIVERS: u32 = 4;

/// Bytes of the command that starts the workers of a job; it holds the search path of the driver.
pub const JOB_COMMAND_BYTES_MAX: usize = 1 << 20;

/// Conditions of one selector: each is compared with each label of a node when work is placed.
pub const LABEL_TERMS_MAX: usize = 64;

/// Values that one condition on a label may list.
pub const LABEL_VALUES_MAX: usize = 64;

/// Bundles of one placement group: placing them takes time that grows with their number times that of the
/// nodes.
pub const GROUP_BUNDLES_MAX: usize = 10_000;

/// Placement groups at a time. Each costs about a KiB in the control service, and a program that makes more
/// forgets to remove them.
pub const GROUPS_MAX: usize = 100_000;

/// Placement groups that were removed and are remembered, for those who look at the state.
pub const GROUPS_ENDED_MAX: usize = 256;

/// How long the control service waits until every node has prepared its bundles (nanoseconds).
pub const PREPARE_NANOS: u64 = 1_000_000_000;

/// Pause before the bundles of a group are prepared again after a node refused (nanoseconds); it doubles each
/// time.
pub const PREPARE_PAUSE_NANOS: u64 = 10_000_000;

/// The longest such pause (nanoseconds).
pub const PREPARE_PAUSE_NANOS_MAX: u64 = 1_000_000_000;

/// How long a node keeps prepared bundles without a message before it asks what becomes of them
/// (nanoseconds).
pub const PREPARED_NANOS: u64 = 10_000_000_000;

const _: () = assert!(PREPARED_NANOS > PREPARE_NANOS + PREPARE_PAUSE_NANOS_MAX);
const _: () = assert!(INLINE_BYTES_DEFAULT < LINK_BUFFER_BYTES_MAX);
const _: () = assert!(LINK_BUFFER_BYTES_MAX < FRAME_BODY_BYTES_MAX);
const _: () = assert!(LEASE_SLICE_NANOS > LEASE_BACKLOG_NANOS);
const _: () = assert!(LEASE_IDLE_NANOS > LEASE_SLICE_NANOS);
const _: () = assert!(PROGRESS_CELLS > WORKERS_MAX);
