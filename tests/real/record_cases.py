#!/usr/bin/env python3
"""Record golden cases with the real ttnn on its mock cluster.

    . .real/env.sh && python tests/real/record_cases.py tests/conformance/cores.json [...]

Each file is `{"meta": ..., "cases": [...]}` in the form of tests/conformance/run.py. A case that has
no `expect` yet gets the one that the library gives; with --again, every case does. Of an error the
whole first line is recorded as its phrase: shorten it by hand to the words that matter."""

import argparse
import hashlib
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "conformance"))


def named(case):
    """Fill in what can be derived: category, kind, id."""
    spec = case["spec"]
    text = spec.get("expr") or f"{spec.get('name')} {spec.get('part')}"
    case.setdefault("kind", "expr" if "expr" in spec else "signature")
    category = case.setdefault("cat", case["kind"])
    short = re.sub(r"[^\w.(),=+*-]+", "_", text)[:60]
    digest = hashlib.sha1(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:5]
    return {"id": f"{category}/{short}#{digest}", **case}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--again", action="store_true", help="record every case anew")
    options = parser.parse_args()
    import run
    import ttnn

    env = run.Env(ttnn)
    for file in options.files:
        whole = json.loads(file.read_text())
        whole["cases"] = [named(case) for case in whole["cases"]]
        for case in whole["cases"]:
            if "expect" in case and not options.again:
                continue
            got = run.observe(env, case)
            if "control_failed" in got:
                raise SystemExit(f"{case['id']}: {got['control_failed']}")
            if "error" in got:
                got = {"error": {"type": got["error"]["type"], "phrase": got["error"]["message"]}}
            case["expect"] = got
            print(case["id"], json.dumps(got)[:200])
        lines = ",\n".join(json.dumps(case) for case in whole["cases"])
        file.write_text(
            f'{{"meta": {json.dumps(whole.get("meta", {}))}, "cases": [\n{lines}\n]}}\n'
        )
    env.close()


if __name__ == "__main__":
    main()
