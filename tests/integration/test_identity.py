#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may do what: tokens over TCP, users and groups over unix sockets, and the answers to
strangers.

    test_identity.py INFERD INFERCTL
"""
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

import harness
import wire
from wire import message

X4 = struct.pack("<4f", 1, 2, 3, 4)
IP_FREEBIND = 15
WITH_LISTENER = ["sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"']
TEAM = {"name": "team", "models": ["co*"], "rights": ["infer", "describe"]}
OPS = {"name": "ops", "rights": ["status"]}


def infer(client, model="copy", token=""):
    return client.infer(model, [("x", "FP32", [1, 4], X4)], token=token)


def make_token(name, *rights):
    """A token, and its line."""
    more = ["--rights", ",".join(rights)] if rights else []
    done = subprocess.run([harness.INFERCTL, "token", name, *more], capture_output=True, text=True,
                          check=True, timeout=harness.PATIENCE)
    return done.stdout.splitlines()


def as_somebody(uid, gid, groups, address, *calls):
    """Statuses of calls on a connection of another account; needs root."""
    def drop():
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    script = ("import json, sys, wire\n"
              "with wire.Client(sys.argv[1]) as client:\n"
              "    print(json.dumps([client.call(k, bytes.fromhex(b)).status\n"
              "                      for k, b in json.loads(sys.argv[2])]))\n")
    code = pathlib.Path(wire.__file__).read_text()
    script = f"import types\nwire = types.ModuleType('wire')\nexec({code!r}, wire.__dict__)\n" + \
        script.replace("import json, sys, wire", "import json, sys")
    done = subprocess.run(["/usr/bin/python3", "-c", script, address,
                           json.dumps([(kind, body.hex()) for kind, body in calls])],
                          capture_output=True, text=True, timeout=harness.PATIENCE, preexec_fn=drop,
                          check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Identity(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="inferd-identity-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.file = self.folder / "tokens"

    def tokens(self, *lines, mode=0o600):
        self.file.write_text("".join(line + "\n" for line in lines))
        self.file.chmod(mode)
        return str(self.file)

    def server(self, config, **options):
        models = {"copy": harness.plan("copy"), "wide": harness.plan("wide"),
                  "twice": harness.plan("twice")}
        s = harness.Server(models, config, **options)
        self.addCleanup(s.kill)
        return s

    def two_teams(self, **options):
        self.team, line = make_token("team")
        self.ops, other = make_token("ops")
        return self.server({"tokens": self.tokens(line, other), "identities": [TEAM, OPS]},
                           **options)

    # --- tokens ---

    def test_r16_no_token_no_answer(self):
        named = message((1, "copy"))
        with self.two_teams() as s, s.client() as client:
            for kind in (wire.LIVE, wire.READY):
                self.assertEqual(client.call(kind).status, wire.OK)
            for kind, body in ((wire.MODEL_READY, named), (wire.SERVER_METADATA, b""),
                               (wire.MODEL_METADATA, named), (wire.STATISTICS, b""),
                               (wire.STATISTICS, named), (wire.INDEX, b""), (wire.STATUS, b"")):
                reply = client.call(kind, body)
                self.assertEqual((reply.status, reply.body), (wire.UNAUTHENTICATED, {}))
                self.assertIn("a token is needed for this", reply.message)
            self.assertEqual(infer(client).status, wire.UNAUTHENTICATED)
            self.assertEqual(infer(client, token=self.team).outputs()["y"][2], X4)
            self.assertEqual(infer(client).status, wire.UNAUTHENTICATED)  # the old one ended
            self.assertEqual(client.counters(self.ops)["refused_unauthenticated"], 9)
            s.wait_log("refused: inferences of model 'copy': a token is needed")

    def test_r16_models_and_rights(self):
        with self.two_teams() as s, s.client() as client:
            known = infer(client, "twice", self.team)
            unknown = infer(client, "nosuch", self.team)
            self.assertEqual((known.status, unknown.status),
                             (wire.PERMISSION_DENIED, wire.PERMISSION_DENIED))
            self.assertEqual(known.message.replace("twice", "nosuch"), unknown.message)
            for kind, body in ((wire.INFER, wire.infer_body("cop", [])),
                               (wire.MODEL_METADATA, message((1, "cop")))):
                reply = client.call(kind, body, token=self.team)  # is told of its own models only
                self.assertEqual((reply.status, reply.message),
                                 (wire.NOT_FOUND,
                                  "there is no model 'cop'; there are 'copy' (did you mean "
                                  "'copy'?)"))
            call = client.call
            self.assertEqual(call(wire.MODEL_METADATA, message((1, "copy")),
                                  token=self.team).status, wire.OK)
            self.assertEqual(call(wire.MODEL_READY, message((1, "twice")), token=self.team).status,
                             wire.PERMISSION_DENIED)
            self.assertEqual(call(wire.STATISTICS, token=self.team).status, wire.PERMISSION_DENIED)
            self.assertEqual(call(wire.INDEX, token=self.ops).status, wire.OK)
            self.assertEqual(infer(client, "copy", self.ops).status, wire.PERMISSION_DENIED)
            self.assertEqual(client.counters(self.ops)["refused_permission"], 5)

    def test_tokens_that_are_not_known_end_the_connection(self):
        with self.two_teams() as s:
            with s.client() as client:
                for _ in range(8):
                    reply = infer(client, token="x" * 43)
                    self.assertEqual((reply.status, reply.message),
                                     (wire.UNAUTHENTICATED, "the token is not known"))
                self.assertTrue(client.closed())
            # unknown tokens count also in requests that need no right
            with s.client() as client:
                for _ in range(8):
                    self.assertEqual(client.call(wire.LIVE, token="x" * 43).status, wire.OK)
                self.assertTrue(client.closed())
            with s.client() as client:
                self.assertEqual(infer(client, token=self.team).status, wire.OK)

    def test_r25_tokens_are_read_again(self):
        old, old_line = make_token("app", "infer")
        new, new_line = make_token("app", "infer")
        with self.server({"tokens": self.tokens(old_line)}) as s, s.client() as client:
            self.assertEqual(infer(client, token=old).status, wire.OK)
            self.assertEqual(infer(client, token=new).status, wire.UNAUTHENTICATED)
            self.tokens(old_line, new_line)
            s.signal(signal.SIGHUP)
            s.wait_log("reloaded: 3 model versions")
            self.assertEqual(infer(client, token=old).status, wire.OK)
            self.assertEqual(infer(client, token=new).status, wire.OK)
            self.tokens(new_line)
            s.signal(signal.SIGHUP)
            s.wait_log("reloaded: 3 model versions", count=2)
            self.assertEqual(infer(client, token=old).status, wire.UNAUTHENTICATED)
            self.assertEqual(infer(client, token=new).status, wire.OK)
            for count, wrong in enumerate((["app nonsense"], [old_line, old_line], []), 1):
                self.tokens(*wrong)
                s.signal(signal.SIGHUP)
                s.wait_log("reload failed, everything stays as it was", count=count)
            self.tokens(old_line, mode=0o644)
            s.signal(signal.SIGHUP)
            s.wait_log("its owner's alone")
            self.assertEqual(infer(client, token=old).status, wire.UNAUTHENTICATED)
            self.assertEqual(infer(client, token=new).status, wire.OK)

    def test_a_file_that_is_not_in_order_ends_the_start(self):
        _, line = make_token("app", "infer")
        for lines, mode, expected in (
                ([line], 0o640, "its owner's alone (chmod 600), got mode 640"),
                (["app sha256:12"], 0o600, "tokens:1: expected sha256: and 64 hexadecimal digits"),
                ([], 0o600, "expected at least one token")):
            config = {"tokens": self.tokens(*lines, mode=mode)}
            s = self.server(config, wait=False)
            self.assertEqual(s.wait(), 1)
            self.assertIn(expected, s.log())
            s = self.server(config, wait=False, arguments=["--check-config"])
            self.assertEqual(s.wait(), 1)
            self.assertIn(expected, s.log())

    def test_a_credential(self):
        token, line = make_token("app", "infer")
        self.tokens(line, mode=0o440)
        config = {"tokens": "tokens"}
        with self.server(config, env={"CREDENTIALS_DIRECTORY": str(self.folder)}) as s, \
                s.client() as client:
            self.assertEqual(infer(client, token=token).status, wire.OK)
            self.assertEqual(infer(client).status, wire.UNAUTHENTICATED)
        s = self.server(config, wait=False, env={"CREDENTIALS_DIRECTORY": None})
        self.assertEqual(s.wait(), 1)
        self.assertIn("$CREDENTIALS_DIRECTORY, which is not set", s.log())

    def two_names(self, **limits_of_a):
        """The tokens of a and b, and a configuration in which a has limits."""
        a, line_a = make_token("a")
        b, line_b = make_token("b")
        rights = {"models": ["copy"], "rights": ["infer", "status"]}
        rows = [dict(rights, name="a", **limits_of_a), dict(rights, name="b")]
        return a, b, {"device": "fault", "max_batch": 1, "identities": rows,
                      "tokens": self.tokens(line_a, line_b)}

    def test_limits_of_one_do_not_concern_others(self):
        a, b, config = self.two_names(requests=2)
        env = {"INFERD_FAULT_SCRIPT": "on=cpu;launch:delay=700ms"}
        body = wire.infer_body("copy", [("x", "FP32", [1, 4], X4)])
        with self.server(config, env=env) as s, s.client() as first, s.client() as second, \
                s.client() as other:
            for client in (first, second):  # one limit for all connections of the name
                client.start(wire.INFER, body, token=a)
            harness.until(lambda: wire.one(other.call(wire.STATUS, token=b).body, 9, 0) == 2)
            reply = second.call(wire.INFER, body, token=a)
            self.assertEqual((reply.status, reply.message),
                             (wire.RESOURCE_EXHAUSTED, "'a' has as much in flight as it may have"))
            self.assertGreater(reply.retry_after_us, 0)
            self.assertEqual(other.call(wire.INFER, body, token=b).status, wire.OK)
            for client in (first, second):
                self.assertEqual(client.receive().status, wire.OK)
            self.assertEqual(first.call(wire.INFER, body, token=a).status, wire.OK)
            counters = other.counters(b)
            self.assertEqual((counters["rejected_identity"], counters["rejected_memory"]), (1, 0))

    def test_a_priority_that_one_may_not_have(self):
        a, b, config = self.two_names(priority=2)
        env = {"INFERD_FAULT_SCRIPT": "on=cpu;launch:delay=500ms"}
        body = wire.infer_body("copy", [("x", "FP32", [1, 4], X4)])
        with self.server(config, env=env) as s, s.client() as running, s.client() as low, \
                s.client() as high, s.client() as probe:
            def in_flight(n):
                harness.until(
                    lambda: wire.one(probe.call(wire.STATUS, token=b).body, 9, 0) == n)
            running.start(wire.INFER, body, token=b)
            in_flight(1)
            low.start(wire.INFER, body, token=a, priority=0)  # it gets 2
            in_flight(2)
            high.start(wire.INFER, body, token=b, priority=1)
            in_flight(3)
            self.assertEqual(high.receive().status, wire.OK)
            self.assertEqual(select.select([low.socket], [], [], 0)[0], [])
            self.assertEqual(low.receive().status, wire.OK)
            self.assertEqual(running.receive().status, wire.OK)

    # --- strangers ---

    def test_a_large_message_needs_its_token_first(self):
        megabyte = bytes(1 << 20)
        body = wire.infer_body("wide", [("x", "FP32", [1, 1 << 18], megabyte)])
        token, line = make_token("app", "infer")
        with self.server({"tokens": self.tokens(line)}) as s:
            with s.client() as client:
                reply = client.call(wire.INFER, body, token=token)
                self.assertEqual(reply.outputs()["y"][2], megabyte)
                self.assertEqual(client.call(wire.INFER, body).status, wire.UNAUTHENTICATED)
            with s.client() as client:  # a byte at a time, up to the end of the token
                data = wire.request(7, wire.INFER, body, token=token)
                for i in range(60):
                    client.send(data[i : i + 1])
                    time.sleep(0.001)
                client.send(data[60:])
                self.assertEqual(client.receive().status, wire.OK)
            for other in ("", "x" * 43):
                with s.client() as client:
                    data = wire.request(7, wire.INFER, body, token=other)
                    client.send(data[:3000])
                    reply = client.receive()
                    self.assertEqual((reply.status, reply.id), (wire.UNAUTHENTICATED, 7))
                    self.assertTrue(client.closed())

    def test_a_stranger_has_little_time(self):
        token, line = make_token("app", "infer", "status")
        with self.server({"tokens": self.tokens(line)}) as s:
            with s.client() as known, s.client() as silent, s.client() as asking:
                self.assertEqual(infer(known, token=token).status, wire.OK)
                self.assertEqual(asking.call(wire.READY).status, wire.OK)
                begin = time.monotonic()
                self.assertTrue(silent.closed())
                self.assertTrue(asking.closed())
                self.assertLess(time.monotonic() - begin, 15)
                self.assertEqual(known.counters(token)["timeouts_token"], 2)

    # --- unix sockets ---

    def unix(self, config, mode=0o666, **options):
        path = self.folder / "socket"
        s = self.server(dict(config, listen={"framed": [f"unix:{path}"]}), **options)
        path.chmod(mode)
        return s

    def test_the_socket_s_mode_lets_in(self):
        token, line = make_token("app", "infer")
        with self.unix({"tokens": self.tokens(line)}) as s, s.client() as client:
            self.assertEqual(infer(client).status, wire.OK)
            self.assertEqual(client.call(wire.STATUS).status, wire.OK)
            self.assertEqual(client.call(wire.STATUS, token=token).status, wire.PERMISSION_DENIED)
            self.assertEqual(infer(client, token="x" * 43).status, wire.UNAUTHENTICATED)

    def test_users(self):
        me = {"name": "me", "user": str(os.geteuid()), "models": ["copy"], "rights": ["infer"]}
        with self.unix({"identities": [me]}) as s, s.client() as client:
            self.assertEqual(infer(client).status, wire.OK)
            self.assertEqual(infer(client, "twice").status, wire.PERMISSION_DENIED)
            self.assertEqual(client.call(wire.STATUS).status, wire.PERMISSION_DENIED)
        other = dict(me, user=str(os.geteuid() + 1))
        with self.unix({"identities": [other]}) as s, s.client() as client:
            self.assertEqual(infer(client).status, wire.UNAUTHENTICATED)
            self.assertEqual(client.call(wire.READY).status, wire.OK)

    def test_users_do_not_count_over_tcp(self):
        me = {"name": "me", "user": str(os.geteuid()), "models": ["copy"], "rights": ["infer"]}
        with self.server({"identities": [me]}) as s, s.client() as client:
            self.assertEqual(infer(client).status, wire.UNAUTHENTICATED)

    @unittest.skipIf(os.geteuid() != 0, "takes the rights of root to be somebody else")
    def test_others_and_their_groups(self):
        status = (wire.STATUS, b"")
        rows = [{"name": "user", "user": "23456", "rights": ["status"]},
                {"name": "group", "group": "34567", "rights": ["status"]},
                {"name": "both", "user": "23458", "group": "34568", "rights": ["status"]}]
        with self.unix({"identities": rows}) as s:
            for uid, gid, groups, expected in (
                    (23456, 1, [], wire.OK), (23457, 1, [], wire.UNAUTHENTICATED),
                    (23457, 34567, [], wire.OK), (23457, 1, [5, 34567], wire.OK),
                    (23458, 1, [], wire.UNAUTHENTICATED), (23458, 1, [34568], wire.OK),
                    (23459, 34568, [], wire.UNAUTHENTICATED), (65534, 65534, [65534],
                                                               wire.UNAUTHENTICATED)):
                self.assertEqual(as_somebody(uid, gid, groups, s.address, status), [expected],
                                 (uid, gid, groups))

    @unittest.skipIf(os.geteuid() != 0 or subprocess.run(["unshare", "-Ur", "true"], check=False,
                                                         capture_output=True).returncode,
                     "takes the rights of root and user namespaces")
    def test_strangers_of_a_user_namespace_are_nobody(self):
        rows = [{"name": "mapped", "user": "root", "rights": ["status"]},
                {"name": "user", "user": "23456", "rights": ["status"]}]
        with self.unix({"identities": rows}, prefix=["unshare", "-Ur"]) as s:
            status = (wire.STATUS, b"")
            self.assertEqual(as_somebody(0, 0, [], s.address, status), [wire.OK])
            self.assertEqual(as_somebody(23456, 1, [], s.address, status), [wire.UNAUTHENTICATED])
        s = self.server({"identities": [dict(rows[1], user="nobody")]}, wait=False)
        self.assertEqual(s.wait(), 1)
        self.assertIn("stands for everybody who has no number here", s.log())

    # --- addresses ---

    def test_r16_beyond_loopback_only_with_tokens(self):
        _, line = make_token("app", "infer")
        public = {"framed": ["192.0.2.1:8003"]}  # no machine has it: checked, not bound
        check = ["--check-config"]
        s = self.server({"listen": public}, wait=False)
        self.assertEqual(s.wait(), 1)
        self.assertIn("listen: 192.0.2.1:8003 is reachable by others and no tokens", s.log())
        for config, more, refused in (
                ({"listen": public}, [], True), ({"listen": public}, ["--insecure"], False),
                ({"listen": dict(public, insecure="true")}, [], False),
                ({"listen": public, "tokens": self.tokens(line)}, [], False),
                ({"listen": public}, ["--listen", "127.0.0.1:0"], False)):
            s = self.server(config, wait=False, arguments=[*check, *more])
            s.wait()  # 1 in most cases: the address cannot be bound
            self.assertEqual("is reachable by others" in s.log(), refused,
                             (config, more, s.log()))

    def test_r16_sockets_of_the_service_manager_too(self):
        _, line = make_token("app", "infer")
        with socket.socket() as listener:
            listener.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
            listener.bind(("192.0.2.1", 0))  # nobody reaches it, but it is not loopback
            listener.listen(1)

            def hand_over():
                os.dup2(listener.fileno(), 50)
                os.dup2(50, 3)

            options = {"prefix": WITH_LISTENER, "preexec_fn": hand_over, "close_fds": False}
            s = self.server({}, wait=False, **options)
            self.assertEqual(s.wait(), 1)
            self.assertIn("is reachable by others and no tokens are configured", s.log())
            with self.server({"tokens": self.tokens(line)}, **options) as s:
                s.config.pop("tokens")  # a reload must not open what is already bound
                s.write_config()
                s.signal(signal.SIGHUP)
                s.wait_log("reload failed, everything stays as it was: listen: 192.0.2.1")

    # --- programs ---

    def inferctl(self, *args, env=None, code=0):
        done = subprocess.run([harness.INFERCTL, *map(str, args)], capture_output=True, text=True,
                              timeout=120, check=False, env=dict(os.environ, **(env or {})))
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout + done.stderr

    def test_inferctl_sends_the_token(self):
        token, line = make_token("app", "infer", "describe", "status")
        file = self.folder / "app.token"
        file.write_text(token + "\n")
        with self.server({"tokens": self.tokens(line)}) as s:
            load = ("load", s.address, "--model", "copy", "--seconds", "0.1", "--connections", "2")
            for command in (("infer", s.address, "--model", "copy"), ("status", s.address), load):
                self.assertIn("a token is needed for this", self.inferctl(*command, code=1))
                self.inferctl(*command, "--token-file", file)
                self.inferctl(*command, "--token", token)
                self.inferctl(*command, env={"INFERD_TOKEN_FILE": str(file)})
                self.assertIn("the token is not known",
                              self.inferctl(*command, "--token", "x" * 43, code=1))
            report = self.folder / "load.json"
            self.inferctl(*load, "--token-file", file, "--json", report)
            point = json.loads(report.read_text())["points"][0]
            self.assertEqual(point["errors"], 0)


if __name__ == "__main__":
    harness.main()
