#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command under the restrictions of a systemd unit, without systemd as init.

    restrict.py UNIT COMMAND...

Applied: SystemCallFilter= (with EPERM), RestrictAddressFamilies=, RestrictNamespaces=,
NoNewPrivileges=, LimitNOFILE= and UMask=; as root also an account without rights, no capabilities,
and a file system that is read-only except for /tmp and the cache folder in $CACHE_DIRECTORY. A
command that works here needs nothing that the unit forbids. x86-64 only.
"""
import ctypes
import os
import pathlib
import re
import resource
import socket
import struct
import subprocess
import sys

NOBODY = 65534
SYSCALL_NUMBERS = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
ALLOW, DENY = 0x7FFF0000, 0x00050000 | 1  # SECCOMP_RET_ERRNO | EPERM
LOAD, JUMP_EQUAL, JUMP_SET, RETURN = 0x20, 0x15, 0x45, 0x06
ARCH_X86_64 = 0xC000003E
CLONE_NAMESPACES = 0x7E020000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
CLONE_NEWNS = 0x20000
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}

libc = ctypes.CDLL(None, use_errno=True)


def settings(unit):
    found = {}
    for key, value in re.findall(r"(?m)^([A-Z]\w+)=(.*)$", pathlib.Path(unit).read_text()):
        found.setdefault(key, []).append(value)
    return found


def numbers():
    text = pathlib.Path(SYSCALL_NUMBERS).read_text()
    return {name: int(n) for name, n in re.findall(r"#define __NR_(\w+) (\d+)", text)}


def group(name):
    """The system calls of "@group", with the groups inside."""
    if not name.startswith("@"):
        return {name}
    text = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter", name], check=True,
                          capture_output=True, text=True).stdout
    inside = re.findall(r"(?m)^\s+(@?\w[\w-]*)$", text)
    return set().union(*(group(entry) for entry in inside))


def allowed_calls(filters):
    allowed = set()
    for line in filters:
        calls = set().union(*(group(name) for name in line.lstrip("~").split()))
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return allowed


def filter_program(unit):
    """seccomp's classic BPF; a jump is at most two instructions ahead."""
    known = numbers()
    program = [(LOAD, 0, 0, 4), (JUMP_EQUAL, 1, 0, ARCH_X86_64), (RETURN, 0, 0, DENY),
               (LOAD, 0, 0, 0)]

    def refine(call, body):
        """Instructions for one call: `body` decides, and afterwards the accumulator holds the
        call's number again."""
        program.extend([(JUMP_EQUAL, 0, len(body), known[call]), *body])

    families = [FAMILIES[name] for name in unit["RestrictAddressFamilies"][0].split()]
    body = [(LOAD, 0, 0, 16)]
    for family in families:
        body += [(JUMP_EQUAL, 0, 1, family), (RETURN, 0, 0, ALLOW)]
    refine("socket", body + [(RETURN, 0, 0, DENY)])
    if unit.get("RestrictNamespaces") == ["yes"]:
        for call in ("clone", "unshare"):
            refine(call, [(LOAD, 0, 0, 16), (JUMP_SET, 0, 1, CLONE_NAMESPACES),
                          (RETURN, 0, 0, DENY), (RETURN, 0, 0, ALLOW)])
    for call in sorted(allowed_calls(unit["SystemCallFilter"])):
        if call in known:
            program += [(JUMP_EQUAL, 0, 1, known[call]), (RETURN, 0, 0, ALLOW)]
    return program + [(RETURN, 0, 0, DENY)]


def must(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def install_filter(program):
    code = b"".join(struct.pack("=HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("=H6xQ", len(program), ctypes.addressof(buffer))
    must(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, head, 0, 0), "seccomp")


def read_only_file_system():
    must(libc.unshare(CLONE_NEWNS), "unshare")
    must(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    for folder in {b"/tmp", os.environb.get(b"CACHE_DIRECTORY", b"/tmp")}:
        must(libc.mount(folder, folder, None, MS_BIND | MS_REC, None), "bind mount")
    must(libc.mount(b"/", b"/", None, MS_BIND | MS_REC, None), "bind mount")
    must(libc.mount(None, b"/", None, MS_REMOUNT | MS_BIND | MS_RDONLY, None), "remount")


def become_nobody():
    try:
        read_only_file_system()
    except OSError as e:
        print(f"restrict.py: the file system stays as it is: {e}", file=sys.stderr)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)  # all capabilities go with it


def main():
    unit = settings(sys.argv[1])
    program = filter_program(unit)
    files = min(int(unit["LimitNOFILE"][0]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    os.umask(int(unit["UMask"][0], 8))
    if os.geteuid() == 0:
        become_nobody()
    must(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    install_filter(program)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
