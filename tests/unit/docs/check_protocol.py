#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/protocol.md against the .proto files and the headers: names and numbers.

    check_protocol.py ROOT
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
PAGE = (ROOT / "docs/protocol.md").read_text()


def messages():
    """name -> {field: number}; what is in a oneof also as "Name.oneof"."""
    found, stack = {}, []
    for path in ("proto/inferd.proto", "proto/inference.proto"):
        for line in (ROOT / path).read_text().splitlines():
            line = line.partition("//")[0]
            for opened, name, field, number, closed in re.findall(
                    r"(message|oneof|enum|service) (\w+) \{|"
                    r"(?:[\w.]+|map<[^>]*>) (\w+) = (\d+);|(\})", line):
                if opened == "oneof":
                    name = f"{stack[-1]}.{name}"
                if opened:
                    stack.append(name)
                    found[name] = {}
                elif field:
                    found[stack[-1]][field] = int(number)
                elif closed:
                    stack.pop()
    assert not stack
    return found


MESSAGES = messages()


def section(head):
    return re.search(rf"(?ms)^#+ {re.escape(head)}$(.*?)(?=^#|\Z)", PAGE).group(1)


def tables(text):
    """A list of tables, each a list of rows of cells; without the head."""
    found = []
    for block in re.findall(r"(?m)(?:^\|.*\n)+", text):
        rows = [[c.strip() for c in line.strip("|").split("|")] for line in block.splitlines()]
        found.append(rows[2:])
    return found


def numbered(table):
    return {row[0].strip("`"): int(row[1]) for row in table if row[0].startswith("`")}


def mentioned(text):
    """`name` 1, `datatype` 2 ..."""
    return {name: int(number) for name, number in re.findall(r"`(\w+)` (\d+)", text)}


def cell(table, name):
    return next(row[2] for row in table if row[0] == f"`{name}`")


class Protocol(unittest.TestCase):
    def test_the_schema_is_read(self):
        self.assertEqual(MESSAGES["Request.body"]["infer"], 10)
        self.assertEqual(MESSAGES["ModelInferRequest"]["raw_input_contents"], 7)
        self.assertEqual(MESSAGES["InferInputTensor"]["parameters"], 4)
        self.assertGreater(sum(map(len, MESSAGES.values())), 150)

    def test_request(self):
        fields, bodies = tables(section("Request"))
        self.assertEqual(numbered(fields), MESSAGES["Request"])
        self.assertEqual(numbered(bodies), MESSAGES["Request.body"])
        self.assertEqual(MESSAGES["Response.body"], MESSAGES["Request.body"])
        least, most = min(MESSAGES["Request.body"].values()), max(MESSAGES["Request.body"].values())
        for table in (fields, tables(section("Response"))[0]):
            self.assertIn(["one body", f"{least} to {most}"], [row[:2] for row in table])

    def test_infer_request(self):
        table, = tables(section("ModelInferRequest"))
        self.assertEqual(numbered(table), MESSAGES["ModelInferRequest"])
        self.assertEqual(mentioned(cell(table, "inputs")), MESSAGES["InferInputTensor"])
        self.assertEqual(mentioned(cell(table, "outputs")), MESSAGES["InferRequestedOutputTensor"])

    def test_response(self):
        table, = tables(section("Response"))
        self.assertEqual(numbered(table), MESSAGES["Response"])
        self.assertEqual(mentioned(cell(table, "timing")), MESSAGES["Timing"])
        self.assertEqual(mentioned(section("Response").partition("`ModelInferResponse`")[2]),
                         {name: number for name, number in MESSAGES["ModelInferResponse"].items()
                          if name != "parameters"})  # the server sends none

    def test_status_codes(self):
        codes = dict(re.findall(r"STATUS_(\w+) = (\d+),", (ROOT / "base/error.h").read_text()))
        table, = tables(section("Status codes"))
        self.assertGreater(len(table), 8)
        for number, name, *_ in table:
            self.assertEqual(codes[name], number)

    def test_caps(self):
        header = (ROOT / "proto/message.h").read_text()
        caps = {name: f"{int(number):,}"
                for name, number in re.findall(r"MESSAGE_MAX_(\w+) = (\d+),", header)}
        rows = {row[0].partition(",")[0]: row[1] for row in tables(section("Limits"))[-1]}
        self.assertEqual(rows["parameters of a request"], caps["PARAMETERS"])
        self.assertEqual(rows["fields of a message"], caps["FIELDS"])
        self.assertTrue(rows["tensors"].startswith(caps["TENSORS"] + ","))
        self.assertIn(f"{caps['NAME']} printable", rows["tensors"])
        self.assertIn(f"at most {caps['TOKEN']} bytes", section("Request"))
        self.assertIn(f"at most {caps['ID']} bytes", section("ModelInferRequest"))
        self.assertIn(f"at most {caps['PARAMETERS']} in", section("ModelInferRequest"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
