#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules about the source tree as a whole, which no compiler checks.

    check_tree.py ROOT      checks a tree and prints one line for each thing that is wrong
    check_tree.py --self    checks the rules themselves, on small trees that break them

The layering tables below are docs/architecture.md's "who may include whom", to the letter.
"""
import os
import pathlib
import re
import sys
import tempfile
import unittest

FILE_LINES, FUNCTION_LINES, COLUMNS = 800, 100, 100

# folder -> folders whose headers it may include, besides its own and base/
LAYERS = {
    "base": [],
    "kernels": [],
    "engine": ["kernels"],
    "proto": [],
    "http": ["proto"],
    "config": [],
    "batching": [],
    "pool": [],
    "client": ["proto"],
    "tools": ["kernels", "engine", "proto", "client"],
    "daemon": ["engine", "proto", "http", "config", "batching", "pool"],
}
# the same inside engine/; "." stands for engine/*.h itself
ENGINE_LAYERS = {
    ".": ["ir", "plugin"],
    "plugin": [],
    "ir": ["plugin"],
    "import": ["ir", "plugin"],
    "passes": ["ir", "import"],
    "tune": [".", "ir"],
    "plan": [".", "ir"],
    "quant": ["ir"],
    "guard": [".", "ir", "tune"],
    "build": [".", "ir", "import", "passes", "tune", "guard", "plan", "quant", "runtime", "cpu"],
    "runtime": [".", "ir", "import", "plan", "plugin", "cpu"],
    "library": [".", "ir", "plugin", "runtime"],
    "cpu": [".", "ir", "plugin"],
    "cuda": [".", "ir", "plugin"],
}
# what the daemon may see of the engine: never the importer, a pass or the tuner
DAEMON_SEES = {"engine/engine.h", "engine/backend.h"}

# third-party headers -> the files that may include them
CONFINED = [
    (r"uv\.h", r"(daemon|client)/"),
    (r"(oneapi/dnnl/)?dnnl.*", r"engine/cpu/onednn[^/]*$"),
    (r"(cuda|cudnn|cublas|nv).*", r"(engine/cuda|kernels/cuda)/|engine/plugin/examples/.*\.cu$"),
    (r"(cyaml/cyaml|yaml)\.h", r"config/"),
    (r"(llhttp|yajl/.*)\.h", r"http/"),
    (r"pb.*\.h", r"(proto|engine/plan|engine/import)/"),
]

SPEAKING = re.compile(r"\b(v?printf|puts|putchar|perror|_?exit|abort)\s*\(|\b(stdout|stderr)\b")
SILENT = {"base", "kernels", "engine", "proto", "http", "config", "batching", "pool", "client"}

LEFT_OVERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
SOMEBODYS_PATH = re.compile(r"""(^|[\s"'`=(])/(home|root|work|Users)/""")

# The idioms of CONTRIBUTING.md: what a file may not say, why, and the folders that are held to it.
# A folder is added when it has been converted; everything below it is held to the idiom as well.
STATUS = r"\b(?!STATUS_)\w+"
IDIOMS = [
    (r"\bgoto\b", "no goto: CLEANUP(fn) and STEAL, or an inner function",
     "base batching client config daemon docs engine/build engine/cpu engine/cuda "
     "engine/import engine/ir engine/passes engine/plan engine/quant engine/runtime "
     "engine/tune http engine/guard kernels pool proto tests tools"),
    (r"\benum status\s+(?!(?:\w+_)?status\b)\w+\s*(?:[;,)]|=[^=])",
     "an enum status is called status, or something_status",
     "base batching client config daemon docs engine/build engine/cpu engine/cuda engine/import "
     "engine/ir engine/passes engine/plan engine/quant engine/runtime engine/tune http kernels "
     "pool proto engine/guard tools"),
    (r"\bif\s*\((?:[^;{}]*[^;{}\w])?![\w.>-]*status\b[^;{}]*\)\s*\w*status\s*=[^=]",
     "no `if (!status) status = ...`: TRY(call)",
     "base batching client config daemon docs engine/build engine/cpu engine/cuda engine/import "
     "engine/ir engine/passes engine/plan engine/quant engine/runtime engine/tune http kernels "
     "pool proto engine/guard tools"),
    (rf"{STATUS}\s*[!=]=\s*STATUS_OK\b|\bSTATUS_OK\s*[!=]=",
     "`status` or `!status`, not a comparison with STATUS_OK",
     "base batching client config daemon docs engine/build engine/cpu engine/cuda engine/import "
     "engine/ir engine/passes engine/plan engine/quant engine/runtime engine/tune http kernels "
     "pool proto engine/guard tools"),
    (r"\b(?:strstr|strn?(?:case)?cmp|mem(?:cmp|mem))\s*\([^;?]*(?:->|\.)text\b",
     "an error's text is for people: ask for its cause",
     "base batching client config daemon docs engine http kernels pool proto tools"),
]

C_LIKE = {".c", ".h", ".cu", ".cuh"}
WITH_LICENCE = C_LIKE | {".def", ".proto", ".options", ".py", ".build", ".yaml", ".service",
                         ".socket", ".sh", ".supp"}
TEXT = WITH_LICENCE | {".md", ".txt", ".in", ".svg", ".1", ".5", ".8"}
SKIPPED = re.compile(r"^(\.git|\.venv|\.cache|__pycache__|subprojects|corpus)$")
BUILT = re.compile(r"^build.*$")  # at the root alone: engine/build is a folder of sources


def files(root):
    for folder, folders, names in os.walk(root):
        top = pathlib.Path(folder) == pathlib.Path(root)
        folders[:] = sorted(f for f in folders
                            if not SKIPPED.match(f) and not (top and BUILT.match(f)))
        for name in sorted(names):
            yield pathlib.Path(folder, name).relative_to(root)


def is_script(path):
    return path.suffix == "" and path.parts[0] in ("scripts", ".ci")


def without_comments(text):
    """Comments and string literals blanked; newlines stay."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
    return token.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def licence(path, lines):
    first = lines[1:2] if lines and lines[0].startswith("#!") else lines[:1]
    if not first or "SPDX-License-Identifier: Apache-2.0" not in first[0]:
        yield 1, "no SPDX line"


def lengths(path, lines):
    if len(lines) > FILE_LINES:
        yield FILE_LINES + 1, f"{len(lines)} lines; at most {FILE_LINES}"
    start = None
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield number, f"{len(line)} columns; at most {COLUMNS}"
        if path.suffix in C_LIKE and line == "{":
            start = number
        elif path.suffix in C_LIKE and line == "}" and start:
            if number - start - 1 > FUNCTION_LINES:
                yield start, f"a function of {number - start - 1} lines; at most {FUNCTION_LINES}"
            start = None


def guard(path, lines):
    name = "INFERD_" + re.sub(r"[^A-Z0-9]", "_", str(path).upper())
    if f"#ifndef {name}" not in lines or f"#define {name}" not in lines:
        yield 1, f"no header guard {name}"


def engine_folder(parts):
    return parts[1] if len(parts) > 2 else "."


def own_include(path, target):
    """Why a file may not include another one of the tree; None if it may."""
    here, there = path.parts[0], target.parts[0]
    if here not in LAYERS:
        return None
    if there != "base" and there != here and there not in LAYERS[here]:
        return f"{here}/ may not include {target}"
    if here == "daemon" and there == "engine" and str(target) not in DAEMON_SEES:
        return f"daemon/ may not include {target}, but only {', '.join(sorted(DAEMON_SEES))}"
    if here == "engine" and there == "engine":
        a, b = engine_folder(path.parts), engine_folder(target.parts)
        if a != b and b not in ENGINE_LAYERS.get(a, []):
            return f"engine/{a} may not include {target}"
    return None


def includes(root, path, lines):
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        name = match.group(2)
        if match.group(1) == '"':
            if name.endswith(".pb.h"):
                continue  # generated beside the folder's objects
            why = own_include(path, pathlib.PurePath(name))
            if not (root / name).is_file():
                yield number, f"{name} is not a path from the root"
            elif why:
                yield number, why
        elif path.parts[0] != "tests":
            for header, where in CONFINED:
                if re.fullmatch(header, name) and not re.match(where, str(path)):
                    yield number, f"<{name}> belongs to {where}"


def speech(path, lines):
    text = without_comments("\n".join(lines))
    for number, line in enumerate(text.split("\n"), 1):
        match = SPEAKING.search(line)
        if match:
            yield number, f"a library folder neither prints nor exits: {match.group().strip()}"


def idioms(path, lines):
    text = without_comments("\n".join(lines))
    for pattern, why, folders in IDIOMS:
        if not any(path.is_relative_to(folder) for folder in folders.split()):
            continue
        for match in re.finditer(pattern, text):
            yield text.count("\n", 0, match.start()) + 1, why


def words(path, lines):
    for number, line in enumerate(lines, 1):
        for rule in (LEFT_OVERS, SOMEBODYS_PATH):
            match = rule.search(line)
            if match:
                yield number, f"left over: {match.group().strip()}"


def check_file(root, path):
    text = (root / path).read_text(encoding="utf-8")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if path.suffix in WITH_LICENCE or is_script(path):
        yield from licence(path, lines)
        yield from lengths(path, lines)
    if path.suffix == ".h":
        yield from guard(path, lines)
    if path.suffix in C_LIKE:
        yield from includes(root, path, lines)
        yield from idioms(path, lines)
        if path.parts[0] in SILENT and "examples" not in path.parts:
            yield from speech(path, lines)
    yield from words(path, lines)


def check(root):
    problems, checked = [], 0
    for path in files(root):
        if path.suffix in TEXT or is_script(path):
            checked += 1
            problems += [f"{path}:{line}: {what}" for line, what in check_file(root, path)]
    return problems, checked


class RulesFire(unittest.TestCase):
    C = "/* SPDX-License-Identifier: Apache-2.0 */\n"

    def problems(self, name, text, others=()):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, content in [(name, text), *others]:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(content)
            return check(root)[0]

    def assert_only(self, expected, problems):
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(expected, problems[0])

    def test_a_clean_file(self):
        self.assertEqual(self.problems("base/a.c", self.C + "int a(void)\n{\n}\n"), [])

    def test_folders(self):
        self.assert_only("no SPDX line", self.problems("engine/build/a.c", "int a;\n"))
        self.assertEqual(self.problems("build-asan/a.c", "int a;\n"), [])

    def test_licence(self):
        self.assert_only("no SPDX line", self.problems("base/a.c", "int a;\n"))
        self.assert_only("no SPDX line", self.problems("scripts/a", "#!/bin/sh\necho\n"))

    def test_lengths(self):
        body = "int a(void)\n{\n" + "    ;\n" * 101 + "}\n"
        self.assert_only("101 lines; at most 100", self.problems("base/a.c", self.C + body))
        self.assert_only("801 lines", self.problems("base/a.c", self.C + "\n" * 800))
        self.assert_only("101 columns", self.problems("base/a.c", self.C + "/" * 101 + "\n"))

    def test_guard(self):
        self.assert_only("INFERD_BASE_A_H", self.problems("base/a.h", self.C))

    def include(self, name, target):
        guard = "INFERD_" + re.sub(r"[^A-Z0-9]", "_", target.upper())
        header = self.C + f"#ifndef {guard}\n#define {guard}\n#endif\n"
        return self.problems(name, self.C + f'#include "{target}"\n', [(target, header)])

    def test_layers(self):
        self.assertEqual(self.include("daemon/a.c", "batching/b.h"), [])
        self.assertEqual(self.include("tests/unit/a.c", "engine/passes/pass.h"), [])
        self.assertEqual(self.include("engine/build/a.c", "engine/passes/b.h"), [])
        self.assert_only("base/ may not", self.include("base/a.c", "pool/b.h"))
        self.assert_only("pool/ may not", self.include("pool/a.c", "batching/b.h"))
        self.assert_only("engine/ may not", self.include("engine/ir/a.c", "proto/b.h"))
        self.assert_only("daemon/ may not", self.include("daemon/a.c", "engine/passes/b.h"))
        self.assert_only("engine/runtime may not", self.include("engine/runtime/a.c",
                                                                "engine/build/b.h"))
        self.assert_only("not a path", self.problems("base/a.c", self.C + '#include "b.h"\n'))

    def test_confined_headers(self):
        self.assertEqual(self.problems("daemon/a.c", self.C + "#include <uv.h>\n"), [])
        self.assert_only("<uv.h>", self.problems("tools/a.c", self.C + "#include <uv.h>\n"))
        self.assert_only("dnnl", self.problems("engine/cpu/a.c",
                                               self.C + "#include <oneapi/dnnl/dnnl.h>\n"))

    def test_speech(self):
        self.assertEqual(self.problems("tools/a.c", self.C + 'x = printf("");\n'), [])
        self.assertEqual(self.problems("base/a.c", self.C + '/* exit(1) */ "abort()";\n'), [])
        self.assertEqual(self.problems("base/a.c", self.C + "snprintf(a, 1, b);\n"), [])
        self.assert_only("printf(", self.problems("base/a.c", self.C + 'printf("");\n'))
        self.assert_only("exit(", self.problems("engine/ir/a.c", self.C + "exit(1);\n"))

    def idiom(self, expected, *bodies):
        for body in bodies:
            self.assert_only(expected, self.problems(self.HELD, self.C + body + "\n"))

    HELD = "docs/a.c"  # held to every idiom

    def test_idioms(self):
        self.assertEqual(self.problems(self.HELD, self.C + """
/* goto, if (!status) status = x; */ enum status status = a(), read_status = b;
if (status) x = strstr(line, "x"); enum status f(enum status status);
if (!status) kept = status; if (status == STATUS_INTERNAL) assert_int_equal(status, STATUS_OK);
char *goto_ = "goto"; if (!b.status && a) n++; y = strcmp(text, "a") ? err.text : z;
"""), [])
        self.idiom("no goto", "goto out;")
        self.idiom("is called status", "enum status s = a();", "enum status ended;",
                   "int f(enum status st);", "int f(enum status st, int a);")
        self.idiom("TRY(call)", "if (!status)\n    status = a();",
                   "if (n && !a->status) status = b;")
        self.idiom("not a comparison", "if (status != STATUS_OK)", "x = STATUS_OK == s;",
                   "return s->status == STATUS_OK;")
        self.idiom("ask for its cause", 'strstr(err->text, "x")', "strncmp(a,\n err.text, 5)",
                   'memcmp("x", e->text, 1)')
        self.assertEqual(self.problems("tests/a.c", self.C + 'strstr(err.text, "x");\n'), [])

    def test_idioms_name_folders(self):
        root = pathlib.Path(__file__).parents[3]
        for _, _, folders in IDIOMS:
            for folder in folders.split():
                self.assertTrue((root / folder).is_dir(), folder)

    def test_words(self):
        self.assert_only("left over", self.problems("docs/a.md", "TO" "DO: write\n"))
        self.assert_only("left over", self.problems("docs/a.md", "see /home" "/me/x\n"))


def run(check):
    """What both programs of this folder do: `check` gives the problems, and the number of files."""
    if sys.argv[1:] == ["--self"]:
        unittest.main(argv=sys.argv[:1])
    problems, checked = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems))
    print(f"{checked} files checked, {len(problems)} problems")
    if checked == 0 or problems:
        sys.exit(1)


if __name__ == "__main__":
    run(check)
