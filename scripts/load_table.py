#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One table from the files that `inferctl load --json FILE` wrote: load_table.py FILE..."""
import json
import sys

COLUMNS = [("concurrency", "in flight", "{:.0f}", 1), ("throughput", "instances/s", "{:.0f}", 1),
           ("p50_us", "p50 ms", "{:.3f}", 1e-3), ("p99_us", "p99 ms", "{:.3f}", 1e-3),
           ("mean_batch", "mean batch", "{:.2f}", 1)]


def main():
    errors = 0
    print("  ".join(f"{title:>11}" for _, title, _, _ in COLUMNS))
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as f:
            points = json.load(f)["points"]
        for point in points:
            errors += point["errors"]
            cells = (form.format(point[key] * factor) for key, _, form, factor in COLUMNS)
            print("  ".join(f"{cell:>11}" for cell in cells))
    if errors:
        sys.exit(f"{errors} requests failed")


if __name__ == "__main__":
    main()
