#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a daemon says in its log, and how a reload changes that.

    test_log.py INFERD INFERCTL
"""
import json
import signal
import unittest

import harness


class Log(unittest.TestCase):
    def reload(self, server, n, **config):
        server.config.update(config)
        server.write_config()
        server.signal(signal.SIGHUP)
        with server.client() as client:
            harness.until(lambda: client.counters().get("reloads", 0) == n)

    def test_a_reload_changes_levels_and_format(self):
        with harness.Server({"copy": harness.plan("copy")}, {"log_level": "warning"}) as server:
            self.assertNotIn("loaded in", server.log())
            self.reload(server, 1, log_components="models=info")
            server.models["pair"] = harness.plan("pair")
            self.reload(server, 2)
            server.wait_log("model 'pair' version '1' loaded")
            self.assertNotIn("reloaded", server.log())  # that is of the component server
            self.reload(server, 3, log_level="info", log_format="json", log_components=None)
            server.wait_log('"reloaded')
            begin = len(server.log())
            self.reload(server, 4)
            server.wait_log('"reloaded', count=2)
            lines = [json.loads(line) for line in server.log()[begin:].splitlines()]
            self.assertGreaterEqual(len(lines), 2)
            for line in lines:
                self.assertEqual(set(line), {"time", "level", "component", "message"})
            self.assertIn(("info", "server", "reloading"),
                          [(x["level"], x["component"], x["message"]) for x in lines])

    def test_a_reload_that_is_wrong_changes_nothing(self):
        with harness.Server({"copy": harness.plan("copy")}) as server:
            server.config["log_components"] = "peers=loud"
            server.write_config()
            server.signal(signal.SIGHUP)
            server.wait_log(r'reload failed.*log_components: expected such as')


if __name__ == "__main__":
    harness.main()
