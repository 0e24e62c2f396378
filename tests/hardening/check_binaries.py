#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks in the built files for the hardening that the compiler and the linker were told to do.

    check_binaries.py BUILD     checks what a release build installs, and how it was compiled
    check_binaries.py --self    checks these checks on programs that lack one thing each

Debian 12's C library has no CET marks in its start files, so the linker drops the mark from every
program. So the check is that each function that others can call begins with endbr64.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ENDBR64 = b"\xf3\x0f\x1e\xfa"
PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 0x6474e551, 0x6474e552
DT_NEEDED, DT_RPATH, DT_TEXTREL, DT_FLAGS, DT_RUNPATH, DT_FLAGS_1 = 1, 15, 22, 30, 29, 0x6ffffffb
DF_TEXTREL, DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 4, 8, 1, 0x08000000
SHT_SYMTAB, SHT_DYNSYM = 2, 11
STT_FUNC = 2
SHN_ABS = 0xfff1

# what is installed -> what it exports; None: a program
PRODUCTS = {
    "daemon/inferd": None,
    "tools/inferctl": None,
    "client/libinferd-client.so": "inferd_",
    "engine/library/libinferd-engine.so": "inferd_engine_",
    "engine/cuda/inferd-cuda.so": "inferd_backend",
}
OPTIONAL = {"engine/cuda/inferd-cuda.so"}
FLAGS = ["-fstack-protector-strong", "-fstack-clash-protection", "-fcf-protection",
         "-D_FORTIFY_SOURCE=3", "-Werror=vla", "-Werror=alloca", "-Werror=frame-larger-than=32768"]


class Elf:
    """The few parts of a 64-bit little-endian ELF file that the checks need."""

    def __init__(self, data):
        self.data = data
        head = struct.unpack_from("<16sHHIQQQIHHHHHH", data)
        assert head[0][:6] == b"\x7fELF\x02\x01", "not a 64-bit little-endian ELF file"
        self.type, phoff, shoff, phnum, shnum = head[1], head[5], head[6], head[10], head[12]
        self.segments = [struct.unpack_from("<IIQQQQQQ", data, phoff + 56 * i)
                         for i in range(phnum)]
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + 64 * i)
                         for i in range(shnum)]

    def segment(self, kind):
        return next((s for s in self.segments if s[0] == kind), None)

    def dynamic(self):
        entries = {}
        segment = self.segment(PT_DYNAMIC)
        for at in range(segment[2], segment[2] + segment[5], 16) if segment else ():
            tag, value = struct.unpack_from("<QQ", self.data, at)
            entries[tag] = value
        return entries

    def symbols(self, kind):
        """(name, is a function, defined, visible to others, address) of each."""
        for section in self.sections:
            if section[1] != kind:
                continue
            strings = self.sections[section[6]][4]
            for at in range(section[4] + 24, section[4] + section[5], 24):
                name, info, other, where, address, _ = struct.unpack_from("<IBBHQQ", self.data, at)
                end = self.data.index(b"\0", strings + name)
                if where == SHN_ABS:  # the name of a set of versions
                    continue
                yield (self.data[strings + name:end].decode(), info & 15 == STT_FUNC, where != 0,
                       info >> 4 != 0 and other & 3 == 0, address)

    def bytes_at(self, address, n):
        for s in self.segments:
            if s[0] == PT_LOAD and s[3] <= address < s[3] + s[5]:
                at = s[2] + address - s[3]
                return self.data[at:at + n]
        return b""


def faults(data, exports=None):
    """What hardening a program (exports: None) or a library lacks."""
    elf = Elf(data)
    dynamic = elf.dynamic()
    flags, flags_1 = dynamic.get(DT_FLAGS, 0), dynamic.get(DT_FLAGS_1, 0)
    imported = {name for name, _, defined, _, _ in elf.symbols(SHT_DYNSYM) if not defined}
    exported = [s for s in elf.symbols(SHT_DYNSYM) if s[2] and s[3]]
    functions = [s for s in elf.symbols(SHT_SYMTAB) if s[1] and s[2]]
    checks = [
        ("position-independent", elf.type == 3 and (exports or flags_1 & DF_1_PIE)),
        ("read-only relocations", elf.segment(PT_GNU_RELRO)),
        ("binding at the start", flags & DF_BIND_NOW or flags_1 & DF_1_NOW),
        ("a stack without execution",
         elf.segment(PT_GNU_STACK) and not elf.segment(PT_GNU_STACK)[1] & 1),
        ("segments that are never both writable and executable",
         all(s[1] & 3 != 3 for s in elf.segments if s[0] == PT_LOAD)),
        ("no relocations in code", DT_TEXTREL not in dynamic and not flags & DF_TEXTREL),
        ("no search path of its own", DT_RPATH not in dynamic and DT_RUNPATH not in dynamic),
        ("stack protector", "__stack_chk_fail" in imported),
        ("checked functions of the C library",
         any(n.startswith("__") and n.endswith("_chk") for n in imported)),
    ]
    if exports:
        others = sorted(s[0] for s in exported if not s[0].startswith(exports))
        checks.append((f"no exports but {exports}* (it has {others[:3]})", exported and not others))
        entries = [s for s in exported if s[1]]
    else:
        entries = [s for s in functions if s[0] == "main"]
    unmarked = [s[0] for s in entries if elf.bytes_at(s[4], 4) != ENDBR64]
    checks.append((f"endbr64 where functions begin (not in {unmarked[:3]})",
                   entries and not unmarked))
    return [what for what, holds in checks if not holds]


def compile_faults(commands):
    """Checks the flags that leave no trace in the product, for all our C sources, generated ones
    included."""
    missing = {}
    for entry in commands:
        if not entry["file"].endswith(".c"):
            continue
        for flag in FLAGS:
            if flag not in entry["command"].split():
                missing.setdefault(flag, []).append(entry["file"])
    return [f"compiled without {flag}: {len(sources)} sources, {sources[0]}"
            for flag, sources in missing.items()]


def check_build(build):
    wrong, n = [], 0
    for product, exports in PRODUCTS.items():
        path = build / product
        if path.exists():
            n += 1
            wrong += [f"{product}: lacks {what}" for what in faults(path.read_bytes(), exports)]
        elif product not in OPTIONAL:
            wrong.append(f"{product}: is not there")
    commands = json.loads((build / "compile_commands.json").read_text())
    wrong += compile_faults(commands)
    for line in wrong:
        print(line)
    print(f"{n} products, {len(commands)} sources, {len(wrong)} faults")
    return 1 if wrong or not commands else 0


class Self(unittest.TestCase):
    SOURCE = """
        #include <stdio.h>
        int inferd_read(char *to, int n);
        int inferd_read(char *to, int n) { char b[64]; sprintf(b, "%d", n); *to = b[n & 7];
                                           return b[n & 3]; }
        int main(int argc, char **argv) { return inferd_read(argv[0], argc); }
    """
    HARD = ["-O2", "-D_FORTIFY_SOURCE=3", "-fstack-protector-strong", "-fcf-protection", "-fPIE",
            "-pie", "-Wl,-z,relro,-z,now,-z,noexecstack"]

    def product(self, *flags):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "product")
            subprocess.run(["gcc", "-x", "c", "-", "-o", out, *self.HARD, *flags], check=True,
                           input=self.SOURCE, text=True)
            return out.read_bytes()

    def faults_of(self, *flags, exports=None):
        return faults(self.product(*flags), exports)

    def test_a_hard_program_has_no_faults(self):
        self.assertEqual(self.faults_of(), [])

    def test_each_lack_is_seen(self):
        for flags, what in [
                (["-no-pie", "-fno-pie"], "position-independent"),
                (["-Wl,-z,norelro"], "read-only relocations"),
                (["-Wl,-z,lazy"], "binding at the start"),
                (["-Wl,-z,execstack"], "a stack without execution"),
                (["-Wl,-rpath,/opt"], "no search path of its own"),
                (["-fno-stack-protector"], "stack protector"),
                (["-U_FORTIFY_SOURCE"], "checked functions of the C library"),
                (["-fcf-protection=none"], "endbr64 where functions begin (not in ['main'])")]:
            with self.subTest(what):
                self.assertIn(what, self.faults_of(*flags))

    def test_writable_code_is_seen(self):
        data = bytearray(self.product())
        at = struct.unpack_from("<Q", data, 32)[0]
        while struct.unpack_from("<II", data, at) != (PT_LOAD, 5):
            at += 56
        data[at + 4] = 7
        self.assertEqual(faults(bytes(data)),
                         ["segments that are never both writable and executable"])

    def test_a_library_exports_what_it_may(self):
        shared = ["-shared", "-fPIC"]
        self.assertEqual(
            self.faults_of(*shared, "-Dmain=inferd_main", exports="inferd_"), [])
        self.assertEqual(
            self.faults_of(*shared, exports="inferd_"),
            ["no exports but inferd_* (it has ['main'])"])

    def test_a_missing_flag_is_seen(self):
        commands = [{"file": "a.c", "command": "cc " + " ".join(FLAGS)},
                    {"file": "b.c", "command": "cc " + " ".join(FLAGS[1:])},
                    {"file": "c.cpp", "command": "c++"}]
        self.assertEqual(compile_faults(commands), [f"compiled without {FLAGS[0]}: 1 sources, b.c"])


if __name__ == "__main__":
    if sys.argv[1:] == ["--self"]:
        sys.argv.pop()
        unittest.main()
    sys.exit(check_build(pathlib.Path(sys.argv[1])))
