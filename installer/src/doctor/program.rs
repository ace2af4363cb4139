//! The smallest program that can show whether programs run, and end when they are asked to: two hundred bytes.
//!
//! In: a system, a token. Out: an ELF file that waits for SIGTERM and ends with status 0 when it comes, with another after
//! a minute without it: so what is left behind by a kill ends by itself. As the first process of a container it hears
//! SIGTERM too, for what is blocked is kept for whoever waits for it. The token behind the program, which nothing reads,
//! makes each of them a file, a layer and an image of its own. Not here: running it.
//!
//! It is put together here from a dozen instructions because nothing else is this small and needs neither a compiler, nor
//! a library, nor the right libc: it is written, packed and loaded in milliseconds, on the fullest of disks.

use mesh_protocol::id::System;

/// After which it ends by itself.
const SECONDS: u64 = 60;

/// Where it is loaded: elf(5) leaves the choice, and this is where linkers put programs.
const ADDRESS: u64 = 0x40_0000;

/// Both headers of an ELF file with one segment.
const HEADERS: u64 = 64 + 56;

/// SIGTERM alone: signal 15 is bit 14.
const SIGNALS: u64 = 1 << 14;

/// The program.
pub(super) fn program(system: System, token: &str) -> Vec<u8> {
    let code = match system {
        System::LinuxAmd64 => amd64(),
        System::LinuxArm64 => arm64(),
    };
    let machine: u16 = match system {
        System::LinuxAmd64 => 62,
        System::LinuxArm64 => 183,
    };
    let mut file = Vec::new();
    let length = HEADERS + code.len() as u64;
    // The file's header: 64 bits, little endian, version 1; a program for this processor, whose one segment is described
    // right behind.
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for half in [2, machine] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&1_u32.to_le_bytes());
    for long in [ADDRESS + HEADERS, 64, 0] {
        file.extend_from_slice(&long.to_le_bytes());
    }
    file.extend_from_slice(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    // The segment: all of the file but the token, read and executed, at an address that pages of any size can have.
    for word in [1_u32, 5] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for long in [0, ADDRESS, ADDRESS, length, length, 0x1_0000] {
        file.extend_from_slice(&long.to_le_bytes());
    }
    file.extend_from_slice(&code);
    file.extend_from_slice(token.as_bytes());
    file
}

/// What the instructions point to: the signals, and the time as seconds and nanoseconds.
fn data() -> Vec<u8> {
    [SIGNALS, SECONDS, 0].iter().flat_map(|long| long.to_le_bytes()).collect()
}

/// Where the time is in [`data`].
const TIME: i32 = 8;

/// `rt_sigprocmask(SIG_BLOCK, signals, 0, 8)`, `exit(15 ^ rt_sigtimedwait(signals, 0, time, 8))`.
fn amd64() -> Vec<u8> {
    const LENGTH: i32 = 72;
    let mut code = Vec::new();
    // A `lea` names what it points to by its distance from the instruction behind it.
    let lea = |code: &mut Vec<u8>, register: [u8; 3], place: i32| {
        code.extend_from_slice(&register);
        let behind = i32::try_from(code.len()).unwrap_or(0) + 4;
        code.extend_from_slice(&(LENGTH + place - behind).to_le_bytes());
    };
    code.extend_from_slice(b"\xb8\x0e\0\0\0"); // mov eax, 14
    code.extend_from_slice(b"\x31\xff"); // xor edi, edi
    lea(&mut code, [0x48, 0x8d, 0x35], 0); // lea rsi, [signals]
    code.extend_from_slice(b"\x31\xd2"); // xor edx, edx
    code.extend_from_slice(b"\x41\xba\x08\0\0\0"); // mov r10d, 8
    code.extend_from_slice(b"\x0f\x05"); // syscall
    code.extend_from_slice(b"\xb8\x80\0\0\0"); // mov eax, 128
    lea(&mut code, [0x48, 0x8d, 0x3d], 0); // lea rdi, [signals]
    code.extend_from_slice(b"\x31\xf6"); // xor esi, esi
    lea(&mut code, [0x48, 0x8d, 0x15], TIME); // lea rdx, [time]
    code.extend_from_slice(b"\x41\xba\x08\0\0\0"); // mov r10d, 8
    code.extend_from_slice(b"\x0f\x05"); // syscall
    code.extend_from_slice(b"\x83\xf0\x0f"); // xor eax, 15
    code.extend_from_slice(b"\x89\xc7"); // mov edi, eax
    code.extend_from_slice(b"\xb8\x3c\0\0\0"); // mov eax, 60
    code.extend_from_slice(b"\x0f\x05"); // syscall
    code.resize(usize::try_from(LENGTH).unwrap_or(0), 0x90); // nop
    code.extend(data());
    code
}

/// The same, with the numbers that arm64 has for these calls.
fn arm64() -> Vec<u8> {
    const LENGTH: u32 = 16 * 4;
    const CALL: u32 = 0xd400_0001; // svc #0
    const XOR_15: u32 = 0xd240_0c00; // eor x0, x0, #15
    let set = |register: u32, value: u32| 0xd280_0000 | value << 5 | register; // mov
    let mut words: Vec<u32> = Vec::new();
    // An `adr` names what it points to by its distance from itself; all distances here are multiples of four.
    let point = |words: &mut Vec<u32>, register: u32, place: u32| {
        let here = u32::try_from(words.len()).unwrap_or(0) * 4;
        words.push(0x1000_0000 | (LENGTH + place - here) >> 2 << 5 | register);
    };
    words.extend([set(8, 135), set(0, 0)]);
    point(&mut words, 1, 0);
    words.extend([set(2, 0), set(3, 8), CALL, set(8, 137)]);
    point(&mut words, 0, 0);
    words.push(set(1, 0));
    point(&mut words, 2, TIME.unsigned_abs());
    words.extend([set(3, 8), CALL, XOR_15, set(8, 93), CALL]);
    words.resize(16, 0xd503_201f); // nop
    words.iter().flat_map(|word| word.to_le_bytes()).chain(data()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};

    #[test]
    fn it_is_a_static_program_of_each_system() {
        for system in System::ALL {
            let file = program(system, "token");
            mesh_bundles::elf::check_static(std::io::Cursor::new(&file), system).unwrap();
            assert!(file.len() < 256 && file.ends_with(b"token"), "{}", file.len());
        }
    }

    #[test]
    fn it_runs_until_it_is_asked_to_end() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join(super::super::place::PROGRAM);
        std::fs::write(&path, program(System::of_this_program(), "t")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut child = std::process::Command::new(&path).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !super::super::container::hears(child.id()).unwrap() {
            assert!(Instant::now() < deadline, "it does not wait for SIGTERM");
        }
        assert_eq!(child.try_wait().unwrap(), None);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(0), None));
    }
}
