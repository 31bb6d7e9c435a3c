//! Every byte arrives once and in order, whatever the sizes of reads, writes and the socket.

use std::io::IoSlice;

use sooner_wire::WorkerId;
use sooner_wire::message::{Connect, Message, Refused};

use super::*;
use crate::poller::{Event, Events, Interest, Poller};

/// Numbers that look random: a linear congruential generator (Knuth's constants).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).expect("a byte")).collect()
}

fn streams() -> [Stream; 2] {
    let (at_a, at_b) = shake(&member(A, CLUSTER), B, &member(B, CLUSTER));
    [at_a, at_b].map(|end| {
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&end.stream, 32 << 10);
        Stream::Tls(Box::new(end.stream))
    })
}

fn unix() -> [Stream; 2] {
    let (a, b) = pair().expect("sockets");
    [Stream::Unix(a), Stream::Unix(b)]
}

/// Writes and reads in odd sizes, in turns, until all has arrived.
fn carry([a, b]: &[Stream; 2], sent: &[u8], numbers: &mut Numbers) {
    let (mut at, mut got, mut out) = (0, Vec::new(), vec![0; 200_000]);
    while got.len() < sent.len() {
        if at < sent.len() {
            let (first, second) = (1 + numbers.below(100_000), numbers.below(100_000));
            let middle = (at + first).min(sent.len());
            let parts = [&sent[at..middle], &sent[middle..(middle + second).min(sent.len())]];
            let written = if numbers.below(2) == 0 {
                a.write_vectored(&parts.map(IoSlice::new))
            } else {
                a.write(parts[0])
            };
            match written {
                Ok(bytes) => at += bytes,
                Err(error) => assert_eq!(error, Errno::AGAIN),
            }
        }
        a.flush().expect("open");
        let room_max = if numbers.below(2) == 0 { 100 } else { out.len() };
        let room = 1 + numbers.below(room_max);
        match b.read(&mut out[..room]) {
            Ok(bytes) => {
                assert!(bytes > 0, "not at its end");
                got.extend_from_slice(&out[..bytes]);
            }
            Err(error) => assert_eq!(error, Errno::AGAIN),
        }
    }
    assert!(got == sent, "all bytes in order");
    assert_eq!(a.flush(), Ok(true));
}

#[test]
fn bytes_arrive_in_order_whatever_the_sizes() {
    let sent = pattern(3_000_000);
    for seed in 0..4 {
        let streams = streams();
        carry(&streams, &sent, &mut Numbers(seed));
        let [a, b] = streams;
        carry(&[b, a], &sent, &mut Numbers(seed));
        carry(&unix(), &sent, &mut Numbers(seed));
    }
}

#[test]
fn a_reader_with_enough_room_leaves_nothing_behind() {
    let [a, b] = streams();
    let sent = pattern(50_000);
    assert_eq!(a.write(&sent), Ok(sent.len()));
    let mut out = vec![0; READ_BYTES_MAX];
    let mut got = Vec::new();
    while got.len() < sent.len() {
        match b.read(&mut out) {
            Ok(bytes) => got.extend_from_slice(&out[..bytes]),
            Err(_) => {
                a.flush().expect("open");
                continue;
            }
        }
        let Stream::Tls(tls) = &b else { panic!("made above") };
        assert!(!tls.leaves_something(), "{} bytes read", got.len());
    }
    assert_eq!(got, sent);
}

/// A process of a node, as its loop sees it: woken by its poller alone.
struct Process {
    stream: Stream,
    inlet: Inlet,
    outlet: Outlet,
    interest: Interest,
    heard: u64,
    is_full: bool,
}

impl Process {
    fn new(stream: Stream) -> Self {
        let (inlet, outlet) = (Inlet::default(), Outlet::default());
        Self { stream, inlet, outlet, interest: Interest::Read, heard: 0, is_full: true }
    }

    fn on_event(&mut self, event: Event) {
        if event.is_readable() {
            assert_ne!(self.inlet.read_stream(&self.stream), ReadResult::End);
            while let Some(received) = self.inlet.next_message().expect("frames") {
                match received.message {
                    Message::Connect(connect) => assert_eq!(connect.worker, WorkerId(self.heard)),
                    Message::Refused(refused) => assert_eq!(refused.reason.len(), 300_000),
                    other => panic!("{other:?} was not sent"),
                }
                self.heard += 1;
            }
        }
        self.flush();
    }

    fn flush(&mut self) {
        let flush = self.outlet.flush_stream(&self.stream);
        assert_ne!(flush, Flush::Gone);
        self.is_full = flush == Flush::Full;
    }
}

#[test]
fn an_epoll_loop_carries_frames_both_ways_and_never_spins() {
    const MESSAGES: u64 = 100_000;
    let (to_b, from_a) = tcp();
    for socket in [&to_b, &from_a] {
        rustix::net::sockopt::set_socket_send_buffer_size(socket, 32 << 10).expect("a size");
    }
    let name = Destination::Node.server_name(B);
    let dialled = TlsStream::dial(to_b, &member(A, CLUSTER), name);
    let accepted = TlsStream::accept(from_a, &member(B, CLUSTER));
    let mut processes = [dialled, accepted].map(|tls| Process::new(Stream::Tls(Box::new(tls))));
    let poller = Poller::new().expect("a descriptor");
    for (process, token) in processes.iter_mut().zip(0..) {
        for number in 0..MESSAGES {
            process.outlet.push(&Connect { worker: WorkerId(number) }.into());
        }
        process.outlet.push(&Refused { reason: "x".repeat(300_000) }.into());
        process.flush();
        process.interest = process.stream.interest(process.is_full);
        poller.add(&process.stream, token, process.interest).expect("watched");
    }
    let mut events = Events::with_capacity(8);
    let (mut wakes, mut idle) = (0_u32, 0_u32);
    while processes.iter().any(|process| process.heard <= MESSAGES || process.is_full) {
        let _ = poller.wait(&mut events, Some(20_000_000_000));
        assert!(!events.is_empty(), "nothing more happens");
        for event in &events {
            let token = event.token;
            let process = &mut processes[usize::try_from(token).expect("0 or 1")];
            let before = (process.heard, process.outlet.waiting());
            process.on_event(event);
            wakes += 1;
            idle += u32::from(before == (process.heard, process.outlet.waiting()));
            let interest = process.stream.interest(process.is_full);
            if interest != process.interest {
                process.interest = interest;
                poller.change(&process.stream, token, interest).expect("watched");
            }
        }
    }
    // Parts of a record move nothing that is seen here; a loop that spins would be idle a million times.
    assert!(idle < 1000 + wakes / 2, "{idle} of {wakes} wakes were for nothing");
}
