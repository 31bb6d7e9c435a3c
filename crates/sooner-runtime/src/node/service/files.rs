//! Which files of its directory a node shows: the output of workers, and the stacks that they wrote.
//!
//! No other file can be named. A part is bounded, so that the node's loop is not held up.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use sooner_wire::limits::{REPORT_FILE_BYTES_MAX, REPORT_FILES_BYTES_MAX, REPORT_FILES_MAX};
use sooner_wire::message::state::{FilePart, FileRow};
use sooner_wire::{Blob, NodeId};

const LOGS: &str = "logs";
const STACKS: &str = "stacks";

/// The parts of this node's files that are asked for; the list of logs if `parts` is empty.
pub(super) fn tell(directory: &Path, node: NodeId, parts: &[FilePart]) -> Vec<FileRow> {
    if parts.is_empty() {
        return list(directory);
    }
    let mut room = REPORT_FILES_BYTES_MAX;
    let mut told = Vec::new();
    for part in parts.iter().filter(|part| part.node == node).take(REPORT_FILES_MAX) {
        let row = named(&part.file).and_then(|name| read(directory, &name, part.offset, room));
        if let Some(row) = row {
            room -= row.text.as_slice().len() as u64;
            told.push(row);
        }
    }
    told
}

fn list(directory: &Path) -> Vec<FileRow> {
    let Ok(entries) = std::fs::read_dir(directory.join(LOGS)) else { return Vec::new() };
    let row = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let bytes = entry.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
        Some(FileRow { file: format!("{LOGS}/{name}"), bytes, offset: 0, text: Blob::default() })
    };
    let mut rows: Vec<FileRow> = entries.filter_map(row).take(REPORT_FILES_MAX).collect();
    rows.sort_by(|a, b| a.file.cmp(&b.file));
    rows
}

/// A file that may be asked for: directly in a directory that is shown.
fn named(file: &str) -> Option<String> {
    let (place, name) = file.split_once('/')?;
    let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    (is_plain && [LOGS, STACKS].contains(&place)).then(|| file.to_owned())
}

fn read(directory: &Path, file: &str, offset: u64, room: u64) -> Option<FileRow> {
    // Whatever lies there, opening and reading it must not wait.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened: File = rustix::fs::open(directory.join(file), flags, Mode::empty()).ok()?.into();
    let bytes = opened.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    // The file is a new one under the old name.
    let offset = if offset > bytes { 0 } else { offset };
    let length = (bytes - offset).min(REPORT_FILE_BYTES_MAX).min(room);
    let mut text = vec![0; usize::try_from(length).ok()?];
    let count = opened.read_at(&mut text, offset).ok()?;
    text.truncate(count);
    Some(FileRow { file: file.to_owned(), bytes, offset, text: Blob::from(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: NodeId = NodeId(1 << 24);

    fn part(node: NodeId, file: &str, offset: u64) -> FilePart {
        FilePart { node, file: file.to_owned(), offset }
    }

    #[test]
    fn logs_are_listed_and_read_and_nothing_else() {
        let directory = std::env::temp_dir().join(format!("sooner-files-{}", std::process::id()));
        std::fs::create_dir_all(directory.join(LOGS)).expect("a directory");
        std::fs::write(directory.join("secret"), "no").expect("a file");
        std::fs::write(directory.join("logs/worker-7.out"), "0123456789").expect("a file");
        let listed = tell(&directory, HERE, &[]);
        assert_eq!((listed[0].file.as_str(), listed[0].bytes, listed.len()), ("logs/worker-7.out", 10, 1));
        let parts = [
            part(HERE, "logs/worker-7.out", 4),
            part(HERE, "logs/worker-7.out", 11),
            part(NodeId(2 << 24), "logs/worker-7.out", 0),
            part(HERE, "secret", 0),
            part(HERE, "logs/../secret", 0),
            part(HERE, "logs/..", 0),
            part(HERE, "../secret", 0),
            part(HERE, "logs/", 0),
        ];
        let told = tell(&directory, HERE, &parts);
        let texts: Vec<(u64, &[u8])> = told.iter().map(|row| (row.offset, row.text.as_slice())).collect();
        assert_eq!(texts, [(4, &b"456789"[..]), (0, &b"0123456789"[..])]);
        std::fs::remove_dir_all(&directory).expect("it was there");
    }
}
