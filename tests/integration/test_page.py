#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The status page: without JavaScript as a text, and in headless Chromium.

    test_page.py INFERD INFERCTL
"""
import gzip
import html.parser
import http.client
import json
import os
import re
import struct
import unittest

import browser
import harness
import wire

X4 = struct.pack("<4f", 1, 2, 3, 4)


def address(server):
    return re.search(r"(?m)^metrics (\S+)$", server.log()).group(1)


def doors(port=0, **more):
    return dict({"listen": {"framed": ["127.0.0.1:0"], "metrics": [f"127.0.0.1:{port}"]}}, **more)


def ask(server, path):
    connection = http.client.HTTPConnection(address(server), timeout=harness.PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def infer(client, model="copy", n=1):
    return client.infer(model, [("x", "FP32", [n, 4], X4 * n)])


class Reader(html.parser.HTMLParser):
    """What a text browser would find: rows of tables, references, and whether tags are in
    balance."""
    ALONE = {"meta", "link", "rect", "path"}

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.references, self.styles = [], [], [], 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in self.ALONE:
            self.open.append(tag)
        attrs = dict(attrs)
        self.references += [attrs[k] for k in ("href", "src") if k in attrs]
        self.styles += "style" in attrs or tag == "style"
        if any(k.startswith("on") for k in attrs):
            raise AssertionError(f"a handler within {tag}")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.ALONE:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in self.ALONE and self.open.pop() != tag:
            raise AssertionError(f"</{tag}> closes something else")

    def handle_data(self, data):
        if self.rows and self.rows[-1] and any(t in self.open for t in ("td", "th")):
            self.rows[-1][-1] += data


class WithoutBrowser(unittest.TestCase):
    def test_the_page_is_whole_without_javascript(self):
        config = doors(limits={"queue_requests": 2}, max_delay_us=500000)
        with harness.Server({"copy": harness.plan("copy")}, config) as server:
            with server.client() as client:
                body = wire.infer_body("copy", [("x", "FP32", [1, 4], X4)])
                for _ in range(4):
                    client.start(wire.INFER, body)
                for _ in range(4):
                    client.receive()
            harness.until(lambda: b"queue_full" in ask(server, "/")[2])
            status, headers, data = ask(server, "/")
            page = Reader(data.decode())
            self.assertEqual(status, 200)
            self.assertEqual(page.open, [])
            self.assertEqual(page.styles, 0)
            model = next(row for row in page.rows if row[0].startswith("copy"))
            self.assertEqual((model[1], model[7], model[8]), ("ready", "2", "2"))
            self.assertIn(["queue_full", "the queue is full", "2"], page.rows)
            self.assertTrue(all(r.startswith("/") and not r.startswith("//")
                                for r in page.references), page.references)
            for reference in page.references:
                self.assertEqual(ask(server, reference)[0], 200, reference)
            self.check_headers(headers)

    def check_headers(self, headers):
        policy = dict(part.split(" ", 1) for part in
                      headers["Content-Security-Policy"].split("; "))
        self.assertEqual(policy.pop("default-src"), "'none'")
        self.assertLessEqual(set(policy.values()), {"'self'", "'none'"})
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual(headers["Cache-Control"], "no-store")

    def test_a_models_page(self):
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            with server.client() as client:
                for n in (1, 3, 3):
                    infer(client, n=n)
            page = Reader(ask(server, "/model/copy/1")[2].decode())
            self.assertEqual(page.open, [])
            self.assertIn(["1", "1", "33.3 %", ""], page.rows)
            self.assertIn(["3 to 4", "2", "66.7 %", ""], page.rows)
            stages = {row[0] for row in page.rows}
            self.assertLessEqual({"queue", "input", "compute", "output", "total"}, stages)
            self.assertEqual([r[1] for r in page.rows if r[0] == "y"], ["unary"])
            for path in ("copy/2", "cop/1", "copy", "", "copy/1/"):
                self.assertEqual(ask(server, "/model/" + path)[0], 404, path)

    def test_what_changes(self):
        """A part has the same pieces as the page, and points from where it was asked to begin."""
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            def points(path):
                text = ask(server, path)[2].decode()
                return json.loads(re.search(r'id="points">(.*?)</script>', text).group(1)), text
            with server.client() as client:
                infer(client)
                harness.until(lambda: points("/")[0]["next"] >= 3)
                whole, page = points("/")
                part, text = points("/?since=2")
                lives = re.findall(r'id="([\w-]+)" data-live', page)
                self.assertEqual(lives, re.findall(r'id="([\w-]+)" data-live', text))
                self.assertGreater(len(lives), 8)
                self.assertNotIn("<svg viewBox=\"0 0 600", text)
                self.assertEqual(part["first"], 2)
                self.assertEqual(part["requests"][0], whole["requests"][1])
                self.assertEqual(len(whole["requests"]), whole["next"] - whole["first"])
                self.assertGreater(max(whole["requests"]), 0)
                for since in ("0", "-1", "x", "99999999999999999999999", "18446744073709551615"):
                    self.assertEqual(ask(server, f"/?since={since}")[0], 200, since)

    def test_names_do_no_harm(self):
        """A path in a request is no part of the page."""
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            status, _, data = ask(server, "/model/%3Cscript%3E/1")
            self.assertEqual(status, 404)
            self.assertNotIn(b"<script>", data)

    def test_assets(self):
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            for path, kind in (("/page.js", "text/javascript"), ("/page.css", "text/css"),
                               ("/icon.svg", "image/svg+xml"), ("/chart.js", "text/javascript")):
                status, headers, data = ask(server, path)
                self.assertEqual((status, headers["Content-Encoding"]), (200, "gzip"))
                self.assertTrue(headers["Content-Type"].startswith(kind))
                text = gzip.decompress(data).decode()
                self.assertNotRegex(text if path != "/chart.js" else "", r"https?://(?!www.w3.org)")


@unittest.skipUnless(browser.program(), "chromium is not here (Debian's package chromium)")
class InBrowser(unittest.TestCase):
    WIDTHS = ((400, 800), (800, 900), (1600, 1000))

    def test_it_lives(self):
        """It draws, follows what happens, is readable at every width and in both colours, finds a
        server that was started anew, and has nothing to complain of on the way."""
        with harness.Server({"copy": harness.plan("copy")}, doors()) as first, \
                browser.Browser() as page:
            url = f"http://{address(first)}/"
            page.window(1600, 1000)
            page.open(url)
            charts = ask(first, "/chart.js")[2]
            if len(gzip.decompress(charts)) > 1000:  # else the build had no library
                page.until("document.querySelectorAll('.plot canvas').length === 7")
            else:
                page.until("document.querySelectorAll('.plot svg').length === 7")
            self.follows(first, page)
            for width, height in self.WIDTHS:
                for scheme in ("light", "dark"):
                    page.window(width, height, scheme)
                    self.readable(page, width, scheme)
            self.assertEqual(page.complaints, [])
            self.survives(first, page)

    def follows(self, server, page):
        row = "document.querySelector('#models tbody tr').cells[7].textContent"
        with server.client() as client:
            for n in (5, 12):
                while client.counters().get("requests_ok", 0) < n:
                    infer(client)
                page.until(f"{row} === '{n}'")
        page.until("document.querySelector('#tiles dd').textContent !== '-'")

    def readable(self, page, width, scheme):
        """Nothing hangs out sideways, text is not tiny, and stands out from what is behind it."""
        page.until(f"innerWidth === {width}")
        self.assertLessEqual(page.run("document.documentElement.scrollWidth"), width)
        small = page.run("Math.min(...[...document.querySelectorAll('td, th, dt, dd, p, h1, h2')]"
                         ".map(e => parseFloat(getComputedStyle(e).fontSize)))")
        self.assertGreaterEqual(small, 11)
        contrasts = page.run("""(() => {
            const light = (c) => c.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
                .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
                .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
            const behind = (e) => { for (; e; e = e.parentElement) {
                const c = getComputedStyle(e).backgroundColor;
                if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
            return [...document.querySelectorAll('td, th, dt, dd, p, h1, h2, a, .state, b')]
                .filter(e => e.textContent.trim() && !e.hidden).map(e => {
                    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
                    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); });
            })()""")
        self.assertGreater(len(contrasts), 50)
        self.assertGreaterEqual(min(contrasts), 4.5, scheme)  # WCAG 2.1, level AA

    def survives(self, first, page):
        """The page says that the server is away, and goes on with the next one."""
        port = int(address(first).rpartition(":")[2])
        first.stop()
        page.until("!document.getElementById('away').hidden")
        page.complaints.clear()  # requests that found nobody
        with harness.Server({"copy": harness.plan("copy"), "pair": harness.plan("pair")},
                            doors(port)):
            page.until("document.getElementById('away').hidden &&"
                       " document.querySelectorAll('#models tbody tr').length === 2", 30)
            page.until("document.querySelector('#state .state').textContent === 'ready'")

    def test_a_models_page(self):
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server, \
                browser.Browser() as page:
            page.window(400, 800)
            page.open(f"http://{address(server)}/model/copy/1")
            with server.client() as client:
                for _ in range(3):
                    infer(client)
            page.until("document.querySelector('#sizes tbody tr').cells[1].textContent === '3'")
            self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 400)
            self.assertEqual(page.complaints, [])

    def test_without_javascript(self):
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server, \
                browser.Browser() as page:
            page.javascript(False)
            page.open(f"http://{address(server)}/")
            picture = os.path.join(harness.folder(), "plain.png")
            page.picture(picture)
            self.assertGreater(os.path.getsize(picture), 10000)
            self.assertEqual(page.complaints, [])


if __name__ == "__main__":
    harness.main()
