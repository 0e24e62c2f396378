# SPDX-License-Identifier: Apache-2.0
"""A folder with what `meson install` would install, and programs compiled against that alone."""
import json
import os
import pathlib
import re
import shutil
import subprocess


class Tree:
    """Holds the installed files whose paths `pattern` matches, below `root`."""

    def __init__(self, build, root, pattern):
        self.root = pathlib.Path(root)
        plan = json.loads(pathlib.Path(build, "meson-info/intro-installed.json").read_text())
        self.files = {}
        for built, installed in plan.items():
            if not re.search(pattern, installed) or not os.path.isabs(built):
                continue
            target = self.root / installed.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not pathlib.Path(built).is_symlink():
                shutil.copy2(built, target)
                self.files[target.name] = target
        for name in [n for n in self.files if re.search(r"\.so\.\d+\.\d+\.\d+$", n)]:
            stem, major = re.match(r"(.*\.so)\.(\d+)\.", name).groups()
            for link in (f"{stem}.{major}", stem):
                path = self.files[name].with_name(link)
                path.unlink(missing_ok=True)
                path.symlink_to(name)

    def find(self, pattern):
        return next(path for name, path in self.files.items() if re.fullmatch(pattern, name))

    def flags(self, package):
        """What pkg-config says, and where the library is found when the program runs."""
        at = self.find(re.escape(package) + r"\.pc").parent
        env = dict(os.environ, PKG_CONFIG_PATH=str(at), PKG_CONFIG_SYSROOT_DIR=str(self.root))
        said = subprocess.run(["pkg-config", "--cflags", "--libs", package], env=env, check=True,
                              capture_output=True, text=True).stdout.split()
        return [*said, f"-Wl,-rpath,{at.parent}"]


def compile_program(command, source, out, *flags):
    done = subprocess.run([*command, str(source), "-o", str(out), *map(str, flags)],
                          capture_output=True, text=True, timeout=120, check=False)
    if done.returncode or done.stderr:
        raise AssertionError(f"{source} does not compile cleanly:\n{done.stderr}")
    return out
