//! How fast the control store writes: not a test, but what `docs/adr/0021` quotes. Run with
//! `--ignored --nocapture`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant as Clock;

use sooner_runtime::clock::now;
use sooner_runtime::control::commit::{Committer, Done};
use sooner_runtime::control::memory::Local;
use sooner_runtime::control::store::{Batch, Store};

const VALUE: [u8; 512] = [7; 512];

fn directory(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("sooner-speed-{name}-{}", std::process::id()))
}

fn print(what: &str, mut micros: Vec<u128>) {
    micros.sort_unstable();
    let at = |share: usize| micros[(micros.len() - 1) * share / 100];
    println!("{what}: p50 {} us, p99 {} us, n {}", at(50), at(99), micros.len());
}

/// What no store can be faster than here and now: the same bytes at the end of a file.
#[test]
#[ignore = "measures"]
fn a_floor() {
    let directory = directory("floor");
    std::fs::create_dir_all(&directory).expect("a directory");
    let mut file = std::fs::File::create(directory.join("log")).expect("a file");
    let times = (0..1_000)
        .map(|_| {
            let begun = Clock::now();
            file.write_all(&VALUE).and_then(|()| file.sync_data()).expect("writable");
            begun.elapsed().as_micros()
        })
        .collect();
    print("append and sync", times);
    std::fs::remove_dir_all(directory).expect("clean");
}

#[test]
#[ignore = "measures"]
fn commits() {
    for size in [1, 64, 1024] {
        let directory = directory("commits");
        let mut store = Local::open(&directory, now()).expect("a new store");
        let rounds = 1_000 / size.min(8);
        let times = (0..rounds)
            .map(|round| {
                let key = |number| format!("names/{:06}", (round * size + number) % 10_000);
                let batches: Vec<Batch> = (0..size).map(|number| Batch::put(&key(number), &VALUE)).collect();
                let begun = Clock::now();
                store.commit(&batches, now()).expect("writable");
                begun.elapsed().as_micros()
            })
            .collect();
        print(&format!("{size} batches in a commit"), times);
        let bytes = std::fs::metadata(directory.join("control.redb")).expect("there").len();
        drop(store);
        let begun = Clock::now();
        let store = Local::open(&directory, now()).expect("it is whole");
        let count = store.range("").expect("readable").len();
        println!("opened again in {} us: {count} records, {bytes} bytes", begun.elapsed().as_micros());
        drop(store);
        std::fs::remove_dir_all(directory).expect("clean");
    }
}

#[test]
#[ignore = "measures"]
fn the_thread() {
    for outstanding in [1u64, 16, 256, 1024] {
        let directory = directory("thread");
        let store = Local::open(&directory, now()).expect("a new store");
        let (done, outcomes) = mpsc::channel::<Done>();
        let on_done = move |group: Vec<Done>| group.into_iter().for_each(|one| done.send(one).expect("read"));
        let committer = Committer::start(Box::new(store), Box::new(on_done)).expect("a thread");
        let total = (outstanding * 20).clamp(500, 20_000);
        let mut begun = Vec::new();
        let mut times = Vec::new();
        let start = Clock::now();
        for number in 0..total {
            begun.push(Clock::now());
            let key = format!("names/{:06}", number % 10_000);
            committer.submit(number, Batch::put(&key, &VALUE)).expect("room");
            if number + 1 >= outstanding {
                let done = outcomes.recv().expect("an outcome");
                times.push(begun[usize::try_from(done.ticket).expect("small")].elapsed().as_micros());
            }
        }
        let rate = total * 1_000_000 / u64::try_from(start.elapsed().as_micros()).expect("short").max(1);
        print(&format!("{outstanding} outstanding, {rate} batches/s"), times);
        drop(committer.stop());
        std::fs::remove_dir_all(directory).expect("clean");
    }
}
