#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What long runs of fuzz targets found beyond the seeds in corpus/: an archive a target.

    found.py unpack NAME X.list     found/NAME.tar.xz to the folder X; X.list gets the path of each
                                    input, of those in corpus/NAME too (the build does this)
    found.py add NAME PATH...       adds these files, or those in these folders; an input of the
                                    same name is replaced, one with the same bytes left out
    found.py replace NAME PATH...   the archive is these, less those in corpus/NAME
    found.py merge BUILD NAME [PATH...]
                                    replaces the archive by the fewest of corpus/NAME, the archive
                                    and these that cover as much as all, by the target in BUILD
                                    (clang, -Dfuzz=true); inputs with names of their own stay

libFuzzer calls an input by the digest of its bytes. The same inputs give the same archive.
"""
import hashlib
import io
import lzma
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DIGEST = re.compile(r"[0-9a-f]{40}")


def archive(name):
    return HERE / "found" / f"{name}.tar.xz"


def read(name):
    """The archive as {name of the input: its bytes}."""
    if not archive(name).exists():
        return {}
    with tarfile.open(archive(name), "r:xz") as tar:
        return {pathlib.PurePath(m.name).name: tar.extractfile(m).read() for m in tar}


def write(name, inputs):
    seeds = {path.read_bytes() for path in (HERE / "corpus" / name).iterdir()}
    raw, kept = io.BytesIO(), 0
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for called, data in sorted(inputs.items()):
            if data not in seeds:
                seeds.add(data)
                info = tarfile.TarInfo(called)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
                kept += 1
    archive(name).write_bytes(lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{archive(name).name}: {kept} inputs, {archive(name).stat().st_size} bytes")


def given(paths):
    """The files of the arguments, by name; those of libFuzzer by what is in them."""
    inputs = {}
    for path in map(pathlib.Path, paths):
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            data = file.read_bytes()
            digest = hashlib.sha1(data).hexdigest()
            inputs[digest if DIGEST.fullmatch(file.name) else file.name] = data
    return inputs


def unpack(name, output):
    folder = pathlib.Path(output).with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for called, data in read(name).items():
        (folder / called).write_bytes(data)
    seeds = HERE / "corpus" / name
    paths = sorted(seeds.iterdir()) + sorted(folder.resolve().iterdir())
    pathlib.Path(output).write_text("".join(f"{path}," for path in paths), encoding="utf-8")
    # ninja looks at the folder's time: a seed more or less makes the list anew
    pathlib.Path(f"{output}.d").write_text(f"{output}: {seeds}\n", encoding="utf-8")


def merge(build, name, *paths):
    inputs = {**read(name), **given(paths)}
    longest = max((len(data) for data in inputs.values()), default=0)
    with tempfile.TemporaryDirectory() as work:
        least, rest = pathlib.Path(work, "least"), pathlib.Path(work, "rest")
        least.mkdir()
        rest.mkdir()
        for called, data in inputs.items():
            (rest / called).write_bytes(data)
        subprocess.run([f"{build}/tests/fuzz/fuzz_{name}", "-set_cover_merge=1",
                        f"-max_len={max(longest, 4096)}", least, HERE / "corpus" / name, rest],
                       check=True, stderr=subprocess.DEVNULL)
        named = {called: data for called, data in inputs.items() if not DIGEST.fullmatch(called)}
        write(name, {**given([least]), **named})


def main(verb=None, *words):
    if verb == "unpack" and len(words) == 2:
        unpack(*words)
    elif verb == "add" and len(words) > 1:
        write(words[0], {**read(words[0]), **given(words[1:])})
    elif verb == "replace" and len(words) > 1:
        write(words[0], given(words[1:]))
    elif verb == "merge" and len(words) > 1:
        merge(*words)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
