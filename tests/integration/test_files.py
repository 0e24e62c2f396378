#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that change while they are served, read, hashed or built: no answer is wrong, and no
process crashes. Also what the plan cache keeps, for whom, and for how long.

    test_files.py INFERD INFERCTL
"""
import fcntl
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import harness
import wire

X4 = struct.pack("<4f", 1, 2, 3, 4)
ANSWERS = {X4: "copy", struct.pack("<4f", 2, 4, 6, 8): "twice"}
GIB = 1 << 30
WIDE = 16  # floats in a row of a large table


def infer(client, model="m"):
    """Returns the name of the model that answered, or the reply if it is an error."""
    reply = client.infer(model, [("x", "FP32", [1, 4], X4)])
    return ANSWERS[reply.outputs()["y"][2]] if reply.status == wire.OK else reply


def table(value, mib):
    """A model whose every answer is a row of `value`, taken from `mib` MiB of weights."""
    rows = (mib << 20) // (4 * WIDE)
    data = struct.pack("<f", value) * (rows * WIDE)
    return harness.model(
        [harness.node("Gather", ["table", "n"], ["y"])],
        [harness.value("n", harness.INT64, ["N", 1])],
        [harness.value("y", harness.FLOAT, ["N", 1, WIDE])],
        [harness.constant("table", harness.FLOAT, [rows, WIDE], data)])


def row(client, number=0, model="m"):
    """Returns the value of the whole row, or the reply if it is an error."""
    reply = client.infer(model, [("n", "INT64", [1, 1], struct.pack("<q", number))])
    if reply.status != wire.OK:
        return reply
    values = set(struct.unpack(f"<{WIDE}f", reply.outputs()["y"][2]))
    return values.pop() if len(values) == 1 else values


def overwrite(path, data):
    """Overwrites the file in place, as `cp` does, but without truncating it first."""
    with open(path, "r+b") as file:
        file.write(data)


def truncate(path, _):
    os.truncate(path, 100)


def cp(path, data):
    path.write_bytes(data)


def garbage(path, data):
    overwrite(path, os.urandom(len(data)))


def rename(path, data):
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.rename(new, path)


def remove(path, _):
    path.unlink()


CHANGES = {"truncate": truncate, "cp": cp, "overwrite": overwrite, "garbage": garbage,
           "rename": rename, "remove": remove}


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))

    def build(self, model, name):
        """A model of these bytes as a plan."""
        onnx, plan = self.folder / f"{name}.onnx", self.folder / f"{name}.plan"
        onnx.write_bytes(model)
        done = subprocess.run([harness.INFERCTL, "build", onnx, "-o", plan, "--batch", "1",
                               "--reference-only", "--no-tune", "--threads", "1",
                               "--timing-cache", ""], capture_output=True, text=True, timeout=120,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return plan

    def reload(self, server, seconds=30):
        """Reloads the configuration; returns whether that succeeded."""
        def counts():
            return server.log().count("reloaded"), server.log().count("reload failed")
        good, bad = counts()
        server.signal(signal.SIGHUP)
        harness.until(lambda: sum(counts()) > good + bad or server.process.poll() is not None,
                      seconds)
        self.assertIsNone(server.process.poll(), server.log())
        return counts()[0] > good


class Changes(Files):
    @classmethod
    def setUpClass(cls):
        holder = cls("setUp")
        holder.setUp()
        cls.one, cls.two = (holder.build(table(v, 8), f"v{v}").read_bytes() for v in (1, 2))
        cls.models = [table(v, 24) for v in (1, 2)]

    def test_a_served_plan_does_not_change_with_its_file(self):
        for name, change in CHANGES.items():
            with self.subTest(name):
                plan = self.folder / f"{name}.plan"
                plan.write_bytes(self.one)
                with harness.Server({"m": plan}) as s, s.client() as c:
                    self.assertEqual(row(c), 1)
                    change(plan, self.two)
                    # every page of the weights
                    for number in range(0, (8 << 20) // (4 * WIDE), 4096 // (4 * WIDE)):
                        self.assertEqual(row(c, number), 1)

    def test_a_plan_that_is_changed_again_and_again_under_load(self):
        plan = self.folder / "m.plan"
        plan.write_bytes(self.one)
        with harness.Server({"m": plan}, {"workers": 2}) as s:
            stop, seen = threading.Event(), []

            def ask():
                with s.client() as c:
                    while not stop.is_set():
                        seen.append(row(c, len(seen) % 1000))

            askers = [harness.Background(ask) for _ in range(3)]
            for i in range(40):
                (cp, truncate, overwrite, garbage)[i % 4](plan, self.two)
            stop.set()
            for asker in askers:
                asker.finish()
            self.assertGreater(len(seen), 20)
            self.assertEqual(set(seen), {1.0})

    def test_r25_a_plan_that_changes_while_it_is_loaded(self):
        """Afterwards one of the two plans is served, as a whole, or the reload fails."""
        plan = self.folder / "m.plan"
        plan.write_bytes(self.one)
        with harness.Server({"m": plan}) as s, s.client() as c:
            stop = threading.Event()

            def change():
                i = 0
                while not stop.is_set():
                    (cp, overwrite, truncate)[i % 3](plan, (self.one, self.two)[i % 2])
                    i += 1

            changer = harness.Background(change)
            for i in range(12):
                self.reload(s)
                for number in range(0, 100000, 9999):
                    self.assertIn(row(c, number), (1.0, 2.0))
            stop.set()
            changer.finish()
            cp(plan, self.two)
            self.assertTrue(self.reload(s), s.log())
            self.assertEqual(row(c), 2)

    def test_r25_a_model_that_changes_while_it_is_hashed_and_built(self):
        model = self.folder / "m.onnx"
        model.write_bytes(self.models[0])
        entry = {"path": str(model), "batches": [1]}
        with harness.Server({"m": entry}) as s, s.client() as c:
            stop = threading.Event()

            def change():
                i = 0
                while not stop.is_set():
                    (cp, overwrite, truncate)[i % 3](model, self.models[i % 2])
                    time.sleep(0.02 * (i % 4))
                    i += 1

            changer = harness.Background(change)
            for i in range(6):
                self.reload(s, 60)
                for number in (0, 5000, 100000):
                    self.assertIn(row(c, number), (1.0, 2.0))
            stop.set()
            changer.finish()
            for i in (1, 0):
                cp(model, self.models[i])
                self.assertTrue(self.reload(s, 60), s.log())
                self.assertEqual(row(c), i + 1)

    def test_a_first_start_with_a_plan_that_is_cut_short(self):
        plan = self.folder / "m.plan"
        for size in (0, 100, 511, 512, 4096, len(self.one) - 1):
            plan.write_bytes(self.one[:size])
            with harness.Server({"m": plan, "ok": harness.plan("copy")}) as s, s.client() as c:
                self.assertEqual(infer(c, "ok"), "copy")
                self.assertEqual(row(c).status, wire.UNAVAILABLE)

    def test_weights_are_in_memory_once(self):
        """The weights are either where they were read to or on a device with its own memory, not in
        both places."""
        if b"__tsan_init" in pathlib.Path(harness.INFERD).read_bytes():
            self.skipTest("ThreadSanitizer keeps notes of what is written, several times its size")
        mib = 64
        plan = self.build(table(3, mib), "large")

        def private(script):
            env = dict(harness.FORCED_END, INFERD_FAULT_SCRIPT="on=cpu" + script)
            with harness.Server({"m": plan}, {"device": "fault"}, env=env) as s, s.client() as c:
                self.assertEqual((row(c), row(c, 999999)), (3, 3))
                status = pathlib.Path(f"/proc/{s.process.pid}/status").read_text()
                return int(re.search(r"RssAnon:\s*(\d+) kB", status)[1]) >> 10

        here, apart = private(""), private(";apart")
        self.assertGreater(here, mib)
        self.assertLess(abs(apart - here), mib // 2)

    def test_r31_sizes_are_looked_at_before_bytes(self):
        """A file claims 400 GiB that it does not have: nothing of that is read, and no memory is
        taken for it."""
        onnx, plan = self.folder / "m.onnx", self.folder / "p.plan"
        for path in (onnx, plan):
            with open(path, "wb") as file:
                file.truncate(400 * GIB)
        overwrite(plan, self.one[:4096])  # a header that does not fit the size
        start = time.monotonic()
        with harness.Server({"m": onnx, "p": plan, "ok": harness.plan("copy")}) as s:
            self.assertLess(time.monotonic() - start, 20)
            self.assertIn("429496729600 bytes, the limit is 2147483648", s.log())
            self.assertIn("p.plan: the plan is damaged: its lengths do not add up", s.log())

    def test_r24_sigterm_while_a_large_file_is_hashed(self):
        onnx = self.folder / "m.onnx"
        with open(onnx, "wb") as file:
            file.truncate(2 * GIB - 1)
        models = {f"m{i}": onnx for i in range(8)}  # all of them take many seconds
        s = harness.Server(models, wait=False)
        try:
            harness.until(lambda: "loader" in self.threads(s))
            time.sleep(0.2)
            start = time.monotonic()
            s.stop()
            self.assertLess(time.monotonic() - start, 5)
        finally:
            s.kill()

    def threads(self, server):
        names = set()
        for task in pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/comm"):
            try:
                names.add(task.read_text().strip())
            except OSError:  # it has ended
                pass
        return names


class Cache(Files):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        self.model = self.folder / "m.onnx"
        self.put("copy")

    def put(self, name):
        self.model.write_bytes(harness.onnx(name).read_bytes())

    def server(self, models=None, config=None, **options):
        return harness.Server(models or {"m": self.model},
                              dict({"cache": str(self.cache)}, **(config or {})), **options)

    def kept(self):
        return sorted(path.name for path in self.cache.glob("*.plan"))

    def learn_key(self, name):
        """Returns the name under which this model's plan is kept, and empties the cache."""
        self.put(name)
        with self.server() as s, s.client() as c:
            self.assertEqual(infer(c), name)
        (plan,) = self.kept()
        (self.cache / plan).unlink()
        return plan

    def lock(self, plan):
        """Takes the lock that a process building this plan would hold."""
        file = open(self.cache / f".{plan}.inferd-tmp", "wb")
        fcntl.flock(file, fcntl.LOCK_EX)
        self.addCleanup(file.close)
        return file

    def waits(self, server, plan):
        """Waits until the server has made the key and itself waits for the process that builds the
        plan."""
        server.wait_log(f"another process writes {plan}: waiting")

    # --- what is kept ---

    def test_a_plan_is_never_kept_for_another_model(self):
        """The file is changed between its digest and its build, by rename or in place, and then
        changed back."""
        key = self.learn_key("copy")
        for change in (rename, cp):
            with self.subTest(change.__name__):
                shutil.rmtree(self.cache)
                self.cache.mkdir(mode=0o700)
                self.put("copy")
                held = self.lock(key)
                s = self.server(wait=False)
                try:
                    self.waits(s, key)
                    change(self.model, harness.onnx("twice").read_bytes())
                    os.unlink(held.name)
                    held.close()
                    s.wait_ready()
                    with s.client() as c:  # as opened, or as it is now
                        self.assertEqual(infer(c), "copy" if change is rename else "twice")
                    s.stop()
                finally:
                    s.kill()
                self.assertEqual(key in self.kept(), change is rename)
                for name in ("copy", "twice"):
                    self.put(name)
                    with self.server() as s, s.client() as c:
                        self.assertEqual(infer(c), name)

    def test_keys_are_of_a_collision_resistant_hash(self):
        plan = self.learn_key("copy")
        self.assertRegex(plan, r"\Am-[0-9a-f]{64}\.plan\Z")

    def test_kept_files_are_ours_alone(self):
        with self.server():
            pass
        (plan,) = self.kept()
        self.assertEqual((self.cache / plan).stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.cache.stat().st_mode & 0o777, 0o700)
        self.assertEqual(sorted(os.listdir(self.cache)), [plan, "shapes"])

    def test_what_others_could_have_put_there_is_not_used(self):
        key = self.learn_key("copy")
        twice = harness.plan("twice")  # fits the device, and gives itself away

        def linked():
            os.symlink(twice, self.cache / key)

        def two_names():
            shutil.copy(twice, self.cache / "other")
            os.link(self.cache / "other", self.cache / key)

        def writable():
            shutil.copy(twice, self.cache / key)
            os.chmod(self.cache / key, 0o666)

        def foreign():
            shutil.copy(twice, self.cache / key)
            os.chown(self.cache / key, 12345, -1)

        for make in (linked, two_names, writable, *([foreign] if os.geteuid() == 0 else [])):
            with self.subTest(make.__name__):
                shutil.rmtree(self.cache)
                self.cache.mkdir(mode=0o700)
                make()
                with self.server() as s, s.client() as c:
                    self.assertEqual(infer(c), "copy")
                    self.assertEqual(c.counters()["plans_built"], 1)
                self.assertTrue((self.cache / key).is_file())
                self.assertFalse((self.cache / key).is_symlink())
                with self.server() as s, s.client() as c:  # now it is ours
                    self.assertEqual((infer(c), c.counters()["plans_built"]), ("copy", 0))

    def test_folders_that_others_can_write_are_not_used(self):
        above = self.folder / "above"

        def check(why, text):
            with self.subTest(why):
                with self.server(config={"cache": str(above / "cache")}) as s, s.client() as c:
                    self.assertEqual(infer(c), "copy")
                    self.assertIn("plan cache cannot be used: ", s.log())
                    self.assertRegex(s.log(), text)
                    self.assertEqual(s.log().count("warning"), 1)
                self.assertEqual(list(above.glob("cache/*")), [])

        (above / "cache").mkdir(parents=True, mode=0o755)
        above.chmod(0o755)
        for folder in (above / "cache", above):
            for mode in (0o777, 0o775, 0o757):
                folder.chmod(mode)
                check(f"{folder.name} {mode:o}", f"{folder} belongs to user {os.geteuid()} and has "
                      f"mode {mode:04o}, expected user")
            folder.chmod(0o755)
        above.chmod(0o1777)
        check("below a sticky folder", "mode 0755, expected user .* mode 0700")
        above.chmod(0o755)
        if os.geteuid() == 0:
            for folder in (above / "cache", above):
                os.chown(folder, 12345, 12345)
                check(f"foreign {folder.name}", f"{folder} belongs to user 12345")
                os.chown(folder, 0, 0)
        above.chmod(0o1777)
        (above / "cache").chmod(0o700)
        with self.server(config={"cache": str(above / "cache")}) as s:
            self.assertNotIn("cannot be used", s.log())
        self.assertEqual(len(list(above.glob("cache/*.plan"))), 1)

    def test_links_on_the_way_are_followed_and_what_they_lead_to_is_checked(self):
        real = self.folder / "real"
        real.mkdir(mode=0o700)
        os.symlink(real, self.folder / "way")
        config = {"cache": str(self.folder / "way" / "cache")}
        with self.server(config=config):
            self.assertEqual(len(list(real.glob("cache/*.plan"))), 1)
        real.chmod(0o777)
        with self.server(config=config) as s:
            self.assertIn(f"{real} belongs to", s.log())

    def test_external_data_that_change_between_key_and_build(self):
        """The plan of the first build is thrown away; the plan that is kept fits the file that lies
        there."""
        data = self.folder / "weights.bin"
        entry = wire.message((1, "location"), (2, "weights.bin"))
        rows = wire.message((1, 4), (1, WIDE), (2, harness.FLOAT), (8, "table"), (13, entry),
                            (14, 1))
        self.model.write_bytes(harness.model(
            [harness.node("Gather", ["table", "n"], ["y"])],
            [harness.value("n", harness.INT64, ["N", 1])],
            [harness.value("y", harness.FLOAT, ["N", 1, WIDE])], [rows]))

        def serve(value, built, **options):
            with self.server(**options) as s, s.client() as c:
                self.assertEqual((row(c), c.counters()["plans_built"]), (value, built))

        def put_data(value):
            data.write_bytes(struct.pack("<f", value) * (4 * WIDE))

        put_data(1)
        serve(1, 1)
        (key,) = self.kept()
        (self.cache / key).unlink()
        held = self.lock(key)
        s = self.server(wait=False)
        try:
            self.waits(s, key)
            put_data(2)
            os.unlink(held.name)
            held.close()
            s.wait_ready()
            with s.client() as c:
                self.assertEqual((row(c), c.counters()["plans_built"]), (2, 2))
            s.stop()
        finally:
            s.kill()
        self.assertEqual(len(self.kept()), 1)
        self.assertNotIn(key, self.kept())
        serve(2, 0)
        put_data(1)
        serve(1, 1)

    # --- how much is kept ---

    def models(self, *names):
        return {name: str(harness.onnx(name)) for name in names}

    def names(self):
        return sorted(plan.split("-")[0] for plan in self.kept())

    def test_the_least_recently_used_go_first(self):
        for name in ("copy", "twice", "fixed"):
            with self.server(self.models(name)):
                pass
            time.sleep(0.02)
        with self.server(self.models("copy")):  # used again
            pass
        sizes = {p.split("-")[0]: (self.cache / p).stat().st_size for p in self.kept()}
        self.assertEqual(sorted(sizes), ["copy", "fixed", "twice"])
        for name in ("m-" + 64 * "0", "former-" + 32 * "a"):
            (self.cache / f"{name}.lock").write_bytes(b"")
        mine = self.cache / "mine.plan"  # a name that a cache would not have given
        mine.write_bytes(bytes(1 << 20))
        limit = sizes["copy"] + sizes["fixed"] + 10
        with self.server(self.models("copy"), {"cache_bytes": limit}) as s:
            self.assertIn("removed twice-", s.log())
        self.assertEqual(self.names(), ["copy", "fixed", "mine.plan"])
        self.assertEqual(list(self.cache.glob("*.lock")), [])
        with self.server(self.models("twice"), {"cache_bytes": sizes["twice"]}):
            pass
        self.assertEqual(self.names(), ["mine.plan", "twice"])
        with self.server(self.models("copy"), {"cache_bytes": 0}):
            pass
        self.assertEqual(self.names(), ["copy", "mine.plan", "twice"])

    def test_what_is_served_stays_whoever_serves_it(self):
        small = {"cache_bytes": 1}
        with self.server(self.models("copy")) as other:
            with self.server(self.models("twice", "fixed"), small) as s, s.client() as c:
                self.assertEqual(self.names(), ["copy", "fixed", "twice"])
                s.models = self.models("twice")
                s.write_config()
                self.assertTrue(self.reload(s))
                s.wait_log("model 'fixed' version '1' unloaded")
                s.models = self.models("twice", "pair")  # makes the server check the limit again
                s.write_config()
                self.assertTrue(self.reload(s))
                self.assertEqual(infer(c, "twice"), "twice")
                self.assertEqual(self.names(), ["copy", "pair", "twice"])
            other.stop()
            with self.server(self.models("rows"), small):
                self.assertEqual(self.names(), ["rows"])

    # --- waiting ---

    def test_r24_sigterm_while_another_process_builds(self):
        key = self.learn_key("copy")
        self.lock(key)
        s = self.server(wait=False)
        try:
            self.waits(s, key)
            start = time.monotonic()
            s.stop()
            self.assertLess(time.monotonic() - start, 5)
        finally:
            s.kill()

    def test_r35_another_process_that_never_ends_its_build(self):
        key = self.learn_key("copy")
        self.lock(key)
        with self.server(config={"build_timeout_s": 4}) as s, s.client() as c:
            self.assertEqual(infer(c), "copy")
            self.assertIn("another process was still writing it after 4 s", s.log())
        self.assertEqual(self.kept(), [])

    def test_r35_no_folder_at_all_can_be_written(self):
        """The plan has no name anywhere, neither in the cache nor among temporary files."""
        closed = " && ".join(f"mount --bind {d} {d} && mount -o remount,bind,ro {d}"
                             for d in ("/tmp", "/dev/shm", "/var/tmp"))
        prefix = ["unshare", "--mount", "sh", "-c", f'{closed} && exec "$@"', "sh"]
        if os.geteuid() != 0 or subprocess.run([*prefix, "true"], capture_output=True,
                                               check=False).returncode != 0:
            self.skipTest("read-only folders take root and mount namespaces")
        with self.server(prefix=prefix) as s, s.client() as c:
            self.assertEqual((infer(c), c.counters()["plans_built"]), ("copy", 1))
            self.assertIn("plan cache cannot be used", s.log())
        self.assertFalse(self.cache.exists())


class Signatures(Files):
    @classmethod
    def setUpClass(cls):
        holder = cls("setUp")
        holder.setUp()
        cls.private, cls.public = {}, {}
        for name, kind in (("a", "ed25519"), ("b", "ed25519"), ("rsa", "rsa")):
            cls.private[name], cls.public[name] = (holder.folder / f"{name}{end}"
                                                   for end in (".pem", ".pub"))
            holder.openssl("genpkey", "-algorithm", kind, "-out", cls.private[name])
            holder.openssl("pkey", "-in", cls.private[name], "-pubout", "-out", cls.public[name])

    def openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True,
                       timeout=harness.PATIENCE)

    def sign(self, *files, key="a"):
        return subprocess.run([harness.INFERCTL, "sign", *map(str, files), "--key",
                               str(self.private.get(key, key))], capture_output=True, text=True,
                              timeout=harness.PATIENCE, check=False)

    def put(self, name, source, key="a"):
        path = self.folder / name
        shutil.copy(source, path)
        if key:
            done = self.sign(path, key=key)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        return path

    def server(self, models, keys="a", **options):
        file = self.folder / "keys.pub"
        file.write_text("".join(self.public[k].read_text() for k in keys))
        return harness.Server(models, {"plan_keys": str(file)}, **options)

    def refused(self, path, text):
        """The model at `path` is refused with a reason that matches `text`, and another model is
        served."""
        models = {"m": path, "ok": self.put("ok.plan", harness.plan("twice"))}
        with self.server(models) as s, s.client() as c:
            self.assertEqual((infer(c).status, infer(c, "ok")), (wire.UNAVAILABLE, "twice"))
            self.assertRegex(s.log(), rf"'m' version '1' \(\S+\): .*{text}")
            reason = wire.decode(c.call(wire.INDEX).body[1][0])
            self.assertIn("FAILED_PRECONDITION", wire.text(reason, 4))

    def test_signed_files_are_served(self):
        plan = self.put("m.plan", harness.plan("copy"))
        self.assertEqual(plan.with_name("m.plan.sig").stat().st_size, 64)
        onnx = self.put("n.onnx", harness.onnx("twice"), "b")
        with self.server({"m": plan, "n": onnx}, "ab") as s, s.client() as c:
            self.assertEqual((infer(c), infer(c, "n")), ("copy", "twice"))
            self.assertEqual(c.counters()["plans_built"], 1)
        with harness.Server({"m": plan}) as s, s.client() as c:  # asks for no signatures
            self.assertEqual(infer(c), "copy")

    def test_without_a_signature(self):
        for name, source in (("m.plan", harness.plan("copy")), ("m.onnx", harness.onnx("copy"))):
            self.refused(self.put(name, source, None),
                         f"plan_keys asks for a signature of {name} in {name}.sig: there is none")

    def test_by_another_key(self):
        for name, source in (("m.plan", harness.plan("copy")), ("m.onnx", harness.onnx("copy"))):
            self.refused(self.put(name, source, "b"), "by none of the 1 keys")

    def test_files_that_are_altered_after_signing(self):
        for name, source in (("m.plan", harness.plan("copy")), ("m.onnx", harness.onnx("copy"))):
            path = self.put(name, source)
            whole = path.read_bytes()
            for data in (whole + b"\0", whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]),
                         bytes([whole[0] ^ 1]) + whole[1:]):
                cp(path, data)
                models = {"m": path, "ok": self.put("ok.plan", harness.plan("copy"))}
                with self.server(models) as s, s.client() as c:
                    self.assertEqual((infer(c).status, infer(c, "ok")),
                                     (wire.UNAVAILABLE, "copy"))
        path = self.put("m.onnx", harness.onnx("copy"))
        cp(path, harness.onnx("twice").read_bytes())
        self.refused(path, "or the file is another one than was signed")

    def test_signatures_that_are_swapped_or_none(self):
        one = self.put("m.plan", harness.plan("copy"))
        two = self.put("n.plan", harness.plan("twice"))
        sig = one.with_name("m.plan.sig")
        good = sig.read_bytes()
        for data in (two.with_name("n.plan.sig").read_bytes(), bytes(64), good[:63], good + b"\n",
                     b"", good[:32] + bytes(32)):
            cp(sig, data)
            self.refused(one, "signature of m.plan in m.plan.sig: it is ")
        cp(sig, good)
        with self.server({"m": one}) as s, s.client() as c:
            self.assertEqual(infer(c), "copy")

    def test_a_signature_for_something_else_does_not_fit(self):
        """A signature by the same key over the file itself, without the prefix that names the
        purpose."""
        plan = self.put("m.plan", harness.plan("copy"), None)
        self.openssl("pkeyutl", "-sign", "-rawin", "-inkey", self.private["a"], "-in", plan,
                     "-out", f"{plan}.sig")
        self.assertEqual(os.path.getsize(f"{plan}.sig"), 64)
        self.refused(plan, "by none of the 1 keys")

    def test_r25_a_reload_with_an_unsigned_file_changes_nothing(self):
        plan = self.put("m.plan", harness.plan("copy"))
        with self.server({"m": plan}) as s, s.client() as c:
            rename(plan, harness.plan("twice").read_bytes())
            self.assertFalse(self.reload(s))
            self.assertEqual(infer(c), "copy")
            self.sign(plan)
            self.assertTrue(self.reload(s))
            self.assertEqual(infer(c), "twice")

    def test_in_a_repository(self):
        for name, key in (("good", "a"), ("bad", None)):
            (self.folder / "r" / name / "1").mkdir(parents=True)
            self.put(f"r/{name}/1/model.plan", harness.plan("copy"), key)
        with self.server([self.folder / "r"]) as s, s.client() as c:
            self.assertEqual(infer(c, "good"), "copy")
            self.assertEqual(infer(c, "bad").status, wire.UNAVAILABLE)

    def test_kept_plans_need_none_but_their_model_does(self):
        onnx = self.put("m.onnx", harness.onnx("copy"))
        ok = self.put("ok.plan", harness.plan("twice"))
        config = {"plan_keys": str(self.public["a"]), "cache": str(self.folder / "kept")}
        built = []
        for _ in range(2):
            with harness.Server({"m": onnx, "ok": ok}, config) as s, s.client() as c:
                self.assertEqual(infer(c), "copy")
                built.append(c.counters()["plans_built"])
        self.assertEqual(built, [1, 0])
        onnx.with_name("m.onnx.sig").unlink()
        with harness.Server({"m": onnx, "ok": ok}, config) as s, s.client() as c:
            self.assertEqual(infer(c).status, wire.UNAVAILABLE)

    def test_external_data_have_no_signature(self):
        entry = wire.message((1, "location"), (2, "weights.bin"))
        onnx = self.folder / "m.onnx"
        onnx.write_bytes(harness.onnx("copy").read_bytes() + wire.message((6, entry)))
        self.sign(onnx)
        self.refused(onnx, "a signature does not cover external data")

    def test_files_of_keys_that_are_refused(self):
        plan = self.put("m.plan", harness.plan("copy"))
        keys = self.folder / "some.pub"
        good = self.public["a"].read_text()
        for text, mode, says in (
                ("", 0o644, "expected public keys in PEM"),
                ("no key\n", 0o644, "expected public keys in PEM"),
                (self.private["a"].read_text(), 0o644, "expected public keys in PEM"),
                (good + self.public["rsa"].read_text(), 0o644, "key 2 is no Ed25519 key"),
                (good + "-----BEGIN PUBLIC KEY-----\nMCow\n", 0o644, "number 2 is none"),
                (good * 65, 0o644, "more than 64 keys"),
                (good * 200, 0o644, "too long"),
                (good, 0o666, "has mode 0666, expected user")):
            keys.write_text(text)
            keys.chmod(mode)
            s = harness.Server({"m": plan}, {"plan_keys": str(keys)}, wait=False)
            self.assertEqual(s.wait(), 1, text)
            self.assertIn(says, s.log())

    def test_sign_says_what_it_lacks(self):
        plan = self.put("m.plan", harness.plan("copy"), None)
        locked = self.folder / "locked.pem"
        self.openssl("pkey", "-in", self.private["a"], "-aes256", "-passout", "pass:x", "-out",
                     locked)
        for key, says in ((locked, "not encrypted"), (self.private["rsa"], "Ed25519"),
                          (self.public["a"], "expected a private"), (plan, "too long|expected"),
                          (self.folder / "none", "No such file")):
            done = self.sign(plan, key=str(key))
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, rf"\Ainferctl sign: [^\n]*({says})[^\n]*\n\Z")
            self.assertFalse(plan.with_name("m.plan.sig").exists())
        self.assertEqual(self.sign(self.folder / "nothing.plan").returncode, 1)


if __name__ == "__main__":
    harness.main()
