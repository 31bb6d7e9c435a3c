//! Combining arrays element by element: what a reduction does to the bytes of values.
//!
//! This module never decides what is combined with what. It folds arrays in the order in which they are
//! given, so equal arrays give equal bytes. Results are those of NumPy: whole numbers wrap around, 16-bit
//! floats are rounded after each step, and `Min` and `Max` keep NaN.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::copy::threads_for;

/// How two elements become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Sum,
    Prod,
    Min,
    Max,
}

/// What an array holds, in the byte order of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    F16,
    Bf16,
    F32,
    F64,
    I32,
    I64,
}

impl Element {
    /// Size (bytes).
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}

/// So many bytes of the result are finished before the next ones: they stay in the first-level cache, so each
/// source is read from memory once, and the result is written once.
const BLOCK_BYTES: usize = 16 << 10;

/// 16-bit floats that are widened at once, on the stack.
const WIDENED: usize = 256;

/// Folds `sources` into `into`, from the first to the last, with as many threads as help.
///
/// `keeps`: `into` has a value, and the sources are added to it. Otherwise it becomes the fold of the
/// sources.
///
/// # Panics
/// When the arrays differ in length, the length is no multiple of the element, or there is nothing to fold.
pub fn fold(op: Op, element: Element, into: &mut [u8], keeps: bool, sources: &[&[u8]]) {
    let length = into.len();
    assert!(sources.iter().all(|source| source.len() == length), "arrays of one length");
    assert!(length.is_multiple_of(element.bytes()), "whole elements");
    assert!(keeps || !sources.is_empty(), "something to fold");
    let threads = threads_for(length.saturating_mul(sources.len()));
    // An empty array has a part, too: chunks of no bytes do not exist.
    let part = length.div_ceil(threads).next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
    std::thread::scope(|scope| {
        let mut parts = into.chunks_mut(part).enumerate();
        let own = parts.next();
        for (number, into) in parts {
            scope.spawn(move || fold_part(op, element, into, keeps, sources, number * part));
        }
        if let Some((number, into)) = own {
            fold_part(op, element, into, keeps, sources, number * part);
        }
    });
}

/// Folds what one thread folds: the bytes of the sources from `begin` on.
fn fold_part(op: Op, element: Element, into: &mut [u8], keeps: bool, sources: &[&[u8]], begin: usize) {
    for (number, block) in into.chunks_mut(BLOCK_BYTES).enumerate() {
        let from = begin + number * BLOCK_BYTES;
        let range = from..from + block.len();
        let mut parts = sources.iter().map(|source| &source[range.clone()]);
        if !keeps && let Some(first) = parts.next() {
            block.copy_from_slice(first);
        }
        parts.for_each(|part| combine(op, element, block, part));
    }
}

/// Combines elements that are as wide in memory as in a register. Each operation has a loop of its own, of
/// which the compiler makes vector instructions.
macro_rules! lanes {
    ($kind:ty, $op:expr, $into:expr, $from:expr, $sum:expr, $prod:expr, $min:expr, $max:expr) => {{
        fn each(into: &mut [u8], from: &[u8], combined: impl Fn($kind, $kind) -> $kind) {
            for (into, from) in into.as_chunks_mut().0.iter_mut().zip(from.as_chunks().0) {
                *into = combined(<$kind>::from_ne_bytes(*into), <$kind>::from_ne_bytes(*from)).to_ne_bytes();
            }
        }
        match $op {
            Op::Sum => each($into, $from, $sum),
            Op::Prod => each($into, $from, $prod),
            Op::Min => each($into, $from, $min),
            Op::Max => each($into, $from, $max),
        }
    }};
}

fn combine(op: Op, element: Element, into: &mut [u8], from: &[u8]) {
    match element {
        Element::F16 => halves::<f16>(op, into, from),
        Element::Bf16 => halves::<bf16>(op, into, from),
        Element::F32 => lanes!(f32, op, into, from, |a, b| a + b, |a, b| a * b, least, greatest),
        Element::F64 => lanes!(f64, op, into, from, |a, b| a + b, |a, b| a * b, least, greatest),
        Element::I32 => lanes!(i32, op, into, from, i32::wrapping_add, i32::wrapping_mul, Ord::min, Ord::max),
        Element::I64 => lanes!(i64, op, into, from, i64::wrapping_add, i64::wrapping_mul, Ord::min, Ord::max),
    }
}

/// Divides every element of an array of floats by a number. Each quotient is rounded once.
///
/// # Panics
/// When the elements are no floats.
pub fn divide(element: Element, into: &mut [u8], by: f64) {
    #[allow(clippy::cast_possible_truncation)] // as precise as the elements
    let narrow = by as f32;
    match element {
        Element::F16 => each_half::<f16>(into, |values| values.iter_mut().for_each(|value| *value /= narrow)),
        Element::Bf16 => {
            each_half::<bf16>(into, |values| values.iter_mut().for_each(|value| *value /= narrow))
        }
        Element::F32 => {
            for lane in into.as_chunks_mut().0 {
                *lane = (f32::from_ne_bytes(*lane) / narrow).to_ne_bytes();
            }
        }
        Element::F64 => {
            for lane in into.as_chunks_mut().0 {
                *lane = (f64::from_ne_bytes(*lane) / by).to_ne_bytes();
            }
        }
        Element::I32 | Element::I64 => panic!("whole numbers are not divided"),
    }
}

/// The smaller one, or the one that is no number.
#[allow(clippy::eq_op)] // NaN alone differs from itself
fn least<T: Copy + PartialOrd>(a: T, b: T) -> T {
    if a < b || a != a { a } else { b }
}

/// The greater one, or the one that is no number.
#[allow(clippy::eq_op)] // as above
fn greatest<T: Copy + PartialOrd>(a: T, b: T) -> T {
    if a > b || a != a { a } else { b }
}

/// Combines 16-bit floats: in 32 bits, and rounded.
fn halves<H: Half>(op: Op, into: &mut [u8], from: &[u8])
where
    [H]: HalfFloatSliceExt,
{
    let mut sources = from.chunks(2 * WIDENED);
    each_half::<H>(into, |values| {
        let mut widened = [0.0; WIDENED];
        let source = &mut widened[..values.len()];
        widen::<H>(sources.next().unwrap_or_default(), source);
        let pairs = values.iter_mut().zip(source.iter().copied());
        match op {
            Op::Sum => pairs.for_each(|(value, other)| *value += other),
            Op::Prod => pairs.for_each(|(value, other)| *value *= other),
            // Of 0.0 and -0.0 NumPy takes the first one here, and the second one of larger floats.
            Op::Min => pairs.for_each(|(value, other)| {
                if *value != other {
                    *value = least(*value, other);
                }
            }),
            Op::Max => pairs.for_each(|(value, other)| {
                if *value != other {
                    *value = greatest(*value, other);
                }
            }),
        }
    });
}

/// A 16-bit float, which is computed with in 32 bits.
trait Half: Copy {
    const ZERO: Self;
    fn of(bits: u16) -> Self;
    fn bits(self) -> u16;
}

impl Half for f16 {
    const ZERO: Self = Self::ZERO;

    fn of(bits: u16) -> Self {
        Self::from_bits(bits)
    }

    fn bits(self) -> u16 {
        self.to_bits()
    }
}

impl Half for bf16 {
    const ZERO: Self = Self::ZERO;

    fn of(bits: u16) -> Self {
        Self::from_bits(bits)
    }

    fn bits(self) -> u16 {
        self.to_bits()
    }
}

/// Changes 16-bit floats in 32 bits, [`WIDENED`] at a time.
fn each_half<H: Half>(into: &mut [u8], mut change: impl FnMut(&mut [f32]))
where
    [H]: HalfFloatSliceExt,
{
    let mut widened = [0.0; WIDENED];
    let mut narrowed = [H::ZERO; WIDENED];
    for chunk in into.chunks_mut(2 * WIDENED) {
        let values = &mut widened[..chunk.len() / 2];
        widen::<H>(chunk, values);
        change(values);
        let halves = &mut narrowed[..values.len()];
        halves.convert_from_f32_slice(values);
        for (bytes, half) in chunk.as_chunks_mut().0.iter_mut().zip(halves) {
            *bytes = half.bits().to_ne_bytes();
        }
    }
}

fn widen<H: Half>(bytes: &[u8], to: &mut [f32])
where
    [H]: HalfFloatSliceExt,
{
    let mut halves = [H::ZERO; WIDENED];
    let halves = &mut halves[..to.len()];
    for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks().0) {
        *half = H::of(u16::from_ne_bytes(*bytes));
    }
    halves.convert_to_f32_slice(to);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|lane| f32::from_ne_bytes(*lane)).collect()
    }

    #[test]
    fn a_fold_goes_from_the_first_source_to_the_last() {
        // In another order the small ones would not be lost.
        let sources = [bytes(&[1e8]), bytes(&[1.0]), bytes(&[1.0]), bytes(&[-1e8])];
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let mut into = bytes(&[7.0]);
        fold(Op::Sum, Element::F32, &mut into, false, &sources);
        assert_eq!(floats(&into), [0.0]);
        let mut into = bytes(&[7.0]);
        fold(Op::Sum, Element::F32, &mut into, true, &[&bytes(&[1.0])]);
        assert_eq!(floats(&into), [8.0]);
    }

    #[test]
    fn what_is_no_number_stays_so_and_whole_numbers_wrap_around() {
        for op in [Op::Min, Op::Max] {
            let mut into = bytes(&[f32::NAN, 1.0, 1.0]);
            fold(op, Element::F32, &mut into, true, &[&bytes(&[1.0, f32::NAN, 1.0])]);
            let found = floats(&into);
            assert!(found[0].is_nan() && found[1].is_nan() && !found[2].is_nan());
        }
        let mut into = i32::MAX.to_ne_bytes();
        fold(Op::Sum, Element::I32, &mut into, true, &[&1i32.to_ne_bytes()]);
        assert_eq!(i32::from_ne_bytes(into), i32::MIN);
    }

    #[test]
    fn halves_are_rounded_after_each_step() {
        let half = |value: f32| f16::from_f32(value).to_bits().to_ne_bytes();
        let mut into = half(2048.0);
        // 2049 is no 16-bit float, and twice one half of its last place is lost twice.
        fold(Op::Sum, Element::F16, &mut into, true, &[&half(1.0), &half(1.0)]);
        assert_eq!(into, half(2048.0));
        divide(Element::F16, &mut into, 3.0);
        assert_eq!(into, half(2048.0 / 3.0));
    }

    #[test]
    fn zeros_of_either_sign_are_told_apart_as_in_numpy() {
        let half = |value: f32| f16::from_f32(value).to_bits().to_ne_bytes();
        for op in [Op::Min, Op::Max] {
            for (first, second) in [(0.0, -0.0), (-0.0, 0.0)] {
                let mut into = half(first);
                fold(op, Element::F16, &mut into, true, &[&half(second)]);
                assert_eq!(into, half(first));
                let mut into = bytes(&[first]);
                fold(op, Element::F32, &mut into, true, &[&bytes(&[second])]);
                assert_eq!(into, bytes(&[second]));
            }
        }
    }

    #[test]
    fn an_array_of_several_parts_and_blocks_is_whole() {
        let count = (12 << 20) / 8 + 3;
        let source: Vec<u8> = (0..count as i64).flat_map(i64::to_ne_bytes).collect();
        let mut into = vec![0xff; source.len()];
        fold(Op::Sum, Element::I64, &mut into, false, &[&source, &source, &source]);
        assert!(into.as_chunks().0.iter().zip(0i64..).all(|(lane, at)| i64::from_ne_bytes(*lane) == 3 * at));
        fold(Op::Sum, Element::I64, &mut [], false, &[&[]]);
    }

    proptest! {
        #[test]
        fn halves_of_any_number_are_combined_as_one_by_one(
            pairs in prop::collection::vec(any::<(u16, u16)>(), 0..700),
        ) {
            let of = |bits: Vec<u16>| bits.into_iter().flat_map(u16::to_ne_bytes).collect::<Vec<u8>>();
            let mut into = of(pairs.iter().map(|(a, _)| *a).collect());
            let from = of(pairs.iter().map(|(_, b)| *b).collect());
            fold(Op::Sum, Element::Bf16, &mut into, true, &[&from]);
            for ((a, b), found) in pairs.into_iter().zip(into.as_chunks().0) {
                let sum = bf16::from_f32(bf16::from_bits(a).to_f32() + bf16::from_bits(b).to_f32());
                let found = bf16::from_bits(u16::from_ne_bytes(*found));
                prop_assert!(found == sum || (found.is_nan() && sum.is_nan()));
            }
        }
    }
}
