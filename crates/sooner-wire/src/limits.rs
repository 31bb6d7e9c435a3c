//! Limits that several rooms share, or that say how large what others send may be: each with its unit and its
//! reason, and assertions on how they relate.
//!
//! A limit that concerns one module alone stands in that module. Nothing here is read from the environment.

/// Bytes of one frame's body. Larger values travel through shared memory; this bounds what a garbled length
/// can make a reader allocate.
pub const FRAME_BODY_BYTES_MAX: usize = 512 << 20;

/// Values up to this size (bytes) travel inside messages; larger ones go to shared memory. Default; a session
/// may choose another one.
pub const INLINE_BYTES_DEFAULT: usize = 100 << 10;

/// Arguments of one call (bytes) that travel inside its message together: beyond, they lie in shared memory,
/// each for itself, as if they were larger. Keeps the message far from [`FRAME_BODY_BYTES_MAX`], and calls
/// that wait from filling the heap.
pub const CALL_INLINE_BYTES_MAX: u64 = 1 << 20;

/// TasksReturned values of one task (bytes) that travel inside its reply together, if there are several. They
/// stay in the heap of their owner: what a shuffle takes apart into small pieces has to be as bounded as one
/// value is.
pub const REPLY_INLINE_BYTES_MAX: u64 = INLINE_BYTES_DEFAULT as u64;

/// Values among the arguments of one call (bytes) that lie with their owner and travel in its message. There
/// is no other way for them, so that a call with more of them is refused.
pub const CALL_VALUES_BYTES_MAX: u64 = FRAME_BODY_BYTES_MAX as u64 / 2;

/// But values up to this size (bytes) travel inside messages however many they are: an entry for one takes
/// half as much.
pub const SMALL_INLINE_BYTES: u64 = 512;

/// Encoded frames waiting for one socket (bytes) before task pushes to it wait in their own queue.
pub const LINK_BUFFER_BYTES_MAX: usize = 4 << 20;

/// What the node has said to a process of its machine and that has not read (bytes): beyond, it is cut off.
/// One message of any size fits, and what a process that is stopped for a minute hears meanwhile.
pub const CLIENT_UNREAD_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX + 16 * LINK_BUFFER_BYTES_MAX;

/// Work (estimated nanoseconds) pushed ahead to one leased worker. Deep enough that a worker never waits for
/// its next small task, shallow enough that a waiting task is not held up behind others for long.
pub const LEASE_BACKLOG_NANOS: u64 = 2_000_000;

/// Arguments in memory of the tasks that are sent ahead to a worker take one part in so many of the store at
/// most, and so many bytes.
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

/// A lease that others wait for is kept this long (nanoseconds) while it has work: long enough that handing
/// it over costs little beside the work done.
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

/// How long a node that could start no workers for something is left out, from the last such refusal on
/// (nanoseconds): longer than the next node needs to refuse, too, so that what no node can begin fails.
pub const REFUSAL_NANOS: u64 = 2 * START_PATIENCE_NANOS;

/// The longest pause before the start of a worker is tried again for which something of the machine was
/// missing (nanoseconds): what others give back is to be used soon.
pub const START_PAUSE_NANOS_MAX: u64 = 1_000_000_000;

/// Pause before a task whose worker crashed twice is tried again (nanoseconds); it doubles with each further
/// crash.
pub const RETRY_PAUSE_NANOS: u64 = 50_000_000;

/// The longest such pause (nanoseconds): a task that may be retried for ever costs a process every so often.
pub const RETRY_PAUSE_NANOS_MAX: u64 = 5_000_000_000;

/// How often a task is executed again after its node stopped it because memory ran out. With the pauses
/// between them that is most of a minute, in which other work may end.
pub const MEMORY_RETRIES_MAX: u8 = 15;

/// Into how many parts the memory of a node is divided when the reservation of a task is raised: as many more
/// shapes there can be.
pub const MEMORY_RESERVATION_STEPS: u64 = 16;

/// Functions of which a node knows how much memory their tasks took.
pub const MEMORY_PEAKS_MAX: usize = 4096;

/// An idle pooled worker beyond the number of CPUs ends after this time (nanoseconds).
pub const WORKER_IDLE_NANOS: u64 = 2_000_000_000;

/// Blocks of shared memory that one process keeps for itself after freeing them (bytes): warm pages to reuse
/// without asking the node.
pub const BLOCK_CACHE_BYTES: u64 = 64 << 20;

/// Blocks for which a process may ask together with one that it needs now, because it is about to need them:
/// as many values, and as many bytes. Together they are a small part of what it may keep for itself.
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

/// What a machine, or a control group, keeps when the store asks it for pages (bytes): processes need memory
/// to go on.
pub const STORE_SPARE_BYTES: u64 = 64 << 20;

/// Pages of a store that are reserved at a time (bytes), if there are as many: small values share one call.
pub const STORE_EXTENT_BYTES: u64 = 8 << 20;

/// Pages that an idle store keeps, warm for the next values (bytes).
pub const STORE_WARM_BYTES: u64 = 256 << 20;

/// Pages beyond those go back to the machine when nothing has needed them for so long (nanoseconds), or twice
/// as long.
pub const STORE_IDLE_NANOS: u64 = 10_000_000_000;

/// Pages that are given back, or reserved, in one call (bytes): some 20 ms of the node's loop.
pub const STORE_RELEASE_BYTES: u64 = 64 << 20;

/// Pages that are reserved in one round of the node's loop (bytes), some 100 ms: for more, whoever creates
/// the object asks again.
pub const STORE_RESERVE_BYTES: u64 = 256 << 20;

/// Processes that an error about a full store names.
pub const HOLDERS_NAMED_MAX: usize = 5;

/// Bytes of a process's title in such an error.
pub const HOLDER_TITLE_BYTES_MAX: usize = 80;

/// Tasks and calls that one process may have pending before its submissions wait, unless the session says
/// otherwise. Each takes about 650 bytes and its arguments.
pub const PENDING_TASKS_DEFAULT: usize = 2_000_000;

/// How long a submission beyond that waits while nothing at all ends (nanoseconds). Then it goes through, and
/// with it one part in [`PENDING_STEP`] of the limit, or [`PENDING_STEP`]: what is pending may wait for what
/// this thread will do.
pub const PENDING_PATIENCE_NANOS: u64 = 10_000_000_000;
/// See [`PENDING_PATIENCE_NANOS`].
pub const PENDING_STEP: usize = 16;

const _: () = assert!(STORE_RELEASE_BYTES <= STORE_RESERVE_BYTES && STORE_EXTENT_BYTES < STORE_RESERVE_BYTES);
const _: () = assert!(STORE_EXTENT_BYTES <= STORE_RELEASE_BYTES && STORE_RELEASE_BYTES <= STORE_WARM_BYTES);

/// Progress cells at the start of the arena: one per worker slot.
pub const PROGRESS_CELLS: usize = WORKERS_MAX + 96;

/// How long an actor waits for its replies to leave before it takes a checkpoint (nanoseconds). A caller that
/// reads nothing for so long holds up others no further: the checkpoint is taken later.
pub const CHECKPOINT_FLUSH_NANOS: u64 = 1_000_000_000;

/// Longest chain of names, messages and the like in error texts (bytes).
pub const ERROR_TEXT_BYTES_MAX: usize = 64 << 10;

/// Functions and classes of one process whose code it keeps, because it may be asked for it at any time: with
/// the next, the user is told that the program makes ever new ones.
pub const FUNCTIONS_TOLD: usize = 10_000;

/// Bytes of the names that the events of one process refer to: a share (one in so many) of the events' own
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

/// Rows per table and process, and events per process, that are told to another node: what a link is held up
/// by.
pub const REPORT_ROWS_AWAY_MAX: u32 = 10_000;
/// See [`REPORT_ROWS_AWAY_MAX`].
pub const REPORT_EVENTS_AWAY_MAX: u32 = 100_000;

/// Words to another node that may wait (bytes) before processes' answers to its questions are left out.
pub const REPORT_AWAY_BYTES_MAX: usize = 32 << 20;

/// Files that one answer lists, and bytes of one file and of all that it tells.
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

/// Processes that ended and are remembered, with the reason; and as many actors.
pub const ENDED_MAX: usize = 256;

/// Descriptions of finished tasks that a process keeps so that their results can be computed again (bytes),
/// unless the session says otherwise: a million small ones.
pub const LINEAGE_BYTES: usize = 1 << 30;

/// Bytes of a new connection that are looked at before it is known for whom it is. A hello of sooner takes
/// about 300.
pub const PEEK_BYTES: usize = 4 << 10;

/// How long a new connection may take to say for whom it is (nanoseconds).
pub const PEEK_NANOS: u64 = 1_000_000_000;

/// New connections that have not said yet for whom they are; when one more comes the oldest is closed.
pub const PEEKS_MAX: usize = 64;

/// How long two processes may take to prove to each other who they are (nanoseconds): the one that was
/// dialled may be busy with a task.
pub const HANDSHAKE_NANOS: u64 = 10_000_000_000;

/// Connections of a head, and of a node, whose peers have not proved yet who they are; when one more comes
/// the oldest is closed. As many again of addresses from which somebody has proved it before.
pub const HANDSHAKES_MAX: usize = 64;

/// How many of them one address may have before a further one closes its own oldest.
pub const HANDSHAKES_OF_ADDRESS_MAX: usize = 16;

/// Addresses that are remembered because somebody there has proved to be of the cluster.
pub const PROVEN_MAX: usize = 4096;

/// Lines about strangers, and other lines that outsiders can cause, within a second in a node's log; the rest
/// is counted.
pub const NOTES_MAX: u32 = 10;

/// Time in which the head must answer a node that joins (nanoseconds).
pub const JOIN_NANOS: u64 = 10_000_000_000;

/// How long a probe of a node's port waits for an answer (nanoseconds).
pub const PROBE_NANOS: u64 = 1_000_000_000;

/// Pause before a head that is not there is dialled again: the first, and the longest (nanoseconds).
pub const REDIAL_NANOS: u64 = 50_000_000;
/// See [`REDIAL_NANOS`].
pub const REDIAL_NANOS_MAX: u64 = 1_000_000_000;

/// Longest version of Python that a peer may claim to run (bytes).
pub const PYTHON_VERSION_BYTES_MAX: usize = 32;

const _: () = assert!(PEEK_NANOS < HANDSHAKE_NANOS);

/// Bytes received over a session before they are acknowledged at once: a small part of what the sender may
/// retain.
pub const ACK_BYTES: u64 = 256 << 10;

/// How long what was received waits for its acknowledgement (nanoseconds): long enough that an answer and an
/// acknowledgement are not two messages each, short enough that a flush that waits for it is not felt.
pub const ACK_NANOS: u64 = 20_000_000;

/// A connection between machines ends when nothing of the other one was heard for this time (nanoseconds):
/// short enough that an outage of some seconds is over for those who wait when it is over, long enough for a
/// machine that is very busy.
pub const SILENCE_NANOS: u64 = 2_000_000_000;

/// A connection over which nothing was said for this time (nanoseconds) is probed by the kernel, and again
/// after as long.
pub const PROBE_IDLE_NANOS: u64 = 1_000_000_000;

/// A session without a connection ends after this time (nanoseconds), although both nodes live: every wait
/// ends. Together with [`SILENCE_NANOS`] before and [`SEVERED_NANOS`] behind it, nobody waits for longer than
/// 30 s.
pub const LINK_PATIENCE_NANOS: u64 = 25_000_000_000;

/// How long a process whose session with another one has ended waits for word of that one's end
/// (nanoseconds), before it takes it for gone.
pub const SEVERED_NANOS: u64 = 2_000_000_000;

/// Pause before a connection is dialled again (nanoseconds); it doubles with each failure.
pub const REDIAL_PAUSE_NANOS: u64 = 10_000_000;

/// The longest such pause (nanoseconds). A connection that stood for so long counts as a good one.
pub const REDIAL_PAUSE_NANOS_MAX: u64 = 1_000_000_000;

/// What all sessions of one process retain together (bytes) before each is held to its share.
pub const LINKS_BUFFER_BYTES_MAX: u64 = 256 << 20;

/// What a session may retain in any case (bytes): none stands still because others are slow.
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

/// Pairs of a process and a node that hears of its end, in one node.
pub const WATCHES_MAX: usize = 1 << 20;

/// Ends of processes of other nodes that one node has not answered for yet.
pub const DEATHS_MAX: usize = 4096;

/// What was held of processes whose deaths are settled, and that a node could say again (entries in all).
pub const HELD_MAX: usize = 1 << 16;

/// Leases and actors that wait in one node until it knows their jobs.
pub const GUEST_ORDERS_MAX: usize = 1024;

/// How long they wait (nanoseconds): the control service may be starting again.
pub const GUEST_JOB_NANOS: u64 = 30_000_000_000;

/// How long a question to a control service that is away waits (nanoseconds).
pub const CONTROL_AWAY_NANOS: u64 = 30_000_000_000;

/// Words to a control service that is away (bytes): beyond, questions to it are answered with an error.
pub const CONTROL_BUFFER_BYTES_MAX: usize = 4 << 20;

/// Connections that one node dials for its processes at a time, and how long each may take (nanoseconds).
pub const DIALS_MAX: usize = 256;
/// See [`DIALS_MAX`].
pub const DIAL_NANOS: u64 = 2_000_000_000;

/// Connections of one process to processes of other nodes: each costs two descriptors and a share of memory.
pub const REMOTE_LINES_MAX: usize = 2048;

/// How long what the node says waits behind the end of a connection to a process that is gone (nanoseconds):
/// what that process said before its end counts.
pub const HOLD_NANOS: u64 = 200_000_000;

/// Words of one node to another one whose connection is not there yet (bytes): beyond, requests for leases
/// are given up.
pub const NODE_QUEUE_BYTES_MAX: usize = 1 << 20;

/// How long a request waits in another node before it is refused or taken back (nanoseconds).
pub const LENT_NANOS: u64 = 100_000_000;

/// What the workers of one job on one node have printed and the driver's node has not taken (bytes); then
/// they wait.
pub const LINES_UNTAKEN_BYTES_MAX: u64 = 1 << 20;

const _: () = assert!(HOLD_NANOS < LINK_PATIENCE_NANOS);
const _: () = assert!(DIAL_NANOS < HANDSHAKE_NANOS);

// Nodes and the control service.

/// Nodes of one cluster, together with the drivers that are nodes of their own.
pub const NODES_MAX: usize = 10_000;

/// Nodes that are gone and of which every node tells those who look at the state: the latest.
pub const NODES_GONE_LISTED_MAX: usize = 100;

/// Nodes that are gone and are remembered by their ids.
pub const NODES_GONE_MAX: usize = 10_000;

/// Time between two heartbeats of a node (nanoseconds).
pub const HEARTBEAT_NANOS: u64 = 500_000_000;

/// Silence after which a node is gone (nanoseconds), unless the cluster is set up otherwise: nine heartbeats
/// may be lost.
pub const HEALTH_TIMEOUT_NANOS: u64 = 5_000_000_000;

/// The shortest and the longest such silence that a cluster may be set up with (nanoseconds).
pub const HEALTH_TIMEOUT_NANOS_MIN: u64 = 1_000_000_000;
/// See [`HEALTH_TIMEOUT_NANOS_MIN`].
pub const HEALTH_TIMEOUT_NANOS_MAX: u64 = 60_000_000_000;

/// How long a node that nobody can dial may be without a connection (nanoseconds).
pub const RESUME_GRACE_NANOS: u64 = 2_000_000_000;

/// A node that is so far behind (nanoseconds) in [`SLOW_BEATS`] heartbeats in a row is called slow, until it
/// is not in as many.
pub const SLOW_LAG_NANOS: u64 = 1_000_000_000;
/// See [`SLOW_LAG_NANOS`].
pub const SLOW_BEATS: u8 = 3;

/// Blocks in one message that hands them over.
pub const HAND_OVER_MAX: usize = 4096;

/// How long a node that is to end waits for the head's word on what is to be moved (nanoseconds): the head
/// may be away.
pub const DRAIN_WORD_NANOS: u64 = 500_000_000;

/// The longest time that a node may take to drain (nanoseconds).
pub const DRAIN_NANOS_MAX: u64 = 3_600_000_000_000;

/// News of the same kind about nodes, and a node's own reports, are this far apart (nanoseconds): what
/// changes in between is told once.
pub const VIEW_NANOS: u64 = 50_000_000;

/// Nodes up to which everybody is told what everybody has free; above, nodes ask.
pub const VIEW_NODES_MAX: usize = 64;

/// Nodes in one answer to who could serve a request.
pub const CANDIDATES_MAX: usize = 16;

/// A node asks again who could serve what it has no room for after this time (nanoseconds), and then after
/// twice as long each time, up to [`FIND_NODES_NANOS_MAX`]: a cluster that is full is not asked by everybody
/// all the time.
pub const FIND_NODES_NANOS: u64 = 100_000_000;

/// The longest time between two such questions (nanoseconds).
pub const FIND_NODES_NANOS_MAX: u64 = 1_600_000_000;

/// An answer counts for this long (nanoseconds): nobody puts it right.
pub const CANDIDATES_NANOS: u64 = 1_000_000_000;

/// Nodes that are looked at for such an answer, unless fewer than were asked for are among them: about 100
/// us.
pub const CANDIDATES_SCANNED_MAX: usize = 1024;

/// Bundles of placement groups in one report of a node: what the rest has free is not told.
pub const BUNDLES_REPORTED_MAX: usize = 256;

/// For how long an actor that a node was asked for is not asked back (nanoseconds): as long as a lease that
/// was asked for there.
pub const RECALL_NANOS: u64 = 100_000_000;

/// An actor that was asked back, and that its node neither gave back nor began, is asked back again after so
/// long (nanoseconds).
pub const RECALL_AGAIN_NANOS: u64 = 1_000_000_000;

/// Shapes that wait, in one report of a node: those in excess are those that fewest wait for.
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

/// Pieces of [`STORE_VALUE_BYTES_MAX`] in which what an actor's process is told is stored: with its other
/// records they are one batch. Larger arguments are put into shared memory.
pub const CREATION_PIECES_MAX: u32 = 64;

/// Changes that the control store remembers for those who watch it; who is further behind begins anew.
pub const STORE_HISTORY_MAX: usize = 4096;

/// Batches that wait to be written; whoever has more waits, or is told that the store cannot follow.
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

/// A value of another node that finds no room in the store is given up when nothing was freed for so long
/// (nanoseconds).
pub const PULL_ROOM_NANOS: u64 = 30_000_000_000;

/// Who creates a value for which room is on its way has the node's answer after so long at the latest
/// (nanoseconds).
pub const CREATION_WAIT_NANOS: u64 = 100_000_000;

/// What is to be brought here, and has no room, is tried again so long after it was told that values are
/// being brought elsewhere (nanoseconds).
pub const MOVES_PAUSE_NANOS: u64 = 20_000_000;

/// ... and so long after it was told that there is none, although nothing was freed: a reader may have ended
/// (nanoseconds).
pub const PULL_AGAIN_NANOS: u64 = 500_000_000;

/// How long nothing may become free in a store in which nothing can go anywhere (nanoseconds) before values
/// go to the file behind it: most tasks are shorter, and memory is faster than a file.
pub const STUCK_NANOS: u64 = 1_000_000_000;
/// The same while values are on their way elsewhere: a disk may be slow.
pub const STUCK_MOVING_NANOS: u64 = 10_000_000_000;
const _: () = assert!(STUCK_NANOS < STUCK_MOVING_NANOS && STUCK_MOVING_NANOS < PULL_ROOM_NANOS);

/// What could not be written to disk is tried again after so long at first (nanoseconds).
pub const SPILL_RETRY_NANOS: u64 = 1_000_000_000;

/// ... and at last.
pub const SPILL_RETRY_NANOS_MAX: u64 = 30_000_000_000;

/// One part in so many of a node's store may be taken by values on their way from other nodes.
pub const PULL_SHARE: u64 = 4;

/// Bytes of a value that travel in one piece: what a connection holds back from others.
pub const CHUNK_BYTES_MAX: u32 = 256 << 10;

/// Bytes of a value that are asked for at a time over one connection.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Pieces that a connection is asked for at a time, so that it does not stand still between two; as many more
/// of each copy that may still be arriving where it is asked for.
pub const PIECES_ASKED: usize = 2;

/// Pieces that a peer may ask for at a time over one connection; with more it is broken.
pub const PIECES_MAX: usize = 64;

/// Values from this length on (bytes) come over several connections from a node that is far.
pub const WIDE_BYTES: u64 = 16 << 20;

/// Connections for values from one node that is far.
pub const DATA_CONNECTIONS: usize = 4;

/// A node is far if the way there and back takes so long (nanoseconds): the kernel keeps about 4 MB of a
/// connection on its way, which is less than a fast network carries meanwhile.
pub const FAR_NANOS: u64 = 10_000_000;

/// Connections for values that a node takes, of all others.
pub const DATA_CONNECTIONS_MAX: usize = 4096;

/// A connection for values ends after so long without any (nanoseconds).
pub const DATA_IDLE_NANOS: u64 = 10_000_000_000;

/// A node from which values are wanted and that cannot be reached for so long (nanoseconds) does not have
/// them.
pub const DATA_PATIENCE_NANOS: u64 = 30_000_000_000;

/// Longest message on a connection for values (bytes), those that carry values excepted.
pub const DATA_MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Bytes of a value that are lent at a time. Two threads copy so much, and whoever closes the value waits for
/// that.
pub const LENT_BYTES: u64 = 16 << 20;

/// Connections over which a node lends its memory at a time: over others its bytes are sent.
pub const LENDING_CELLS: usize = 512;

/// Bytes of the name by which two nodes find that they are on one machine.
pub const MACHINE_BYTES_MAX: usize = 256;

const _: () = assert!(2 * PIECES_ASKED <= PIECES_MAX);
const _: () = assert!(DATA_CONNECTIONS <= DATA_CONNECTIONS_MAX);
const _: () = assert!(WIDE_BYTES >= 2 * PIECE_BYTES);

/// Values whose copies and receivers one owner directs at a time; the others are pulled from the place they
/// were made at.
pub const BROADCASTS_MAX: usize = 1 << 16;

/// A complete copy of a value of so many bytes or fewer is sent to several receivers at once, because a chain
/// of them would cost more in latency than it saves in bandwidth.
pub const BROADCAST_SMALL_BYTES: u64 = 256 << 10;

/// To so many.
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

/// How long a node keeps prepared bundles without a word before it asks what becomes of them (nanoseconds).
pub const PREPARED_NANOS: u64 = 10_000_000_000;

const _: () = assert!(PREPARED_NANOS > PREPARE_NANOS + PREPARE_PAUSE_NANOS_MAX);
const _: () = assert!(INLINE_BYTES_DEFAULT < LINK_BUFFER_BYTES_MAX);
const _: () = assert!(LINK_BUFFER_BYTES_MAX < FRAME_BODY_BYTES_MAX);
const _: () = assert!(LEASE_SLICE_NANOS > LEASE_BACKLOG_NANOS);
const _: () = assert!(LEASE_IDLE_NANOS > LEASE_SLICE_NANOS);
const _: () = assert!(PROGRESS_CELLS > WORKERS_MAX);
